"""The engine of a database file: one writer, a few readers, and transactions as plain functions.

Each tenant has its own file, which is opened on first use and can be erased.
"""

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from ..engine.engine import Condition, Maintenance, RowCounts, Sealer, is_durable_later, noop
from ..errors import Busy, Damaged, DamagedRow, NotFound, RunAgain, StartRefused, Unavailable
from ..light import dataclass, field, replace
from ..memory.access import DEFAULT_TENANT, Caller, TenantId
from ..memory.damage import KnownDamage
from ..memory.rows import Uids
from ..memory.space import DEFAULT_RETENTIONS, Retentions
from ..recall.cache import DatabaseIndex, IndexCache
from ..recall.cached_reads import CachedReads
from . import connection as db
from .areas import load_requested
from .dialect import DAMAGED, REMEDY, IndexBehind, find_undecodable, refusal_of, translated
from .index import Index
from .migrate import OnUpgrade, damaged as damaged_rows, migrated, newest_format, version_of
from .open_files import FileId, OpenFiles, checkpointed, file_id, in_use, protect_log, scrubbed
from .search import index_in_memory
from .tenants import SqliteMaintenance, tenant_file
from .transaction import OnCommit, SqliteTransaction, Work, Writer, cached_reads, readers, serving

P = ParamSpec("P")
T = TypeVar("T")

CHECKPOINT_TIMEOUT = timedelta(seconds=1)  # how long to wait for other processes' reads

log = logging.getLogger(__name__)


@asynccontextmanager
async def opened_file(
    path: Path, now: datetime, on_upgrade: OnUpgrade
) -> AsyncIterator[tuple[db.WriterThread, OpenFiles]]:
    """Create or migrate a database file; yield the connection that writes and the open files.

    Raises StartRefused if the file cannot be used. A cancelled opening returns at once; the next
    opening undoes what it began.
    """
    with ExitStack() as stack:
        stack.enter_context(in_use(file_id(path)))
        await db.run_in_thread(partial(migrated, path, now, on_upgrade))
        stack.enter_context(in_use(file := file_id(path)))  # again, as the file may be new
        opening = partial(db.connect, path, is_strict=True)
        writer = db.WriterThread(opening, iter_chunk_size=64)
        async with writer:
            files = await writer.run(partial(OpenFiles, path, file))
            await writer.run(db.note_changes)
            try:
                yield writer, files
            finally:
                if files.has_another_log():
                    protect_log(files)
                else:
                    await writer.run(_empty_log)


def _empty_log(database: db.Database) -> None:
    with suppress(sqlite3.Error):
        if checkpointed(database, "TRUNCATE", CHECKPOINT_TIMEOUT):
            return
    log.warning("the write-ahead log could not be emptied; the next start reads it")


OnDamage = Callable[[Caller], object]
"""Called with the caller whose request met damage, on any thread."""


# Seconds between two parts of the index in memory that are prepared: long while projects are being
# loaded, as the requests that load them would wait for these parts.
PREPARE_EVERY, WHILE_LOADING = 0.001, 0.25
LOADING = 0.05  # seconds after a load in which the next is expected
QUEUE = 512  # writes that may be queued; further requests wait for a slot
QUEUE_TIMEOUT = timedelta(seconds=5)  # half of our client's timeout, so that it gets the reason


