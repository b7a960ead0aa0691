"""A transaction, its instant and its tables; and the threads that read, with a connection each."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..engine.engine import Transaction
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
from .connection import Check, Threads, connect, known_stems, read_only, sizes_of, token_of
from .dialect import SQLITE, NeedsTransactionOfItsOwn, SqliteTable, refusing, translated
from .index import Index
from .open_files import OpenFiles
from .partitions import Partitions
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
        batch: Index | None = None,
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
        total, unused = sizes_of(self._connection)
        return total - unused

    @property
    def met_damage(self) -> bool:
        """Whether the index was found damaged where something else stood in."""
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
        lists = MemoryLists(self._connection, SQLITE, self._projects, self._moment)
        visibility = Visibility(
            self._connection,
            SQLITE,
            self._projects,
            self._moment,
            self.index.partitions.of_projects,
            self.index.partitions.is_made,
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
        return self.index.partitions

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


READERS = 2  # Python's GIL lets more add little, and each has a cache and open files
READ_TIMEOUT = timedelta(seconds=5)  # until a reader is free


@asynccontextmanager
async def readers(
    path: Path, features: Features, check: Check, afterwards: Callable[[sqlite3.Connection], None]
) -> AsyncIterator[Threads]:
    """Threads that read the file which is at the path now, whatever comes there later.

    StartRefused when it cannot be opened. At the end they finish what was accepted, and close.
    """
    connections = await asyncio.to_thread(_connections, path, features)
    threads = Threads(connections, check=check, afterwards=afterwards, timeout=READ_TIMEOUT)
    try:
        yield threads
    finally:
        await threads.close()


def _connections(path: Path, features: Features) -> list[sqlite3.Connection]:
    with refusing(path), ExitStack() as opened:
        connections = []
        for _ in range(READERS):
            database = connect(path, features=features, is_strict=True)
            opened.callback(database.close)
            read_only(database)
            database.execute("SELECT 1 FROM sqlite_schema").fetchone()  # it opens the log, too
            connections.append(database)
        opened.pop_all()
        return connections


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

    def area_of(self, project: Project) -> Place | None:
        with translated():
            row = place_of(self._connection, project)
            if row is None:
                return None
            area, group = row
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
def cached_reads(path: Path, index: DatabaseIndex, files: OpenFiles) -> Iterator[HeldReads]:
    """The reads of a database that memory answers, over a connection of their own."""
    connection = connect(path, busy_timeout=NO_WAIT, is_strict=True)
    with closing(connection):
        read_only(connection)
        it = SqliteStored(connection, files)
        stored = Stored(it.token, it.area_of, it.summaries, it.texts)
        yield HeldReads(index, stored, known_stems(connection))
