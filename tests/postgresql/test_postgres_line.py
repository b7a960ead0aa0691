"""Work that waits for a turn, or for a connection: what happens of it, by itself or with others."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Busy
from agentops_memory.memory.access import OPERATOR, Caller, TenantId
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.postgresql import transaction
from agentops_memory.postgresql.engine import PostgresEngine
from agentops_memory.sqlite import SqliteEngine

from ..support.engine import SOON, cancel, saving, together, turns
from ..support.service import Clock

Test = Callable[[PostgresEngine], Awaitable[None]]


def run(url: str, test: Test, **options: Any) -> None:
    """Run the test on an engine over the database."""

    async def whole() -> None:
        async with (
            asyncio.timeout(SOON),
            PostgresEngine.opened(url, clock=Clock(), **options) as engine,
        ):
            await test(engine)

    asyncio.run(whole())


def test_rows_of_an_import_are_stored_in_no_transaction_of_others(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All who share it would wait for them."""
    monkeypatch.setattr(transaction, "LONGEST", timedelta(seconds=SOON))
    commits = list[int]()

    def importing(tx: Transaction) -> object:
        tx.require_alone()
        return saving("two")(tx)

    async def test(engine: PostgresEngine) -> None:
        works = [saving("one"), importing, saving("three")]
        answers = await together(cast("SqliteEngine", engine), works)
        assert answers == ["one", "two", "three"]

    run(postgresql, test, committed=lambda count, _: commits.append(count))
    assert commits == [1, 2, 1]


def test_what_raises_after_it_wrote_leaves_nothing_and_harms_no_other(postgresql: str) -> None:
    commits = list[int]()

    def fail(_: Transaction) -> None:
        raise Busy("no")

    async def test(engine: PostgresEngine) -> None:
        works = [saving("one"), saving("two", fail), saving("three")]
        first, error, last = await together(cast("SqliteEngine", engine), works)
        assert (first, type(error), last) == ("one", Busy, "three")
        assert await engine.read(OPERATOR, lambda tx: tx[MemoryTable].count(None)) == 2

    run(postgresql, test, committed=lambda count, _: commits.append(count))
    assert commits == [1, 1, 1]


def test_what_its_caller_has_left_keeps_its_connection_until_it_ends(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, free = threading.Event(), threading.Event()

    def work(_: Transaction) -> None:
        began.set()
        assert free.wait(SOON)

    async def test(engine: PostgresEngine) -> None:
        left = asyncio.create_task(engine.read(OPERATOR, work))
        await asyncio.to_thread(began.wait, SOON)
        await cancel(left)
        monkeypatch.setattr(transaction, "PATIENCE", timedelta(milliseconds=10))
        with pytest.raises(Busy):
            await engine.read(OPERATOR, lambda _: None)
        free.set()
        monkeypatch.setattr(transaction, "PATIENCE", timedelta(seconds=SOON))
        assert await engine.read(OPERATOR, lambda _: "done") == "done"

    try:
        run(postgresql, test, size=1)
    finally:
        free.set()


@asynccontextmanager
async def at_work(engine: PostgresEngine, caller: Caller = OPERATOR) -> AsyncIterator[None]:
    """A write of the caller's tenant has a connection until the end."""
    began, free = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(_: Transaction) -> None:
        loop.call_soon_threadsafe(began.set)
        assert free.wait(SOON)

    writing = asyncio.create_task(engine.write(caller, work))
    try:
        await began.wait()
        yield
    finally:
        free.set()
        await writing


def test_one_that_has_waited_for_too_long_is_refused_without_those_behind_it(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would share a commit, for which there is no connection."""
    other = Caller(tenant=TenantId("acme"))

    async def test(engine: PostgresEngine) -> None:
        async with AsyncExitStack() as stack:
            async with at_work(engine):
                other_works = asyncio.create_task(stack.enter_async_context(at_work(engine, other)))
                await turns(5)
                monkeypatch.setattr(transaction, "PATIENCE", timedelta(milliseconds=200))
                first = asyncio.create_task(engine.write(OPERATOR, saving("first")))
                await turns(5)
                monkeypatch.setattr(transaction, "PATIENCE", timedelta(seconds=SOON))
                second = asyncio.create_task(engine.write(OPERATOR, saving("second")))
                await turns(5)
            await other_works
            with pytest.raises(Busy):
                await first
            assert not second.done()
        assert await second == "second"

    run(postgresql, test, size=1)


def test_what_its_caller_has_left_before_it_began_is_not_made(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "LONGEST", timedelta(0))  # of a group one is made
    began, free = threading.Event(), threading.Event()

    def waiting(_: Transaction) -> None:
        began.set()
        assert free.wait(SOON)

    async def test(engine: PostgresEngine) -> None:
        async with at_work(engine):
            first = asyncio.create_task(engine.write(OPERATOR, waiting))
            second = asyncio.create_task(engine.write(OPERATOR, saving("for nobody")))
            await turns(5)
        await asyncio.to_thread(began.wait, SOON)
        second.cancel()
        await asyncio.wait((second,))
        free.set()
        await first
        await engine.write(OPERATOR, saving("the next"))
        assert await engine.read(OPERATOR, lambda tx: tx[MemoryTable].count(None)) == 1

    run(postgresql, test)
