"""The damaged rows of a tenant: every row of every table is checked.

The database sees to types and to UTF-8; what a text or a number means, it does not know.
"""

from collections.abc import Iterator
from itertools import groupby, islice

from ...engine.shared.damage import BY_PLACE, DERIVED, MOST_TOLD, Column, RowDamage, TableCheck
from .connection import PostgresConnection

_TYPES = {"text": "TEXT", "bytea": "BLOB", "double precision": "REAL", "boolean": "BOOLEAN"}
_COLUMNS = """SELECT c.table_name, c.column_name, c.data_type, c.is_nullable = 'YES'
                FROM information_schema.columns c
                JOIN information_schema.tables t USING (table_schema, table_name)
               WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE'
            ORDER BY c.table_name, c.ordinal_position"""


def damaged(connection: PostgresConnection) -> list[RowDamage]:
    """The first of them, table by table; the connection is in a transaction of the tenant."""
    return list(islice(_every(connection), MOST_TOLD))


def _every(connection: PostgresConnection) -> Iterator[RowDamage]:
    for table, rows in groupby(connection.execute(_COLUMNS).fetchall(), lambda row: row[0]):
        if table not in DERIVED:
            columns = [
                Column(name=name, type=_TYPES.get(type_, "INTEGER"), may_be_null=may_be_null)
                for _, name, type_, may_be_null in rows
            ]
            check = TableCheck(table, columns)
            key = "ctid" if table in BY_PLACE else f'"{check.names[0]}"'
            yield from check.found(
                connection.read(f'SELECT {key}, {", ".join(check.selected)} FROM "{table}"', {})
            )
