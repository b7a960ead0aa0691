"""Group commit: writes that would wait for each other share a transaction, and so its commit.

The first in a line takes those that wait behind it into a group; they find themselves made when
their turn comes.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg

from ...engine.shared.outcomes import Failed, Outcome, outcome_of
from ...errors import Busy
from ...memory.model.access import Caller
from ..base.connection import PostgresConnection
from .transaction import NeedsTransactionOfItsOwn, PostgresTransaction

QUEUE = 512  # callers that may wait
PATIENCE = timedelta(seconds=5)  # for a place, and for a lock


class Places:
    """So many may be used at a time."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._waiting = 0

    @property
    def are_taken(self) -> bool:
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


MEMBERS = 32  # of a group
LONGEST = timedelta(milliseconds=50)  # of a group: all its callers wait for the commit


@dataclass(slots=True, eq=False)
class Change:
    """A write, its caller, and what came of it."""

    caller: Caller
    work: Callable[[PostgresTransaction], Any]
    until: float  # a time of the loop, to which it waits for what it needs
    group: asyncio.Task[None] | None = None  # in which it is being made, or was
    is_over: bool = False
    is_left: bool = False  # by its caller
    outcome: Outcome | None = None  # None: it is to be made by itself

    @property
    def is_late(self) -> bool:
        return asyncio.get_running_loop().time() >= self.until


Make = Callable[[Sequence[Change]], Awaitable[Sequence[Outcome | None]]]
"""Make changes together: the outcomes of the first of them, one at least."""


class Line:
    """Writes of one process that stand in each other's way."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting: deque[Change] = deque()

    async def made(self, change: Change, make: Make) -> Outcome | None:
        """What came of a change. Busy when it waits for too long, or too many do.

        None: nothing happened, for another's sake maybe; it shall be made by itself. A cancelled
        caller leaves; a change that has begun goes on.
        """
        if len(self._waiting) >= QUEUE:
            raise Busy("Too many writes are waiting; try again.")
        self._waiting.append(change)
        try:
            async with locked(self._turn, change.until):
                while not change.is_over:
                    await asyncio.shield(change.group or self._grouped(make))
        except Busy:
            if change.group is None:
                raise
            await asyncio.shield(change.group)
            if not change.is_over:  # its group had no time for it
                raise
        finally:
            change.is_left = True
            if change in self._waiting:
                self._waiting.remove(change)
        return change.outcome

    def _grouped(self, make: Make) -> asyncio.Task[None]:
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MEMBERS))]
        task = asyncio.create_task(self._make(group, make))
        task.add_done_callback(_noted)
        for change in group:
            change.group = task
        return task

    async def _make(self, group: Sequence[Change], make: Make) -> None:
        outcomes = await make(group)
        for change, outcome in zip(group, outcomes, strict=False):
            change.is_over, change.outcome = True, outcome
        for change in reversed(group[len(outcomes) :]):
            change.group = None
            if not change.is_left:
                self._waiting.appendleft(change)


def in_savepoints(
    connection: PostgresConnection, works: Sequence[Callable[[], object]]
) -> list[Outcome | None]:
    """What came of the first work, and of all that have time to begin; each is undone alone.

    None is one that cannot share a transaction. Raises what the database refuses: nothing of the
    transaction is left then.
    """
    outcomes: list[Outcome | None] = []
    end = time.monotonic() + LONGEST.total_seconds()
    for work in works:
        connection.execute("SAVEPOINT work")
        outcome: Outcome | None = outcome_of(work)
        if isinstance(outcome, Failed):
            if not isinstance(outcome.error, Exception) or isinstance(outcome.error, psycopg.Error):
                raise outcome.error
            connection.go_back("work")
            if isinstance(outcome.error, NeedsTransactionOfItsOwn):
                outcome = None
        outcomes.append(outcome)
        connection.execute("RELEASE SAVEPOINT work")
        if time.monotonic() > end:
            break
    return outcomes


def _noted(task: asyncio.Task[None]) -> None:
    """Its error is raised where it is awaited; a caller that has left awaits it no more."""
    if not task.cancelled():
        task.exception()
