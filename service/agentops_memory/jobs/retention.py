"""The retention job: it removes what is past its retention, by a clock that is trusted."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..memory.lifecycle.retention import Removed, RetentionSweep
from ..memory.model.access import Caller
from ..memory.model.retention import BY_CLOCK, Kind, Retentions
from ..telemetry import Metrics
from ..telemetry.measures import EXPIRED, SWEPT_ROWS
from .runner import Callers, Job, WorkSignal, attempted, background, repeating

STEP = timedelta(minutes=1)  # by which a clock may be put right without having jumped
PROVEN = timedelta(minutes=5)  # after a jump, and after the start

log = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionJob:
    """What a service keeps for a time: its databases, and the audit file that they share.

    While its clock is not steady, nothing goes by its age.
    """

    retaining: RetentionSweep
    retention: Retentions
    trim_audit: Callable[[datetime], int]
    clock: TrustedClock
    metrics: Metrics

    async def sweep(self, callers: Iterable[Caller]) -> None:
        """Remove what is over its time, of each tenant; what fails is tried the next time."""
        by = self.clock.proven()
        kinds = frozenset(Kind) if by else frozenset(Kind) - BY_CLOCK

        async def sweep(caller: Caller) -> None:
            self.metrics.count(EXPIRED, by=await self.retaining.sweep_index(caller))
            self._tell(await self.retaining.sweep(caller, kinds, by=by), tenant=caller.tenant)

        await Job(sweep, log, "what is over its time goes later").run(callers)

    async def sweep_audit(self) -> None:
        """Remove audit lines that are over their time; what fails is tried the next time."""
        by = self.clock.proven()
        if until := self.retention.until(Kind.AUDIT, by) if by else None:
            await attempted(self._trim(until), log, "audit lines go later")

    async def _trim(self, until: datetime) -> None:
        self._tell({Kind.AUDIT: await asyncio.to_thread(self.trim_audit, until)})

    def _tell(self, removed: Removed, **fields: object) -> None:
        gone = {kind.value: rows for kind, rows in removed.items() if rows}
        for kind, rows in gone.items():
            self.metrics.count(SWEPT_ROWS, kind, by=rows)
        if gone:
            log.info("what was over its time was removed", extra={**gone, **fields})


@asynccontextmanager
async def enforcing(
    due: RetentionJob, callers: Callers, opened: WorkSignal, every: timedelta
) -> AsyncIterator[None]:
    """Inside, what is over its time goes now and again, and where a database was just opened.

    An interval of 0 means never.
    """

    async def sweep() -> None:
        await due.sweep(callers())
        await due.sweep_audit()

    async def sweep_opened() -> None:
        while True:
            await due.sweep(await opened.wait())

    if not every:
        yield
        return
    async with repeating(every, sweep), background(sweep_opened()):
        yield
