"""One SQLite connection, its settings, and the thread that plain functions run on."""

import os
import sqlite3
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import aiosqlite

from ....domain.text.features import ALL, Features
from .decoding import decoded
from .errors import primary_code
from .functions import registered
from .stems import Stems

T = TypeVar("T")

APPLICATION_ID = 0x414D_454D  # "AMEM": the file is ours
BUSY_TIMEOUT = timedelta(seconds=5)  # another process's transaction
WAL_SIZE = 64 * 1024 * 1024  # bytes kept of a WAL that has once grown beyond
CHECKPOINT = 4000  # pages (16 MiB) of WAL that are copied into the file together, with two syncs
READ_LIMIT = timedelta(seconds=5)
PROGRESS = 10_000  # virtual machine steps between two looks at the clock
CACHED_STATEMENTS = 256
MAKING = ""  # a file that is not there is made
CHANGING = "mode=rw"  # it must be there


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
    mode: str = MAKING,
    is_strict: bool = False,
) -> sqlite3.Connection:
    """An open connection with the settings and functions that every one of ours has.

    Unless it is for one thread, another than that which uses it may close it. The mode is
    what SQLite takes in the address of a file: https://sqlite.org/uri.html.

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


def read_only(database: sqlite3.Connection) -> None:
    """Make every later write on this connection an error."""
    database.execute("PRAGMA query_only = ON")


def limit_time(database: sqlite3.Connection, limit: timedelta) -> None:
    """Interrupt whatever runs on this connection once the time is over."""
    interrupt_at(database, time.monotonic() + limit.total_seconds())


def interrupt_at(database: sqlite3.Connection, end: float) -> None:
    """Interrupt whatever runs on this connection from that time of the monotonic clock on."""
    database.set_progress_handler(lambda: time.monotonic() > end, PROGRESS)


def use_wal(database: sqlite3.Connection, patience: timedelta) -> None:
    """Switch the file to WAL; the switch ignores the busy timeout, so it is tried again."""
    end = time.monotonic() + patience.total_seconds()
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _damaged_schema() -> sqlite3.DatabaseError:
    damage = sqlite3.DatabaseError("malformed database schema")
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    damage.sqlite_errorname = "SQLITE_CORRUPT"
    return damage


class _Database(sqlite3.Connection):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stems = Stems()

    def close(self) -> None:
        self.stems.close()
        super().close()


def _set_up(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA temp_store = MEMORY")  # there may be no temporary folder
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("PRAGMA secure_delete = ON")  # zeros over what is deleted, for erasures
    database.execute("PRAGMA trusted_schema = ON")  # the view memory_text calls our functions
    database.execute(f"PRAGMA journal_size_limit = {WAL_SIZE}")
    database.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")
