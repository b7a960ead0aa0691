"""In the background, sessions end of which nothing was heard for long."""

import logging
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

from ..domain.memories.sessions import Sessions
from ..domain.model.access import Caller
from .runner import Callers, Job, repeating

log = logging.getLogger(__name__)


def ending(
    sessions: Sessions, callers: Callers, *, idle: timedelta, every: timedelta
) -> AbstractAsyncContextManager[None]:
    """Inside, idle sessions end now and again.

    An interval of 0 means never; an idle time of 0, that none ends.
    """
    return repeating(every, lambda: end_idle(sessions, callers(), idle))


async def end_idle(sessions: Sessions, callers: Iterable[Caller], idle: timedelta) -> None:
    """End each tenant's idle sessions, and say how many; what fails is tried the next time."""

    async def end(caller: Caller) -> None:
        if ended := await sessions.end_idle(caller, idle):
            extra = {"sessions": ended, "tenant": caller.tenant}
            log.info("idle sessions have ended", extra=extra)

    await Job(end, log, "idle sessions go on; they end later").run(callers)
