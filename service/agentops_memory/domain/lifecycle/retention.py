"""Removing what is over its time, a little at a time, while others save."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..model.access import Caller
from ..model.erasure import Erasure, ErasureId, ErasureKind
from ..model.memory import MemoryId
from ..model.retention import Kind
from ..model.space import NO_PROJECT, Project
from ..ports.audit import noop
from ..ports.engine import Engine, Transaction
from ..ports.retention import Deleted

AT_ONCE = 200  # rows that go in one transaction; saves wait for it
FOUND = 1000  # that are looked up together: to find them, a whole index is read

Removed = Mapping[Kind, int]
"""How many rows of each kind went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retaining:
    """What one service keeps for a time, by the retentions of its transactions.

    Several may sweep one database: what is gone is gone. What was deleted is erased,
    with a receipt for each project in each step, so that its bytes follow.
    """

    engine: Engine
    on_erased: Callable[[Caller], None] = noop

    async def sweep(
        self,
        caller: Caller,
        kinds: Collection[Kind] = frozenset(Kind),
        *,
        by: "By" = None,
    ) -> Removed:
        """Remove what is over its time, of these kinds; nothing that is younger goes.

        Nor what was not over its time `by` then, wherever the clock jumps meanwhile.
        """
        removed = {
            kind: await self._swept(caller, by, *STEPS[kind]) for kind in STEPS if kind in kinds
        }
        if removed.get(Kind.DELETED):
            self.on_erased(caller)
        return removed

    async def _swept(self, caller: Caller, by: "By", find: "Find", remove: "Remove") -> int:
        total = 0
        while due := await self.engine.read(caller, find, by):
            gone = 0
            while due and (step := await self.engine.write(caller, remove, due, by)):
                due = due[step.seen :]
                gone += step.rows
            if not gone:
                break  # another sweeps as well; or the file is damaged, and this would not end
            total += gone
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one transaction has done: rows that went, and how many of the found are seen to."""

    rows: int
    seen: int

    def __bool__(self) -> bool:
        return bool(self.rows or self.seen)


By = datetime | None
Find = Callable[[Transaction, By], Sequence[Any]]
Remove = Callable[[Transaction, Sequence[Any], By], Step]


def overdue_memories(tx: Transaction, by: By = None) -> list[MemoryId]:
    until = _until(tx, Kind.DELETED, by)
    return tx.past_retention.deleted(until, FOUND) if until else []


def remove_memories(tx: Transaction, due: Sequence[MemoryId], by: By = None) -> Step:
    """Erase the first of them; of one with a long history the oldest part of that."""
    until, some = _until(tx, Kind.DELETED, by), due[:AT_ONCE]
    first = tx.past_retention.first_deleted(some, until) if until else []
    if not first:  # others have restored or erased them all
        return Step(rows=0, seen=len(some))
    if first[0].is_long:
        return Step(rows=_shortened(tx, first[0]), seen=some.index(first[0].memory))
    rows = sum(_erased(tx, *group) for group in _by_project(first).items())
    return Step(rows=rows, seen=some.index(first[-1].memory) + 1)


def overdue_histories(tx: Transaction, _: By = None) -> list[MemoryId]:
    return (
        tx.past_retention.with_history(tx.retention.revisions, FOUND)
        if tx.retention.revisions
        else []
    )


def remove_revisions(tx: Transaction, due: Sequence[MemoryId], _: By = None) -> Step:
    rows = tx.past_retention.trim(due[:AT_ONCE], tx.retention.revisions)
    return Step(rows=rows, seen=0 if rows else len(due[:AT_ONCE]))


def overdue_records(tx: Transaction, by: By = None) -> list[bytes]:
    until = _until(tx, Kind.IDEMPOTENCY, by)
    return tx.idempotency_records.until(until, FOUND) if until else []


def remove_records(tx: Transaction, due: Sequence[bytes], by: By = None) -> Step:
    until = _until(tx, Kind.IDEMPOTENCY, by)
    rows = tx.idempotency_records.forget(due, until) if until else 0
    return Step(rows=rows, seen=len(due))


def overdue_receipts(tx: Transaction, by: By = None) -> list[ErasureId]:
    until = _until(tx, Kind.RECEIPTS, by)
    return tx.receipts.settled(until, FOUND) if until else []


def remove_receipts(tx: Transaction, due: Sequence[ErasureId], _: By = None) -> Step:
    rows = 0
    for seen, erasure in enumerate(due):
        if rows >= AT_ONCE:
            return Step(rows=rows, seen=seen)
        rows += tx.receipts.forget(erasure, AT_ONCE)
    return Step(rows=rows, seen=len(due))


STEPS: Mapping[Kind, tuple[Find, Remove]] = {
    Kind.DELETED: (overdue_memories, remove_memories),
    Kind.REVISIONS: (overdue_histories, remove_revisions),
    Kind.IDEMPOTENCY: (overdue_records, remove_records),
    Kind.RECEIPTS: (overdue_receipts, remove_receipts),
}


def _until(tx: Transaction, kind: Kind, by: By) -> datetime | None:
    return tx.retention.until(kind, min(tx.now, by or tx.now))


def _by_project(deleted: Sequence[Deleted]) -> dict[Project, list[MemoryId]]:
    groups = defaultdict(list)
    for one in deleted:
        groups[one.project].append(one.memory)
    return groups


def _erased(tx: Transaction, project: Project, memories: list[MemoryId]) -> int:
    revisions = tx.memories.erase_some(memories)
    tx.receipts.add(_receipt(tx, project, memories, len(memories), revisions))
    return len(memories) + revisions


def _shortened(tx: Transaction, one: Deleted) -> int:
    tx.memories.must_scrub(one.memory)  # it may hold words of earlier revisions
    revisions = tx.past_retention.trim([one.memory], keep=1)
    tx.receipts.add(_receipt(tx, one.project, [one.memory], 0, revisions))
    return revisions


def _receipt(
    tx: Transaction, project: Project, memories: list[MemoryId], observations: int, revisions: int
) -> Erasure:
    return Erasure(
        id=ErasureId(tx.new_uid(tx.now)),
        kind=ErasureKind.STORE if project == NO_PROJECT else ErasureKind.OBSERVATION,
        project=project,
        memories=tuple(memories),
        observations=observations,
        revisions=revisions,
        erased_at=tx.now,
    )
