"""Damaged rows of a file: every column of every table, looked through."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from ..memory.damage import BY_PLACE, DERIVED, MOST_TOLD, Column, RowDamage, TableCheck
from .dialect import read_text
from .migrate import tables


def damaged(database: sqlite3.Connection, most: int = MOST_TOLD) -> list[RowDamage]:
    """The first of the damaged rows in a file of ours, table by table."""
    with undecoded(database):
        rows = (
            row
            for check in checks(database)
            for row in check.found(database.execute(selecting(check)))
        )
        return list(islice(rows, most))


def checks(database: sqlite3.Connection) -> Iterator[TableCheck]:
    """Of the tables that a file has, whose format may be an older one."""
    for table in list(tables(database)):
        if table in DERIVED or table.startswith(("sqlite_", "memories_fts_")):
            continue
        statement = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?)'
        rows = database.execute(statement, (table,))
        columns = [
            Column(name=name, type=type_, may_be_null=not (is_required or is_key))
            for name, type_, is_required, is_key in rows.fetchall()
        ]
        yield TableCheck(table, columns)


def selecting(check: TableCheck) -> str:
    """The statement that reads the rows of a table, and not of an index, each behind its key."""
    key = "rowid" if check.table in BY_PLACE else f'"{check.names[0]}"'
    columns = ", ".join(check.selected)
    if check.table == "spaces":
        columns = columns.replace('"partition"', _PARTITION)
    return f'SELECT {key}, {columns} FROM "{check.table}" NOT INDEXED'


@contextmanager
def undecoded(database: sqlite3.Connection) -> Iterator[None]:
    """Inside, a text that is no UTF-8 is read as what it is."""
    before, database.text_factory = database.text_factory, read_text
    try:
        yield
    finally:
        database.text_factory = before


# Of a partition that is not there, what no partition can be.
_PARTITION = """CASE WHEN area <= 0 OR partition IN (SELECT number FROM partitions)
                     THEN partition
                     ELSE -1 END"""
