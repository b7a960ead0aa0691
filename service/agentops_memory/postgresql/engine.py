"""The engine: transactions as plain functions, on threads, each with its own connection."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import Any, ParamSpec, TypeVar, cast
from weakref import WeakValueDictionary

import psycopg
from psycopg import errors

from ..engine import engine as port
from ..errors import Busy, DamagedRow, Refusal, StartRefused
from ..light import dataclass, replace
from ..memory.access import DEFAULT_TENANT, Caller, TenantId
from ..memory.damage import KnownDamage
from ..memory.erasure import ErasureId, ReceiptTable
from ..memory.projects import row_counts
from ..memory.rows import Uids, micros
from ..memory.space import DEFAULT_RETENTIONS, ErasureKind, Retentions
from ..memory.table import Sql
from ..recall.cache import IndexCache
from . import transaction as writing
from .connection import all_up_to_date, connect, schema_of, translated
from .index import FIRST
from .postings import IndexMemory
from .tenants import damaged
from .transactions import HasKey, OnCommit, Transactions

LEADER_LOCK = writing.number_of("agentops", "leader")
# Shared by serving processes, exclusive for a copy.
SERVING_LOCK = writing.number_of("agentops", "serves")
COPIED = "The database is being copied; start the service when the copy has ended."

LOCK_TIMEOUT = "1s"
ANALYZE_EVERY = 3  # attempts to lead, between two searches for new tables
# Tables with rows but without statistics: the planner would expect one row.
_NEW_TABLES = """
    SELECT format('%I.%I', s.schemaname, s.relname)
      FROM agentops.tenants t
      JOIN pg_stat_all_tables s ON s.schemaname = t.schema
     WHERE s.last_analyze IS NULL AND s.last_autoanalyze IS NULL AND s.n_mod_since_analyze > 20"""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Leader:
    """Whether this process leads, by a lock that its connection holds."""

    connect: Callable[[], psycopg.Connection[Any]]
    leads: bool = False
    _connection: psycopg.Connection[Any] | None = None
    _tries: int = 0

    def serve(self) -> psycopg.Connection[Any]:
        """Keep others from copying the database; StartRefused while a copy is being made."""
        connection = self._connection = self.connect()
        connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        with translated():
            lock = connection.execute("SELECT pg_try_advisory_lock_shared(%s)", (SERVING_LOCK,))
            if lock.fetchone() != (True,):
                raise StartRefused(COPIED)
        return connection

    def try_to_lead(self) -> list[TenantId]:
        """Lead if no other process does; return all tenants if this process leads, else []."""
        try:
            connection = self._connection or self.serve()
            if not self.leads:
                lock = connection.execute("SELECT pg_try_advisory_lock(%s)", (LEADER_LOCK,))
                if lock.fetchone() != (True,):
                    return []
            tenants = all_up_to_date(connection)  # an older process may have created some
            if not self.leads:
                log.info("this process is now the leader and runs the scheduled jobs")
            self.leads = True
            self._tries += 1
            # Analyze new tables soon, as autovacuum comes only after a minute.
            rows = [] if self._tries % ANALYZE_EVERY else connection.execute(_NEW_TABLES).fetchall()
            for (table,) in rows:
                # A locked table is tried again later; a dropped one is not.
                with suppress(errors.LockNotAvailable, errors.UndefinedTable):
                    connection.execute(cast(Any, f"ANALYZE {table}"))
        except (psycopg.Error, Refusal) as error:
            self.close()
            log.debug("this process cannot lead now: %s", error)
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
    "pages of the database that are not overwritten yet",
    "its write-ahead log",
    "its replicas",
    "its backups",
)


def _settleable(tx: writing.PostgresTransaction, kept: timedelta | None) -> list[ErasureId]:
    """Return the erasures that can be settled, given how long copies are kept, if that is known."""
    return tx[Sql].column(
        f"""SELECT e.id
              FROM erasures e
              JOIN agentops.tenants t ON t.schema = current_schema()
             WHERE e.bytes_gone_at IS NULL AND NOT e.goes_on
                   AND (e.kind = '{ErasureKind.AGENT}'
                        OR e.erased_at <= t.rewritten_at AND t.rewritten_at <= :expired)
          ORDER BY e.id""",
        expired=None if kept is None else micros(tx.now) - kept // timedelta(microseconds=1),
    )


POOL = 8  # most connections of a process
RESERVED_FOR_READS = 2  # connections that writes cannot take
LOOK = timedelta(seconds=1)  # between two attempts to lead


class PostgresEngine:
    """Transactions on the schema of each caller's tenant, and its maintenance.

    Open an engine with `opened`.
    """

    def __init__(
        self, transactions: Transactions, leader: Leader, size: int, *,
        copies_kept: timedelta | None = None,
    ) -> None:  # fmt: skip
        self._copies_kept = copies_kept  # how long WAL, replicas and backups keep erased data
        self._transactions = transactions
        self._leader = leader
        self._threads = ThreadPoolExecutor(size, "database")
        self._slots = writing.Slots(size)
        self._write_slots = writing.Slots(max(size - RESERVED_FOR_READS, 1))
        self._queues: WeakValueDictionary[writing.Lock, writing.WriteQueue] = WeakValueDictionary()
        self._waiting: dict[TenantId, int] = {}
        self._known: dict[TenantId, KnownDamage] = {}
        transactions.on_damage = lambda caller, damaged: self.known_of(caller).add(caller, damaged)

    @classmethod
    @asynccontextmanager
    async def opened(  # noqa: PLR0913 - options, each by its name
        cls, url: str, *, clock: Callable[[], datetime],
        quota: int | None = None, retention: Retentions = DEFAULT_RETENTIONS,
        sealer: port.Sealer | None = None, index_cache: IndexCache | None = None,
        has_key: HasKey = lambda _: True, upgrading: Callable[[], object] = port.noop,
        committed: OnCommit = port.noop, size: int = POOL, copies_kept: timedelta | None = None,
        tenant: TenantId = DEFAULT_TENANT, may_lead: bool = False,
    ) -> AsyncIterator["PostgresEngine"]:  # fmt: skip
        """Upgrade the schemas of all tenants, and yield an engine over the database.

        `tenant` is created if missing. With `may_lead` the process may become the leader, which
        runs the scheduled jobs of all tenants. `has_key` returns whether a key opens a tenant; only
        then its schema is created. `upgrading` is called on a thread. Raises StartRefused or
        Unavailable if the database cannot be used.
        """
        connecting = partial(connect, url)
        new_transaction = partial(
            writing.PostgresTransaction, quota=quota, retention=retention,
            uids=Uids(), sealer=sealer,
        )  # fmt: skip
        new_memory = partial(IndexMemory, index_cache)
        transactions = Transactions(
            connecting, clock, new_transaction, new_memory, has_key, committed
        )
        engine = cls(transactions, Leader(connecting), size, copies_kept=copies_kept)
        try:
            if may_lead:
                await asyncio.to_thread(engine._leader.serve)
            await asyncio.to_thread(transactions.prepare, tenant, upgrading)
            if may_lead:
                await asyncio.to_thread(engine._try_to_lead)
            yield engine
        finally:
            await asyncio.to_thread(engine._close)

    async def read(
        self, caller: Caller, work: writing.Work[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def bound(tx: writing.PostgresTransaction) -> T:
            return work(tx, *args, **kwargs)

        until = writing.deadline()
        running = await self._start(until, self._transactions.read, caller, bound)
        answer: T = await asyncio.shield(running)
        if self._transactions.needs_load(caller.tenant) and not self._slots.locked():
            await self._start(until, self._transactions.load, caller.tenant)  # in the background
        return answer

    async def write(
        self, caller: Caller, work: writing.Work[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        tenant = caller.tenant
        change = writing.Change(caller, lambda tx: work(tx, *args, **kwargs), writing.deadline())
        self._waiting[tenant] = self._waiting.get(tenant, 0) + 1
        try:
            if (target := port.target_of(work)) is not None:
                change.target = target(*args, **kwargs)
                with suppress(writing.NeedsToBeAlone):
                    return cast("T", await self._write(change))
                change.target = None
            return cast("T", await self._write(change, alone=True))
        except DamagedRow as damage:
            self.known_of(caller).add(caller, [damage])
            raise
        finally:
            self._waiting[tenant] -= 1

    def known_of(self, caller: Caller) -> KnownDamage:
        return self._known.setdefault(caller.tenant, KnownDamage(schema_of(caller.tenant)))

    async def _write(self, change: writing.Change, *, alone: bool = False) -> Any:
        """Write a change in its tenant's queue, else in its project's queue, else by itself."""
        of_tenant = writing.Lock(tenant=change.caller.tenant, alone=alone)
        own = replace(of_tenant, project=change.project)
        locks = [own] if alone or own in self._queues else [of_tenant, own]
        for lock in locks if alone or change.target else ():
            queue = self._queues.setdefault(lock, writing.WriteQueue(partial(self._run, lock)))
            outcome = await queue.submit(change)
            if outcome is not None:
                return port.answer_of(outcome)
        outcome = (await self._run(own, [change], port.noop))[change]
        assert outcome is not None
        return port.answer_of(outcome)

    async def _run(
        self, lock: writing.Lock, changes: Sequence[writing.Change], committing: Callable[[], None]
    ) -> writing.Outcomes:
        """Run changes in one transaction, as soon as a slot is free."""

        def others() -> int:
            return self._waiting[lock.tenant] - len(changes)

        work = partial(self._transactions.write, lock, changes, others, committing)
        try:
            writing = await self._start(changes[0].until, work, writes=True)
        except Busy as busy:  # late changes fail, or all if none is late
            now = asyncio.get_running_loop().time()
            late = list(takewhile(lambda it: now >= it.until, changes))
            return dict.fromkeys(late or changes, port.Outcome(error=busy))
        return await asyncio.shield(writing)

    @property
    def waiting(self) -> int:
        return sum(self._waiting.values())

    @property
    def maintenance(self) -> "PostgresEngine":
        return self

    @property
    def background(self) -> "PostgresEngine":
        return self

    def callers(self) -> Sequence[Caller]:
        others = sorted(self._transactions.tenants - {DEFAULT_TENANT})
        return [Caller(tenant=tenant) for tenant in (DEFAULT_TENANT, *others)]

    def led(self) -> Sequence[Caller]:
        return self.callers() if self._leader.leads else ()

    async def lead(self) -> None:
        """Try to become and stay the leader, until cancelled."""
        while True:
            await asyncio.sleep(LOOK.total_seconds())
            await asyncio.to_thread(self._try_to_lead)

    async def probe(self) -> port.Condition:
        probing = await self._start(writing.deadline(), self._transactions.probe, writes=True)
        known = [name for caller in self.callers() for name in self.known_of(caller).names]
        return port.Condition(lacks_standby=not await asyncio.shield(probing), damaged_rows=known)

    async def _start(
        self, until: float, work: Callable[..., T], *args: object, writes: bool = False
    ) -> asyncio.Future[T]:
        """Start work on a thread; it keeps its slot until it ends, even if its caller is cancelled.

        Raises Busy if no slot is free by `until` (loop time).
        """
        with ExitStack() as taken:
            for slots in (self._write_slots, self._slots) if writes else (self._slots,):
                await slots.take(until)
                taken.callback(slots.release)
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._threads, partial(work, *args))
            kept = taken.pop_all()
            running.add_done_callback(lambda _: kept.close())
        return running

    def _try_to_lead(self) -> None:
        if tenants := self._leader.try_to_lead():  # other processes create and erase tenants
            self._transactions.tenants = {*tenants}

    def _close(self) -> None:
        self._leader.close()
        self._threads.shutdown()
        self._transactions.close()

    # The maintenance of schemas, and of the full-text index area by area.

    @property
    def has_files(self) -> bool:
        return False

    async def check(self, caller: Caller, *, thorough: bool = False) -> port.Condition:  # noqa: ARG002
        known = self.known_of(caller)
        known.note(caller, await self.read(caller, lambda tx: damaged(tx.connection)))
        return port.Condition(damaged_rows=known.names)

    async def repair(self, caller: Caller) -> Sequence[int]:  # noqa: ARG002
        return ()

    async def bring_to_rules(self, caller: Caller) -> None:
        if not await self.read(caller, lambda tx: tx.index.is_current):
            for area in await self.write(caller, lambda tx: tx.index.take_over()):
                await self.rebuild(caller, area)

    async def tidy(self, caller: Caller) -> port.Tidied:
        await self.bring_to_rules(caller)
        drifts = await self.drifts(caller)
        rebuilt = tuple(area for area, drift in drifts.items() if drift)
        for area in rebuilt:
            await self.rebuild(caller, area)
        moved = 0
        while await self.write(caller, lambda tx: tx.index.rebalance()):
            moved += 1
        return port.Tidied(
            parts=len(drifts), drift=sum(drifts.values()), rebuilt=rebuilt, moved=moved,
            is_damaged=False,
        )  # fmt: skip

    async def scrub(self, caller: Caller) -> port.Scrubbed:
        """Settle receipts of erasures whose bytes are gone from the tables and their copies.

        They are gone once tables were rewritten and copies have expired. Receipts of agents settle
        at once, as nobody asks for them. None is reported as pending: a retry would not help.
        """
        gone = await self.read(caller, _settleable, self._copies_kept)
        if gone:
            await self.write(caller, lambda tx: tx[ReceiptTable].settle(gone))
        return port.Scrubbed(settled=len(gone))

    async def sizes(self, caller: Caller) -> port.Sizes:
        size = await self.read(caller, lambda tx: writing.stored(tx.connection))
        return port.Sizes(database=size, log=None, free=None)

    async def count(self, caller: Caller) -> port.RowCounts:
        return await self.read(caller, row_counts)

    def copies(self, caller: Caller) -> Sequence[str]:  # noqa: ARG002
        return COPIES

    async def drifts(self, caller: Caller) -> dict[int, int]:
        return await self.read(caller, lambda tx: tx.index.drifts())

    async def is_exact(self, caller: Caller, number: int) -> bool:
        return await self.read(caller, lambda tx: tx.index.is_exact(number))

    async def rebuild(self, caller: Caller, number: int) -> None:
        """Reindex an area in portions, between which others read and write."""
        rebuild = await self.write(caller, lambda tx: tx.index.begin_rebuild(number))
        after = FIRST
        while True:
            portion = await self.read(
                caller, lambda tx, *args: tx.index.portion(*args), number, after
            )
            if not await self.write(
                caller, lambda tx, *args: tx.index.rebuild(*args), rebuild, portion
            ):
                return
            after = portion.last
