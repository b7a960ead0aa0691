"""What is put in the place of a value that is none: what is known of it, else the nearest.

Of a value that restricts something the nearest could permit more: it stays, unless other rows say
what it was.
"""

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from ...engine.shared.columns import RESTRICTING, Kind, Table
from ...engine.shared.known_values import Value
from ...engine.shared.value_checks import members
from ...memory.model.agent_events import EventType
from ...memory.model.agent_memory import Binding, Sensitivity, Tier
from ...memory.model.intents import TaskStatus
from ...memory.model.kinds import SpaceKind
from ...memory.sql.kinds import GLOBAL_AREA, HAS_NO_PROJECT, LAST_AREA, NEAREST_KIND, UNINDEXED_AREA
from ...memory.sql.liveness import undeleted
from ...memory.sql.rows import (
    EARLIEST,
    LAST,
    MOST,
    instant,
    json_of,
    map_of,
    micros,
    tag_array,
    tag_tuple,
)
from ...memory.sql.table import GLOBAL
from ...recall.text.ids import nearest_uid
from ...recall.text.instants import rendered
from ...recall.text.normalization import content_hash
from ..base.errors import decoded
from .values import IS_NONE, UNLIMITED, damaged_rows, register, there

_OF_REVISIONS = "(SELECT {0}(at) FROM revisions WHERE memory_id = memories.id{1})"
_BESIDE = """(SELECT at
                FROM revisions o
               WHERE o.memory_id = revisions.memory_id AND o.id {0} revisions.id
            ORDER BY o.id {1}
               LIMIT 1)"""

NEAREST: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("sessions", "started_at"): (
        "(SELECT min(created_at) FROM memories WHERE session_id = sessions.id)", "ended_at",
    ),
    ("sessions", "ended_at"): (
        "(SELECT max(last_seen_at) FROM memories WHERE session_id = sessions.id)", "started_at",
    ),
    ("memories", "created_at"): (_OF_REVISIONS.format("min", ""), "updated_at", "last_seen_at"),
    ("memories", "updated_at"): (
        _OF_REVISIONS.format("max", " AND deed <> 'deleted'"), "created_at", "last_seen_at",
    ),
    ("memories", "last_seen_at"): ("updated_at", "created_at"),
    ("memories", "deleted_at"): (
        _OF_REVISIONS.format("max", " AND deed = 'deleted'"), "updated_at", "created_at",
    ),
    ("revisions", "at"): (
        _BESIDE.format("<", "DESC"), _BESIDE.format(">", "ASC"),
        "(SELECT created_at FROM memories WHERE id = memory_id)",
    ),
    ("transcripts", "heard_at"): ("(SELECT started_at FROM sessions WHERE number = session)",),
    ("erasures", "erased_at"): ("bytes_gone_at",),
    ("erasures", "bytes_gone_at"): ("erased_at",),
    ("stores", "created_at"): ("updated_at", "archived_at"),
    ("stores", "updated_at"): ("archived_at", "created_at"),
    ("stores", "archived_at"): ("updated_at", "created_at"),
    ("intents", "created_at"): (
        "(SELECT min(created_at) FROM tasks WHERE tasks.intent = intents.id)",
    ),
    ("tasks", "created_at"): ("started_at", "completed_at"),
    ("tasks", "started_at"): ("completed_at", "created_at"),
    ("tasks", "completed_at"): ("started_at", "created_at"),
    ("ref_entries", "created_at"): ("(SELECT created_at FROM memories WHERE id = memory_id)",),
    ("ref_tags", "created_at"): ("(SELECT created_at FROM memories WHERE id = memory_id)",),
    ("archives", "first_at"): ("last_at",),
    ("archives", "last_at"): ("first_at",),
    ("passes", "undone_at"): ("(SELECT ended_at FROM runs WHERE runs.id = run)",),
    ("runs", "started_at"): ("ended_at", "heard_at"),
    ("runs", "heard_at"): ("ended_at", "started_at"),
    ("runs", "ended_at"): ("heard_at", "started_at"),
    ("runs", "at"): ("started_at",),
    ("proposals", "created_at"): ("updated_at",),
    ("proposals", "updated_at"): ("created_at",),
    ("run_events", "at"): ("(SELECT started_at FROM runs WHERE runs.id = run)",),
    ("versions", "redacted_at"): (
        """(SELECT at
              FROM revisions r
             WHERE r.memory_id = versions.memory_id AND r.number = versions.number)""",
    ),
}  # fmt: skip
"""The instants that are known of a row, the nearest first."""

_NUMBER = """coalesce((SELECT 1 + max(o.number)
                         FROM {0} o
                        WHERE o.memory_id = {0}.memory_id AND o.{1} < {0}.{1}
                              AND o.number BETWEEN 0 AND {2}),
                      1)"""

