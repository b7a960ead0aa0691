"""Work beside the service: begun with what it is beside, and cancelled at the end of that."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Inside, the work goes on."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def repeating(
    every: timedelta, work: Callable[[], Awaitable[None]]
) -> AbstractAsyncContextManager[None]:
    """Inside, the work is done after each such interval; an interval of 0 means never."""
    return beside(_again_and_again(every, work)) if every else nullcontext()


async def _again_and_again(every: timedelta, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(every.total_seconds())
        await work()
