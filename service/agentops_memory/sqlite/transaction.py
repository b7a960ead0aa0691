"""Transactions and their tables; reader threads, each with a connection; and the one writer.

Changes wait in a bounded queue. Changes that wait together share one commit, and none is
acknowledged before it. A change that raises before it wrote anything fails alone, as most refusals
do. If a change raises later, or the index or the commit fails, the batch is rolled back and each of
its changes runs again alone: savepoints would slow down every change for a rare case. New memories
are indexed many at a time.
"""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import count, islice
from pathlib import Path
from secrets import randbits
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from ..engine.engine import Outcome, Transaction, noop, outcome_of, settle
from ..errors import Busy, Refusal, RunAgain, Unavailable
from ..light import dataclass, field
from ..memory.access import OPERATOR, Caller
from ..memory.erasure import MAX_STEP
from ..memory.memories import MemoryLists
from ..memory.memory import MemoryId, Shown
from ..memory.rows import EPOCH
from ..memory.sessions import SessionTable
from ..memory.space import GLOBAL_AREA, Project, place_of
from ..memory.table import Known
from ..recall.cache import DatabaseIndex, Token
from ..recall.cached_reads import CachedReads, ProjectLocation, StoredReads
from ..recall.visibility import Visibility
from . import connection as db
from .areas import load_at_once
from .dialect import SQLITE, is_damage, refusing, translated
from .index import MOST_WAITING, Index
from .open_files import OpenFiles, WriteAheadLog
from .partitions import AT_ONCE, SEGMENTS, Partitions
from .search import SqliteSearch

P = ParamSpec("P")
T = TypeVar("T")


class SqliteTransaction(Transaction):
    """The tables of a connection on which a transaction has begun.

    Each table is created on first use: a request needs few of them.
    """

    _connection: db.Database
    _sql = SQLITE

    def __init__(
        self, connection: db.Database, now: datetime, caller: Caller, *,
        batch: Index | None = None, index: DatabaseIndex | None = None, may_be_behind: bool = False,
        **bound: Any,
    ) -> None:  # fmt: skip
        known = None if batch is None else batch.known
        is_alone = batch is None or batch.is_alone
        super().__init__(connection, now, caller, known=known, is_alone=is_alone, **bound)
        self._in_memory = index
        self._may_be_behind = may_be_behind
        self._batch = batch

    def _stored(self) -> int:
        """Return the bytes of the pages in use."""
        if self._batch is not None and self._batch.flush():
            # Let FTS5 allocate its pages: it writes at a savepoint.
            self._connection.execute("SAVEPOINT settled")
            self._connection.execute("RELEASE settled")
        total, unused = db.sizes_of(self._connection)
        return total - unused

    @property
    def met_damage(self) -> bool:
        """Whether a search met damage in the index and was answered without it."""
        return "_search" in vars(self) and self._search.met_damage

    @cached_property
    def index(self) -> Index:
        return Index(self._connection) if self._batch is None else self._batch

    @property
    def search(self) -> SqliteSearch:
        self._flush()
        return self._search

    @cached_property
    def _search(self) -> SqliteSearch:
        partitions = self.index.partitions
        visibility = Visibility(
            self._connection, SQLITE, self._projects, self._moment,
            partitions.of_projects, partitions.is_made,
        )  # fmt: skip
        return SqliteSearch(
            self._connection, self[MemoryLists], visibility, self._in_memory, self._begun,
            may_be_behind=self._may_be_behind,
        )  # fmt: skip

    @property
    def partitions(self) -> Partitions:
        self._flush()
        return self.index.partitions

    def _flush(self) -> None:
        """Index now what would wait for the end of the batch: the index is about to be read."""
        if self._batch is not None:
            self._batch.flush()


Work = Callable[Concatenate[SqliteTransaction, P], T]
"""A function that runs in a transaction; it may run again after a rollback."""

READERS = 2  # because of the GIL more add little, and each needs a cache and files
READ_TIMEOUT = timedelta(seconds=5)  # how long a read waits for a free reader


@asynccontextmanager
async def readers(
    path: Path, check: db.Check, afterwards: Callable[[db.Database], None]
) -> AsyncIterator[db.Threads]:
    """Yield threads that read the file now at the path, even if another one replaces it.

    Raises StartRefused if it cannot be opened. At the end they finish accepted reads and close.
    """
    connections = await asyncio.to_thread(_connections, path)
    threads = db.Threads(connections, check=check, afterwards=afterwards, timeout=READ_TIMEOUT)
    try:
        yield threads
    finally:
        await threads.close()


def _connections(path: Path) -> list[db.Database]:
    with refusing(path), ExitStack() as opened:
        connections = []
        for _ in range(READERS):
            database = db.connect(path, is_strict=True)
            opened.callback(database.close)
            db.read_only(database)
            database.execute("SELECT 1 FROM sqlite_schema").fetchone()  # opens the log, too
            connections.append(database)
        opened.pop_all()
        return connections


