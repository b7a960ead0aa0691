"""One SQLite connection: its settings, the thread that plain functions run on, transactions."""

import _sqlite3
import asyncio
import inspect
import logging
import os
import re
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, cast
from urllib.parse import quote

import aiosqlite

from ..engine.engine import Outcome, noop, outcome_of, settle
from ..errors import Busy, DamagedRow, Unavailable, reason
from ..memory.memory import MemoryId
from ..memory.space import UNINDEXED_AREA
from ..memory.table import Known
from ..recall.cache import AreaKey as Area
from ..recall.cache import Changes, NewMemory, Token
from ..recall.features import ALL, Features
from ..recall.stems import Stems
from .dialect import decoded, is_damage, primary_code, register_functions

T = TypeVar("T")

APPLICATION_ID = 0x414D_454D  # "AMEM": the file is ours
BUSY_TIMEOUT = timedelta(seconds=5)  # another process's transaction
WAL_SIZE = 64 * 1024 * 1024  # bytes kept of a WAL that has once grown beyond
CHECKPOINT = 1000  # pages (4 MiB) of WAL that a commit copies into the file: 4,000 take 20 ms
READ_LIMIT = timedelta(seconds=5)  # half of what our client waits, so that it gets the reason
PROGRESS = 10_000  # virtual machine steps between two looks at the clock
CACHED_STATEMENTS = 256  # Python keeps 128, and then compiles statements of ours again
# KiB of pages that a reader keeps. With the 2,000 of SQLite a prompt takes as much processor time
# (3,000 in 1,000 projects, none in memory), as pages that leave are in the system's cache.
READ_CACHE = 512
CHANGING = "mode=rw"  # it must be there
SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

Check = Callable[[], None]
"""Raises what a change, or a read, is refused with after all."""


# What a transaction of this process changes, for what is held in memory. Triggers of the writer's
# own connection note every change, whichever function makes it; the index reports new memories.

NO_GROUP = -1  # of the global area, which is in every partition


