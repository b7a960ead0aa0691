"""The engine: one writer, a few readers, and transactions as plain functions."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from ...engine.callbacks import noop
from ...engine.maintenance import Condition
from ...engine.sealing import Sealer
from ...errors import Damaged, DamagedRow, StartRefused
from ...memory.model.access import Caller
from ...memory.model.ranking import weights_of
from ...memory.model.retention import USUAL, Retentions
from ...recall.index_cache.cache import CachedGroups, IndexCache
from ...recall.text.features import ALL, Features
from ...recall.text.ids import Uids
from ..base.connection import BUSY_TIMEOUT, READ_LIMIT, in_snapshot, taken_damage
from ..base.errors import DAMAGED, REMEDY, Undecodable, decoding, translated
from ..fts.cached_index import load_wanted
from ..fts.documents import Pending
from ..fts.partitions import versions_of
from ..maintenance.scrub import FreeSpace
from ..schema.migrate import OnUpgrade, has_newest_format
from .maintenance import Damage, OnDamage, SqliteMaintenance
from .opening import opened_file, serving
from .readers import Readers
from .transaction import SqliteTransaction, Work
from .writer import OnCommit, Writer

P = ParamSpec("P")
T = TypeVar("T")

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
        readers: Readers,
        free_space: FreeSpace,
        damage: Damage,
        clock: Callable[[], datetime],
        transactions: Callable[..., SqliteTransaction],
        *,
        groups: CachedGroups,
    ) -> None:
        self.damage = damage
        self._transaction = transactions
        self._groups = groups
        self._writer = writer
        self._readers = readers
        self._free_space = free_space
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def opened(  # noqa: PLR0913 - what it is opened with, each by its name
        cls,
        path: Path,
        *,
        clock: Callable[[], datetime],
        features: Features = ALL,
        quota: int | None = None,
        retention: Retentions = USUAL,
        listener: Listener = SILENT,
        index_cache: IndexCache | None = None,
        sealer: Sealer | None = None,
    ) -> AsyncIterator["SqliteEngine"]:
        """An engine over the file, made or brought up to date first; checkpointed at the end.

        Raises StartRefused when the file cannot be used as it is. A cancelled
        opening leaves at once; what it began on the file is undone by the next.
        """
        groups = CachedGroups(index_cache or IndexCache(), weights_of(features))
        async with (
            opened_file(path, clock(), features, listener.upgrading) as (database, files),
            Readers.opened(
                path, features, files.require_own_log, partial(load_wanted, groups=groups)
            ) as readers,
            serving(
                database, files, QUEUE, QUEUE_TIMEOUT, listener.committed, groups.writing
            ) as writer,
        ):
            if not files.are_in_place():
                raise StartRefused(f"{path} was replaced while it was opened.")
            free_space, damage = FreeSpace(database, path, files), Damage(path, listener.damaged)
            transactions = partial(
                SqliteTransaction, quota=quota, retention=retention, uids=Uids(), sealer=sealer
            )
            try:
                yield cls(writer, readers, free_space, damage, clock, transactions, groups=groups)
            finally:
                groups.close()

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def transaction(database: sqlite3.Connection) -> T:
            def worked() -> tuple[SqliteTransaction, T]:
                tx = self._transaction(database, self._clock(), caller, groups=self._groups)
                return tx, decoding(database, partial(work, tx, *args, **kwargs))

            tx, answer = in_snapshot(database, READ_LIMIT, worked)
            if tx.met_damage:
                self.damage.report(caller)
            return answer

        def again(database: sqlite3.Connection) -> T:
            try:
                return transaction(database)
            except Undecodable:
                self.damage.report(caller)
                return transaction(database)
            finally:
                self.damage.known.add(caller, taken_damage(database))

        try:
            return await self._readers.run(again)
        except (sqlite3.Error, DamagedRow):
            with self._translated(caller):
                raise

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def transaction(database: sqlite3.Connection, batch: Pending) -> T:
            tx = self._transaction(
                database, self._clock(), caller, batch=batch, others=self._others
            )
            try:
                return decoding(database, partial(work, tx, *args, **kwargs))
            except Undecodable:
                self.damage.report(caller)
                raise
            finally:
                self.damage.known.add(caller, taken_damage(database))

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

        def again(database: sqlite3.Connection, _: Pending) -> bool:
            ((version,),) = database.execute("PRAGMA user_version")
            database.execute(f"PRAGMA user_version = {version}")
            return has_newest_format(database)

        with translated():
            is_newest = await self._writer.write(again, BUSY_TIMEOUT)
        if self.damage.is_known:
            raise Damaged(f"{DAMAGED} {REMEDY}")
        return Condition(has_newest_format=is_newest, damaged_values=self.damage.known.names)

    async def scrub_file(self, caller: Caller) -> bool:
        """Leave nothing of what was deleted in the file and its log; false while that is held back.

        Changes wait a moment now and then, not until the end.
        """
        with self._translated(caller):
            is_done = await self._free_space.scrub()
            versions = await self._readers.run(versions_of)
            self._groups.keep(versions)  # nothing of what another process erased
            return is_done

    @contextmanager
    def _translated(self, caller: Caller) -> Iterator[None]:
        try:
            with translated():
                yield
        except DamagedRow as damage:
            self.damage.known.add(caller, [damage])
            raise
        except Damaged:
            self.damage.report_refusal(caller)
            raise
