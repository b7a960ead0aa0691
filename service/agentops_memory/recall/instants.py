"""Instants as text in RFC 3339, and stable ids: UUIDv7, which sort by that of their creation."""

import re
import secrets
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from threading import Lock
from uuid import UUID

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
def parsed(text: str, *, needs_zone: bool = False) -> datetime | None:
    """The instant of an RFC 3339 text, in UTC; None if invalid.

    Unless it needs a zone, `YYYY-MM-DD HH:MM:SS` is one, too, in UTC.
    """
    try:
        at = datetime.fromisoformat(text.strip().upper())  # RFC 3339 allows t and z
        if at.tzinfo is None:
            return None if needs_zone else at.replace(tzinfo=UTC)
        return at.astimezone(UTC)
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
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def rendered(at: datetime) -> str:
    """The instant in RFC 3339, in UTC, in whole seconds: `2026-04-12T10:00:00Z`."""
    return at.isoformat(timespec="seconds")[:19] + "Z"


ENTROPY = 74  # bits
DIGITS = 32  # hexadecimal, of an id
STEP = 32  # bits of the random increment within one millisecond


class Uids:
    """A monotonic UUIDv7 generator: each id sorts after the one before, whatever the clock does."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._milliseconds = -1
        self._tail = 0

    def make(self, at: datetime) -> str:
        """A new UUIDv7 of the instant, or of the latest one so far if that is later.

        RFC 9562 §5.7; the random part is a monotonic counter (§6.2, method 2). Thread-safe.
        """
        with self._lock:
            milliseconds = max(_milliseconds(at), self._milliseconds)
            if milliseconds == self._milliseconds:
                self._tail += 1 + secrets.randbits(STEP)
            else:
                # One bit is left for the increments that follow.
                self._milliseconds, self._tail = milliseconds, secrets.randbits(ENTROPY - 1)
            tail = self._tail
        return _uuid7(milliseconds, tail)


def uid_of(at: datetime) -> str:
    """A new UUIDv7 of an instant, independent of those made before."""
    return _uuid7(_milliseconds(at), secrets.randbits(ENTROPY))


def dashed(digits: str) -> str:
    """The id of 32 hexadecimal digits; a `UUID`, which checks them, takes four times as long."""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def first_uid(at: datetime) -> str:
    """The lower bound of the UUIDv7s of the instant's millisecond."""
    return _uuid7(_milliseconds(at), 0)


def uid_after(uid: str) -> str:
    """A new UUIDv7 that sorts just after another one, or after `nearest_uid` of a corrupt one."""
    return str(UUID(int=UUID(nearest_uid(uid)).int + 1 + secrets.randbits(STEP)))


def nearest_uid(uid: str) -> str:
    """A valid id for a corrupt one: characters that are not hexadecimal digits become 0."""
    digits = re.sub("[^0-9a-f]", "0", uid.replace("-", ""))[:DIGITS].ljust(DIGITS, "0")
    return str(UUID(digits))


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000) & (1 << 48) - 1


def _uuid7(milliseconds: int, tail: int) -> str:
    upper, lower = tail >> 62, tail & (1 << 62) - 1
    return dashed(f"{milliseconds << 80 | 0x7 << 76 | upper << 64 | 0b10 << 62 | lower:032x}")
