"""Repair: what can be made again from the rows, which are never touched; nothing is kept half done.

Whatever is made is committed only if SQLite finds the file no worse than before.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from ...errors import Unavailable
from ...memory.model.findings import some_of
from ...memory.model.memory import MemoryId
from ...recall.text.features import Features
from ...secrets.sanitizing import reason
from ..base.checks import drop_statements, faults_of
from ..base.connection import CHANGING, change, connect
from ..base.copies import MENDED, kept_copy
from ..fts.index import Index
from ..fts.partitions import Partitions
from ..schema.contents import contents
from ..schema.migrate import vacuum_remains
from ..schema.schema import ordinary_indexes
from . import strays
from .value_repair import RepairedValue, repair_values

LOOSE = "is never used"
TIMEOUT = timedelta(seconds=10)  # with another process's transaction


def rebuild(path: Path, features: Features, number: int) -> str:
    """Fill a partition of the full-text index afresh."""
    with _repairing(path, features) as database:
        Index(database, Partitions(database, is_alone=True)).rebuild(number)
    return f"Partition {number} was filled afresh."


def make_partition(path: Path, features: Features, number: int) -> str:
    """Make a partition of the full-text index again, with its tables."""
    with _repairing(path, features) as database:
        Index(database, Partitions(database, is_alone=True)).recreate(number)
    return f"Partition {number} was made anew."


def make_indexes(path: Path, features: Features, indexes: Mapping[str, str]) -> str:
    """Make ordinary indexes that are missing."""
    with _repairing(path, features) as database:
        _run(database, indexes.values())
    return f"Made: {', '.join(indexes)}."


def reindex(path: Path, features: Features) -> str:
    """Rebuild every ordinary index from its table."""
    with _repairing(path, features) as database:
        indexes = ordinary_indexes(database)
        _run(database, [*drop_statements(indexes), *indexes.values()])
        database.execute("REINDEX")  # those that SQLite made for constraints
    return "Every ordinary index was made anew."


def mend_values(path: Path, features: Features, now: datetime) -> str:
    """Put what there can be in the place of values that are none; of the file a copy is kept.

    Unavailable, with what was done, if nothing says what some of them were.
    """
    with _repairing(path, features) as database:
        done, left = repair_values(database, now)
        # Of the file as it was, for nothing is committed yet.
        copy = kept_copy(path, contents, MENDED) if done else None
        index = Index(database, Partitions(database, is_alone=True))
        if any(it.value.table == "spaces" for it in done):
            index.settle()
        index.refill(_memories(done))
    mended = f"Mended: {some_of(done)}. A copy of the file as it was is {copy}." if done else ""
    if left:
        raise Unavailable(
            f"{mended} Not fixed, since nothing else says what was there: {some_of(left)}.".lstrip()
        )
    return mended


def put_right(path: Path, features: Features) -> str:
    """Remove or correct what lies beside the memories and cannot be; a copy is kept."""
    with _repairing(path, features) as database:
        copy = kept_copy(path, contents, MENDED)
        found = strays.strays_of(database)
        strays.put_right(database)
    return f"Put right: {'; '.join(found)}. A copy of the file as it was is {copy}."


def write_anew(path: Path, features: Features) -> str:
    """Leave out of a file that is sound the pages which nothing uses."""
    with _repairing(path, features):
        pass
    return "The file was written anew."


def empty_log(path: Path, features: Features) -> str:
    """Copy the write-ahead log into the file, and cut it off."""
    with _explained(), closing(_connected(path, features)) as database:
        (is_blocked, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_blocked:
        raise Unavailable("Something reads an older state, or writes, so the log stays.")
    return "The log was copied into the file."


def are_harmless(faults: Iterable[str]) -> bool:
    """Whether they are only of pages that nothing uses, which is no damage."""
    return all(fault.endswith(LOOSE) for fault in faults)


def is_exact(path: Path, features: Features, number: int) -> bool:
    """Whether a partition holds just what the memories say; nothing is changed.

    SQLite wants the lock of writers for it. Whoever else holds it is waited for.
    """
    with closing(_connected(path, features)) as database:
        database.execute("BEGIN IMMEDIATE")
        try:
            return Index(database, Partitions(database, is_alone=False)).is_exact(number)
        finally:
            database.execute("ROLLBACK")


@contextmanager
def _repairing(path: Path, features: Features) -> Iterator[sqlite3.Connection]:
    """A transaction that is kept if the file is sound at its end; else nothing happened."""
    with _explained(), closing(_connected(path, features)) as database:
        # What rows name may be gone already; a value that is mended is not refused for it.
        database.execute("PRAGMA foreign_keys = OFF")
        with change(database, time.monotonic() + TIMEOUT.total_seconds()):
            yield database
            if _has_loose_pages(database):
                database.execute("INSERT INTO remains (one) VALUES (1) ON CONFLICT DO NOTHING")
        vacuum_remains(database, path)


def _memories(done: Iterable[RepairedValue]) -> list[MemoryId]:
    ids = (int(it.value.row) for it in done if it.value.table == "memories")
    return [MemoryId(id_) for id_ in dict.fromkeys(ids)]


def _run(database: sqlite3.Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        database.execute(statement)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Unavailable(f"SQLite refuses: {reason(error)}.") from error


def _has_loose_pages(database: sqlite3.Connection) -> bool:
    """Whether it has pages that nothing uses, which is no damage; refused if it is damaged."""
    faults = faults_of(database)
    if not are_harmless(faults):
        raise Unavailable("The file would still be damaged, so it was left as it is.")
    return bool(faults)


def _connected(path: Path, features: Features) -> sqlite3.Connection:
    return connect(path, busy_timeout=TIMEOUT, features=features, mode=CHANGING)
