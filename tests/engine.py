"""The engine without a service around it: opened for one test, written to and counted."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path

from agentops_memory.domain import memories
from agentops_memory.domain.model import DEFAULT_TENANT, Draft, SessionId, Space, Text
from agentops_memory.domain.ports import Transaction
from agentops_memory.domain.text import Project
from agentops_memory.storage.sqlite import SqliteEngine
from agentops_memory.storage.sqlite.connection import connect

from .service import Clock

SOON = 10.0  # seconds; it comes at once, or never


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteEngine]:
    async with SqliteEngine.opened(path, clock=Clock()) as opened_engine:
        yield opened_engine


def run(path: Path, test: Callable[[SqliteEngine], Awaitable[None]]) -> None:
    """Run the test on an engine over the file, and close it."""

    async def whole() -> None:
        async with asyncio.timeout(SOON), opened(path) as opened_engine:
            await test(opened_engine)

    asyncio.run(whole())


def draft(content: str) -> Draft:
    text = Text(type="discovery", title=content, content=content)
    return Draft(session=SessionId("s"), space=Space(project=Project("demo")), text=text)


async def save(database: SqliteEngine, content: str) -> None:
    await database.write(DEFAULT_TENANT, memories.save, draft(content), timedelta())


async def count(database: SqliteEngine) -> int:
    return await database.read(DEFAULT_TENANT, lambda tx: tx.memories.count(None))


def statement(tx: Transaction, text: str) -> sqlite3.Cursor:
    """A statement on the transaction's own connection."""
    cursor: sqlite3.Cursor = tx.memories._execute(text)  # type: ignore[attr-defined]  # noqa: SLF001
    return cursor


def locked(path: Path) -> closing[sqlite3.Connection]:
    """Another process's transaction, until it is closed."""
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    return closing(other)


async def turns(number: int) -> None:
    """Let the loop turn, so that what was started waits where it will."""
    for _ in range(number):
        await asyncio.sleep(0)


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
