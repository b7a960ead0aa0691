"""The engine: one writer, a few readers, and transactions as plain functions."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ...domain.model import Caller
from ...domain.ports import Transaction
from ...domain.retention import USUAL, Retentions
from ...domain.techniques import ALL, Techniques
from ...domain.uids import Uids
from .boundaries import Check, snapshot
from .connection import BUSY_TIMEOUT, READ_LIMIT, Connection, connection
from .faults import StartRefused, translated
from .migrate import has_newest_format, migrated
from .readers import Readers
from .slack import UnusedBytes, file_id, file_in_use, opening
from .transaction import SqliteTransaction
from .turnstile import Turnstile
from .wal import WriteAheadLog
from .writer import Committed, Writer, unheard

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

READERS = 2
READ_PATIENCE = timedelta(seconds=5)  # until a reader is free
QUEUE = 512  # writes that may wait; beyond, a request waits for a place
QUEUE_PATIENCE = timedelta(seconds=5)
CHECKPOINT_PATIENCE = timedelta(seconds=1)  # with another process that reads


class SqliteEngine:
    """Transactions on one database file, of one tenant. Make one with `opened`."""

    def __init__(
        self,
        writer: Writer,
        readers: Readers,
        unused: UnusedBytes,
        clock: Callable[[], datetime],
        quota: int | None,
        kept: Retentions,
    ) -> None:
        self._quota = quota
        self._kept = kept
        self._uids = Uids()
        self._writer = writer
        self._readers = readers
        self._unused = unused
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        path: Path,
        *,
        clock: Callable[[], datetime],
        using: Techniques = ALL,
        quota: int | None = None,
        kept: Retentions = USUAL,
        committed: Committed = unheard,
    ) -> AsyncIterator["SqliteEngine"]:
        """An engine over the file, made or brought up to date first; checkpointed at the end.

        `committed` is told of each commit: how many changes, and the seconds that they took.

        Raises StartRefused when the file cannot be used as it is. A cancelled
        opening leaves at once; what it began on the file is undone by the next.
        """
        with ExitStack() as held:
            with opening(path):
                await _aside(partial(migrated, path, clock(), using))
                file = held.enter_context(file_in_use(path))
            async with connection(path, using) as database:
                if file_id(path) != file:
                    raise StartRefused(f"{path} was replaced while it was opened.")
                unused = UnusedBytes(database, path, file)
                try:
                    async with (
                        Readers.opened(
                            path, using, number=READERS, patience=READ_PATIENCE
                        ) as readers,
                        _serving(database, committed, unused.require_place) as writer,
                    ):
                        yield cls(writer, readers, unused, clock, quota, kept)
                finally:
                    await database.run(_checkpoint)

    async def read(
        self,
        caller: Caller,
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        def transaction(database: sqlite3.Connection) -> T:
            with snapshot(database, READ_LIMIT):
                tx = SqliteTransaction(database, self._clock(), caller, kept=self._kept)
                return work(tx, *args, **kwargs)

        with translated():
            return await self._readers.run(transaction)

    async def write(
        self,
        caller: Caller,
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        def transaction(database: sqlite3.Connection, *, is_alone: bool) -> T:
            tx = SqliteTransaction(
                database,
                self._clock(),
                caller,
                is_alone=is_alone,
                quota=self._quota,
                kept=self._kept,
                uids=self._uids,
            )
            return work(tx, *args, **kwargs)

        with translated():
            return await self._writer.write(transaction, BUSY_TIMEOUT)

    @property
    def waiting(self) -> int:
        """How many writes wait or are being made."""
        return self._writer.waiting

    async def touch(self) -> bool:
        """Write to the disk what is there, and tell whether its format is still the newest known.

        Refuses as a write does.
        """

        def again(database: sqlite3.Connection, *, is_alone: bool) -> bool:  # noqa: ARG001
            ((version,),) = database.execute("PRAGMA user_version")
            database.execute(f"PRAGMA user_version = {version}")
            return has_newest_format(database)

        with translated():
            return await self._writer.write(again, BUSY_TIMEOUT)

    async def blank(self, caller: Caller) -> bool:  # noqa: ARG002 - of one tenant
        with translated():
            return await self._unused.blank()


@asynccontextmanager
async def _serving(
    database: Connection, committed: Committed, before_commit: Check
) -> AsyncIterator[Writer]:
    """A writer at work. At the end it writes what it has accepted."""
    wal = WriteAheadLog(database)
    places = Turnstile(QUEUE, QUEUE_PATIENCE)
    writer = Writer(database, places, wal.tend, committed, before_commit)
    serving = asyncio.create_task(writer.serve())
    try:
        yield writer
    finally:
        writer.close()
        await asyncio.gather(serving, return_exceptions=True)


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
