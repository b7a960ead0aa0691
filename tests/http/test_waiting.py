"""Callers that wait, leave, or come too late: no transaction is torn and no place is lost."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Busy
from agentops_memory.memory import saves as memories
from agentops_memory.memory.access import OPERATOR
from agentops_memory.sqlite import SqliteEngine, connection, engine, transaction

from ..support.engine import SOON, cancel, count, draft, locked, run, save, turns

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


def test_a_write_that_gets_a_place_in_time_is_not_refused_and_no_read_waits_for_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "QUEUE", 1)
    monkeypatch.setattr(engine, "QUEUE_TIMEOUT", timedelta(seconds=SOON))
    monkeypatch.setattr(connection, "BUSY_TIMEOUT", timedelta(seconds=SOON))

    async def test(database: SqliteEngine) -> None:
        with locked(path):
            saves = [asyncio.create_task(save(database, "waits")) for _ in range(20)]
            await turns(5)
            assert await count(database) == 0
        await asyncio.gather(*saves)
        assert await count(database) == 20

    run(path, test)


class Blocked:
    """A read that goes on until it is freed."""

    def __init__(self) -> None:
        self.began, self.free = threading.Event(), threading.Event()

    def __call__(self, _: Transaction) -> None:
        self.began.set()
        assert self.free.wait(SOON)

    async def of(self, database: SqliteEngine) -> "asyncio.Task[None]":
        """The read, once it has begun."""
        reading = asyncio.create_task(database.read(OPERATOR, self))
        await asyncio.to_thread(self.began.wait, SOON)
        return reading


def test_a_reader_whose_caller_left_is_not_lent_out_before_it_is_free(path: Path) -> None:
    async def test(database: SqliteEngine) -> None:
        blocked = Blocked()
        await cancel(await blocked.of(database))
        try:
            # On the other reader; behind the abandoned work it would not be answered.
            assert await asyncio.gather(*(count(database) for _ in range(5))) == [0] * 5
        finally:
            blocked.free.set()

    run(path, test)


@pytest.mark.slow
def test_a_read_whose_caller_left_while_it_waited_is_not_run_and_one_that_waits_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "READERS", 1)
    ran = threading.Event()

    async def test(database: SqliteEngine) -> None:
        blocked = Blocked()
        reading = await blocked.of(database)
        waiting = asyncio.create_task(database.read(OPERATOR, lambda _: ran.set()))
        await turns(5)
        await cancel(waiting)
        with monkeypatch.context() as patched:
            patched.setattr(transaction, "READ_TIMEOUT", timedelta(milliseconds=50))
            with pytest.raises(Busy, match="Too many reads are waiting"):
                await count(database)
        blocked.free.set()
        await reading
        assert await asyncio.gather(*(count(database) for _ in range(20))) == [0] * 20
        assert not ran.is_set()

    run(path, test)


def test_a_write_is_not_refused_with_those_that_have_waited_longer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(database: SqliteEngine) -> None:
        monkeypatch.setattr(connection, "BUSY_TIMEOUT", timedelta(milliseconds=100))
        with locked(path):
            early = [asyncio.create_task(save(database, "early")) for _ in range(2)]
            await turns(1)
            monkeypatch.setattr(connection, "BUSY_TIMEOUT", timedelta(seconds=SOON))
            late = asyncio.create_task(save(database, "late"))
            for error in await asyncio.gather(*early, return_exceptions=True):
                assert isinstance(error, Busy)
        await late
        assert await count(database) == 1

    run(path, test)


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
            blocks, late = [Blocked(), Blocked()], Blocked()
            first = [await it.of(database) for it in blocks]
            waiting = asyncio.create_task(database.read(OPERATOR, late))  # for a reader
            await turns(5)
            for it in blocks:
                it.free.set()
            await asyncio.gather(*first)
            await asyncio.to_thread(late.began.wait, SOON)
            await cancel(waiting)
            late.free.set()

        assert await count(database) == 0

    run(path, test)
