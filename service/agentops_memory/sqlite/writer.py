"""The one writer: changes wait in a bounded queue, and those that wait together share one commit.

None is answered before the commit. A change that raises before it wrote anything fails alone, as
most refusals do. When one raises later, or the index or the commit fails, the batch is rolled back
and each of its changes is run again alone: savepoints would cost every change what few need. New
memories enter the full-text index together, many at a time.
"""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from secrets import randbits
from typing import Any, TypeVar, cast

from ..engine.engine import Failed, Outcome, Succeeded, outcome_of, settle
from ..engine.maintenance import noop
from ..errors import Busy, Refusal, RunAgain, Unavailable
from ..memory.erasure import MAX_STEP
from ..recall.cache import DatabaseIndex
from .connection import (
    Check,
    Connection,
    carriable,
    change,
    forget_known,
    known_to,
    leave_token,
    noted_by,
    token_of,
)
from .dialect import is_damage
from .documents import AT_ONCE, MOST_WAITING, Pending
from .open_files import OpenFiles, WriteAheadLog

T = TypeVar("T")

MEMBERS = 64  # of a batch
LONGEST = timedelta(milliseconds=50)  # of a batch: all its callers wait for the commit
RANKED_LATELY = 10.0  # seconds
INDEX_TIMEOUT = timedelta(milliseconds=250)  # for the lock, while a read waits
# Of the loop, from a request's arrival to its change: those that come together are written
# together. A lone writer waits for none, as there were no others in the batch before.
TURNS, LONE_TURNS = 3, 1
PAUSE = 0.005  # seconds without a change, after which new memories enter the index
MOST_TIMES = 4  # times `AT_ONCE`, from which on they enter without a pause
LONG = 0.004  # seconds of these; a loop that takes as long renders, and a change waits no more

OnCommit = Callable[[int, float], None]
"""Told of each commit: how many changes, and the seconds that they took."""


Change = Callable[[sqlite3.Connection, Pending], T]
"""Never commits, and can run again when it was rolled back: alone, or in a batch."""


