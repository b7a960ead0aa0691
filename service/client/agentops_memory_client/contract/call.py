"""A question to the service as a noun: what is sent, and how its answer is read."""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

from .errors import Invalid
from .models import Message
from .reading import Headers

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

IDEMPOTENCY_KEY = "Idempotency-Key"
Query = Mapping[str, Sequence[str]]  # the values of each parameter, in their order
_VISIBLE = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T_co]):
    """One question. To make it sends nothing."""

    operation: str  # its name in the description of the service
    method: str
    path: tuple[str, ...]  # its steps, as they are meant and not as they are sent
    read: Callable[[bytes, Headers], T_co]
    query: Query = field(default_factory=dict)
    body: Mapping[str, Any] | None = field(default=None, repr=False)  # it may hold a secret
    headers: Mapping[str, str] = field(default_factory=dict)
    is_idempotent: bool = True  # whether to send it twice is to ask it once
    within: timedelta | None = None  # the time that its answer may take, if it may take longer


def once(key: str | None) -> Mapping[str, str]:
    """The headers that let a write be done once, however often it is sent.

    Without a key a new one is made. Invalid for what cannot be one.
    """
    if key is not None and not _VISIBLE.fullmatch(key):
        raise Invalid("An idempotency key has 1 to 255 visible ASCII characters.")
    return {IDEMPOTENCY_KEY: key or str(uuid.uuid4())}


class Unset(Enum):
    """The value of what a change does not name."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return self.name


def given(**parameters: object) -> Query:
    """The parameters of a query that are set: neither None nor False. A list is repeated."""
    return {
        name: list(map(str, it)) if isinstance(it, list) else ["true" if it is True else str(it)]
        for name, it in parameters.items()
        if it is not None and it is not False
    }


def said(messages: Sequence[object]) -> list[dict[str, str]]:
    """The messages of a transcript. Invalid for what is no Message."""
    return [_told(message) for message in messages]


def _told(message: object) -> dict[str, str]:
    if not isinstance(message, Message):
        raise Invalid('Each message is a Message, as Message(role="user", content="Hi.").')
    return {"role": message.role, "content": message.content}


def present(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields of a body that are there."""
    return {name: value for name, value in fields.items() if value is not None}


def listed(items: Sequence[object]) -> object:
    """The items as a list; a text is none, and is left for the service to refuse."""
    return items if isinstance(items, str) else list(items)


def instant(at: datetime | None) -> str | None:
    """An aware instant as a body names it."""
    return None if at is None else at.isoformat()


def seconds(span: timedelta | int | None) -> int | None:
    """A span of time as a body names it: in whole seconds."""
    return int(span.total_seconds()) if isinstance(span, timedelta) else span
