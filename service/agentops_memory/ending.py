"""In the background, sessions end of which nothing was heard for long."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from .domain.errors import NotFound, Refusal
from .domain.model import Caller
from .domain.sessions import Sessions
from .erasing import Callers

log = logging.getLogger(__name__)


@asynccontextmanager
async def ending(
    sessions: Sessions, callers: Callers, *, idle: timedelta, every: timedelta
) -> AsyncIterator[None]:
    """Inside, idle sessions end now and again.

    An interval of 0 means never; an idle time of 0, that none ends.
    """
    if not every:
        yield
        return
    task = asyncio.create_task(_end_again_and_again(sessions, callers, idle, every))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def end_idle(sessions: Sessions, callers: Iterable[Caller], idle: timedelta) -> None:
    """End each tenant's idle sessions, and say how many; what fails is tried the next time."""
    for caller in callers:
        try:
            ended = await sessions.end_idle(caller, idle)
        except NotFound:
            continue  # the tenant was erased
        except Refusal as refusal:
            log.warning("idle sessions go on; they end later", extra={"reason": str(refusal)})
        except Exception:
            log.exception("idle sessions could not be ended; the next sweep tries again")
        else:
            if ended:
                extra = {"sessions": ended, "tenant": caller.tenant}
                log.info("idle sessions have ended", extra=extra)


async def _end_again_and_again(
    sessions: Sessions, callers: Callers, idle: timedelta, every: timedelta
) -> None:
    while True:
        await asyncio.sleep(every.total_seconds())
        await end_idle(sessions, callers(), idle)
