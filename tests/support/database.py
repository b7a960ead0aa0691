"""A look into the service's file, and rows put there in one request."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from agentops_memory.memory.access import OPERATOR
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.index import Index
from agentops_memory.sqlite.partitions import Partitions

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
            assert partitions.is_exact(number), number
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
