"""How often a call is sent, and how long is waited for it."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from .contract.errors import Misconfigured

TIMEOUT = timedelta(seconds=10)
NOTHING, LONGEST = timedelta(0), timedelta(days=1)
RETRIES = 2
FIRST_WAIT = 0.25  # seconds; the longest wait before the first repetition
LONGEST_WAIT = 5.0  # seconds, unless the service asks for more

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings(Generic[T]):
    """Time and chance as a client meets them; a test has its own."""

    sleep: Callable[[float], T]  # for so many seconds
    clock: Callable[[], float] = time.monotonic  # seconds since whenever
    chance: Callable[[], float] = random.random  # from 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The bounds of every call; Misconfigured if they cannot be."""

    timeout: timedelta
    retries: int
    around: Surroundings[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.timeout, timedelta) or not NOTHING < self.timeout <= LONGEST:
            raise Misconfigured("timeout is a timedelta of more than nothing, and at most a day.")
        if self.retries < 0:
            raise Misconfigured("retries is a number, 0 or more.")

    def attempts(self, within: timedelta | None = None) -> "Attempts":
        """Those of one call, whose answer may take so long if that is longer."""
        return Attempts(self, max(self.timeout, within or self.timeout))


class Attempts:
    """The attempts of one call, from now on: all together have as long as each would have."""

    def __init__(self, patience: Patience, within: timedelta) -> None:
        self._patience = patience
        self._within = within.total_seconds()
        self._end = patience.around.clock() + self._within * (patience.retries + 1)
        self._repeated = 0

    @property
    def seconds_left(self) -> float:
        return self._end - self._patience.around.clock()

    @property
    def seconds_for_answer(self) -> float:
        """How long this attempt may wait for the service to go on."""
        return max(min(self._within, self.seconds_left), 0.001)

    def wait(self, asked: timedelta | None) -> float | None:
        """Seconds until the next attempt, at least what is asked; None if there is none.

        Full jitter: anything up to a bound that doubles, so that many clients do
        not come back at once.
        """
        if self._repeated >= self._patience.retries:
            return None
        bound = min(FIRST_WAIT * 2 ** min(self._repeated, 10), LONGEST_WAIT)
        self._repeated += 1
        wait = self._patience.around.chance() * bound + (asked.total_seconds() if asked else 0.0)
        return wait if wait < self.seconds_left else None
