"""How often each key may ask: a bucket of requests that fills again with time."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from ..domain.errors import TooMany

MOST = 1_000_000  # requests of a limit
MOST_KEYS = 10_000  # whose buckets are kept

NANOSECONDS = 1_000_000_000  # in a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many requests a unit of time: all at once after a quiet unit, else evenly."""

    count: int
    unit: str

    def __str__(self) -> str:
        return f"{self.count}/{self.unit}"

    @property
    def nanoseconds(self) -> int:
        """The length of the unit."""
        return _UNITS[self.unit] * NANOSECONDS


def rate(text: str) -> Rate | None:
    """A number of requests and a unit: `50/s`, `600/m`, `20000/h`; None for no limit."""
    if not text:
        return None
    match = _RATE.fullmatch(text)
    if match is None or not 1 <= int(match["count"]) <= MOST:
        raise ValueError(f"is no rate such as 50/s, 600/m or 20000/h, from 1 to {MOST}")
    return Rate(count=int(match["count"]), unit=match["unit"])


class Rates:
    """Counts the requests of each key, and those without one together.

    It counts in this process alone, and exactly. A key that has not asked for a
    unit is forgotten; beyond MOST_KEYS those that asked longest ago are.
    """

    def __init__(
        self, limit: Rate | None, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._limit = limit
        self._monotonic_ns = monotonic_ns
        self._full_at: OrderedDict[str | None, int] = OrderedDict()  # in ticks, see _require

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._full_at)

    def require(self, key: str | None) -> None:
        """Count a request of this key; refused with TooMany, it does not count."""
        if self._limit is not None:
            self._require(key, self._limit)

    def _require(self, key: str | None, limit: Rate) -> None:
        # A tick is a count-th of a nanosecond: in ticks a request costs just a unit, so
        # nothing is ever rounded. A bucket is known by when it is full again.
        now, cost = self._monotonic_ns() * limit.count, limit.nanoseconds
        full_at = max(self._full_at.get(key, now), now) + cost
        over = full_at - now - limit.count * cost
        if over > 0:
            seconds = -(-over // (limit.count * NANOSECONDS))
            raise TooMany(_sentence(key, limit, seconds), seconds)
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        self._forget(now)

    def _forget(self, now: int) -> None:
        while next(iter(self._full_at.values())) <= now or len(self._full_at) > MOST_KEYS:
            self._full_at.popitem(last=False)


def _sentence(key: str | None, limit: Rate, seconds: int) -> str:
    asked = "This service is" if key is None else "This key is"
    return f"{asked} used more often than {limit}; try again in {seconds} s."


_UNITS = {"s": 1, "m": 60, "h": 3600}  # seconds
_RATE = re.compile(r"(?P<count>\d{1,7})/(?P<unit>[smh])", re.ASCII)
