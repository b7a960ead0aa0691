"""The checks of a database file, which do not change it."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from ..errors import Unreadable, reason
from ..memory.damage import GARBAGE, Finding, failed, note, ok, some_of, warn
from ..memory.memory import UNSAVED
from ..memory.rows import micros
from ..memory.space import in_no_session
from ..openintent.entries import SealTable
from . import connection as db, migrate, repair
from .dialect import SQLITE, primary_code
from .index import is_by_rules
from .partitions import Partitions, table, text_of
from .repair import Subject

MOST_NAMED = 3  # most faults that a sentence names
FIX = "`agentops-memory doctor --fix`"
REBUILDS = f"{FIX} rebuilds it from the memories."
RESTORING = "restore a backup: `agentops-memory restore`."
RESTORE = f"Stop the service, and {RESTORING}"
DAMAGED = f"Stop the service, keep a copy of the file as it is, and {RESTORING}"
NEAR = 0.9  # part of a quota from which a warning is given
LONG = 128 * 1024 * 1024  # bytes of a log, which restarts long before, unless a reader holds it
BUILT = datetime(2025, 1, 1, tzinfo=UTC)  # a clock that shows an earlier time is wrong
TOLERATED = timedelta(minutes=5)  # that a row may be newer than the clock
OVERDUE = timedelta(hours=1)  # after which the service should have done its scheduled work
MIB = 1024 * 1024
UPGRADES = "Starting the service upgrades it: see `agentops-memory migrate --dry-run`."
PAGE = 100  # entries that are decrypted at once
Part = tuple[str, str]
"""The type of a part of a schema, such as `index`, and its name."""
Parts = Mapping[Part, str]
"""Parts of a schema, each with the statement that creates it."""
_PARTITION = re.compile(rf"(?:{table(0)[:-1]}|{text_of(0)[:-1]})(\d+)(?:_[a-z]+)?")
MOVES = (
    f"{FIX} moves them and the rows that depend on them to a quarantine file, and keeps a copy of "
    "the database; `agentops-memory restore` restores a backup."
)
SHUT = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY)
ACCESS = (
    "Run this as the service's user, who can write to the folder: SQLite needs that even to read."
)
Check = Callable[[db.Database, Subject], Iterator[Finding]]


def check_integrity(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    """Check the file with SQLite; for another format, that is all that can be checked."""
    try:
        check = "integrity_check" if subject.is_thorough else "quick_check"
        faults = db.faults_of(database, check)
    except sqlite3.DatabaseError as error:
        faults = [reason(error)]
    more = f" and {len(faults) - MOST_NAMED} more" * (len(faults) > MOST_NAMED)
    named, has_our_format = "; ".join(faults[:MOST_NAMED]) + more, is_ours(database)
    if not faults:
        how = "in full" if subject.is_thorough else "quickly; --thorough checks the indexes too"
        yield ok("integrity", f"SQLite's check passes ({how}).")
    elif not has_our_format:
        yield failed("integrity", f"The file is damaged: {named}.", DAMAGED)
    # Tables whose rows cannot all be read, regardless of their indexes.
    elif broken := [it for it in db.tables(database) if db.sums_of(database, it) is None]:
        # The full-text index can be rebuilt, rows cannot.
        numbers = {number for it in broken if (number := partition_of(it)) is not None}
        data = [table for table in broken if partition_of(table) is None]
        for number in sorted(numbers):
            problem = f"Partition {number} of the full-text index is damaged: {named}."
            fix = None if data else subject.fix(repair.make_partition, number)
            yield failed("integrity", problem, REBUILDS, fix=fix)
        if data:
            problem = f"The file is damaged, in the tables {', '.join(data)}: {named}."
            yield failed("integrity", problem, DAMAGED)
    else:
        yield failed(
            "integrity",
            "All rows can be read, but the file is damaged elsewhere, in an index or among its "
            f"unused pages: {named}.",
            f"{FIX} rebuilds the indexes; if that is not enough, {RESTORING}",
            fix=subject.fix(repair.reindex),
        )
    if has_our_format:
        yield from check_references(database, subject)


# Rows about a missing memory are never read; all others could permit or restrict something.
_ORPHANS = """
    SELECT DISTINCT broken."table", broken.parent,
                    broken.parent = 'memories' AND refs.on_delete = 'CASCADE'
      FROM pragma_foreign_key_check broken
      JOIN pragma_foreign_key_list(broken."table") refs ON refs.id = broken.fkid"""
_DANGLING = (
    (
        "memories belong to no session, store, agent or ref",
        f"""memories m
            WHERE {in_no_session("m")}
              AND NOT EXISTS (SELECT 1 FROM stores s WHERE s.space_id = m.space_id)
              AND NOT EXISTS (SELECT 1 FROM agent_memories a WHERE a.memory_id = m.id)
              AND NOT EXISTS (SELECT 1 FROM ref_entries e WHERE e.memory_id = m.id)""",
    ),
    (
        "runs lack events",
        "(SELECT run FROM run_events GROUP BY run HAVING count(*) <> max(sequence) + 1)",
    ),
)


def check_references(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    broken = dict[bool, list[str]]()
    for child, parent, can_go in database.execute(_ORPHANS):
        sentence = f"rows of {child} refer to missing rows of {parent}"
        broken.setdefault(bool(can_go), []).append(sentence)
    for noun, rows in _DANGLING:
        ((count,),) = database.execute(f"SELECT count(*) FROM {rows}")
        if count:
            broken.setdefault(False, []).append(f"{count:,} {noun}")
    for can_go, sentences in broken.items():
        problem = f"References are broken: {'; '.join(sentences)}."
        remedy, fix = f"The service works with the rest. To go back, {RESTORING}", None
        if can_go:
            remedy = f"{FIX} removes these rows and keeps a copy of the file."
            fix = subject.fix(repair.remove_orphans)
        yield failed("references", problem, remedy, fix=fix)
    if not broken:
        yield ok("references", "Every referenced row exists.")


def check_size(database: db.Database, subject: Subject) -> Iterator[Finding]:
    total, unused = db.sizes_of(database)
    yield ok("size", f"It has {total / MIB:.1f} MiB, {unused / MIB:.1f} of them unused.")
    if quota := subject.quota:
        used = total - unused
        usage = f"It uses {used / quota:.0%} of the tenant's {quota / MIB:,.0f} MiB."
        remedy = "Erase what is not needed, or raise MEMORY_TENANT_QUOTA."
        beyond = f"{usage} Beyond it saves are refused with 507."
        yield ok("quota", usage) if used < quota * NEAR else warn("quota", beyond, remedy)


def check_erasures(database: db.Database, subject: Subject) -> Iterator[Finding]:
    ((pending,),) = database.execute(
        "SELECT count(*) FROM erasures WHERE bytes_gone_at IS NULL AND erased_at < :until",
        {"until": micros(subject.now - OVERDUE)},
    )
    problem = f"Erasures whose bytes are still in the file after an hour: {pending:,}."
    remedy = (
        "Start the service, which completes them; if it is running, search its log for `erased "
        "bytes could not be overwritten`, and end the reader of an old snapshot."
    )
    yield warn("erasures", problem, remedy) if pending else ok("erasures", "None is overdue.")


def check_log(_: db.Database, subject: Subject) -> Iterator[Finding]:
    size = db.log_size(subject.path)
    if size is None or size <= LONG:
        length = "There is none" if size is None else f"It has {size / MIB:.1f} MiB"
        yield ok("log", f"{length}.")
    else:
        cause = "a reader has held an old snapshot for long, or the service was killed"
        remedy = "End the reader (a copy, a shell on the file), and restart the service."
        yield warn("log", f"It has {size / MIB:.1f} MiB: {cause}.", remedy)


def check_clock(database: db.Database, subject: Subject) -> Iterator[Finding]:
    remedy = "Set the clock (`timedatectl`). Order and expiry depend on it; nothing is lost."
    ((newer,),) = database.execute(
        """SELECT EXISTS (SELECT 1 FROM sessions WHERE started_at > :until)
                  OR EXISTS (SELECT 1 FROM memories WHERE max(created_at, updated_at) > :until)
                  OR EXISTS (SELECT 1 FROM revisions WHERE at > :until)""",
        {"until": micros(subject.now + TOLERATED)},
    )
    if subject.now < BUILT:
        shown = f"{subject.now:%Y-%m-%d %H:%M}"
        yield failed("clock", f"It shows {shown}, a time before this program was made.", remedy)
    elif newer:
        problem = "Some rows are of a later time than now: it was set back, or they were imported."
        yield warn("clock", problem, remedy)
    else:
        yield ok("clock", "No row is from the future.")


def check_seals(database: db.Database, subject: Subject) -> Iterator[Finding]:
    seals = SealTable(database, SQLITE, subject.sealer, subject.tenant)
    count, lost, after = 0, 0, UNSAVED
    while page := seals.page(after, PAGE):
        count, after = count + len(page), page[-1].memory
        lost += sum(it.is_lost for it in page)
    if not lost:
        yield ok("seals", f"Every confidential value can be decrypted ({count:,}).")
        return
    yield warn(
        "seals",
        f"{lost:,} of {count:,} confidential values cannot be decrypted: their keys are not in the "
        "seal file, or the values are damaged.",
        "Restore the seal file from a copy, or from a backup, where it is `seal.json`. Values that "
        "are lost permanently can be deleted.",
    )


def check_database(subject: Subject) -> list[Finding]:
    """Return the findings of all checks of an existing file; a failed check is one, too."""
    # A file that nobody has open is read as one that does not change: again, if it did.
    is_closed = db.log_size(subject.path) is None
    findings = list[Finding]()
    try:
        with db.open_read_only(subject.path) as database:
            checks = CHECKS if is_ours(database) else CHECKS_OF_OTHERS
            for code, check in checks.items():
                try:
                    findings.extend(check(database, subject))
                except (sqlite3.Error, OSError, Unreadable, *GARBAGE) as error:
                    findings.append(_unreadable(code, error))
    except (sqlite3.Error, OSError) as error:
        findings = [_unreadable("integrity", error)]
    if is_closed and db.log_size(subject.path) is not None:
        return check_database(subject)
    return findings


def is_ours(database: sqlite3.Connection) -> bool:
    """Whether the file has this program's newest format; False if it is not a database."""
    try:
        return migrate.version_of(database) == migrate.newest_format()
    except sqlite3.Error:
        return False


