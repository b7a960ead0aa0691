"""What is past its retention, found and removed: a pair of functions for each kind of row."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from ...engine.engine import Transaction
from ...openintent.rules.rules import add_receipt, expire
from ...openintent.sql.agents import AgentDirectory
from ...openintent.sql.entries import AgentTable
from ...openintent.sql.events import AgentEventTable
from ...openintent.sql.tasks import TaskTable
from ...openwop.model.runs import RunId, RunStatus
from ...openwop.sql.runs import RunTable
from ..model.agent_memory import AgentEntryId
from ..model.erasure import Erasable, Erasure, ErasureId
from ..model.intents import TaskId
from ..model.kinds import TRAITS, SpaceKind
from ..model.memory import MemoryId
from ..model.retention import Kind
from ..model.space import Project
from ..sql.idempotency_records import IdempotencyTable
from ..sql.memories import MemoryTable
from ..sql.past_retention import RetentionTable
from ..sql.receipts import ReceiptTable

MAX_REMOVED = 200  # rows of one transaction; saves wait for it
MAX_FOUND = 1000  # of one lookup, which scans a whole index


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
    return tx[RetentionTable].with_history(keep, MAX_FOUND) if keep else []


def remove_revisions(tx: Transaction, found: Sequence[MemoryId], _: By = None) -> SweepStep:
    rows = tx[RetentionTable].trim(found[:MAX_REMOVED], tx.retention.revisions)
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
    return [
        entry.id for entry in tx[AgentTable].expired(MAX_REMOVED, until=min(tx.now, by or tx.now))
    ]


def remove_entries(tx: Transaction, found: Sequence[AgentEntryId], by: By = None) -> SweepStep:
    still = tx[AgentTable].expired(len(found), until=min(tx.now, by or tx.now))
    for entry in still:
        expire(tx, entry)
    return SweepStep(rows=len(still), done=len(found))


def events_past_retention(tx: Transaction, by: By = None) -> list[int]:
    until = _until(tx, Kind.EVENTS, by)
    return tx[AgentEventTable].past(until, MAX_FOUND) if until else []


def remove_events(tx: Transaction, found: Sequence[int], _: By = None) -> SweepStep:
    some = found[:MAX_REMOVED]
    add_receipt(tx)  # for the names in them
    return SweepStep(rows=tx[AgentEventTable].forget(some), done=len(some))


def log_past_retention(tx: Transaction, by: By = None) -> list[int]:
    until = _until(tx, Kind.LOG, by)
    return tx[AgentEventTable].past(until, MAX_FOUND, of_log=True) if until else []


def tasks_past_retention(tx: Transaction, by: By = None) -> list[TaskId]:
    until = _until(tx, Kind.LOG, by)
    return tx[TaskTable].past(until, MAX_FOUND) if until else []


def remove_tasks(tx: Transaction, found: Sequence[TaskId], by: By = None) -> SweepStep:
    until, some = _until(tx, Kind.LOG, by), found[:MAX_REMOVED]
    add_receipt(tx)
    return SweepStep(rows=tx[TaskTable].forget(some, until) if until else 0, done=len(some))


def empty_spaces(tx: Transaction, _: By = None) -> list[int]:
    """Those of agents: the name of a namespace stays no longer than what lay in it."""
    return tx[AgentDirectory].empty_spaces(MAX_FOUND)


def remove_spaces(tx: Transaction, found: Sequence[int], _: By = None) -> SweepStep:
    some = found[:MAX_REMOVED]
    add_receipt(tx)
    return SweepStep(rows=tx[AgentDirectory].drop_spaces(some), done=len(some))


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
    revisions = tx[RetentionTable].trim([one.memory], keep=1)
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
