"""A few threads that read, each over a connection of its own, from one line of work."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from ....domain.errors import Busy
from ....domain.text.features import Features
from ..base.connection import Check, connect, read_only
from ..base.errors import refusing

T = TypeVar("T")


class Readers:
    """Threads that take the next read by themselves: none waits for the event loop to turn."""

    def __init__(
        self, connections: Sequence[sqlite3.Connection], timeout: timedelta, check: Check
    ) -> None:
        self._check = check
        self._all = connections
        self._number = len(connections)
        self._pool = ThreadPoolExecutor(self._number, thread_name_prefix="reader")
        self._running = 0  # or waiting
        self._timeout = timeout.total_seconds()
        self._own = threading.local()
        self._free = list(connections)  # of threads that have not read yet

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, path: Path, features: Features, *, number: int, wait: timedelta, check: Check
    ) -> AsyncIterator["Readers"]:
        """So many threads. At the end they finish what has begun, and close.

        All read the file that is at the path now, whatever comes there later. `check` is asked
        after each read, and raises what that is refused with instead. StartRefused when the
        file cannot be opened.
        """
        connections = await asyncio.to_thread(_connections, path, features, number)
        readers = cls(connections, wait, check)
        try:
            yield readers
        finally:
            await asyncio.to_thread(readers._close)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What work answers. A cancelled caller leaves; work that has begun goes on.

        Raises Busy when no thread is free in time.
        """
        begun = self._pool.submit(self._run, work)
        answer = asyncio.wrap_future(begun)
        answer.add_done_callback(self._ended)
        self._running += 1
        if self._running > self._number and not await self._begins(begun, answer):
            raise Busy("Too many reads are waiting; try again.")
        return await asyncio.shield(answer)

    async def _begins(self, begun: Future[T], answer: asyncio.Future[T]) -> bool:
        """Whether a read that must wait for a thread gets one in time."""
        try:
            await asyncio.wait((answer,), timeout=self._timeout)
        except asyncio.CancelledError:
            begun.cancel()  # nobody asks for it any more
            raise
        return not begun.cancel()

    def _ended(self, answer: asyncio.Future[Any]) -> None:
        self._running -= 1
        if not answer.cancelled():
            answer.exception()  # a caller that left does not ask for it

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if not hasattr(self._own, "connection"):
            self._own.connection = self._free.pop()
        try:
            return work(self._own.connection)
        finally:  # whatever it has met: without a log of its own that need be no damage
            self._check()

    def _close(self) -> None:
        self._pool.shutdown()
        for connection in self._all:
            connection.close()


def _connections(path: Path, features: Features, number: int) -> list[sqlite3.Connection]:
    made: list[sqlite3.Connection] = []
    with refusing(path), ExitStack() as opened:
        for _ in range(number):
            connection = connect(path, features=features, one_thread=False, is_strict=True)
            opened.callback(connection.close)
            read_only(connection)
            connection.execute("SELECT 1 FROM sqlite_schema").fetchone()  # it opens the log, too
            made.append(connection)
        opened.pop_all()
    return made
