"""Whether the clock can be believed: a clock that has just jumped lets nothing be thrown away."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

STEP = timedelta(minutes=1)  # by which a clock may be put right without having jumped
PROVEN = timedelta(minutes=5)  # after a jump, and after the start


@dataclass(slots=True, kw_only=True)
class TrustedClock:
    """A clock beside the time that really passes, in seconds; looked at now and again."""

    clock: Callable[[], datetime]
    elapsed: Callable[[], float]
    _since: float = field(init=False)
    _began: datetime = field(init=False)  # when nothing had elapsed, by the clock

    def __post_init__(self) -> None:
        self._since = self.elapsed()
        self._began = self.clock() - timedelta(seconds=self._since)

    def proven(self) -> datetime | None:
        """What it shows; None unless it has gone as time does for five minutes at least."""
        now, elapsed = self.clock(), self.elapsed()
        began, before = now - timedelta(seconds=elapsed), self._began
        self._began = began
        if abs(began - before) > STEP:
            self._since = elapsed
        return now if elapsed - self._since >= PROVEN.total_seconds() else None
