"""Damaged tables: found by SQLite's own checks, and dropped without a page of theirs being read."""

import sqlite3
from collections.abc import Iterable

from .errors import is_damage

MOST = 100  # faults that SQLite tells of, pages that nothing uses after all others
NO_FAULTS = ("ok", "*** in database main ***")
OF_A_VALUE = "CHECK constraint failed in "  # of which `maintenance.values` tells more


def is_readable(database: sqlite3.Connection, table: str) -> bool:
    """Whether SQLite can read a table and its indexes, page by page."""
    try:
        return not _reported(database, f'PRAGMA quick_check("{table}")')
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return False


def faults_of(database: sqlite3.Connection, check: str = "quick_check") -> list[str]:
    """What SQLite finds wrong with the file, pages that nothing uses too; but for values."""
    return _reported(database, f"PRAGMA {check}({MOST})")


def drop_statements(names: Iterable[str]) -> list[str]:
    """Statements that remove tables, views and indexes from the schema alone.

    A damaged page may point at pages of others, which a DROP would free. Their own pages are
    used by nothing then, until the file is vacuumed.
    """
    quoted = ", ".join("'{}'".format(name.replace("'", "''")) for name in names)
    return [
        "PRAGMA writable_schema = ON",
        f"DELETE FROM sqlite_schema WHERE name IN ({quoted}) OR tbl_name IN ({quoted})",
        "PRAGMA writable_schema = RESET",
    ]


def _reported(database: sqlite3.Connection, check: str) -> list[str]:
    lines = [line for (report,) in database.execute(check) for line in report.splitlines()]
    return [line for line in lines if line not in NO_FAULTS and not line.startswith(OF_A_VALUE)]
