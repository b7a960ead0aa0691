"""In the background, sessions end of which nothing was heard for long."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

from .domain.errors import NotFound, Refusal
from .domain.model import Caller
from .domain.sessions import Sessions
from .erasing import Bell, Callers

FOR_EVER = timedelta()

log = logging.getLogger(__name__)


@asynccontextmanager
async def ending(
    sessions: Sessions, callers: Callers, opened: Bell, *, idle: timedelta, every: timedelta
) -> AsyncIterator[None]:
    """Inside, idle sessions end: at the start, as often as that, and where the bell rings.

    It rings for a tenant whose database was opened. An interval of 0 means no oftener; an idle
    time of 0, that none ends.
    """
    tasks = [
        asyncio.create_task(_end_again_and_again(sessions, callers, idle, every)),
        asyncio.create_task(_end_where_opened(sessions, opened, idle)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
    await end_idle(sessions, callers(), idle)
    while every:
        await asyncio.sleep(every.total_seconds())
        await end_idle(sessions, callers(), idle)


async def _end_where_opened(sessions: Sessions, opened: Bell, idle: timedelta) -> None:
    while True:
        await end_idle(sessions, await opened.heard(FOR_EVER), idle)
