"""Running jobs in the background: on a signal or an interval, with retries and one log line."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from logging import Logger
from typing import Any, TypeVar

from ..errors import NotFound, Refusal
from ..light import dataclass
from ..memory.access import Caller, TenantId
from ..secrets.sanitizing import code_of, is_operational, reason

T = TypeVar("T")

HURRY = timedelta(seconds=1)  # in which a thread ends that nobody waits for any more
MODEST = 10  # added to the niceness of a thread

SHORTEST_PAUSE = timedelta(milliseconds=250)  # before what is held back is tried again
LONGEST_PAUSE = timedelta(seconds=4)  # erased bytes are to be gone within seconds

Callers = Callable[[], Iterable[Caller]]
"""The caller for each tenant, listed each time, because tenants come and go."""
GoOn = Callable[..., None]
"""Called by a thread between steps; raises Stopped if it must end."""


class Stopped(Exception):
    """Nobody waits for what the thread does."""


class WorkSignal:
    """Set for a tenant for which there is something to do; waited for by the one who does it."""

    def __init__(self) -> None:
        self._is_set = asyncio.Event()
        self._callers: dict[TenantId, Caller] = {}

    def set(self, caller: Caller) -> None:
        self._callers[caller.tenant] = Caller(tenant=caller.tenant)
        self._is_set.set()

    async def wait(self, time: timedelta | None = None) -> list[Caller]:
        """For whom it was set, once it was; nobody, when the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(time.total_seconds() if time else None):
                await self._is_set.wait()
        self._is_set.clear()
        callers = list(self._callers.values())
        self._callers.clear()
        return callers


@asynccontextmanager
async def background(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Inside, these run; on leaving they are cancelled, and have ended.

    One that raises stops no other; its error is raised at the end, when all have ended.
    """
    tasks = [asyncio.create_task(it) for it in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


async def repeat(every: timedelta, work: Callable[[], Awaitable[object]]) -> None:
    """Do the work after each such interval; an interval of 0 means never."""
    while every:
        await asyncio.sleep(every.total_seconds())
        await work()


@dataclass(frozen=True, slots=True)
class Job:
    """Work for one tenant after another. A failure is logged, and delays no other tenant's.

    Work that answers False is held back, and wants to be tried again.
    """

    work: Callable[[Caller], Awaitable[object]]
    log: Logger
    failure: str  # as the log has it

    async def run(self, callers: Iterable[Caller]) -> list[Caller]:
        return [
            it
            for it in callers
            if not await attempted(self.work(it), self.log, self.failure, tenant=it.tenant)
        ]

    async def on_signal(self, callers: Callers, signal: WorkSignal, every: timedelta) -> None:
        """Do it at first for all, when the signal is set for those, so often for all.

        What fails is tried again after a pause. An interval of 0 means never.
        """
        due, pause, clock = list(callers()), SHORTEST_PAUSE, asyncio.get_running_loop().time
        while True:
            begun = clock()
            retried = await self.run(due)
            await asyncio.sleep(clock() - begun)  # it rests as long as it worked
            pause = min(2 * pause, LONGEST_PAUSE) if retried else SHORTEST_PAUSE
            signaled = await signal.wait(pause if retried else every or None)
            due = retried + [caller for caller in signaled if caller not in retried]
            due = due or list(callers())


async def attempted(work: Awaitable[object], log: Logger, failure: str, **fields: object) -> bool:
    """Whether nothing is left to do; a failure is logged, and may be retried.

    What a fault of the program ends is not: it would end it as often as it is tried.
    """
    try:
        return await work is not False
    except NotFound:
        return True  # the tenant was erased
    except Exception as error:  # noqa: BLE001 - the next tenant's may be well
        log_failure(log, failure, error, **fields)
        return not is_operational(error)


def log_failure(log: Logger, sentence: str, error: Exception, **fields: object) -> None:
    """Tell that work failed: with a reason and a code if it is of a disk, a lock or the like.

    All else is a fault of the program, and has its stack.
    """
    if is_operational(error):
        code = code_of(error) or (error.code if isinstance(error, Refusal) else "")
        log.warning(sentence, extra={"reason": reason(error), "code": code, **fields})
    else:
        log.error(sentence, exc_info=error, extra=fields)


async def run_in_thread(work: Callable[[GoOn], T]) -> T:
    """What work answers, which may take long: it has a thread of its own, behind all others.

    Cancelled, it waits a second for a thread that checks for its end, and no longer
    for one that does not: the exit is not held up by a disk that never answers.
    """
    outcome: Future[T] = Future()
    is_left = threading.Event()

    def go_on(*_: object) -> None:
        if is_left.is_set():
            raise Stopped

    def run() -> None:
        if sys.platform == "linux":
            with suppress(OSError):  # it may be forbidden
                thread = os.PRIO_PROCESS, threading.get_native_id()
                os.setpriority(*thread, os.getpriority(*thread) + MODEST)
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
