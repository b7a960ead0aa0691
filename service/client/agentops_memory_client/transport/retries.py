"""How often a call is sent, and its timeouts."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ..contract.errors import Misconfigured

TIMEOUT = timedelta(seconds=10)  # the service refuses after 5 s, with a reason
MAX_TIMEOUT = timedelta(days=1)
RETRIES = 2
FIRST_BACKOFF = 0.25  # seconds; the longest pause before the first retry
MAX_BACKOFF = 5.0  # seconds, unless the service asks for more

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing(Generic[T]):
    """The clock, sleep and randomness of a client; a test has its own."""

    sleep: Callable[[float], T]  # for so many seconds
    clock: Callable[[], float] = time.monotonic  # seconds
    random: Callable[[], float] = random.random  # from 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The timeout and the retries of every call; Misconfigured if they are out of range."""

    timeout: timedelta
    retries: int
    timing: Timing[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.timeout, timedelta) or not timedelta() < self.timeout <= MAX_TIMEOUT:
            raise Misconfigured("timeout must be a timedelta longer than 0, and at most a day.")
        if self.retries < 0:
            raise Misconfigured("retries must be a whole number, 0 or more.")

    def attempts(self, timeout: timedelta | None = None) -> "Attempts":
        """Those of one call, beginning now; its own timeout counts if it is longer."""
        return Attempts(self, max(self.timeout, timeout or self.timeout))


class Attempts:
    """The attempts of one call, which together take at most `timeout` times their number."""

    def __init__(self, policy: RetryPolicy, timeout: timedelta) -> None:
        self._policy = policy
        self._timeout = timeout.total_seconds()
        self._deadline = policy.timing.clock() + self._timeout * (policy.retries + 1)
        self._retries = 0

    @property
    def seconds_left(self) -> float:
        return self._deadline - self._policy.timing.clock()

    @property
    def seconds_for_answer(self) -> float:
        """The read timeout of this attempt."""
        return max(min(self._timeout, self.seconds_left), 0.001)

    def pause(self, retry_after: timedelta | None) -> float | None:
        """Seconds until the next attempt, at least `retry_after`; None if there is none left.

        Exponential backoff with full jitter, so that many clients do not return at once.
        """
        if self._retries >= self._policy.retries:
            return None
        bound = min(FIRST_BACKOFF * 2 ** min(self._retries, 10), MAX_BACKOFF)
        self._retries += 1
        least = retry_after.total_seconds() if retry_after else 0.0
        pause = self._policy.timing.random() * bound + least
        return pause if pause < self.seconds_left else None
