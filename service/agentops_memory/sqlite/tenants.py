"""Tenants: each has its own database, which is opened on first use and can be erased."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    suppress,
)
from datetime import datetime, timedelta
from pathlib import Path
from typing import ParamSpec, TypeVar

from ..engine.engine import Condition
from ..engine.files import os_errors_as, owned_like, private_file, sync
from ..errors import Busy, Conflict, Invalid, NotFound, StartRefused, Unavailable
from ..light import dataclass, field, replace
from ..memory.access import DEFAULT_TENANT, Caller, TenantId, tenant_id
from ..memory.erasure import held
from ..memory.space import Counted, Retentions, StorageStats
from ..recall.cached_reads import CachedReads
from ..recall.features import ALL, Features
from .connection import connect, sizes_of
from .dialect import SQLITE, translated
from .engine import SqliteEngine, SqliteMaintenance
from .migrate import migrated
from .open_files import FileId, copies_of, file_id, require_one_name, size_at
from .transaction import Work

P = ParamSpec("P")
T = TypeVar("T")
LOG_SUFFIXES = ("-wal", "-shm")
OnOpened = Callable[[Caller, SqliteEngine], Awaitable[None]]
HasKey = Callable[[TenantId], bool]
Engines = Callable[[Path], AbstractAsyncContextManager[SqliteEngine]]
log = logging.getLogger(__name__)
MOST_OPEN = 16  # databases besides the default one; each has three connections and threads
IDLE = timedelta(minutes=5)  # after which an unused database is closed
TIMEOUT = timedelta(seconds=5)  # how long to wait until another tenant's database can be closed


def tenant_file(path: Path, tenant: TenantId) -> Path:
    return path if tenant == DEFAULT_TENANT else tenants_folder(path) / f"{tenant}.db"


def tenants_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.tenants")


@dataclass(slots=True, eq=False)
class _Database:
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
    _open: dict[TenantId, _Database] = field(default_factory=dict)
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

    @asynccontextmanager
    async def used(self, caller: Caller, *, only_open: bool = False) -> AsyncIterator[SqliteEngine]:
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

    async def _database(self, tenant: TenantId) -> _Database:
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

    def _is_same_file(self, tenant: TenantId, database: _Database) -> bool:
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
                async with asyncio.timeout(TIMEOUT.total_seconds()):
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
                self._open[tenant] = _Database(engine, stack.pop_all(), file_id(path), time)
        finally:  # removed here, so that a later caller does not wait for a finished task
            del self._opening[tenant]

    def _forget(self, tenant: TenantId, database: _Database) -> None:
        """Close a database once its users have left; the next user reopens it."""
        if self._open.get(tenant) is not database:
            return
        del self._open[tenant]
        closing = asyncio.create_task(database.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def tenants_of(path: Path) -> list[TenantId]:
    """Return the tenants with a database, of a service whose default database is at the path."""
    others = []
    for file in sorted(tenants_folder(path).glob("*.db")):
        with suppress(Invalid):
            others.append(tenant_id(file.stem))
    return [DEFAULT_TENANT, *others] if path.exists() else others


def unnamed_in(path: Path) -> list[str]:
    """Return the files in the tenants' folder whose names are not valid tenants."""
    known = {f"{tenant}.db" for tenant in tenants_of(path)}
    return sorted(it.name for it in tenants_folder(path).glob("*.db") if it.name not in known)


def counted(path: Path) -> Counted:
    """Count the contents of the database at the path, which may have an older format."""
    from .snapshots import contents_at  # noqa: PLC0415 - its models slow down the start

    size, contents = size_of(path), contents_at(path)
    if contents is None:
        return Counted(size=size)
    counts = contents.counts
    return Counted(
        size=size, memories=counts.observations, sessions=counts.sessions, stores=counts.stores
    )  # fmt: skip


def size_of(path: Path) -> int:
    """Return the bytes of a database on the disk, with its log."""
    return sum(file.stat().st_size for file in files_of(path))


def files_of(path: Path) -> list[Path]:
    """Return the existing files of a database, itself last."""
    every = [*(path.with_name(f"{path.name}{suffix}") for suffix in LOG_SUFFIXES), path]
    return [file for file in every if file.exists()]


def require_new(path: Path, tenant: TenantId) -> None:
    file = tenant_file(path, tenant)
    if file.exists():
        raise Conflict(f"The tenant {tenant} already has a database: {file}.")


def make(path: Path, tenant: TenantId, now: datetime, features: Features = ALL) -> Path:
    """Create a tenant's database next to the default one at the path; Conflict if it exists."""
    file = tenant_file(path, tenant)
    with os_errors_as(Unavailable, f"The database {file} cannot be created"):
        if not file.parent.exists():
            file.parent.mkdir(parents=True)
            owned_like(file.parent, path if path.exists() else path.parent)
        try:
            with private_file(file, os.O_RDWR | os.O_EXCL, like=file.parent):
                pass
        except FileExistsError as error:
            raise Conflict(f"The tenant {tenant} already has a database: {file}.") from error
    try:
        migrated(file, now, features)
    except BaseException:
        for part in files_of(file):  # nobody uses it yet
            part.unlink(missing_ok=True)
        raise
    return file


def remove(path: Path) -> list[Path]:
    """Remove a database permanently; later saves into it are refused, not lost.

    A process that has it open notices before it acknowledges its next commit, and a service with
    the next request. Raises StartRefused if the file would stay under another name.
    """
    require_one_name(path)
    files = files_of(path)
    with os_errors_as(Unavailable, f"The database {path} cannot be removed"):
        # The database last: while it exists, nobody creates another whose log this would remove.
        for file in files:
            file.unlink(missing_ok=True)
        sync(path.parent)
    return files


def storage_stats(path: Path, retention: Retentions, now: datetime) -> StorageStats:
    path = Path(os.path.realpath(path))  # where SQLite keeps the log
    with translated(), closing(connect(path)) as database:
        return StorageStats(
            database=path.stat().st_size,
            free=sizes_of(database)[1],
            index=sum(
                database.execute(
                    f"SELECT coalesce(sum(length(block)), 0) FROM memories_fts_{number}_data"
                ).fetchone()[0]
                for (number,) in database.execute("SELECT number FROM partitions").fetchall()
            ),
            log=size_at(path.with_name(f"{path.name}-wal")),
            copies=sum(map(size_at, copies_of(path))),
            held=held(database, SQLITE, retention, now),
        )
