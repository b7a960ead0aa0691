"""Scrubbing: the bytes of what was erased leave the storage."""

import asyncio
from datetime import timedelta

from ..engine.callbacks import Progress, noop
from ..engine.engine import Engine
from ..engine.maintenance import Scrubbed
from ..memory.model.access import Caller
from ..stores.store import erase_some_of_store, is_store_going

PAUSE = timedelta(milliseconds=250)  # before another try, while a read or a process holds it back


async def scrub(engine: Engine, caller: Caller, progress: Progress = noop) -> Scrubbed:
    """Let the bytes of what was erased so far leave the storage; a single try.

    Changes continue meanwhile; each waits a moment at most.
    """
    while await engine.read(caller, is_store_going):
        progress("a deleted store")
        await engine.write(caller, erase_some_of_store)
    return await engine.maintenance.scrub(caller, progress)


async def scrub_all(engine: Engine, caller: Caller, progress: Progress = noop) -> int:
    """Scrub until nothing is pending; the answer is how many erasures were."""
    settled = 0
    while (scrubbed := await scrub(engine, caller, progress)) != Scrubbed():
        settled += scrubbed.settled
        if scrubbed.pending:
            progress("waiting for those who read an older state")
            await asyncio.sleep(PAUSE.total_seconds())
    return settled
