"""One SQLite connection: its settings, the thread that plain functions run on, transactions."""

import inspect
import os
import sqlite3
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

import aiosqlite

from ...engine.callbacks import noop
from ...engine.shared.stems import Stems
from ...errors import DamagedRow
from ...recall.text.features import ALL, Features
from .dialect import registered
from .errors import decoded, primary_code

T = TypeVar("T")

APPLICATION_ID = 0x414D_454D  # "AMEM": the file is ours
BUSY_TIMEOUT = timedelta(seconds=5)  # another process's transaction
WAL_SIZE = 64 * 1024 * 1024  # bytes kept of a WAL that has once grown beyond
CHECKPOINT = 4000  # pages (16 MiB) of WAL that are copied into the file together, with two syncs
READ_LIMIT = timedelta(seconds=5)
PROGRESS = 10_000  # virtual machine steps between two looks at the clock
CACHED_STATEMENTS = 256
CHANGING = "mode=rw"  # it must be there
SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

Check = Callable[[], None]
"""Raises what a change, or a read, is refused with after all."""


class Connection(aiosqlite.Connection):
    """A connection that runs a whole function on its own thread."""

    async def __aenter__(self) -> "Connection":
        await self
        return self

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work whole. A cancelled caller leaves; the work goes on."""
        result: T = await self._execute(work, self._conn)  # type: ignore[no-untyped-call]
        return result


def connection(path: Path, features: Features = ALL) -> Connection:
    """A connection to open with `async with`; it can write, and decodes strictly."""
    return Connection(lambda: connect(path, features=features, is_strict=True), iter_chunk_size=64)


def connect(
    path: Path,
    *,
    busy_timeout: timedelta = BUSY_TIMEOUT,
    features: Features = ALL,
    one_thread: bool = True,
    mode: str = "",
    is_strict: bool = False,
) -> sqlite3.Connection:
    """An open connection with the settings and functions that every one of ours has.

    Unless it is for one thread, another than that which uses it may close it. The mode is what
    SQLite takes in the address of a file (https://sqlite.org/uri.html); without one, a file that
    is not there is made.

    A text that is no UTF-8 is read with U+FFFD in the place of what cannot be decoded. With
    `is_strict` it is an error, and reading is faster: see `decoding`.
    """
    database = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?{mode}" if mode else path,
        uri=bool(mode),
        isolation_level=None,
        timeout=busy_timeout.total_seconds(),
        cached_statements=CACHED_STATEMENTS,
        check_same_thread=one_thread,
        factory=_Database,
    )
    if not is_strict:
        database.text_factory = decoded
    try:
        _set_up(database)
        registered(database, database.stems, features)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        database.close()
        if isinstance(error, UnicodeDecodeError):  # from what SQLite says of a schema of garbage
            raise _damaged_schema() from error
        raise
    return database


def known_stems(database: sqlite3.Connection) -> Stems:
    """What the words are in the index of a connection that was made by `connect`."""
    return cast(_Database, database).stems


def taken_damage(database: sqlite3.Connection) -> list[DamagedRow]:
    """The damaged rows that were left out on a connection since this was last called."""
    ours = cast(_Database, database)
    damaged, ours.damaged = ours.damaged, []
    return damaged


def read_only(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA query_only = ON")


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


def in_snapshot(database: sqlite3.Connection, limit: timedelta, work: Callable[[], T]) -> T:
    """What work answers in a transaction that sees one state, and is stopped when it takes long.

    What it raises can be handed to another thread.
    """
    try:
        interrupt_at(database, time.monotonic() + limit.total_seconds())
        database.execute("BEGIN")
        return work()
    except BaseException:
        with carried():
            raise
    finally:
        _free(database)


@contextmanager
def change(database: sqlite3.Connection, deadline: float, check: Check = noop) -> Iterator[None]:
    """A transaction that is committed whole; if anything raises, nothing happened.

    `check` raises where it must not be committed after all; and once more afterwards, where
    what was committed must not be acknowledged: nobody can tell if it stays.
    """
    with _freed(database), carried():
        _begin(database, deadline)
        yield
        check()
        _commit(database)
        check()


@contextmanager
def carried() -> Iterator[None]:
    """What it raises can be handed to another thread, and holds no cursor."""
    try:
        yield
    except StopIteration as error:
        # No future can carry it: the caller would wait for ever.
        raise RuntimeError("work raised StopIteration").with_traceback(
            error.__traceback__
        ) from None
    except BaseException as error:
        _release(error)
        raise


class _Database(sqlite3.Connection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stems = Stems()
        self.damaged: list[DamagedRow] = []  # what reads have left out since it was last taken

    def close(self) -> None:
        self.stems.close()
        super().close()


def _damaged_schema() -> sqlite3.DatabaseError:
    damage = sqlite3.DatabaseError("malformed database schema")
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    damage.sqlite_errorname = "SQLITE_CORRUPT"
    return damage


def _set_up(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA temp_store = MEMORY")  # there may be no temporary folder
    database.execute("PRAGMA synchronous = FULL")  # fsync at each commit
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("PRAGMA secure_delete = ON")  # zeros over what is deleted, for erasures
    database.execute("PRAGMA trusted_schema = ON")  # the view memory_text calls our functions
    database.execute(f"PRAGMA journal_size_limit = {WAL_SIZE}")
    database.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")


@contextmanager
def _freed(database: sqlite3.Connection) -> Iterator[None]:
    """Whatever happens inside, the connection is free of transactions and limits afterwards."""
    try:
        yield
    finally:
        _free(database)


def _free(database: sqlite3.Connection) -> None:
    database.set_progress_handler(None, 0)
    if database.in_transaction:
        database.execute("ROLLBACK")


def _release(error: BaseException) -> None:
    """Drop the variables of work that raised: a cursor among them would hold its snapshot."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        # An error that is raised again still knows coroutines that go on.
        if not frame.f_code.co_flags & SUSPENDABLE:
            with suppress(RuntimeError):  # it runs
                frame.clear()


def _begin(database: sqlite3.Connection, deadline: float) -> None:
    timeout = max(deadline - time.monotonic(), 0)
    # In tenths of a second: each distinct statement takes a place among the cached ones.
    database.execute(f"PRAGMA busy_timeout = {round(timeout, 1) * 1000:.0f}")
    database.execute("BEGIN IMMEDIATE")


def _commit(database: sqlite3.Connection) -> None:
    try:
        database.execute("COMMIT")
    except (sqlite3.Error, MemoryError):
        _disown(database)
        raise


def _disown(database: sqlite3.Connection) -> None:
    """Keep a failed commit from coming true later.

    One whose sync failed lies whole in the write-ahead log, where the recovery
    after a crash would find it; an empty commit takes its place.
    """
    with suppress(sqlite3.Error):
        if database.in_transaction:
            database.execute("ROLLBACK")
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
