"""What each column holds, and the values that are no such thing: those of a damaged file.

SQLite sees to the types of columns, and to the pages; what a text or a number is, it does not
know.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any

from ....domain.model.agent_memory import Tier
from ....domain.model.kinds import ErasureKind, SpaceKind
from ....domain.model.memory import ChangeKind
from ....domain.text.normalization import REPLACEMENT, clean
from ...sql.rows import FIRST, MOST, ids_of, micros
from ..base.errors import decoded


class Kind(Enum):
    """What a column holds."""

    TEXT = "text that is no UTF-8"
    INSTANT = "an instant out of range"
    COUNT = "a number out of range"
    TAGS = "no list of texts"
    PAIRS = "no pairs of texts"
    IDS = "no ids"
    DEED = "no deed"
    ERASURE = "no kind of erasure"
    SPACE = "no kind of space"
    TIER = "no tier of agents' memory"
    FLAG = "neither yes nor no"
    KEY = "whatever names a row"  # as integers or digests do: `references` tells what is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value that is no such thing as its column holds. What it is stays in the file."""

    table: str
    row: str  # its key
    column: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.table} {self.row}: {self.column} ({self.kind.value})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of rows that nothing else could be made of."""

    key: str  # what names a row, which is nothing that a user has named
    columns: Mapping[str, Kind]


_TEXTS = {"type": Kind.TEXT, "title": Kind.TEXT, "content": Kind.TEXT, "tags": Kind.TAGS}

TABLES: Mapping[str, Table] = {
    "spaces": Table(key="id", columns={
        "kind": Kind.SPACE, "project": Kind.TEXT, "scope": Kind.TEXT, "id": Kind.KEY,
        "area": Kind.KEY, "partition": Kind.KEY,
    }),
    "sessions": Table(key="number", columns={
        "number": Kind.KEY, "id": Kind.TEXT, "project": Kind.TEXT, "started_at": Kind.INSTANT,
        "ended_at": Kind.INSTANT, "summary": Kind.TEXT, "message_count": Kind.COUNT,
    }),
    "memories": Table(key="id", columns={
        **_TEXTS, "id": Kind.KEY, "uid": Kind.TEXT, "space_id": Kind.KEY,
        "session_id": Kind.TEXT, "key": Kind.TEXT, "content_hash": Kind.TEXT,
        "fingerprint": Kind.KEY, "revision": Kind.COUNT, "duplicates": Kind.COUNT,
        "last_seen_at": Kind.INSTANT, "promoted_to": Kind.TEXT,
        "created_at": Kind.INSTANT, "updated_at": Kind.INSTANT,
        "deleted_at": Kind.INSTANT, "extras": Kind.PAIRS,
    }),
    "revisions": Table(key="id", columns={
        **_TEXTS, "id": Kind.KEY, "memory_id": Kind.KEY, "number": Kind.COUNT,
        "deed": Kind.DEED, "at": Kind.INSTANT,
    }),
    "lifecycles": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "space_id": Kind.KEY, "expires_at": Kind.INSTANT,
        "is_swept": Kind.FLAG, "held_key": Kind.TEXT, "pinned_at": Kind.INSTANT,
        "review_at": Kind.INSTANT, "confirmed_at": Kind.INSTANT,
    }),
    "supersessions": Table(key="newer_id", columns={
        "newer_id": Kind.KEY, "older_id": Kind.KEY, "at": Kind.INSTANT,
    }),
    "lookalikes": Table(key="later_id", columns={
        "later_id": Kind.KEY, "earlier_id": Kind.KEY, "score": Kind.KEY, "at": Kind.INSTANT,
    }),
    "transcripts": Table(key="session", columns={
        "session": Kind.KEY, "messages": Kind.COUNT, "user": Kind.COUNT,
        "assistant": Kind.COUNT, "first": Kind.TEXT, "last": Kind.TEXT,
        "heard_at": Kind.INSTANT,
    }),
    "erasures": Table(key="id", columns={
        "id": Kind.TEXT, "kind": Kind.ERASURE, "project": Kind.TEXT,
        "observations": Kind.COUNT, "revisions": Kind.COUNT, "sessions": Kind.COUNT,
        "erased_at": Kind.INSTANT, "bytes_gone_at": Kind.INSTANT, "goes_on": Kind.FLAG,
    }),
    "erased": Table(key="memory_id", columns={"memory_id": Kind.KEY, "erasure_id": Kind.TEXT}),
    "stores": Table(key="space_id", columns={
        "space_id": Kind.KEY, "uid": Kind.TEXT, "name": Kind.TEXT, "description": Kind.TEXT,
        "metadata": Kind.PAIRS, "entries": Kind.COUNT, "size": Kind.COUNT,
        "created_at": Kind.INSTANT, "updated_at": Kind.INSTANT, "archived_at": Kind.INSTANT,
        "erasure_id": Kind.TEXT,
    }),
    "versions": Table(key="uid", columns={
        "uid": Kind.TEXT, "store_id": Kind.KEY, "memory_id": Kind.KEY, "number": Kind.COUNT,
        "path": Kind.TEXT, "size": Kind.COUNT, "sha256": Kind.TEXT, "author": Kind.TEXT,
        "redacted_at": Kind.INSTANT, "redacted_by": Kind.TEXT,
    }),
    "done": Table(key="key", columns={
        "key": Kind.KEY, "request": Kind.KEY, "status": Kind.COUNT, "ids": Kind.IDS,
        "at": Kind.INSTANT,
    }),
    "imports": Table(key="id", columns={
        "id": Kind.KEY, "projects": Kind.TAGS, "touched_at": Kind.INSTANT,
        "accepted_at": Kind.INSTANT, "finished_at": Kind.INSTANT, "staged": Kind.COUNT,
        "size": Kind.COUNT, "applied": Kind.COUNT, "sessions": Kind.COUNT,
        "observations": Kind.COUNT,
    }),
    "seals": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "key": Kind.TEXT, "nonce": Kind.KEY, "sealed": Kind.KEY,
    }),
    "agents": Table(key="rowid", columns={"name": Kind.TEXT, "episodic_capacity": Kind.COUNT}),
    "agent_spaces": Table(key="space_id", columns={
        "space_id": Kind.KEY, "tier": Kind.TIER, "agent": Kind.TEXT, "namespace": Kind.TEXT,
    }),
    "agent_memories": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "tier": Kind.TIER, "agent": Kind.TEXT, "created_by": Kind.TEXT,
        "task": Kind.TEXT, "intent": Kind.TEXT, "is_pinned": Kind.FLAG, "priority": Kind.COUNT,
        "sensitivity": Kind.TEXT, "curated_by": Kind.TEXT, "size": Kind.COUNT,
        "ttl": Kind.TEXT, "is_own_expiry": Kind.FLAG, "accessed_at": Kind.INSTANT,
    }),
    "namespaces": Table(key="rowid", columns={
        "name": Kind.TEXT, "default_access": Kind.COUNT, "version": Kind.COUNT,
        "created_at": Kind.INSTANT, "updated_at": Kind.INSTANT,
    }),
    "namespace_access": Table(key="rowid", columns={
        "namespace": Kind.TEXT, "agent": Kind.TEXT, "access": Kind.COUNT,
    }),
    "events": Table(key="id", columns={
        "id": Kind.KEY, "uid": Kind.TEXT, "type": Kind.TEXT, "payload": Kind.TEXT,
        "at": Kind.INSTANT,
    }),
    "agent_events": Table(key="event_id", columns={
        "event_id": Kind.KEY, "agent": Kind.TEXT, "actor": Kind.TEXT, "task": Kind.TEXT,
        "intent": Kind.TEXT,
    }),
    "import_rows": Table(key="number", columns={
        "number": Kind.KEY, "project": Kind.TEXT, "row": Kind.TEXT,
    }),
}  # fmt: skip
"""Every table but those that are made of these: of the index, and what goes with it."""

DERIVED = frozenset({"partitions", "index_rules", "terms", "purges", "remains"})

MOST_TOLD = 100  # values
UNLIMITED = -1


def damaged(database: sqlite3.Connection) -> list[Value]:
    """The first of the values that are none in a file of ours, table by table."""
    register(database)
    found: list[Value] = []
    for name, table in there(database).items():
        room = max(0, MOST_TOLD - len(found))  # a row can have several; below 0 is no limit
        found += [value for _, value in damaged_rows(database, name, table, room)]
    return found[:MOST_TOLD]


def there(database: sqlite3.Connection) -> dict[str, Table]:
    """The tables and columns that a file has, whose format may be an older one."""
    found = {}
    for name, table in TABLES.items():
        rows = database.execute("SELECT name FROM pragma_table_info(?)", (name,)).fetchall()
        names = {column for (column,) in rows}
        columns = {column: kind for column, kind in table.columns.items() if column in names}
        if columns:
            found[name] = Table(key=table.key, columns=columns)
    return found


def damaged_rows(
    database: sqlite3.Connection, name: str, table: Table, most: int
) -> list[tuple[object, Value]]:
    """Each value that is none, with the key of its row as SQLite compares it."""
    # The key comes last: it is mended last, too, for the others are found by it.
    names = sorted(table.columns, key=table.key.__eq__)
    columns = {it: table.columns[it] for it in names if table.columns[it] in IS_NONE}
    wrong = [IS_NONE[kind].format(column) for column, kind in columns.items()]
    rows = database.execute(
        f"""SELECT CAST({table.key} AS BLOB), {", ".join(wrong)}
              FROM {name} NOT INDEXED
             WHERE {" OR ".join(wrong)}
             LIMIT {most}"""
    ).fetchall()
    return [
        (key, Value(table=name, row=_named(table, key), column=column, kind=kind))
        for key, *are_wrong in rows
        for is_wrong, (column, kind) in zip(are_wrong, columns.items(), strict=True)
        if is_wrong
    ]


def _named(table: Table, key: bytes) -> str:
    """The key of a row as it can be told in a line."""
    if table.key == "key":
        return key.hex()
    return "".join(sign if sign.isprintable() else REPLACEMENT for sign in decoded(key))


def register(database: sqlite3.Connection) -> None:
    """Make the functions known that the conditions call."""
    functions: dict[str, Callable[[bytes], bool]] = {
        "is_text": is_text,
        "is_tags": lambda array: _is_json(array, list),
        "is_pairs": lambda pairs: _is_json(pairs, dict),
        "is_ids": lambda ids: is_text(ids) and bool(ids_of(decoded(ids)) or ids == b"{}"),
    }
    for name, function in functions.items():
        database.create_function(name, 1, function, deterministic=True)


def is_text(text: bytes | None) -> bool:
    """Whether the bytes of a text are UTF-8."""
    try:
        return text is None or text.decode() is not None
    except UnicodeDecodeError:
        return False


def _is_json(text: bytes | None, kind: type) -> bool:
    """Whether a text is an array, or an object, of texts that can be stored."""
    if text is None:
        return True
    try:
        found = json.loads(text.decode())
    except (ValueError, RecursionError):
        return False
    if not isinstance(found, kind):
        return False
    return all(isinstance(it, str) and clean(it) == it for it in _texts(found))


def _texts(found: Any) -> list[Any]:
    return [*found, *found.values()] if isinstance(found, dict) else found


def members(of: type[StrEnum]) -> str:
    return ", ".join(f"'{member.value}'" for member in of)


EARLIEST, LATEST = micros(FIRST), micros(datetime.max.replace(tzinfo=UTC))

IS_NONE: Mapping[Kind, str] = {
    Kind.TEXT: "NOT is_text(CAST({0} AS BLOB))",
    Kind.INSTANT: f"{{0}} NOT BETWEEN {EARLIEST} AND {LATEST}",
    Kind.COUNT: f"{{0}} NOT BETWEEN 0 AND {2 * MOST}",  # one at the limit may be counted further
    Kind.TAGS: "{0} <> '[]' AND NOT is_tags(CAST({0} AS BLOB))",
    Kind.PAIRS: "{0} <> '{{}}' AND NOT is_pairs(CAST({0} AS BLOB))",
    Kind.IDS: "NOT is_ids(CAST({0} AS BLOB))",
    Kind.DEED: f"{{0}} NOT IN ({members(ChangeKind)})",
    Kind.ERASURE: f"{{0}} NOT IN ({members(ErasureKind)})",
    Kind.SPACE: f"{{0}} NOT IN ({members(SpaceKind)})",
    Kind.TIER: f"{{0}} NOT IN ({members(Tier)})",
    Kind.FLAG: "{0} NOT IN (0, 1)",
}
"""The condition that a column holds what is none."""
