"""The engine: one writer, a few readers, and transactions as plain functions."""

import asyncio
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from ...engine.callbacks import Progress, noop
from ...engine.engine import Sealer
from ...engine.maintenance import Condition, Repaired, RowCounts, Scrubbed, Sizes, Tidied
from ...engine.shared.damage import KnownDamage, RowDamage
from ...errors import Damaged, DamagedRow, Refusal, StartRefused, Unavailable
from ...memory.erasure import ReceiptTable
from ...memory.model.access import Caller
from ...memory.model.memory import MemoryId
from ...memory.model.retention import USUAL, Retentions
from ...memory.projects import ProjectTable
from ...recall.held_reads import HeldReads
from ...recall.inverted_index.cache import DatabaseIndex, IndexCache, Token
from ...recall.inverted_index.entry import Entry
from ...recall.text.features import ALL, Features
from ...recall.text.ids import Uids
from ..base.checks import is_readable
from ..base.connection import (
    BUSY_TIMEOUT,
    PROGRESS,
    READ_LIMIT,
    connect,
    in_snapshot,
    read_only,
    taken_damage,
    token_of,
)
from ..base.copies import copies_of
from ..base.errors import DAMAGED, REMEDY, Undecodable, decoding, is_damage, translated
from ..fts.cached_index import index_in_memory, load_wanted
from ..fts.documents import Pending
from ..fts.index import STEMMED
from ..fts.partitions import Purge
from ..maintenance.damaged_rows import damaged
from ..maintenance.scrub import scrubbed
from ..schema.migrate import OnUpgrade, has_newest_format
from ..schema.schema import tables
from .held import held_reads
from .opening import opened_file, run_in_thread, serving
from .readers import Readers
from .transaction import SqliteTransaction, Work
from .writer import OnCommit, Writer

log = logging.getLogger(__name__)

OnDamage = Callable[[Caller], None]
"""Told whose request has met damage. Any thread may tell."""


class Damage:
    """Whether one database is known to be damaged."""

    def __init__(self, path: Path, on_damage: OnDamage = noop) -> None:
        self.path = path
        self.report = on_damage  # where something else could stand in
        self.is_known = False
        self.known = KnownDamage(str(path))

    def report_refusal(self, caller: Caller) -> None:
        self.note(caller, is_intact=False)
        self.report(caller)

    def note(self, caller: Caller, *, is_intact: bool) -> None:
        """Note what a look has found; the log has each change once."""
        fields = {"path": str(self.path), "tenant": caller.tenant}
        if self.is_known and is_intact:
            log.warning("the database file is whole again", extra=fields)
        elif not (self.is_known or is_intact):
            log.error("the database file is damaged: %s", REMEDY, extra=fields)
        self.is_known = not is_intact


def is_intact(path: Path, is_stopped: Callable[[], bool]) -> bool:
    """Whether every table and its indexes can be read, page by page, however long it takes.

    Pages that nothing uses are no damage.
    """
    with _interruptible(path, is_stopped) as database:
        try:
            return all(is_readable(database, name) for name in tables(database))
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return False


def damaged_at(path: Path, is_stopped: Callable[[], bool]) -> list[RowDamage]:
    with _interruptible(path, is_stopped) as database:
        return damaged(database)


@contextmanager
def _interruptible(path: Path, is_stopped: Callable[[], bool]) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as database:
        read_only(database)
        database.set_progress_handler(is_stopped, PROGRESS)
        yield database


T = TypeVar("T")

MINUTE = timedelta(minutes=1)


class Databases(Protocol):
    """The database of each caller's tenant."""

    def path_of(self, caller: Caller) -> Path:
        """Where it lies."""

    def used(
        self, caller: Caller, *, in_passing: bool = False
    ) -> AbstractAsyncContextManager["SqliteEngine"]:
        """The database, which stays open inside; in passing none is opened, or kept open for it."""