NO_WAIT = timedelta(0)  # for a lock: waiting would block the event loop


class SqliteStored(db.SqliteTable):
    """Lookups for cached reads, of a few microseconds each."""

    def __init__(self, connection: db.Database, files: OpenFiles) -> None:
        super().__init__(connection)
        self._files = files
        self._data_version = -1
        self._token: Token | None = None
        self._tx = SqliteTransaction(connection, EPOCH, OPERATOR)  # no lookup depends on the time

    def token(self) -> Token | None:
        if self._files.has_another_log():
            return None
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if version != self._data_version:
                self._token, self._data_version = db.token_of(self._connection), version
        except sqlite3.Error:  # locked, full or damaged: a transaction reports it
            return None
        return self._token

    @translated()
    def location(self, project: Project) -> ProjectLocation | None:
        row = place_of(self._connection, project)
        if row is None:
            return None
        area, group = row
        spaces = self._scalars(
            f"SELECT id FROM spaces WHERE project = :project AND area = {GLOBAL_AREA}",
            project=project,
        )
        return ProjectLocation(group, area, frozenset(spaces))

    @translated()
    def summaries(self, project: Project, most: int) -> list[str]:
        return self._tx[SessionTable].summaries(project, most)

    @translated()
    def texts(self, ids: Sequence[MemoryId]) -> list[Shown]:
        return self._tx[MemoryLists].texts(ids)


@contextmanager
def cached_reads(path: Path, index: DatabaseIndex, files: OpenFiles) -> Iterator[CachedReads]:
    """Yield the reads that are answered from memory, with a connection of their own."""
    connection = db.connect(path, busy_timeout=NO_WAIT, is_strict=True)
    with closing(connection):
        db.read_only(connection)
        lookups = SqliteStored(connection, files)

        def load(number: int, areas: Collection[int]) -> bool:
            with suppress(sqlite3.Error), db.in_snapshot(connection, db.READ_LIMIT):
                return load_at_once(connection, index, number, areas, timeout=0.0)
            return False

        stored = StoredReads(
            lookups.token, lookups.location, lookups.summaries, lookups.texts, load
        )
        yield CachedReads(index, stored, connection.stems)


MEMBERS = 64  # most changes of one batch
LONGEST = timedelta(milliseconds=50)  # time limit of a batch: all its callers wait for the commit
RANKING_WINDOW = 10.0  # seconds after a ranked search in which new memories are indexed at once
INDEX_TIMEOUT = timedelta(milliseconds=250)  # to wait for the lock, while a read waits
# Iterations of the event loop in which further changes may join a batch: requests that arrive
# together are written together. After a batch of one change none is waited for: those of the same
# iteration are in the queue before the writer wakes up.
ITERATIONS = 3
PAUSE = 0.01  # seconds without a change, after which new memories are indexed
# The pause for entries of stores, agents and refs: the index in memory seldom has them, so a search
# would wait until they are indexed, or miss them if the database is locked or full.
ENTRIES_PAUSE = 0.25
LONG = 0.004  # seconds of these iterations: a slower loop is rendering, so a change waits no more

OnCommit = Callable[[int, float], None]
"""Called after each commit with the number of its changes and the seconds that it took."""

Change = Callable[[db.Database, Index], T]
"""A function that never commits and can run again after a rollback, alone or in a batch."""


