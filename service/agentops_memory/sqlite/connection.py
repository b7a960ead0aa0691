"""One SQLite connection: its settings, the thread that plain functions run on, transactions."""

import asyncio
import inspect
import logging
import os
import re
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import quote

import aiosqlite

from ..engine.engine import Outcome, answer_of, noop, outcome_of, settle
from ..errors import Busy, DamagedRow, Unavailable
from ..light import dataclass
from ..memory.space import UNINDEXED_AREA
from ..memory.table import Dialect, Known, Table
from ..recall.cache import AreaKey as Area, Changes, NewMemory, Token
from ..recall.stems import Stems
from .dialect import SQLITE, decoded, is_damage, primary_code, register_functions

T = TypeVar("T")

APPLICATION_ID = 0x414D_454D  # "AMEM": the file is ours
BUSY_TIMEOUT = timedelta(seconds=5)  # how long to wait for another process's transaction
WAL_SIZE = 64 * 1024 * 1024  # bytes to which a WAL that grew larger is truncated
CHECKPOINT = 1000  # pages (4 MiB) of WAL at which a commit checkpoints: 4,000 take 20 ms
# The same while an import writes alone: each of its transactions changes a thousand pages or more,
# and often the same ones, so a checkpoint after each would take a tenth of its time.
CHECKPOINT_ALONE = 3000
# KiB of the writer's page cache: SQLite's default, and while an import writes alone. Its rows touch
# most pages of some indexes; with the default, a third of the system time reads them again.
CACHE, CACHE_ALONE = 2000, 8000
READ_LIMIT = timedelta(seconds=5)  # half of our client's timeout, so that it gets the reason
PROGRESS = 10_000  # virtual machine steps between two checks of the clock
CACHED_STATEMENTS = 256  # with Python's default of 128, ours are compiled repeatedly
# KiB of a reader's page cache. SQLite's default of 2,000 saves no CPU time (measured with 3,000
# prompts in 1,000 projects, none in memory), as evicted pages are in the system's cache.
READ_CACHE = 512
CHANGING = "mode=rw"  # the file must exist
SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

Check = Callable[[], None]
"""Raises the error with which a change or a read fails after it has run."""


# What this process's transactions change, for the caches in memory. Temporary triggers of the
# writer's connection note each change, whichever function makes it; the index reports new memories.

NO_GROUP = -1  # the group of the global area, which is in every partition


class ChangeLog:
    """The changes of one transaction; it may include changes that were rolled back."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._areas: set[Area] = set()
        self._projects: set[str] = set()

    def clear(self) -> None:
        self._areas.clear()
        self._projects.clear()

    def note(self, partition: int | None, area: int, memory: int) -> None:
        """Note a change of a memory; 0 for a change of its space."""
        if memory:
            self._known.ends.pop(area, None)
        else:
            self._known.forget()
        if area != UNINDEXED_AREA:
            self.note_new((NO_GROUP if partition is None else partition, area))

    def note_new(self, area: Area) -> None:
        """Note a new memory of an area: what is known of older memories stays true."""
        self._areas.add(area)

    def note_summary(self, project: bytes | None) -> None:
        self._known.sessions.clear()
        if project is not None:
            self._projects.add(project.decode(errors="replace"))

    def changes(self, new: Iterable[NewMemory]) -> Changes:
        """Return all noted changes, with the new memories."""
        return Changes(areas=set(self._areas), new=list(new), projects=set(self._projects))


class Database(sqlite3.Connection):
    """A connection, with what this process caches of its database."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stems = Stems()
        self.known = Known()
        self.change_log = ChangeLog(self.known)
        self.version = 0  # the data_version that `known` and `token` are valid for
        self.token: Token | None = None  # that of the newest commit, if this connection made it
        self.pragmas: dict[str, str | int] = {}  # those that `set_pragma` has set
        self.damaged: list[DamagedRow] = []  # rows that reads skipped, until they are taken

    read = sqlite3.Connection.execute

    def inserted(self, statement: str, parameters: Mapping[str, object]) -> int:
        # RETURNING would double the cost of an INSERT.
        return self.execute(statement, parameters).lastrowid or 0

    def inserted_all(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> Sequence[int]:
        values = ", ".join("?" * len(columns))
        self.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})", rows)
        ((last,),) = self.execute("SELECT last_insert_rowid()")
        return range(last - len(rows) + 1, last + 1)  # no other connection can insert meanwhile

    def close(self) -> None:
        self.stems.close()
        super().close()


@dataclass(eq=False)
class SqliteTable(Table):
    """A table that exists only in SQLite."""

    _connection: Database
    _sql: Dialect = SQLITE


