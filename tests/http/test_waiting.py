"""Callers that wait, leave, or come too late: no transaction is torn and no place is lost."""

import asyncio
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Busy
from agentops_memory.memory import saves as memories
from agentops_memory.memory.access import OPERATOR
from agentops_memory.sqlite import SqliteEngine, connection, engine, transaction
from agentops_memory.sqlite.connection import connect

from ..support.engine import SOON, cancel, count, draft, held, locked, opened, run, save, turns
from ..support.process import until

SHORT = 0.2  # seconds in which nothing may come


def test_a_cancelled_write_that_has_begun_is_committed_whole(path: Path) -> None:
    began, cancelled = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        memories.save(tx, draft("first half"), timedelta())
        began.set()
        assert cancelled.wait(SOON)
        memories.save(tx, draft("second half"), timedelta())

    async def test(database: SqliteEngine) -> None:
        writing = asyncio.create_task(database.write(OPERATOR, work))
        await asyncio.to_thread(began.wait, SOON)
        await cancel(writing)
        cancelled.set()
        await save(database, "next")
        assert await count(database) == 3

    run(path, test)


def test_cancelled_writes_give_their_places_in_the_queue_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "QUEUE", 2)
    path = tmp_path / "memory.db"

    async def test(database: SqliteEngine) -> None:
        for _ in range(3):
            with locked(path):
                waiting = [asyncio.create_task(save(database, "left")) for _ in range(5)]
                await turns(5)
                await asyncio.gather(*map(cancel, waiting))
            await save(database, "stayed")
        # Of each round two had a place and were under way; three never were.
        assert await count(database) == 3 * (2 + 1)

    run(path, test)


def test_a_full_queue_makes_a_write_wait_and_then_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "QUEUE", 2)
    monkeypatch.setattr(engine, "QUEUE_TIMEOUT", timedelta(milliseconds=50))
    path = tmp_path / "memory.db"

    async def test(database: SqliteEngine) -> None:
        with locked(path):
            first = [asyncio.create_task(save(database, "accepted")) for _ in range(2)]
            await turns(5)
            with pytest.raises(Busy, match="Too many writes are waiting"):
                await save(database, "refused")
        await asyncio.gather(*first)
        assert await count(database) == 2

    run(path, test)


def test_a_write_that_gets_a_place_in_time_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "QUEUE", 1)
    path = tmp_path / "memory.db"

    async def test(database: SqliteEngine) -> None:
        with locked(path):
            saves = [asyncio.create_task(save(database, "waits")) for _ in range(20)]
            await turns(5)
        await asyncio.gather(*saves)
        assert await count(database) == 20

    run(path, test)


def test_a_reader_whose_caller_left_is_not_lent_out_before_it_is_free(path: Path) -> None:
    began, free = threading.Event(), threading.Event()

    def work(_: Transaction) -> None:
        began.set()
        assert free.wait(SOON)

    async def test(database: SqliteEngine) -> None:
        abandoned = asyncio.create_task(database.read(OPERATOR, work))
        await asyncio.to_thread(began.wait, SOON)
        await cancel(abandoned)
        try:
            # On the other reader; behind the abandoned work it would not be answered.
            assert await asyncio.gather(*(count(database) for _ in range(5))) == [0] * 5
        finally:
            free.set()

    run(path, test)


def test_a_read_whose_caller_left_while_it_waited_is_not_run(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "READERS", 1)
    began, free, ran = threading.Event(), threading.Event(), threading.Event()

    def work(_: Transaction) -> None:
        began.set()
        assert free.wait(SOON)

    async def test(database: SqliteEngine) -> None:
        reading = asyncio.create_task(database.read(OPERATOR, work))
        await asyncio.to_thread(began.wait, SOON)
        waiting = asyncio.create_task(database.read(OPERATOR, lambda _: ran.set()))
        await turns(5)
        await cancel(waiting)
        free.set()
        await reading
        assert await count(database) == 0
        assert not ran.is_set()

    run(path, test)


