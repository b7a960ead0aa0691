"""What the service does by itself, again and again."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from .domain.errors import Refusal
from .domain.model import OPERATOR
from .domain.upkeep import Upkeep
from .telemetry import Metrics
from .telemetry.metrics import INDEX_DRIFT, INDEX_PARTITIONS

log = logging.getLogger(__name__)


@asynccontextmanager
async def sweeping(upkeep: Upkeep, metrics: Metrics, every: timedelta) -> AsyncIterator[None]:
    """Inside, the index is seen to now and again; an interval of 0 means never."""
    if not every:
        yield
        return
    task = asyncio.create_task(_sweep_again_and_again(upkeep, metrics, every))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def sweep(upkeep: Upkeep, metrics: Metrics) -> None:
    """See to the index once, and say what was wrong with it."""
    swept = await upkeep.sweep(OPERATOR)
    metrics.show(INDEX_DRIFT, swept.drift)
    metrics.show(INDEX_PARTITIONS, swept.partitions)
    if swept.drift:
        log.error(
            "the index was out of line and was built anew",
            extra={"rows": swept.drift, "partitions": list(swept.rebuilt)},
        )
    if swept.moved:
        log.info("projects moved to other partitions", extra={"projects": swept.moved})


async def _sweep_again_and_again(upkeep: Upkeep, metrics: Metrics, every: timedelta) -> None:
    while True:
        await asyncio.sleep(every.total_seconds())
        try:
            await sweep(upkeep, metrics)
        except Refusal as refusal:
            log.warning("no sweep now; the next one tries again", extra={"reason": str(refusal)})
        except Exception:
            log.exception("a sweep failed; the next one tries again")
