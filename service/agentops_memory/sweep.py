"""In the background, the index is compared with the memories, and mended."""

import logging
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from .background import repeating
from .domain.errors import Refusal
from .domain.model import Caller
from .domain.upkeep import Swept, Upkeep
from .erasing import Bell, Callers
from .telemetry import Metrics
from .telemetry.metrics import INDEX_DRIFT, INDEX_PARTITIONS

log = logging.getLogger(__name__)


def sweeping(
    upkeep: Upkeep, callers: Callers, metrics: Metrics, damage: Bell, every: timedelta
) -> AbstractAsyncContextManager[None]:
    """Inside, the tenants' indexes are seen to now and again; an interval of 0 means never.

    The bell is rung for a tenant whose index cannot be read.
    """

    async def once() -> None:
        try:
            await sweep(upkeep, callers(), metrics, damage)
        except Exception:
            log.exception("a sweep failed; the next one tries again")

    return repeating(every, once)


async def sweep(upkeep: Upkeep, callers: Iterable[Caller], metrics: Metrics, damage: Bell) -> None:
    """See to each tenant's index once, and say what was wrong with it."""
    swept = []
    for caller in callers:
        try:
            swept.append(await _swept(upkeep, caller))
            if swept[-1].is_damaged:
                damage.ring(caller)
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
