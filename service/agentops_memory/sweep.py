"""What the service does by itself, again and again."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from .domain.errors import Refusal
from .domain.model import Caller
from .domain.upkeep import Swept, Upkeep
from .telemetry import Metrics
from .telemetry.metrics import INDEX_DRIFT, INDEX_PARTITIONS

Callers = Callable[[], Iterable[Caller]]

log = logging.getLogger(__name__)


@asynccontextmanager
async def sweeping(
    upkeep: Upkeep, callers: Callers, metrics: Metrics, every: timedelta
) -> AsyncIterator[None]:
    """Inside, the tenants' indexes are seen to now and again; an interval of 0 means never."""
    if not every:
        yield
        return
    task = asyncio.create_task(_sweep_again_and_again(upkeep, callers, metrics, every))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def sweep(upkeep: Upkeep, callers: Iterable[Caller], metrics: Metrics) -> None:
    """See to each tenant's index once, and say what was wrong with it."""
    swept = []
    for caller in callers:
        try:
            swept.append(await _swept(upkeep, caller))
        except Refusal as refusal:
            log.warning("no sweep now; the next one tries again", extra={"reason": str(refusal)})
    metrics.show(INDEX_DRIFT, sum(one.drift for one in swept))
    metrics.show(INDEX_PARTITIONS, sum(one.partitions for one in swept))


async def _swept(upkeep: Upkeep, caller: Caller) -> Swept:
    swept = await upkeep.sweep(caller)
    if swept.drift:
        log.error(
            "the index was out of line and was built anew",
            extra={"rows": swept.drift, "partitions": list(swept.rebuilt)},
        )
    if swept.moved:
        log.info("projects moved to other partitions", extra={"projects": swept.moved})
    return swept


async def _sweep_again_and_again(
    upkeep: Upkeep, callers: Callers, metrics: Metrics, every: timedelta
) -> None:
    while True:
        await asyncio.sleep(every.total_seconds())
        try:
            await sweep(upkeep, callers(), metrics)
        except Exception:
            log.exception("a sweep failed; the next one tries again")
