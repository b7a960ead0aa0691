"""A database file is examined: read without a change, and checked by SQLite itself."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from ...engine.engine import Sealer
from ...memory.model.access import TenantId
from ...memory.model.findings import Fix
from ...recall.text.features import ALL, Features
from .connection import connect
from .errors import is_damage

MOST = 100  # faults that SQLite tells of, pages that nothing uses after all others
NO_FAULTS = ("ok", "*** in database main ***")
OF_A_VALUE = re.compile(r"CHECK constraint failed in |(non-)?\w+ value in ")
"""Of a damaged row, of which `maintenance.damaged_rows` tells more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is examined: a database file, and what it is measured by."""

    tenant: TenantId
    path: Path
    features: Features
    sealer: Sealer
    now: datetime
    quota: int | None  # bytes
    session_idle: timedelta
    is_thorough: bool

    def fix(self, repair: Callable[..., str], *what: object) -> Fix:
        return partial(repair, self.path, self.features, *what)


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


def run(database: sqlite3.Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        database.execute(statement)


def _reported(database: sqlite3.Connection, check: str) -> list[str]:
    lines = [line for (report,) in database.execute(check) for line in report.splitlines()]
    return [line for line in lines if line not in NO_FAULTS and not OF_A_VALUE.match(line)]
