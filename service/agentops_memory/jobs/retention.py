"""In the background, what is over its time is removed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..domain.errors import NotFound
from ..domain.lifecycle.retention import Removed, RetentionSweep
from ..domain.model.access import Caller
from ..domain.model.retention import BY_CLOCK, Kind, Retentions
from ..telemetry import Metrics
from ..telemetry.measures import SWEPT_ROWS
from .runner import beside, log_failure, repeating
from .scrub import Callers, WorkSignal
from .trusted_clock import SteadyClock

TrimAudit = Callable[[datetime], int]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What a service keeps for a time: its databases, and the audit file that they share.

    While its clock is not steady, nothing goes by its age.
    """

    retaining: RetentionSweep
    kept: Retentions
    trim_audit: TrimAudit
    clock: SteadyClock
    metrics: Metrics

    async def sweep(self, callers: Iterable[Caller]) -> None:
        """Remove what is over its time, of each tenant; what fails is tried the next time."""
        by = self.clock.proven()
        for caller in callers:
            await self._sweep_one(caller, by)

    async def sweep_audit(self) -> None:
        """Remove audit lines that are over their time; what fails is tried the next time."""
        by = self.clock.proven()
        until = self.kept.until(Kind.AUDIT, by) if by else None
        if until is None:
            return
        try:
            lines = await asyncio.to_thread(self.trim_audit, until)
        except Exception as error:  # noqa: BLE001 - the next sweep tries again
            log_failure(log, "audit lines go later", error)
        else:
            self._tell({Kind.AUDIT: lines})

    async def _sweep_one(self, caller: Caller, by: datetime | None) -> None:
        kinds = frozenset(Kind) if by else frozenset(Kind) - BY_CLOCK
        try:
            removed = await self.retaining.sweep(caller, kinds, by=by)
        except NotFound:
            pass  # the tenant was erased
        except Exception as error:  # noqa: BLE001 - the next tenant's may be well
            log_failure(log, "what is over its time goes later", error, tenant=caller.tenant)
        else:
            self._tell(removed, tenant=caller.tenant)

    def _tell(self, removed: Removed, **fields: object) -> None:
        gone = {kind.value: rows for kind, rows in removed.items() if rows}
        for kind, rows in gone.items():
            self.metrics.count(SWEPT_ROWS, kind, by=rows)
        if gone:
            log.info("what was over its time was removed", extra={**gone, **fields})


@asynccontextmanager
async def keeping(
    kept: Keeping, callers: Callers, opened: WorkSignal, every: timedelta
) -> AsyncIterator[None]:
    """Inside, what is over its time goes now and again, and where a database was just opened.

    An interval of 0 means never.
    """

    async def sweep() -> None:
        await kept.sweep(callers())
        await kept.sweep_audit()

    async def sweep_opened() -> None:
        while True:
            await kept.sweep(await opened.heard(timedelta()))

    if not every:
        yield
        return
    async with repeating(every, sweep), beside(sweep_opened()):
        yield