@dataclass(slots=True, eq=False)
class SqliteEngine(SqliteMaintenance, Maintenance):
    """Transactions on the database file of one tenant; created by `opened`."""

    path: Path
    known_damage: KnownDamage
    _writer: Writer
    _readers: db.Threads
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
        cls, path: Path, *, clock: Callable[[], datetime],
        quota: int | None = None, retention: Retentions = DEFAULT_RETENTIONS,
        committed: OnCommit = noop, damaged: OnDamage = noop, upgrading: OnUpgrade = noop,
        index_cache: IndexCache | None = None, sealer: Sealer | None = None,
    ) -> AsyncIterator["SqliteEngine"]:  # fmt: skip
        """Create or migrate the file and yield an engine on it; checkpoint it at the end.

        `committed`, `damaged` and `upgrading` are called on any thread. Raises StartRefused if the
        file cannot be used. A cancelled opening returns at once; the next opening undoes what it
        began.
        """
        index = index_in_memory(index_cache or IndexCache())
        async with (
            opened_file(path, clock(), upgrading) as (database, files),
            readers(path, files.require_own_log, partial(load_requested, index=index)) as reading,
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

        def transaction(database: db.Database) -> T:
            try:
                with db.in_snapshot(database, db.READ_LIMIT):
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
                if damaged := db.taken_damage(database):
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
        def transaction(database: db.Database, batch: Index) -> T:
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
                if damaged := db.taken_damage(database):
                    self.known_damage.add(caller, damaged)

        self._writer.on_damage = partial(self._report, caller)
        with self._translated(caller):
            is_synced = not is_durable_later(work)
            return await self._writer.write(transaction, db.BUSY_TIMEOUT, is_synced=is_synced)

    def _prepare_soon(self) -> None:
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare())

    async def _prepare(self) -> None:
        """Prepare what was loaded, a part at a time, so that hardly any request waits for it.

        A reader's thread would wait for the interpreter after each statement: 5 ms under load.
        """
        has_more = True
        while has_more:
            is_loading = time.monotonic() - self._index.loaded_at < LOADING
            await asyncio.sleep(WHILE_LOADING if is_loading else PREPARE_EVERY)
            has_more = self._index.prepare_some()

    @property
    def waiting(self) -> int:
        return self._writer.waiting

    def path_of(self, _: Caller) -> Path:
        return self.path

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:
        with translated():
            if thorough:
                self.note_damage(caller, is_intact=await _inspect(self.path, _is_intact))
            if not (thorough and self.is_damaged):
                self.known_damage.note(caller, await _inspect(self.path, damaged_rows))
        return Condition(is_intact=not self.is_damaged, damaged_rows=self.known_damage.names)

    async def count(self, caller: Caller) -> RowCounts:
        from ..memory.projects import row_counts  # noqa: PLC0415 - a command seldom counts rows

        return await self.read(caller, row_counts)

    async def probe(self) -> Condition:
        """Rewrite the format number to test the disk; return the known condition.

        Raises what a write raises, and Damaged while damage is known.
        """

        def rewrite(database: db.Database, _: Index) -> bool:
            ((version,),) = database.execute("PRAGMA user_version")
            database.execute(f"PRAGMA user_version = {version}")  # writes without a change
            return version_of(database) == newest_format()

        with translated():
            is_newest = await self._writer.write(rewrite, db.BUSY_TIMEOUT)
        if self.is_damaged:
            raise Damaged(f"{DAMAGED} {REMEDY}")
        return Condition(has_newest_format=is_newest, damaged_rows=self.known_damage.names)

    async def scrub_file(self, caller: Caller) -> bool:
        with self._translated(caller):
            is_done = await self._scrub()
            self._index.refresh(await self._readers.run(db.token_of))  # drop what others erased
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


def _is_intact(database: db.Database) -> bool:
    """Whether every table and its indexes can be read, page by page.

    Damage in free pages does not count.
    """
    is_listed = db.is_readable(database, "sqlite_schema")
    return is_listed and all(db.is_readable(database, name) for name in db.tables(database))


async def _inspect(path: Path, inspect: Callable[[db.Database], T]) -> T:
    """Run a long read on a connection of its own; interrupt it if the caller is cancelled."""
    stop = threading.Event()

    def work() -> T:
        with closing(db.connect(path)) as database:
            db.read_only(database)
            database.set_progress_handler(stop.is_set, db.PROGRESS)
            return inspect(database)

    try:
        return await db.run_in_thread(work)
    finally:
        stop.set()


OnOpened = Callable[[Caller, SqliteEngine], Awaitable[None]]
HasKey = Callable[[TenantId], bool]
Engines = Callable[[Path], AbstractAsyncContextManager[SqliteEngine]]
MOST_OPEN = 16  # databases besides the default one; each has three connections and threads
IDLE = timedelta(minutes=5)  # after which an unused database is closed
OPENING_TIMEOUT = timedelta(seconds=5)  # how long to wait until another one can be closed


