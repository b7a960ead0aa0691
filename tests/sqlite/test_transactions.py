"""A transaction happens whole or not at all: errors of one write, of its batch, of the writer."""

import asyncio
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Conflict, NotFound, Unavailable
from agentops_memory.memory import saves as memories
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.memory import MemoryId
from agentops_memory.secrets.redaction import DEFAULT_RULES
from agentops_memory.sqlite import SqliteEngine, connection, transaction as readers

from ..support.engine import (
    SOON,
    Seen,
    Work,
    commits,
    contents,
    count,
    draft,
    held,
    raising,
    run,
    save,
    saving,
    statement,
    together,
    turns,
)
from ..support.files import assert_sound


class Torn(BaseException):
    """No Exception: like a KeyboardInterrupt."""


def refused(tx: Transaction) -> None:
    memories.restore(tx, MemoryId(1_000_000), 1, DEFAULT_RULES)


def not_unique(tx: Transaction) -> None:
    statement(tx, "INSERT INTO memories SELECT * FROM memories LIMIT 1")


def half_read(tx: Transaction) -> None:
    cursor = statement(tx, "SELECT id FROM memories")
    cursor.fetchone()
    raise ValueError("half-way")


def rolling_back(tx: Transaction) -> None:
    statement(tx, "ROLLBACK")


def interrupted(tx: Transaction) -> None:
    connection = statement(tx, "SELECT 1").connection
    connection.set_progress_handler(lambda: 1, 1)
    statement(tx, "UPDATE memories SET duplicates = duplicates")


def dangling(tx: Transaction) -> None:
    """What only the commit finds out."""
    statement(tx, "PRAGMA defer_foreign_keys = ON")
    statement(tx, "UPDATE memories SET session_id = 'nobody' WHERE content = 'guilty'")


RAISING: list[tuple[Work, type[BaseException]]] = [
    (raising(ValueError("no")), ValueError), (raising(Torn()), Torn),
    (raising(asyncio.CancelledError()), asyncio.CancelledError),
    (raising(StopIteration()), RuntimeError), (refused, NotFound), (not_unique, Conflict),
    (half_read, ValueError), (rolling_back, sqlite3.OperationalError), (interrupted, Unavailable),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.representative(5)
@pytest.mark.parametrize("has_written", [True, False])
@pytest.mark.parametrize(
    ("failure", "raised"), RAISING, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_write_that_raises_fails_alone_and_the_others_are_run_again_if_it_wrote(
    failure: Work, raised: type[BaseException], has_written: bool, path: Path
) -> None:
    one, other = Seen("one"), Seen("other")
    ends_it = failure in (rolling_back, interrupted)

    async def test(database: SqliteEngine) -> None:
        await save(database, "before")
        before = commits(path)
        guilty = saving("guilty", failure) if has_written else failure
        with pytest.raises(raised):
            await database.write(OPERATOR, guilty)
        assert ends_it or commits(path) == before
        before = commits(path)
        (first, error, last) = await together(database, [one, guilty, other])
        assert (first, last) == ("one", "other")
        assert isinstance(error, raised)
        assert ends_it or commits(path) == before + 1 + has_written
        await save(database, "after")

    run(path, test)
    assert contents(path) == ["before", "one", "other", "after"]
    if has_written or ends_it:
        assert (one.alone, other.alone) == ([False, True], [True])
    else:
        assert one.alone == other.alone == [False]
    assert_sound(path, live=4)


@pytest.mark.slow
def test_a_batch_that_cannot_be_committed_has_not_happened_and_each_is_run_alone(
    path: Path,
) -> None:
    one, other = Seen("one"), Seen("other")

    async def test(database: SqliteEngine) -> None:
        await save(database, "before")
        works: list[Work] = [one, saving("guilty", dangling), raising(ValueError("no")), other]
        (first, guilty, error, last) = await together(database, works)
        assert (first, last) == ("one", "other")
        assert isinstance(guilty, Conflict)
        assert isinstance(error, ValueError)

    run(path, test)
    assert contents(path) == ["before", "one", "other"]
    assert one.alone == other.alone == [False, True]
    assert_sound(path, live=3)


def test_a_fault_in_a_batch_itself_is_told_to_its_callers_and_the_next_is_served(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    async def test(database: SqliteEngine) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(readers.Writer, "_run_batch", broken)
            errors = await together(database, map(saving, "abc"))
        assert [type(error) for error in errors] == [MemoryError] * 3
        assert await together(database, map(saving, "abc")) == ["a", "b", "c"]

    run(path, test)
    assert contents(path) == ["a", "b", "c"]


def test_nobody_waits_for_ever_when_the_loop_of_the_writer_ends(path: Path) -> None:
    async def test(database: SqliteEngine) -> None:
        (serving,) = (task for task in asyncio.all_tasks() if "serve" in repr(task.get_coro()))
        async with held(database):
            saves = [asyncio.create_task(save(database, str(number))) for number in range(3)]
            await turns(2)
            serving.cancel()
            for error in await asyncio.gather(*saves, return_exceptions=True):
                assert isinstance(error, Unavailable)
            with pytest.raises(Unavailable, match="closed"):
                await save(database, "too late")

    with pytest.raises(Unavailable):  # the work that held the writer has lost its caller too
        run(path, test)


def test_a_read_sees_the_newest_state_after_one_that_raised_with_a_query_half_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "READERS", 1)

    async def test(database: SqliteEngine) -> None:
        for number in range(3):
            await save(database, str(number))
        with pytest.raises(ValueError, match="half-way") as kept:
            await database.read(OPERATOR, half_read)
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


def test_a_write_may_take_longer_than_a_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "READ_LIMIT", timedelta())

    def work(tx: Transaction) -> None:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
        statement(tx, f"{numbers} SELECT count(*) FROM n").fetchone()
        memories.save(tx, draft("at last"), timedelta())

    async def test(database: SqliteEngine) -> None:
        await database.write(OPERATOR, work)
        assert await count(database) == 1

    run(path, test)
