"""The threads of connections: what they run for callers that leave, or are no more."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.errors import Busy, Unavailable
from agentops_memory.memory.access import OPERATOR
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.sqlite.connection import Threads, connect

from ..support.process import until
from ..support.service import Clock


@contextmanager
def one_thread(path: Path, **options: Any) -> Iterator[Threads]:
    threads = Threads([connect(path / "memory.db")], **options)
    try:
        yield threads
    finally:
        asyncio.run(threads.close())


def test_nothing_follows_a_read_that_was_refused_as_it_had_to_wait(tmp_path: Path) -> None:
    followed, go_on = list[object](), threading.Event()

    async def overloaded(threads: Threads) -> None:
        first = asyncio.create_task(threads.run(lambda _: go_on.wait(60)))
        await asyncio.sleep(0)
        for _ in range(3):
            with pytest.raises(Busy):
                await threads.run(lambda _: None)
        go_on.set()
        await first

    with one_thread(tmp_path, afterwards=followed.append, timeout=timedelta(0)) as threads:
        asyncio.run(overloaded(threads))
    assert len(followed) == 1


def test_a_thread_serves_others_when_the_loop_of_a_caller_was_closed(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work(_: object) -> None:
        begun.set()
        go_on.wait(60)

    async def leaving(threads: Threads) -> None:
        task = asyncio.create_task(threads.run(work))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()

    async def another(threads: Threads) -> int:
        async with asyncio.timeout(60):
            return await threads.run(lambda _: 5)

    with one_thread(tmp_path) as threads:
        asyncio.run(leaving(threads))
        go_on.set()
        assert asyncio.run(another(threads)) == 5


def test_connections_are_closed_even_if_the_one_who_closes_them_leaves(tmp_path: Path) -> None:
    connection, go_on = connect(tmp_path / "memory.db"), threading.Event()

    async def leaving() -> None:
        threads = Threads([connection])
        reading = asyncio.create_task(threads.run(lambda _: go_on.wait(60)))
        closing = asyncio.create_task(threads.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        go_on.set()
        await reading

    asyncio.run(leaving())
    until(lambda: is_closed(connection))


def is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("steps", range(6))
async def test_a_database_that_is_left_in_a_hurry_leaves_nothing_running(
    tmp_path: Path, steps: int
) -> None:
    left = asyncio.Event()

    async def use() -> None:
        async with SqliteEngine.opened(tmp_path / "memory.db", clock=Clock()) as engine:
            await engine.write(OPERATOR, lambda tx: tx.now)
            left.set()

    using = asyncio.create_task(use())
    await left.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    using.cancel()
    with suppress(asyncio.CancelledError):
        await using

    assert asyncio.all_tasks() == {asyncio.current_task()}
    until(lambda: not any(it.name == "database" for it in threading.enumerate()))


async def test_a_read_after_the_end_is_refused_and_does_not_wait(tmp_path: Path) -> None:
    async with SqliteEngine.opened(tmp_path / "memory.db", clock=Clock()) as engine:
        pass
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable):
            await engine.read(OPERATOR, lambda tx: tx.now)
