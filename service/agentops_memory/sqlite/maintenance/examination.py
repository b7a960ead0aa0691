"""What a database file is found to be, looked at without changing it."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ...engine.shared.stems import rules
from ...errors import Unreadable
from ...memory.model.findings import GARBAGE, Finding, failed, note, ok, some_of, warn
from ...memory.model.memory import UNSAVED
from ...openintent.sql.seals import SealTable
from ...secrets.sanitizing import reason
from ..base.checks import Subject, open_read_only
from ..base.dialect import SQLITE
from ..base.errors import primary_code
from ..fts.index import is_by_rules
from ..fts.partitions import Partitions
from ..schema import upgrade
from ..schema.migrate import has_newest_format, is_used, newest_format, version_of
from ..schema.schema import Difference, difference, partition_of, shown
from . import repair
from .damaged_rows import damaged
from .database_checks import check_integrity, check_older, check_rows

PAGE = 100  # entries that are opened at once


def check_seals(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    seals = SealTable(database, SQLITE, subject.sealer, subject.tenant)
    count, lost, after = 0, 0, UNSAVED
    while page := seals.page(after, PAGE):
        count, after = count + len(page), page[-1].memory
        lost += sum(it.is_lost for it in page)
    if not lost:
        yield ok("seals", f"All of it opens: {count:,} confidential values.")
        return
    yield warn(
        "seals",
        f"{lost:,} of {count:,} confidential values do not open: their keys are not in the seal "
        "file, or they are damaged.",
        "Put back the seal file from a copy, or from a backup, in which it is `seal.json`. What is "
        "lost for good can be deleted.",
    )


MOVES = (
    "`agentops-memory doctor --fix` moves them, and what belongs to them, to a quarantine file and "
    "keeps a copy of the database; `agentops-memory restore` brings back what a backup has."
)
TRIES = 2  # a file that changed while it was read as if nobody used it is read again
RESTORE = "Stop the service, and restore a backup: `agentops-memory restore`."

SHUT = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY)
ACCESS = (
    "Run this as the user of the service, who can write the folder: SQLite wants to, although "
    "nothing is changed."
)


Check = Callable[[sqlite3.Connection, Subject], Iterator[Finding]]


def check_database(subject: Subject) -> list[Finding]:
    """All that is found of a file which is there; what cannot be looked at is a finding, too."""
    findings: list[Finding] = []
    for _ in range(TRIES):
        before = _stamp(subject.path)
        findings = _found(subject)
        if _stamp(subject.path) == before:
            break
    return findings


def _found(subject: Subject) -> list[Finding]:
    try:
        with open_read_only(subject.path, subject.features) as database:
            checks = CHECKS if is_ours(database) else CHECKS_OF_OTHERS
            return [
                finding
                for code, check in checks.items()
                for finding in _safely(code, check, database, subject)
            ]
    except (sqlite3.Error, OSError) as error:
        return [_unreadable("integrity", error)]


def is_ours(database: sqlite3.Connection) -> bool:
    """Whether the file is of this program's newest format; false for one that is no database."""
    try:
        return has_newest_format(database)
    except sqlite3.Error:
        return False


def check_format(database: sqlite3.Connection, _: Subject) -> Iterator[Finding]:
    version, newest = version_of(database), newest_format()
    if version == newest:
        yield ok("format", f"It has format {version}, the newest.")
    elif version > newest:
        yield failed(
            "format",
            f"It has format {version}, made by a newer version of this program; this one "
            f"knows formats up to {newest}.",
            "Start the newer version, or restore a backup: `agentops-memory restore`.",
        )
    elif version:
        yield _older(f"It has format {version}, and this program makes format {newest}.")
    elif not is_used(database):
        yield note(
            "format",
            "Nothing was ever stored in it.",
            "A start makes it a database; if it held something, restore a backup: "
            "`agentops-memory restore`.",
        )
    elif upgrade.is_original(database):
        yield _older("It is a database of the original, which a start rewrites after a copy of it.")
    else:
        yield failed(
            "format",
            "It is a database of another program.",
            "Name the right file with --db or MEMORY_DB_PATH.",
        )


