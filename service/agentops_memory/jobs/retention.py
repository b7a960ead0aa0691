"""The retention job: it removes what is past its retention, by a clock that is trusted.

The sweep goes in short transactions; for each kind of row, a pair of functions finds and removes.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from ..engine.callbacks import noop
from ..engine.engine import Engine, Transaction
from ..memory.erasure import Erasable, Erasure, ErasureId, ReceiptTable, RetentionTable
from ..memory.idempotency import IdempotencyTable
from ..memory.lifecycles import LifecycleTable
from ..memory.memories import MemoryTable
from ..memory.model.access import Caller
from ..memory.model.agent_memory import AgentEntryId
from ..memory.model.intents import TaskId
from ..memory.model.memory import MemoryId
from ..memory.model.retention import BY_CLOCK, Kind, Retentions
from ..memory.model.space import TRAITS, Project, SpaceKind
from ..memory.revisions import RevisionTable
from ..openintent import agents
from ..openintent.archives import add_receipt, expire
from ..openintent.entries import expired
from ..openintent.events import forget_events, past_events
from ..openintent.tasks import forget_tasks, past_tasks
from ..openwop.runs import RunId, RunStatus, RunTable
from ..telemetry import Metrics
from ..telemetry.measures import EXPIRED, SWEPT_ROWS
from .runner import Callers, Job, WorkSignal, attempted, background, repeating

MAX_SWEPT = 50  # memories of one transaction that leave the index; saves wait for it
MAX_REMOVED = 200  # rows of one transaction; saves wait for it
MAX_FOUND = 1000  # of one lookup, which scans a whole index
STEP = timedelta(minutes=1)  # by which a clock may be put right without having jumped
PROVEN = timedelta(minutes=5)  # after a jump, and after the start

log = logging.getLogger(__name__)

Removed = Mapping[Kind, int]
"""How many rows of each kind were removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStep:
    """What one transaction did: rows removed, and how many of those found are done."""

    rows: int
    done: int

    def __bool__(self) -> bool:
        return bool(self.rows or self.done)


By = datetime | None
Place = tuple[Project, SpaceKind]
Find = Callable[[Transaction, By], Sequence[Any]]
Remove = Callable[[Transaction, Sequence[Any], By], SweepStep]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSweep:
    """Removes what is past the retention of its kind; several sweeps may run on one database.

    Deleted and expired memories are erased, with a receipt for each project and step, so that
    their bytes are scrubbed.
    """

    engine: Engine
    on_erased: Callable[[Caller], None] = noop

    async def sweep(
        self, caller: Caller, kinds: Collection[Kind] = frozenset(Kind), *, by: By = None
    ) -> Removed:
        """Remove what is past its retention, of these kinds, as of now.

        As of `by` if that is earlier, so that a clock that jumps ahead expires nothing.
        """
        removed = Counter[Kind]()
        for kind, find, take in STEPS:
            if kind in kinds:
                removed[kind] += await self._remove_all(caller, by, find, take)
        if removed[Kind.DELETED] or removed[Kind.EXPIRED]:
            self.on_erased(caller)
        return removed

    async def sweep_index(self, caller: Caller) -> int:
        """Take what has expired out of the index, and put in what no longer is; how many expired.

        What is in it is never erased as expired.
        """
        total = 0
        while found := await self.engine.read(caller, _unswept):
            total += await self.engine.write(caller, _sweep, found)
        return total

    async def _remove_all(self, caller: Caller, by: By, find: Find, remove: Remove) -> int:
        total = 0
        while found := await self.engine.read(caller, find, by):
            gone = 0
            while found and (step := await self.engine.write(caller, remove, found, by)):
                found = found[step.done :]
                gone += step.rows
            if not gone:
                break  # another sweep has removed them, or the file is corrupt: no endless loop
            total += gone
        return total


@dataclass(slots=True, kw_only=True)
class TrustedClock:
    """A clock beside the time that really passes, in seconds; looked at now and again."""

    clock: Callable[[], datetime]
    elapsed: Callable[[], float]
    _since: float = field(init=False)
    _began: datetime = field(init=False)  # when nothing had elapsed, by the clock

    def __post_init__(self) -> None:
        self._since = self.elapsed()
        self._began = self.clock() - timedelta(seconds=self._since)

    def proven(self) -> datetime | None:
        """What it shows; None unless it has gone as time does for five minutes at least."""
        now, elapsed = self.clock(), self.elapsed()
        began, before = now - timedelta(seconds=elapsed), self._began
        self._began = began
        if abs(began - before) > STEP:
            self._since = elapsed
        return now if elapsed - self._since >= PROVEN.total_seconds() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionJob:
    """What a service keeps for a time: its databases, and the audit file that they share.

    While its clock is not steady, nothing goes by its age.
    """

    retaining: RetentionSweep
    retention: Retentions
    trim_audit: Callable[[datetime], int]
    clock: TrustedClock
    metrics: Metrics

    async def sweep(self, callers: Iterable[Caller]) -> None:
        """Remove what is over its time, of each tenant; what fails is tried the next time."""
        by = self.clock.proven()
        kinds = frozenset(Kind) if by else frozenset(Kind) - BY_CLOCK

        async def sweep(caller: Caller) -> None:
            self.metrics.count(EXPIRED, by=await self.retaining.sweep_index(caller))
            self._tell(await self.retaining.sweep(caller, kinds, by=by), tenant=caller.tenant)

        await Job(sweep, log, "what is over its time goes later").run(callers)

    async def sweep_audit(self) -> None:
        """Remove audit lines that are over their time; what fails is tried the next time."""
        by = self.clock.proven()
        if until := self.retention.until(Kind.AUDIT, by) if by else None:
            await attempted(self._trim(until), log, "audit lines go later")

    async def _trim(self, until: datetime) -> None:
        self._tell({Kind.AUDIT: await asyncio.to_thread(self.trim_audit, until)})

    def _tell(self, removed: Removed, **fields: object) -> None:
        gone = {kind.value: rows for kind, rows in removed.items() if rows}
        for kind, rows in gone.items():
            self.metrics.count(SWEPT_ROWS, kind, by=rows)
        if gone:
            log.info("what was over its time was removed", extra={**gone, **fields})


@asynccontextmanager
async def enforcing(
    due: RetentionJob, callers: Callers, opened: WorkSignal, every: timedelta
) -> AsyncIterator[None]:
    """Inside, what is over its time goes now and again, and where a database was just opened.

    An interval of 0 means never.
    """

    async def sweep() -> None:
        await due.sweep(callers())
        await due.sweep_audit()

    async def sweep_opened() -> None:
        while True:
            await due.sweep(await opened.wait())

    if not every:
        yield
        return
    async with repeating(every, sweep), background(sweep_opened()):
        yield


def _unswept(tx: Transaction) -> list[MemoryId]:
    return tx[LifecycleTable].unswept(MAX_SWEPT)


def _sweep(tx: Transaction, found: Sequence[MemoryId]) -> int:
    return tx[LifecycleTable].sweep(found)


def memories_past_retention(
    tx: Transaction, by: By = None, *, kind: Kind = Kind.DELETED
) -> list[MemoryId]:
    until = _until(tx, kind, by)
    return tx[RetentionTable].memories(kind, until, MAX_FOUND) if until else []


def remove_memories(
    tx: Transaction, found: Sequence[MemoryId], by: By = None, *, kind: Kind = Kind.DELETED
) -> SweepStep:
    """Erase the first of them; of one with a long history only its oldest revisions."""
    until, some = _until(tx, kind, by), found[:MAX_REMOVED]
    first = tx[RetentionTable].first(kind, some, until) if until else []
    if not first:  # live again, or erased meanwhile
        return SweepStep(rows=0, done=len(some))
    if first[0].is_long:
        return SweepStep(rows=_shorten(tx, first[0]), done=some.index(first[0].memory))
    groups = defaultdict[Place, list[MemoryId]](list)
    for one in first:
        groups[one.project, one.kind].append(one.memory)
    rows = sum(_erase(tx, *group) for group in groups.items())
    return SweepStep(rows=rows, done=some.index(first[-1].memory) + 1)


