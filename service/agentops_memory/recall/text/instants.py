"""Instants as text: parsing RFC 3339 and rendering it."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

LATEST = datetime(9999, 12, 31, tzinfo=UTC)  # the latest instant of a change; some room is left

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
CACHED = 256  # texts; a row of an import repeats its instant

_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?"
    r"(?P<offset>[Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)?",
    re.ASCII,
)
_FINER = re.compile(r"\.\d{6}\d*[1-9]", re.ASCII)  # than a microsecond


@lru_cache(CACHED)
def parsed(text: str) -> datetime | None:
    """The instant of an RFC 3339 text or `YYYY-MM-DD HH:MM:SS` (UTC), in UTC; None if invalid."""
    try:
        at = datetime.fromisoformat(text.strip().upper())  # RFC 3339 allows t and z
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def zoned(text: str) -> datetime | None:
    """The instant of an RFC 3339 text that has a zone, in UTC; None if invalid."""
    try:
        at = datetime.fromisoformat(text.strip().upper())
        return None if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def exact(text: str, *, needs_offset: bool = False, rounds_up: bool = False) -> datetime | None:
    """The instant in RFC 3339 text, in UTC; None if there is none, or outside of the years 1-9999.

    Without an offset it is UTC, unless it needs one. What is finer than a microsecond
    is rounded down, or up.
    """
    read = _RFC_3339.fullmatch(text)
    if read is None or (needs_offset and read["offset"] is None):
        return None
    at = parsed(text)
    if at is None or not (rounds_up and _FINER.search(text)):
        return at
    return None if at == datetime.max.replace(tzinfo=at.tzinfo) else at + MICROSECOND


def whole_milliseconds(at: datetime) -> datetime:
    """The instant without what is finer."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def rendered(at: datetime) -> str:
    """The instant in RFC 3339, in UTC, in whole seconds: `2026-04-12T10:00:00Z`."""
    return at.isoformat(timespec="seconds")[:19] + "Z"
