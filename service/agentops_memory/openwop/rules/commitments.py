"""Commitments: armed, listed, cancelled, and fired when their time has come (OpenWOP RFC 0068)."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ...engine.callbacks import noop
from ...engine.engine import Engine, Ids, Transaction
from ...errors import AnswerLost, NotFound, Unavailable
from ...memory.idempotency import IdempotentRequest, idempotent
from ...memory.limits import require_room
from ...memory.model.access import Caller, Role
from ...memory.model.stores import Written
from ...memory.redactor import Redaction
from ..model.commitments import (
    Commitment,
    CommitmentDraft,
    CommitmentId,
    CommitmentQuery,
    CommitmentState,
    Condition,
    ConditionKind,
)
from ..sql.commitments import CommitmentTable
from ..sql.entries import RefTable
from .changes import ScreenOutdated
from .commitment_changes import (
    STEP,
    arm,
    cancel_orphans,
    fire_due,
    has_due,
    has_orphans,
    known,
    time_to_come,
)
from .rules import is_readable, no_entry, require_ref
from .screen import Screen
from .screened_writes import IsCurrent, screen_of, written
from .turns import Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """Fires what is due, of any caller, in steps that each are a transaction of their own.

    After its commit `on_fired` gets the kind of condition and how many have fired, and `on_due` is
    called if more may be due: another step is to follow.
    """

    engine: Engine
    on_fired: Callable[[ConditionKind, int], object] = noop
    on_due: Callable[[Caller], object] = noop
    _turns: Turns = field(default_factory=Turns)

    async def step(self, caller: Caller, most: int = STEP) -> None:
        """Fire what is due of the tenant, at most so many."""
        operator = Caller(tenant=caller.tenant)
        # One step at a time: many readers would else queue as many before the next save.
        async with self._turns.of(operator):
            if not await self.engine.read(operator, has_due):
                return
            fired, has_more = await self.engine.write(operator, fire_due, most)
        for kind, number in fired.items():
            self.on_fired(kind, number)
        if has_more:
            self.on_due(operator)

    async def look(self, caller: Caller) -> None:
        """The same, and cancel what has lost its source, as that has expired."""
        await self.step(caller)
        operator = Caller(tenant=caller.tenant)
        has_more = await self.engine.read(operator, has_orphans)
        while has_more:
            has_more = await self.engine.write(operator, cancel_orphans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitments:
    """The commitments of one service.

    Denied for callers without access to every project; NotFound for unknown commitments.
    """

    engine: Engine
    redaction: Redaction
    firing: Firing

    async def arm(
        self,
        caller: Caller,
        draft: CommitmentDraft,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[Commitment]:
        """Arm a condition for an entry; an equal one that is armed is answered again.

        BadFields for a time that is past, Denied for another tenant's ref, NotFound for an entry
        that is not live, or that a live one supersedes, TooManyArmed.
        """
        caller.require(Role.WRITER)
        caller.require_refs()
        work = idempotent(
            arm_entry,
            idempotency,
            again=_armed_again,
            ids=lambda it: {"commitment": it.value.id, "is_new": int(it.is_new)},
            status=lambda it: 201 if it.is_new else 200,
        )

        async def write(screen: Screen, is_current: IsCurrent) -> Written[Commitment]:
            require_ref(draft.ref, caller.tenant, screen)
            clean = await asyncio.to_thread(_screened, screen, draft)
            return await self.engine.write(caller, work, clean, is_current)

        done = await written(self.redaction, caller, write)
        return replace(done.value, redacted=done.redacted)

    async def list(
        self, caller: Caller, query: CommitmentQuery
    ) -> tuple[Sequence[Commitment], bool]:
        """Commitments in the order of their ids, and whether there are more."""
        caller.require(Role.READER)
        caller.require_refs()
        if query.ref is not None:
            screen = screen_of(self.redaction, caller)
            if not is_readable(query.ref, caller.tenant, screen):
                return (), False
        wanted = replace(query, limit=query.limit + 1)
        found = await self.engine.read(caller, list_commitments, wanted)
        return found[: query.limit], len(found) > query.limit

    async def get(self, caller: Caller, id_: CommitmentId) -> Commitment:
        """The commitment."""
        caller.require(Role.READER)
        caller.require_refs()
        return await self.engine.read(caller, known, id_)

    async def cancel(
        self, caller: Caller, id_: CommitmentId, *, idempotency: IdempotentRequest | None = None
    ) -> Commitment:
        """Cancel a commitment; one that has fired, or was cancelled, stays as it is."""
        caller.require(Role.WRITER)
        caller.require_refs()
        work = idempotent(cancel_commitment, idempotency, again=_cancelled_again)
        return await self.engine.write(caller, work, id_)

    async def fire_due(self, caller: Caller) -> None:
        """Fire what is due, at most a step of it, before something is read that would tell of it.

        What is left is still armed, and fires soon after. While nothing can be written nothing
        fires, and what is there can be read.
        """
        with suppress(Unavailable):
            await self.firing.step(caller)


def arm_entry(
    tx: Transaction, draft: CommitmentDraft, is_current: IsCurrent
) -> Written[Commitment]:
    if not is_current():
        raise ScreenOutdated
    tx.caller.require_refs()
    condition = draft.condition
    if condition.due_at is not None:
        said = "must lie in the future"
        condition = time_to_come(condition.due_at, tx.now, "dueAt", said)
    source = tx[RefTable].get(draft.ref, draft.entry)
    if source is None or not tx[CommitmentTable].has_source(source.memory):
        raise no_entry()
    if armed := tx[CommitmentTable].armed(source.memory, condition):
        return Written(value=armed)
    require_room(tx)
    (made,) = arm(tx, source.memory, [condition])
    return Written(value=made, is_new=True)


def _armed_again(
    tx: Transaction, ids: Ids, _: CommitmentDraft, __: IsCurrent
) -> Written[Commitment]:
    """The commitment as it was answered, whatever has become of it; AnswerLost if it is gone."""
    tx.caller.require_refs()
    try:
        found = known(tx, CommitmentId(str(ids["commitment"])))
    except NotFound as gone:
        raise AnswerLost from gone
    then = replace(found, state=CommitmentState.ARMED, fired_at=None)
    return Written(value=then, is_new=bool(ids["is_new"]))


def list_commitments(tx: Transaction, query: CommitmentQuery) -> Sequence[Commitment]:
    return tx[CommitmentTable].listed(query)


def cancel_commitment(tx: Transaction, id_: CommitmentId) -> Commitment:
    tx.caller.require_refs()
    found = known(tx, id_)
    tx[CommitmentTable].cancel([found])
    return known(tx, id_)


def _cancelled_again(tx: Transaction, _: Ids, id_: CommitmentId) -> Commitment:
    tx.caller.require_refs()
    return known(tx, id_)


def _screened(screen: Screen, draft: CommitmentDraft) -> CommitmentDraft:
    """The draft whose tag has no secrets."""
    if draft.condition.tag is None:
        return draft
    (tag,) = screen.tags([draft.condition.tag])
    return replace(draft, condition=Condition(tag=tag))
