"""The values of a tenant that restrict something and are no such thing as their columns hold.

The database sees to types, to texts and to pages; what a text or a number means, it does not know.
"""

from collections.abc import Iterator

from ...engine.shared.columns import RESTRICTING, TABLES, Kind, Table
from ...engine.shared.known_values import MOST_TOLD, Value
from ...engine.shared.value_checks import IS_NONE, IS_SOUND
from .connection import PostgresConnection

UNCHECKED = {Kind.FLAG, Kind.KEY}  # a BOOLEAN holds nothing else
BY_NAME = "rowid"  # names a row of the other engine whose key is a name of the user's


def damaged(connection: PostgresConnection) -> list[Value]:
    """The first of them, table by table; the connection is in a transaction of the tenant."""
    found: list[Value] = []
    for name, table in TABLES.items():
        columns = {
            column: kind
            for column, kind in table.columns.items()
            if (name, column) in RESTRICTING and kind not in UNCHECKED
        }
        for value in _damaged_in(connection, name, table, columns) if columns else ():
            found.append(value)
            if len(found) >= MOST_TOLD:
                return found
    return found


def _damaged_in(
    connection: PostgresConnection, name: str, table: Table, columns: dict[str, Kind]
) -> Iterator[Value]:
    # Of a text of JSON the database cannot tell without an error: it is looked at here.
    shown = [
        column if kind in IS_SOUND else f"coalesce({IS_NONE[kind].format(column)}, FALSE)"
        for column, kind in columns.items()
    ]
    which = [
        f"{column} IS NOT NULL" if kind in IS_SOUND else IS_NONE[kind].format(column)
        for column, kind in columns.items()
    ]
    key = "ctid" if table.key == BY_NAME else table.key
    key = f"encode({key}, 'hex')" if name == "done" else key  # a digest
    query = f"SELECT {key}, {', '.join(shown)} FROM {name} WHERE {' OR '.join(which)}"
    for row, *values in connection.read(query, {}):
        for value, (column, kind) in zip(values, columns.items(), strict=True):
            is_sound = value is None or IS_SOUND[kind](value) if kind in IS_SOUND else not value
            if not is_sound:
                yield Value(table=name, row=str(row), column=column, kind=kind)