def test_a_read_waits_for_a_free_reader_and_is_then_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "READERS", 1)
    began, free = threading.Event(), threading.Event()

    def work(_: Transaction) -> None:
        began.set()
        assert free.wait(SOON)

    async def test(database: SqliteEngine) -> None:
        reading = asyncio.create_task(database.read(OPERATOR, work))
        await asyncio.to_thread(began.wait, SOON)
        with monkeypatch.context() as patched:
            patched.setattr(transaction, "READ_TIMEOUT", timedelta(milliseconds=50))
            with pytest.raises(Busy, match="Too many reads are waiting"):
                await count(database)
        free.set()
        await reading
        assert await asyncio.gather(*(count(database) for _ in range(20))) == [0] * 20

    run(path, test)


def test_a_read_does_not_wait_for_writes(path: Path) -> None:
    async def test(database: SqliteEngine) -> None:
        async with held(database):
            waiting = [asyncio.create_task(save(database, str(number))) for number in range(5)]
            await turns(2)
            assert await count(database) == 0
        await asyncio.gather(*waiting)
        assert await count(database) == 5

    run(path, test)


def test_a_write_is_not_refused_with_those_that_have_waited_longer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(database: SqliteEngine) -> None:
        monkeypatch.setattr(engine, "BUSY_TIMEOUT", timedelta(milliseconds=100))
        with locked(path):
            early = [asyncio.create_task(save(database, "early")) for _ in range(2)]
            await turns(1)
            monkeypatch.setattr(engine, "BUSY_TIMEOUT", timedelta(seconds=SOON))
            late = asyncio.create_task(save(database, "late"))
            for error in await asyncio.gather(*early, return_exceptions=True):
                assert isinstance(error, Busy)
        await late
        assert await count(database) == 1

    run(path, test)


def test_closing_lets_what_was_accepted_end_and_leaves_no_thread_behind(tmp_path: Path) -> None:
    path, before = tmp_path / "memory.db", set(threading.enumerate())

    async def whole() -> None:
        async with opened(path) as database:
            saves = [asyncio.create_task(save(database, str(number))) for number in range(50)]
            await turns(1)
        await asyncio.gather(*saves)

    asyncio.run(whole())

    with closing(connect(path)) as database:
        assert database.execute("SELECT count(*) FROM memories").fetchone() == (50,)
    assert until(lambda: before.issuperset(threading.enumerate()))


@pytest.mark.sqlite_files
def test_readers_stay_behind_while_nobody_takes_their_answers(path: Path) -> None:
    began = [threading.Event() for _ in range(connection.AHEAD + transaction.READERS + 1)]

    def read(_: Transaction, number: int) -> int:
        began[number].set()
        return number

    async def test(database: SqliteEngine) -> None:
        reads = [asyncio.create_task(database.read(OPERATOR, read, it)) for it in range(len(began))]
        await turns(1)
        # The loop does not turn from here on.
        assert all(it.wait(SOON) for it in began[: connection.AHEAD])
        assert not began[connection.AHEAD].wait(SHORT)

        assert await asyncio.gather(*reads) == list(range(len(began)))

    run(path, test)


@pytest.mark.sqlite_files
def test_callers_that_leave_begun_reads_leave_no_place_taken(path: Path) -> None:
    async def test(database: SqliteEngine) -> None:
        for _ in range(connection.AHEAD + 1):
            free, began, end = threading.Event(), threading.Event(), threading.Event()

            def block(_: Transaction, free: threading.Event = free) -> None:
                assert free.wait(SOON)

            def late(
                _: Transaction, began: threading.Event = began, end: threading.Event = end
            ) -> None:
                began.set()
                assert end.wait(SOON)

            first = [asyncio.create_task(database.read(OPERATOR, block)) for _ in range(2)]
            await turns(1)
            waiting = asyncio.create_task(database.read(OPERATOR, late))  # for a reader
            await turns(5)
            free.set()
            await asyncio.gather(*first)
            await asyncio.to_thread(began.wait, SOON)
            await cancel(waiting)
            end.set()

        assert await count(database) == 0

    run(path, test)
