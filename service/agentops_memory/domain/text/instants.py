"""Instants as text: what is accepted, and what is shown."""

from datetime import UTC, datetime
from functools import lru_cache

LATEST = datetime(9999, 12, 31, tzinfo=UTC)  # no change is dated later; some room is left

COMMON = 256  # texts whose instant is kept: a row of an import has the same one thrice


@lru_cache(COMMON)
def parsed(text: str) -> datetime | None:
    """The instant in RFC 3339 text or in `YYYY-MM-DD HH:MM:SS` (UTC); None if there is none."""
    try:
        at = datetime.fromisoformat(text.strip().upper())  # RFC 3339 allows t and z
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def rendered(at: datetime) -> str:
    """The instant in RFC 3339, in UTC, in whole seconds: `2026-04-12T10:00:00Z`."""
    return at.isoformat(timespec="seconds")[:19] + "Z"
