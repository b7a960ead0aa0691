"""The rate limit: how many requests a key may send, beyond which they are refused with 429."""

import time
from collections import OrderedDict
from collections.abc import Callable

from ...errors import TooMany
from ...settings.parsing import NANOSECONDS, Rate

MOST_KEYS = 10_000  # whose buckets are kept


class RateLimiter:
    """Counts the requests of each key, and those without one together.

    It counts in this process alone, and exactly. A key that has not asked for a
    unit is forgotten; beyond MOST_KEYS those that asked longest ago are.
    """

    def __init__(
        self, limit: Rate | None, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._limit = limit
        self._monotonic_ns = monotonic_ns
        self._full_at: OrderedDict[str | None, int] = OrderedDict()  # in ticks, see require

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._full_at)

    def require(self, key: str | None) -> None:
        """Count a request of this key; refused with TooMany, it does not count."""
        limit = self._limit
        if limit is None:
            return
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
        while next(iter(self._full_at.values())) <= now or len(self._full_at) > MOST_KEYS:
            self._full_at.popitem(last=False)


def _sentence(key: str | None, limit: Rate, seconds: int) -> str:
    asked = "This service is" if key is None else "This key is"
    return f"{asked} used more often than {limit}; try again in {seconds} s."
