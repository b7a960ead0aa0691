"""In the background, the index is compared with the memories, and values are looked at."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from ..domain.errors import NotFound
from ..domain.lifecycle.upkeep import Swept, Upkeep
from ..domain.model.access import Caller
from ..telemetry import Metrics
from ..telemetry.measures import INDEX_DRIFT, INDEX_PARTITIONS
from .runner import Seldom, log_failure, repeating
from .scrub import Callers, WorkSignal

log = logging.getLogger(__name__)

Look = Callable[[Caller], Awaitable[None]]


def sweeping(
    upkeep: Upkeep, callers: Callers, metrics: Metrics, damage: WorkSignal, every: timedelta
) -> AbstractAsyncContextManager[None]:
    """Inside, the tenants' indexes are seen to now and again; an interval of 0 means never.

    The bell is rung for a tenant whose index cannot be read.
    """
    return repeating(every, lambda: sweep(upkeep, callers(), metrics, damage))


def looking_at_values(
    look: Look, callers: Callers, every: timedelta
) -> AbstractAsyncContextManager[None]:
    """Inside, `look` looks at the values of each tenant as often, but a hundredth of the time."""
    seldom = Seldom()
    return repeating(every, lambda: seldom.run(lambda: _looked(look, callers())))


async def _looked(look: Look, callers: Iterable[Caller]) -> None:
    for caller in callers:
        try:
            await look(caller)
        except NotFound:
            continue  # the tenant was erased
        except Exception as error:  # noqa: BLE001 - the next tenant's may be well
            sentence = "the values were not looked at; that is tried again"
            log_failure(log, sentence, error, tenant=caller.tenant)


async def sweep(
    upkeep: Upkeep, callers: Iterable[Caller], metrics: Metrics, damage: WorkSignal
) -> None:
    """See to each tenant's index once, and say what was wrong with it."""
    swept = []
    for caller in callers:
        try:
            swept.append(await _swept(upkeep, caller))
            if swept[-1].is_damaged:
                damage.ring(caller)
        except Exception as error:  # noqa: BLE001 - the next tenant's may be well
            sentence = "no sweep now; the next one tries again"
            log_failure(log, sentence, error, tenant=caller.tenant)
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
