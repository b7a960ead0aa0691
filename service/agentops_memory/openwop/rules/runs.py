"""Runs: opened, told of secrets, ended, listened to, and made again (OpenWOP)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from ...engine.engine import Engine, Ids, Transaction
from ...errors import BadFields, DamagedRow, Invalid, OverQuota, TooMany
from ...memory.idempotency import IdempotentRequest, idempotent
from ...memory.limits import require_margin
from ...memory.model.access import Caller, Role
from ...memory.model.space import MemoryRef
from ...memory.redactor import Redaction, Redactor, RunKey
from ...secrets.redaction import SHORTEST_VALUE
from ..model.runs import (
    Offset,
    Run,
    RunDraft,
    RunEvent,
    RunId,
    RunKind,
    RunLog,
    RunStatus,
    Snapshot,
)
from ..sql.runs import RunTable
from .rules import require_plain, require_ref
from .run_rules import (
    DAMAGED,
    EXPIRED,
    InvalidSequence,
    RunConflict,
    RunEnded,
    SnapshotLost,
    known_run,
    open_run,
)
from .screen import Screen
from .snapshots import lost_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs of one service.

    Denied for callers without access to every project; NotFound for unknown runs.
    """

    engine: Engine
    redaction: Redaction

    async def open(
        self, caller: Caller, draft: RunDraft, *, idempotency: IdempotentRequest | None = None
    ) -> tuple[Run, bool]:
        """Open a run; and whether it is new: the same one again is the first.

        RunConflict for another one, and for one that has ended.
        """
        caller.require(Role.WRITER)
        caller.require_refs()
        screen = Screen(Redactor(self.redaction.rules(caller)))
        require_plain(screen, runId=draft.id, agentId=draft.agent, workflowId=draft.workflow)
        for number, ref in enumerate(draft.refs):
            require_ref(MemoryRef(ref), caller.tenant, screen, f"memoryRefs[{number}]")
        work = idempotent(
            open_or_known,
            idempotency,
            again=_opened_again,
            ids=lambda it: {"run": it[0].id, "is_new": int(it[1])},
            status=lambda it: 201 if it[1] else 200,
        )
        return await self.engine.write(caller, work, draft)

    async def get(self, caller: Caller, run: RunId) -> Run:
        """The run."""
        caller.require(Role.READER)
        caller.require_refs()
        return await self.engine.read(caller, known_run, run)

    async def register(self, caller: Caller, run: RunId, secret: str, value: str) -> bool:
        """Let a value be a secret in all that the tenant writes until the run ends.

        False for one so short that it stands in words. What is put once this has answered is
        without it, whenever it was sent. RunEnded; Invalid, OverQuota, TooMany.
        """
        caller.require(Role.WRITER)
        caller.require_refs()
        key, names = RunKey(tenant=caller.tenant, run=run), {"secretId": secret, "runId": run}
        await self.engine.write(caller, hear_run, run)  # lest it is idle when the value comes
        registry = self.redaction.registry
        if registry.occurs_in(caller.tenant, secret):  # it is answered, and stored
            raise BadFields([("secretId", "holds a registered value")])
        if len(value.strip()) < SHORTEST_VALUE:
            return False
        # Both stand in answers, one of them in place of the value.
        if faults := [(name, "holds the value") for name, it in names.items() if value in it]:
            raise BadFields(faults)
        register = partial(registry.register, key, secret, value)
        try:
            try:
                register()
            except (OverQuota, TooMany):  # runs that another process has ended may hold the room
                await self.drop_idle(caller, timedelta())
                register()
        except Invalid as refusal:
            raise BadFields([("value", "is none that can be registered")]) from refusal
        try:
            await self.engine.write(caller, note_secrets, run, partial(registry.count, key))
        except RunEnded:
            registry.forget(key)
            raise
        return True

    async def end(
        self,
        caller: Caller,
        run: RunId,
        status: RunStatus,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Run:
        """End a run, whose values are no secrets any more; RunEnded if it did otherwise."""
        caller.require(Role.WRITER)
        caller.require_refs()
        work = idempotent(end_run, idempotency, again=_ended_again)
        ended = await self.engine.write(caller, work, run, status)
        self.redaction.registry.forget(RunKey(tenant=caller.tenant, run=run))
        return ended

    async def log(self, caller: Caller, run: RunId, after: int, limit: int) -> RunLog:
        """Events of a run after a sequence; -1 for all."""
        caller.require(Role.READER)
        caller.require_refs()
        return await self.engine.read(caller, read_log, run, after, limit)

    async def events(
        self, caller: Caller, after: Offset, limit: int, type_: str | None
    ) -> tuple[Sequence[RunEvent], Offset]:
        """Events of all runs in the order of their commits, and where to go on."""
        caller.require(Role.READER)
        caller.require_refs()
        return await self.engine.read(caller, read_events, after, limit, type_)

    async def fork(
        self,
        caller: Caller,
        run: RunId,
        from_sequence: int,
        *,
        is_branch: bool,
        idempotency: IdempotentRequest | None = None,
    ) -> Run:
        """A copy of a run, which is over, or a run that begins where another one was.

        InvalidSequence; SnapshotLost if it is not known any more what it saw.
        """
        caller.require(Role.WRITER)
        caller.require_refs()
        work = idempotent(
            branch_run if is_branch else replay_run,
            idempotency,
            again=_forked_again,
            ids=lambda it: {"run": it.id, "status": it.status.value},
        )
        return await self.engine.write(caller, work, run, from_sequence)

    async def drop_idle(self, caller: Caller, idle: timedelta) -> None:
        """Forget the values of runs in which nothing was done for so long, or that have ended."""
        registry = self.redaction.registry
        if keys := registry.runs(caller.tenant):
            for key in await self.engine.read(caller, over, keys, idle):
                registry.forget(key)


def open_or_known(tx: Transaction, draft: RunDraft) -> tuple[Run, bool]:
    tx.caller.require_refs()
    held = None if draft.id is None else tx[RunTable].get(draft.id)
    if held is None:
        require_margin(tx)
        return tx[RunTable].open(draft), True
    same = (held.agent, held.workflow, held.refs) == (draft.agent, draft.workflow, draft.refs)
    if not (held.is_open and same and held.kind is RunKind.HOST):
        raise RunConflict("There is another run with this id, or it has ended.")
    return held, False


def _opened_again(tx: Transaction, ids: Ids, _: RunDraft) -> tuple[Run, bool]:
    """The run as it was answered, whatever has become of it."""
    tx.caller.require_refs()
    run = known_run(tx, RunId(str(ids["run"])))
    return replace(run, status=RunStatus.RUNNING), bool(ids["is_new"])


def hear_run(tx: Transaction, run: RunId) -> None:
    tx[RunTable].hear(open_run(tx, run))


def note_secrets(tx: Transaction, run: RunId, counted: Callable[[], Mapping[str, int]]) -> None:
    found = open_run(tx, run)
    require_margin(tx)
    counts = Counter(found.secrets) | Counter(counted())  # the larger of each
    tx[RunTable].count_secrets(found, counts)


def end_run(tx: Transaction, run: RunId, status: RunStatus) -> Run:
    found = known_run(tx, run)
    if found.is_open:  # also beyond the quota: its values are secrets until then
        return tx[RunTable].end(found, status)
    if found.status is not status:
        raise RunEnded
    return found


def _ended_again(tx: Transaction, _: Ids, run: RunId, __: RunStatus) -> Run:
    tx.caller.require_refs()
    return known_run(tx, run)


def read_log(tx: Transaction, run: RunId, after: int, limit: int) -> RunLog:
    found = known_run(tx, run)
    events = tx[RunTable].log(found, after, limit + 1)
    return RunLog(events=events[:limit], is_complete=not found.is_open and len(events) <= limit)


def read_events(
    tx: Transaction, after: Offset, limit: int, type_: str | None
) -> tuple[Sequence[RunEvent], Offset]:
    events = tx[RunTable].events(after, limit, type_)
    if len(events) == limit:
        return events, events[-1].offset
    return events, max(after, tx[RunTable].newest())


def replay_run(tx: Transaction, run: RunId, from_sequence: int) -> Run:
    source = _source(tx, run, from_sequence)
    _require_whole(tx, source, source.snapshot, from_sequence)
    require_margin(tx)
    copied = tx[RunTable].copy(source, from_sequence)
    # Of one that goes on there is a copy up to now.
    return tx[RunTable].end(copied, RunStatus.CANCELLED) if copied.is_open else copied


def branch_run(tx: Transaction, run: RunId, from_sequence: int) -> Run:
    source = _source(tx, run, from_sequence)
    event = tx[RunTable].event(source, from_sequence) or tx[RunTable].last(source)
    assert event is not None  # there is a last one
    at = event.snapshot if from_sequence else source.snapshot  # of a branch, what it began with
    refs = _require_whole(tx, source, at, from_sequence)
    require_margin(tx)
    draft = RunDraft(agent=source.agent, workflow=source.workflow, refs=refs)
    return tx[RunTable].open(draft, of=replace(source, snapshot=at, from_sequence=from_sequence))


def _source(tx: Transaction, run: RunId, from_sequence: int) -> Run:
    """The run that is to be made again; InvalidSequence, or SnapshotLost without its events."""
    tx.caller.require_refs()
    source = known_run(tx, run)
    last = tx[RunTable].last(source)
    if last is None:
        raise SnapshotLost(run, from_sequence, EXPIRED)
    if from_sequence > last.sequence + 1:
        raise InvalidSequence
    if tx[RunTable].count_events(source) <= last.sequence:
        raise SnapshotLost(run, from_sequence, DAMAGED)
    return source


def _require_whole(
    tx: Transaction, source: Run, at: Snapshot, from_sequence: int
) -> tuple[MemoryRef, ...]:
    """The refs that the run has named; SnapshotLost if something that it saw of them is gone."""
    refs = tuple(MemoryRef(it) for it in sorted({*source.refs, *source.wrote}))
    if reason := lost_of(tx, source, at, refs, until=tx.now):
        raise SnapshotLost(source.id, from_sequence, reason)
    return refs


def _forked_again(tx: Transaction, ids: Ids, _: RunId, __: int) -> Run:
    """The run as it was answered, whatever has become of it."""
    tx.caller.require_refs()
    run = known_run(tx, RunId(str(ids["run"])))
    return replace(run, status=RunStatus(str(ids["status"])))


def over(tx: Transaction, keys: Sequence[RunKey], idle: timedelta) -> Sequence[RunKey]:
    found = []
    for key in keys:
        with suppress(DamagedRow):  # nobody can tell: its values stay secrets
            if is_over(tx, RunId(key.run), idle):
                found.append(key)
    return found


def is_over(tx: Transaction, run: RunId, idle: timedelta) -> bool:
    found = tx[RunTable].get(run)
    if found is None or not found.is_open:
        return True
    return bool(idle) and found.heard_at <= tx.now - idle