def check_format(database: sqlite3.Connection, _: Subject) -> Iterator[Finding]:
    version, newest = migrate.version_of(database), migrate.newest_format()
    if version == newest:
        yield ok("format", f"It has format {version}, the newest.")
    elif version > newest:
        newer = f"It has format {version}, made by a newer version of this program; this one"
        remedy = f"Start the newer version, or {RESTORING}"
        yield failed("format", f"{newer} supports formats up to {newest}.", remedy)
    elif version:
        versions = f"It has format {version}, and this program makes format {newest}."
        yield warn("format", versions, UPGRADES)
    elif not migrate.is_used(database):
        remedy = f"Starting the service turns it into a database; if it had data, {RESTORING}"
        yield note("format", "It is empty.", remedy)
    elif migrate.is_original(database):
        how = "a start copies it, then upgrades it."
        yield warn("format", f"It is a database of the original service; {how}", UPGRADES)
    else:
        remedy = "Select the right file with --db or MEMORY_DB_PATH."
        yield failed("format", "It is a database of another program.", remedy)


@lru_cache(maxsize=1)  # many tenants' files are alike
def _expected(_: tuple[str, ...]) -> Parts:
    """Return the schema of the migrations."""
    with closing(db.connect(Path(":memory:"))) as database:
        migrate.apply_migrations(database)
        return _parts(database)