@dataclass(slots=True, eq=False)
class _OpenDatabase:
    engine: SqliteEngine
    stack: AsyncExitStack  # closes it
    file: FileId | None
    used_at: float
    users: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)  # set while there is no user
    timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    async def close(self) -> None:
        self.stop_timer()
        if self.users:
            await self.left.wait()
        await self.stack.aclose()


@dataclass(slots=True, eq=False)
class TenantsEngine(SqliteMaintenance):
    """Transactions on the database of each caller's tenant; created by `opened`."""

    _default: SqliteEngine
    _path: Path
    _engines: Engines
    _has_key: HasKey
    _on_opened: OnOpened | None
    _slots: asyncio.Semaphore
    _idle: timedelta
    _only_open: bool = False  # whether it neither opens a database nor keeps it open
    _open: dict[TenantId, _OpenDatabase] = field(default_factory=dict)
    _opening: dict[TenantId, asyncio.Task[None]] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _waiting: set[TenantId] = field(default_factory=set)  # whose openings wait for a slot

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, path: Path, engines: Engines, *, has_key: HasKey, most: int = MOST_OPEN,
        idle: timedelta = IDLE, on_opened: OnOpened | None = None,
    ) -> AsyncIterator["TenantsEngine"]:  # fmt: skip
        """Yield an engine whose default tenant is open from the start; close all at the end.

        `engines` opens the engine of a file.
        `has_key` tells whether a tenant has a valid key: only then is its database created.
        `on_opened` is awaited with the operator of each other tenant and its open database before
        the first use. Raises StartRefused if the default tenant's file cannot be used.
        """
        async with engines(path) as default:
            slots = asyncio.Semaphore(most)
            engine = cls(default, path, engines, has_key, on_opened, slots, idle)
            try:
                yield engine
            finally:
                await asyncio.gather(*engine._opening.values(), return_exceptions=True)
                for tenant, database in list(engine._open.items()):
                    engine._forget(tenant, database)
                await asyncio.gather(*engine._closing, return_exceptions=True)

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if caller.tenant == DEFAULT_TENANT:
            return await self._default.read(caller, work, *args, **kwargs)
        async with self.used(caller, only_open=self._only_open) as engine:
            return await engine.read(caller, work, *args, **kwargs)

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if caller.tenant == DEFAULT_TENANT:
            return await self._default.write(caller, work, *args, **kwargs)
        async with self.used(caller, only_open=self._only_open) as engine:
            return await engine.write(caller, work, *args, **kwargs)

    @property
    def background(self) -> "TenantsEngine":
        """For what is done by the clock: NotFound if the tenant's database is closed."""
        return replace(self, _only_open=True)  # it shares the open databases

    def cached_reads_of(self, tenant: TenantId) -> CachedReads | None:
        """Return the cached reads of a tenant's database, if it is open."""
        if tenant == DEFAULT_TENANT:
            return self._default.cached_reads
        database = self._open.get(tenant)
        if database is None or not self._is_same_file(tenant, database):
            return None
        return database.engine.cached_reads

    @property
    def waiting(self) -> int:
        return sum(it.waiting for it in self._engines_open())

    def callers(self) -> list[Caller]:
        """Return the operator of each tenant whose database is open and not erased."""
        others = [it for it, database in self._open.items() if self._is_same_file(it, database)]
        return [Caller(tenant=tenant) for tenant in (DEFAULT_TENANT, *others)]

    def led(self) -> list[Caller]:
        return self.callers()

    async def probe(self) -> Condition:
        condition = await self._default.probe()
        damaged = [name for it in self._engines_open() for name in it.known_damage.names]
        return replace(condition, damaged_rows=damaged)

    def path_of(self, caller: Caller) -> Path:
        return tenant_file(self._path, caller.tenant)

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:
        async with self.used(caller) as engine:
            return await engine.check(caller, thorough=thorough)

    async def count(self, caller: Caller) -> RowCounts:
        async with self.used(caller, only_open=True) as engine:
            return await engine.count(caller)

    async def scrub_file(self, caller: Caller) -> bool:
        async with self.used(caller) as engine:
            return await engine.scrub_file(caller)

    @asynccontextmanager
    async def used(self, caller: Caller, *, only_open: bool = False) -> AsyncIterator[SqliteEngine]:
        """Yield the database, kept open within; with `only_open`, only if it is open already."""
        tenant = caller.tenant
        if tenant == DEFAULT_TENANT:
            yield self._default
            return
        database = self._open.get(tenant) if only_open else await self._database(tenant)
        if database is None:
            raise NotFound("The tenant's database is not open.")
        database.users += 1
        database.left.clear()
        database.stop_timer()
        try:
            yield database.engine
        finally:
            database.users -= 1
            loop = asyncio.get_running_loop()
            if not only_open:
                database.used_at = loop.time()
            if not database.users:
                database.left.set()
                if self._open.get(tenant) is not database:
                    pass
                elif self._waiting:  # for its slot
                    self._forget(tenant, database)
                else:
                    close_at = database.used_at + self._idle.total_seconds()
                    database.timer = loop.call_at(close_at, self._forget, tenant, database)

    async def _database(self, tenant: TenantId) -> _OpenDatabase:
        """Return the tenant's open database; no other task runs before the caller uses it.

        A missing one is created only while the tenant has a key. Otherwise a sweep, or a request
        that the erasure has overtaken, would create an erased one again.
        """
        while True:
            database = self._open.get(tenant)
            if database is None:
                if tenant not in self._opening:  # its first caller opens it
                    task = self._opening[tenant] = asyncio.create_task(self._open_now(tenant))
                    # Retrieve its exception, as perhaps nobody awaits it any more.
                    task.add_done_callback(lambda it: it.cancelled() or it.exception())
                # A cancelled caller must not stop the opening for the others.
                await asyncio.shield(self._opening[tenant])
            elif not self._is_same_file(tenant, database):
                self._forget(tenant, database)  # the tenant was erased, and perhaps created again
            else:
                return database

    def _is_same_file(self, tenant: TenantId, database: _OpenDatabase) -> bool:
        return database.file == file_id(tenant_file(self._path, tenant))

    def _engines_open(self) -> list[SqliteEngine]:
        return [self._default, *(it.engine for it in self._open.values())]

    async def _open_now(self, tenant: TenantId) -> None:
        path = tenant_file(self._path, tenant)
        try:
            if self._slots.locked() and (
                idle := [item for item in self._open.items() if not item[1].users]
            ):
                self._forget(*min(idle, key=lambda item: item[1].used_at))
            self._waiting.add(tenant)
            try:
                async with asyncio.timeout(OPENING_TIMEOUT.total_seconds()):
                    await self._slots.acquire()
            except TimeoutError as error:
                raise Busy("Too many databases are in use; try again.") from error
            finally:
                self._waiting.discard(tenant)
            async with AsyncExitStack() as stack:
                stack.callback(self._slots.release)
                # Checked now, as the wait for a slot may have been long.
                if not (path.exists() or self._has_key(tenant)):
                    raise NotFound("There is no such tenant.")
                try:
                    engine = await stack.enter_async_context(self._engines(path))
                except StartRefused as refusal:
                    fields = {"reason": str(refusal)}
                    log.warning("a tenant's database cannot be opened", extra=fields)
                    raise Unavailable("The tenant's database cannot be opened.") from refusal
                if self._on_opened:
                    await self._on_opened(Caller(tenant=tenant), engine)
                time = asyncio.get_running_loop().time()
                self._open[tenant] = _OpenDatabase(engine, stack.pop_all(), file_id(path), time)
        finally:  # removed here, so that a later caller does not wait for a finished task
            del self._opening[tenant]

    def _forget(self, tenant: TenantId, database: _OpenDatabase) -> None:
        """Close a database once its users have left; the next user reopens it."""
        if self._open.get(tenant) is not database:
            return
        del self._open[tenant]
        closing = asyncio.create_task(database.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
