"""What is put in the place of a value that is none: what is known of it, else the nearest."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from ....domain.model.agent_events import EventType
from ....domain.model.agent_memory import Binding, Tier
from ....domain.model.intents import Permission, TaskStatus
from ....domain.model.kinds import SpaceKind
from ....domain.text.ids import nearest_uid
from ....domain.text.instants import rendered
from ....domain.text.normalization import content_hash
from ...sql.kinds import HAS_NO_PROJECT, NEAREST_KIND
from ...sql.liveness import undeleted
from ...sql.rows import MOST, ids_of, instant, json_of, map_of, micros, tag_array, tag_tuple
from ..base.errors import decoded
from .columns import Kind, Table
from .nearest import NEAREST
from .values import (
    EARLIEST,
    IS_NONE,
    LATEST,
    UNLIMITED,
    Value,
    damaged_rows,
    members,
    register,
    there,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedValue:
    """A value that was none, and what it is now if that is an instant."""

    value: Value
    at: datetime | None = None

    def __str__(self) -> str:
        now = f" is now {rendered(self.at)}" if self.at else ""
        return f"{self.value.column} of {self.value.table} {self.value.row}{now}"


def repair_values(database: sqlite3.Connection, now: datetime) -> list[RepairedValue]:
    """Put what there can be in the place of each value that is none; what was done.

    Within a transaction in which references are not looked at. The index does not follow.
    """
    _register(database)
    newest, tables = _newest(database) or micros(now), there(database)
    done = [
        _repaired(database, value, table, key, newest)
        for name, table in tables.items()
        for key, value in damaged_rows(database, name, table, UNLIMITED)
    ]
    if "fingerprint" in tables["memories"].columns:
        database.execute(_FINGERPRINTS)
    if "agent_spaces" in tables:
        database.execute(_KINDS)
    if "refs" in tables:
        database.execute(_KINDS_OF_REFS)
    return done


def _repaired(
    database: sqlite3.Connection, value: Value, table: Table, key: object, newest: int
) -> RepairedValue:
    """Put it there. Where another row has what it would be, it is something else."""
    column = value.column
    replacement = _replacement(value.table, column, value.kind)
    statement = f"""UPDATE {value.table}
                       SET {column} = :expression
                     WHERE CAST({table.key} AS BLOB) = :key AND {IS_NONE[value.kind].format(column)}
                 RETURNING {column}"""
    given = {"key": key, "newest": newest}
    try:
        row = database.execute(statement.replace(":expression", replacement), given).fetchone()
    except sqlite3.IntegrityError:
        of_text = f"{replacement} || hex(CAST({column} AS BLOB))"
        other = of_text if value.kind is Kind.TEXT else "abs(random() % 1000000000)"
        row = database.execute(statement.replace(":expression", other), given).fetchone()
    is_instant = row is not None and value.kind is Kind.INSTANT
    return RepairedValue(value=value, at=instant(row[0]) if is_instant else None)


def _replacement(table: str, column: str, kind: Kind) -> str:
    """The expression of what there can be in a column."""
    if kind is Kind.INSTANT:
        known = [_sane(other) for other in NEAREST.get((table, column), ())]
        return f"coalesce({', '.join([*known, ':newest', ':newest'])})"
    return _OWN.get((table, column)) or _REPLACEMENTS[kind].format(column)


def _sane(instant: str) -> str:
    return f"(SELECT at FROM (SELECT {instant} AS at) WHERE at BETWEEN {EARLIEST} AND {LATEST})"


def _newest(database: sqlite3.Connection) -> int | None:
    """The latest instant at which something was changed, or a session began."""
    ((newest,),) = database.execute(
        f"""SELECT max(at)
              FROM (SELECT updated_at AS at FROM memories
                     UNION ALL
                    SELECT started_at FROM sessions)
             WHERE at BETWEEN {EARLIEST} AND {LATEST}"""
    )
    return None if newest is None else int(newest)


def _register(database: sqlite3.Connection) -> None:
    register(database)
    functions: dict[str, Callable[..., str]] = {
        "as_text": decoded,
        "as_tags": lambda array: tag_array(tag_tuple(decoded(array))),
        "as_pairs": lambda pairs: json_of(map_of(decoded(pairs))),
        "as_ids": lambda ids: json.dumps(ids_of(decoded(ids))),
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
    Kind.IDS: "as_ids(CAST({0} AS BLOB))",
    Kind.DEED: "CASE number WHEN 1 THEN 'created' ELSE 'updated' END",
    Kind.ERASURE: f"CASE WHEN {HAS_NO_PROJECT} THEN 'store' ELSE 'observation' END",
    Kind.SPACE: NEAREST_KIND,
    Kind.FLAG: "0",
    Kind.STATUS: f"""CASE WHEN completed_at IS NOT NULL THEN '{TaskStatus.FAILED}'
                          WHEN started_at IS NOT NULL THEN '{TaskStatus.RUNNING}'
                          ELSE '{TaskStatus.PENDING}' END""",
    Kind.PERMISSION: f"'{Permission.READ}'",
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

_OWN: Mapping[tuple[str, str], str] = {
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
    ("agent_memories", "binding"): f"{Binding.NONE:d}",
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