def _parts(database: sqlite3.Connection) -> Parts:
    """Return the schema of a file, without the partitions of the full-text index."""
    rows = database.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema")
    return {
        (kind, name): sql
        for kind, name, sql in rows
        if not name.startswith("sqlite_") and partition_of(name) is None
    }


def _plain(sql: str) -> str:
    return " ".join(sql.replace('"', "").split())


def names_of_parts(parts: Iterable[Part]) -> str:
    return ", ".join(f"the {kind} {name}" for kind, name in sorted(parts))


def partition_of(name: str) -> int | None:
    """Return the partition whose table or view has this name; None for any other name."""
    match = _PARTITION.fullmatch(name)
    return int(match[1]) if match else None


def check_schema(database: db.Database, subject: Subject) -> Iterator[Finding]:
    parts, expected = _parts(database), _expected(migrate.scripts())
    missing = {part: sql for part, sql in expected.items() if part not in parts}
    changed = {
        it for it in expected.keys() & parts.keys() if _plain(expected[it]) != _plain(parts[it])
    }
    # Ordinary indexes, with their statements.
    if indexes := {name: sql for (kind, name), sql in missing.items() if kind == "index"}:
        problem = f"Missing: {names_of_parts(('index', name) for name in indexes)}."
        fix = subject.fix(repair.reindex, indexes)
        yield failed("schema", problem, f"{FIX} rebuilds them.", fix=fix)
    if others := [part for part in (*missing, *changed) if part[1] not in indexes]:
        problem = f"Missing, or different from the migrations: {names_of_parts(others)}."
        yield failed("schema", problem, RESTORE)
    elif not (missing or changed):
        yield ok("schema", "It matches the migrations.")


