"""A look into a database file that changes nothing, whatever the file holds and whoever uses it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from ....domain.model.findings import Fix
from ....domain.text.features import ALL, Features
from .connection import connect

UNCHANGING = "mode=ro&immutable=1"
READING = "mode=ro"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is examined: a database file, and what it is measured by."""

    path: Path
    features: Features
    now: datetime
    quota: int | None  # bytes
    session_idle: timedelta
    is_thorough: bool

    def fix(self, repair: Callable[..., str], *what: object) -> Fix:
        """Does a repair of this file."""
        return partial(repair, self.path, self.features, *what)


@contextmanager
def open_read_only(path: Path, features: Features = ALL) -> Iterator[sqlite3.Connection]:
    """A connection that can only read, on one state of the file.

    Where there is no log nobody has the file open, and it is read as it lies there: SQLite
    would else make a log. A log that a crash left is read with it, and stays.
    """
    mode = READING if log_size(path) is not None else UNCHANGING
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
