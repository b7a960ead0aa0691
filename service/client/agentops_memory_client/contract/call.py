"""A question to the service as a noun: what is sent, and how its answer is read."""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
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
        raise Invalid("An idempotency key must have 1 to 255 visible ASCII characters.")
    return {IDEMPOTENCY_KEY: key or str(uuid.uuid4())}


class Unset(Enum):
    """The value of what a change does not name."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return self.name


UNSET = Unset.UNSET


def params(**parameters: object) -> Query:
    """The parameters of a query that are set: neither None nor False. A list is repeated."""
    return {
        name: list(map(str, it)) if isinstance(it, list) else ["true" if it is True else str(it)]
        for name, it in parameters.items()
        if it is not None and it is not False
    }


def also(**fields: object) -> T:  # type: ignore[type-var]
    """Fields that a method sends; None for an argument that is not sent under its name."""
    return fields  # type: ignore[return-value]


def said(messages: Sequence[object]) -> list[dict[str, str]]:
    """The messages of a transcript. Invalid for what is no Message."""
    for it in messages:
        if not isinstance(it, Message):
            raise Invalid('Each message must be a Message: Message(role="user", content="Hi.").')
    return [{"role": it.role, "content": it.content} for it in messages if isinstance(it, Message)]


def plain(value: object) -> object:
    """The value as JSON has it; a text is no list, and left for the service to refuse."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return int(value.total_seconds())
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return list(value)
    return value
