"""Work beside the service: begun with what it is beside, and cancelled at the end of that."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from logging import Logger
from typing import Any, TypeVar

from ..domain.errors import Refusal
from ..domain.secrets.sanitizing import code_of, is_operational, reason

T = TypeVar("T")

HURRY = timedelta(seconds=1)  # in which a thread ends that nobody waits for any more
MODEST = 10  # added to the niceness of a thread

GoOn = Callable[..., None]
"""Asked by a thread whether to go on; raises Stopped if not."""


class Stopped(Exception):
    """Nobody waits for what the thread does."""


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


def log_failure(log: Logger, sentence: str, error: Exception, **fields: object) -> None:
    """Tell that work failed: with a reason and a code if it is of a disk, a lock or the like.

    All else is a fault of the program, and has its stack.
    """
    if is_operational(error):
        code = code_of(error) or (error.code if isinstance(error, Refusal) else "")
        log.warning(sentence, extra={"reason": reason(error), "code": code, **fields})
    else:
        log.error(sentence, exc_info=error, extra=fields)


class Seldom:
    """Lets work have no more than a hundredth of the time, however long it takes."""

    SHARE = 100

    def __init__(self) -> None:
        self._due_at = 0.0

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, unless that would be too soon after the last time."""
        clock = asyncio.get_running_loop().time
        began = clock()
        if began >= self._due_at:
            await work()
            self._due_at = clock() + (clock() - began) * self.SHARE


async def apart(work: Callable[[GoOn], T]) -> T:
    """What work answers, which may take long: it has a thread of its own, behind all others.

    Cancelled, it waits a second for a thread that asks whether to go on, and no longer
    for one that does not: the exit is not held up by a disk that never answers.
    """
    outcome: Future[T] = Future()
    is_left = threading.Event()

    def go_on(*_: object) -> None:
        if is_left.is_set():
            raise Stopped

    def run() -> None:
        _give_way()
        try:
            outcome.set_result(work(go_on))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    done = asyncio.wrap_future(outcome)
    done.add_done_callback(lambda it: it.cancelled() or it.exception())  # seen, if nobody waits
    try:
        await asyncio.wait([done])
    except asyncio.CancelledError:
        is_left.set()
        await asyncio.wait([done], timeout=HURRY.total_seconds())
        raise
    return done.result()


def _give_way() -> None:
    """Let the other threads go before this one, where threads have priorities."""
    if sys.platform == "linux":
        with suppress(OSError):  # it may be forbidden
            thread = os.PRIO_PROCESS, threading.get_native_id()
            os.setpriority(*thread, os.getpriority(*thread) + MODEST)