class Noted:
    """The changes of one transaction, and rather more: what is rolled back stays noted."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._areas: dict[MemoryId, set[Area]] = {}  # by memory; 0 for a space
        self._projects: set[str] = set()

    def clear(self) -> None:
        self._areas.clear()
        self._projects.clear()

    def note(self, partition: int | None, area: int, memory: int) -> None:
        if memory:
            self._known.ends.pop(area, None)
        else:
            self._known.forget()
        self.note_area(partition, area, memory)

    def note_area(self, partition: int | None, area: int, memory: int) -> None:
        """Of a memory that is new: what is known of those before it stays true."""
        if area != UNINDEXED_AREA:
            group = NO_GROUP if partition is None else partition
            self._areas.setdefault(MemoryId(memory), set()).add((group, area))

    def note_summary(self, project: bytes | None) -> None:
        self._known.sessions.clear()
        if project is not None:
            self._projects.add(project.decode(errors="replace"))

    def changes(self, new: Iterable[NewMemory]) -> Changes:
        """All of them, with the new memories."""
        areas = set[Area]().union(*self._areas.values())
        return Changes(areas=areas, new=list(new), projects=set(self._projects))


def connect(
    path: Path,
    *,
    busy_timeout: timedelta = BUSY_TIMEOUT,
    features: Features = ALL,
    mode: str = "",
    is_strict: bool = False,
) -> sqlite3.Connection:
    """An open connection with the settings and functions that every one of ours has.

    The mode is what SQLite takes in the address of a file (https://sqlite.org/uri.html); without
    one, a file that is not there is made.

    A text that is no UTF-8 is read with U+FFFD in the place of what cannot be decoded. With
    `is_strict` it is an error, and reading is faster: see `decoding`.
    """
    database = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?{mode}" if mode else path,
        uri=bool(mode),
        isolation_level=None,
        timeout=busy_timeout.total_seconds(),
        cached_statements=CACHED_STATEMENTS,
        check_same_thread=False,  # another thread may open it than uses and closes it
        factory=Database,
    )
    if not is_strict:
        database.text_factory = decoded
    try:
        for pragma in _PRAGMAS:
            database.execute(f"PRAGMA {pragma}")
        register_functions(database, features)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        database.close()
        if isinstance(error, UnicodeDecodeError):  # from what SQLite says of a schema of garbage
            damage = sqlite3.DatabaseError("malformed database schema")
            damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            damage.sqlite_errorname = "SQLITE_CORRUPT"
            raise damage from error
        raise
    return database


def ours(database: sqlite3.Connection) -> "Database":
    """A connection that was made by `connect`."""
    return cast(Database, database)


def known_stems(database: sqlite3.Connection) -> Stems:
    """What the words are in the index of a connection that was made by `connect`."""
    return ours(database).stems


def known_to(database: sqlite3.Connection) -> Known:
    """What a connection that notes its changes knows of rows, within a transaction."""
    it = ours(database)
    ((version,),) = database.execute("PRAGMA data_version")  # moved by what others commit
    if version != it.version:
        it.known.forget()
        it.version = version
    it.known.keep_small()
    return it.known


def taken_damage(database: sqlite3.Connection) -> list[DamagedRow]:
    """The damaged rows that were left out on a connection since this was last called."""
    damaged, ours(database).damaged = ours(database).damaged, []
    return damaged


def read_only(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA query_only = ON")  # a read must never write beside the one writer
    database.execute(f"PRAGMA cache_size = -{READ_CACHE}")


@contextmanager
def writable_temporarily(database: sqlite3.Connection) -> Iterator[None]:
    """Inside, a reader may make tables for its connection alone."""
    ((is_reader,),) = database.execute("PRAGMA query_only").fetchall()
    try:
        database.execute("PRAGMA query_only = OFF")
        yield
    finally:
        database.execute(f"PRAGMA query_only = {is_reader}")


def interrupt_at(database: sqlite3.Connection, end: float) -> None:
    """Interrupt whatever runs on this connection from that time of the monotonic clock on."""
    database.set_progress_handler(lambda: time.monotonic() > end, PROGRESS)


def use_wal(database: sqlite3.Connection, timeout: timedelta) -> None:
    """Switch the file to WAL; the switch ignores the busy timeout, so it is tried again."""
    end = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


@contextmanager
def in_snapshot(database: sqlite3.Connection, limit: timedelta) -> Iterator[None]:
    """A transaction that sees one state, and is stopped when it takes long.

    What it raises can be handed to another thread.
    """
    try:
        with carried():
            interrupt_at(database, time.monotonic() + limit.total_seconds())
            database.execute("BEGIN")
            yield
            with suppress(sqlite3.Error):  # of a damaged index: then it is rolled back below
                database.execute("COMMIT")  # so that a table for this connection alone stays
    finally:
        _free(database)


def wait_at_most(database: sqlite3.Connection, seconds: float) -> None:
    """For another process's transaction."""
    if seconds != ours(database).timeout:
        database.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
        ours(database).timeout = seconds


@contextmanager
def change(database: sqlite3.Connection, deadline: float, check: Check = noop) -> Iterator[None]:
    """A transaction that is committed whole; if anything raises, nothing happened.

    `check` raises where it must not be committed after all; and once more afterwards, where
    what was committed must not be acknowledged: nobody can tell if it stays.
    """
    try:
        with carried():
            # In tenths: each distinct statement takes a place among the cached ones.
            wait_at_most(database, round(max(deadline - time.monotonic(), 0), 1))
            database.execute("BEGIN IMMEDIATE")
            yield
            check()
            _commit(database)
            check()
    except BaseException:
        # A fault within the full-text index can end a transaction, and leave its snapshot open.
        with suppress(sqlite3.Error):
            database.execute("BEGIN")
        raise
    finally:
        _free(database)


@contextmanager
def carried() -> Iterator[None]:
    """What it raises can be handed to another thread, and holds no cursor."""
    try:
        yield
    except BaseException as error:
        if (carriable_error := carriable(error)) is error:
            raise
        raise carriable_error from None


def carriable(error: BaseException) -> BaseException:
    """The error as it can be handed to another thread; it holds no cursor any more."""
    if isinstance(error, StopIteration):
        # No future can carry it: the caller would wait forever.
        stopped = RuntimeError("work raised StopIteration")
        return stopped.with_traceback(error.__traceback__)
    # The variables of work that raised: a cursor among them would hold its snapshot.
    for frame, _ in traceback.walk_tb(error.__traceback__):
        # An error that is raised again still knows coroutines that continue.
        if not frame.f_code.co_flags & SUSPENDABLE:
            with suppress(RuntimeError):  # it runs
                frame.clear()
    return error


_PRAGMAS = (
    "temp_store = MEMORY",  # there may be no temporary folder
    "synchronous = FULL",  # fsync at each commit: with NORMAL a power cut loses acknowledged ones
    "foreign_keys = ON",  # SQLite has them off, for each connection
    "secure_delete = ON",  # zeros over what is deleted, for erasures
    "trusted_schema = ON",  # the view memory_text calls our functions
    f"journal_size_limit = {WAL_SIZE}",  # else a log that grew once keeps its size
    f"wal_autocheckpoint = {CHECKPOINT}",
)


class Database(sqlite3.Connection):
    """A connection, with what this process knows of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stems = Stems()
        self.known = Known()
        self.noted = Noted(self.known)
        self.version = 0  # of the state that is known
        self.timeout = -1.0  # seconds that it waits for another process, once that was set
        self.damaged: list[DamagedRow] = []  # what reads have left out since it was last taken

    def close(self) -> None:
        self.stems.close()
        super().close()


def _free(database: sqlite3.Connection) -> None:
    database.set_progress_handler(None, 0)
    if database.in_transaction:
        database.execute("ROLLBACK")


def _commit(database: sqlite3.Connection) -> None:
    """Commit, and keep a commit that failed from coming true later.

    One whose sync failed lies whole in the write-ahead log, where the recovery after a crash would
    find it; an empty commit takes its place.
    """
    try:
        database.execute("COMMIT")
    except (sqlite3.Error, MemoryError):
        with suppress(sqlite3.Error):
            if database.in_transaction:
                database.execute("ROLLBACK")
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raise


# What each trigger notes: a change of a memory (0 for none) in the spaces of these ids.
_AREAS = "SELECT note_change(partition, area, {}) FROM spaces WHERE id IN ({})".format
_SPACE_OF = "SELECT space_id FROM memories WHERE id = {}".format
_SUMMARY = "note_summary(CAST({}.project AS BLOB))".format
_SPACE = "note_change({0}.partition, {0}.area, 0)".format
_TRIGGERS = {
    "UPDATE OF space_id, session_id, key, type, title, content, tags, created_at, deleted_at "
    "ON main.memories": _AREAS("NEW.id", "OLD.space_id, NEW.space_id"),
    "DELETE ON main.memories": _AREAS("OLD.id", "OLD.space_id"),
    "INSERT ON main.lifecycles": _AREAS("NEW.memory_id", "NEW.space_id"),
    "UPDATE OF space_id, held_key, expires_at, pinned_at, is_swept ON main.lifecycles": _AREAS(
        "NEW.memory_id", "OLD.space_id, NEW.space_id"
    ),
    "DELETE ON main.lifecycles": _AREAS("OLD.memory_id", "OLD.space_id"),
    "INSERT ON main.supersessions": _AREAS("NEW.older_id", _SPACE_OF("NEW.older_id")),
    "DELETE ON main.supersessions": _AREAS("OLD.older_id", _SPACE_OF("OLD.older_id")),
    "UPDATE OF project, scope, area, partition ON main.spaces": (
        f"SELECT {_SPACE('OLD')}, {_SPACE('NEW')}"
    ),
    "DELETE ON main.spaces": f"SELECT {_SPACE('OLD')}",
    "UPDATE OF ref ON main.refs": _AREAS("0", "NEW.space_id"),
    "INSERT ON main.sessions WHEN NEW.summary <> ''": f"SELECT {_SUMMARY('NEW')}",
    "UPDATE OF project, started_at, summary ON main.sessions": (
        f"SELECT {_SUMMARY('OLD')}, {_SUMMARY('NEW')}"
    ),
    "DELETE ON main.sessions": f"SELECT {_SUMMARY('OLD')}",
}


def note_changes(database: sqlite3.Connection) -> None:
    """Let a connection note from now on what it changes."""
    noted = ours(database).noted
    database.create_function("note_change", 3, noted.note)
    database.create_function("note_summary", 1, noted.note_summary)
    for number, (event, noting) in enumerate(_TRIGGERS.items()):
        database.execute(f"CREATE TEMP TRIGGER note_{number} AFTER {event} BEGIN {noting}; END")


def token_of(database: sqlite3.Connection) -> Token:
    """The token of the state that a transaction sees."""
    row = database.execute("SELECT token FROM database_state").fetchone()
    return int(row[0]) if row else 0


log = logging.getLogger(__name__)

# Work begun whose callers have no answer yet. While the loop is busy, more would pile up, of
# which each can take several MiB.
AHEAD = 4


class WriterThread(aiosqlite.Connection):
    """The connection that writes, and its thread, which runs whole functions."""

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What work answers. A cancelled caller leaves; the work continues."""
        result: T = await self._execute(work, self._conn)  # type: ignore[no-untyped-call]
        return result

    @property
    def known(self) -> Known:
        return ours(self._conn).known


class Threads:
    """A thread for each of some connections: they run plain functions, of which none waits.

    `check` is called after each, and raises what that is refused with instead. `afterwards` is
    called with the connection then, when the caller is answered. What has not begun within the
    timeout is refused with Busy.
    """

    def __init__(
        self,
        connections: Sequence[sqlite3.Connection],
        *,
        check: Check = noop,
        afterwards: Callable[[sqlite3.Connection], object] = noop,
        timeout: timedelta | None = None,
    ) -> None:
        self.connections = connections
        self._check = check
        self._afterwards = afterwards
        self._timeout = timeout
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._running = 0  # or waiting
        self._places: SimpleQueue[None] = SimpleQueue()  # of work that is ahead
        for _ in range(AHEAD):
            self._places.put(None)
        self._threads = [
            threading.Thread(target=self._serve, args=(each,), name="database", daemon=True)
            for each in connections
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What work answers. A cancelled caller leaves; work that has begun continues."""
        if not self._threads:
            raise Unavailable("The database is closed.")
        call, is_withdrawn = _Call(work), False
        self._running += 1
        self._queue.put(call)
        try:
            if self._timeout is not None and self._running > len(self.connections):
                await asyncio.wait((call.answer,), timeout=self._timeout.total_seconds())
                if is_withdrawn := call.take():
                    raise Busy("Too many reads are waiting; try again.")
            return cast("T", await call.answer)
        finally:
            if is_withdrawn or call.take():
                self._running -= 1
            else:  # it has begun
                self._places.put(None)

    async def close(self) -> None:
        """Finish what was accepted, and close the connections, even if the caller leaves."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            await asyncio.to_thread(thread.join)

    def _serve(self, connection: sqlite3.Connection) -> None:
        while (has_run := self._run_next(connection)) is not None:
            if has_run:
                try:
                    self._afterwards(connection)
                except Exception:
                    log.exception("What follows a read has failed.")
        connection.close()

    def _run_next(self, connection: sqlite3.Connection) -> bool | None:
        """Run the next call unless its caller has left; None at the end.

        Nothing of it is held afterwards, or while the next is awaited.
        """
        call = self._queue.get()
        if call is None:
            return None
        if not call.take():
            return False
        self._places.get()
        outcome = outcome_of(partial(self._checked, call.work, connection))
        with suppress(RuntimeError):  # its loop is closed: nobody waits for it any more
            call.loop.call_soon_threadsafe(self._settle, call.answer, outcome)
        return True

    def _checked(self, work: Callable[..., T], connection: sqlite3.Connection) -> T:
        try:
            return work(connection)
        finally:  # whatever it has met: without a log of its own that need be no damage
            self._check()

    def _settle(self, answer: asyncio.Future[Any], outcome: Outcome) -> None:
        self._running -= 1
        settle(answer, outcome)


class _Call:
    def __init__(self, work: Callable[[sqlite3.Connection], Any]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self.loop.create_future()
        self._free = threading.Lock()

    def take(self) -> bool:
        """Whether nobody has taken it before: a thread to run it, or its caller to leave."""
        return self._free.acquire(blocking=False)


MEMSTATUS = 9  # SQLITE_CONFIG_MEMSTATUS
OLDEST = (3, 37, 0)  # with tables that are STRICT


def without_memory_statistics() -> bool:
    """Stop counting the library's memory, for the count is a lock that readers fight for.

    Two readers searching at a time take a quarter less of the processor without it. To be called
    before a database is opened; false, and nothing is changed, where the library cannot be reached.
    """
    import ctypes  # noqa: PLC0415 - a service alone needs it

    try:
        library = ctypes.CDLL(_sqlite3.__file__)
        config, initialize = library.sqlite3_config, library.sqlite3_initialize
        shutdown = library.sqlite3_shutdown
    except (AttributeError, OSError):  # built in, or its symbols hidden
        return False
    shutdown()
    is_set = bool(config(MEMSTATUS, 0) == 0)
    initialize()
    return is_set


def lack() -> str:
    """What the library lacks that the service needs, in a sentence; nothing if it has all."""
    if sqlite3.sqlite_version_info < OLDEST:
        return f"SQLite must be {'.'.join(map(str, OLDEST))} or newer."
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE f USING fts5 (word)")
        except sqlite3.Error as error:
            return f"SQLite has no full-text search: {reason(error)}."
    return ""


MOST = 100  # faults that SQLite tells of, pages that nothing uses after all others
NO_FAULTS = ("ok", "*** in database main ***")
OF_A_VALUE = re.compile(r"CHECK constraint failed in |(non-)?\w+ value in ")
"""Of a damaged row, of which `maintenance.damaged_rows` tells more."""


@contextmanager
def open_read_only(path: Path, features: Features = ALL) -> Iterator[sqlite3.Connection]:
    """A connection that can only read, on one state of the file.

    Where there is no log nobody has the file open, and it is read as it lies there: SQLite
    would else make a log. A log that a crash left is read with it, and stays.
    """
    mode = "mode=ro&immutable=1" if log_size(path) is None else "mode=ro"
    with closing(connect(path, features=features, mode=mode)) as database:
        database.execute("BEGIN")
        yield database


def log_size(path: Path) -> int | None:
    """The bytes of the write-ahead log that is to be read with the file; None if there is none."""
    log, index = (path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))
    try:
        size = log.stat().st_size
    except OSError:
        return None
    return size if size or index.exists() else None


def sizes_of(database: sqlite3.Connection) -> tuple[int, int]:
    """The bytes of the pages of a database, and of those among them that nothing uses."""
    names = ("page_size", "page_count", "freelist_count")
    size, count, free = (database.execute(f"PRAGMA {it}").fetchone()[0] for it in names)
    return size * count, size * free


def is_readable(database: sqlite3.Connection, table: str) -> bool:
    try:
        return not _reported(database, f'PRAGMA quick_check("{table}")')
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return False


def faults_of(database: sqlite3.Connection, check: str = "quick_check") -> list[str]:
    """What SQLite finds wrong with the file, pages that nothing uses too; but for values."""
    return _reported(database, f"PRAGMA {check}({MOST})")


def drop_statements(names: Iterable[str]) -> list[str]:
    """Statements that remove tables, views and indexes from the schema alone.

    A damaged page may point at pages of others, which a DROP would free. Their own pages are
    used by nothing then, until the file is vacuumed.
    """
    quoted = ", ".join("'{}'".format(name.replace("'", "''")) for name in names)
    return [
        "PRAGMA writable_schema = ON",
        f"DELETE FROM sqlite_schema WHERE name IN ({quoted}) OR tbl_name IN ({quoted})",
        "PRAGMA writable_schema = RESET",
    ]


def _reported(database: sqlite3.Connection, check: str) -> list[str]:
    lines = [line for (report,) in database.execute(check) for line in report.splitlines()]
    return [line for line in lines if line not in NO_FAULTS and not OF_A_VALUE.match(line)]
