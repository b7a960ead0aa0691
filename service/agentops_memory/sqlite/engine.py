"""The engine: one writer, a few readers, and transactions as plain functions."""

import asyncio
import logging
import os
import shutil
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import ParamSpec, Self, TypeVar, cast

from ..engine.engine import (
    Condition,
    Maintenance,
    Outcome,
    Progress,
    RowCounts,
    Scrubbed,
    Sealer,
    Sizes,
    Tidied,
    answer_of,
    is_durable_later,
    noop,
    outcome_of,
)
from ..errors import Damaged, DamagedRow, RunAgain, StartRefused, Unavailable
from ..light import dataclass
from ..memory.access import Caller
from ..memory.damage import KnownDamage
from ..memory.erasure import ReceiptTable
from ..memory.rows import Uids
from ..memory.search import weights_of
from ..memory.space import DEFAULT_RETENTIONS, Retentions
from ..recall.area import Area
from ..recall.cache import DatabaseIndex, IndexCache
from ..recall.cached_reads import CachedReads
from ..recall.features import ALL, Features
from .areas import load_requested
from .connection import (
    BUSY_TIMEOUT,
    PROGRESS,
    READ_LIMIT,
    Database,
    Threads,
    WriterThread,
    connect,
    in_snapshot,
    is_readable,
    note_changes,
    read_only,
    taken_damage,
    token_of,
)
from .dialect import DAMAGED, REMEDY, IndexBehind, find_undecodable, refusal_of, translated
from .index import STEMMED_AT_ONCE, Index
from .migrate import OnUpgrade, damaged, migrated, newest_format, tables, version_of
from .open_files import (
    OpenFiles,
    checkpointed,
    copies_of,
    file_id,
    in_use,
    protect_log,
    scrubbed,
    size_at,
)
from .partitions import Purge
from .search import index_in_memory
from .transaction import OnCommit, SqliteTransaction, Work, Writer, cached_reads, readers, serving

P = ParamSpec("P")
T = TypeVar("T")

CHECKPOINT_TIMEOUT = timedelta(seconds=1)  # how long to wait for other processes' reads

log = logging.getLogger(__name__)


@asynccontextmanager
async def opened_file(
    path: Path, now: datetime, features: Features, on_upgrade: OnUpgrade
) -> AsyncIterator[tuple[WriterThread, OpenFiles]]:
    """Create or migrate a database file; yield the connection that writes and the open files.

    Raises StartRefused if the file cannot be used. A cancelled opening returns at once; the next
    opening undoes what it began.
    """
    with ExitStack() as stack:
        stack.enter_context(in_use(file_id(path)))
        await run_in_thread(partial(migrated, path, now, features, on_upgrade))
        stack.enter_context(in_use(file := file_id(path)))  # again, as the file may be new
        opening = partial(connect, path, features=features, is_strict=True)
        writer = WriterThread(opening, iter_chunk_size=64)
        async with writer:
            files = await writer.run(partial(OpenFiles, path, file))
            await writer.run(note_changes)
            try:
                yield writer, files
            finally:
                if files.has_another_log():
                    protect_log(files)
                else:
                    await writer.run(_empty_log)


