"""SQL for how much there is of each kind that is kept for a time."""

from datetime import datetime
from functools import cache

from ...memory.erasure import NOT_GOING
from ...memory.model.liveness import ENDED, deleted, live, seen_by_a_run, undeleted
from ...memory.model.retention import Held, Kind, Retentions
from ...memory.model.rows import instant, micros
from ...memory.model.space import in_a_session
from ...memory.model.table import Connection, Dialect
from ...memory.sight import OF_LOG, OF_MEMORY

# Bytes that a row takes beside its texts, with its places in the indexes of its table: what
# SQLite's dbstat says of files with thousands of them. In PostgreSQL it is more, 650 for a memory
# and 130 for a revision: a size of that engine is too low by the difference.
MEMORY, REVISION, RECORD, RECEIPT, NAME, EVENT = 400, 60, 165, 100, 100, 200

# By its own time; what was deleted before then goes as that.
UNDELETED_BY = f"({undeleted('m')} OR m.deleted_at > :deleted)"


def held(
    connection: Connection, sql: Dialect, retention: Retentions, now: datetime
) -> tuple[Held, ...]:
    return tuple(_held(connection, kind, sql, retention, now) for kind in _statements(sql))


def _held(
    connection: Connection, kind: Kind, sql: Dialect, retention: Retentions, now: datetime
) -> Held:
    values = {
        "until": _until(kind, retention, now),
        "keep": retention.revisions,
        "deleted": _until(Kind.DELETED, retention, now),
        "expired": _until(Kind.EXPIRED, retention, now),
        "now": micros(now),
    }
    statement = _statements(sql)[kind]
    named = {name: value for name, value in values.items() if f":{name}" in statement}
    rows, size, oldest, over = connection.execute(statement, named).fetchone()
    return Held(
        kind=kind, rows=int(rows), size=int(size),
        oldest=None if oldest is None else instant(oldest), past_retention=int(over),
    )  # fmt: skip


def _until(kind: Kind, retention: Retentions, now: datetime) -> int:
    """The instant until which it is past its retention; before everything if it never is."""
    until = None if kind is Kind.REVISIONS else retention.until(kind, now)
    return -(1 << 62) if until is None else micros(until)


@cache
def _statements(sql: Dialect) -> dict[Kind, str]:
    """Of each kind: the rows, their bytes, the oldest instant, and how many are past it.

    The conditions are those by which a sweep removes.
    """
    size_of, latest = sql.bytes_of, sql.greatest

    def texts(table: str) -> str:
        columns = ("type", "title", "content", "tags")
        return " + ".join(f"coalesce({size_of(f'{table}.{it}')}, 0)" for it in columns)

    whole = f"""{texts("m")} + {MEMORY} + {_total(texts("r"))} + {REVISION} * count(r.id)"""
    return {
        Kind.DELETED: f"""
        SELECT count(*) + {_total("revisions")}, {_total("size")}, min(deleted_at),
               {_total("1 + revisions", "deleted_at <= :until AND NOT is_seen")}
          FROM (SELECT m.deleted_at, {seen_by_a_run("m")} AS is_seen, count(r.id) AS revisions,
                       {whole} AS size
                  FROM memories m {sql.hint("memories_in_session")}
                  LEFT JOIN revisions r ON r.memory_id = m.id
                 WHERE {deleted("m")} AND {NOT_GOING}
              GROUP BY m.id) d""",
        # A deleted one is counted as such, even if this sweep is the first to take it away.
        Kind.EXPIRED: f"""
        SELECT {_total("1 + revisions", "counts")}, {_total("size", "counts")},
               min(CASE WHEN counts THEN expires_at END), {_total("1 + revisions", "is_past")}
          FROM (SELECT l.expires_at, {undeleted("m")} AS counts, count(r.id) AS revisions,
                       {whole} AS size,
                       ({latest}(l.expires_at, m.updated_at) <= :until
                        OR m.id IN (SELECT memory_id FROM agent_memories))
                       AND {UNDELETED_BY} AS is_past
                  FROM lifecycles l
                  JOIN memories m ON m.id = l.memory_id
                  LEFT JOIN revisions r ON r.memory_id = m.id
                 WHERE l.{ENDED} AND {NOT_GOING}
              GROUP BY m.id, l.memory_id) e""",
        # Those of live observations; a sweep also trims what others have too many.
        Kind.REVISIONS: f"""
        SELECT {_total("number", "live")}, {_total("size", "live")},
               min(CASE WHEN live THEN first END),
               {_total("number - :keep", "number > :keep AND :keep > 0")}
          FROM (SELECT count(*) AS number, min(r.at) AS first, {live("m")} AS live,
                       {_total(texts("r"))} + {REVISION} * count(*) AS size
                  FROM revisions r
                  JOIN memories m ON m.id = r.memory_id
                 WHERE {in_a_session("m")} AND {UNDELETED_BY}
                       AND NOT EXISTS (SELECT 1
                                         FROM lifecycles l
                                        WHERE l.memory_id = m.id
                                              AND {latest}(l.expires_at, m.updated_at) <= :expired)
              GROUP BY m.id) v""",
        Kind.IDEMPOTENCY: f"""
        SELECT count(*), {_total(f"coalesce(length(answer), 0) + {RECORD}")}, min(at),
               {_total("1", "at <= :until")}
          FROM done""",
        Kind.RECEIPTS: f"""
        SELECT {_total("1 + names")}, {_total(f"{RECEIPT} + {NAME} * names")}, min(bytes_gone_at),
               {_total("1 + names", "bytes_gone_at <= :until")}
          FROM (SELECT e.bytes_gone_at, count(d.memory_id) AS names
                  FROM erasures e
                  LEFT JOIN erased d ON d.erasure_id = e.id
                 WHERE e.bytes_gone_at IS NOT NULL AND NOT e.goes_on
              GROUP BY e.id) s""",
        Kind.EVENTS: f"""
        SELECT count(*), {_total(f"size + {EVENT}")}, min(at), {_total("1", "is_past")}
          FROM (SELECT at, {size_of("payload")} AS size, at <= :until AS is_past
                  FROM events
                 WHERE {OF_MEMORY}
                 UNION ALL
                SELECT r.ended_at, {size_of("v.payload")}, r.ended_at <= :until
                  FROM runs r
                  JOIN run_events v ON v.run = r.id
                 WHERE r.ended_at IS NOT NULL) t""",
        Kind.LOG: f"""
        SELECT count(*), {_total(f"size + {EVENT}")}, min(at), {_total("1", "at <= :until")}
          FROM (SELECT at, {size_of("payload")} AS size FROM events WHERE {OF_LOG}
                 UNION ALL
                SELECT completed_at, {size_of("details")}
                  FROM tasks
                 WHERE completed_at IS NOT NULL) t""",
    }


def _total(value: str, condition: str = "TRUE") -> str:
    return f"coalesce(sum(CASE WHEN {condition} THEN {value} ELSE 0 END), 0)"
