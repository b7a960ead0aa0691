"""Checks of a database file: pages, references, size, log, clock, and what should have ended."""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from ...errors import Unreadable
from ...memory.model.findings import Finding, failed, note, ok, warn
from ...memory.sql.kinds import in_a_session, in_no_session
from ...memory.sql.liveness import undeleted
from ...memory.sql.rows import instant, micros
from ...secrets.sanitizing import reason
from ..base.checks import Subject, faults_of, log_size
from ..schema.schema import partition_of, tables
from . import repair

SHOWN = 3  # faults that a sentence names
DAMAGED = (
    "Stop the service, keep a copy of the file as it is, and restore a backup: "
    "`agentops-memory restore`."
)
LONG = 128 * 1024 * 1024  # bytes of a log; it begins again long before, unless it is held
UNUSED = 64 * 1024 * 1024  # bytes that are worth a word, if they are half of the file
NEAR = 0.9  # of a quota
TOLERATED = timedelta(minutes=5)  # between two clocks
OVERDUE = timedelta(hours=1)  # after which the service should have done what it does by itself
BUILT = datetime(2025, 1, 1, tzinfo=UTC)  # no clock is right that shows an earlier time
MIB = 1024 * 1024
VACUUM = "Later saves use them; `VACUUM` gives them back, with the service stopped."
SET_CLOCK = "Set the clock right (`timedatectl`). Order and expiry go by it; nothing is lost."