def _empty_log(database: Database) -> None:
    with suppress(sqlite3.Error):
        if checkpointed(database, "TRUNCATE", CHECKPOINT_TIMEOUT):
            return
    log.warning("the write-ahead log could not be emptied; the next start reads it")


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run `work` on a daemon thread, which does not keep the process alive; return its result."""
    outcome: Future[Outcome] = Future()
    outcome.set_running_or_notify_cancel()  # it runs on if its caller leaves
    run = partial(outcome_of, work)
    threading.Thread(target=lambda: outcome.set_result(run()), name="opening", daemon=True).start()
    return cast("T", answer_of(await asyncio.wrap_future(outcome)))


OnDamage = Callable[[Caller], object]
"""Called with the caller whose request met damage, on any thread."""


def _is_intact(database: Database) -> bool:
    """Whether every table and its indexes can be read, page by page.

    Damage in free pages does not count.
    """
    is_listed = is_readable(database, "sqlite_schema")
    return is_listed and all(is_readable(database, name) for name in tables(database))


async def _inspect(path: Path, inspect: Callable[[Database], T]) -> T:
    """Run a long read on a connection of its own; interrupt it if the caller is cancelled."""
    stop = threading.Event()

    def work() -> T:
        with closing(connect(path)) as database:
            read_only(database)
            database.set_progress_handler(stop.is_set, PROGRESS)
            return inspect(database)

    try:
        return await run_in_thread(work)
    finally:
        stop.set()


class SqliteMaintenance(ABC):
    """Maintains the database of each caller's tenant, one partition of the index at a time."""

    @abstractmethod
    async def read(
        self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @abstractmethod
    async def write(
        self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @abstractmethod
    def path_of(self, caller: Caller) -> Path: ...

    @abstractmethod
    def used(
        self, caller: Caller, *, only_open: bool = False
    ) -> AbstractAsyncContextManager["SqliteEngine"]:
        """Yield the database, kept open within; with `only_open`, only if it is open already."""

    @property
    def maintenance(self) -> Self:
        return self

    @property
    def has_files(self) -> bool:
        return True

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:
        async with self.used(caller) as database:
            with translated():
                if thorough:
                    is_intact = await _inspect(database.path, _is_intact)
                    database.note_damage(caller, is_intact=is_intact)
                if not (thorough and database.is_damaged):
                    database.known_damage.note(caller, await _inspect(database.path, damaged))
        return Condition(
            is_intact=not database.is_damaged, damaged_rows=database.known_damage.names
        )

    async def repair(self, caller: Caller) -> list[int]:
        numbers = await self._partitions(caller)
        damaged = [number for number in numbers if await self._is_damaged(caller, number)]
        for number in damaged:
            await self.write(caller, lambda tx, one: tx.index.recreate(one), number)
        return damaged

    async def bring_to_rules(self, caller: Caller) -> None:  # noqa: B027 - the port has it
        """Do nothing: opening the database has applied the rules."""

    async def tidy(self, caller: Caller) -> Tidied:
        """Count each partition's rows, rebuild partitions that drifted, rebalance, merge segments.

        Nothing is rebuilt while a space's location is damaged: the index would lose its words.
        """
        await self._store_stems(caller)
        drifts = await self.drifts(caller)
        drifted = tuple(number for number, drift in drifts.items() if drift)
        try:
            for number in drifted:
                await self.rebuild(caller, number)
        except DamagedRow:  # it is logged, and readiness reports it
            drifted = ()
        moved = 0
        while await self.read(caller, lambda tx: bool(tx.partitions.oversized())):
            if not await self.write(caller, lambda tx: tx.index.rebalance()):
                break
            moved += 1
        for number in await self._partitions(caller):
            levels = await self.read(caller, lambda tx, one: tx.partitions.levels(one), number)
            has_more = any(segments > 1 or merging for merging, segments in levels)
            while has_more:
                has_more = await self.write(caller, lambda tx, it: tx.partitions.merge(it), number)
        return Tidied(
            parts=len(drifts), drift=sum(drifts.values()), rebuilt=drifted, moved=moved,
            is_damaged=not await self._is_readable(caller, _is_next_readable),
        )  # fmt: skip

    async def scrub(self, caller: Caller, progress: Progress = noop) -> Scrubbed:
        erasures = await self.read(caller, lambda tx: tx[ReceiptTable].pending())
        if not erasures:
            return Scrubbed()
        for number, notes in await self.read(caller, lambda tx: tx.partitions.marked_for_purge()):
            progress(f"partition {number}")
            begun: Purge | None = None
            while begun := await self.write(
                caller, lambda tx, *its: tx.partitions.purge(*its), number, notes, begun
            ):
                pass
        progress("the file")
        async with self.used(caller) as database:
            is_scrubbed = await database.scrub_file(caller)
        if not is_scrubbed:
            return Scrubbed(pending=len(erasures))
        await self.write(caller, lambda tx: tx[ReceiptTable].settle(erasures))
        return Scrubbed(settled=len(erasures))

    async def sizes(self, caller: Caller) -> Sizes:
        path, free = self.path_of(caller), None
        with suppress(OSError):
            free = shutil.disk_usage(path.parent).free
        return Sizes(
            database=size_at(path), log=size_at(path.with_name(f"{path.name}-wal")), free=free
        )

    async def count(self, caller: Caller) -> RowCounts:
        from ..memory.projects import row_counts  # noqa: PLC0415 - a command seldom counts rows

        async with self.used(caller, only_open=True) as database:
            return await database.read(caller, row_counts)

    def copies(self, caller: Caller) -> list[str]:
        path = Path(os.path.realpath(self.path_of(caller)))
        return [copy.name for copy in copies_of(path)]

    async def drifts(self, caller: Caller) -> dict[int, int]:
        return {
            it: await self.read(caller, lambda tx, one: tx.partitions.drift(one), it)
            for it in await self._partitions(caller)
        }

    async def is_exact(self, caller: Caller, number: int) -> bool:
        try:
            return await self.write(caller, lambda tx: tx.index.is_exact(number))
        except Damaged:
            return False

    async def rebuild(self, caller: Caller, number: int) -> None:
        """Rebuild a partition from the memories; replace it if it is damaged."""
        try:
            await self.write(caller, lambda tx: tx.index.rebuild(number))
        except Damaged:
            await self.write(caller, lambda tx: tx.index.recreate(number))

    async def _partitions(self, caller: Caller) -> list[int]:
        return await self.read(caller, lambda tx: tx.partitions.all())

    async def _store_stems(self, caller: Caller) -> None:
        """Store missing stems of memories, so that loading the index need not compute them."""
        after: int | None = 0
        while after is not None:
            missing, after = await self.read(
                caller, lambda tx, first: tx.index.missing_stems(first), after
            )
            for start in range(0, len(missing), STEMMED_AT_ONCE):
                some = missing[start : start + STEMMED_AT_ONCE]
                await self.write(caller, lambda tx, them: tx.index.store_stems(them), some)
        for number, state in await self.write(caller, lambda tx: tx.index.areas.behind()):
            with suppress(ValueError):  # damaged stems
                area = await self.read(caller, _area, number)
                await self.write(caller, lambda tx, *its: tx.index.areas.store(*its), area, state)

    async def _is_damaged(self, caller: Caller, number: int) -> bool:
        """Check pages and contents: each check misses damage that the other finds."""

        def differs(tx: SqliteTransaction) -> bool:
            tx.partitions.require_places()
            return not tx.partitions.is_exact(number)

        if not await self._is_readable(caller, lambda tx: tx.partitions.is_readable(number)):
            return True
        try:
            return await self.write(caller, differs)
        except Damaged:
            return True
        except DamagedRow:
            return False

    async def _is_readable(self, caller: Caller, work: Work[[], bool]) -> bool:
        """Return the result of `work`; a partition too large for one read counts as readable."""
        try:
            return await self.read(caller, work)
        except Damaged:
            return False
        except Unavailable:
            return True


def _area(tx: SqliteTransaction, number: int) -> Area:
    return tx.index.areas.area(number, weights_of(tx.index.require_own_rules()))


def _is_next_readable(tx: SqliteTransaction) -> bool:
    numbers = tx.partitions.all()
    minute = int(tx.now.timestamp() // 60)
    return not numbers or tx.partitions.is_readable(numbers[minute % len(numbers)])


# Seconds between two parts of the index in memory that are prepared: long while projects are being
# loaded, as the requests that load them would wait for these parts.
PREPARE_EVERY, WHILE_LOADING = 0.002, 0.25
LOADING = 0.05  # seconds after a load in which the next is expected
QUEUE = 512  # writes that may be queued; further requests wait for a slot
QUEUE_TIMEOUT = timedelta(seconds=5)  # half of our client's timeout, so that it gets the reason


@dataclass(slots=True, eq=False)
class SqliteEngine(SqliteMaintenance, Maintenance):
    """Transactions on the database file of one tenant; created by `opened`."""

    path: Path
    known_damage: KnownDamage
    _writer: Writer
    _readers: Threads
    _scrub: Callable[[], Awaitable[bool]]
    _report: OnDamage  # called for each request that met damage
    _clock: Callable[[], datetime]
    _transaction: Callable[..., SqliteTransaction]
    _index: DatabaseIndex
    cached_reads: CachedReads
    is_damaged: bool = False  # as far as is known
    _preparing: asyncio.Task[None] | None = None

    @classmethod
    @asynccontextmanager
    async def opened(  # noqa: PLR0913 - keyword arguments
        cls, path: Path, *, clock: Callable[[], datetime], features: Features = ALL,
        quota: int | None = None, retention: Retentions = DEFAULT_RETENTIONS,
        committed: OnCommit = noop, damaged: OnDamage = noop, upgrading: OnUpgrade = noop,
        index_cache: IndexCache | None = None, sealer: Sealer | None = None,
    ) -> AsyncIterator["SqliteEngine"]:  # fmt: skip
        """Create or migrate the file and yield an engine on it; checkpoint it at the end.

        `committed`, `damaged` and `upgrading` are called on any thread. Raises StartRefused if the
        file cannot be used. A cancelled opening returns at once; the next opening undoes what it
        began.
        """
        index = index_in_memory(index_cache or IndexCache(), features)
        async with (
            opened_file(path, clock(), features, upgrading) as (database, files),
            readers(
                path, features, files.require_own_log, partial(load_requested, index=index)
            ) as reading,
            serving(Writer(database, files, QUEUE, QUEUE_TIMEOUT, committed, index)) as writer,
        ):
            if not files.are_same():
                raise StartRefused(f"{path} was replaced while it was opened.")
            transactions = partial(
                SqliteTransaction, quota=quota, retention=retention, uids=Uids(), sealer=sealer
            )
            with closing(index), cached_reads(path, index, files) as reads:
                engine = cls(
                    path, KnownDamage(str(path)), writer, reading,
                    partial(scrubbed, database, files), damaged, clock, transactions, index, reads,
                )  # fmt: skip
                loop = asyncio.get_running_loop()
                index.on_unprepared = partial(loop.call_soon_threadsafe, engine._prepare_soon)
                try:
                    yield engine
                finally:
                    index.on_unprepared = noop
                    if engine._preparing is not None:
                        engine._preparing.cancel()

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        may_be_behind = False

        def transaction(database: Database) -> T:
            try:
                with in_snapshot(database, READ_LIMIT):
                    tx = self._transaction(
                        database, self._clock(), caller,
                        index=self._index, may_be_behind=may_be_behind,
                    )  # fmt: skip
                    answer = work(tx, *args, **kwargs)
            except sqlite3.OperationalError as error:
                if not find_undecodable(database, error):
                    raise
                self._report(caller)
                return transaction(database)
            finally:
                if damaged := taken_damage(database):
                    self.known_damage.add(caller, damaged)
            if tx.met_damage:
                self._report(caller)
            return answer

        try:
            # The index in memory also has memories that are not in the full-text index yet.
            load = partial(self._readers.run, partial(load_requested, index=self._index))
            for catch_up in (load, self._writer.index_now):
                with suppress(IndexBehind):
                    return await self._readers.run(transaction)
                await catch_up()
            with suppress(IndexBehind):
                return await self._readers.run(transaction)
            # The database is locked, full or damaged: search what the index has.
            may_be_behind = True
            return await self._readers.run(transaction)
        except (sqlite3.Error, DamagedRow):
            with self._translated(caller):
                raise

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def transaction(database: Database, batch: Index) -> T:
            tx = self._transaction(
                database, self._clock(), caller,
                batch=batch, others=lambda: self._writer.waiting - 1,
            )  # fmt: skip
            try:
                return work(tx, *args, **kwargs)
            except sqlite3.OperationalError as error:
                if not find_undecodable(database, error):
                    raise
                self._report(caller)
                raise RunAgain from error
            finally:
                if damaged := taken_damage(database):
                    self.known_damage.add(caller, damaged)

        self._writer.on_damage = partial(self._report, caller)
        with self._translated(caller):
            is_synced = not is_durable_later(work)
            return await self._writer.write(transaction, BUSY_TIMEOUT, is_synced=is_synced)

    def _prepare_soon(self) -> None:
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare())

    async def _prepare(self) -> None:
        """Prepare what was loaded, a part at a time, so that hardly any request waits for it."""
        has_more = True
        while has_more:
            is_loading = time.monotonic() - self._index.loaded_at < LOADING
            await asyncio.sleep(WHILE_LOADING if is_loading else PREPARE_EVERY)
            has_more = await self._readers.run(lambda _: self._index.prepare_some())

    @property
    def waiting(self) -> int:
        return self._writer.waiting

    def path_of(self, _: Caller) -> Path:
        return self.path

    @asynccontextmanager
    async def used(
        self,
        _: Caller,
        *,
        only_open: bool = False,  # noqa: ARG002 - it is always open
    ) -> AsyncIterator["SqliteEngine"]:
        yield self

    async def probe(self) -> Condition:
        """Rewrite the format number to test the disk; return the known condition.

        Raises what a write raises, and Damaged while damage is known.
        """

        def rewrite(database: Database, _: Index) -> bool:
            ((version,),) = database.execute("PRAGMA user_version")
            database.execute(f"PRAGMA user_version = {version}")  # writes without a change
            return version_of(database) == newest_format()

        with translated():
            is_newest = await self._writer.write(rewrite, BUSY_TIMEOUT)
        if self.is_damaged:
            raise Damaged(f"{DAMAGED} {REMEDY}")
        return Condition(has_newest_format=is_newest, damaged_rows=self.known_damage.names)

    async def scrub_file(self, caller: Caller) -> bool:
        """Remove deleted data from the file and its log; return False while that is held back.

        Saves wait for short moments, not until the end.
        """
        with self._translated(caller):
            is_done = await self._scrub()
            self._index.refresh(await self._readers.run(token_of))  # drop what others erased
            return is_done

    @contextmanager
    def _translated(self, caller: Caller) -> Iterator[None]:
        try:
            yield
        except DamagedRow as damage:
            self.known_damage.add(caller, [damage])
            raise
        except (sqlite3.Error, Damaged) as error:
            refusal = error if isinstance(error, Damaged) else refusal_of(error)
            if isinstance(refusal, Damaged):
                self.note_damage(caller, is_intact=False)
                self._report(caller)
            if refusal is None or refusal is error:
                raise
            raise refusal from error

    def note_damage(self, caller: Caller, *, is_intact: bool) -> None:
        """Note the result of a check; log each change once."""
        fields = {"path": str(self.path), "tenant": caller.tenant}
        if self.is_damaged and is_intact:
            log.warning("the database file is intact again", extra=fields)
        elif not (self.is_damaged or is_intact):
            log.error("the database file is damaged: %s", REMEDY, extra=fields)
        self.is_damaged = not is_intact
