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

from ..engine.engine import Engine, Transaction
from ..engine.maintenance import Progress, Scrubbed, noop
from ..memory.access import Caller
from ..memory.agents import AgentEntryId, TaskId
from ..memory.erasure import Erasable, Erasure, ErasureId, ReceiptTable, RetentionTable
from ..memory.idempotency import IdempotencyTable
from ..memory.lifecycles import LifecycleTable
from ..memory.memories import MemoryTable
from ..memory.memory import MemoryId
from ..memory.retention import BY_CLOCK, Kind, Retentions
from ..memory.revisions import RevisionTable
from ..memory.space import TRAITS, Project, SpaceKind
from ..openintent import agents
from ..openintent.entries import expired
from ..openintent.events import add_receipt, expire, forget_events, past_events
from ..openintent.tasks import forget_tasks, past_tasks
from ..openwop.runs import RunId, RunStatus, RunTable
from ..stores.store import erase_some_of_store, is_store_going
from ..telemetry import Metrics
from ..telemetry.metrics import EXPIRED, SWEPT_ROWS
from .runner import Callers, Job, WorkSignal, attempted, background, repeating

PAUSE = timedelta(milliseconds=250)  # before another try, while a read or a process holds it back


async def scrub(engine: Engine, caller: Caller, progress: Progress = noop) -> Scrubbed:
    """Let the bytes of what was erased so far leave the storage; a single try.

    Changes continue meanwhile; each waits a moment at most.
    """
    while await engine.read(caller, is_store_going):
        progress("a deleted store")
        await engine.write(caller, erase_some_of_store)
    return await engine.maintenance.scrub(caller, progress)


async def scrub_all(engine: Engine, caller: Caller, progress: Progress = noop) -> int:
    """Scrub until nothing is pending; the answer is how many erasures were."""
    settled = 0
    while (scrubbed := await scrub(engine, caller, progress)) != Scrubbed():
        settled += scrubbed.settled
        if scrubbed.pending:
            progress("waiting for those who read an older state")
            await asyncio.sleep(PAUSE.total_seconds())
    return settled


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
Until = Callable[[Transaction, Kind, By], datetime | None]
"""Up to when what is of a kind is to go; None for nothing."""


def past_retention(tx: Transaction, kind: Kind, by: By) -> datetime | None:
    return tx.retention.until(kind, at_once(tx, kind, by))


def at_once(tx: Transaction, _: Kind, by: By) -> datetime:
    return min(tx.now, by or tx.now)


@dataclass(frozen=True, slots=True)
class Sweeping:
    """What goes of a kind: which is found, and how the first MAX_REMOVED of it are removed."""

    kind: Kind
    find: Callable[[Transaction, datetime, int], Sequence[Any]]  # at most so many
    remove: Callable[[Transaction, Sequence[Any], datetime], "SweepStep | int"]
    """The number of rows, or of which of them are done: all, unless it says."""
    until: Until = past_retention

    def found(self, tx: Transaction, by: By = None) -> Sequence[Any]:
        until = self.until(tx, self.kind, by)
        return self.find(tx, until, MAX_FOUND) if until else []

    def removed(self, tx: Transaction, found: Sequence[Any], by: By = None) -> SweepStep:
        some, until = found[:MAX_REMOVED], self.until(tx, self.kind, by)
        done = self.remove(tx, some, until) if until else 0
        return done if isinstance(done, SweepStep) else SweepStep(rows=done, done=len(some))


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
        for step in STEPS:
            if step.kind in kinds:
                removed[step.kind] += await self._remove_all(caller, by, step)
        if removed[Kind.DELETED] or removed[Kind.EXPIRED]:
            self.on_erased(caller)
        return removed

    async def sweep_index(self, caller: Caller) -> int:
        """Take what has expired out of the index, and put in what no longer is; how many expired.

        What is in it is never erased as expired.
        """
        total = 0
        while found := await self.engine.read(
            caller, lambda tx: tx[LifecycleTable].unswept(MAX_SWEPT)
        ):
            total += await self.engine.write(
                caller, lambda tx, them: tx[LifecycleTable].sweep(them), found
            )
        return total

    async def _remove_all(self, caller: Caller, by: By, of: Sweeping) -> int:
        total = 0
        while found := await self.engine.read(caller, of.found, by):
            gone = 0
            while found and (step := await self.engine.write(caller, of.removed, found, by)):
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

        await Job(sweep, log, "expired data could not be removed; retrying later").run(callers)

    async def sweep_audit(self) -> None:
        """Remove audit lines that are over their time; what fails is tried the next time."""
        by = self.clock.proven()
        if until := self.retention.until(Kind.AUDIT, by) if by else None:

            async def trim() -> None:
                self._tell({Kind.AUDIT: await asyncio.to_thread(self.trim_audit, until)})

            await attempted(trim(), log, "old audit lines could not be removed; retrying later")

    def _tell(self, removed: Removed, **fields: object) -> None:
        gone = {kind.value: rows for kind, rows in removed.items() if rows}
        for kind, rows in gone.items():
            self.metrics.count(SWEPT_ROWS, kind, by=rows)
        if gone:
            log.info("expired data removed", extra={**gone, **fields})


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


