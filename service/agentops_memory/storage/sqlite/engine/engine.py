"""The engine: one writer, a few readers, and transactions as plain functions."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ....domain.errors import Damaged, StartRefused
from ....domain.model.access import Caller
from ....domain.model.maintenance import Condition
from ....domain.model.retention import USUAL, Retentions
from ....domain.ports.maintenance import noop
from ....domain.text.features import ALL, Features
from ....domain.text.ids import Uids
from ..base.connection import BUSY_TIMEOUT, READ_LIMIT, Connection, connection, snapshot
from ..base.errors import DAMAGED, REMEDY, Undecodable, decoding, translated
from ..base.open_files import OpenFiles, WriteAheadLog, file_in_use, left_to_others, opening
from ..maintenance.damage import Damage, OnDamage, is_intact
from ..maintenance.scrub import FreeSpace
from ..maintenance.values import damaged_at
from ..schema.migrate import OnUpgrade, has_newest_format, migrated
from .maintenance import SqliteMaintenance
from .readers import Readers
from .transaction import SqliteTransaction
from .writer import Admission, OnCommit, Writer

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)

READERS = 2
READ_TIMEOUT = timedelta(seconds=5)  # until a reader is free
QUEUE = 512  # writes that may wait; beyond, a request waits for a place
QUEUE_TIMEOUT = timedelta(seconds=5)
CHECKPOINT_TIMEOUT = timedelta(seconds=1)  # with another process that reads


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
        readers: Readers,
        free_space: FreeSpace,
        damage: Damage,
        clock: Callable[[], datetime],
        transactions: Callable[..., SqliteTransaction],
    ) -> None:
        self._damage = damage
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
        with ExitStack() as held:
            with opening(path):
                await _in_thread(partial(migrated, path, clock(), features, listener.upgrading))
                file = held.enter_context(file_in_use(path))
            async with connection(path, features) as database:
                files = await database.run(partial(OpenFiles.of, path, file))
                try:
                    async with (
                        Readers.opened(
                            path,
                            features,
                            number=READERS,
                            wait=READ_TIMEOUT,
                            check=files.require_own_log,
                        ) as readers,
                        _serving(database, listener.committed, files) as writer,
                    ):
                        if not files.are_in_place():
                            raise StartRefused(f"{path} was replaced while it was opened.")
                        free_space = FreeSpace(database, path, files)
                        damage = Damage(path, listener.damaged)
                        transactions = partial(
                            SqliteTransaction, quota=quota, retention=retention, uids=Uids()
                        )
                        yield cls(writer, readers, free_space, damage, clock, transactions)
                finally:
                    if files.has_another_log():
                        left_to_others(files.database)
                    else:
                        await database.run(_checkpoint)

    async def read(
        self,
        caller: Caller,
        work: Callable[Concatenate[SqliteTransaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        def transaction(database: sqlite3.Connection) -> T:
            with snapshot(database, READ_LIMIT):
                tx = self._transaction(database, self._clock(), caller)
                answer = decoding(database, partial(work, tx, *args, **kwargs))
            if tx.search.met_damage:
                self._damage.report(caller)
            return answer

        def again(database: sqlite3.Connection) -> T:
            try:
                return transaction(database)
            except Undecodable:
                self._damage.report(caller)
                return transaction(database)

        with self._translated(caller):
            return await self._readers.run(again)

    async def write(
        self,
        caller: Caller,
        work: Callable[Concatenate[SqliteTransaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        def transaction(database: sqlite3.Connection, *, is_alone: bool) -> T:
            tx = self._transaction(
                database, self._clock(), caller, is_alone=is_alone, others=self._others
            )
            try:
                return decoding(database, partial(work, tx, *args, **kwargs))
            except Undecodable:
                self._damage.report(caller)
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
        return self._damage.path

    @asynccontextmanager
    async def used(
        self,
        _: Caller,
        *,
        in_passing: bool = False,  # noqa: ARG002 - it is open as long as this is
    ) -> AsyncIterator["SqliteEngine"]:
        yield self

    async def probe(self) -> Condition:
        """Write to the disk what is there, and tell what is known.

        Refuses as a write does, and with Damaged while damage is known.
        """

        def again(database: sqlite3.Connection, *, is_alone: bool) -> bool:  # noqa: ARG001
            ((version,),) = database.execute("PRAGMA user_version")
            database.execute(f"PRAGMA user_version = {version}")
            return has_newest_format(database)

        with translated():
            is_newest = await self._writer.write(again, BUSY_TIMEOUT)
        if self._damage.is_known:
            raise Damaged(f"{DAMAGED} {REMEDY}")
        return Condition(has_newest_format=is_newest, damaged_values=self.damaged_values)

    async def check(self, caller: Caller, *, thorough: bool) -> Condition:
        """Look at every value, when thorough at the whole file; what is found is then known."""
        with translated():
            if thorough:
                found = await _looked(partial(is_intact, self._damage.path))
                self._damage.note(caller, is_intact=found)
            if not (thorough and self._damage.is_known):
                values = await _looked(partial(damaged_at, self._damage.path))
                self._damage.note_values(caller, values)
        return Condition(is_intact=not self._damage.is_known, damaged_values=self.damaged_values)

    @property
    def damaged_values(self) -> int:
        """How many values are known to be damaged; not all of many are counted."""
        return len(self._damage.values)

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
            self._damage.report_refusal(caller)
            raise


@asynccontextmanager
async def _serving(
    database: Connection, on_commit: OnCommit, files: OpenFiles
) -> AsyncIterator[Writer]:
    """A writer at work. At the end it writes what it has accepted."""
    wal = WriteAheadLog(database, files)
    admission = Admission(QUEUE, QUEUE_TIMEOUT)
    writer = Writer(database, admission, wal.tend, on_commit, files.require_in_place)
    serving = asyncio.create_task(writer.serve())
    try:
        yield writer
    finally:
        writer.close()
        await asyncio.gather(serving, return_exceptions=True)


def _checkpoint(database: sqlite3.Connection) -> None:
    try:
        database.execute(f"PRAGMA busy_timeout = {CHECKPOINT_TIMEOUT.total_seconds() * 1000:.0f}")
        (is_blocked, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error:
        is_blocked = True
    if is_blocked:
        log.warning("the write-ahead log could not be emptied; the next start reads it")


async def _looked(look: Callable[[Callable[[], bool]], T]) -> T:
    """What a look finds, which asks whether to stop once nobody waits for it any more."""
    stop = threading.Event()
    try:
        return await _in_thread(partial(look, stop.is_set))
    finally:
        stop.set()


async def _in_thread(work: Callable[[], T]) -> T:
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
