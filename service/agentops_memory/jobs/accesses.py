"""When agents read their entries is written within a second, and at the end of the service."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from ..openintent.rules.entries import AgentEntries
from .runner import attempted, repeating

EVERY = timedelta(seconds=1)

log = logging.getLogger(__name__)


@asynccontextmanager
async def noting(entries: AgentEntries) -> AsyncIterator[None]:
    """Inside, what was noted of accesses is written soon; what fails is tried again."""

    async def write() -> None:
        await attempted(entries.flush(), log, "accesses are written later")

    async with repeating(EVERY, write):
        yield
    await write()
