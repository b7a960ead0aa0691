"""A transaction, its instant and its tables; and the threads that read, with a connection each."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from ..engine.engine import Failed, Outcome, Succeeded, Transaction, settle
from ..errors import Busy
from ..memory.access import EVERYTHING, Caller
from ..memory.memories import MemoryLists
from ..memory.memory import MemoryId, Moment, Shown
from ..memory.sessions import SessionTable
from ..memory.space import GLOBAL_AREA, Project, place_of
from ..memory.table import Known
from ..recall.cache import DatabaseIndex, Token
from ..recall.features import Features
from ..recall.held_reads import HeldReads, Place, Stored
from ..recall.instants import EPOCH
from ..recall.visibility import Visibility
from .connection import Check, connect, known_stems, read_only, token_of
from .dialect import SQLITE, NeedsTransactionOfItsOwn, SqliteTable, refusing, translated
from .documents import Pending
from .index import Index
from .open_files import OpenFiles
from .partitions import Partitions, Segments
from .search import SqliteSearch

P = ParamSpec("P")
T = TypeVar("T")


class SqliteTransaction(Transaction):
    """The tables of a connection on which a transaction has begun.

    Each is made on demand: a request needs few of them.
    """

    _connection: sqlite3.Connection
    _sql = SQLITE

    def __init__(
        self,
        connection: sqlite3.Connection,
        now: datetime,
        caller: Caller,
        *,
        batch: Pending | None = None,
        index: DatabaseIndex | None = None,
        may_be_behind: bool = False,
        **bound: Any,
    ) -> None:
        super().__init__(connection, now, caller, **bound)
        self._in_memory = index
        self._may_be_behind = may_be_behind
        self.is_alone = batch is None or batch.partitions.is_alone
        self._batch = batch
        if batch is not None:
            self._known = batch.known

    def _stored(self) -> int:
        """Pages that are free are none."""
        self._settle()
        names = ("page_size", "page_count", "freelist_count")
        size, count, free = (self._connection.execute(f"PRAGMA {it}").fetchone()[0] for it in names)
        return int(size * (count - free))

    @property
    def met_damage(self) -> bool:
        """Whether the index was found damaged where something else stood in."""
        return "_search" in vars(self) and self._search.met_damage

    @cached_property
    def index(self) -> Index:
        return Index(self._connection, self._batch)

    @property
    def search(self) -> SqliteSearch:
        self._flush()
        return self._search

    @cached_property
    def _search(self) -> SqliteSearch:
        lists = MemoryLists(self._connection, SQLITE, self._projects, self._moment)
        visibility = Visibility(
            self._connection,
            SQLITE,
            self._projects,
            self._moment,
            self._partitions.of_projects,
            self._partitions.is_made,
        )
        return SqliteSearch(
            self._connection,
            lists,
            visibility,
            self._in_memory,
            self._begun,
            may_be_behind=self._may_be_behind,
        )

    @property
    def partitions(self) -> Partitions:
        self._flush()
        return self._partitions

    @cached_property
    def _partitions(self) -> Partitions:
        if self._batch is not None:
            return self._batch.partitions
        return Partitions(self._connection, is_alone=True)

    @property
    def segments(self) -> Segments:
        self._flush()
        return Segments(self._connection)

    def _flush(self) -> None:
        """Put into the index what waits for the end of the batch: it is about to be read."""
        if self._batch is not None:
            self._batch.flush()

    def _settle(self) -> None:
        """Let the index take the pages that it needs: they are about to be counted."""
        if self._batch is not None and self._batch.flush():
            self._connection.execute("SAVEPOINT settled")  # at which FTS5 writes out
            self._connection.execute("RELEASE settled")

    def require_alone(self) -> None:
        if not self.is_alone:
            raise NeedsTransactionOfItsOwn


Work = Callable[Concatenate[SqliteTransaction, P], T]
"""What runs in a transaction; it may be run again when nothing of it happened."""


log = logging.getLogger(__name__)

Afterwards = Callable[[sqlite3.Connection], None]
"""What a reader does when it has answered a read."""

READERS = 2  # Python's GIL lets more add little, and each has a cache and open files
# Reads begun whose callers have no answer yet. While the loop is busy, more would pile up, of
# which each can take several MiB.
AHEAD = 4
READ_TIMEOUT = timedelta(seconds=5)  # until a reader is free


class Readers:
    """None of them waits for the event loop to turn. Make them with `opened`."""

    def __init__(
        self, connections: Sequence[sqlite3.Connection], check: Check, afterwards: Afterwards
    ) -> None:
        self._check = check
        self._afterwards = afterwards
        self._connections = connections
        self._queue: SimpleQueue[_Read | None] = SimpleQueue()
        self._places: SimpleQueue[None] = SimpleQueue()  # of reads that are ahead
        for _ in range(AHEAD):
            self._places.put(None)
        self._threads = [
            threading.Thread(target=self._serve, args=(each,), name="reader", daemon=True)
            for each in connections
        ]
        self._running = 0  # or waiting
        for thread in self._threads:
            thread.start()

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, path: Path, features: Features, check: Check, afterwards: Afterwards
    ) -> AsyncIterator["Readers"]:
        """READERS threads. At the end they finish what has begun, and close.

        All read the file that is at the path now, whatever comes there later. `check` is called
        after each read, and raises what that is refused with instead. `afterwards` is called then,
        when the read is answered. StartRefused when the file cannot be opened.
        """
        connections = await asyncio.to_thread(_connections, path, features)
        readers = cls(connections, check, afterwards)
        try:
            yield readers
        finally:
            await asyncio.to_thread(readers._close)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What work answers. A cancelled caller leaves; work that has begun continues.

        Raises Busy when no thread is free in time.
        """
        read = _Read(work, self._ended)
        self._running += 1
        self._queue.put(read)
        try:
            if self._running > len(self._connections):
                await self._begun_in_time(read)
            return cast("T", await read.answer)
        finally:
            if read.is_answered:
                self._places.put(None)
            else:
                read.answer.cancel()  # so that its place is free when it ends

    async def _begun_in_time(self, read: "_Read") -> None:
        """Busy for a read that must wait for a thread, and gets none in time."""
        try:
            await asyncio.wait((read.answer,), timeout=READ_TIMEOUT.total_seconds())
        except asyncio.CancelledError:
            self._withdrawn(read)  # nobody asks for it any more
            raise
        if self._withdrawn(read):
            raise Busy("Too many reads are waiting; try again.")

    def _withdrawn(self, read: "_Read") -> bool:
        """Whether the read had not begun; then it never will."""
        is_first = read.take()
        self._running -= is_first
        return is_first

    def _ended(self, is_answered: bool) -> None:
        self._running -= 1
        if not is_answered:  # its caller has left
            self._places.put(None)

    def _serve(self, connection: sqlite3.Connection) -> None:
        while self._serve_next(connection):
            pass

    def _serve_next(self, connection: sqlite3.Connection) -> bool:
        """Whether there was one; nothing of it is held afterwards, or while the next is awaited."""
        read = self._queue.get()
        if read is None:
            return False
        is_taken = read.take()
        if is_taken:
            self._places.get()
            read.run(connection, self._check)
        del read
        if is_taken:
            try:
                self._afterwards(connection)
            except Exception:
                log.exception("What follows a read has failed.")
        return True

    def _close(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        for connection in self._connections:
            connection.close()


class _Read:
    def __init__(
        self, work: Callable[[sqlite3.Connection], Any], on_end: Callable[[bool], None]
    ) -> None:
        self._work = work
        self._on_end = on_end
        self._free = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self._loop.create_future()
        self.is_answered = False  # while its caller waits

    def take(self) -> bool:
        """Whether nobody has taken it before: a thread to run it, or its caller to leave."""
        return self._free.acquire(blocking=False)

    def run(self, connection: sqlite3.Connection, check: Check) -> None:
        """Tell its caller what work answers, or what `check` refuses it with."""
        outcome: Outcome
        try:
            try:
                outcome = Succeeded(self._work(connection))
            finally:  # whatever it has met: without a log of its own that need be no damage
                check()
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            outcome = Failed(error)
        self._loop.call_soon_threadsafe(self._settle, outcome)

    def _settle(self, outcome: Outcome) -> None:
        self.is_answered = not self.answer.done()
        self._on_end(self.is_answered)
        settle(self.answer, outcome)


def _connections(path: Path, features: Features) -> list[sqlite3.Connection]:
    with refusing(path), ExitStack() as opened:
        made = []
        for _ in range(READERS):
            database = connect(path, features=features, one_thread=False, is_strict=True)
            opened.callback(database.close)
            read_only(database)
            database.execute("SELECT 1 FROM sqlite_schema").fetchone()  # it opens the log, too
            made.append(database)
        opened.pop_all()
        return made


NO_WAIT = timedelta(0)  # for a lock: nothing else is served meanwhile


class SqliteStored(SqliteTable):
    """Looks of some microseconds each."""

    def __init__(self, connection: sqlite3.Connection, files: OpenFiles) -> None:
        super().__init__(connection)
        self._files = files
        self._data_version = -1
        self._token: Token | None = None
        moment = Moment(connection, EPOCH)  # at which nothing here is looked at
        self._sessions = SessionTable(connection, SQLITE, EVERYTHING, moment, Known())
        self._memories = MemoryLists(connection, SQLITE, EVERYTHING, moment)

    def token(self) -> Token | None:
        if self._files.has_another_log():
            return None
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if version != self._data_version:
                self._token, self._data_version = token_of(self._connection), version
        except sqlite3.Error:  # locked, full or damaged: a transaction tells
            return None
        return self._token

    def place(self, project: Project) -> Place | None:
        with translated():
            found = place_of(self._connection, project)
            if found is None:
                return None
            area, group = found
            spaces = self._scalars(
                f"SELECT id FROM spaces WHERE project = :project AND area = {GLOBAL_AREA}",
                project=project,
            )
            return Place(group, area, frozenset(spaces))

    def summaries(self, project: Project, most: int) -> list[str]:
        with translated():
            return self._sessions.summaries(project, most)

    def texts(self, ids: Sequence[MemoryId]) -> list[Shown]:
        with translated():
            return self._memories.texts(ids)


@contextmanager
def held_reads(path: Path, index: DatabaseIndex, files: OpenFiles) -> Iterator[HeldReads]:
    """The reads of a database that memory answers, over a connection of their own."""
    connection = connect(path, busy_timeout=NO_WAIT, one_thread=False, is_strict=True)
    with closing(connection):
        read_only(connection)
        it = SqliteStored(connection, files)
        stored = Stored(it.token, it.place, it.summaries, it.texts)
        yield HeldReads(index, stored, known_stems(connection))
