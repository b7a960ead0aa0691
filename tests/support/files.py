"""A database file, looked at from outside: its rows, its index, what stands beside it."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.search import Filter
from agentops_memory.recall.recall import Recall
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.index import Index
from agentops_memory.sqlite.migrate import MIGRATIONS
from agentops_memory.sqlite.partitions import Partitions
from agentops_memory.sqlite.repair import is_exact

from .engine import opened
from .engines import is_postgresql, rows
from .service import Service


def assert_index_is_whole(path: Path) -> None:
    """Each part of it holds just the live memories that lie in it, word for word."""
    if is_postgresql():
        with ThreadPoolExecutor(1) as thread:  # this one may run a loop
            thread.submit(asyncio.run, _assert_areas_are_whole(path)).result()
        return
    put_in_index(path)
    with closing(connect(path)) as database:
        partitions = Partitions(database, is_alone=True)
        for number in partitions.all():
            assert is_exact(path, number), number
            assert partitions.drift(number) == 0, number
        needed = database.execute(
            "SELECT DISTINCT partition FROM spaces WHERE partition IS NOT NULL"
        ).fetchall()
        assert {number for (number,) in needed} <= set(partitions.all())


def put_in_index(path: Path) -> None:
    """Let no memory wait for the full-text index, which PostgreSQL never does."""
    if is_postgresql():
        return
    with closing(connect(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        Index(database).flush()
        database.execute("COMMIT")


def gather_stems(path: Path) -> None:
    """Store and gather the stems of all memories, as a sweep does."""
    with closing(connect(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        index = Index(database)
        after: int | None = 0
        while after is not None:
            missing, after = index.missing_stems(after)
            index.store_stems(missing)
        for area, state in index.areas.behind():
            index.areas.store(index.areas.area(area), state)
        database.execute("COMMIT")


def assert_undamaged(path: Path) -> None:
    """Every reference leads somewhere, and no page is damaged; PostgreSQL sees to that itself."""
    if not is_postgresql():
        assert rows(path, "PRAGMA foreign_key_check") == []
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]


async def _assert_areas_are_whole(path: Path) -> None:
    async with opened(path) as engine:
        await engine.read(OPERATOR, assert_areas_are_whole)


def assert_areas_are_whole(tx: Any) -> None:
    """What a transaction of PostgreSQL sees of the index is just what memories say."""
    for area, drift in tx.index.drifts().items():
        assert tx.index.is_exact(area), area
        assert drift == 0, area


def imported(
    service: Service,
    observations: Iterable[dict[str, object]] = (),
    sessions: Iterable[dict[str, object]] = (),
) -> None:
    """Many rows in one request."""
    body = {"sessions": list(sessions), "observations": list(observations)}
    answer = service.http.post("/import", json=body)
    assert answer.status_code == 200, answer.text


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
