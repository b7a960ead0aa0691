"""Waiting for a place, or a lock, on the event loop: a caller waits, but not for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from ...errors import Busy

QUEUE = 512  # callers that may wait
PATIENCE = timedelta(seconds=5)  # for a place, and for a lock


class Places:
    """So many may be used at a time."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._waiting = 0

    @property
    def are_taken(self) -> bool:
        """Whether who comes now has to wait."""
        return self._free.locked()

    async def take(self, until: float) -> None:
        """Take one; Busy when none is free by then, a time of the loop, or too many wait."""
        if self._waiting >= QUEUE:
            raise Busy("Too many requests are waiting; try again.")
        self._waiting += 1
        try:
            async with asyncio.timeout_at(until):
                await self._free.acquire()
        except TimeoutError:
            raise Busy("Too many requests are waiting; try again.") from None
        finally:
            self._waiting -= 1

    def give_back(self) -> None:
        self._free.release()


def deadline() -> float:
    """The time of the loop until which a caller waits that comes now, for whatever it needs."""
    return asyncio.get_running_loop().time() + PATIENCE.total_seconds()


@asynccontextmanager
async def locked(lock: asyncio.Lock, until: float) -> AsyncIterator[None]:
    """Inside, the lock is held; Busy when others hold it until then, a time of the loop."""
    try:
        async with asyncio.timeout_at(until):
            await lock.acquire()
    except TimeoutError:
        raise Busy("Another writer holds the database for too long; try again.") from None
    try:
        yield
    finally:
        lock.release()
