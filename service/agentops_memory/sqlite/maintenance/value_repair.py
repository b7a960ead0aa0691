"""What is put in the place of a value that is none: what is known of it, else the nearest.

Of a value that restricts something the nearest could permit more: it stays, unless other rows say
what it was.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from ...engine.shared.columns import RESTRICTING, Kind, Table
from ...engine.shared.known_values import Value
from ...memory.model.kinds import SpaceKind
from ...memory.sql.kinds import HAS_NO_PROJECT, NEAREST_KIND
from ...memory.sql.rows import (
    EARLIEST,
    LAST,
    MOST,
    ids_of,
    instant,
    json_of,
    map_of,
    micros,
    tag_array,
    tag_tuple,
)
from ...recall.text.ids import nearest_uid
from ...recall.text.instants import rendered
from ...recall.text.normalization import content_hash
from ..base.errors import decoded
from .nearest import IS_KNOWN, NEAREST, OWN
from .values import IS_NONE, UNLIMITED, damaged_rows, register, there


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
    """Whether something may be put in the place of a damaged value."""
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
    """The latest instant at which something was changed, or a session began."""
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
