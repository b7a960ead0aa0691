"""Stable ids: UUIDv7, which order by the instant at which they were made."""

import re
import secrets
from datetime import datetime
from threading import Lock
from uuid import UUID

ENTROPY = 74  # bits
DIGITS = 32  # of an id, hexadecimal
STEP = 32  # bits by which two ids of one millisecond differ


class Uids:
    """Makes ids, each of which orders after the one before, also when the clock goes back."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._milliseconds = -1
        self._tail = 0

    def make(self, at: datetime) -> str:
        """A fresh UUIDv7 of an instant (RFC 9562 §5.7; its tail counts up by §6.2, method 2).

        Of the latest instant that was asked for, if that is later.
        """
        with self._lock:
            milliseconds = max(_milliseconds(at), self._milliseconds)
            if milliseconds == self._milliseconds:
                self._tail += 1 + secrets.randbits(STEP)
            else:
                # Half of the room is left for those that follow.
                self._milliseconds, self._tail = milliseconds, secrets.randbits(ENTROPY - 1)
            tail = self._tail
        return _uuid7(milliseconds, tail)


def uid_of(at: datetime) -> str:
    """A fresh UUIDv7 of any instant, whatever was made before."""
    return _uuid7(_milliseconds(at), secrets.randbits(ENTROPY))


def first_uid(at: datetime) -> str:
    """What no UUIDv7 of the instant's millisecond, or of a later one, orders before."""
    return _uuid7(_milliseconds(at), 0)


def uid_after(uid: str) -> str:
    """A fresh UUIDv7 that orders after another one, as close behind it as two of `Uids` are.

    Of one that is damaged, after the nearest.
    """
    return str(UUID(int=UUID(nearest_uid(uid)).int + 1 + secrets.randbits(STEP)))


def nearest_uid(uid: str) -> str:
    """The id that a damaged one may have been: what is no digit of it is 0."""
    digits = re.sub("[^0-9a-f]", "0", uid.replace("-", ""))[:DIGITS].ljust(DIGITS, "0")
    return str(UUID(digits))


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000) & (1 << 48) - 1


def _uuid7(milliseconds: int, tail: int) -> str:
    upper, lower = tail >> 62, tail & (1 << 62) - 1
    return str(UUID(int=milliseconds << 80 | 0x7 << 76 | upper << 64 | 0b10 << 62 | lower))
