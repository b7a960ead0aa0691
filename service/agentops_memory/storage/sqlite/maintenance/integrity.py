"""Whether SQLite finds a file sound, and where the damage lies if it does not."""

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ....domain.model.findings import Finding, failed, ok, warn
from ....domain.secrets.sanitizing import reason
from ....domain.text.features import Features
from ..schema.schema import partition_of, tables
from . import repair as mending
from .damage import are_harmless, faults_of

SHOWN = 3  # faults that a sentence names
DAMAGED = (
    "Stop the service, keep a copy of the file as it is, and restore a backup: "
    "`agentops-memory restore`."
)


def check_integrity(
    database: sqlite3.Connection, path: Path, features: Features, *, is_thorough: bool
) -> Iterator[Finding]:
    faults = faults_found(database, is_thorough=is_thorough)
    if not faults:
        yield check_faults(faults, is_thorough=is_thorough)
    elif are_harmless(faults):
        yield _check_loose_pages(path, features)
    elif data := unreadable(database):
        yield from _locate_damage(path, features, faults, data)
    else:
        yield _check_indexes(path, features, faults)
    yield from check_references(database)


def check_faults(faults: list[str], *, is_thorough: bool) -> Finding:
    if faults:
        return failed("integrity", f"The file is damaged: {_first_of(faults)}.", DAMAGED)
    how = "in full" if is_thorough else "quickly; --thorough looks into the indexes, too"
    return ok("integrity", f"SQLite finds it sound ({how}).")


def check_references(database: sqlite3.Connection) -> Iterator[Finding]:
    """Whether what rows name is there."""
    rows = database.execute('SELECT DISTINCT "table", parent FROM pragma_foreign_key_check')
    dangling = [f"rows of {table} name rows of {parent} that are gone" for table, parent in rows]
    ((lost,),) = database.execute(
        """SELECT count(*)
             FROM memories m
            WHERE m.session_id IS NULL
              AND NOT EXISTS (SELECT 1 FROM stores s WHERE s.space_id = m.space_id)"""
    )
    if lost:
        dangling.append(f"{lost:,} memories belong to no session and no store")
    if dangling:
        yield failed(
            "references",
            f"Of what is stored, {'; '.join(dangling)}.",
            "The service goes on with the rest. `agentops-memory restore` brings back "
            "what a backup has.",
        )
    else:
        yield ok("references", "Every row that another one names is there.")


def faults_found(database: sqlite3.Connection, *, is_thorough: bool) -> list[str]:
    """What SQLite finds wrong with the file, or why it cannot look."""
    try:
        return faults_of(database, "integrity_check" if is_thorough else "quick_check")
    except sqlite3.DatabaseError as error:
        return [reason(error)]


def unreadable(database: sqlite3.Connection) -> list[str]:
    """The tables whose rows cannot all be read, whatever their indexes hold."""
    return [table for table in tables(database) if not _is_readable(database, table)]


def _is_readable(database: sqlite3.Connection, table: str) -> bool:
    columns = database.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    lengths = ", ".join(f'total(length("{name}"))' for (name,) in columns)
    try:
        database.execute(f'SELECT {lengths} FROM "{table}" NOT INDEXED').fetchone()
    except sqlite3.DatabaseError:
        return False
    return True


def _locate_damage(
    path: Path, features: Features, faults: list[str], damaged: list[str]
) -> Iterator[Finding]:
    """Where the damage is: what the full-text index holds can be made anew, rows cannot."""
    numbers = {number for it in damaged if (number := partition_of(it)) is not None}
    data = [table for table in damaged if partition_of(table) is None]
    for number in sorted(numbers):
        yield failed(
            "integrity",
            f"Partition {number} of the full-text index is damaged: {_first_of(faults)}.",
            "`agentops-memory doctor --fix` makes it anew from the memories.",
            fix=None if data else partial(mending.make_partition, path, features, number),
        )
    if data:
        yield failed(
            "integrity",
            f"The file is damaged, in the tables {', '.join(data)}: {_first_of(faults)}.",
            DAMAGED,
        )


def _check_loose_pages(path: Path, features: Features) -> Finding:
    return warn(
        "integrity",
        "Nothing is damaged, but the file has pages that nothing uses, as an index that "
        "was made anew leaves them.",
        "`agentops-memory doctor --fix` writes the file anew; so does the next start where "
        "the service made that index.",
        fix=partial(mending.write_anew, path, features),
    )


def _check_indexes(path: Path, features: Features, faults: list[str]) -> Finding:
    return failed(
        "integrity",
        f"All rows can be read, but the file is damaged elsewhere, in an index or among "
        f"its unused pages: {_first_of(faults)}.",
        "`agentops-memory doctor --fix` makes the indexes anew; if that is not enough, "
        "restore a backup: `agentops-memory restore`.",
        fix=partial(mending.reindex, path, features),
    )


def _first_of(faults: list[str]) -> str:
    """The first of the faults, in one line."""
    more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(faults[:SHOWN]) + more
