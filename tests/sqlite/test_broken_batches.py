"""Errors in batches: of one write, of its whole transaction, of the commit, of the writer."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Conflict, NotFound, Unavailable
from agentops_memory.memory import saves as changes
from agentops_memory.memory.memory import MemoryId
from agentops_memory.secrets.redaction import DEFAULT_RULES
from agentops_memory.sqlite import SqliteEngine, writer

from ..support.engine import (
    Seen,
    Work,
    commits,
    contents,
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
    changes.restore(tx, MemoryId(1_000_000), 1, DEFAULT_RULES)


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
            patched.setattr(writer.Writer, "_together", broken)
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
