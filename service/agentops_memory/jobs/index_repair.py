"""In the background, a database in which damage has shown is looked at, and its index mended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from ..domain.errors import Damaged
from ..domain.lifecycle.upkeep import Upkeep
from ..domain.model.access import Caller
from .runner import beside, log_failure
from .scrub import WorkSignal

log = logging.getLogger(__name__)

PAUSE = timedelta(minutes=1)  # between two looks: saves wait while a partition is checked
AT_ONCE, FOR_EVER = timedelta(microseconds=1), timedelta()

IsWhole = Callable[[Caller], Awaitable[bool]]


def mending(
    upkeep: Upkeep, is_whole: IsWhole, work_signal: WorkSignal
) -> AbstractAsyncContextManager[None]:
    """Inside, the bell lets a tenant's index be checked, and made anew where it is damaged.

    `is_whole` looks at all of the file afterwards. What stays damaged is looked at again.
    """
    return beside(_mend_again_and_again(upkeep, is_whole, work_signal))


async def _mend_again_and_again(upkeep: Upkeep, is_whole: IsWhole, work_signal: WorkSignal) -> None:
    damaged: list[Caller] = []
    while True:
        rung = await work_signal.heard(AT_ONCE if damaged else FOR_EVER)
        due = {caller.tenant: caller for caller in [*damaged, *rung]}
        mended = [await _is_mended(upkeep, is_whole, caller) for caller in due.values()]
        damaged = [caller for caller, it in zip(due.values(), mended, strict=True) if not it]
        await asyncio.sleep(PAUSE.total_seconds())


async def _is_mended(upkeep: Upkeep, is_whole: IsWhole, caller: Caller) -> bool:
    """Whether there is no damage any more that is known of."""
    try:
        made_anew = await upkeep.mend(caller)
        if made_anew:
            log.error(
                "the index was damaged and was made anew",
                extra={"tenant": caller.tenant, "partitions": list(made_anew)},
            )
        return await is_whole(caller)
    except Damaged:
        pass  # the log had it when it showed first
    except Exception as error:  # noqa: BLE001 - it is tried again
        log_failure(log, "nothing is mended now; it is tried again", error, tenant=caller.tenant)
    return False
