"""The engine of all tenants: each has a database of its own, opened when it is first used."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from ...engine.maintenance import Condition
from ...errors import Busy, NotFound, StartRefused, Unavailable
from ...memory.model.access import DEFAULT_TENANT, Caller, TenantId
from ...recall.held_reads import HeldReads
from ..base.open_files import file_id
from .engine import SqliteEngine, SqliteMaintenance
from .transaction import Work

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InPassing:
    """Transactions that open no database, and keep none open; NotFound for one that is closed."""

    databases: "TenantsEngine"

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self.databases.used(caller, in_passing=True) as engine:
            return await engine.read(caller, work, *args, **kwargs)

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self.databases.used(caller, in_passing=True) as engine:
            return await engine.write(caller, work, *args, **kwargs)

    @property
    def maintenance(self) -> SqliteMaintenance:
        return self.databases.maintenance


OnOpened = Callable[[Caller, SqliteEngine], Awaitable[None]]
HasKey = Callable[[TenantId], bool]
Engines = Callable[[Path], AbstractAsyncContextManager[SqliteEngine]]

log = logging.getLogger(__name__)

MOST_OPEN = 16  # databases beside the default one; each has three connections and threads
IDLE = timedelta(minutes=5)  # after which a database that nobody uses is closed
TIMEOUT = timedelta(seconds=5)  # until another tenant's database can be closed


def tenant_file(path: Path, tenant: TenantId) -> Path:
    return path if tenant == DEFAULT_TENANT else tenants_folder(path) / f"{tenant}.db"


def tenants_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.tenants")


class _Database:
    def __init__(self, engine: SqliteEngine, stack: AsyncExitStack, path: Path) -> None:
        self.engine = engine
        self.file = file_id(path)
        self.used_at = asyncio.get_running_loop().time()
        self._stack = stack
        self._users = 0
        self._left = asyncio.Event()
        self._left.set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return not self._users

    def take(self) -> None:
        self._users += 1
        self._left.clear()
        self._stop_waiting()

    def give_back(self, *, was_used: bool = True) -> None:
        self._users -= 1
        if was_used:
            self.used_at = asyncio.get_running_loop().time()
        if self.is_idle:
            self._left.set()

    def when_idle_for(self, time: timedelta, then: Callable[[], None]) -> None:
        self._stop_waiting()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self.used_at + time.total_seconds(), then)

    async def close(self) -> None:
        self._stop_waiting()
        await self._left.wait()
        await self._stack.aclose()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


@dataclass(slots=True, eq=False)
class TenantsEngine:
    """Transactions on the database of each caller's tenant. Make one with `opened`."""

    _default: SqliteEngine
    _path: Path
    _engines: Engines
    _has_key: HasKey
    _on_opened: OnOpened | None
    _places: asyncio.Semaphore
    _idle: timedelta
    _open: dict[TenantId, _Database] = field(default_factory=dict)
    _opening: dict[TenantId, asyncio.Task[None]] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _waiting: int = 0  # for a place

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        path: Path,
        engines: Engines,
        *,
        has_key: HasKey,
        most: int = MOST_OPEN,
        idle: timedelta = IDLE,
        on_opened: OnOpened | None = None,
    ) -> AsyncIterator["TenantsEngine"]:
        """An engine whose default tenant is open from the start. At the end all are closed.

        `engines` opens the engine of a file.
        `has_key` tells whether a key opens a tenant now: only then its database is made.
        `on_opened` is awaited with the operator of each other tenant and its open database before
        anybody uses that. Raises StartRefused when the default tenant's file cannot be used as
        it is.
        """
        async with engines(path) as default:
            places = asyncio.Semaphore(most)
            engine = cls(default, path, engines, has_key, on_opened, places, idle)
            try:
                yield engine
            finally:
                await engine._close_all()

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if caller.tenant == DEFAULT_TENANT:
            return await self._default.read(caller, work, *args, **kwargs)
        async with self.used(caller) as engine:
            return await engine.read(caller, work, *args, **kwargs)

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if caller.tenant == DEFAULT_TENANT:
            return await self._default.write(caller, work, *args, **kwargs)
        async with self.used(caller) as engine:
            return await engine.write(caller, work, *args, **kwargs)

    @property
    def in_passing(self) -> InPassing:
        """For what is done by the clock: it opens no database, and keeps none open."""
        return InPassing(self)

    @property
    def maintenance(self) -> SqliteMaintenance:
        return SqliteMaintenance(self)

    def held(self, tenant: TenantId) -> HeldReads | None:
        """The reads of a tenant's database that memory answers, if it is open."""
        if tenant == DEFAULT_TENANT:
            return self._default.held
        database = self._open.get(tenant)
        if database is None or not self._is_in_place(tenant, database):
            return None
        return database.engine.held

    @property
    def waiting(self) -> int:
        return sum(it.waiting for it in self._engines_open())

    def callers(self) -> list[Caller]:
        """The operator of each tenant whose database is open, and was not erased."""
        there = [it for it, database in self._open.items() if self._is_in_place(it, database)]
        return [Caller(tenant=tenant) for tenant in (DEFAULT_TENANT, *there)]

    def led(self) -> list[Caller]:
        return self.callers()

    async def probe(self) -> Condition:
        found = await self._default.probe()
        damaged = [told for it in self._engines_open() for told in it.damage.known.names]
        return replace(found, damaged_rows=damaged)

    def path_of(self, caller: Caller) -> Path:
        return tenant_file(self._path, caller.tenant)

    @asynccontextmanager
    async def used(
        self, caller: Caller, *, in_passing: bool = False
    ) -> AsyncIterator[SqliteEngine]:
        tenant = caller.tenant
        if tenant == DEFAULT_TENANT:
            yield self._default
            return
        database = self._open.get(tenant) if in_passing else await self._found(tenant)
        if database is None:
            raise NotFound("The tenant's database is not open.")
        database.take()
        try:
            yield database.engine
        finally:
            database.give_back(was_used=not in_passing)
            self._consider(tenant, database)

    async def _found(self, tenant: TenantId) -> _Database:
        """The tenant's database, open; nothing else runs before the caller takes it.

        One that is not there is made while the tenant has a key: else one that was
        erased would come back with a sweep, or a request that its erasure has overtaken.
        """
        while True:
            database = self._open.get(tenant)
            if database is None:
                await self._opened_by_one(tenant)
            elif not self._is_in_place(tenant, database):
                self._forget(tenant, database)  # the tenant was erased, and perhaps made again
            else:
                return database

    def _is_in_place(self, tenant: TenantId, database: _Database) -> bool:
        return database.file == file_id(tenant_file(self._path, tenant))

    def _engines_open(self) -> list[SqliteEngine]:
        return [self._default, *(it.engine for it in self._open.values())]

    def _consider(self, tenant: TenantId, database: _Database) -> None:
        """Close a database that nobody uses: at once where a place is wanted, else later."""
        if not database.is_idle or self._open.get(tenant) is not database:
            return
        close = partial(self._forget, tenant, database)
        if self._waiting:
            close()
        else:
            database.when_idle_for(self._idle, close)

    async def _opened_by_one(self, tenant: TenantId) -> None:
        """See to it that the database is opened, by the first of those who want it together."""
        if tenant not in self._opening:
            task = self._opening[tenant] = asyncio.create_task(self._open_one(tenant))
            # Looked at, for perhaps nobody waits for it any more.
            task.add_done_callback(lambda it: it.cancelled() or it.exception())
        # One who leaves does not stop the others' database from opening.
        await asyncio.shield(self._opening[tenant])

    async def _open_one(self, tenant: TenantId) -> None:
        try:
            await self._open_now(tenant)
        finally:  # here: whoever looks later than the last step must not wait for one that is over
            del self._opening[tenant]

    async def _open_now(self, tenant: TenantId) -> None:
        await self._take_place()
        path = tenant_file(self._path, tenant)
        async with AsyncExitStack() as stack:
            stack.callback(self._places.release)
            # Looked at now: it may have waited long for its place.
            if not (path.exists() or self._has_key(tenant)):
                raise NotFound("There is no such tenant.")
            try:
                engine = await stack.enter_async_context(self._engines(path))
            except StartRefused as refusal:
                log.warning("a tenant's database cannot be opened", extra={"reason": str(refusal)})
                raise Unavailable("The tenant's database cannot be opened.") from refusal
            if self._on_opened:
                await self._on_opened(Caller(tenant=tenant), engine)
            self._open[tenant] = _Database(engine, stack.pop_all(), path)

    async def _take_place(self) -> None:
        if self._places.locked():
            idle = [item for item in self._open.items() if item[1].is_idle]
            if idle:
                self._forget(*min(idle, key=lambda item: item[1].used_at))
        self._waiting += 1
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()):
                await self._places.acquire()
        except TimeoutError as error:
            raise Busy("Too many databases are in use; try again.") from error
        finally:
            self._waiting -= 1

    def _forget(self, tenant: TenantId, database: _Database) -> None:
        """Close a database once its users have left; who comes by then opens it again."""
        if self._open.get(tenant) is not database:
            return
        del self._open[tenant]
        closing = asyncio.create_task(database.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close_all(self) -> None:
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for tenant, database in list(self._open.items()):
            self._forget(tenant, database)
        await asyncio.gather(*self._closing, return_exceptions=True)
