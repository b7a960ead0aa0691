"""The write-ahead log stays short, also where some read or other always runs."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.http import app as health
from agentops_memory.memory.access import OPERATOR
from agentops_memory.sqlite import SqliteEngine, open_files as wal
from agentops_memory.sqlite.connection import Database, connect

from ..support.engine import count, run, save, statement
from ..support.service import serving

PAGE = 4096
LONG = 200  # pages
SAVES = 100


@pytest.mark.slow
def test_a_log_that_cannot_begin_again_holds_nothing_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "EVERY", 1)
    monkeypatch.setattr(wal, "LONG", 1)
    is_over = threading.Event()

    def read_on(tx: Transaction) -> None:
        statement(tx, "SELECT 1 FROM memories")
        assert is_over.wait(60)

    async def write_beside_a_long_read(engine: SqliteEngine) -> None:
        reading = asyncio.create_task(engine.read(OPERATOR, read_on))
        for number in range(3):
            await save(engine, f"apple {number}")
            assert await count(engine) == number + 1
        is_over.set()
        await reading

    run(path, write_beside_a_long_read)


def test_the_log_begins_again_once_a_read_that_began_before_has_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "EVERY", 1)
    monkeypatch.setattr(wal, "LONG", 1)
    monkeypatch.setattr(wal, "TIMEOUT", timedelta(minutes=1))
    has_begun, is_over = threading.Event(), threading.Event()
    outcomes = tried(monkeypatch, is_over.set)

    def read_on(tx: Transaction) -> None:
        statement(tx, "SELECT 1 FROM memories")
        has_begun.set()
        assert is_over.wait(60)

    async def write_beside_a_read(engine: SqliteEngine) -> None:
        reading = asyncio.create_task(engine.read(OPERATOR, read_on))
        await asyncio.to_thread(has_begun.wait)
        await save(engine, "apple")
        await reading

    run(path, write_beside_a_read)
    assert outcomes[0]


@pytest.mark.slow
def test_what_holds_the_log_for_long_is_waited_for_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal, "EVERY", 1)
    monkeypatch.setattr(wal, "LONG", LONG)
    monkeypatch.setattr(wal, "TIMEOUT", timedelta(milliseconds=1))
    path, outcomes = tmp_path / "memory.db", tried(monkeypatch)

    async def write_beside_a_replicator(engine: SqliteEngine) -> None:
        await save(engine, "apple")
        with closing(connect(path)) as replicator:
            replicator.execute("BEGIN")
            replicator.execute("SELECT 1 FROM memories").fetchone()
            for number in range(SAVES):
                await save(engine, f"apple {number} " + "x" * 2 * PAGE)
        assert outcomes
        assert not any(outcomes)
        assert len(outcomes) <= path.with_name("memory.db-wal").stat().st_size / PAGE / LONG
        for _ in range(2):  # the log is seen to after a save was answered
            await save(engine, "x" * LONG * PAGE)  # too little, were it held
            await save(engine, "pear")
            assert outcomes.pop()

    run(path, write_beside_a_replicator)


def test_readiness_warns_of_a_long_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))
    with serving(path) as service:
        log, statuses = path.with_name("memory.db-wal"), []
        for size in (log.stat().st_size, health.LONG_LOG - 1, health.LONG_LOG):
            os.truncate(log, size)  # what follows its last commit is no part of it
            statuses.append(service.http.get("/health/ready").json()["checks"]["wal"]["status"])

    assert statuses == ["ok", "ok", "warning"]


def tried(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], object] = lambda: None
) -> list[bool]:
    """Whether the log has begun again, each time that it was to."""
    outcomes, try_it = list[bool](), wal.restarted

    def restarted(database: Database) -> bool:
        before()
        outcomes.append(try_it(database))
        return outcomes[-1]

    monkeypatch.setattr(wal, "restarted", restarted)
    return outcomes
