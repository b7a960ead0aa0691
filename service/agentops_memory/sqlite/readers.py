"""Readers: threads with a connection each, which take the next read by themselves."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from ..engine.shared.outcomes import Failed, Outcome, Succeeded, settle
from ..errors import Busy
from ..memory.memories import MemoryLists
from ..memory.model.access import EVERYTHING
from ..memory.model.liveness import Moment
from ..memory.model.memory import MemoryId, Shown
from ..memory.model.space import GLOBAL_AREA, Project, place_of
from ..memory.model.table import Known
from ..memory.sessions import SessionTable
from ..recall.held_reads import HeldReads, Place, Stored
from ..recall.inverted_index.cache import DatabaseIndex, Token
from ..recall.text.features import Features
from ..recall.text.instants import EPOCH
from .connection import Check, connect, known_stems, read_only, token_of
from .dialect import SQLITE, SqliteTable, refusing, translated
from .open_files import OpenFiles

T = TypeVar("T")

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
