"""A database file, looked at from outside: its rows, its soundness, what stands beside it."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.search import Filter
from agentops_memory.recall.recall import Recall
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.migrate import MIGRATIONS

from .database import assert_index_is_whole
from .engine import opened
from .engines import is_postgresql, rows

T = TypeVar("T")

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
NEWEST = len(list(MIGRATIONS.iterdir()))  # the format of a file


def reading(path: Path, work: Callable[[Transaction], T]) -> T:
    """What a read sees in the file, upgraded if it is not yet."""

    async def read() -> T:
        async with opened(path, lambda: NOW) as engine:
            return await engine.read(OPERATOR, work)

    return asyncio.run(read())


def found(path: Path, text: str) -> list[int]:
    """The ids that a search finds."""

    async def search() -> list[int]:
        async with opened(path, lambda: NOW) as engine:
            answer = await Recall(engine=engine).search(OPERATOR, text, Filter(), 10)
        return [hit.memory.id for hit in answer.hits]

    return asyncio.run(search())


def old_texts(path: Path) -> list[tuple[object, ...]]:
    return rows(path, "SELECT id, title, content FROM observations ORDER BY id")


def schema(path: Path) -> list[tuple[object, ...]]:
    return rows(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name")


def assert_sound(path: Path, *, live: int) -> None:
    """The file is ours, in WAL mode, nothing in it is damaged, and the index is whole."""
    if is_postgresql():
        assert rows(path, "SELECT count(*) FROM memories WHERE deleted_at IS NULL") == [(live,)]
        assert_index_is_whole(path)
        return
    with closing(connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("SELECT count(*) FROM memory_text").fetchone() == (live,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA user_version").fetchone() == (NEWEST,)
    assert_index_is_whole(path)


def copy_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.before-upgrade")


def beside(path: Path) -> list[str]:
    """All that stands beside the file, but for SQLite's own and the lock of whoever serves it."""
    names = {file.name for file in path.parent.iterdir()}
    own = ("", "-wal", "-shm", "-journal", ".lock")
    return sorted(names - {path.name + suffix for suffix in own})


@contextmanager
def disk(folder: Path, *, size: int) -> Iterator[Path]:
    """A disk of its own, of so many bytes; a test that cannot have one is skipped."""
    folder.mkdir()
    if os.geteuid() != 0 or not mounted("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder):
        pytest.skip("a disk of its own needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def mounted(*arguments: str | Path) -> bool:
    """Whether the mount was made."""
    return not subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode
