"""SQL for what a database file holds: how much of each kind that is kept for a time, and the rest.

It is read a table at a time, so that no long read holds the log of a service that writes.
"""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ....domain.model.retention import Held, Kind, Retentions
from ...sql.agents.events import OF_LOG, OF_MEMORY
from ...sql.kinds import in_a_session
from ...sql.liveness import ENDED, deleted, live, seen_by_a_run, undeleted
from ...sql.past_retention import NOT_GOING
from ...sql.rows import instant, micros
from ..base.connection import connect
from ..base.copies import copies_of
from ..base.errors import translated

# Bytes that a row takes beside its texts, with its places in the indexes of its table: what
# SQLite's dbstat says of files with thousands of them.
MEMORY, REVISION, RECORD, RECEIPT, NAME, EVENT = 400, 60, 165, 100, 100, 200

# By its own time; what was deleted before then goes as that.
UNDELETED_BY = f"({undeleted('m')} OR m.deleted_at > :deleted)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStats:
    """What a database file is made of, in bytes, and what it keeps for a time."""

    database: int  # with what is free, and the index
    free: int  # pages that hold nothing, for what comes
    index: int  # the words of the memories
    log: int
    copies: int  # of the file, beside it
    held: tuple[Held, ...]


def storage_stats(path: Path, retention: Retentions, now: datetime) -> StorageStats:
    """What is in the file at the path, while others may be using it."""
    path = Path(os.path.realpath(path))  # where SQLite has the log
    with translated(), closing(connect(path)) as database:
        return StorageStats(
            database=path.stat().st_size,
            free=_number(database, "PRAGMA freelist_count") * _number(database, "PRAGMA page_size"),
            index=_index(database),
            log=_size(path.with_name(f"{path.name}-wal")),
            copies=sum(map(_size, copies_of(path))),
            held=tuple(_held(database, kind, retention, now) for kind in _HELD),
        )


def _number(database: sqlite3.Connection, statement: str) -> int:
    return int(database.execute(statement).fetchone()[0])


def _index(database: sqlite3.Connection) -> int:
    numbers = database.execute("SELECT number FROM partitions").fetchall()
    return sum(
        _number(database, f"SELECT coalesce(sum(length(block)), 0) FROM memories_fts_{number}_data")
        for (number,) in numbers
    )


def _held(database: sqlite3.Connection, kind: Kind, retention: Retentions, now: datetime) -> Held:
    given = {
        "until": _until(kind, retention, now),
        "keep": retention.revisions,
        "deleted": _until(Kind.DELETED, retention, now),
        "expired": _until(Kind.EXPIRED, retention, now),
        "now": micros(now),
    }
    rows, size, oldest, over = database.execute(_HELD[kind], given).fetchone()
    return Held(
        kind=kind,
        rows=int(rows),
        size=int(size),
        oldest=None if oldest is None else instant(oldest),
        past_retention=int(over),
    )


def _until(kind: Kind, retention: Retentions, now: datetime) -> int:
    """The instant until which it is past its retention; before everything if it never is."""
    until = None if kind is Kind.REVISIONS else retention.until(kind, now)
    return -(1 << 62) if until is None else micros(until)


def _bytes(table: str) -> str:
    """The bytes of the texts in a row of memories or revisions."""
    columns = ("type", "title", "content", "tags")
    return " + ".join(f"coalesce(length(CAST({table}.{it} AS BLOB)), 0)" for it in columns)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


# The conditions are those by which a sweep removes.
_HELD: Mapping[Kind, str] = {
    Kind.DELETED: f"""
        SELECT count(*) + total(revisions), total(size), min(deleted_at),
               total((1 + revisions) * (deleted_at <= :until AND NOT is_seen))
          FROM (SELECT m.deleted_at,
                       {seen_by_a_run("m")} AS is_seen,
                       count(r.id) AS revisions,
                       {_bytes("m")} + {MEMORY}
                       + total({_bytes("r")} + {REVISION} * (r.id IS NOT NULL)) AS size
                  FROM memories m INDEXED BY memories_in_session
                  LEFT JOIN revisions r ON r.memory_id = m.id
                 WHERE {deleted("m")} AND {NOT_GOING}
              GROUP BY m.id)""",
    # A deleted one is counted as such, even if this sweep is the first to take it away.
    Kind.EXPIRED: f"""
        SELECT total(counts * (1 + revisions)), total(counts * size),
               min(CASE WHEN counts THEN expires_at END), total((1 + revisions) * is_past)
          FROM (SELECT l.expires_at, {undeleted("m")} AS counts,
                       count(r.id) AS revisions,
                       {_bytes("m")} + {MEMORY}
                       + total({_bytes("r")} + {REVISION} * (r.id IS NOT NULL)) AS size,
                       (max(l.expires_at, m.updated_at) <= :until
                        OR m.id IN (SELECT memory_id FROM agent_memories))
                       AND {UNDELETED_BY} AS is_past
                  FROM lifecycles l
                  JOIN memories m ON m.id = l.memory_id
                  LEFT JOIN revisions r ON r.memory_id = m.id
                 WHERE l.{ENDED} AND {NOT_GOING}
              GROUP BY m.id)""",
    # Those of live observations; a sweep also trims what others have too many.
    Kind.REVISIONS: f"""
        SELECT total(live * count), total(live * size), min(CASE WHEN live THEN first END),
               total(max(0, count - :keep)) * (:keep > 0)
          FROM (SELECT count(*) AS count, min(r.at) AS first, {live("m")} AS live,
                       total({_bytes("r")} + {REVISION}) AS size
                  FROM revisions r
                  JOIN memories m ON m.id = r.memory_id
                 WHERE {in_a_session("m")} AND {UNDELETED_BY}
                       AND NOT EXISTS (SELECT 1
                                         FROM lifecycles l
                                        WHERE l.memory_id = m.id
                                              AND max(l.expires_at, m.updated_at) <= :expired)
              GROUP BY r.memory_id)""",
    Kind.IDEMPOTENCY: f"""
        SELECT count(*), total(length(ids) + {RECORD}), min(at), total(at <= :until) FROM done""",
    Kind.RECEIPTS: f"""
        SELECT total(1 + names), total({RECEIPT} + {NAME} * names), min(bytes_gone_at),
               total((1 + names) * (bytes_gone_at <= :until))
          FROM (SELECT e.bytes_gone_at, count(d.memory_id) AS names
                  FROM erasures e
                  LEFT JOIN erased d ON d.erasure_id = e.id
                 WHERE e.bytes_gone_at IS NOT NULL AND NOT e.goes_on
              GROUP BY e.id)""",
    Kind.EVENTS: f"""
        SELECT count(*), total(size + {EVENT}), min(at), total(is_past)
          FROM (SELECT at, length(CAST(payload AS BLOB)) AS size, at <= :until AS is_past
                  FROM events
                 WHERE {OF_MEMORY}
                 UNION ALL
                SELECT r.ended_at, length(CAST(v.payload AS BLOB)), r.ended_at <= :until
                  FROM runs r
                  JOIN run_events v ON v.run = r.id
                 WHERE r.ended_at IS NOT NULL)""",
    Kind.LOG: f"""
        SELECT count(*), total(size + {EVENT}), min(at), total(at <= :until)
          FROM (SELECT at, length(CAST(payload AS BLOB)) AS size FROM events WHERE {OF_LOG}
                 UNION ALL
                SELECT completed_at, length(CAST(details AS BLOB))
                  FROM tasks
                 WHERE completed_at IS NOT NULL)""",
}
"""Of each kind: how many rows, their bytes, the oldest instant, and how many are past it."""
