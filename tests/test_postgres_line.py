"""Work that waits for a turn, or for a connection: what happens of it, by itself or with others."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from agentops_memory.domain.errors import Busy
from agentops_memory.domain.model.access import OPERATOR
from agentops_memory.domain.ports.engine import Transaction
from agentops_memory.domain.ports.imports import ImportId
from agentops_memory.storage.postgresql.engine import admission
from agentops_memory.storage.postgresql.engine.engine import PostgresEngine
from agentops_memory.storage.sqlite import SqliteEngine

from .engine import SOON, cancel, saving, together
from .service import Clock

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


def test_rows_of_an_import_are_read_in_no_transaction_of_others(
    postgresql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All who share it would wait for them."""
    monkeypatch.setattr(group_commit, "LONGEST", timedelta(seconds=SOON))
    commits = list[int]()

    def read(tx: Transaction) -> int:
        return len(list(tx.imports.rows(ImportId(1))))

    async def test(engine: PostgresEngine) -> None:
        works = [saving("one"), saving("two", read), saving("three")]
        answers = await together(cast("SqliteEngine", engine), works)
        assert answers == ["one", "two", "three"]

    run(postgresql, test, committed=lambda count, _: commits.append(count))
    assert commits == [1, 2, 1]


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
        monkeypatch.setattr(admission, "PATIENCE", timedelta(milliseconds=10))
        with pytest.raises(Busy):
            await engine.read(OPERATOR, lambda _: None)
        free.set()
        monkeypatch.setattr(admission, "PATIENCE", timedelta(seconds=SOON))
        assert await engine.read(OPERATOR, lambda _: "done") == "done"

    try:
        run(postgresql, test, size=1)
    finally:
        free.set()