def check_values(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    if rows := migrate.damaged(database):
        problem = f"These rows are damaged, and not served: {some_of(rows)}."
        yield failed("values", problem, MOVES, fix=subject.fix(repair.quarantine, subject.now))
    else:
        yield ok("values", "Every row has valid values.")


def check_index(database: db.Database, subject: Subject) -> Iterator[Finding]:
    if not is_by_rules(database):
        problem = "The full-text index was built with rules other than those of the settings."
        remedy = "Starting the service rebuilds it: see `agentops-memory migrate --dry-run`."
        yield warn("index", problem, remedy)
        return
    partitions = Partitions(database)
    findings, numbers = list[Finding](), partitions.all()
    # The next writer rolls back an interrupted transaction; this check must not be that writer.
    journal = subject.path.with_name(f"{subject.path.name}-journal")
    is_exact = subject.is_thorough and not (journal.exists() and journal.stat().st_size > 0)
    for number in numbers:
        findings += _check_partition(partitions, number, subject, is_exact=is_exact)
    yield from findings
    if not findings:
        how = "word for word" if is_exact else "by the number of rows"
        yield ok("index", f"Its partitions ({len(numbers)}) match the memories, {how}.")


def _check_partition(
    partitions: Partitions, number: int, subject: Subject, *, is_exact: bool
) -> Iterator[Finding]:
    name, fault = f"Partition {number} of the full-text index", ""
    try:
        if drift := partitions.drift(number):
            fault = f"differs from the memories in {drift:,} row{'s' * (drift != 1)}"
    except sqlite3.Error as error:
        fault = f"cannot be read: {reason(error)}"
    if is_exact and not fault:
        try:
            if not repair.is_exact(subject.path, number):
                fault = "has words that differ from those of the memories"
        except sqlite3.Error as error:
            if primary_code(error) not in SHUT:
                raise
            sentence = f"{name} was not compared word for word: {reason(error)}."
            yield note("index", sentence, ACCESS)
    if fault:
        remedy = f"The next sweep repairs it; {FIX} repairs it now."
        fix = subject.fix(repair.make_partition, number)
        yield warn("index", f"{name} {fault}.", remedy, fix=fix)


CHECKS: Mapping[str, Check] = {
    "format": check_format,
    "schema": check_schema,
    "integrity": check_integrity,
    "values": check_values,
    "seals": check_seals,
    "index": check_index,
    "size": check_size,
    "log": check_log,
    "clock": check_clock,
    "erasures": check_erasures,
}
CHECKS_OF_OTHERS: Mapping[str, Check] = {"format": check_format, "integrity": check_integrity}
"""The checks of a file of another format, or of another program."""


def _unreadable(code: str, error: Exception) -> Finding:
    remedy = ACCESS if primary_code(error) in SHUT else RESTORE
    return failed(code, f"It cannot be read: {reason(error)}.", remedy)