_TIER = f"""coalesce((SELECT told
                        FROM (SELECT {{0}} AS told)
                       WHERE told IN ({members(Tier)})),
                     CASE WHEN agent = '' THEN '{Tier.SEMANTIC}' ELSE '{Tier.EPISODIC}' END)"""

_OF_EVENT = """coalesce((SELECT {0}
                            FROM agent_events e
                           WHERE e.event_id = pending_archives.event_id),
                         as_text(CAST({0} AS BLOB)))"""

_OF_MEMORY = "coalesce((SELECT {0} FROM memories m WHERE m.id = memory_id), 0)"

_OF_TYPE = "(SELECT type FROM events WHERE events.id = event_id)"

_ATTEMPT = f"""coalesce((SELECT {{0}}
                           FROM {{1}}
                          WHERE {{2}} AND attempt BETWEEN 0 AND {MOST}),
                        1)"""

_STATUS_OF_RUN = """(SELECT CASE WHEN type IN ('run.completed', 'run.failed', 'run.cancelled')
                                 THEN substr(type, 5) END
                         FROM run_events
                        WHERE run = runs.id
                     ORDER BY sequence DESC
                        LIMIT 1)"""

# Of a space what another one of its project, or of its agent's tier, says: they share a place.
_SIBLING = f"""(SELECT o.{{0}}
                 FROM spaces o
                WHERE o.id <> spaces.id AND o.area BETWEEN {GLOBAL_AREA} + 1 AND {LAST_AREA}
                      AND o.partition IN (SELECT number FROM partitions)
                      AND (o.project = spaces.project OR o.area = spaces.area
                           OR o.id IN (SELECT p.space_id
                                         FROM agent_spaces p
                                         JOIN agent_spaces q ON q.space_id = spaces.id
                                        WHERE p.tier = q.tier AND p.agent = q.agent
                                              AND p.agent <> ''))
             ORDER BY o.id
                LIMIT 1)"""

