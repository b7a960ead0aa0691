"""Values of what was planted that nobody can read, for a while."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from agentops_memory.memory.rows import micros
from agentops_memory.sqlite.connection import connect

from .planted import MARK, text


def columns(path: Path) -> list[tuple[str, str]]:
    """Every column of text: its table and its name."""
    with closing(connect(path)) as database:
        return database.execute(
            """SELECT t.name, c.name
                 FROM sqlite_schema t, pragma_table_info(t.name) c
                WHERE t.type = 'table' AND c.type = 'TEXT' AND t.name NOT LIKE 'memories_fts%'"""
        ).fetchall()


def broken(path: Path, table: str, column: str) -> int:
    """How many values of a column have a byte at their end that is no UTF-8 from now on.

    Rows that the service takes away by itself are put there in the same transaction.
    """
    with closing(connect(path)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("BEGIN IMMEDIATE")
        if table == "transcripts":
            _hear(database)
        if table == "pending_archives":
            row = (10**9, MARK, 1, MARK, 1, 1, 1)
            database.execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        if table == "met_tags":
            database.execute(
                "INSERT INTO met_tags (space_id, tag, newest) SELECT id, ?, 0 FROM spaces LIMIT 1",
                (MARK,),
            )
        if table == "memory_stems":
            database.execute(
                "INSERT OR IGNORE INTO memory_stems SELECT id, ? FROM memories LIMIT 1", (MARK,)
            )
        if table == "area_stems":
            database.execute(
                "INSERT OR IGNORE INTO area_stems SELECT area, 0, ? FROM spaces LIMIT 1", (MARK,)
            )
        if table == "agents":
            database.execute("INSERT OR IGNORE INTO agents VALUES (?, 9)", (MARK,))
        count = database.execute(
            f"UPDATE {table} SET {column} = CAST(CAST({column} AS BLOB) || x'ff' AS TEXT)"
        ).rowcount
        database.execute("COMMIT")
        return count


def _hear(database: sqlite3.Connection) -> None:
    """A transcript of a session that may have been idle, and ended, since it was sent."""
    database.execute(
        """INSERT OR IGNORE INTO transcripts
           SELECT number, 1, 1, 0, :said, :said, :now FROM sessions WHERE id = :session""",
        {"said": text("said"), "now": micros(datetime.now(UTC)), "session": f"{MARK}-0"},
    )


def mended(path: Path, table: str, column: str) -> None:
    """Take that byte away again."""
    bare = f"CAST({column} AS BLOB)"
    with closing(connect(path)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute(
            f"""UPDATE OR IGNORE {table}
                   SET {column} = CAST(substr({bare}, 1, length({bare}) - 1) AS TEXT)
                 WHERE substr({bare}, -1) = x'ff'"""
        )
