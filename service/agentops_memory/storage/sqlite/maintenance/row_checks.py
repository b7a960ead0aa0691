"""What the rows of a sound database tell: its size, its times, and what should have ended."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from ....domain.model.findings import Finding, failed, note, ok, warn
from ...sql.rows import instant, micros
from ..base.checks import Subject, log_size
from . import repair as mending

LONG = 128 * 1024 * 1024  # bytes of a log; it begins again long before, unless it is held
UNUSED = 64 * 1024 * 1024  # bytes that are worth a word, if they are half of the file
NEAR = 0.9  # of a quota
TOLERATED = timedelta(minutes=5)  # between two clocks
OVERDUE = timedelta(hours=1)  # after which the service should have done what it does by itself
BUILT = datetime(2025, 1, 1, tzinfo=UTC)  # no clock is right that shows an earlier time
MIB = 1024 * 1024
VACUUM = "Later saves use them; `VACUUM` gives them back, with the service stopped."
SET_CLOCK = "Set the clock right (`timedatectl`). Order and expiry go by it; nothing is lost."


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
        fix=subject.fix(mending.empty_log),
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
    """How much the file has, and how much of that is unused."""
    page, pages, free = (
        database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_size", "page_count", "freelist_count")
    )
    return page * pages, page * free


def _newest(database: sqlite3.Connection) -> datetime | None:
    """The latest instant at which a session began, or something was saved or changed."""
    ((newest,),) = database.execute(
        """SELECT max(coalesce((SELECT max(started_at) FROM sessions), 0),
                      coalesce((SELECT created_at
                                  FROM memories INDEXED BY memories_in_time
                                 WHERE deleted_at IS NULL AND session_id IS NOT NULL
                              ORDER BY created_at DESC
                                 LIMIT 1), 0),
                      coalesce((SELECT at FROM revisions ORDER BY id DESC LIMIT 1), 0))"""
    )
    return instant(newest) if newest else None