def check_schema(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    found = difference(database)
    if found.is_of_an_erased_tenant:
        yield failed(
            "schema",
            "The tenant was erased, and then its files could not be removed; nothing can "
            "be saved here any more.",
            "Erase it again with `agentops-memory tenants erase`, or restore a backup.",
        )
    elif found.further:
        yield note(
            "schema",
            f"Beyond the migrations there are: {shown(found.further)}.",
            "Whoever made that may remove it; the service has no use for it.",
        )
    yield from _missing_indexes(subject, found)
    others = _others(found)
    if others:
        yield failed(
            "schema", f"Missing, or not as the migrations make it: {shown(others)}.", RESTORE
        )
    elif not (found.missing or found.changed or found.further):
        yield ok("schema", "It is that of the migrations.")


def check_values(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    found = damaged(database)
    if not found:
        yield ok("values", "Each row can be what it was stored as.")
        return
    yield failed(
        "values",
        f"Rows are damaged, and are not served: {some_of(found)}.",
        MOVES,
        fix=subject.fix(repair.quarantine, subject.now),
    )


def check_index(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    if not is_by_rules(database, rules(subject.features)):
        yield warn(
            "index",
            "The full-text index was made by other rules than those of these settings.",
            "A start builds it anew: see `agentops-memory migrate --dry-run`.",
        )
        return
    partitions = Partitions(database, is_alone=False)
    numbers, broken = partitions.all(), difference(database).broken_partitions
    wrong = [_broken(subject, number) for number in sorted(broken)]
    for number in set(numbers) - broken:
        wrong += _out_of_line(partitions, number, subject)
    yield from wrong
    if not wrong:
        is_exact = subject.is_thorough and not _is_cut(subject.path)
        how = "word for word" if is_exact else "by the number of rows"
        yield ok("index", f"Its partitions ({len(numbers)}) are in line, {how}.")


CHECKS: Mapping[str, Check] = {
    "format": check_format,
    "schema": check_schema,
    "integrity": check_integrity,
    "values": check_values,
    "seals": check_seals,
    "index": check_index,
    "size": check_rows,
}
CHECKS_OF_OTHERS: Mapping[str, Check] = {"format": check_format, "integrity": check_older}
"""Of a file of another format, or of another program."""


def _safely(
    code: str, check: Check, database: sqlite3.Connection, subject: Subject
) -> Iterator[Finding]:
    try:
        yield from check(database, subject)
    except (sqlite3.Error, OSError, Unreadable, *GARBAGE) as error:
        yield _unreadable(code, error)


def _unreadable(code: str, error: Exception) -> Finding:
    return failed(
        code,
        f"It cannot be read: {reason(error)}.",
        ACCESS if primary_code(error) in SHUT else RESTORE,
    )


def _older(sentence: str) -> Finding:
    return warn(
        "format", sentence, "A start brings it up to date: see `agentops-memory migrate --dry-run`."
    )


def _missing_indexes(subject: Subject, found: Difference) -> Iterator[Finding]:
    if indexes := found.missing_indexes:
        yield failed(
            "schema",
            f"Missing: {shown(('index', name) for name in indexes)}.",
            "`agentops-memory doctor --fix` makes them anew.",
            fix=subject.fix(repair.make_indexes, indexes),
        )


def _broken(subject: Subject, number: int) -> Finding:
    return failed(
        "index",
        f"Partition {number} of the full-text index is not whole.",
        "`agentops-memory doctor --fix` makes it anew from the memories.",
        fix=subject.fix(repair.make_partition, number),
    )


def _others(found: Difference) -> list[tuple[str, str]]:
    return [
        part
        for part in (*found.missing, *found.changed)
        if partition_of(part[1]) is None and part[1] not in found.missing_indexes
    ]


def _out_of_line(partitions: Partitions, number: int, subject: Subject) -> Iterator[Finding]:
    try:
        drift = partitions.drift(number)
    except sqlite3.Error as error:
        yield _wrong_partition(subject, number, f"cannot be read: {reason(error)}")
        return
    if drift:
        yield _wrong_partition(subject, number, f"is {drift:,} rows out of line")
    elif subject.is_thorough and not _is_cut(subject.path):
        yield from _other_words(subject, number)


def _other_words(subject: Subject, number: int) -> Iterator[Finding]:
    try:
        is_exact = repair.is_exact(subject.path, subject.features, number)
    except sqlite3.Error as error:
        if primary_code(error) not in SHUT:
            raise
        yield note(
            "index",
            f"Partition {number} of the full-text index was not compared word for word: "
            f"{reason(error)}.",
            ACCESS,
        )
        return
    if not is_exact:
        yield _wrong_partition(subject, number, "has other words than the memories")


def _wrong_partition(subject: Subject, number: int, what: str) -> Finding:
    return warn(
        "index",
        f"Partition {number} of the full-text index {what}.",
        "The service mends it with its next sweep, `agentops-memory doctor --fix` now.",
        fix=subject.fix(repair.rebuild, number),
    )


def _is_cut(path: Path) -> bool:
    """Whether a transaction was cut off, which whoever opens the file for writing undoes."""
    journal = path.with_name(f"{path.name}-journal")
    return journal.exists() and journal.stat().st_size > 0


def _stamp(path: Path) -> tuple[int, ...]:
    files = (path, path.with_name(f"{path.name}-wal"))
    found = [file.stat() for file in files if file.exists()]
    return tuple(number for it in found for number in (it.st_mtime_ns, it.st_size, it.st_ino))
