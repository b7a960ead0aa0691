"""The values that are no such thing as their columns hold: those of a damaged file.

SQLite sees to the types of columns, and to the pages; what a text or a number is, it does not
know.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...engine.shared import value_checks
from ...engine.shared.columns import TABLES, Kind, Table
from ...engine.shared.known_values import MOST_TOLD, Value
from ...engine.shared.value_checks import IS_SOUND
from ...recall.text.normalization import REPLACEMENT, clean
from ..base.errors import decoded

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
    if not wrong:
        return []
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
    if table.key == "key":
        return key.hex()
    return "".join(sign if sign.isprintable() else REPLACEMENT for sign in decoded(key))


def register(database: sqlite3.Connection) -> None:
    functions: dict[str, Callable[[bytes], bool]] = {
        "is_text": is_text,
        "is_tags": lambda array: _is_json(array, list),
        "is_pairs": lambda pairs: _is_json(pairs, dict),
        **{
            f"is_{kind.name.lower()}": partial(_is, IS_SOUND[kind])
            for kind in (Kind.GUARDRAILS, Kind.POLICY, Kind.COUNTS)
        },
    }
    for name, function in functions.items():
        database.create_function(name, 1, function, deterministic=True)


def is_text(text: bytes | None) -> bool:
    try:
        return text is None or text.decode() is not None
    except UnicodeDecodeError:
        return False


def _is(is_sound: Callable[[str], bool], text: bytes | None) -> bool:
    return text is None or (is_text(text) and is_sound(text.decode()))


def _is_json(text: bytes | None, kind: type) -> bool:
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


IS_NONE: Mapping[Kind, str] = {
    **value_checks.IS_NONE,
    Kind.TEXT: "NOT is_text(CAST({0} AS BLOB))",
    Kind.TAGS: "{0} <> '[]' AND NOT is_tags(CAST({0} AS BLOB))",
    Kind.PAIRS: "{0} <> '{{}}' AND NOT is_pairs(CAST({0} AS BLOB))",
    Kind.FLAG: "{0} NOT IN (0, 1)",
    Kind.GUARDRAILS: "NOT is_guardrails(CAST({0} AS BLOB))",
    Kind.POLICY: "NOT is_policy(CAST({0} AS BLOB))",
    Kind.COUNTS: "{0} <> '{{}}' AND NOT is_counts(CAST({0} AS BLOB))",
    Kind.PARTITION: f"""({value_checks.IS_NONE[Kind.PARTITION]}
                         OR (area > 0 AND {{0}} NOT IN (SELECT number FROM partitions)))""",
}
"""The condition that a column holds what is none."""
