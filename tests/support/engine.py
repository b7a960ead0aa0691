"""The engine without a service around it: opened for one test, written to and counted."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.memory import saves as memories
from agentops_memory.memory.access import DEFAULT_TENANT, OPERATOR
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.memory import Draft, SessionId, Text
from agentops_memory.memory.space import Project, Retentions, Space, StorageStats
from agentops_memory.postgresql import transaction
from agentops_memory.postgresql.engine import PostgresEngine
from agentops_memory.postgresql.tenants import storage_stats as postgresql_stats
from agentops_memory.postgresql.transaction import number_of
from agentops_memory.sqlite import SqliteEngine, connection
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.tenants import storage_stats as sqlite_stats

from .engines import DATABASE_URL, is_postgresql, rows, storage_at
from .service import Clock

Work = Callable[[Transaction], object]

SOON = 120.0  # seconds; it comes at once, or never


@asynccontextmanager
async def opened(
    path: Path, clock: Callable[[], datetime] | None = None, **options: Any
) -> AsyncIterator[SqliteEngine]:
    """The engine of the run, where a service of the file would store."""
    if url := storage_at(path).get(DATABASE_URL):
        async with PostgresEngine.opened(url, clock=clock or Clock(), **options) as other:
            yield cast(SqliteEngine, other)
        return
    async with SqliteEngine.opened(path, clock=clock or Clock(), **options) as opened_engine:
        yield opened_engine


def run(
    path: Path, test: Callable[[SqliteEngine], Awaitable[None]], clock: Clock | None = None
) -> None:
    """Run the test on an engine over the file, and close it."""

    async def whole() -> None:
        async with asyncio.timeout(SOON), opened(path, clock) as opened_engine:
            await test(opened_engine)

    asyncio.run(whole())


def draft(content: str) -> Draft:
    text = Text(type="discovery", title=content, content=content)
    return Draft(session=SessionId("s"), space=Space(project=Project("demo")), text=text)


async def save(database: SqliteEngine, content: str) -> None:
    await database.write(OPERATOR, memories.save, draft(content), timedelta())


async def count(database: SqliteEngine) -> int:
    return await database.read(OPERATOR, lambda tx: tx[MemoryTable].count(None))


def saving(content: str, then: Work | None = None) -> Work:
    """Work that saves, then does something else, and answers with the content."""

    def work(tx: Transaction) -> str:
        memories.save(tx, draft(content), timedelta())
        if then is not None:
            then(tx)
        return content

    return work


def raising(error: BaseException) -> Work:
    """Work that raises."""

    def work(_: Transaction) -> None:
        raise error

    return work


class Seen:
    """Work that saves, and remembers how often it was run, and whether alone."""

    def __init__(self, content: str) -> None:
        self.alone: list[bool] = []
        self._save = saving(content)

    def __call__(self, tx: Transaction) -> object:
        self.alone.append(tx.is_alone)
        return self._save(tx)


@asynccontextmanager
async def held(database: SqliteEngine) -> AsyncIterator[None]:
    """The writer is at work until the end, so that writes that come meanwhile wait together."""
    began, free = threading.Event(), threading.Event()

    def work(_: Transaction) -> None:
        began.set()
        assert free.wait(SOON)

    holding = asyncio.create_task(database.write(OPERATOR, work))
    await asyncio.to_thread(began.wait, SOON)
    try:
        yield
    finally:
        free.set()
        await asyncio.wait_for(holding, SOON)


async def together(database: SqliteEngine, works: Iterable[Work]) -> list[object]:
    """What came of works that waited together: the answer of each, or its error."""
    async with held(database):
        waiting = [asyncio.create_task(database.write(OPERATOR, work)) for work in works]
        await turns(2)
    return await asyncio.gather(*waiting, return_exceptions=True)


def statement(tx: Transaction, text: str) -> sqlite3.Cursor:
    """A statement on the transaction's own connection."""
    return cast("sqlite3.Cursor", tx[MemoryTable]._execute(text))  # noqa: SLF001


def locked(path: Path) -> closing[Any]:
    """Another process's transaction, until it is closed."""
    other = connected(path)
    if is_postgresql():
        other.execute("SELECT pg_advisory_xact_lock(%s)", (number_of("t_default"),))
    else:
        other.execute("BEGIN IMMEDIATE")
    return closing(other)


def connected(path: Path) -> Any:
    """A connection to where a service of the file stores, beside it."""
    url = storage_at(path).get(DATABASE_URL)
    return psycopg.connect(url) if url else connect(path)


def stats(path: Path, retention: Retentions, at: datetime) -> StorageStats:
    """What the default tenant of a service of the file takes, and keeps for a time."""
    if not is_postgresql():
        return sqlite_stats(path, retention, at)
    with closing(connected(path)) as connection:
        return postgresql_stats(connection, DEFAULT_TENANT, retention, at)


def impatient(monkeypatch: pytest.MonkeyPatch, timeout: timedelta) -> None:
    """Let a write wait no longer than this for those of others."""
    monkeypatch.setattr(connection, "BUSY_TIMEOUT", timeout)
    monkeypatch.setattr(transaction, "MAX_WAIT", timeout)


def slow_words(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it take time to look for words where a service of the file stores."""
    if not is_postgresql():
        monkeypatch.setattr(connection, "PROGRESS", 1)  # instructions, after which it is asked
        return
    rows(path, "ALTER TABLE postings RENAME TO found")
    rows(path, "CREATE VIEW postings AS SELECT * FROM found WHERE pg_sleep(0.002) IS NOT NULL")


async def turns(number: int) -> None:
    """Let the loop turn, so that what was started waits where it will."""
    for _ in range(number):
        await asyncio.sleep(0)


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


def contents(path: Path) -> list[str]:
    """What is in the file, in the order in which it was stored."""
    return [content for (content,) in rows(path, "SELECT content FROM memories ORDER BY id")]


def commits(path: Path) -> int:
    """How many commits the write-ahead log holds: each ends with a frame that says so."""
    log = Path(f"{path}-wal").read_bytes()
    page, salts = int.from_bytes(log[8:12], "big"), log[16:24]
    frames = [log[at : at + 24] for at in range(32, len(log), 24 + page)]
    return sum(frame[4:8] != bytes(4) and frame[8:16] == salts for frame in frames)