class Writer:
    """A queue of changes and the loop that serves it. `serve` runs as long as changes may come.

    The queue has so many places; beyond, a change waits for one until the timeout. `after` is
    awaited after each batch. `check` raises what all changes are refused with instead.
    """

    def __init__(
        self,
        connection: Connection,
        places: int,
        timeout: timedelta,
        after: Callable[[], Awaitable[None]],
        on_commit: OnCommit,
        check: Check,
        *,
        index: DatabaseIndex,
    ) -> None:
        self._index = index
        self._connection = connection
        self._places = asyncio.Semaphore(places)
        self._timeout = timeout.total_seconds()
        self._after = after
        self._on_commit = on_commit
        self._check = check
        self._queue: deque[_Queued] = deque()  # each until its caller is answered
        self._ranked_at = -RANKED_LATELY  # when a reader last queried the full-text index, about
        self._wake_up = asyncio.Event()
        self._is_shared = False  # whether the last batch had several changes
        self._is_closing = False
        self._is_closed = False
        self.on_damage: Callable[[], object] = noop  # of the index, that no caller meets

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def write(self, work: Change[T], lock_timeout: timedelta) -> T:
        """What work answers, once it is on disk. A cancelled caller leaves; the change continues.

        Raises Busy when no place in the queue comes free in time, and Unavailable after the end.
        """
        await self._admit()
        if self._is_closed:
            self._places.release()
            raise Unavailable("The database is closed.")
        # Counted from here, so that writes behind a lock are refused together, not in turn.
        waiting = _Queued(work, time.monotonic() + lock_timeout.total_seconds())
        self._queue.append(waiting)
        self._wake_up.set()
        return cast("T", await waiting.answer)

    async def serve(self) -> None:
        """Write what comes, until `close` has been called and the queue is empty."""
        try:
            while await self._is_wanted():
                await self._write_next()
                await self._after()
        finally:
            self._is_closed = True
            self._settle_all(self._queue, Failed(Unavailable("The database is closed.")))

    async def index_now(self) -> None:
        """Put all memories into the full-text index if that is possible, and new ones at once.

        The latter for a while: else those who ask it again and again beside others' saves would
        each wait for a commit.
        """
        self._ranked_at = time.monotonic()
        with suppress(Refusal, sqlite3.Error):
            await self.write(lambda _, batch: batch.flush(), INDEX_TIMEOUT)

    async def _index_meanwhile(self) -> None:
        """Put new memories into the full-text index as long as no change comes.

        If few wait it is soon enough after a pause, since an import's next rows come at once.
        """
        while self._is_much(1) and not self._wake_up.is_set():
            if not self._is_much(MOST_TIMES):
                pause = asyncio.get_running_loop().call_later(PAUSE, self._wake_up.set)
                await self._wake_up.wait()
                pause.cancel()
                if self._queue or self._is_closing:
                    return
                self._wake_up.clear()
            if not await self._put_in():
                return

    def _is_much(self, times: int) -> bool:
        count, size = self._connection.waiting
        return count >= times * AT_ONCE or size >= times * MAX_STEP

    async def _put_in(self) -> bool:
        """Whether the first new memories are in the index now; else the next change tells why."""
        deadline = time.monotonic() + INDEX_TIMEOUT.total_seconds()
        run = partial(alone, _put_in, deadline, self._check, self._index, MOST_WAITING)
        outcome = await self._connection.run(run)
        self._index.apply_commits()
        await self._after()
        if isinstance(outcome, Failed) and is_damage(outcome.error):
            self.on_damage()
        return isinstance(outcome, Succeeded) and outcome.answer is True

    @property
    def _most_waiting(self) -> int:
        return 0 if time.monotonic() < self._ranked_at + RANKED_LATELY else MOST_WAITING

    def close(self) -> None:
        """Let what was accepted end; then `serve` does."""
        self._is_closing = True
        self._wake_up.set()

    async def _admit(self) -> None:
        if not self._places.locked():
            await self._places.acquire()  # at once
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._places.acquire()
        except TimeoutError as error:
            raise Busy("Too many writes are waiting; try again.") from error

    async def _is_wanted(self) -> bool:
        if not (self._queue or self._is_closing):
            self._wake_up.clear()
            await self._index_meanwhile()
            await self._wake_up.wait()
        end = time.monotonic() + LONG
        for _ in range(TURNS if self._is_shared else LONE_TURNS):
            await asyncio.sleep(0)
            if time.monotonic() > end:
                break
        return bool(self._queue)

    async def _write_next(self) -> None:
        batch = list(islice(self._queue, MEMBERS))
        self._is_shared = len(batch) > 1
        try:
            for it in await self._undecided(batch):
                run = partial(
                    alone, it.work, it.deadline, self._check, self._index, self._most_waiting
                )
                began, outcome = time.monotonic(), await self._connection.run(run)
                self._index.apply_commits()
                self._notify([outcome], began)
                self._settle(it, outcome)
        except Exception as error:  # noqa: BLE001 - else all that come later would wait forever
            self._settle_all(batch, Failed(error))

    async def _undecided(self, batch: list["_Queued"]) -> list["_Queued"]:
        if len(batch) == 1:
            return batch
        works = [it.work for it in batch]
        run = partial(
            together, works, batch[0].deadline, self._check, self._index, self._most_waiting
        )
        began, results = time.monotonic(), await self._connection.run(run)
        self._index.apply_commits()
        self._notify(results, began)
        outcomes = list(zip(batch, results, strict=False))
        for it, outcome in outcomes:
            if outcome is not None:
                self._settle(it, outcome)
        return [it for it, outcome in outcomes if outcome is None]

    def _notify(self, outcomes: Iterable[Outcome | None], began: float) -> None:
        done = sum(isinstance(outcome, Succeeded) for outcome in outcomes)
        if done:
            self._on_commit(done, time.monotonic() - began)

    def _settle_all(self, batch: Iterable["_Queued"], outcome: Outcome) -> None:
        for it in [it for it in batch if it in self._queue]:
            self._settle(it, outcome)

    def _settle(self, settled: "_Queued", outcome: Outcome) -> None:
        self._queue.remove(settled)
        self._places.release()
        settle(settled.answer, self._checked(outcome))

    def _checked(self, outcome: Outcome) -> Outcome:
        """What SQLite fails with on another log looks like damage, or like a failing disk."""
        if isinstance(outcome, Failed) and isinstance(outcome.error, sqlite3.Error):
            try:
                self._check()
            except Refusal as refusal:
                return Failed(refusal)
        return outcome


