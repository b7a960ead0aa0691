"""What the rows of a sound database tell: its size, its times, and what should have ended."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from ....domain.model.findings import Finding, Status
from ....domain.text.features import ALL
from ..base.read_only import log_size
from ..base.table import instant, micros
from . import repair as mending

LONG = 128 * 1024 * 1024  # bytes of a log; it begins again long before, unless it is held
UNUSED = 64 * 1024 * 1024  # bytes that are worth a word, if they are half of the file
NEAR = 0.9  # of a quota
TOLERATED = timedelta(minutes=5)  # between two clocks
OVERDUE = timedelta(hours=1)  # after which the service should have done what it does by itself
BUILT = datetime(2025, 1, 1, tzinfo=UTC)  # no clock is right that shows an earlier time
MIB = 1024 * 1024


def of_rows(
    database: sqlite3.Connection, path: Path, now: datetime, *, quota: int | None, idle: timedelta
) -> Iterator[Finding]:
    yield from of_size(database, quota)
    yield of_log(path)
    yield of_clock(database, path, now)
    yield of_erasures(database, now)
    yield of_sessions(database, now, idle)


def of_size(database: sqlite3.Connection, quota: int | None) -> Iterator[Finding]:
    total, unused = _bytes(database)
    told = f"It has {total / MIB:.1f} MiB, {unused / MIB:.1f} of them unused."
    is_worth_it = unused > UNUSED and unused > total / 2
    yield Finding(
        code="size",
        status=Status.NOTE if is_worth_it else Status.OK,
        sentence=told,
        remedy="Later saves use them; `VACUUM` gives them back, with the service stopped."
        if is_worth_it
        else "",
    )
    if quota is not None:
        yield _of_quota(total - unused, quota)


def of_log(path: Path) -> Finding:
    size = log_size(path)
    if size is None:
        return Finding(code="log", sentence="There is none: the database was closed in order.")
    if size <= LONG:
        return Finding(code="log", sentence=f"It has {size / MIB:.1f} MiB.")
    return Finding(
        code="log",
        status=Status.WARNING,
        sentence=f"It has {size / MIB:.1f} MiB: something has been reading an older state for "
        "long, or the service was killed.",
        remedy="End what reads (a copy, a shell on the file); `agentops-memory doctor --fix` then "
        "empties it.",
        mend=partial(mending.empty_log, path, ALL),
    )


def of_clock(database: sqlite3.Connection, path: Path, now: datetime) -> Finding:
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    newest = _newest(database)
    if now < BUILT:
        sentence = f"The clock shows {now:%Y-%m-%d %H:%M}, a time before this program was made."
        return _clock(Status.FAILED, sentence)
    if newest is not None and newest > now + TOLERATED:
        sentence = (
            f"The newest row is of {newest:%Y-%m-%d %H:%M}, but the clock shows "
            f"{now:%Y-%m-%d %H:%M} (UTC): it went back, or such rows were imported."
        )
        return _clock(Status.WARNING, sentence)
    if changed > now + TOLERATED:
        sentence = f"The file was changed at {changed:%Y-%m-%d %H:%M} (UTC), later than now."
        return _clock(Status.WARNING, sentence)
    return Finding(code="clock", sentence="No row is from the future.")


def of_erasures(database: sqlite3.Connection, now: datetime) -> Finding:
    ((pending,),) = database.execute(
        "SELECT count(*) FROM erasures WHERE bytes_gone_at IS NULL AND erased_at < :until",
        {"until": micros(now - OVERDUE)},
    )
    if not pending:
        return Finding(code="erasures", sentence="None is overdue.")
    return Finding(
        code="erasures",
        status=Status.WARNING,
        sentence=f"Of {pending:,} erasures the bytes have not left the file after an hour.",
        remedy="Start the service, which goes on with them; if one runs, look in its log for `no "
        "scrub now`, and end what reads an older state.",
    )


def of_sessions(database: sqlite3.Connection, now: datetime, idle: timedelta) -> Finding:
    if not idle:
        return Finding(code="sessions", sentence="Idle sessions go on, as the settings want it.")
    ((going_on,),) = database.execute(
        """SELECT count(*)
             FROM transcripts t
             JOIN sessions s ON s.number = t.session
            WHERE s.ended_at IS NULL AND t.heard_at < :until""",
        {"until": max(micros(now - OVERDUE) - idle // timedelta(microseconds=1), 0)},
    )
    if not going_on:
        return Finding(code="sessions", sentence="None is idle for too long.")
    return Finding(
        code="sessions",
        status=Status.WARNING,
        sentence=f"{going_on:,} sessions are idle for longer than MEMORY_SESSION_IDLE and go on.",
        remedy="Start the service, which ends them; if one runs, look in its log for `idle "
        "sessions go on`.",
    )


def _of_quota(used: int, quota: int) -> Finding:
    told = f"It uses {used / quota:.0%} of the tenant's {quota / MIB:,.0f} MiB."
    if used < quota * NEAR:
        return Finding(code="quota", sentence=told)
    return Finding(
        code="quota",
        status=Status.WARNING,
        sentence=f"{told} Beyond it saves are refused with 507.",
        remedy="Erase what is not needed, or raise MEMORY_TENANT_QUOTA.",
    )


def _clock(status: Status, sentence: str) -> Finding:
    return Finding(
        code="clock",
        status=status,
        sentence=sentence,
        remedy="Set the clock right (`timedatectl`). Order and expiry go by it; nothing is lost.",
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
