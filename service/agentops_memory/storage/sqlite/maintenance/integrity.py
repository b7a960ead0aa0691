"""Whether SQLite finds a file sound, and where the damage lies if it does not."""

import sqlite3
from collections.abc import Iterator

from ....domain.model.findings import Finding, failed, ok, warn
from ....domain.secrets.sanitizing import reason
from ..base.checks import Subject, faults_of
from ..schema.schema import partition_of, tables
from . import repair as mending
from .damage import are_harmless

SHOWN = 3  # faults that a sentence names
DAMAGED = (
    "Stop the service, keep a copy of the file as it is, and restore a backup: "
    "`agentops-memory restore`."
)


def check_integrity(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    faults = _faults_found(database, subject)
    if not faults:
        yield _sound(subject)
    elif are_harmless(faults):
        yield _loose_pages(subject)
    elif damaged := _unreadable(database):
        yield from _located(subject, faults, damaged)
    else:
        yield _damaged_indexes(subject, faults)
    yield from check_references(database)


def check_older(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    """Whether SQLite finds a file of another format sound; more of it is not known."""
    if faults := _faults_found(database, subject):
        yield failed("integrity", f"The file is damaged: {_first_of(faults)}.", DAMAGED)
    else:
        yield _sound(subject)


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


def _sound(subject: Subject) -> Finding:
    how = "in full" if subject.is_thorough else "quickly; --thorough looks into the indexes, too"
    return ok("integrity", f"SQLite finds it sound ({how}).")


def _faults_found(database: sqlite3.Connection, subject: Subject) -> list[str]:
    """What SQLite finds wrong with the file, or why it cannot look."""
    try:
        return faults_of(database, "integrity_check" if subject.is_thorough else "quick_check")
    except sqlite3.DatabaseError as error:
        return [reason(error)]


def _unreadable(database: sqlite3.Connection) -> list[str]:
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


def _located(subject: Subject, faults: list[str], damaged: list[str]) -> Iterator[Finding]:
    """Where the damage is: what the full-text index holds can be made anew, rows cannot."""
    numbers = {number for it in damaged if (number := partition_of(it)) is not None}
    data = [table for table in damaged if partition_of(table) is None]
    for number in sorted(numbers):
        yield failed(
            "integrity",
            f"Partition {number} of the full-text index is damaged: {_first_of(faults)}.",
            "`agentops-memory doctor --fix` makes it anew from the memories.",
            fix=None if data else subject.fix(mending.make_partition, number),
        )
    if data:
        yield failed(
            "integrity",
            f"The file is damaged, in the tables {', '.join(data)}: {_first_of(faults)}.",
            DAMAGED,
        )


def _loose_pages(subject: Subject) -> Finding:
    return warn(
        "integrity",
        "Nothing is damaged, but the file has pages that nothing uses, as an index that "
        "was made anew leaves them.",
        "`agentops-memory doctor --fix` writes the file anew; so does the next start where "
        "the service made that index.",
        fix=subject.fix(mending.write_anew),
    )


def _damaged_indexes(subject: Subject, faults: list[str]) -> Finding:
    return failed(
        "integrity",
        f"All rows can be read, but the file is damaged elsewhere, in an index or among "
        f"its unused pages: {_first_of(faults)}.",
        "`agentops-memory doctor --fix` makes the indexes anew; if that is not enough, "
        "restore a backup: `agentops-memory restore`.",
        fix=subject.fix(mending.reindex),
    )


def _first_of(faults: list[str]) -> str:
    """The first of the faults, in one line."""
    more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(faults[:SHOWN]) + more
