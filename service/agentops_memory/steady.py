"""Whether the clock can be believed: a clock that has just jumped lets nothing be thrown away."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

STEP = timedelta(minutes=1)  # by which a clock may be put right without having jumped
PROVEN = timedelta(minutes=5)  # after a jump, and after the start


@dataclass(slots=True, kw_only=True)
class SteadyClock:
    """A clock beside the time that really passes, in seconds; looked at now and again."""

    clock: Callable[[], datetime]
    elapsed: Callable[[], float]
    _since: float = field(init=False)
    _began: datetime = field(init=False)  # when nothing had elapsed, by the clock

    def __post_init__(self) -> None:
        self._since, self._began = self.elapsed(), self._beginning()

    def is_steady(self) -> bool:
        """Whether it has gone as time does since the look before, and for five minutes at least."""
        began, before = self._beginning(), self._began
        self._began = began
        if abs(began - before) > STEP:
            self._since = self.elapsed()
        return self.elapsed() - self._since >= PROVEN.total_seconds()

    def _beginning(self) -> datetime:
        return self.clock() - timedelta(seconds=self.elapsed())