def connect(
    path: Path, *, busy_timeout: timedelta = BUSY_TIMEOUT, mode: str = "",
    is_strict: bool = False,
) -> Database:  # fmt: skip
    """Open a connection with our settings and functions.

    `mode` is the query of SQLite's file URI (https://sqlite.org/uri.html); without it, a missing
    file is created.

    In text that is not UTF-8, U+FFFD replaces what cannot be decoded. With `is_strict` such text
    is an error, and reading is faster: see `find_undecodable`.
    """
    database: Database = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?{mode}" if mode else path,
        uri=bool(mode),
        isolation_level=None,
        timeout=busy_timeout.total_seconds(),
        cached_statements=CACHED_STATEMENTS,
        check_same_thread=False,  # one thread may open it, another use and close it
        factory=Database,
    )
    if not is_strict:
        database.text_factory = decoded
    try:
        for pragma in _PRAGMAS:
            database.execute(f"PRAGMA {pragma}")
        register_functions(database)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        database.close()
        if isinstance(error, UnicodeDecodeError):  # SQLite quoted a schema that is not UTF-8
            damage = sqlite3.DatabaseError("malformed database schema")
            damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            damage.sqlite_errorname = "SQLITE_CORRUPT"
            raise damage from error
        raise
    return database


def known_to(database: Database) -> Known:
    """Return what the writer's connection knows of rows; to be called in a transaction."""
    ((version,),) = database.execute("PRAGMA data_version")  # others' commits change it
    if version != database.version:
        database.known.forget()
        database.version, database.token = version, None
    database.known.keep_small()
    return database.known


def taken_damage(database: Database) -> list[DamagedRow]:
    """Return the damaged rows that reads have skipped since the last call."""
    damaged, database.damaged = database.damaged, []
    return damaged


