"""Work that waits for a turn, or for a connection: what happens of it, by itself or with others."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from agentops_memory.domain.ports.engine import Transaction
from agentops_memory.domain.ports.imports import ImportId
from agentops_memory.storage.postgresql.engine.engine import PostgresEngine
from agentops_memory.storage.sqlite import SqliteEngine

from .engine import SOON, saving, together
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
