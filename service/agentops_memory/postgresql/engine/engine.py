"""The engine: transactions as plain functions, on threads with connections of their own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import Any, ParamSpec, TypeVar, cast
from weakref import WeakValueDictionary

from ...engine.callbacks import noop
from ...engine.engine import is_within_one_project, project_of
from ...engine.maintenance import Condition
from ...engine.sealing import Sealer
from ...engine.shared.known_values import KnownValues
from ...engine.shared.outcomes import Failed, Outcome, answer_of
from ...errors import Busy, DamagedRow
from ...memory.model.access import DEFAULT_TENANT, Caller, TenantId
from ...memory.model.retention import USUAL, Retentions
from ...recall.index_cache.cache import IndexCache
from ...recall.text.features import ALL, Features
from ...recall.text.ids import Uids
from ..base.connecting import connect
from ..schema.migrate import schema_of
from ..words.cached import IndexMemory
from .claims import Lock, NeedsToBeAlone
from .group_commit import Change, Line, Places, deadline
from .leader import Leader
from .maintenance import PostgresMaintenance
from .transaction import PostgresTransaction, Work
from .transactions import Connections, HasKey, OnCommit, Schemas, Transactions

P = ParamSpec("P")
T = TypeVar("T")

POOL = 8  # connections of a process
KEPT_FOR_READS = 2  # of them, whatever writes wait
LOOK = timedelta(seconds=1)  # between two tries to lead


class PostgresEngine:
    """Transactions on the schema of each caller's tenant. Make one with `opened`."""

    def __init__(
        self,
        transactions: Transactions,
        leader: Leader,
        size: int,
        *,
        copies_kept: timedelta | None = None,
    ) -> None:
        self.copies_kept = copies_kept  # the log, replicas and backups, of what was erased
        self._transactions = transactions
        self._leader = leader
        self._threads = ThreadPoolExecutor(size, "database")
        self._places = Places(size)
        self._writers = Places(max(size - KEPT_FOR_READS, 1))
        self._lines: WeakValueDictionary[Lock, Line] = WeakValueDictionary()
        self._waiting: dict[TenantId, int] = {}
        self._known: dict[TenantId, KnownValues] = {}
        transactions.on_damage = lambda caller, damaged: self.known_of(caller).add(caller, damaged)

    @classmethod
    @asynccontextmanager
    async def opened(  # noqa: PLR0913 - what it is opened with, each by its name
        cls,
        url: str,
        *,
        clock: Callable[[], datetime],
        features: Features = ALL,
        quota: int | None = None,
        retention: Retentions = USUAL,
        sealer: Sealer | None = None,
        index_cache: IndexCache | None = None,
        has_key: HasKey = lambda _: True,
        upgrading: Callable[[], None] = noop,
        committed: OnCommit = noop,
        size: int = POOL,
        copies_kept: timedelta | None = None,
        tenant: TenantId = DEFAULT_TENANT,
        may_lead: bool = False,
    ) -> AsyncIterator["PostgresEngine"]:
        """An engine over the database, in which all tenants are brought up to date first.

        The named one is made where it is not there. The engine leads only if it may: who leads
        does for all what is due by the clock. `has_key` tells whether a key opens a tenant now:
        only then its schema is made. `upgrading` is called by a thread. Raises StartRefused, or
        Unavailable, when the database cannot be used as it is.
        """
        made = partial(
            PostgresTransaction,
            features=features,
            quota=quota,
            retention=retention,
            uids=Uids(),
            sealer=sealer,
        )
        memory = partial(IndexMemory, index_cache, features)
        connecting = partial(connect, url)
        transactions = Transactions(
            Connections(connecting),
            clock,
            made,
            memory,
            schemas=Schemas(has_key),
            committed=committed,
        )
        engine = cls(transactions, Leader(connecting), size, copies_kept=copies_kept)
        try:
            if may_lead:
                await engine._in_thread(engine._leader.serve)
            await engine._in_thread(transactions.prepare, tenant, upgrading)
            if may_lead:
                await engine._in_thread(engine._look)
            yield engine
        finally:
            await asyncio.to_thread(engine._close)

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def bound(tx: PostgresTransaction) -> T:
            return work(tx, *args, **kwargs)

        until = deadline()
        reading = await self._begun(until, self._transactions.read, caller, bound)
        with self._noting(caller):
            answer: T = await asyncio.shield(reading)
        if self._transactions.is_wanting(caller.tenant) and not self._places.are_taken:
            await self._begun(until, self._transactions.load, caller.tenant)  # nobody waits for it
        return answer

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def bound(tx: PostgresTransaction) -> T:
            return work(tx, *args, **kwargs)

        tenant, until = caller.tenant, deadline()
        self._waiting[tenant] = self._waiting.get(tenant, 0) + 1
        try:
            if is_within_one_project(work):
                with suppress(NeedsToBeAlone), self._noting(caller):
                    lock = Lock(tenant=tenant, project=project_of(work, *args, **kwargs))
                    return cast("T", await self._written(lock, Change(caller, bound, until)))
            lock = Lock(tenant=tenant, alone=True)
            with self._noting(caller):
                return cast("T", await self._written(lock, Change(caller, bound, until)))
        finally:
            self._waiting[tenant] -= 1

    def known_of(self, caller: Caller) -> KnownValues:
        return self._known.setdefault(caller.tenant, KnownValues(schema_of(caller.tenant)))

    @contextmanager
    def _noting(self, caller: Caller) -> Iterator[None]:
        try:
            yield
        except DamagedRow as damage:
            self.known_of(caller).add(caller, [damage])
            raise

    async def _written(self, lock: Lock, change: Change) -> Any:
        """What a change answers, once it is committed."""
        make, outcome = partial(self._make, lock), None
        if not lock.is_shared:
            line = self._lines.setdefault(lock, Line())
            outcome = await line.made(change, make)
        if outcome is None:
            (outcome,) = await make([change])
        return outcome and answer_of(outcome)

    async def _make(self, lock: Lock, changes: Sequence[Change]) -> Sequence[Outcome | None]:
        """Make changes together, as soon as there is a connection for it."""

        def others() -> int:
            return self._waiting[lock.tenant] - len(changes)

        work = partial(self._transactions.write, lock, changes, others)
        try:
            writing = await self._begun(changes[0].until, work, writes=True)
        except Busy as busy:  # of those that waited for too long; others have more time
            late = takewhile(lambda it: it.is_late, changes)
            return [Failed(busy) for _ in late] or [Failed(busy) for _ in changes]
        return await asyncio.shield(writing)

    @property
    def waiting(self) -> int:
        """How many writes wait or are being made."""
        return sum(self._waiting.values())

    @property
    def maintenance(self) -> PostgresMaintenance:
        return PostgresMaintenance(self)

    @property
    def in_passing(self) -> "PostgresEngine":
        return self

    def callers(self) -> Sequence[Caller]:
        there = sorted(it for it in self._transactions.schemas.tenants if it != DEFAULT_TENANT)
        return [Caller(tenant=tenant) for tenant in (DEFAULT_TENANT, *there)]

    def led(self) -> Sequence[Caller]:
        return self.callers() if self._leader.leads else ()

    async def lead(self) -> None:
        """Lead as soon as nobody else does, until this is cancelled."""
        while True:
            await asyncio.sleep(LOOK.total_seconds())
            await asyncio.to_thread(self._look)

    async def probe(self) -> Condition:
        probing = await self._begun(deadline(), self._transactions.probe, writes=True)
        known = [told for caller in self.callers() for told in self.known_of(caller).names]
        return Condition(lacks_standby=not await asyncio.shield(probing), damaged_values=known)

    async def _begun(
        self, until: float, work: Callable[..., T], *args: object, writes: bool = False
    ) -> asyncio.Future[T]:
        """Work that has begun. It has its place until it ends, whoever waits for it, or has left.

        Busy when there is none for it by then, a time of the loop.
        """
        with ExitStack() as held:
            for places in (self._writers, self._places) if writes else (self._places,):
                await places.take(until)
                held.callback(places.give_back)
            loop = asyncio.get_running_loop()
            working = loop.run_in_executor(self._threads, partial(work, *args))
            its = held.pop_all()
            working.add_done_callback(lambda _: its.close())
        return working

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *args))

    def _look(self) -> None:
        if there := self._leader.look():
            self._transactions.schemas.know(there)

    def _close(self) -> None:
        self._leader.close()
        self._threads.shutdown()
        self._transactions.close()
