"""SQL for what a database file holds: how much of each kind that is kept for a time, and the rest.

It is read a table at a time, so that no long read holds the log of a service that writes.
"""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ....domain.model.retention import Held, Kind, Retentions
from ...sql.past_retention import NOT_GOING
from ...sql.rows import instant, micros
from ..base.connection import connect
from ..base.copies import copies_of
from ..base.errors import translated

# Bytes that a row takes beside its texts, with its places in the indexes of its table: what
# SQLite's dbstat says of files with thousands of them.
MEMORY, REVISION, RECORD, RECEIPT, NAME = 400, 60, 165, 100, 100


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
        queries = _Queries(database, retention, now)
        return StorageStats(
            database=path.stat().st_size,
            free=queries.number("PRAGMA freelist_count") * queries.number("PRAGMA page_size"),
            index=queries.index(),
            log=_size(path.with_name(f"{path.name}-wal")),
            copies=sum(map(_size, copies_of(path))),
            held=(queries.deleted(), queries.revisions(), queries.records(), queries.receipts()),
        )


class _Queries:
    """What is read of one file, by the same conditions by which a sweep removes."""

    def __init__(self, database: sqlite3.Connection, retention: Retentions, now: datetime) -> None:
        self._database = database
        self._retention = retention
        self._now = now

    def number(self, statement: str) -> int:
        return int(self._database.execute(statement).fetchone()[0])

    def index(self) -> int:
        numbers = self._database.execute("SELECT number FROM partitions").fetchall()
        return sum(
            self.number(f"SELECT coalesce(sum(length(block)), 0) FROM memories_fts_{number}_data")
            for (number,) in numbers
        )

    def deleted(self) -> Held:
        return self._held(
            Kind.DELETED,
            f"""SELECT count(*) + total(revisions), total(size), min(deleted_at),
                       total((1 + revisions) * (deleted_at <= :until))
                  FROM (SELECT m.deleted_at,
                               count(r.id) AS revisions,
                               {_bytes("m")} + {MEMORY}
                               + total({_bytes("r")} + {REVISION} * (r.id IS NOT NULL)) AS size
                          FROM memories m INDEXED BY memories_in_session
                          LEFT JOIN revisions r ON r.memory_id = m.id
                         WHERE m.deleted_at IS NOT NULL AND {NOT_GOING}
                      GROUP BY m.id)""",
        )

    def revisions(self) -> Held:
        """Those of live observations; a sweep also trims what deleted ones have too many."""
        keep = self._retention.revisions
        return self._held(
            Kind.REVISIONS,
            f"""SELECT total(live * count), total(live * size), min(CASE WHEN live THEN first END),
                       total(max(0, count - :keep)) * (:keep > 0)
                  FROM (SELECT count(*) AS count, min(r.at) AS first, m.deleted_at IS NULL AS live,
                               total({_bytes("r")} + {REVISION}) AS size
                          FROM revisions r
                          JOIN memories m ON m.id = r.memory_id
                         WHERE m.session_id IS NOT NULL
                               AND (m.deleted_at IS NULL OR m.deleted_at > :deleted)
                      GROUP BY r.memory_id)""",
            keep=keep,
            deleted=self._until(Kind.DELETED),
        )

    def records(self) -> Held:
        return self._held(
            Kind.IDEMPOTENCY,
            f"""SELECT count(*), total(length(ids) + {RECORD}), min(at), total(at <= :until)
                  FROM done""",
        )

    def receipts(self) -> Held:
        return self._held(
            Kind.RECEIPTS,
            f"""SELECT total(1 + names), total({RECEIPT} + {NAME} * names), min(bytes_gone_at),
                       total((1 + names) * (bytes_gone_at <= :until))
                  FROM (SELECT e.bytes_gone_at, count(d.memory_id) AS names
                          FROM erasures e
                          LEFT JOIN erased d ON d.erasure_id = e.id
                         WHERE e.bytes_gone_at IS NOT NULL AND NOT e.goes_on
                      GROUP BY e.id)""",
        )

    def _held(self, kind: Kind, statement: str, **values: object) -> Held:
        until = {"until": self._until(kind)}
        row = self._database.execute(statement, until | values).fetchone()
        rows, size, oldest, over = row
        return Held(
            kind=kind,
            rows=int(rows),
            size=int(size),
            oldest=None if oldest is None else instant(oldest),
            past_retention=int(over),
        )

    def _until(self, kind: Kind) -> int:
        """The instant until which it is over its time; one before everything if it never is."""
        until = None if kind is Kind.REVISIONS else self._retention.until(kind, self._now)
        return -(1 << 62) if until is None else micros(until)


def _bytes(table: str) -> str:
    """The bytes of the texts in a row of memories or revisions."""
    columns = ("type", "title", "content", "tags")
    return " + ".join(f"coalesce(length(CAST({table}.{it} AS BLOB)), 0)" for it in columns)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
