"""Damage done to a database file under whoever uses it."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from agentops_memory.sqlite.connection import connect

WORDS = tuple(f"memories_fts_0_{part}" for part in ("data", "idx", "docsize", "config"))


def page_of(path: Path, table: str) -> int:
    """The first page of a table."""
    with closing(connect(path)) as database:
        ((page,),) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
    return int(page)


def harmed(path: Path, page: int, contents: bytes | None = None) -> bytes:
    """What a page held before other contents took its place, zeros if none are given.

    Whoever has the file open sees it from the next transaction on.
    """
    with closing(connect(path)) as database:
        ((size,),) = database.execute("PRAGMA page_size")
        _hold(database, path)
        before = _dd(f"if={path}", f"skip={page - 1}", size=size)
        place = f"of={path}", f"seek={page - 1}", "conv=notrunc"
        _dd(*place, size=size, given=contents or bytes(size))
        ((version,),) = database.execute("PRAGMA user_version")
        database.execute(f"PRAGMA user_version = {version}")  # a commit empties others' caches
        database.execute("COMMIT")
    return before


def _hold(database: sqlite3.Connection, path: Path) -> None:
    """Keep others from writing, while nothing is in the log: else its page would count."""
    log = path.with_name(f"{path.name}-wal")
    while True:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        database.execute("BEGIN IMMEDIATE")
        if not log.stat().st_size:
            return
        database.execute("ROLLBACK")


def _dd(*arguments: str, size: int, given: bytes | None = None) -> bytes:
    # By another process: this one would lose its locks on the file with the first that it closes.
    command = ["dd", f"bs={size}", "count=1", "iflag=fullblock", "status=none", *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout
