"""Background jobs, run on a signal or an interval with retries and logged failures; and the
retention job.

The retention job removes rows past their retention, by a trusted clock. Its sweep runs in short
transactions; for each kind of row, one function finds rows and another removes them.
"""

import asyncio
import logging
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from logging import Logger
from typing import Any, TypeVar

from ..engine.engine import Engine, Scrubbed, Transaction, noop
from ..errors import NotFound, Refusal, code_of, is_operational, reason
from ..light import dataclass
from ..memory.access import Caller, TenantId
from ..memory.agent_memory import AgentEntryId
from ..memory.erasure import ReceiptTable, next_step, past_memories
from ..memory.idempotency import IdempotencyTable
from ..memory.lifecycles import swept, unswept
from ..memory.memories import MemoryTable
from ..memory.memory import MemoryId
from ..memory.saves import RevisionTable
from ..memory.space import BY_CLOCK, Kind, Project, Retentions, SpaceKind
from ..openintent import agents
from ..openintent.entries import expired
from ..openintent.events import expire, forget_events, past_events
from ..openintent.tasks import forget_tasks, past_tasks
from ..openwop.runs import RunId, RunStatus, RunTable
from ..sqlite import connection
from ..stores.store import erase_some_of_store, is_store_going
from ..telemetry import Metrics
from ..telemetry.metrics import EXPIRED, SWEPT_ROWS

T = TypeVar("T")

HURRY = timedelta(seconds=1)  # time for an abandoned thread to end
MODEST = 10  # added to the niceness of a thread

SHORTEST_PAUSE = timedelta(milliseconds=250)  # before the first retry of work that was held back
LONGEST_PAUSE = timedelta(seconds=4)  # erased bytes should be gone within seconds

Callers = Callable[[], Iterable[Caller]]
"""The caller for each tenant, listed each time, because tenants come and go."""
CheckStopped = Callable[..., None]
"""Called by a thread between steps; raises Stopped if it must end."""
PAUSE = timedelta(milliseconds=250)  # between attempts while a read or a process blocks a scrub
MAX_SWEPT = 50  # most memories that one transaction removes from the index; saves wait for it
MAX_REMOVED = 200  # most rows that one transaction removes; saves wait for it
MAX_DUE = 1000  # most rows of one lookup, which scans a whole index
STEP = timedelta(minutes=1)  # largest correction of a clock that is not a jump
PROVEN = timedelta(minutes=5)  # time after a jump, or the start, until the clock is trusted
log = logging.getLogger(__name__)
Removed = Counter[Kind]
"""The number of removed rows of each kind."""


class Stopped(Exception):
    """Nobody waits for the thread's result any more."""


class WorkSignal:
    """Tells a job which tenants have work for it."""

    def __init__(self) -> None:
        self._is_set = asyncio.Event()
        self._callers: dict[TenantId, Caller] = {}

    def set(self, caller: Caller) -> None:
        self._callers[caller.tenant] = Caller(tenant=caller.tenant)
        self._is_set.set()

    async def wait(self, time: timedelta | None = None) -> list[Caller]:
        """Wait for the signal and return its tenants' callers; none if the time runs out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(time.total_seconds() if time else None):
                await self._is_set.wait()
        self._is_set.clear()
        callers = list(self._callers.values())
        self._callers.clear()
        return callers


@asynccontextmanager
async def background(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the loops within the context; on exit, cancel them and wait for their end.

    A loop that raises stops no other loop; its error is raised when all have ended.
    """
    tasks = [asyncio.create_task(it) for it in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


async def repeat(every: timedelta, work: Callable[[], Awaitable[object]]) -> None:
    """Do the work after each interval; an interval of 0 means never."""
    while every:
        await asyncio.sleep(every.total_seconds())
        await work()


@dataclass(frozen=True, slots=True)
class Job:
    """Work for one tenant after another. A failure is logged and does not affect other tenants.

    Work that returns False was held back, and is tried again.
    """

    log: Logger
    work: Callable[[Caller], Awaitable[object]]
    failure: str  # the log message of a failure

    async def run(self, callers: Iterable[Caller]) -> list[Caller]:
        return [
            it
            for it in callers
            if not await attempted(self.work(it), self.log, self.failure, tenant=it.tenant)
        ]

    async def on_signal(
        self, callers: Callers, signal: WorkSignal, every: timedelta, pause: timedelta | None = None
    ) -> None:
        """Run first for all tenants, then for signaled tenants, and for all after each interval.

        Failures are retried after a pause. An interval of 0 means never. It rests after each run,
        by default for as long as the run took.
        """
        due, retry, clock = list(callers()), SHORTEST_PAUSE, asyncio.get_running_loop().time
        while True:
            begun = clock()
            retried = await self.run(due)
            if due:
                await asyncio.sleep(pause.total_seconds() if pause else clock() - begun)
            retry = min(2 * retry, LONGEST_PAUSE) if retried else SHORTEST_PAUSE
            signaled = await signal.wait(retry if retried else every or None)
            due = retried + [caller for caller in signaled if caller not in retried]
            due = due or list(callers())


async def attempted(work: Awaitable[object], log: Logger, failure: str, **fields: object) -> bool:
    """Do the work, and return False if it should be retried; a failure is logged.

    An operational failure, such as of a disk or a lock, is logged with a reason and a code. Any
    other error is a fault of the program: it is logged with its stack, and not retried, because it
    would occur again.
    """
    try:
        return await work is not False
    except NotFound:
        return True  # the tenant was erased
    except Exception as error:  # the work for the next tenant may succeed
        if not is_operational(error):
            log.error(failure, exc_info=error, extra=fields)
            return True
        code = code_of(error) or (error.code if isinstance(error, Refusal) else "")
        log.warning(failure, extra={"reason": reason(error), "code": code, **fields})
        return False


async def run_in_thread(work: Callable[[CheckStopped], T]) -> T:
    """Return the result of long work, which gets a thread of its own with a low priority.

    On cancellation, it waits at most a second for the thread, which should call `check_stopped`:
    a disk that never responds must not delay the exit.
    """
    is_abandoned = threading.Event()

    def check_stopped(*_: object) -> None:
        if is_abandoned.is_set():
            raise Stopped

    def run() -> T:
        if sys.platform == "linux":
            with suppress(OSError):  # it may be forbidden
                thread = os.PRIO_PROCESS, threading.get_native_id()
                os.setpriority(*thread, os.getpriority(*thread) + MODEST)
        return work(check_stopped)

    done = asyncio.create_task(connection.run_in_thread(run))
    # Retrieves the error even if nobody waits, so that asyncio does not log it.
    done.add_done_callback(lambda it: it.cancelled() or it.exception())
    try:
        await asyncio.wait([done])
    except asyncio.CancelledError:
        is_abandoned.set()
        await asyncio.wait([done], timeout=HURRY.total_seconds())
        raise
    return done.result()


async def scrub(engine: Engine, caller: Caller) -> Scrubbed:
    """Try once to remove the bytes of erased data from the storage.

    Writes continue meanwhile, and each waits only briefly.
    """
    while await engine.read(caller, is_store_going):
        await engine.write(caller, erase_some_of_store)
    return await engine.maintenance.scrub(caller)


async def scrub_all(engine: Engine, caller: Caller) -> int:
    """Scrub until no erasure is pending; return the number of settled erasures."""
    settled = 0
    while (scrubbed := await scrub(engine, caller)) != Scrubbed():
        settled += scrubbed.settled
        if scrubbed.pending:
            await asyncio.sleep(PAUSE.total_seconds())
    return settled


@dataclass(frozen=True, slots=True)
class Sweep:
    """The rows of a kind past their retention: a function that finds and one that removes them."""

    kind: Kind
    find: Callable[[Transaction, datetime, int], Sequence[Any]]  # returns at most that many
    remove: Callable[[Transaction, Sequence[Any], datetime], int]
    """Removes some rows, while saves wait, and returns their number. Repeated until it is 0."""
    times: int = 1  # number of retentions that must have passed; 0 removes rows at once
    is_of_agents: bool = False  # whether the rows have names whose bytes must leave the files

    def _until(self, tx: Transaction, by: datetime | None) -> datetime | None:
        """Return the newest time at which rows are removed; None if all are kept."""
        now = min(tx.now, by or tx.now)
        if not self.times:
            return now
        kept = tx.retention.time(self.kind)
        return now - self.times * kept if kept else None

    def due(self, tx: Transaction, by: datetime | None = None) -> Sequence[Any]:
        until = self._until(tx, by)
        return self.find(tx, until, MAX_DUE) if until else []

    def removed(self, tx: Transaction, due: Sequence[Any], by: datetime | None = None) -> int:
        until = self._until(tx, by)
        rows = self.remove(tx, due, until) if until else 0
        if rows and self.is_of_agents:
            tx[ReceiptTable].add_of_agents()
        return rows


async def sweep(
    engine: Engine,
    caller: Caller,
    kinds: frozenset[Kind] = frozenset(Kind),
    *,
    by: datetime | None = None,
) -> Removed:
    """Remove rows of these kinds that are past their retention; several sweeps may run at a time.

    The time is now, or `by` if that is earlier, so that a clock that jumps ahead expires nothing.
    Deleted and expired memories are erased, with a receipt for each project and step, so that
    their bytes are scrubbed.
    """
    removed = Counter({it.kind: 0 for it in STEPS if it.kind in kinds})
    for it in STEPS:
        while it.kind in kinds and (due := await engine.read(caller, it.due, by)):
            before = removed[it.kind]
            for start in range(0, len(due), MAX_REMOVED):
                some = due[start : start + MAX_REMOVED]
                while rows := await engine.write(caller, it.removed, some, by):
                    removed[it.kind] += rows
            if removed[it.kind] == before:
                break  # another sweep removed the rows, or the file is corrupt: no endless loop
    return removed


async def sweep_index(engine: Engine, caller: Caller) -> int:
    """Remove expired memories from the index, and reindex renewed ones; return how many expired.

    Memories in the index are never erased as expired.
    """
    total = 0
    while due := await engine.read(caller, unswept, MAX_SWEPT):
        total += await engine.write(caller, swept, due)
    return total


class TrustedClock:
    """Compares a clock with a monotonic one, to notice jumps; must be called regularly."""

    def __init__(self, *, clock: Callable[[], datetime], elapsed: Callable[[], float]) -> None:
        self._clock, self._elapsed = clock, elapsed
        self._since = elapsed()
        self._began = clock() - timedelta(seconds=self._since)  # the time at 0 elapsed seconds

    def proven(self) -> datetime | None:
        """Return the time; None unless the clock has run steadily for at least five minutes."""
        now, elapsed = self._clock(), self._elapsed()
        began, before = now - timedelta(seconds=elapsed), self._began
        self._began = began
        if abs(began - before) > STEP:
            self._since = elapsed
        return now if elapsed - self._since >= PROVEN.total_seconds() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionJob:
    """Removes data past retention from a service's databases and from its shared audit file.

    While the clock is not trusted, nothing is removed because of its age.
    """

    engine: Engine
    retention: Retentions
    trim_audit: Callable[[datetime], int]
    clock: TrustedClock
    metrics: Metrics
    on_erased: Callable[[Caller], None] = noop

    async def sweep(self, callers: Iterable[Caller]) -> None:
        """Remove each tenant's rows past retention; failures are retried at the next sweep."""
        by = self.clock.proven()
        kinds = frozenset(Kind) if by else frozenset(Kind) - BY_CLOCK

        async def sweep_all(caller: Caller) -> None:
            self.metrics.count(EXPIRED, by=await sweep_index(self.engine, caller))
            removed = await sweep(self.engine, caller, kinds, by=by)
            if removed[Kind.DELETED] or removed[Kind.EXPIRED]:
                self.on_erased(caller)
            self._report(removed, tenant=caller.tenant)

        await Job(log, sweep_all, "expired data could not be removed; retrying later").run(callers)

    async def sweep_audit(self) -> None:
        """Remove audit lines past retention; a failure is retried at the next sweep."""
        by = self.clock.proven()
        if until := self.retention.until(Kind.AUDIT, by) if by else None:

            async def trim() -> None:
                self._report(Counter({Kind.AUDIT: await asyncio.to_thread(self.trim_audit, until)}))

            await attempted(trim(), log, "old audit lines could not be removed; retrying later")

    def _report(self, removed: Removed, **fields: object) -> None:
        counts = {kind.value: rows for kind, rows in removed.items() if rows}
        for kind, rows in counts.items():
            self.metrics.count(SWEPT_ROWS, kind, by=rows)
        if counts:
            log.info("expired data removed", extra={**counts, **fields})

    async def run(self, callers: Iterable[Caller]) -> None:
        await self.sweep(callers)
        await self.sweep_audit()

    async def sweep_opened(self, opened: WorkSignal) -> None:
        while True:
            await self.sweep(await opened.wait())


def _memories_of(kind: Kind) -> Sweep:
    def remove(tx: Transaction, due: Sequence[MemoryId], until: datetime) -> int:
        """Erase the first memories; of a memory with a long history, only its oldest revisions."""
        groups = defaultdict[tuple[Project, SpaceKind, bool], list[MemoryId]](list)
        for one in next_step(tx, kind, due, until):
            groups[one.project, one.kind, one.is_long].append(one.memory)
        rows = 0
        for (project, space, is_long), memories in groups.items():
            if is_long:
                # It is alone in its step. No bytes of the trimmed revisions may stay.
                tx[MemoryTable].must_scrub(memories[0])
                erased, revisions = 0, tx[RevisionTable].trim(memories, keep=1)
            else:
                erased, revisions = len(memories), tx[MemoryTable].erase_some(memories)
            tx[ReceiptTable].add(
                space.traits.erasure, project, memories=tuple(memories), observations=erased,
                revisions=revisions,
            )  # fmt: skip
            rows += erased + revisions
        return rows

    return Sweep(kind, lambda tx, *limits: past_memories(tx, kind, *limits), remove)


def _one_by_one(remove: Callable[[Transaction, Any], int]) -> Any:
    """Remove the rows of one item after another, until they are enough for a step."""

    def removed(tx: Transaction, due: Sequence[Any], _: datetime) -> int:
        rows, left = 0, iter(due)
        while rows < MAX_REMOVED and (one := next(left, None)) is not None:
            rows += remove(tx, one)
        return rows

    return removed


def _expire_entries(tx: Transaction, due: Sequence[AgentEntryId], until: datetime) -> int:
    still = expired(tx, len(due), until=until)
    for entry in still:
        expire(tx, entry)
    return len(still)


def _cancel_runs(tx: Transaction, due: Sequence[RunId], until: datetime) -> int:
    """Cancel runs that were idle for as long as events are kept; no row is removed."""
    for id_ in due:
        run = tx[RunTable].get(id_)
        if run is not None and run.is_open and run.heard_at <= until:
            tx[RunTable].end(run, RunStatus.CANCELLED)
    return 0


# fmt: off
RECORDS = Sweep(
    Kind.IDEMPOTENCY, lambda tx, until, most: tx[IdempotencyTable].until(until, most),
    lambda tx, due, until: tx[IdempotencyTable].forget(due, until))
STEPS = (
    _memories_of(Kind.DELETED),
    Sweep(Kind.EXPIRED,
          lambda tx, until, _: [it.id for it in expired(tx, MAX_REMOVED, until=until)],
          _expire_entries, times=0),  # removed at their expiry
    _memories_of(Kind.EXPIRED),
    Sweep(Kind.REVISIONS,
          lambda tx, _, most: tx[RevisionTable].with_history(keep, most)
          if (keep := tx.retention.revisions) else [],
          lambda tx, due, _: tx[RevisionTable].trim(due, tx.retention.revisions), times=0),
    RECORDS,
    Sweep(Kind.RECEIPTS, lambda tx, until, most: tx[ReceiptTable].settled(until, most),
          _one_by_one(lambda tx, it: tx[ReceiptTable].forget(it, MAX_REMOVED))),
    Sweep(Kind.EVENTS, past_events, lambda tx, due, _: forget_events(tx, due), is_of_agents=True),
    Sweep(Kind.LOG, partial(past_events, of_log=True), lambda tx, due, _: forget_events(tx, due),
          is_of_agents=True),
    Sweep(Kind.LOG, past_tasks, forget_tasks, is_of_agents=True),
    # Spaces of agents: the name of a namespace stays no longer than its entries.
    Sweep(Kind.EVENTS, lambda tx, _, most: agents.empty_spaces(tx, most),
          lambda tx, due, _: agents.drop_spaces(tx, due), times=0, is_of_agents=True),
    Sweep(Kind.EVENTS, lambda tx, until, most: tx[RunTable].silent(until, most), _cancel_runs),
    Sweep(Kind.EVENTS, lambda tx, until, most: tx[RunTable].past(until, most, with_events=True),
          _one_by_one(lambda tx, it: tx[RunTable].forget_events(it, MAX_REMOVED))),
    # Runs stay twice as long as their events, so that a reader learns that the events are gone.
    Sweep(Kind.EVENTS, lambda tx, until, most: tx[RunTable].past(until, most, with_events=False),
          lambda tx, due, _: tx[RunTable].forget(due), times=2),
)
# fmt: on
