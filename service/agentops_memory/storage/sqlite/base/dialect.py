"""What SQLite says in its own way."""

import sqlite3

from ...sql.table import Dialect, Table

SQLITE = Dialect(
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
        super().__init__(connection, SQLITE)
