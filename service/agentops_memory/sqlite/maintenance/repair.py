"""Repair: what can be made again from the rows, of which damaged ones are moved out; never half.

Whatever is made is committed only if SQLite finds the file no worse than before.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ...errors import Unavailable
from ...memory.model.findings import some_of
from ...memory.model.space import GLOBAL_SCOPE, NUMBERS
from ...recall.text.features import Features
from ...secrets.sanitizing import reason
from ..base.checks import drop_statements, faults_of, run
from ..base.connection import CHANGING, change, connect
from ..base.copies import MENDED, kept_copy
from ..fts.index import Index
from ..schema.contents import contents
from ..schema.migrate import vacuum_remains
from ..schema.schema import ordinary_indexes
from .damaged_rows import Quarantine, damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Strays:
    """Rows that no request makes, and how they are put right."""

    table: str
    what: str
    where: str  # the condition on a row of the table
    repair: str = "DELETE FROM {0} WHERE {1}"

    def count(self, database: sqlite3.Connection) -> int:
        ((count,),) = database.execute(f"SELECT count(*) FROM {self.table} WHERE {self.where}")
        return int(count)


def strays_of(database: sqlite3.Connection) -> list[str]:
    counts = {it.what: it.count(database) for it in _STRAYS}
    return [f"{count:,} {what}" for what, count in counts.items() if count]


def _not_of(newer: str, older: str, may_be_linked: str) -> str:
    """That a row is of one memory alone, of one that is gone, or of two that may not be linked."""
    return f"""NOT EXISTS (SELECT 1
                             FROM memories m
                             JOIN spaces s ON s.id = m.space_id
                             JOIN memories n ON n.id = {older}
                             JOIN spaces t ON t.id = n.space_id
                            WHERE m.id = {newer} AND n.id <> m.id AND ({may_be_linked}))"""


def _of_its_memory(column: str) -> str:
    return f"(SELECT {column} FROM memories m WHERE m.id = memory_id)"


_S_IS_GLOBAL, _T_IS_GLOBAL = (f"{it}.scope = '{GLOBAL_SCOPE}'" for it in "st")

_STRAYS = (
    Strays(
        table="partitions",
        what="numbers of partitions that no space can be in",
        where=" AND ".join(f"number NOT BETWEEN {it[0]} AND {it[-1]}" for it in NUMBERS.values()),
    ),
    Strays(
        table="lifecycles",
        what="lifecycles of memories that are gone",
        where="memory_id NOT IN (SELECT id FROM memories)",
    ),
    Strays(
        table="lifecycles",
        what="lifecycles in another space than their memory",
        where=f"space_id <> {_of_its_memory('space_id')}",
        repair=f"UPDATE {{0}} SET space_id = {_of_its_memory('space_id')} WHERE {{1}}",
    ),
    Strays(
        table="lifecycles",
        what="topic keys beside memories that have one of their own",
        where=f"held_key IS NOT NULL AND {_of_its_memory('key')} IS NOT NULL",
        repair="UPDATE {0} SET held_key = NULL WHERE {1}",
    ),
    Strays(
        table="supersessions",
        what="supersessions that no memory may make, or of memories that are gone",
        where=_not_of(
            "newer_id", "older_id", f"s.project = t.project AND ({_S_IS_GLOBAL}) = ({_T_IS_GLOBAL})"
        ),
    ),
    Strays(
        table="lookalikes",
        what="pairs of memories that are gone, or that no project has both of",
        where=_not_of(
            "later_id", "earlier_id", f"s.project = t.project OR {_S_IS_GLOBAL} OR {_T_IS_GLOBAL}"
        ),
    ),
)

TABLES = {it.table for it in _STRAYS}


STILL_DAMAGED = "The file would still be damaged, so it was left as it is."
LOOSE = "is never used"
TIMEOUT = timedelta(seconds=10)  # with another process's transaction


def rebuild(path: Path, features: Features, number: int) -> str:
    with _repairing(path, features) as database:
        Index(database).rebuild(number)
    return f"Partition {number} was filled afresh."


def make_partition(path: Path, features: Features, number: int) -> str:
    with _repairing(path, features) as database:
        Index(database).recreate(number)
    return f"Partition {number} was made anew."


def make_indexes(path: Path, features: Features, indexes: Mapping[str, str]) -> str:
    with _repairing(path, features) as database:
        run(database, indexes.values())
    return f"Made: {', '.join(indexes)}."


def reindex(path: Path, features: Features) -> str:
    with _repairing(path, features) as database:
        indexes = ordinary_indexes(database)
        run(database, [*drop_statements(indexes), *indexes.values()])
        database.execute("REINDEX")  # those that SQLite made for constraints
    return "Every ordinary index was made anew."


def quarantine(path: Path, features: Features, now: datetime) -> str:
    """Take damaged rows out of the file, into another one; of the file as it was a copy is kept."""
    with _repairing(path, features) as database:
        copy = kept_copy(path, contents, MENDED)
        taken = Quarantine(database, now)
        taken.take_all()
        Index(database).settle()
        if damaged(database, most=1):
            raise Unavailable(STILL_DAMAGED)
        file = taken.write(path)
    return (
        f"{len(taken.rows):,} rows were moved to {file}: those that are damaged, and what belongs "
        f"to them. Damaged were: {some_of(taken.damaged)}. The index was made anew. A copy of the "
        f"file as it was is {copy}."
    )


def put_right(path: Path, features: Features) -> str:
    """Remove or correct what lies beside the memories and cannot be; a copy is kept."""
    with _repairing(path, features) as database:
        copy = kept_copy(path, contents, MENDED)
        found = strays_of(database)
        for strays in _STRAYS:
            database.execute(strays.repair.format(strays.table, strays.where))
    return f"Put right: {'; '.join(found)}. A copy of the file as it was is {copy}."


def write_anew(path: Path, features: Features) -> str:
    """Leave out of a file that is sound the pages which nothing uses."""
    with _repairing(path, features):
        pass
    return "The file was written anew."


def empty_log(path: Path, features: Features) -> str:
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
            return Index(database).is_exact(number)
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
        raise Unavailable(STILL_DAMAGED)
    return bool(faults)


def _connected(path: Path, features: Features) -> sqlite3.Connection:
    return connect(path, busy_timeout=TIMEOUT, features=features, mode=CHANGING)
