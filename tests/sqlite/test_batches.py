"""Writes that wait together share a commit, and each is done or refused as if it were alone."""

import asyncio
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import RunAgain, Unavailable
from agentops_memory.memory.access import OPERATOR
from agentops_memory.sqlite import SqliteEngine, engine, transaction

from ..support.engine import (
    SOON,
    Seen,
    cancel,
    commits,
    contents,
    count,
    held,
    opened,
    raising,
    run,
    save,
    saving,
    statement,
    together,
    turns,
)
from ..support.engines import rows
from ..support.files import assert_sound
from ..support.samples import for_each
from ..support.service import START, Clock


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes in whoever waits, however slow the machine is."""
    monkeypatch.setattr(transaction, "LONGEST", timedelta(hours=1))


@pytest.mark.slow
def test_an_answered_write_is_on_disk_although_the_process_ends_there(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    (copies := tmp_path / "copies").mkdir()

    async def answered(database: SqliteEngine, name: str) -> None:
        await database.write(OPERATOR, saving(name))
        (there := copies / name).mkdir()
        for file in (path, Path(f"{path}-wal")):
            shutil.copy(file, there)

    async def test(database: SqliteEngine) -> None:
        async with held(database):
            saves = [asyncio.create_task(answered(database, str(n))) for n in range(10)]
            await turns(2)
        await asyncio.gather(*saves)

    run(path, test)
    for name in map(str, range(10)):
        assert name in contents(copies / name / path.name)
        assert_sound(copies / name / path.name, live=10)


def test_each_write_of_a_batch_has_an_instant_of_its_own(path: Path) -> None:
    clock = Clock()

    def work(tx: Transaction) -> object:
        clock.advance(minutes=1)
        return tx.now - START

    async def test(database: SqliteEngine) -> None:
        minutes = [timedelta(minutes=number) for number in range(3)]
        assert await together(database, [work] * 3) == minutes

    run(path, test, clock)


def test_work_that_makes_a_table_is_run_again_in_a_transaction_of_its_own(path: Path) -> None:
    one, maker, other = Seen("one"), Seen("maker"), Seen("other")

    def making(tx: Transaction) -> object:
        answer = maker(tx)
        if not maker.alone[-1]:
            raise RunAgain
        statement(tx, "CREATE TABLE made (id INTEGER PRIMARY KEY)")
        return answer

    async def test(database: SqliteEngine) -> None:
        await save(database, "before")
        assert await together(database, [one, making, other]) == ["one", "maker", "other"]

    run(path, test)
    assert contents(path) == ["before", "one", "maker", "other"]
    assert (one.alone, maker.alone, other.alone) == ([False, True], [False, True], [True])
    assert rows(path, "SELECT * FROM made") == []


@for_each("bounds, number", [({}, 1), ({"MEMBERS": 5}, 3), ({"LONGEST": timedelta()}, 12)])
def test_writes_that_wait_share_a_commit_in_order_and_what_has_no_room_the_next(
    tmp_path_factory: pytest.TempPathFactory, bounds: dict[str, Any], number: int
) -> None:
    names = [str(number) for number in range(12)]
    path = tmp_path_factory.mktemp("batch") / "memory.db"

    async def test(database: SqliteEngine) -> None:
        await save(database, "before")
        before = commits(path)
        assert await together(database, map(saving, names)) == names
        assert commits(path) == before + number

    with pytest.MonkeyPatch.context() as bounded:
        for name, most in bounds.items():
            bounded.setattr(transaction, name, most)
        run(path, test)
    assert contents(path) == ["before", *names]
    assert_sound(path, live=13)


def test_a_caller_that_leaves_a_batch_takes_nothing_with_it(path: Path) -> None:
    async def test(database: SqliteEngine) -> None:
        async with held(database):
            saves = [asyncio.create_task(save(database, str(number))) for number in range(4)]
            failing = asyncio.create_task(
                database.write(OPERATOR, saving("no", raising(ValueError())))
            )
            await turns(2)
            await cancel(saves[1])
            failing.cancel()
        await asyncio.gather(*saves, failing, return_exceptions=True)
        assert await count(database) == 4

    run(path, test)
    assert contents(path) == ["0", "1", "2", "3"]


@pytest.mark.slow
def test_closing_with_a_full_line_ends_what_was_accepted_and_refuses_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "QUEUE", 5)
    path = tmp_path / "memory.db"

    async def whole() -> list[object]:
        async with opened(path) as database, held(database):
            works = [saving(str(number)) for number in range(20)]
            saves = [asyncio.create_task(database.write(OPERATOR, work)) for work in works]
            await turns(2)
        with pytest.raises(Unavailable, match="closed"):
            await save(database, "too late")
        return await asyncio.gather(*saves, return_exceptions=True)

    answers = asyncio.run(asyncio.wait_for(whole(), SOON))

    done = [answer for answer in answers if isinstance(answer, str)]
    assert done[:4] == ["0", "1", "2", "3"]
    assert all(isinstance(answer, str | Unavailable) for answer in answers)
    assert contents(path) == done
