"""In the background, the bytes follow what was erased."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from functools import partial

from ..domain.errors import NotFound
from ..domain.lifecycle.receipts import PAUSE, Erasures
from ..domain.model.access import Caller
from ..domain.secrets.sanitizing import is_operational
from .runner import beside, log_failure

LONGEST_PAUSE = timedelta(seconds=4)

log = logging.getLogger(__name__)

Callers = Callable[[], Iterable[Caller]]
"""Who stands for each tenant: asked anew each time, for tenants come and go."""


class WorkSignal:
    """Rung for a tenant in which something was erased; heard by the one who scrubs."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._callers: dict[str, Caller] = {}

    def ring(self, caller: Caller) -> None:
        """Say that the caller has erased something."""
        self._callers[caller.tenant] = Caller(tenant=caller.tenant)
        self._rung.set()

    async def heard(self, patience: timedelta) -> list[Caller]:
        """For whom it was rung, once it was; nobody, when the time is over. 0 is for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience.total_seconds() or None):
                await self._rung.wait()
        self._rung.clear()
        callers = list(self._callers.values())
        self._callers.clear()
        return callers


def scrubbing(
    erasures: Erasures, callers: Callers, work_signal: WorkSignal, every: timedelta
) -> AbstractAsyncContextManager[None]:
    """Inside, what is erased leaves the files: at the start, when the bell rings, now and again.

    Another process may have erased something, so all tenants are looked at, as
    often as that; an interval of 0 means only at the start.
    """
    return beside(again_and_again(partial(_is_scrubbed, erasures), callers, work_signal, every))


async def again_and_again(
    is_done: Callable[[Caller], Awaitable[bool]],
    callers: Callers,
    work_signal: WorkSignal,
    every: timedelta,
) -> None:
    """Do what is to be done for each tenant, and after a pause again what is not done then."""
    due, pause, clock = list(callers()), PAUSE, asyncio.get_running_loop().time
    while True:
        begun = clock()
        held_back = [caller for caller in due if not await is_done(caller)]
        await asyncio.sleep(clock() - begun)  # it rests as long as it worked
        pause = min(2 * pause, LONGEST_PAUSE) if held_back else PAUSE
        rung = await work_signal.heard(pause if held_back else every)
        due = held_back + [caller for caller in rung if caller not in held_back]
        due = due or list(callers())


async def _is_scrubbed(erasures: Erasures, caller: Caller) -> bool:
    """Whether nothing of the tenant is held back; what fails is tried again with the rest."""
    try:
        scrubbed = await erasures.scrub(caller)
    except NotFound:
        return True  # the tenant was erased
    except Exception as error:  # noqa: BLE001 - it is tried again
        log_failure(log, "no scrub now; it is tried again", error, tenant=caller.tenant)
        return not is_operational(error)  # which the next sweep meets again
    if scrubbed.settled:
        log.info(
            "erased bytes are gone",
            extra={"erasures": scrubbed.settled, "tenant": caller.tenant},
        )
    return not scrubbed.pending
