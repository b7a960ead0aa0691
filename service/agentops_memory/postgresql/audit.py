"""The audit in a database: rows that are lines of the audit file, in the same order."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from ..errors import StartRefused, Unavailable
from ..memory.model.access import Caller
from ..memory.model.keys import By
from ..memory.model.retention import Held, Kind
from ..memory.sql.rows import instant, micros
from ..operations.files.audit import by_key, line
from .base.connecting import control
from .schema.migrate import is_made

_OVER = """at <= %(until)s
   AND number < coalesce(
       (SELECT min(number) FROM agentops.audit WHERE at > %(until)s), number + 1)"""
_HELD = f"""
SELECT count(*), coalesce(sum(octet_length(line) + 1), 0), min(at),
       count(*) FILTER (WHERE {_OVER})
  FROM agentops.audit"""
_TRIM = f"DELETE FROM agentops.audit WHERE {_OVER}"


@dataclass(frozen=True, slots=True)
class PostgresAudit:
    """The AuditLog of a database; `by` says who a caller is."""

    url: str
    clock: Callable[[], datetime]
    by: Callable[[Caller], By] = by_key

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        try:
            with control(self.url, makes=True) as connection:
                record(connection, self.clock(), action, self.by(caller), **fields)
        except StartRefused as refusal:  # as after a failover: for a request it is one for now
            raise Unavailable(str(refusal)) from None

    def trim(self, until: datetime) -> int:
        with control(self.url) as connection:
            is_there = is_made(connection)
            return connection.execute(_TRIM, {"until": micros(until)}).rowcount if is_there else 0

    def measured(self, until: datetime | None) -> Held:
        given = {"until": -(1 << 62) if until is None else micros(until)}
        with control(self.url, makes=True) as connection:
            ((rows, size, oldest, over),) = connection.execute(_HELD, given).fetchall()
        return Held(
            kind=Kind.AUDIT,
            rows=rows,
            size=size,
            oldest=None if oldest is None else instant(oldest),
            past_retention=over,
        )


def record(
    connection: psycopg.Connection[Any], at: datetime, action: str, by: By, **fields: object
) -> None:
    """Add a row, in the transaction that the connection is in."""
    written = line(at, action, by, **fields).decode().rstrip("\n")
    connection.execute(
        "INSERT INTO agentops.audit (at, line) VALUES (%(at)s, %(line)s)",
        {"at": micros(at), "line": written},
    )