def check_integrity(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    faults = _faults_found(database, subject)
    if not faults:
        yield _sound(subject)
    elif repair.are_harmless(faults):
        yield _loose_pages(subject)
    elif damaged := _unreadable(database):
        yield from _located(subject, faults, damaged)
    else:
        yield _damaged_indexes(subject, faults)
    yield from check_references(database, subject)


def check_older(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    """Whether SQLite finds a file of another format sound; more of it is not known."""
    if faults := _faults_found(database, subject):
        yield failed("integrity", f"The file is damaged: {_first_of(faults)}.", DAMAGED)
    else:
        yield _sound(subject)


def check_references(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    rows = database.execute('SELECT DISTINCT "table", parent FROM pragma_foreign_key_check')
    dangling = [
        f"rows of {table} name rows of {parent} that are gone"
        for table, parent in rows
        if table not in repair.TABLES
    ]
    ((lost,),) = database.execute(
        f"""SELECT count(*)
              FROM memories m
             WHERE {in_no_session("m")}
              AND NOT EXISTS (SELECT 1 FROM stores s WHERE s.space_id = m.space_id)
              AND NOT EXISTS (SELECT 1 FROM agent_memories a WHERE a.memory_id = m.id)
              AND NOT EXISTS (SELECT 1 FROM ref_entries e WHERE e.memory_id = m.id)"""
    )
    if lost:
        dangling.append(f"{lost:,} memories belong to no session, store, agent or ref")
    ((gaps,),) = database.execute(
        """SELECT count(*)
             FROM (SELECT run
                     FROM run_events
                 GROUP BY run
                   HAVING count(*) <> max(sequence) + 1)"""
    )
    if gaps:
        dangling.append(f"{gaps:,} runs lack events")
    if dangling:
        yield failed(
            "references",
            f"Of what is stored, {'; '.join(dangling)}.",
            "The service goes on with the rest. `agentops-memory restore` brings back "
            "what a backup has.",
        )
    if astray := repair.strays_of(database):
        yield failed(
            "references",
            f"Beside the memories there are {'; '.join(astray)}.",
            "`agentops-memory doctor --fix` puts that right and keeps a copy of the file.",
            fix=subject.fix(repair.put_right),
        )
    if not (dangling or astray):
        yield ok("references", "Every row that another one names is there.")


def check_rows(database: sqlite3.Connection, subject: Subject) -> Iterator[Finding]:
    yield from check_size(database, subject.quota)
    yield check_log(subject)
    yield check_clock(database, subject)
    yield check_erasures(database, subject.now)
    yield check_sessions(database, subject.now, subject.session_idle)


def check_size(database: sqlite3.Connection, quota: int | None) -> Iterator[Finding]:
    total, unused = _bytes(database)
    size = f"It has {total / MIB:.1f} MiB, {unused / MIB:.1f} of them unused."
    if unused > UNUSED and unused > total / 2:
        yield note("size", size, VACUUM)
    else:
        yield ok("size", size)
    if quota is not None:
        yield _check_quota(total - unused, quota)


def check_log(subject: Subject) -> Finding:
    size = log_size(subject.path)
    if size is None:
        return ok("log", "There is none: the database was closed in order.")
    if size <= LONG:
        return ok("log", f"It has {size / MIB:.1f} MiB.")
    return warn(
        "log",
        f"It has {size / MIB:.1f} MiB: something has been reading an older state for "
        "long, or the service was killed.",
        "End what reads (a copy, a shell on the file); `agentops-memory doctor --fix` then "
        "empties it.",
        fix=subject.fix(repair.empty_log),
    )


def check_clock(database: sqlite3.Connection, subject: Subject) -> Finding:
    now = subject.now
    changed = datetime.fromtimestamp(subject.path.stat().st_mtime, UTC)
    newest = _newest(database)
    if now < BUILT:
        sentence = f"The clock shows {now:%Y-%m-%d %H:%M}, a time before this program was made."
        return failed("clock", sentence, SET_CLOCK)
    if newest is not None and newest > now + TOLERATED:
        sentence = (
            f"The newest row is of {newest:%Y-%m-%d %H:%M}, but the clock shows "
            f"{now:%Y-%m-%d %H:%M} (UTC): it went back, or such rows were imported."
        )
        return warn("clock", sentence, SET_CLOCK)
    if changed > now + TOLERATED:
        sentence = f"The file was changed at {changed:%Y-%m-%d %H:%M} (UTC), later than now."
        return warn("clock", sentence, SET_CLOCK)
    return ok("clock", "No row is from the future.")


def check_erasures(database: sqlite3.Connection, now: datetime) -> Finding:
    ((pending,),) = database.execute(
        "SELECT count(*) FROM erasures WHERE bytes_gone_at IS NULL AND erased_at < :until",
        {"until": micros(now - OVERDUE)},
    )
    if not pending:
        return ok("erasures", "None is overdue.")
    return warn(
        "erasures",
        f"Of {pending:,} erasures the bytes have not left the file after an hour.",
        "Start the service, which goes on with them; if one runs, look in its log for `no "
        "scrub now`, and end what reads an older state.",
    )


def check_sessions(database: sqlite3.Connection, now: datetime, idle: timedelta) -> Finding:
    if not idle:
        return ok("sessions", "Idle sessions go on, as the settings want it.")
    ((going_on,),) = database.execute(
        """SELECT count(*)
             FROM transcripts t
             JOIN sessions s ON s.number = t.session
            WHERE s.ended_at IS NULL AND t.heard_at < :until""",
        {"until": max(micros(now - OVERDUE) - idle // timedelta(microseconds=1), 0)},
    )
    if not going_on:
        return ok("sessions", "None is idle for too long.")
    return warn(
        "sessions",
        f"{going_on:,} sessions are idle for longer than MEMORY_SESSION_IDLE and go on.",
        "Start the service, which ends them; if one runs, look in its log for `idle "
        "sessions go on`.",
    )


def _sound(subject: Subject) -> Finding:
    how = "in full" if subject.is_thorough else "quickly; --thorough looks into the indexes, too"
    return ok("integrity", f"SQLite finds it sound ({how}).")


def _faults_found(database: sqlite3.Connection, subject: Subject) -> list[str]:
    try:
        return faults_of(database, "integrity_check" if subject.is_thorough else "quick_check")
    except sqlite3.DatabaseError as error:
        return [reason(error)]


def _unreadable(database: sqlite3.Connection) -> list[str]:
    """The tables whose rows cannot all be read, whatever their indexes hold."""
    return [table for table in tables(database) if not _has_readable_rows(database, table)]


def _has_readable_rows(database: sqlite3.Connection, table: str) -> bool:
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
            fix=None if data else subject.fix(repair.make_partition, number),
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
        fix=subject.fix(repair.write_anew),
    )


def _damaged_indexes(subject: Subject, faults: list[str]) -> Finding:
    return failed(
        "integrity",
        f"All rows can be read, but the file is damaged elsewhere, in an index or among "
        f"its unused pages: {_first_of(faults)}.",
        "`agentops-memory doctor --fix` makes the indexes anew; if that is not enough, "
        "restore a backup: `agentops-memory restore`.",
        fix=subject.fix(repair.reindex),
    )


def _first_of(faults: list[str]) -> str:
    more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(faults[:SHOWN]) + more


def _check_quota(used: int, quota: int) -> Finding:
    usage = f"It uses {used / quota:.0%} of the tenant's {quota / MIB:,.0f} MiB."
    if used < quota * NEAR:
        return ok("quota", usage)
    return warn(
        "quota",
        f"{usage} Beyond it saves are refused with 507.",
        "Erase what is not needed, or raise MEMORY_TENANT_QUOTA.",
    )


def _bytes(database: sqlite3.Connection) -> tuple[int, int]:
    page, pages, free = (
        database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_size", "page_count", "freelist_count")
    )
    return page * pages, page * free


def _newest(database: sqlite3.Connection) -> datetime | None:
    ((newest,),) = database.execute(
        f"""SELECT max(coalesce((SELECT max(started_at) FROM sessions), 0),
                      coalesce((SELECT created_at
                                  FROM memories INDEXED BY memories_in_time
                                 WHERE {undeleted("memories")} AND {in_a_session("memories")}
                              ORDER BY created_at DESC
                                 LIMIT 1), 0),
                      coalesce((SELECT at FROM revisions ORDER BY id DESC LIMIT 1), 0))"""
    )
    with suppress(Unreadable):  # `values` says which row it is
        return instant(newest) if newest else None
    return None