@dataclass(frozen=True, slots=True)
class SqliteMaintenance:
    """Looks after databases; partitions of the full-text index one by one."""

    databases: Databases

    @property
    def has_files(self) -> bool:
        return True

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:
        async with self.databases.used(caller) as database:
            damage = database.damage
            with translated():
                if thorough:
                    found = await _look(partial(is_intact, damage.path))
                    damage.note(caller, is_intact=found)
                if not (thorough and damage.is_known):
                    damage.known.note(caller, await _look(partial(damaged_at, damage.path)))
        return Condition(is_intact=not damage.is_known, damaged_rows=damage.known.names)

    async def repair(self, caller: Caller) -> Repaired:
        numbers = await self._partitions(caller)
        damaged = [number for number in numbers if await self._is_damaged(caller, number)]
        for number in damaged:
            await self._recreate(caller, number)
        return Repaired(rebuilt=tuple(damaged))

    async def bring_to_rules(self, caller: Caller) -> None:
        """It was, when the database was opened."""

    async def tidy(self, caller: Caller) -> Tidied:
        """Count each partition's rows, rebuild those that are out of line, rebalance, merge."""
        await self._store_stems(caller)
        drifts = await self.drifts(caller)
        drifted = tuple(number for number, drift in drifts.items() if drift)
        for number in drifted:
            await self.rebuild(caller, number)
        moved = await self._rebalance(caller)
        for number in await self._partitions(caller):
            await self._merge(caller, number)
        return Tidied(
            parts=len(drifts),
            drift=sum(drifts.values()),
            rebuilt=drifted,
            moved=moved,
            is_damaged=not await self._is_readable(caller, _is_next_readable),
        )

    async def scrub(self, caller: Caller, progress: Progress = noop) -> Scrubbed:
        erasures = await self._read(caller, lambda tx: tx[ReceiptTable].pending())
        if not erasures:
            return Scrubbed()
        for number, notes in await self._read(caller, lambda tx: tx.partitions.marked_for_purge()):
            progress(f"partition {number}")
            begun, purge = None, partial(_purge, number=number, notes=notes)
            while begun := await self._write(caller, partial(purge, begun=begun)):
                pass
        progress("the file")
        async with self.databases.used(caller) as database:
            is_scrubbed = await database.scrub_file(caller)
        if not is_scrubbed:
            return Scrubbed(pending=len(erasures))
        await self._write(caller, lambda tx: tx[ReceiptTable].settle(erasures))
        return Scrubbed(settled=len(erasures))

    async def sizes(self, caller: Caller) -> Sizes:
        path = self.databases.path_of(caller)
        return Sizes(
            database=_size(path),
            log=_size(path.with_name(f"{path.name}-wal")),
            free=_free(path.parent),
        )

    async def count(self, caller: Caller) -> RowCounts:
        async with self.databases.used(caller, in_passing=True) as database:
            return await database.read(caller, lambda tx: tx[ProjectTable].rows())

    def copies(self, caller: Caller) -> list[str]:
        path = Path(os.path.realpath(self.databases.path_of(caller)))
        return [copy.name for copy in copies_of(path)]

    async def drifts(self, caller: Caller) -> dict[int, int]:
        return {it: await self._drift(caller, it) for it in await self._partitions(caller)}

    async def is_exact(self, caller: Caller, number: int) -> bool:
        try:
            return await self._write(caller, lambda tx: tx.index.is_exact(number))
        except Damaged:
            return False

    async def rebuild(self, caller: Caller, number: int) -> None:
        """Fill a partition again from the memories; one that is damaged is replaced."""
        try:
            await self._write(caller, lambda tx: tx.index.rebuild(number))
        except Damaged:
            await self._recreate(caller, number)

    async def _partitions(self, caller: Caller) -> list[int]:
        return await self._read(caller, lambda tx: tx.partitions.all())

    async def _drift(self, caller: Caller, number: int) -> int:
        return await self._read(caller, lambda tx: tx.partitions.drift(number))

    async def _recreate(self, caller: Caller, number: int) -> None:
        await self._write(caller, lambda tx: tx.index.recreate(number))

    async def _rebalance(self, caller: Caller) -> int:
        moved = 0
        while await self._read(caller, lambda tx: bool(tx.partitions.oversized())):
            if not await self._write(caller, lambda tx: tx.index.rebalance()):
                break
            moved += 1
        return moved

    async def _store_stems(self, caller: Caller) -> None:
        """Store the stems of memories that have none yet, so that they are loaded soon."""
        after: int | None = 0
        while after is not None:
            find = partial(_missing_stems, after=after)
            missing, after = await self._read(caller, find)
            for start in range(0, len(missing), STEMMED):
                some = missing[start : start + STEMMED]
                await self._write(caller, partial(_store_stems, memories=some))

    async def _merge(self, caller: Caller, number: int) -> None:
        goes_on = await self._read(caller, lambda tx: tx.segments.are_many(number))
        while goes_on:
            goes_on = await self._write(caller, lambda tx: tx.segments.merge(number))

    async def _is_damaged(self, caller: Caller, number: int) -> bool:
        """Of what was read before, a page tells nothing; so both are asked."""
        if not await self._is_readable(caller, lambda tx: tx.partitions.is_readable(number)):
            return True
        try:
            return not await self._write(caller, lambda tx: tx.partitions.is_exact(number))
        except Damaged:
            return True

    async def _is_readable(self, caller: Caller, work: Work[[], bool]) -> bool:
        """What work finds; one that is too large for a read counts as readable."""
        try:
            return await self._read(caller, work)
        except Damaged:
            return False
        except Unavailable:
            return True

    async def _read(self, caller: Caller, work: Work[[], T]) -> T:
        async with self.databases.used(caller) as database:
            return await database.read(caller, work)

    async def _write(self, caller: Caller, work: Work[[], T]) -> T:
        async with self.databases.used(caller) as database:
            return await database.write(caller, work)


