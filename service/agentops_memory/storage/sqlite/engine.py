"""The engine: one writer, a few readers, and transactions as plain functions."""

import asyncio
import inspect
import logging
import sqlite3
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...domain.errors import Busy
from ...domain.model import TenantId
from ...domain.ports import Transaction
from .connection import BUSY_TIMEOUT, Connection, connection, limit_time, read_only
from .faults import translated
from .migrate import APPLICATION_ID, migrated
from .transaction import SqliteTransaction
from .turnstile import Turnstile

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

READERS = 2
QUEUE = 512  # writes that may wait; beyond, a request waits for a place
QUEUE_PATIENCE = timedelta(seconds=5)
READ_LIMIT = timedelta(seconds=5)
SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
CHECKPOINT_PATIENCE = timedelta(seconds=1)  # with another process that reads


class SqliteEngine:
    """Transactions on one database file. Make one with `opened`."""

    def __init__(
        self, writer: Connection, readers: list[Connection], clock: Callable[[], datetime]
    ) -> None:
        self._writer = writer
        self._readers: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        for reader in readers:
            self._readers.put_nowait(reader)
        self._clock = clock
        self._queue = Turnstile(QUEUE, QUEUE_PATIENCE)
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
            writer = await stack.enter_async_context(connection(path))
            readers = [await stack.enter_async_context(connection(path)) for _ in range(READERS)]
            for reader in readers:
                await reader.run(read_only)
            engine = cls(writer, readers, clock)
            try:
                yield engine
            finally:
                await engine._finish()

    async def read(
        self,
        tenant: TenantId,  # noqa: ARG002 - there is one, and this is its file
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        def transaction(database: sqlite3.Connection) -> T:
            with _snapshot(database):
                return work(SqliteTransaction(database, self._clock()), *args, **kwargs)

        reader = await self._readers.get()
        return await self._to_its_end(self._read(reader, transaction))

    async def write(
        self,
        tenant: TenantId,  # noqa: ARG002 - there is one, and this is its file
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        def transaction(database: sqlite3.Connection) -> T:
            with _change(database, patient_until):
                return work(SqliteTransaction(database, self._clock()), *args, **kwargs)

        if not await self._queue.enter():
            raise Busy("Too many writes are waiting; try again.")
        # Counted from here, so that writes behind a lock are refused together, not in turn.
        patient_until = time.monotonic() + BUSY_TIMEOUT.total_seconds()
        return await self._to_its_end(self._write(transaction))

    async def _read(self, reader: Connection, transaction: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with translated():
                return await reader.run(transaction)
        finally:
            self._readers.put_nowait(reader)

    async def _write(self, transaction: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with translated():
                return await self._writer.run(transaction)
        finally:
            self._queue.leave()

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

    async def _finish(self) -> None:
        """Let what was accepted end, then empty the WAL into the file."""
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._writer.run(_checkpoint)


@contextmanager
def _snapshot(database: sqlite3.Connection) -> Iterator[None]:
    """A transaction that sees one state and is stopped when it takes too long."""
    with _rolled_back(database):
        limit_time(database, READ_LIMIT)
        database.execute("BEGIN")
        yield


@contextmanager
def _change(database: sqlite3.Connection, patient_until: float) -> Iterator[None]:
    """A transaction that is committed whole; if anything raises, nothing happened."""
    with _rolled_back(database):
        _begin(database, patient_until)
        yield
        _commit(database)


@contextmanager
def _rolled_back(database: sqlite3.Connection) -> Iterator[None]:
    """Whatever happens inside, the connection is free of transactions and limits afterwards."""
    try:
        yield
    except StopIteration as error:
        # No future can carry it: the caller would wait for ever.
        raise RuntimeError("work raised StopIteration").with_traceback(
            error.__traceback__
        ) from None
    except BaseException as error:
        _release(error)
        raise
    finally:
        database.set_progress_handler(None, 0)
        if database.in_transaction:
            database.execute("ROLLBACK")


def _release(error: BaseException) -> None:
    """Drop the variables of work that raised: a cursor among them would hold its snapshot."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        # An error that is raised anew still knows coroutines that go on.
        if not frame.f_code.co_flags & SUSPENDABLE:
            with suppress(RuntimeError):  # it runs
                frame.clear()


def _begin(database: sqlite3.Connection, patient_until: float) -> None:
    patience = max(patient_until - time.monotonic(), 0)
    # In tenths of a second: each distinct statement takes a place among the cached ones.
    database.execute(f"PRAGMA busy_timeout = {round(patience, 1) * 1000:.0f}")
    database.execute("BEGIN IMMEDIATE")


def _commit(database: sqlite3.Connection) -> None:
    try:
        database.execute("COMMIT")
    except sqlite3.Error:
        _disown(database)
        raise


def _disown(database: sqlite3.Connection) -> None:
    """Keep a failed commit from coming true later.

    One whose sync failed lies whole in the write-ahead log, where the recovery
    after a crash would find it; an empty commit takes its place.
    """
    with suppress(sqlite3.Error):
        if database.in_transaction:
            database.execute("ROLLBACK")
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")


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
