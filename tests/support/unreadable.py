"""Values of what was planted that nobody can read, for a while."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from agentops_memory.memory.rows import micros
from agentops_memory.sqlite.connection import connect

from .planted import MARK, text

# Rows that the service takes away by itself; a session may have ended since it was sent.
PUT_BACK = {
    "transcripts": """SELECT number, 1, 1, 0, :said, :said, :now
                        FROM sessions WHERE id = :mark || '-0'""",
    "pending_archives": "VALUES (1000000000, :mark, 1, :mark, 1, 1, 1)",
    "met_tags": "SELECT NULL, id, :mark, 0, NULL FROM spaces LIMIT 1",
    "memory_stems": "SELECT id, :mark FROM memories LIMIT 1",
    "area_stems": "SELECT area, 1, 1, 1, 1, X'', X'', 0, :mark, X'', 0 FROM spaces LIMIT 1",
    "agents": "VALUES (:mark, 9)",
}


def columns(path: Path) -> list[tuple[str, str]]:
    """Every column of text: its table and its name."""
    with closing(connect(path)) as database:
        return database.execute(
            """SELECT t.name, c.name
                 FROM sqlite_schema t, pragma_table_info(t.name) c
                WHERE t.type = 'table' AND c.type = 'TEXT' AND t.name NOT LIKE 'memories_fts%'"""
        ).fetchall()


def broken(path: Path, table: str, column: str) -> int:
    """How many values of a column have a byte at their end that is no UTF-8 from now on."""
    with _changing(path) as database:
        if rows := PUT_BACK.get(table):
            values = {"mark": MARK, "said": text("said"), "now": micros(datetime.now(UTC))}
            database.execute(f"INSERT OR IGNORE INTO {table} {rows}", values)
        return database.execute(
            f"UPDATE {table} SET {column} = CAST(CAST({column} AS BLOB) || x'ff' AS TEXT)"
        ).rowcount


def mended(path: Path, table: str, column: str) -> None:
    """Take that byte away again."""
    bare = f"CAST({column} AS BLOB)"
    with _changing(path) as database:
        database.execute(
            f"""UPDATE OR IGNORE {table}
                   SET {column} = CAST(substr({bare}, 1, length({bare}) - 1) AS TEXT)
                 WHERE substr({bare}, -1) = x'ff'"""
        )


@contextmanager
def _changing(path: Path) -> Iterator[sqlite3.Connection]:
    """One transaction that no rule of the schema stops."""
    with closing(connect(path)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("BEGIN IMMEDIATE")
        yield database
        database.execute("COMMIT")
