"""Instants as text: parsing RFC 3339 and rendering it."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

LATEST = datetime(9999, 12, 31, tzinfo=UTC)  # the latest instant of a change; some room is left

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
CACHED = 256  # texts; a row of an import repeats its instant


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


def rendered(at: datetime) -> str:
    """The instant in RFC 3339, in UTC, in whole seconds: `2026-04-12T10:00:00Z`."""
    return at.isoformat(timespec="seconds")[:19] + "Z"
