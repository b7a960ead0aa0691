"""The jobs of the maintenance port: check, repair and tidy storage."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial

from ..engine.maintenance import Maintenance, Tidied
from ..errors import Damaged
from ..memory.model.access import Caller, TenantId
from ..telemetry import Metrics
from ..telemetry.measures import DAMAGED_ROWS, INDEX_DRIFT, INDEX_PARTITIONS
from .runner import Callers, Job, WorkSignal, background, repeating

log = logging.getLogger(__name__)

PAUSE = timedelta(minutes=1)  # between two repairs: saves wait while a part is checked
REST = 100  # times what it took to check all rows, until they are checked again
LOOK = timedelta(seconds=1)  # at whether this process leads
AT_ONCE = timedelta(microseconds=1)


def tidying(
    maintenance: Maintenance,
    callers: Callers,
    metrics: Metrics,
    damage: WorkSignal,
    every: timedelta,
) -> AbstractAsyncContextManager[None]:
    """Inside, the tenants' indexes are tidied now and again; an interval of 0 means never.

    The signal is set for a tenant whose index cannot be read.
    """
    return repeating(every, lambda: tidy(maintenance, callers(), metrics, damage))


def adapting(maintenance: Maintenance, callers: Callers) -> AbstractAsyncContextManager[None]:
    """Inside, each tenant's index is brought to the rules of this process as soon as it leads.

    Who has others is refused its writes from then on, so that of two releases side by side one
    alone makes words, and neither undoes again and again what the other has done.
    """
    job = Job(maintenance.bring_to_rules, log, "the index is by other rules; it is rebuilt later")

    async def adapted() -> None:
        done: set[TenantId] = set()
        while True:
            led = {caller.tenant: caller for caller in callers()}
            due = [caller for tenant, caller in led.items() if tenant not in done]
            held_back = await job.run(due)
            done = led.keys() - {caller.tenant for caller in held_back}
            await asyncio.sleep(LOOK.total_seconds())

    return background(adapted())


def checking(
    maintenance: Maintenance, callers: Callers, metrics: Metrics, every: timedelta
) -> AbstractAsyncContextManager[None]:
    """Inside, each tenant's rows are checked as often, but a hundredth of the time."""
    due_at = 0.0
    found: list[int] = []

    async def checked(caller: Caller) -> None:
        found.append(len((await maintenance.check(caller)).damaged_rows))

    job = Job(checked, log, "the rows were not looked at; that is tried again")

    async def check() -> None:
        nonlocal due_at
        clock = asyncio.get_running_loop().time
        if (began := clock()) >= due_at:
            found.clear()
            await job.run(callers())
            metrics.show(DAMAGED_ROWS, sum(found))
            due_at = clock() + (clock() - began) * REST

    return repeating(every, check)


def repairing(maintenance: Maintenance, damage: WorkSignal) -> AbstractAsyncContextManager[None]:
    """Inside, the signal lets a tenant's storage be repaired, and then be checked as a whole.

    What stays damaged is looked at again.
    """
    repair = partial(_is_repaired, maintenance)
    job = Job(repair, log, "nothing is mended now; it is tried again")

    async def repaired() -> None:
        damaged: list[Caller] = []
        while True:
            signalled = await damage.wait(AT_ONCE if damaged else None)
            due = {caller.tenant: caller for caller in [*damaged, *signalled]}
            damaged = await job.run(due.values())
            await asyncio.sleep(PAUSE.total_seconds())

    return background(repaired())


async def tidy(
    maintenance: Maintenance, callers: Iterable[Caller], metrics: Metrics, damage: WorkSignal
) -> None:
    """Tidy each tenant's index once, and say what was wrong with it."""
    found: list[Tidied] = []

    async def tidied(caller: Caller) -> None:
        found.append(await maintenance.tidy(caller))
        _tell(found[-1])
        if found[-1].is_damaged:
            damage.set(caller)

    await Job(tidied, log, "no sweep now; the next one tries again").run(callers)
    metrics.show(INDEX_DRIFT, sum(one.drift for one in found))
    metrics.show(INDEX_PARTITIONS, sum(one.parts for one in found))


def _tell(tidied: Tidied) -> None:
    if tidied.drift:
        fields = {"rows": tidied.drift, "partitions": list(tidied.rebuilt)}
        log.error("the index was out of line and was built anew", extra=fields)
    if tidied.moved:
        log.info("projects moved to other partitions", extra={"projects": tidied.moved})


async def _is_repaired(maintenance: Maintenance, caller: Caller) -> bool:
    try:
        rebuilt = (await maintenance.repair(caller)).rebuilt
        if rebuilt:
            log.error(
                "the index was damaged and was made anew",
                extra={"tenant": caller.tenant, "partitions": list(rebuilt)},
            )
        return (await maintenance.check(caller, thorough=True)).is_intact
    except Damaged:
        return False  # the log had it when it showed first