class Writer:
    """A bounded queue of changes, and the loop `serve`, which writes them.

    The queue has `slots` slots; if all are taken, a change waits for one until the timeout.
    """

    def __init__(
        self, thread: db.WriterThread, files: OpenFiles, slots: int, timeout: timedelta,
        on_commit: OnCommit, index: DatabaseIndex,
    ) -> None:  # fmt: skip
        self._index = index
        self._thread = thread
        self._log = WriteAheadLog(thread, files)
        self._slots = asyncio.Semaphore(slots)
        self._timeout = timeout.total_seconds()
        self._on_commit = on_commit
        self._check = files.require_same
        self._queue: deque[_Queued] = deque()  # a change stays until its caller is answered
        self._tokens = count(randbits(62))  # no other process has any of them
        self._ranked_at = -RANKING_WINDOW  # about when a reader last used the full-text index
        self._wake_up = asyncio.Event()
        self._has_unsynced = False  # whether changes wait for the next commit that syncs the log
        self._is_shared = False  # whether the last batch had several changes
        self._is_closing = False
        self._is_closed = False
        self.on_damage: Callable[[], object] = noop  # for index damage that no caller meets

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def write(self, work: Change[T], lock_timeout: timedelta, *, is_synced: bool = True) -> T:
        """Run a change; return its result once it is on disk. Cancelling does not stop the change.

        Raises Busy if no slot in the queue comes free in time, and Unavailable once closed.
        """
        await self._admit()
        if self._is_closed:
            self._slots.release()
            raise Unavailable("The database is closed.")
        # The lock timeout starts here, so that writes behind a lock fail together, not in turn.
        deadline = time.monotonic() + lock_timeout.total_seconds()
        self._queue.append(queued := _Queued(work, deadline, is_synced))
        self._wake_up.set()
        return cast("T", await queued.answer)

    async def serve(self) -> None:
        """Write queued changes until `close` was called and the queue is empty."""
        try:
            while await self._has_changes():
                await self._write_next()
                await asyncio.sleep(0)  # the answers go out first
                await self._log.after_batch()
        finally:
            self._is_closed = True
            self._settle_all(self._queue, Outcome(error=Unavailable("The database is closed.")))

    async def index_now(self) -> None:
        """Index all memories if possible, and for a while new memories as they are saved.

        Otherwise repeated searches, concurrent with others' saves, would each wait for a commit.
        """
        self._ranked_at = time.monotonic()
        with suppress(Refusal, sqlite3.Error):
            await self.write(lambda _, batch: batch.flush(), INDEX_TIMEOUT)

    async def _index_while_idle(self) -> None:
        """Index new memories and merge the index, as long as no change comes.

        It starts after a pause, since an import's next rows come soon. Errors are left for the
        next change to report.
        """
        if (seconds := self._pause()) is None:
            return
        pause = asyncio.get_running_loop().call_later(seconds, self._wake_up.set)
        await self._wake_up.wait()
        pause.cancel()
        if self._queue or self._is_closing:
            return
        self._wake_up.clear()
        while self._pause() is not None and not self._wake_up.is_set():
            deadline = time.monotonic() + INDEX_TIMEOUT.total_seconds()
            indexing = _Queued(_indexed_some, deadline, is_synced=False, own=0)
            (outcome,) = await self._thread.run(partial(self._run_alone, indexing))
            self._index.apply_commits()
            await self._log.after_batch()
            if outcome.error is not None and is_damage(outcome.error):
                self.on_damage()
            if outcome != Outcome(True):
                return

    def _pause(self) -> float | None:
        """Return the idle seconds after which waiting memories are indexed, or None for not yet."""
        known = self._thread.known
        if _is_due(known) or any(it >= SEGMENTS for it in known.segments.values()):
            return PAUSE
        return ENTRIES_PAUSE if known.has_entries else None

    def close(self) -> None:
        """Let `serve` end once all accepted changes are written."""
        self._is_closing = True
        self._wake_up.set()

    async def _admit(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()  # at once
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._slots.acquire()
        except TimeoutError as error:
            raise Busy("Too many writes are waiting; try again.") from error

    async def _has_changes(self) -> bool:
        """Wait for a change, and briefly for others; return False once closed."""
        if not (self._queue or self._is_closing):
            self._wake_up.clear()
            await self._index_while_idle()
            await self._wake_up.wait()
        end = time.monotonic() + LONG
        for _ in range(ITERATIONS if self._is_shared else 0):
            await asyncio.sleep(0)
            if time.monotonic() > end:
                break
        return bool(self._queue)

    async def _write_next(self) -> None:
        batch = undecided = list(islice(self._queue, MEMBERS))
        self._is_shared = len(batch) > 1
        try:
            if self._is_shared:
                undecided = await self._run(batch, partial(self._run_batch, batch))
            for it in undecided:
                await self._run([it], partial(self._run_alone, it))
        except Exception as error:  # noqa: BLE001 - else all later changes would wait forever
            self._settle_all(batch, Outcome(error=error))

    async def _run(
        self,
        batch: Sequence["_Queued"],
        work: Callable[[db.Database], Sequence[Outcome | None]],
    ) -> list["_Queued"]:
        """Run changes, answer those with an outcome, and return those to run alone."""
        began, outcomes = time.monotonic(), await self._thread.run(work)
        self._index.apply_commits()
        if done := sum(it is not None and it.error is None for it in outcomes):
            self._on_commit(done, time.monotonic() - began)
        undecided = []
        for it, outcome in zip(batch, outcomes, strict=False):
            if outcome is None:
                undecided.append(it)
            else:
                self._settle(it, outcome)
        return undecided

    def _settle_all(self, batch: Iterable["_Queued"], outcome: Outcome) -> None:
        for it in [it for it in batch if it in self._queue]:
            self._settle(it, outcome)

    def _settle(self, settled: "_Queued", outcome: Outcome) -> None:
        self._queue.remove(settled)
        self._slots.release()
        if isinstance(outcome.error, sqlite3.Error):
            try:  # if the log was replaced, SQLite's errors look like damage or a failing disk
                self._check()
            except Refusal as refusal:
                outcome = Outcome(error=refusal)
        settle(settled.answer, outcome)

    # The methods below run on the thread of the connection.

    def _run_alone(self, it: "_Queued", database: db.Database) -> tuple[Outcome]:
        def run() -> object:
            with self._transaction(database, it.deadline, it.own, is_synced=it.is_synced) as batch:
                return it.work(database, batch)

        outcome = outcome_of(run)
        return (outcome_of(run) if isinstance(outcome.error, RunAgain) else outcome,)

    def _run_batch(
        self, changes: Sequence["_Queued"], database: db.Database
    ) -> list[Outcome | None]:
        """Run the first changes in one transaction, at least one, and return their outcomes.

        The time limit may leave out the last changes. None: the change is undone; run it alone.
        """
        outcomes: list[Outcome | None] = []
        try:
            with self._transaction(database, changes[0].deadline, len(changes)) as batch:
                end = time.monotonic() + LONGEST.total_seconds()
                for it in changes:
                    outcomes.append(None)
                    outcomes[-1] = _in_batch(it.work, database, batch)
                    if time.monotonic() > end:
                        break
        except (sqlite3.Error, RunAgain, _BatchLost):
            return [None] * len(outcomes or changes)
        return outcomes

    @contextmanager
    def _transaction(
        self, database: db.Database, deadline: float, own: int, *, is_synced: bool = True
    ) -> Iterator[Index]:
        """Yield the index of a batch of `own` changes from the queue.

        At the end, commit, and pass the changes on to the index in memory.
        """
        token, before, version = next(self._tokens), database.total_changes, database.version
        # After a recent ranked search nothing waits for the index: the next one would wait for it.
        is_ranked = time.monotonic() < self._ranked_at + RANKING_WINDOW
        database.change_log.clear()
        with self._index.writing(token) as publish:
            try:
                with db.change(database, deadline, self._check, is_synced=is_synced):
                    batch = Index(
                        database, is_alone=own < 2, most=0 if is_ranked else MOST_WAITING,
                        known=db.known_to(database), is_awaited=lambda: len(self._queue) > own,
                    )  # fmt: skip
                    # Commits of other processes, such as an import, may not be synced.
                    self._has_unsynced |= version not in (0, database.version)
                    yield batch
                    batch.end()
                    is_long = not is_synced and database.total_changes - before >= db.CHECKPOINT
                    alone = db.CHECKPOINT_ALONE, db.CACHE_ALONE
                    pages, cache = alone if is_long else (db.CHECKPOINT, db.CACHE)
                    db.set_pragma(database, "wal_autocheckpoint", pages)
                    db.set_pragma(database, "cache_size", -cache)
                    # A commit without a change would sync nothing.
                    if database.total_changes != before or (is_synced and self._has_unsynced):
                        state = database.token
                        if state is None:
                            state = db.token_of(database)
                        database.execute("UPDATE database_state SET token = ?", (token,))
                        database.token = token
                        publish(state, batch.changes())
                # The index can be brought up to date again, so it need not be synced.
                self._has_unsynced = not is_synced and (own > 0 or self._has_unsynced)
            except BaseException:
                database.known.forget()
                database.token = None
                raise


def _is_due(known: Known) -> bool:
    return len(known.waiting) >= AT_ONCE or known.waiting_size >= MAX_STEP


def _indexed_some(_: db.Database, batch: Index) -> bool:
    is_due = _is_due(batch.known) or batch.known.has_entries
    return batch.partitions.merge_some() or (is_due and batch.flush(AT_ONCE, may_stop=True))


@asynccontextmanager
async def serving(writer: Writer) -> AsyncIterator[Writer]:
    """Run the writer; at the end, let it index and write what it has accepted."""
    task = asyncio.create_task(writer.serve())
    try:
        yield writer
    finally:
        try:
            await writer.index_now()
        finally:
            writer.close()
            await asyncio.gather(task, return_exceptions=True)


@dataclass(slots=True, eq=False)
class _Queued:
    work: Change[Any]
    deadline: float  # on the monotonic clock
    is_synced: bool
    own: int = 1  # how many changes of the queue it is
    answer: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class _BatchLost(Exception):
    """A change raised after it had written, so the whole batch is rolled back."""


def _in_batch(work: Change[object], database: db.Database, batch: Index) -> Outcome | None:
    before = database.total_changes
    outcome: Outcome | None
    try:
        outcome = Outcome(work(database, batch))
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
        if database.total_changes != before:
            raise _BatchLost from None
        outcome = None if isinstance(error, RunAgain) else Outcome(error=db.carriable(error))
    if not database.in_transaction:  # an error ended it, which the work may have caught
        raise _BatchLost
    return outcome