def _memories_of(kind: Kind) -> Sweeping:
    def find(tx: Transaction, until: datetime, most: int) -> Sequence[MemoryId]:
        return tx[RetentionTable].memories(kind, until, most)

    def remove(tx: Transaction, found: Sequence[MemoryId], until: datetime) -> SweepStep | int:
        """Erase the first of them; of one with a long history only its oldest revisions."""
        first = tx[RetentionTable].first(kind, found, until)
        if not first:  # live again, or erased meanwhile
            return 0
        if first[0].is_long:
            return SweepStep(rows=_shorten(tx, first[0]), done=found.index(first[0].memory))
        groups = defaultdict[Place, list[MemoryId]](list)
        for one in first:
            groups[one.project, one.kind].append(one.memory)
        rows = sum(_erase(tx, *group) for group in groups.items())
        return SweepStep(rows=rows, done=found.index(first[-1].memory) + 1)

    return Sweeping(kind, find, remove)


def _with_history(tx: Transaction, _: datetime, most: int) -> list[MemoryId]:
    keep = tx.retention.revisions
    return tx[RevisionTable].with_history(keep, most) if keep else []


def _trim_history(tx: Transaction, found: Sequence[MemoryId], _: datetime) -> SweepStep:
    rows = tx[RevisionTable].trim(found, tx.retention.revisions)
    return SweepStep(rows=rows, done=0 if rows else len(found))


def _remove_receipts(tx: Transaction, found: Sequence[ErasureId], _: datetime) -> SweepStep:
    rows = done = 0
    while done < len(found) and rows < MAX_REMOVED:
        rows += tx[ReceiptTable].forget(found[done], MAX_REMOVED)
        done += 1
    return SweepStep(rows=rows, done=done)


def _expired_entries(tx: Transaction, until: datetime, _: int) -> list[AgentEntryId]:
    return [it.id for it in expired(tx, MAX_REMOVED, until=until)]


def _expire_entries(tx: Transaction, found: Sequence[AgentEntryId], until: datetime) -> int:
    still = expired(tx, len(found), until=until)
    for entry in still:
        expire(tx, entry)
    return len(still)


def _remove_events(tx: Transaction, found: Sequence[int], _: datetime) -> int:
    add_receipt(tx)  # for the names in them
    return forget_events(tx, found)


def _remove_tasks(tx: Transaction, found: Sequence[TaskId], until: datetime) -> int:
    add_receipt(tx)
    return forget_tasks(tx, found, until)


def _drop_spaces(tx: Transaction, found: Sequence[int], _: datetime) -> int:
    add_receipt(tx)
    return agents.drop_spaces(tx, found)


def _cancel_runs(tx: Transaction, found: Sequence[RunId], until: datetime) -> int:
    """End runs in which nothing was done for as long as events are kept."""
    for id_ in found:
        run = tx[RunTable].get(id_)
        if run is not None and run.is_open and run.heard_at <= until:
            tx[RunTable].end(run, RunStatus.CANCELLED)
    return 0


def _remove_run_events(tx: Transaction, found: Sequence[int], _: datetime) -> SweepStep:
    rows = tx[RunTable].forget_events(found[:1], MAX_REMOVED)
    return SweepStep(rows=rows, done=int(rows < MAX_REMOVED))


def _twice_past(tx: Transaction, kind: Kind, by: By) -> datetime | None:
    """Runs stay twice as long as their events, so that a reader learns that these are gone."""
    until = past_retention(tx, kind, by)
    return until and until - tx.retention.time(kind)


# fmt: off
DELETED = _memories_of(Kind.DELETED)
RECORDS = Sweeping(
    Kind.IDEMPOTENCY, lambda tx, until, most: tx[IdempotencyTable].until(until, most),
    lambda tx, found, until: tx[IdempotencyTable].forget(found, until))
STEPS = (
    DELETED,
    Sweeping(Kind.EXPIRED, _expired_entries, _expire_entries, at_once),  # not kept after their end
    _memories_of(Kind.EXPIRED),
    Sweeping(Kind.REVISIONS, _with_history, _trim_history, at_once),
    RECORDS,
    Sweeping(Kind.RECEIPTS, lambda tx, until, most: tx[ReceiptTable].settled(until, most),
             _remove_receipts),
    Sweeping(Kind.EVENTS, past_events, _remove_events),
    Sweeping(Kind.LOG, partial(past_events, of_log=True), _remove_events),
    Sweeping(Kind.LOG, past_tasks, _remove_tasks),
    # Spaces of agents: the name of a namespace stays no longer than what lay in it.
    Sweeping(Kind.EVENTS, lambda tx, _, most: agents.empty_spaces(tx, most), _drop_spaces,
             at_once),
    Sweeping(Kind.EVENTS, lambda tx, until, most: tx[RunTable].silent(until, most), _cancel_runs),
    Sweeping(Kind.EVENTS,
             lambda tx, until, most: tx[RunTable].past(until, most, with_events=True),
             _remove_run_events),
    Sweeping(Kind.EVENTS,
             lambda tx, until, most: tx[RunTable].past(until, most, with_events=False),
             lambda tx, found, _: tx[RunTable].forget(found), _twice_past),
)
# fmt: on


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