async def _look(look: Callable[[Callable[[], bool]], T]) -> T:
    """What a look finds, which asks whether to stop once nobody waits for it any more."""
    stop = threading.Event()
    try:
        return await run_in_thread(partial(look, stop.is_set))
    finally:
        stop.set()


def _is_next_readable(tx: SqliteTransaction) -> bool:
    numbers = tx.partitions.all()
    turn = int(tx.now.timestamp() // MINUTE.total_seconds())
    return not numbers or tx.partitions.is_readable(numbers[turn % len(numbers)])


def _missing_stems(tx: SqliteTransaction, after: int) -> tuple[list[MemoryId], int | None]:
    return tx.index.missing_stems(after)


def _store_entries(tx: SqliteTransaction, token: Token, entries: Mapping[MemoryId, Entry]) -> None:
    tx.index.store_entries(token, entries)


def _store_stems(tx: SqliteTransaction, memories: Sequence[MemoryId]) -> None:
    tx.index.store_stems(memories)


def _purge(
    tx: SqliteTransaction, number: int, notes: int, begun: Purge | None = None
) -> Purge | None:
    return tx.partitions.purge(number, notes, begun)


def _size(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_size
    return 0


def _free(folder: Path) -> int | None:
    with suppress(OSError):
        return shutil.disk_usage(folder).free
    return None


P = ParamSpec("P")

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

    def __init__(  # noqa: PLR0913 - its parts
        self,
        writer: Writer,
        readers: Readers,
        scrub: Callable[[], Awaitable[bool]],
        damage: Damage,
        clock: Callable[[], datetime],
        transactions: Callable[..., SqliteTransaction],
        *,
        index: DatabaseIndex,
        held: HeldReads,
    ) -> None:
        self.damage = damage
        self.held = held
        self._transaction = transactions
        self._index = index
        self._writer = writer
        self._readers = readers
        self._scrub = scrub
        self._clock = clock
        self._storing: asyncio.Task[None] | None = None

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
        index = index_in_memory(index_cache or IndexCache(), features)
        async with (
            opened_file(path, clock(), features, listener.upgrading) as (database, files),
            Readers.opened(
                path, features, files.require_own_log, partial(load_wanted, index=index)
            ) as readers,
            serving(database, files, QUEUE, QUEUE_TIMEOUT, listener.committed, index) as writer,
        ):
            if not files.are_in_place():
                raise StartRefused(f"{path} was replaced while it was opened.")
            scrub, damage = partial(scrubbed, database, files), Damage(path, listener.damaged)
            transactions = partial(
                SqliteTransaction, quota=quota, retention=retention, uids=Uids(), sealer=sealer
            )
            try:
                with held_reads(path, index, files) as held:
                    yield cls(
                        writer, readers, scrub, damage, clock, transactions,
                        index=index, held=held,
                    )  # fmt: skip
            finally:
                index.close()

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def transaction(database: sqlite3.Connection) -> T:
            def worked() -> tuple[SqliteTransaction, T]:
                tx = self._transaction(database, self._clock(), caller, index=self._index)
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

        if self._index.computed and (self._storing is None or self._storing.done()):
            self._storing = asyncio.create_task(self._store_computed(caller))
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

    async def _store_computed(self, caller: Caller) -> None:
        """Store the stems that a reader had to find out, unless anything has changed since."""
        computed, self._index.computed = self._index.computed, []
        with suppress(Refusal, sqlite3.Error):  # they are found out again
            for token, entries in computed:
                await self.write(caller, partial(_store_entries, token=token, entries=entries))

    @property
    def waiting(self) -> int:
        return self._writer.waiting

    def _others(self) -> int:
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
        return Condition(has_newest_format=is_newest, damaged_rows=self.damage.known.names)

    async def scrub_file(self, caller: Caller) -> bool:
        """Leave nothing of what was deleted in the file and its log; false while that is held back.

        Saves wait for a moment now and then, not until the end.
        """
        with self._translated(caller):
            is_done = await self._scrub()
            self._index.keep(await self._readers.run(token_of))  # nothing that others erased
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