def read_only(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA query_only = ON")  # only the one writer may write
    database.execute(f"PRAGMA cache_size = -{READ_CACHE}")


def interrupt_at(database: sqlite3.Connection, end: float) -> None:
    """Interrupt statements on this connection once the monotonic clock has passed `end`."""
    database.set_progress_handler(lambda: time.monotonic() > end, PROGRESS)


def use_wal(database: sqlite3.Connection, timeout: timedelta) -> None:
    """Switch the file to WAL. The switch ignores the busy timeout, so it is retried here."""
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
def in_snapshot(database: Database, limit: timedelta) -> Iterator[None]:
    """Run a transaction that sees one state and is interrupted at the time limit.

    Its exceptions can be handed to another thread.
    """
    try:
        with carried():
            interrupt_at(database, time.monotonic() + limit.total_seconds())
            database.execute("BEGIN")
            yield
            with suppress(sqlite3.Error):  # a damaged index: rolled back below
                database.execute("COMMIT")  # so that temporary tables stay
    finally:
        _free(database)


def set_pragma(database: Database, name: str, value: str | int) -> None:
    """Set a value of the connection, unless this has set the same one before."""
    if database.pragmas.get(name) != value:
        database.execute(f"PRAGMA {name} = {value}")
        database.pragmas[name] = value


@contextmanager
def change(
    database: Database, deadline: float, check: Check = noop, *, is_synced: bool = True
) -> Iterator[None]:
    """Run a transaction that is committed whole, or rolled back if anything raises.

    If not `is_synced`, it is durable once a later one is. `check` is called before the commit and
    again after it. It raises if the change must not be committed, or not be acknowledged because
    nobody can tell whether it is kept.
    """
    try:
        with carried():
            tenths = round(10 * max(deadline - time.monotonic(), 0))  # as statements are cached
            set_pragma(database, "busy_timeout", 100 * tenths)
            set_pragma(database, "synchronous", "FULL" if is_synced else "NORMAL")
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
    """Let exceptions be handed to another thread and hold no cursor."""
    try:
        yield
    except BaseException as error:
        if (carriable_error := carriable(error)) is error:
            raise
        raise carriable_error from None


def carriable(error: BaseException) -> BaseException:
    """Return the error in a form that another thread can raise and that holds no cursor."""
    if isinstance(error, StopIteration):
        # No future can carry it: the caller would wait forever.
        stopped = RuntimeError("work raised StopIteration")
        return stopped.with_traceback(error.__traceback__)
    # Clear the local variables of the work: a cursor among them would hold its snapshot.
    for frame, _ in traceback.walk_tb(error.__traceback__):
        # The traceback of a re-raised error may include coroutines that still run.
        if not frame.f_code.co_flags & SUSPENDABLE:
            with suppress(RuntimeError):  # the frame is running
                frame.clear()
    return error


_PRAGMAS = (
    "temp_store = MEMORY",  # there may be no temporary folder
    "synchronous = FULL",  # fsync at each commit: with NORMAL a power cut loses commits
    "foreign_keys = ON",  # off by default, for each connection
    "secure_delete = ON",  # overwrite deleted data with zeros, for erasures
    "trusted_schema = ON",  # the view memory_text calls our functions
    f"journal_size_limit = {WAL_SIZE}",  # else a log that grew keeps its size
    f"wal_autocheckpoint = {CHECKPOINT}",
)


def _free(database: Database) -> None:
    database.set_progress_handler(None, 0)
    if database.in_transaction:
        database.execute("ROLLBACK")


def _commit(database: sqlite3.Connection) -> None:
    """Commit, and prevent a failed commit from taking effect later.

    If only the sync failed, the commit is whole in the write-ahead log, and recovery after a crash
    would apply it; an empty commit overwrites it.
    """
    try:
        database.execute("COMMIT")
    except (sqlite3.Error, MemoryError):
        with suppress(sqlite3.Error):
            if database.in_transaction:
                database.execute("ROLLBACK")
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raise


# What each trigger notes: a change of a memory (0 for none) in the spaces with these ids.
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


def note_changes(database: Database) -> None:
    """Make a connection note its changes from now on."""
    changes = database.change_log
    database.create_function("note_change", 3, changes.note)
    database.create_function("note_summary", 1, changes.note_summary)
    for number, (event, noting) in enumerate(_TRIGGERS.items()):
        database.execute(f"CREATE TEMP TRIGGER note_{number} AFTER {event} BEGIN {noting}; END")


def token_of(database: sqlite3.Connection) -> Token:
    """Return the token of the state that the transaction sees."""
    row = database.execute("SELECT token FROM database_state").fetchone()
    return int(row[0]) if row else 0


log = logging.getLogger(__name__)

# Most calls that have begun and whose callers have no result yet. While the event loop is busy,
# more would pile up, each of which can take several MiB.
AHEAD = 4


class WriterThread(aiosqlite.Connection):
    """The connection that writes, with a thread that runs whole functions."""

    async def run(self, work: Callable[[Database], T]) -> T:
        """Run `work` on the thread and return its result. Cancelling does not stop the work."""
        result: T = await self._execute(work, self._conn)  # type: ignore[no-untyped-call]
        return result

    @property
    def known(self) -> Known:
        return cast(Database, self._conn).known


class Threads:
    """A thread for each connection, which runs plain functions; none of them awaits anything.

    `check` is called after each function, and its error replaces the result. `afterwards` is
    called with the connection once the caller is answered. A call that has not begun within the
    timeout raises Busy.
    """

    def __init__(
        self, connections: Sequence[Database], *, check: Check = noop,
        afterwards: Callable[[Database], object] = noop, timeout: timedelta | None = None,
    ) -> None:  # fmt: skip
        self.connections = connections
        self._check = check
        self._afterwards = afterwards
        self._timeout = timeout
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._pending = 0  # calls that run or wait
        self._slots: SimpleQueue[None] = SimpleQueue()  # for calls that have begun
        for _ in range(AHEAD):
            self._slots.put(None)
        self._threads = [
            threading.Thread(target=self._serve, args=(each,), name="database", daemon=True)
            for each in connections
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[Database], T]) -> T:
        """Run `work` on a thread and return its result. Cancelling does not stop work that runs."""
        if not self._threads:
            raise Unavailable("The database is closed.")
        loop, is_withdrawn = asyncio.get_running_loop(), False
        take = partial(threading.Lock().acquire, blocking=False)
        call = _Call(work, loop, loop.create_future(), take)
        self._pending += 1
        self._queue.put(call)
        try:
            if self._timeout is not None and self._pending > len(self.connections):
                await asyncio.wait((call.answer,), timeout=self._timeout.total_seconds())
                if is_withdrawn := call.take():
                    raise Busy("Too many reads are waiting; try again.")
            return cast("T", await call.answer)
        finally:
            if is_withdrawn or call.take():
                self._pending -= 1
            else:  # it has begun
                self._slots.put(None)

    async def close(self) -> None:
        """Finish accepted calls and close the connections, even if the caller is cancelled."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            await asyncio.to_thread(thread.join)

    def _serve(self, connection: Database) -> None:
        while (call := self._queue.get()) is not None:
            if has_run := call.take():
                self._run(call, connection)
            del call  # while nothing is called, no reference to a call is kept
            if has_run:
                try:
                    self._afterwards(connection)
                except Exception:
                    log.exception("What follows a read has failed.")
        connection.close()

    def _run(self, call: "_Call", connection: Database) -> None:
        self._slots.get()
        outcome = outcome_of(partial(self._checked, call.work, connection))
        with suppress(RuntimeError):  # its loop is closed: nobody waits for the result
            call.loop.call_soon_threadsafe(self._settle, call.answer, outcome)

    def _checked(self, work: Callable[..., T], connection: Database) -> T:
        try:
            return work(connection)
        finally:  # whatever error it has met: if the log was replaced, it need not be damage
            self._check()

    def _settle(self, answer: asyncio.Future[Any], outcome: Outcome) -> None:
        self._pending -= 1
        settle(answer, outcome)


class _Call(NamedTuple):
    work: Callable[[Database], Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    # Claims it, for a thread or for a caller that leaves; False if it is claimed already.
    take: Callable[[], bool]


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run `work` on a daemon thread, which does not keep the process alive; return its result."""
    outcome: Future[Outcome] = Future()
    outcome.set_running_or_notify_cancel()  # it runs on if its caller leaves
    run = partial(outcome_of, work)
    threading.Thread(target=lambda: outcome.set_result(run()), name="opening", daemon=True).start()
    return cast("T", answer_of(await asyncio.wrap_future(outcome)))


