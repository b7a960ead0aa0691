"""A transaction happens whole or not at all, and leaves its connection as it found it."""

import asyncio
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Unavailable
from agentops_memory.memory import saves as memories
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.sqlite import SqliteEngine, engine
from agentops_memory.sqlite import transaction as readers

from ..support.engine import SOON, count, draft, run, save, statement


class Torn(BaseException):
    """No Exception: like a KeyboardInterrupt."""


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (ValueError("no"), ValueError),
        (Torn(), Torn),
        (MemoryError(), MemoryError),
        (asyncio.CancelledError(), asyncio.CancelledError),
        # A future cannot carry it: its caller would wait for ever.
        (StopIteration(), RuntimeError),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_work_that_raises_has_not_happened_and_the_next_is_undisturbed(
    failure: BaseException, raised: type[BaseException], path: Path
) -> None:
    def work(tx: Transaction) -> None:
        memories.save(tx, draft("torn"), timedelta())
        raise failure

    async def test(database: SqliteEngine) -> None:
        for transaction in (database.write, database.write, database.read):
            with pytest.raises(Unavailable if transaction == database.read else raised):
                await transaction(OPERATOR, work)
        await save(database, "whole")
        assert await count(database) == 1

    run(path, test)


def test_work_that_ends_its_transaction_itself_leaves_a_connection_that_works(path: Path) -> None:
    def work(tx: Transaction) -> None:
        memories.save(tx, draft("torn"), timedelta())
        statement(tx, "ROLLBACK")

    async def test(database: SqliteEngine) -> None:
        with pytest.raises(sqlite3.OperationalError, match="no transaction is active"):
            await database.write(OPERATOR, work)
        await save(database, "whole")
        assert await count(database) == 1

    run(path, test)


def test_a_read_sees_the_newest_state_after_one_that_raised_with_a_query_half_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "READERS", 1)

    def work(tx: Transaction) -> None:
        half_read = statement(tx, "SELECT id FROM memories")
        half_read.fetchone()
        raise ValueError("half-way")

    async def test(database: SqliteEngine) -> None:
        for number in range(3):
            await save(database, str(number))
        with pytest.raises(ValueError, match="half-way") as kept:
            await database.read(OPERATOR, work)
        await save(database, "later")
        assert await count(database) == 4
        assert kept.value.args == ("half-way",)

    run(path, test)


def test_a_read_cannot_write(path: Path) -> None:
    async def test(database: SqliteEngine) -> None:
        with pytest.raises(Unavailable, match="read-only"):
            await database.read(OPERATOR, memories.save, draft("no"), timedelta())
        assert await count(database) == 0

    run(path, test)


def test_a_read_keeps_its_snapshot_while_others_write(path: Path) -> None:
    began, written = threading.Event(), threading.Event()

    def work(tx: Transaction) -> tuple[int, int]:
        before = tx[MemoryTable].count(None)
        began.set()
        assert written.wait(SOON)
        return before, tx[MemoryTable].count(None)

    async def test(database: SqliteEngine) -> None:
        reading = asyncio.create_task(database.read(OPERATOR, work))
        await asyncio.to_thread(began.wait, SOON)
        await save(database, "meanwhile")
        written.set()
        assert await reading == (0, 0)
        assert await count(database) == 1

    run(path, test)


@pytest.mark.slow
def test_a_read_that_takes_too_long_is_stopped_and_its_connection_works_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "READERS", 1)

    def work(tx: Transaction) -> None:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        statement(tx, f"{endless} SELECT count(*) FROM n").fetchone()

    async def test(database: SqliteEngine) -> None:
        await save(database, "one")
        monkeypatch.setattr(engine, "READ_LIMIT", timedelta(milliseconds=50))
        for _ in range(2):
            with pytest.raises(Unavailable, match="took too long"):
                await database.read(OPERATOR, work)
            assert await count(database) == 1

    run(path, test)


def test_a_write_may_take_longer_than_a_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "READ_LIMIT", timedelta())

    def work(tx: Transaction) -> None:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
        statement(tx, f"{numbers} SELECT count(*) FROM n").fetchone()
        memories.save(tx, draft("at last"), timedelta())

    async def test(database: SqliteEngine) -> None:
        await database.write(OPERATOR, work)
        assert await count(database) == 1

    run(path, test)
