"""What SQLite says in its own way."""

import sqlite3
from collections.abc import Mapping
from typing import cast

from ...sql.table import Connection, Dialect, Table


def _inserted(connection: Connection, statement: str, parameters: Mapping[str, object]) -> int:
    # RETURNING would double what an INSERT costs.
    cursor = cast(sqlite3.Cursor, connection.execute(statement, parameters))
    return cursor.lastrowid or 0


SQLITE = Dialect(
    inserted=_inserted,
    leads="CROSS JOIN",
    index="INDEXED BY {}",
    array="json_each(:ids) {}",
    tags="json_each(CASE WHEN json_valid({0}.tags) THEN {0}.tags ELSE '[]' END)",
    json_element="CASE WHEN json_valid({0}) THEN json_extract({0}, '$[{1}]') END",
    holds="instr({}, {}) > 0",
    patterns_match="acted_on(:patterns, CAST({} AS BLOB))",
)


class SqliteTable(Table):
    """A table that only SQLite has."""

    _connection: sqlite3.Connection

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sql = SQLITE