OWN: Mapping[tuple[str, str], str] = {
    ("memories", "uid"): "as_uid(CAST(uid AS BLOB))",
    ("memories", "content_hash"): "as_hash(CAST(content AS BLOB))",
    ("memories", "revision"): f"""coalesce((SELECT max(number)
                                              FROM revisions
                                             WHERE memory_id = memories.id
                                                   AND number BETWEEN 0 AND {MOST}),
                                           1)""",
    ("revisions", "number"): _NUMBER.format("revisions", "id", MOST),
    ("versions", "number"): _NUMBER.format("versions", "uid", MOST),
    ("versions", "uid"): "as_uid(CAST(uid AS BLOB))",
    ("erasures", "id"): "as_uid(CAST(id AS BLOB))",
    ("erased", "erasure_id"): "as_uid(CAST(erasure_id AS BLOB))",
    ("stores", "erasure_id"): "as_uid(CAST(erasure_id AS BLOB))",
    ("stores", "uid"): "as_uid(CAST(uid AS BLOB))",
    ("agent_spaces", "tier"): _TIER.format("(SELECT kind FROM spaces WHERE id = space_id)"),
    ("agent_memories", "tier"): _TIER.format(
        """(SELECT p.tier
              FROM memories m
              JOIN agent_spaces p ON p.space_id = m.space_id
             WHERE m.id = memory_id)"""
    ),
    ("agent_memories", "binding"): f"CASE WHEN attempt IS NULL THEN {Binding.NONE:d} "
    f"ELSE {Binding.TASK:d} END",
    ("agent_memories", "sensitivity"): f"'{Sensitivity.RESTRICTED}'",
    ("tasks", "status"): f"""CASE WHEN completed_at IS NOT NULL THEN '{TaskStatus.FAILED}'
                                  WHEN started_at IS NOT NULL THEN '{TaskStatus.RUNNING}'
                                  ELSE '{TaskStatus.PENDING}' END""",
    ("tasks", "inherits"): """CASE WHEN policy IS NULL OR NOT json_valid(policy) THEN 0
                                   ELSE json_extract(policy, '$.inherits') IS 1 END""",
    ("done", "at"): ":newest",
    ("lifecycles", "expires_at"): f"""(SELECT ends_at
                                         FROM ref_entries e
                                        WHERE e.memory_id = lifecycles.memory_id
                                              AND ends_at BETWEEN {EARLIEST} AND {LAST})""",
    ("ref_entries", "ends_at"): """(SELECT expires_at
                                      FROM lifecycles l
                                     WHERE l.memory_id = ref_entries.memory_id)""",
    ("runs", "status"): f"coalesce({_STATUS_OF_RUN}, 'running')",
    ("commitments", "state"): "'fired'",
    ("spaces", "area"): f"""CASE WHEN {GLOBAL.replace("s.", "")} THEN {GLOBAL_AREA}
                                 WHEN kind = '{SpaceKind.WORKING}' THEN {UNINDEXED_AREA}
                                 ELSE coalesce({_SIBLING.format("area")}, (
                                     SELECT 1 + coalesce(max(area), {GLOBAL_AREA})
                                       FROM spaces
                                      WHERE area BETWEEN {GLOBAL_AREA} AND {LAST_AREA} - 1)) END""",
    ("spaces", "partition"): _SIBLING.format("partition"),  # without one `Index.settle` finds one
    ("agent_memories", "attempt"): _ATTEMPT.format(
        "attempt", "tasks", "tasks.id = agent_memories.task"
    ),
    ("tasks", "attempt"): _ATTEMPT.format(
        "max(attempt)", "agent_memories a", f"a.task = tasks.id AND a.binding = {Binding.TASK:d}"
    ),
    ("agent_events", "binding"): f"""
        CASE WHEN agent = '' OR {_OF_TYPE} = '{EventType.ARCHIVED}'
             THEN CASE WHEN task IS NULL THEN {Binding.INTENT:d} ELSE {Binding.TASK:d} END
             ELSE {Binding.NONE:d} END""",
    ("pending_archives", "task"): _OF_EVENT.format("task"),
    ("pending_archives", "agent"): _OF_EVENT.format("agent"),
    ("pending_archives", "attempt"): _ATTEMPT.format(
        "attempt", "agent_memories", "memory_id = pending_archives.first"
    ),
    ("spaces", "scope"): f"""CASE WHEN {HAS_NO_PROJECT} THEN as_uid(CAST(scope AS BLOB))
                                 ELSE as_text(CAST(scope AS BLOB)) END""",
    ("refs", "entries"): """(SELECT count(*)
                               FROM ref_entries e
                              WHERE e.space_id = refs.space_id AND e.deleted_after IS NULL)""",
    ("refs", "size"): f"""(SELECT coalesce(sum(min(max(e.size, 0), {MOST})), 0)
                             FROM ref_entries e
                            WHERE e.space_id = refs.space_id AND e.deleted_after IS NULL)""",
    ("ref_entries", "size"): _OF_MEMORY.format("length(CAST(m.content AS BLOB))"),
    ("ref_entries", "length"): _OF_MEMORY.format("length(m.content)"),
    ("run_events", "sequence"): """(SELECT count(*)
                                     FROM run_events o
                                    WHERE o.run = run_events.run AND o.id < run_events.id)""",
    ("proposals", "size"): """(length(CAST(artifact AS BLOB))
                               + length(CAST(coalesce(title, '') AS BLOB))
                               + length(CAST(coalesce(rationale, '') AS BLOB)))""",
    ("stores", "entries"): f"""(SELECT count(*)
                                 FROM memories m
                                WHERE m.space_id = stores.space_id AND {undeleted("m")})""",
    ("stores", "size"): f"""(SELECT coalesce(sum(length(CAST(m.content AS BLOB))), 0)
                              FROM memories m
                             WHERE m.space_id = stores.space_id AND {undeleted("m")})""",
}
"""What is put in the place of values that other rows tell."""