def revisions_past_retention(tx: Transaction, _: By = None) -> list[MemoryId]:
    keep = tx.retention.revisions
    return tx[RevisionTable].with_history(keep, MAX_FOUND) if keep else []


def remove_revisions(tx: Transaction, found: Sequence[MemoryId], _: By = None) -> SweepStep:
    rows = tx[RevisionTable].trim(found[:MAX_REMOVED], tx.retention.revisions)
    return SweepStep(rows=rows, done=0 if rows else len(found[:MAX_REMOVED]))


def records_past_retention(tx: Transaction, by: By = None) -> list[bytes]:
    until = _until(tx, Kind.IDEMPOTENCY, by)
    return tx[IdempotencyTable].until(until, MAX_FOUND) if until else []


def remove_records(tx: Transaction, found: Sequence[bytes], by: By = None) -> SweepStep:
    until = _until(tx, Kind.IDEMPOTENCY, by)
    rows = tx[IdempotencyTable].forget(found, until) if until else 0
    return SweepStep(rows=rows, done=len(found))


def receipts_past_retention(tx: Transaction, by: By = None) -> list[ErasureId]:
    until = _until(tx, Kind.RECEIPTS, by)
    return tx[ReceiptTable].settled(until, MAX_FOUND) if until else []


def remove_receipts(tx: Transaction, found: Sequence[ErasureId], _: By = None) -> SweepStep:
    rows = 0
    for done, erasure in enumerate(found):
        if rows >= MAX_REMOVED:
            return SweepStep(rows=rows, done=done)
        rows += tx[ReceiptTable].forget(erasure, MAX_REMOVED)
    return SweepStep(rows=rows, done=len(found))


def expired_entries(tx: Transaction, by: By = None) -> list[AgentEntryId]:
    """Entries of agents that have ended: these are not kept for a time after it."""
    return [it.id for it in expired(tx, MAX_REMOVED, until=min(tx.now, by or tx.now))]


def remove_entries(tx: Transaction, found: Sequence[AgentEntryId], by: By = None) -> SweepStep:
    still = expired(tx, len(found), until=min(tx.now, by or tx.now))
    for entry in still:
        expire(tx, entry)
    return SweepStep(rows=len(still), done=len(found))


def events_past_retention(tx: Transaction, by: By = None) -> list[int]:
    until = _until(tx, Kind.EVENTS, by)
    return past_events(tx, until, MAX_FOUND) if until else []


def remove_events(tx: Transaction, found: Sequence[int], _: By = None) -> SweepStep:
    some = found[:MAX_REMOVED]
    add_receipt(tx)  # for the names in them
    return SweepStep(rows=forget_events(tx, some), done=len(some))


def log_past_retention(tx: Transaction, by: By = None) -> list[int]:
    until = _until(tx, Kind.LOG, by)
    return past_events(tx, until, MAX_FOUND, of_log=True) if until else []


def tasks_past_retention(tx: Transaction, by: By = None) -> list[TaskId]:
    until = _until(tx, Kind.LOG, by)
    return past_tasks(tx, until, MAX_FOUND) if until else []


def remove_tasks(tx: Transaction, found: Sequence[TaskId], by: By = None) -> SweepStep:
    until, some = _until(tx, Kind.LOG, by), found[:MAX_REMOVED]
    add_receipt(tx)
    return SweepStep(rows=forget_tasks(tx, some, until) if until else 0, done=len(some))


def empty_spaces(tx: Transaction, _: By = None) -> list[int]:
    """Those of agents: the name of a namespace stays no longer than what lay in it."""
    return agents.empty_spaces(tx, MAX_FOUND)


def remove_spaces(tx: Transaction, found: Sequence[int], _: By = None) -> SweepStep:
    some = found[:MAX_REMOVED]
    add_receipt(tx)
    return SweepStep(rows=agents.drop_spaces(tx, some), done=len(some))


def silent_runs(tx: Transaction, by: By = None) -> list[RunId]:
    until = _until(tx, Kind.EVENTS, by)
    return tx[RunTable].silent(until, MAX_FOUND) if until else []


def cancel_runs(tx: Transaction, found: Sequence[RunId], by: By = None) -> SweepStep:
    """End runs in which nothing was done for as long as events are kept."""
    until, some = _until(tx, Kind.EVENTS, by), found[:MAX_REMOVED]
    for id_ in some:
        run = tx[RunTable].get(id_)
        if until and run is not None and run.is_open and run.heard_at <= until:
            tx[RunTable].end(run, RunStatus.CANCELLED)
    return SweepStep(rows=0, done=len(some))


def run_events_past_retention(tx: Transaction, by: By = None) -> list[int]:
    until = _until(tx, Kind.EVENTS, by)
    return tx[RunTable].past(until, MAX_FOUND, with_events=True) if until else []


def remove_run_events(tx: Transaction, found: Sequence[int], _: By = None) -> SweepStep:
    rows = tx[RunTable].forget_events(found[:1], MAX_REMOVED)
    return SweepStep(rows=rows, done=int(rows < MAX_REMOVED))


def runs_past_retention(tx: Transaction, by: By = None) -> list[int]:
    """Runs stay twice as long as their events: until then it is told that these are gone."""
    until = _until(tx, Kind.EVENTS, by)
    earlier = until and until - tx.retention.time(Kind.EVENTS)
    return tx[RunTable].past(earlier, MAX_FOUND, with_events=False) if earlier else []


def remove_runs(tx: Transaction, found: Sequence[int], _: By = None) -> SweepStep:
    some = found[:MAX_REMOVED]
    return SweepStep(rows=tx[RunTable].forget(some), done=len(some))


STEPS: Sequence[tuple[Kind, Find, Remove]] = (
    (Kind.DELETED, memories_past_retention, remove_memories),
    (Kind.EXPIRED, expired_entries, remove_entries),
    (
        Kind.EXPIRED,
        partial(memories_past_retention, kind=Kind.EXPIRED),
        partial(remove_memories, kind=Kind.EXPIRED),
    ),
    (Kind.REVISIONS, revisions_past_retention, remove_revisions),
    (Kind.IDEMPOTENCY, records_past_retention, remove_records),
    (Kind.RECEIPTS, receipts_past_retention, remove_receipts),
    (Kind.EVENTS, events_past_retention, remove_events),
    (Kind.LOG, log_past_retention, remove_events),
    (Kind.LOG, tasks_past_retention, remove_tasks),
    (Kind.EVENTS, empty_spaces, remove_spaces),
    (Kind.EVENTS, silent_runs, cancel_runs),
    (Kind.EVENTS, run_events_past_retention, remove_run_events),
    (Kind.EVENTS, runs_past_retention, remove_runs),
)


def _until(tx: Transaction, kind: Kind, by: By) -> datetime | None:
    return tx.retention.until(kind, min(tx.now, by or tx.now))


def _erase(tx: Transaction, place: Place, memories: list[MemoryId]) -> int:
    revisions = tx[MemoryTable].erase_some(memories)
    tx[ReceiptTable].add(_receipt(tx, place, memories, len(memories), revisions))
    return len(memories) + revisions


def _shorten(tx: Transaction, one: Erasable) -> int:
    tx[MemoryTable].must_scrub(one.memory)  # it may hold words of the trimmed revisions
    revisions = tx[RevisionTable].trim([one.memory], keep=1)
    tx[ReceiptTable].add(_receipt(tx, (one.project, one.kind), [one.memory], 0, revisions))
    return revisions


def _receipt(
    tx: Transaction, place: Place, memories: list[MemoryId], observations: int, revisions: int
) -> Erasure:
    project, kind = place
    return Erasure(
        id=ErasureId(tx.new_uid(tx.now)),
        kind=TRAITS[kind].erasure,
        project=project,
        memories=tuple(memories),
        observations=observations,
        revisions=revisions,
        erased_at=tx.now,
    )
