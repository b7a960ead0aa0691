"""SQL for what a database file holds: how much of each kind that is kept for a time, and the rest.

It is read a table at a time, so that no long read holds the log of a service that writes.
"""

import os
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from ...engine.shared.held import held
from ...memory.model.retention import Retentions, StorageStats
from ..base.connection import connect
from ..base.copies import copies_of
from ..base.dialect import SQLITE
from ..base.errors import translated


def storage_stats(path: Path, retention: Retentions, now: datetime) -> StorageStats:
    path = Path(os.path.realpath(path))  # where SQLite has the log
    with translated(), closing(connect(path)) as database:
        return StorageStats(
            database=path.stat().st_size,
            free=_number(database, "PRAGMA freelist_count") * _number(database, "PRAGMA page_size"),
            index=_index(database),
            log=_size(path.with_name(f"{path.name}-wal")),
            copies=sum(map(_size, copies_of(path))),
            held=held(database, SQLITE, retention, now),
        )


def _number(database: sqlite3.Connection, statement: str) -> int:
    return int(database.execute(statement).fetchone()[0])


def _index(database: sqlite3.Connection) -> int:
    numbers = database.execute("SELECT number FROM partitions").fetchall()
    return sum(
        _number(database, f"SELECT coalesce(sum(length(block)), 0) FROM memories_fts_{number}_data")
        for (number,) in numbers
    )


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