MOST = 100  # most faults that SQLite reports; unused pages come last
NO_FAULTS = ("ok", "*** in database main ***")
UNUSED_PAGE = "is never used"  # the end of a report that is no fault: a dropped index leaves pages
OF_A_VALUE = re.compile(r"CHECK constraint failed in |(non-)?\w+ value in ")
"""A fault of a single value, which `migrate.damaged` reports in detail."""


@contextmanager
def open_read_only(path: Path) -> Iterator[Database]:
    """Open a connection that can only read, on one state of the file.

    Without a log nobody has the file open, so it is opened as immutable: SQLite would otherwise
    create a log. A log that a crash left is read with the file, and stays.
    """
    mode = "mode=ro&immutable=1" if log_size(path) is None else "mode=ro"
    with closing(connect(path, mode=mode)) as database:
        database.execute("BEGIN")
        yield database


def log_size(path: Path) -> int | None:
    """Return the bytes of the write-ahead log to read with the file; None if there is none."""
    log, index = (path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm"))
    with suppress(OSError):
        return log.stat().st_size or (0 if index.exists() else None)
    return None


def sizes_of(database: sqlite3.Connection) -> tuple[int, int]:
    """Return the bytes of all pages of a database, and of its free pages."""
    names = ("page_size", "page_count", "freelist_count")
    size, count, free = (database.execute(f"PRAGMA {it}").fetchone()[0] for it in names)
    return size * count, size * free


def tables(database: sqlite3.Connection) -> Iterator[str]:
    rows = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 ORDER BY name"
    )
    return (name for (name,) in rows.fetchall())


def sums_of(database: sqlite3.Connection, table: str) -> tuple[object, ...] | None:
    """Return the number of a table's rows, and the sum of the lengths in each column.

    Indexes are not used. None if not all rows can be read.
    """
    columns = database.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    sums = ", ".join(["count(*)", *(f'total(length("{name}"))' for (name,) in columns)])
    with suppress(sqlite3.DatabaseError):
        return tuple(database.execute(f'SELECT {sums} FROM "{table}" NOT INDEXED').fetchone())
    return None


def is_readable(database: sqlite3.Connection, table: str) -> bool:
    try:
        return not _reported(database, f'PRAGMA quick_check("{table}")')
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return False


def faults_of(database: sqlite3.Connection, check: str = "quick_check") -> list[str]:
    """Return the faults that SQLite finds in the file, except faults of single values."""
    return _reported(database, f"PRAGMA {check}({MOST})")


def drop_statements(names: Iterable[str]) -> list[str]:
    """Return statements that remove tables, views and indexes from the schema only.

    A DROP would free pages of other tables that a damaged page points to. The removed objects'
    own pages stay unused until the file is vacuumed.
    """
    quoted = ", ".join("'{}'".format(name.replace("'", "''")) for name in names)
    return [
        "PRAGMA writable_schema = ON",
        f"DELETE FROM sqlite_schema WHERE name IN ({quoted}) OR tbl_name IN ({quoted})",
        "PRAGMA writable_schema = RESET",
    ]


def _reported(database: sqlite3.Connection, check: str) -> list[str]:
    lines = [line for (report,) in database.execute(check) for line in report.splitlines()]
    return [
        it
        for it in lines
        if not (it in NO_FAULTS or it.endswith(UNUSED_PAGE) or OF_A_VALUE.match(it))
    ]
