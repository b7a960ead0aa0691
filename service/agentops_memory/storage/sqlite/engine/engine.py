"""The engine: one writer, a few readers, and transactions as plain functions."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ....domain.errors import Busy, Damaged, StartRefused
from ....domain.model.access import Caller
from ....domain.model.retention import USUAL, Retentions
from ....domain.ports.callbacks import noop
from ....domain.ports.maintenance import Condition
from ....domain.text.features import ALL, Features
from ....domain.text.ids import Uids
from ..base.connection import BUSY_TIMEOUT, READ_LIMIT, Check, connect, read_only, snapshot
from ..base.errors import DAMAGED, REMEDY, Undecodable, decoding, refusing, translated
from ..maintenance.damage import Damage, OnDamage
from ..maintenance.scrub import FreeSpace
from ..schema.migrate import OnUpgrade, has_newest_format
from .maintenance import SqliteMaintenance
from .opening import opened_file, serving
from .transaction import SqliteTransaction, Work
from .writer import OnCommit, Writer

P = ParamSpec("P")
T = TypeVar("T")

READERS = 2
READ_TIMEOUT = timedelta(seconds=5)  # until a reader is free
QUEUE = 512  # writes that may wait; beyond, a request waits for a place
QUEUE_TIMEOUT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What hears of a database; each part may be left out, and is called by any thread."""

    committed: OnCommit = noop
    damaged: OnDamage = noop  # whose request has met damage of the file
    upgrading: OnUpgrade = noop


SILENT = Listener()


class SqliteEngine:
    """Transactions on one database file, of one tenant. Make one with `opened`."""

    def __init__(
        self,
        writer: Writer,
        readers: "Readers",
        free_space: FreeSpace,
        damage: Damage,
        clock: Callable[[], datetime],
        transactions: Callable[..., SqliteTransaction],
    ) -> None:
        self.damage = damage
        self._transaction = transactions
        self._writer = writer
        self._readers = readers
        self._free_space = free_space
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        path: Path,
        *,
        clock: Callable[[], datetime],
        features: Features = ALL,
        quota: int | None = None,
        retention: Retentions = USUAL,
        listener: Listener = SILENT,
    ) -> AsyncIterator["SqliteEngine"]:
        """An engine over the file, made or brought up to date first; checkpointed at the end.

        Raises StartRefused when the file cannot be used as it is. A cancelled
        opening leaves at once; what it began on the file is undone by the next.
        """
        async with (
            opened_file(path, clock(), features, listener.upgrading) as (database, files),
            Readers.opened(path, features, files.require_own_log) as readers,
            serving(database, files, QUEUE, QUEUE_TIMEOUT, listener.committed) as writer,
        ):
            if not files.are_in_place():
                raise StartRefused(f"{path} was replaced while it was opened.")
            free_space, damage = FreeSpace(database, path, files), Damage(path, listener.damaged)
            transactions = partial(SqliteTransaction, quota=quota, retention=retention, uids=Uids())
            yield cls(writer, readers, free_space, damage, clock, transactions)

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def transaction(database: sqlite3.Connection) -> T:
            with snapshot(database, READ_LIMIT):
                tx = self._transaction(database, self._clock(), caller)
                answer = decoding(database, partial(work, tx, *args, **kwargs))
            if tx.search.met_damage:
                self.damage.report(caller)
            return answer

        def again(database: sqlite3.Connection) -> T:
            try:
                return transaction(database)
            except Undecodable:
                self.damage.report(caller)
                return transaction(database)

        with self._translated(caller):
            return await self._readers.run(again)

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def transaction(database: sqlite3.Connection, *, is_alone: bool) -> T:
            tx = self._transaction(
                database, self._clock(), caller, is_alone=is_alone, others=self._others
            )
            try:
                return decoding(database, partial(work, tx, *args, **kwargs))
            except Undecodable:
                self.damage.report(caller)
                raise

        with self._translated(caller):
            return await self._writer.write(transaction, BUSY_TIMEOUT)

    @property
    def waiting(self) -> int:
        """How many writes wait or are being made."""
        return self._writer.waiting

    def _others(self) -> int:
        """How many writes wait for the one that is being made."""
        return self._writer.waiting - 1

    @property
    def maintenance(self) -> SqliteMaintenance:
        return SqliteMaintenance(self)

    def path_of(self, _: Caller) -> Path:
        return self.damage.path

    @asynccontextmanager
    async def used(
        self,
        _: Caller,
        *,
        in_passing: bool = False,  # noqa: ARG002 - it is open as long as this is
    ) -> AsyncIterator["SqliteEngine"]:
        yield self

    async def probe(self) -> Condition:
        """Write to the disk what is there; answer what is known of the database.

        Refuses as a write does, and with Damaged while damage is known.
        """

        def again(database: sqlite3.Connection, *, is_alone: bool) -> bool:  # noqa: ARG001
            ((version,),) = database.execute("PRAGMA user_version")
            database.execute(f"PRAGMA user_version = {version}")
            return has_newest_format(database)

        with translated():
            is_newest = await self._writer.write(again, BUSY_TIMEOUT)
        if self.damage.is_known:
            raise Damaged(f"{DAMAGED} {REMEDY}")
        return Condition(has_newest_format=is_newest, damaged_values=len(self.damage.values))

    async def scrub_file(self, caller: Caller) -> bool:
        """Leave nothing of what was deleted in the file and its log; false while that is held back.

        Changes wait a moment now and then, not until the end.
        """
        with self._translated(caller):
            return await self._free_space.scrub()

    @contextmanager
    def _translated(self, caller: Caller) -> Iterator[None]:
        try:
            with translated():
                yield
        except Damaged:
            self.damage.report_refusal(caller)
            raise


class Readers:
    """Threads that take the next read by themselves: none waits for the event loop to turn."""

    def __init__(self, connections: Sequence[sqlite3.Connection], check: Check) -> None:
        self._check = check
        self._all = connections
        self._pool = ThreadPoolExecutor(len(connections), thread_name_prefix="reader")
        self._running = 0  # or waiting
        self._own = threading.local()
        self._free = list(connections)  # of threads that have not read yet

    @classmethod
    @asynccontextmanager
    async def opened(cls, path: Path, features: Features, check: Check) -> AsyncIterator["Readers"]:
        """READERS threads. At the end they finish what has begun, and close.

        All read the file that is at the path now, whatever comes there later. `check` is asked
        after each read, and raises what that is refused with instead. StartRefused when the
        file cannot be opened.
        """
        readers = cls(await asyncio.to_thread(_connections, path, features), check)
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
        if self._running > len(self._all) and not await _begins(begun, answer):
            raise Busy("Too many reads are waiting; try again.")
        return await asyncio.shield(answer)

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


async def _begins(begun: Future[T], answer: asyncio.Future[T]) -> bool:
    """Whether a read that must wait for a thread gets one in time."""
    try:
        await asyncio.wait((answer,), timeout=READ_TIMEOUT.total_seconds())
    except asyncio.CancelledError:
        begun.cancel()  # nobody asks for it any more
        raise
    return not begun.cancel()


def _connections(path: Path, features: Features) -> list[sqlite3.Connection]:
    with refusing(path), ExitStack() as opened:
        made = []
        for _ in range(READERS):
            database = connect(path, features=features, one_thread=False, is_strict=True)
            opened.callback(database.close)
            read_only(database)
            database.execute("SELECT 1 FROM sqlite_schema").fetchone()  # it opens the log, too
            made.append(database)
        opened.pop_all()
        return made
