"""A question to the service as a noun: what is sent, and how its answer is read."""

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from .contract.errors import Invalid
from .contract.reading import Headers

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

IDEMPOTENCY_KEY = "Idempotency-Key"
_VISIBLE = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T_co]):
    """One question. To make it sends nothing."""

    method: str
    path: tuple[str, ...]  # its steps, as they are meant and not as they are sent
    read: Callable[[bytes, Headers], T_co]
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_repeatable: bool = True  # whether to send it twice is to ask it once
    within: timedelta | None = None  # the time that its answer may take, if it may take longer


def once(key: str | None) -> Mapping[str, str]:
    """The headers that let a write be done once, however often it is sent.

    Without a key a new one is made. Invalid for what cannot be one.
    """
    if key is not None and not _VISIBLE.fullmatch(key):
        raise Invalid("An idempotency key has 1 to 255 visible ASCII characters.")
    return {IDEMPOTENCY_KEY: key or str(uuid.uuid4())}


def given(**parameters: object) -> dict[str, str]:
    """The parameters of a query that are there: neither None nor a flag that is not set."""
    return {
        name: "true" if value is True else str(value)
        for name, value in parameters.items()
        if value is not None and value is not False
    }
