"""The engine: transactions as plain functions, on threads with connections of their own."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import Any, ParamSpec, TypeVar, cast
from weakref import WeakValueDictionary

import psycopg
from psycopg import errors

from ..engine.engine import (
    Condition,
    Failed,
    Progress,
    RowCounts,
    Scrubbed,
    Sealer,
    Sizes,
    Tidied,
    answer_of,
    is_within_one_project,
    noop,
    target_of,
)
from ..errors import Busy, DamagedRow, Refusal, StartRefused
from ..light import dataclass, replace
from ..memory.access import DEFAULT_TENANT, Caller, TenantId
from ..memory.damage import KnownDamage
from ..memory.erasure import ErasureId, ReceiptTable
from ..memory.projects import row_counts
from ..memory.rows import EPOCH, Uids, instant, micros
from ..memory.space import DEFAULT_RETENTIONS, ErasureKind, Retentions
from ..memory.table import Sql
from ..recall.cache import IndexCache
from ..recall.features import ALL, Features
from .connection import connect, damaged, translated
from .index import FIRST
from .migrate import all_up_to_date, schema_of
from .postings import IndexMemory
from .transaction import (
    Change,
    Line,
    Lock,
    NeedsToBeAlone,
    Outcomes,
    Places,
    PostgresTransaction,
    Work,
    deadline,
    number_of,
    stored,
)
from .transactions import HasKey, OnCommit, Transactions

LOCK = number_of("agentops", "leader")
SERVES = number_of("agentops", "serves")  # shared by all that serve; who copies has it alone
COPIED = "The database is being copied; start the service when the copy has ended."

LOCK_TIMEOUT = "1s"
ANALYZE_EVERY = 3  # looks
# Tables that have some rows by now, of which the planner knows nothing: it would expect one.
_NEW = """
    SELECT format('%I.%I', s.schemaname, s.relname)
      FROM agentops.tenants t
      JOIN pg_stat_all_tables s ON s.schemaname = t.schema
     WHERE s.last_analyze IS NULL AND s.last_autoanalyze IS NULL AND s.n_mod_since_analyze > 20"""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Leader:
    """Whether this process leads, by a lock that ends with its connection."""

    connect: Callable[[], psycopg.Connection[Any]]
    leads: bool = False
    _connection: psycopg.Connection[Any] | None = None
    _looks: int = 0

    def serve(self) -> psycopg.Connection[Any]:
        """Let nobody copy the database from now on; StartRefused while somebody does."""
        connection = self._connection = self.connect()
        connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        with translated():
            lock = connection.execute("SELECT pg_try_advisory_lock_shared(%s)", (SERVES,))
            if lock.fetchone() != (True,):
                raise StartRefused(COPIED)
        return connection

    def look(self) -> list[TenantId]:
        """Lead, if nobody else does; the tenants that there are now, if this one leads."""
        try:
            connection = self._connection or self.serve()
            if not self.leads:
                lock = connection.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,))
                if lock.fetchone() != (True,):
                    return []
            tenants = all_up_to_date(connection)  # an older process may have made some
            if not self.leads:
                log.info("this process is now the leader and runs the scheduled jobs")
            self.leads = True
            self._looks += 1
            # Let the planner know of new tables at once; autovacuum comes after a minute.
            rows = [] if self._looks % ANALYZE_EVERY else connection.execute(_NEW).fetchall()
            for (table,) in rows:
                # One that is locked is met again, one that was erased is not.
                with suppress(errors.LockNotAvailable, errors.UndefinedTable):
                    connection.execute(cast(Any, f"ANALYZE {table}"))
        except (psycopg.Error, Refusal) as error:
            self.close()
            log.debug("no process can be the leader now: %s", error)
            return []
        return tenants

    def close(self) -> None:
        self.leads = False
        if self._connection is not None:
            with suppress(psycopg.Error):  # at once, before the server sees that it is closed
                self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._connection.close()
            self._connection = None


P = ParamSpec("P")
T = TypeVar("T")

COPIES = (
    "pages of the database that were not written over",
    "its write-ahead log",
    "its replicas",
    "its backups",
)


@dataclass(frozen=True, slots=True)
class PostgresMaintenance:
    """Looks after schemas; areas of the full-text index one by one."""

    engine: "PostgresEngine"

    @property
    def has_files(self) -> bool:
        return False

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:  # noqa: ARG002
        known = self.engine.known_of(caller)
        known.note(caller, await self.engine.read(caller, lambda tx: damaged(tx.connection)))
        return Condition(damaged_rows=known.names)

    async def repair(self, caller: Caller) -> Sequence[int]:  # noqa: ARG002
        return ()

    async def bring_to_rules(self, caller: Caller) -> None:
        if not await self.engine.read(caller, lambda tx: tx.index.is_ours):
            await self.engine.write(caller, lambda tx: tx.index.take_over())
        for area in await self.engine.read(caller, lambda tx: tx.index.unfinished()):
            await self.rebuild(caller, area)

    async def tidy(self, caller: Caller) -> Tidied:
        await self.bring_to_rules(caller)
        drifts = await self.drifts(caller)
        rebuilt = tuple(area for area, drift in drifts.items() if drift)
        for area in rebuilt:
            await self.rebuild(caller, area)
        moved = 0
        while await self.engine.write(caller, lambda tx: tx.index.rebalance()):
            moved += 1
        return Tidied(
            parts=len(drifts),
            drift=sum(drifts.values()),
            rebuilt=rebuilt,
            moved=moved,
            is_damaged=False,
        )

    async def scrub(self, caller: Caller, progress: Progress = noop) -> Scrubbed:  # noqa: ARG002
        """Settle receipts of what neither the tables nor their copies have any more.

        That is known when the tables were rewritten since, and copies are kept no longer; of
        what was removed of agents nobody asks. Nothing is held back: no further try is of use.
        """
        kept = self.engine.copies_kept
        if not await self.engine.read(caller, _gone, kept):
            return Scrubbed()
        return Scrubbed(settled=await self.engine.write(caller, _settled, kept))

    async def sizes(self, caller: Caller) -> Sizes:
        size = await self.engine.read(caller, lambda tx: stored(tx.connection))
        return Sizes(database=size, log=None, free=None)

    async def count(self, caller: Caller) -> RowCounts:
        return await self.engine.read(caller, row_counts)

    def copies(self, caller: Caller) -> Sequence[str]:  # noqa: ARG002
        return COPIES

    async def drifts(self, caller: Caller) -> dict[int, int]:
        return await self.engine.read(caller, lambda tx: tx.index.drifts())

    async def is_exact(self, caller: Caller, number: int) -> bool:
        return await self.engine.read(caller, lambda tx: tx.index.is_exact(number))

    async def rebuild(self, caller: Caller, number: int) -> None:
        """Make the words of an area again, in portions between which others read and write."""
        rebuild = await self.engine.write(caller, lambda tx: tx.index.begin_rebuild(number))
        after = FIRST
        while True:
            portion = await self.engine.read(
                caller, lambda tx, *args: tx.index.portion(*args), number, after
            )
            if not await self.engine.write(
                caller, lambda tx, *args: tx.index.rebuild(*args), rebuild, portion
            ):
                return
            after = portion.last


def _settled(tx: PostgresTransaction, kept: timedelta | None) -> int:
    gone = _gone(tx, kept)
    tx[ReceiptTable].settle(gone)
    return len(gone)


def _gone(tx: PostgresTransaction, kept: timedelta | None) -> list[ErasureId]:
    """The erasures whose bytes are gone now, if copies are kept so long."""
    (rewritten,) = tx[Sql].column(
        "SELECT rewritten_at FROM agentops.tenants WHERE schema = current_schema()"
    )
    until = EPOCH
    if kept is not None and rewritten is not None and instant(rewritten) + kept <= tx.now:
        until = instant(rewritten)
    return tx[Sql].column(
        f"""SELECT id
              FROM erasures
             WHERE bytes_gone_at IS NULL AND NOT goes_on
                   AND (kind = '{ErasureKind.AGENT}' OR erased_at <= :until)
          ORDER BY id""",
        until=micros(until),
    )


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
        self._known: dict[TenantId, KnownDamage] = {}
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
        retention: Retentions = DEFAULT_RETENTIONS,
        sealer: Sealer | None = None,
        index_cache: IndexCache | None = None,
        has_key: HasKey = lambda _: True,
        upgrading: Callable[[], object] = noop,
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
        connecting = partial(connect, url)
        transactions = Transactions(
            connecting,
            clock,
            partial(
                PostgresTransaction,
                features=features,
                quota=quota,
                retention=retention,
                uids=Uids(),
                sealer=sealer,
            ),
            partial(IndexMemory, index_cache, features),
            has_key,
            committed,
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
        if self._transactions.is_wanting(caller.tenant) and not self._places.locked():
            await self._begun(until, self._transactions.load, caller.tenant)  # nobody waits for it
        return answer

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        tenant = caller.tenant
        change = Change(caller, lambda tx: work(tx, *args, **kwargs), deadline())
        self._waiting[tenant] = self._waiting.get(tenant, 0) + 1
        try:
            if is_within_one_project(work):
                change.target = target_of(work, *args, **kwargs)
                with suppress(NeedsToBeAlone), self._noting(caller):
                    return cast("T", await self._written(change))
                change.target = None
            with self._noting(caller):
                return cast("T", await self._written(change, alone=True))
        finally:
            self._waiting[tenant] -= 1

    def known_of(self, caller: Caller) -> KnownDamage:
        return self._known.setdefault(caller.tenant, KnownDamage(schema_of(caller.tenant)))

    @contextmanager
    def _noting(self, caller: Caller) -> Iterator[None]:
        try:
            yield
        except DamagedRow as damage:
            self.known_of(caller).add(caller, [damage])
            raise

    async def _written(self, change: Change, *, alone: bool = False) -> Any:
        """Made with all that wait, else with those of its project, else by itself."""
        everyone = Lock(tenant=change.caller.tenant, alone=alone)
        own = replace(everyone, project=change.project)
        lines = [own] if alone or own in self._lines else [everyone, own]
        for lock in lines if alone or change.target else ():
            line = self._lines.setdefault(lock, Line(partial(self._make, lock)))
            outcome = await line.made(change)
            if outcome is not None:
                return answer_of(outcome)
        outcome = (await self._make(own, [change], noop))[change]
        assert outcome is not None
        return answer_of(outcome)

    async def _make(
        self, lock: Lock, changes: Sequence[Change], committing: Callable[[], None]
    ) -> Outcomes:
        """Make changes together, as soon as there is a connection for it."""

        def others() -> int:
            return self._waiting[lock.tenant] - len(changes)

        work = partial(self._transactions.write, lock, changes, others, committing)
        try:
            writing = await self._begun(changes[0].until, work, writes=True)
        except Busy as busy:  # of those that waited for too long; others have more time
            now = asyncio.get_running_loop().time()
            late = list(takewhile(lambda it: now >= it.until, changes))
            return dict.fromkeys(late or changes, Failed(busy))
        return await asyncio.shield(writing)

    @property
    def waiting(self) -> int:
        return sum(self._waiting.values())

    @property
    def maintenance(self) -> PostgresMaintenance:
        return PostgresMaintenance(self)

    @property
    def background(self) -> "PostgresEngine":
        return self

    def callers(self) -> Sequence[Caller]:
        others = sorted(it for it in self._transactions.tenants if it != DEFAULT_TENANT)
        return [Caller(tenant=tenant) for tenant in (DEFAULT_TENANT, *others)]

    def led(self) -> Sequence[Caller]:
        return self.callers() if self._leader.leads else ()

    async def lead(self) -> None:
        """Lead as soon as nobody else does, until this is cancelled."""
        while True:
            await asyncio.sleep(LOOK.total_seconds())
            await asyncio.to_thread(self._look)

    async def probe(self) -> Condition:
        probing = await self._begun(deadline(), self._transactions.probe, writes=True)
        known = [name for caller in self.callers() for name in self.known_of(caller).names]
        return Condition(lacks_standby=not await asyncio.shield(probing), damaged_rows=known)

    async def _begun(
        self, until: float, work: Callable[..., T], *args: object, writes: bool = False
    ) -> asyncio.Future[T]:
        """Work that has begun. It has its place until it ends, even if its caller has left.

        Busy when there is none for it by then, a time of the loop.
        """
        with ExitStack() as taken:
            for places in (self._writers, self._places) if writes else (self._places,):
                await places.take(until)
                taken.callback(places.release)
            loop = asyncio.get_running_loop()
            working = loop.run_in_executor(self._threads, partial(work, *args))
            released = taken.pop_all()
            working.add_done_callback(lambda _: released.close())
        return working

    async def _in_thread(self, work: Callable[..., T], *args: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(work, *args))

    def _look(self) -> None:
        if tenants := self._leader.look():
            self._transactions.know(tenants)

    def _close(self) -> None:
        self._leader.close()
        self._threads.shutdown()
        self._transactions.close()