IS_KNOWN: Mapping[tuple[str, str], str] = {
    ("agent_memories", "binding"): "AND (attempt IS NOT NULL OR intent IS NULL)",
    ("lifecycles", "expires_at"): f"AND {OWN['lifecycles', 'expires_at']} IS NOT NULL",
    ("ref_entries", "ends_at"): f"""AND coalesce({OWN["ref_entries", "ends_at"]}, 0)
                                        BETWEEN {EARLIEST} AND {LAST}""",
    ("commitments", "state"): "AND fired_at IS NOT NULL",
}
"""Of which rows other columns or rows tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedValue:
    """A value that was none, and what it is now if that is an instant."""

    value: Value
    at: datetime | None = None

    def __str__(self) -> str:
        now = f" is now {rendered(self.at)}" if self.at else ""
        return f"{self.value.column} of {self.value.table} {self.value.row}{now}"


def repair_values(
    database: sqlite3.Connection, now: datetime
) -> tuple[list[RepairedValue], list[Value]]:
    """Put what there can be in the place of each value that is none; what was done, and not.

    Within a transaction in which references are not looked at. The index does not follow.
    """
    _register(database)
    newest, tables = _newest(database) or micros(now), there(database)
    found = [
        (value, _repaired(database, value, table, key, newest))
        for name, table in tables.items()
        for key, value in damaged_rows(database, name, table, UNLIMITED)
    ]
    if "fingerprint" in tables["memories"].columns:
        database.execute(_FINGERPRINTS)
    if "agent_spaces" in tables:
        database.execute(_KINDS)
    if "refs" in tables:
        database.execute(_KINDS_OF_REFS)
    return (
        [repaired for _, repaired in found if repaired is not None],
        [value for value, repaired in found if repaired is None],
    )


def may_be_known(value: Value) -> bool:
    return _replacement(value.table, value.column, value.kind) is not None


def _repaired(
    database: sqlite3.Connection, value: Value, table: Table, key: object, newest: int
) -> RepairedValue | None:
    """Put it there; None if nothing says what it was.

    Where another row has what it would be, it is something else.
    """
    column = value.column
    replacement = _replacement(value.table, column, value.kind)
    if replacement is None:
        return None
    statement = f"""UPDATE {value.table}
                       SET {column} = :expression
                     WHERE CAST({table.key} AS BLOB) = :key AND {IS_NONE[value.kind].format(column)}
                           {IS_KNOWN.get((value.table, column), "")}
                 RETURNING {column}"""
    given = {"key": key, "newest": newest}
    try:
        row = database.execute(statement.replace(":expression", replacement), given).fetchone()
    except sqlite3.IntegrityError:
        of_text = f"{replacement} || hex(CAST({column} AS BLOB))"
        other = of_text if value.kind is Kind.TEXT else "abs(random() % 1000000000)"
        row = database.execute(statement.replace(":expression", other), given).fetchone()
    if row is None and (value.table, column) in IS_KNOWN:
        return None
    is_instant = row is not None and value.kind is Kind.INSTANT
    return RepairedValue(value=value, at=instant(row[0]) if is_instant else None)


def _replacement(table: str, column: str, kind: Kind) -> str | None:
    """The expression of what there can be in a column; None if that is not known."""
    if (table, column) in RESTRICTING:
        return OWN.get((table, column))
    if kind is Kind.INSTANT:
        known = [_sane(other) for other in NEAREST.get((table, column), ())]
        return f"coalesce({', '.join([*known, ':newest', ':newest'])})"
    return OWN.get((table, column)) or _REPLACEMENTS[kind].format(column)


def _sane(instant: str) -> str:
    return f"(SELECT at FROM (SELECT {instant} AS at) WHERE at BETWEEN {EARLIEST} AND {LAST})"


def _newest(database: sqlite3.Connection) -> int | None:
    ((newest,),) = database.execute(
        f"""SELECT max(at)
              FROM (SELECT updated_at AS at FROM memories
                     UNION ALL
                    SELECT started_at FROM sessions)
             WHERE at BETWEEN {EARLIEST} AND {LAST}"""
    )
    return None if newest is None else int(newest)


def _register(database: sqlite3.Connection) -> None:
    register(database)
    functions: dict[str, Callable[..., str]] = {
        "as_text": decoded,
        "as_tags": lambda array: tag_array(tag_tuple(decoded(array))),
        "as_pairs": lambda pairs: json_of(map_of(decoded(pairs))),
        "as_hash": lambda content: content_hash(decoded(content)),
        "as_uid": lambda uid: nearest_uid(decoded(uid)),
    }
    for name, function in functions.items():
        database.create_function(name, 1, function)


_REPLACEMENTS: Mapping[Kind, str] = {
    Kind.TEXT: "as_text(CAST({0} AS BLOB))",
    Kind.COUNT: f"min(max({{0}}, 0), {MOST})",
    Kind.TAGS: "as_tags(CAST({0} AS BLOB))",
    Kind.PAIRS: "as_pairs(CAST({0} AS BLOB))",
    Kind.DEED: "CASE number WHEN 1 THEN 'created' ELSE 'updated' END",
    Kind.ERASURE: f"CASE WHEN {HAS_NO_PROJECT} THEN 'store' ELSE 'observation' END",
    Kind.SPACE: NEAREST_KIND,
    Kind.FLAG: "0",
}
"""What is put in its place."""

_KINDS = """UPDATE spaces
               SET kind = (SELECT tier FROM agent_spaces WHERE space_id = spaces.id)
             WHERE id IN (SELECT space_id FROM agent_spaces)"""
"""What agents' spaces are of a kind by, which the spaces themselves do not tell."""

_KINDS_OF_REFS = f"""UPDATE spaces
                       SET kind = '{SpaceKind.REF}'
                     WHERE kind <> '{SpaceKind.REF}' AND id IN (SELECT space_id FROM refs)"""

_FINGERPRINTS = """UPDATE memories
                      SET fingerprint = fingerprint_of(CAST(key AS BLOB), CAST(type AS BLOB),
                                                       CAST(title AS BLOB),
                                                       CAST(content_hash AS BLOB))
                    WHERE fingerprint <> fingerprint_of(CAST(key AS BLOB), CAST(type AS BLOB),
                                                        CAST(title AS BLOB),
                                                        CAST(content_hash AS BLOB))"""
"""What the fingerprints are of rows as they are now."""