@asynccontextmanager
async def serving(
    database: Connection,
    files: OpenFiles,
    places: int,
    wait: timedelta,
    on_commit: OnCommit,
    index: DatabaseIndex,
) -> AsyncIterator[Writer]:
    """A writer at work. At the end it writes what it has accepted."""
    wal = WriteAheadLog(database, files)
    writer = Writer(
        database, places, wait, wal.after_batch, on_commit, files.require_in_place, index=index
    )
    task = asyncio.create_task(writer.serve())
    try:
        yield writer
    finally:
        await writer.index_now()
        writer.close()
        await asyncio.gather(task, return_exceptions=True)


class _Queued:
    def __init__(self, work: Change[Any], deadline: float) -> None:
        self.work = work
        self.deadline = deadline
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


def _put_in(_: sqlite3.Connection, batch: Pending) -> bool:
    return batch.flush(AT_ONCE // 2)


def alone(
    work: Change[object],
    deadline: float,
    check: Check,
    index: DatabaseIndex,
    most: int,
    database: sqlite3.Connection,
) -> Outcome:
    def run() -> object:
        with handed_over(database, index) as note, change(database, deadline, check):
            batch = Pending(database, is_alone=True, most=most, known=known_to(database))
            answer = work(database, batch)
            batch.end()
            note(batch)
            return answer

    outcome = outcome_of(run)
    is_again = isinstance(outcome, Failed) and isinstance(outcome.error, RunAgain)
    return outcome_of(run) if is_again else outcome


def together(
    works: Sequence[Change[object]],
    deadline: float,
    check: Check,
    index: DatabaseIndex,
    most: int,
    database: sqlite3.Connection,
) -> list[Outcome | None]:
    """What came of the first of these, in order: one at least, and all that had time to begin.

    None says that nothing happened and that the work is to be run alone.
    """
    outcomes: list[Outcome | None] = []
    try:
        with handed_over(database, index) as note, change(database, deadline, check):
            end = time.monotonic() + LONGEST.total_seconds()
            batch = Pending(database, is_alone=False, most=most, known=known_to(database))
            for work in works:
                outcomes.append(None)
                outcomes[-1] = _in_batch(work, database, batch)
                if time.monotonic() > end:
                    break
            batch.end()
            note(batch)
    except (sqlite3.Error, RunAgain, _BatchLost):
        return [None] * len(outcomes or works)
    return outcomes


@contextmanager
def handed_over(
    database: sqlite3.Connection, index: DatabaseIndex
) -> Iterator[Callable[[Pending], None]]:
    """Inside, a transaction is made and committed; what it changed is handed over then."""
    token, before = randbits(63), database.total_changes
    noted_by(database).clear()
    with index.writing(token) as tell:

        def note(batch: Pending) -> None:
            if database.total_changes != before:
                found = token_of(database)
                leave_token(database, token)
                tell(found, batch.changes())

        try:
            yield note
        except BaseException:
            forget_known(database)
            raise


class _BatchLost(Exception):
    """A change raised after it had written: what was done before it is undone with it."""


def _in_batch(work: Change[object], database: sqlite3.Connection, batch: Pending) -> Outcome | None:
    before = database.total_changes
    outcome: Outcome | None
    try:
        outcome = Succeeded(work(database, batch))
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
        if database.total_changes != before:
            raise _BatchLost from None
        outcome = None if isinstance(error, RunAgain) else Failed(carriable(error))
    if not database.in_transaction:  # ended by an error that the work may have caught
        raise _BatchLost
    return outcome
