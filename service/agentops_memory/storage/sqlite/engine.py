"""The engine: one writer, a few readers, and transactions as plain functions."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...domain.errors import Busy
from ...domain.model import TenantId
from ...domain.ports import Transaction
from .boundaries import snapshot
from .connection import BUSY_TIMEOUT, Connection, connection, read_only
from .faults import translated
from .migrate import migrated
from .transaction import SqliteTransaction
from .turnstile import Turnstile
from .wal import WriteAheadLog
from .writer import Writer

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

READERS = 2
READ_PATIENCE = timedelta(seconds=5)  # until a reader is free
READ_LIMIT = timedelta(seconds=5)
QUEUE = 512  # writes that may wait; beyond, a request waits for a place
QUEUE_PATIENCE = timedelta(seconds=5)
CHECKPOINT_PATIENCE = timedelta(seconds=1)  # with another process that reads


class SqliteEngine:
    """Transactions on one database file. Make one with `opened`."""

    def __init__(
        self, writer: Connection, readers: list[Connection], clock: Callable[[], datetime]
    ) -> None:
        self._connection = writer
        self._free = readers
        self._clock = clock
        self._reading = Turnstile(len(readers), READ_PATIENCE)
        wal = WriteAheadLog(writer)
        self._writer = Writer(writer, Turnstile(QUEUE, QUEUE_PATIENCE), wal.tend)
        self._running: set[asyncio.Task[Any]] = set()

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, path: Path, *, clock: Callable[[], datetime]
    ) -> AsyncIterator["SqliteEngine"]:
        """An engine over the file, made or brought up to date first; checkpointed at the end.

        Raises StartRefused when the file cannot be used as it is. A cancelled
        opening leaves at once; what it began on the file is undone by the next.
        """
        await _aside(partial(migrated, path, clock()))
        async with AsyncExitStack() as stack:
            writer, *readers = [
                await stack.enter_async_context(connection(path)) for _ in range(1 + READERS)
            ]
            for reader in readers:
                await reader.run(read_only)
            engine = cls(writer, readers, clock)
            serving = asyncio.create_task(engine._writer.serve())
            try:
                yield engine
            finally:
                await engine._finish(serving)

    async def read(
        self,
        tenant: TenantId,  # noqa: ARG002 - there is one, and this is its file
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        def transaction(database: sqlite3.Connection) -> T:
            with snapshot(database, READ_LIMIT):
                return work(SqliteTransaction(database, self._clock()), *args, **kwargs)

        if not await self._reading.enter():
            raise Busy("Too many reads are waiting; try again.")
        return await self._to_its_end(self._read(self._free.pop(), transaction))

    async def write(
        self,
        tenant: TenantId,  # noqa: ARG002 - there is one, and this is its file
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        def transaction(database: sqlite3.Connection, *, is_alone: bool) -> T:
            tx = SqliteTransaction(database, self._clock(), is_alone=is_alone)
            return work(tx, *args, **kwargs)

        with translated():
            return await self._writer.write(transaction, BUSY_TIMEOUT)

    async def _read(self, reader: Connection, transaction: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with translated():
                return await reader.run(transaction)
        finally:
            self._free.append(reader)
            self._reading.leave()

    async def _to_its_end(self, running: Coroutine[Any, Any, T]) -> T:
        """What it answers. A cancelled caller leaves; it goes on and gives back what it holds."""
        task = asyncio.create_task(running)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that left does not ask for it

    async def _finish(self, serving: asyncio.Task[None]) -> None:
        """Let what was accepted end, then empty the WAL into the file."""
        self._writer.close()
        await asyncio.gather(serving, *self._running, return_exceptions=True)
        await self._connection.run(_checkpoint)


def _checkpoint(database: sqlite3.Connection) -> None:
    try:
        database.execute(f"PRAGMA busy_timeout = {CHECKPOINT_PATIENCE.total_seconds() * 1000:.0f}")
        (is_blocked, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error:
        is_blocked = True
    if is_blocked:
        log.warning("the write-ahead log could not be emptied; the next start reads it")


async def _aside(work: Callable[[], T]) -> T:
    """What work answers. It runs on a thread that does not keep the process from ending."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            answer.set_exception(error)

    threading.Thread(target=run, name="opening", daemon=True).start()
    return await asyncio.wrap_future(answer)
