"""Runs of hosts: what happens in them, what is secret in them, and the memory that each sees."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypeVar

from pydantic import BaseModel, Field, model_validator

from ..engine.engine import Engine, Ids, Transaction
from ..errors import (
    BadFields,
    Conflict,
    DamagedRow,
    Invalid,
    NotFound,
    OverQuota,
    Refusal,
    TooMany,
)
from ..http.faults import fault_of
from ..http.protocol import Operation
from ..memory.idempotency import IdempotentRequest, idempotent
from ..memory.limits import require_margin
from ..memory.model.access import Caller, Role
from ..memory.model.memory import MemoryId
from ..memory.model.space import MemoryRef
from ..memory.model.stores import Written
from ..memory.redactor import LONGEST_ID as LONGEST_SECRET_ID
from ..memory.redactor import Redaction, RunKey
from ..memory.sql.rows import (
    EARLIEST,
    LAST,
    StrictRow,
    count,
    counts_of,
    instant,
    member,
    micros,
    optional_instant,
    tag_array,
)
from ..memory.sql.table import Sql, Table
from ..recall.text.ids import Uids
from ..recall.text.json_words import stored_object
from ..record import CamelRecord, Milliseconds
from ..secrets.redaction import SHORTEST_VALUE
from ..telemetry import Cut, annotate
from .api import BASE, LONGEST_IN_SPAN, Page, Param, Query, limit, op
from .refs import (
    CAMEL,
    AgentName,
    Exact,
    JsonObject,
    MemoryRefText,
    Offset,
    RunName,
    Snapshot,
    Workflow,
    put_by,
    require_plain,
    require_ref,
    screen_of,
    undeleted_at,
    values,
)

T = TypeVar("T")
Internal = Annotated[T, Field(exclude=True)]
"""A field that no client sees."""

RunId = NewType("RunId", str)
"""A host's name for a run, or `run_` and the digits of a stable id."""

MAX_REFS = 32  # that a run declares
BEYOND = 2**53  # every sequence
HEARD = timedelta(seconds=1)  # how exactly it is noted when something was done
EXPIRED, DAMAGED = "retention_expired", "event_log_unavailable"  # why a snapshot is lost
FORGOTTEN = "forgotten:"  # how refs are called whose names are
LOST = {"": 1}  # the secrets of a run of which it is not known how many: no put in it is safe


class RunKind(StrEnum):
    """Whose run it is, and of what."""

    HOST = "host"
    PASS = "pass"  # noqa: S105 - what the service did by itself, or was asked for without a run
    REPLAY = "replay"  # a copy of another one's log
    BRANCH = "branch"  # begun where another one was


class RunStatus(StrEnum):
    """How a run has ended, if it has."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunEventType(StrEnum):
    """What a run's log tells; no payload holds content."""

    STARTED = "run.started"
    COMPLETED = "run.completed"
    FAILED = "run.failed"
    CANCELLED = "run.cancelled"
    WRITTEN = "memory.written"
    COMPACTED = "memory.compacted"
    CONSOLIDATED = "agent.memory.consolidated"
    FIRED = "commitment.fired"
    PROPOSED = "proposal.created"
    ACTIVATED = "proposal.activated"
    DELETED = "agentops-memory.memory.deleted"
    FORGOTTEN = "agentops-memory.memory.forgotten"
    UNDONE = "agentops-memory.pass.undone"


# What is told of every run that has failed: why it did is the host's to know.
RUN_FAILED: Mapping[str, str] = {"code": "run_failed", "message": "The run has failed."}

ENDS: Mapping[RunStatus, RunEventType] = {
    RunStatus.COMPLETED: RunEventType.COMPLETED,
    RunStatus.FAILED: RunEventType.FAILED,
    RunStatus.CANCELLED: RunEventType.CANCELLED,
}


class Run(CamelRecord):
    """A run."""

    id: RunId = Field(serialization_alias="runId")
    status: RunStatus
    started_at: Milliseconds
    ended_at: Milliseconds | None = None
    agent: str | None = Field(default=None, serialization_alias="agentId")
    workflow: str | None = Field(default=None, serialization_alias="workflowId")
    kind: RunKind
    source: RunId | None = Field(default=None, serialization_alias="sourceRunId")
    number: Internal[int]
    refs: Internal[tuple[str, ...]]  # that it was going to use
    wrote: Internal[tuple[str, ...]]  # that it has written to
    from_sequence: Internal[int]  # of the source, at which a fork begins
    snapshot: Internal[Snapshot]
    secrets: Internal[Mapping[str, int]]  # how many values each id has
    heard_at: Internal[datetime]  # when something was last done in it

    @property
    def is_open(self) -> bool:
        return self.status is RunStatus.RUNNING


class OpenedRun(CamelRecord):
    """A run that was opened."""

    run_id: RunId
    status: Literal["running"]
    started_at: Milliseconds


class ForkedRun(CamelRecord):
    """A run that was made of another one."""

    run_id: RunId
    source_run_id: RunId
    from_seq: int
    mode: Literal["replay", "branch"]
    status: RunStatus


class RegisteredSecret(CamelRecord):
    """Whether a value is a secret from now on; a short one is not."""

    secret_id: str
    registered: bool


class RunEvent(CamelRecord):
    """Something that happened in a run. A copy keeps the snapshot of what it is copied from."""

    id: str = Field(serialization_alias="eventId")
    run: RunId = Field(serialization_alias="runId")
    type: RunEventType
    payload: dict[str, Any]
    at: Milliseconds = Field(serialization_alias="timestamp")
    sequence: int  # from 0, without gaps
    node: str | None = Field(default=None, serialization_alias="nodeId")
    offset: Internal[Offset]
    snapshot: Internal[Snapshot]  # memory just after it


class RunEvents(CamelRecord):
    """Events of a run, and whether these are all up to its end."""

    events: list[RunEvent]
    is_complete: bool


class AllRunEvents(CamelRecord):
    """Events of all runs, and the cursor to go on with."""

    events: list[RunEvent]
    next: str


class Recorded(NamedTuple):
    """An event that no run of a host has caused, and the refs that it is about."""

    payload: JsonObject
    refs: Sequence[str] = ()


class RunBody(BaseModel):
    """A run to be opened."""

    model_config = CAMEL
    run_id: RunName | None = None
    agent_id: AgentName | None = None
    workflow_id: Workflow | None = None
    memory_refs: Annotated[list[MemoryRefText], Field(max_length=MAX_REFS)] = []


class RunSecretBody(BaseModel):
    """A value that is a secret of a run."""

    model_config = CAMEL
    secret_id: Annotated[str, Field(min_length=1, max_length=LONGEST_SECRET_ID), Exact]
    value: Annotated[str, Field(repr=False), Exact]


class RunEndBody(BaseModel):
    """How a run has ended."""

    model_config = CAMEL
    status: Literal["completed", "failed", "cancelled"]


class RunForkBody(BaseModel):
    """How a run is made again, and from which of its events on."""

    model_config = CAMEL
    mode: Literal["replay", "branch"]
    from_seq: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _together(self) -> "RunForkBody":
        if self.mode == "branch" and self.from_seq is None:
            raise fault_of("fromSeq", "is required")
        return self


class RunConflict(Conflict):
    """The run is there already, and is another one, or goes on."""

    code = "run_conflict"


class RunEnded(Conflict):
    """The run has ended, and takes no write."""

    code = "run_terminal"

    def __init__(self) -> None:
        super().__init__("The run has ended.")


class SecretsLost(Conflict):
    """Values of the run are not known in this process: what is put now could hold them."""

    code = "run_secrets_lost"

    def __init__(self) -> None:
        super().__init__("The values that the run has registered are lost: register them again.")


class InvalidSequence(Refusal):
    """The run has no such event, nor is it the next."""

    code = "invalid_from_seq"

    def __init__(self) -> None:
        super().__init__("fromSeq lies beyond the next event of the run.")


class SnapshotLost(Refusal):
    """Something that the run has seen is gone; today's memory never stands in."""

    code = "replay_memory_snapshot_unavailable"

    def __init__(self, source: RunId, from_sequence: int, reason: str) -> None:
        super().__init__("Memory as the run has seen it is not there any more.")
        self.source = source
        self.from_sequence = from_sequence
        self.reason = reason


def operations(runs: "Runs", fire_due: Callable[[Caller], Awaitable[None]]) -> Sequence[Operation]:
    """Every operation of runs and of their events; what is due fires before a log is read."""

    async def log(caller: Caller, **values: Any) -> Page:
        await fire_due(caller)
        return await runs.log(caller, **values)

    async def events(caller: Caller, **values: Any) -> Page:
        await fire_due(caller)
        return await runs.events(caller, **values)

    every, one = f"{BASE}/runs", f"{BASE}/runs/{{runId}}"
    return (
        op(
            "POST", every, "open_run",
            "Open a run, which sees memory as it is now; the same one again is the first.",
            runs.open, role=Role.WRITER, body=RunBody, body_required=False, answer=OpenedRun,
            status=201, status_if_new=200, is_limited=False, refusals=(409,),
        ),
        op(
            "GET", one, "get_run", "One run.", runs.get, role=Role.READER, answer=Run,
            refusals=(404,),
        ),
        op(
            "POST", f"{one}/secrets", "register_secret",
            "Let a value be a secret in all that is written until the run ends.",
            runs.register, role=Role.WRITER, body=RunSecretBody, answer=RegisteredSecret,
            takes_key=False, refusals=(404, 408, 409, 413, 507),
        ),
        op(
            "POST", f"{one}/end", "end_run", "End a run.", runs.end, role=Role.WRITER,
            body=RunEndBody, answer=Run, is_limited=False, refusals=(404, 409),
        ),
        op(
            "GET", f"{one}/events", "run_events", "What happened in a run, in order.",
            log, role=Role.READER, answer=RunEvents, refusals=(404,),
            query=(_after("After this sequence.", -1), limit()),
        ),
        op(
            "POST", f"{one}/fork", "fork_run", "Copy a run that has ended, or begin where it was.",
            runs.fork, role=Role.WRITER, body=RunForkBody, answer=ForkedRun, status=201,
            refusals=(404, 409, 422),
        ),
        op(
            "GET", f"{BASE}/events", "events",
            "What happened in all runs, in the order of commits.",
            events, role=Role.READER, answer=AllRunEvents,
            query=(
                _after("The `next` of the answer before.", 0), limit(),
                Param(name="type", help="Of this type alone."),
            ),
        ),
    )  # fmt: skip


def _after(help_: str, first: int) -> Param:
    def read(query: Query, name: str) -> int:
        number = query.number(name)
        return first if number is None else number

    return Param(name="after", kind="integer", help=help_, read=read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The runs of one service.

    Denied for callers without access to every project; NotFound for unknown runs.
    """

    engine: Engine
    redaction: Redaction

    async def open(
        self, caller: Caller, body: RunBody, *, idempotency: IdempotentRequest | None = None
    ) -> Written[OpenedRun]:
        """Open a run; the same one again is the first.

        RunConflict for another one, and for one that has ended.
        """
        caller.require(Role.WRITER)
        caller.require_refs()
        screen = screen_of(self.redaction, caller)
        require_plain(screen, runId=body.run_id, agentId=body.agent_id, workflowId=body.workflow_id)
        for number, ref in enumerate(body.memory_refs):
            require_ref(MemoryRef(ref), caller.tenant, screen, f"memoryRefs[{number}]")
        work = idempotent(
            open_or_known,
            idempotency,
            again=_opened_again,
            ids=lambda it: {"run": it.value.run_id, "is_new": int(it.is_new)},
            status=lambda it: 201 if it.is_new else 200,
        )
        opened = await self.engine.write(caller, work, body)
        annotate({"openwop.run_id": Cut(opened.value.run_id, LONGEST_IN_SPAN)})
        return opened

    async def get(self, caller: Caller, run_id: str) -> Run:
        """The run."""
        caller.require(Role.READER)
        caller.require_refs()
        return await self.engine.read(caller, known_run, RunId(run_id))

    async def register(self, caller: Caller, run_id: str, body: RunSecretBody) -> RegisteredSecret:
        """Let a value be a secret in all that the tenant writes until the run ends.

        Not one so short that it stands in words. What is put once this has answered is
        without it, whenever it was sent. RunEnded; Invalid, OverQuota, TooMany.
        """
        caller.require(Role.WRITER)
        caller.require_refs()
        run, secret, value = RunId(run_id), body.secret_id, body.value
        key, names = RunKey(tenant=caller.tenant, run=run), {"secretId": secret, "runId": run}
        await self.engine.write(caller, _hear, run)  # lest it is idle when the value comes
        registry = self.redaction.registry
        if registry.occurs_in(caller.tenant, secret):  # it is answered, and stored
            raise BadFields([("secretId", "holds a registered value")])
        if len(value.strip()) < SHORTEST_VALUE:
            return RegisteredSecret(secret_id=secret, registered=False)
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
            await self.engine.write(caller, _note_secrets, run, partial(registry.count, key))
        except RunEnded:
            registry.forget(key)
            raise
        return RegisteredSecret(secret_id=secret, registered=True)

    async def end(
        self,
        caller: Caller,
        run_id: str,
        body: RunEndBody,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Run:
        """End a run, whose values are no secrets any more; RunEnded if it did otherwise."""
        caller.require(Role.WRITER)
        caller.require_refs()
        work = idempotent(end_run, idempotency, again=_ended_again)
        ended = await self.engine.write(caller, work, RunId(run_id), RunStatus(body.status))
        self.redaction.registry.forget(RunKey(tenant=caller.tenant, run=run_id))
        return ended

    async def log(self, caller: Caller, run_id: str, after: int, limit: int) -> Page:
        """Events of a run after a sequence; -1 for all."""
        caller.require(Role.READER)
        caller.require_refs()
        run, found = await self.engine.read(caller, read_log, RunId(run_id), after, limit + 1)
        is_all = not run.is_open and len(found) <= limit
        events = found[:limit]
        return Page("events", events, lambda n: {"isComplete": is_all and n == len(events)})

    async def events(
        self,
        caller: Caller,
        after: int,
        limit: int,
        type: str | None = None,  # noqa: A002 - as the parameter is called
    ) -> Page:
        """Events of all runs in the order of their commits, and where to go on."""
        caller.require(Role.READER)
        caller.require_refs()
        events, last = await self.engine.read(caller, read_events, Offset(after), limit, type)

        def beside(shown: int) -> Mapping[str, object]:
            return {"next": str(last if shown == len(events) else events[shown - 1].offset)}

        return Page("events", events, beside)

    async def fork(
        self,
        caller: Caller,
        run_id: str,
        body: RunForkBody,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> ForkedRun:
        """A copy of a run, which is over, or a run that begins where another one was.

        InvalidSequence; SnapshotLost if it is not known any more what it saw.
        """
        caller.require(Role.WRITER)
        caller.require_refs()
        source, from_sequence = RunId(run_id), min(body.from_seq or 0, BEYOND)
        work = idempotent(
            branch_run if body.mode == "branch" else replay_run,
            idempotency,
            again=_forked_again,
            ids=lambda it: {"run": it.id, "status": it.status.value},
        )
        run = await self.engine.write(caller, work, source, from_sequence)
        return ForkedRun(
            run_id=run.id,
            source_run_id=source,
            from_seq=run.from_sequence,
            mode=body.mode,
            status=run.status,
        )

    async def drop_idle(self, caller: Caller, idle: timedelta) -> None:
        """Forget the values of runs in which nothing was done for so long, or that have ended."""
        registry = self.redaction.registry
        if keys := registry.runs(caller.tenant):
            for key in await self.engine.read(caller, _over, keys, idle):
                registry.forget(key)


# What is done in a transaction.


def known_run(tx: Transaction, run: RunId) -> Run:
    """The run, or NotFound."""
    found = tx[RunTable].get(run)
    if found is None:
        raise NotFound("run not found")
    return found


def open_run(tx: Transaction, run: RunId) -> Run:
    """The run, or NotFound; RunEnded if it has ended."""
    found = known_run(tx, run)
    if not found.is_open:
        raise RunEnded
    return found


def require_secrets(run: Run, held: Mapping[str, int]) -> None:
    """Refuse with SecretsLost if an id has fewer values here than the run has registered."""
    if any(held.get(id_, 0) < count for id_, count in run.secrets.items()):
        raise SecretsLost


def open_or_known(tx: Transaction, body: RunBody) -> Written[OpenedRun]:
    tx.caller.require_refs()
    id_ = None if body.run_id is None else RunId(body.run_id)
    refs = tuple(body.memory_refs)
    held = None if id_ is None else tx[RunTable].get(id_)
    if held is None:
        require_margin(tx)
        run = tx[RunTable].open(id_, agent=body.agent_id, workflow=body.workflow_id, refs=refs)
        return _opened(run, is_new=True)
    same = (held.agent, held.workflow, held.refs) == (body.agent_id, body.workflow_id, refs)
    if not (held.is_open and same and held.kind is RunKind.HOST):
        raise RunConflict("There is another run with this id, or it has ended.")
    return _opened(held, is_new=False)


def _opened_again(tx: Transaction, ids: Ids, _: RunBody) -> Written[OpenedRun]:
    tx.caller.require_refs()
    return _opened(known_run(tx, RunId(str(ids["run"]))), is_new=bool(ids["is_new"]))


def _opened(run: Run, *, is_new: bool) -> Written[OpenedRun]:
    """The run as it was answered, whatever has become of it."""
    opened = OpenedRun(run_id=run.id, status="running", started_at=run.started_at)
    return Written(value=opened, is_new=is_new)


def _hear(tx: Transaction, run: RunId) -> None:
    tx[RunTable].hear(open_run(tx, run))


def _note_secrets(tx: Transaction, run: RunId, counted: Callable[[], Mapping[str, int]]) -> None:
    found = open_run(tx, run)
    require_margin(tx)
    counts = Counter(found.secrets) | Counter(counted())  # the larger of each
    tx[Sql].run(
        "UPDATE runs SET secrets = :secrets WHERE id = :number",
        number=found.number,
        secrets=json.dumps(counts),
    )


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


def read_log(tx: Transaction, run: RunId, after: int, limit: int) -> tuple[Run, Sequence[RunEvent]]:
    found = known_run(tx, run)
    return found, tx[RunTable].log(found, after, limit)


def read_events(
    tx: Transaction, after: Offset, limit: int, type_: str | None
) -> tuple[Sequence[RunEvent], Offset]:
    of_type = "" if type_ is None else " AND v.type = :type"
    events = tx[RunTable].some(
        f"v.id > :after{of_type} ORDER BY v.id LIMIT :limit", after=after, limit=limit, type=type_
    )
    return events, events[-1].offset if len(events) == limit else max(after, tx[RunTable].newest())


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
    begun_at = source.model_copy(update={"snapshot": at, "from_sequence": from_sequence})
    return tx[RunTable].open(
        agent=source.agent, workflow=source.workflow, refs=refs, of=begun_at, kind=RunKind.BRANCH
    )


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
    if reason := _lost_of(tx, source, at, refs, until=tx.now):
        raise SnapshotLost(source.id, from_sequence, reason)
    return refs


def _forked_again(tx: Transaction, ids: Ids, _: RunId, __: int) -> Run:
    """The run as it was answered, whatever has become of it."""
    tx.caller.require_refs()
    run = known_run(tx, RunId(str(ids["run"])))
    return run.model_copy(update={"status": RunStatus(str(ids["status"]))})


def _over(tx: Transaction, keys: Sequence[RunKey], idle: timedelta) -> Sequence[RunKey]:
    found = []
    for key in keys:
        with suppress(DamagedRow):  # nobody can tell: its values stay secrets
            run = tx[RunTable].get(RunId(key.run))
            if run is None or not run.is_open or (idle and run.heard_at <= tx.now - idle):
                found.append(key)
    return found


# What a run sees: memory as it was when it began, whole or refused (OpenWOP RFC 0004 §A).


def snapshot_of(tx: Transaction, run: RunId, ref: MemoryRef) -> Snapshot:
    """What the run sees of the ref; NotFound, SnapshotLost.

    While a run is open, what it may see is kept, but for what expires. Of a run that has
    ended, and of refs that a fork's source had not named, something may be gone.
    """
    found = known_run(tx, run)
    is_host = found.kind is RunKind.HOST
    if found.is_open and (is_host or ref in found.refs):
        return found.snapshot
    first = tx[RunTable].event(found, 0)
    since = None if first is None else first.offset
    # What expires from then on is lost to it; before, expiry holds in the run itself.
    until = found.snapshot.at if is_host else found.started_at
    reason = _lost_of(tx, found, found.snapshot, [ref], until, since)
    if reason is None and _may_have_been(tx, ref, found.snapshot):
        reason = EXPIRED
    if reason is not None:
        raise SnapshotLost(found.source or found.id, found.from_sequence, reason)
    return found.snapshot


def _lost_of(
    tx: Transaction,
    run: Run,
    at: Snapshot,
    refs: Iterable[MemoryRef],
    until: datetime,
    since: Offset | None = None,
) -> str | None:
    """Why a snapshot that the run's log tells of is not there as a whole; None if it is."""
    last = tx[RunTable].last(run)
    if last is None:
        return EXPIRED
    if not run.is_open and last.type not in ENDS.values():
        return EXPIRED  # the end of a log goes first
    return EXPIRED if any(_has_lost(tx, ref, at, until, since) for ref in refs) else None


def _has_lost(
    tx: Transaction, ref: MemoryRef, at: Snapshot, until: datetime, since: Offset | None
) -> bool:
    """Whether something of a snapshot had expired by then, or was erased.

    What was still there after the event `since`, and has expired by now, is no loss. An end that
    is damaged may be any.
    """
    leads = tx[Sql].dialect.leads
    is_no_end = f"e.ends_at NOT BETWEEN {EARLIEST} AND {LAST}"
    return tx[Sql].exists(
        f"""SELECT 1
              FROM refs f
             {leads} ref_losses e ON e.space_id = f.space_id
             WHERE f.ref = :ref AND e.memory_id <= :high AND e.deleted_after >= :offset
                   AND (e.ends_at IS NULL OR e.ends_at > :at OR {is_no_end})
                   AND NOT coalesce(e.deleted_after >= :since AND e.ends_at > :until
                                    AND e.ends_at <= :now, FALSE)
             UNION ALL
            SELECT 1
              FROM refs f
             {leads} ref_entries e {tx[Sql].dialect.hint("ref_entries_by_end")}
                   ON e.space_id = f.space_id
             WHERE f.ref = :ref AND {put_by("e")} AND {undeleted_at("e")}
                   AND e.ends_at IS NOT NULL
                   AND ((e.ends_at > :at AND e.ends_at <= :until) OR {is_no_end})
             LIMIT 1""",
        ref=ref,
        at=micros(at.at),
        until=micros(until),
        since=since,
        now=micros(max(tx.now, at.at)),  # a clock that went back brings nothing into a snapshot
        **values(at),
    )


# Whether anything was in a ref by then, in the order in which it is soonest found.
_KNOWN = " UNION ALL ".join(
    f"""SELECT 1
          FROM refs f
          JOIN {rows} e ON e.space_id = f.space_id {which}
         WHERE f.ref = :ref AND e.memory_id <= :high"""
    for rows, which in (
        ("ref_entries", "AND e.deleted_after IS NULL"),
        ("ref_losses", ""),
        ("ref_entries", "AND e.deleted_after IS NOT NULL"),
    )
)


def _may_have_been(tx: Transaction, ref: MemoryRef, at: Snapshot) -> bool:
    """Whether a ref of which nothing is known then may be one whose name is forgotten."""
    sql = tx[Sql]
    return not sql.exists(_KNOWN, ref=ref, high=at.high) and sql.exists(
        f"""SELECT 1
              FROM refs f
              JOIN ref_losses l ON l.space_id = f.space_id
             WHERE f.ref >= '{FORGOTTEN}' AND f.ref < '{FORGOTTEN[:-1]};'
                   AND l.memory_id <= :high AND {undeleted_at("l")}
             LIMIT 1""",
        **values(at),
    )


# The rows.

RUN = """id, name, kind, status, agent, workflow, refs, source, from_sequence, log_offset, high,
         at, secrets, wrote, started_at, heard_at, ended_at"""
_EVENT = """v.id, v.uid, r.name, v.sequence, v.type, v.payload, v.node, v.at,
            coalesce(v.copied, v.id), v.high, r.workflow, r.kind"""


@dataclass(eq=False)
class RunTable(Table):
    """Runs and their events."""

    _now: datetime
    _uids: Uids

    def get(self, run: RunId) -> Run | None:
        """The run."""
        found = self._first(run_of, f"SELECT {RUN} FROM runs WHERE name = :name", name=run)
        if found is not None and found.secrets == LOST:
            self._sql.note(self._connection, DamagedRow("runs", found.number, "secrets"))
        return found

    def open(
        self,
        id_: RunId | None = None,
        *,
        agent: str | None = None,
        workflow: str | None = None,
        refs: Sequence[str] = (),
        of: Run | None = None,
        kind: RunKind = RunKind.HOST,
    ) -> Run:
        """Open a run, and begin its log. Its snapshot is memory as it is then.

        A branch of another run has that one's snapshot and sequence.
        """
        row = {"status": RunStatus.RUNNING.value, "agent": agent, "workflow": workflow}
        id_, number = self._add(id_, kind, of, refs=tag_array(refs), ended_at=None, **row)
        offset = self._tell(number, 0, RunEventType.STARTED, {"workflowId": workflow or kind.value})
        if of is None:
            self._execute(
                """UPDATE runs
                      SET log_offset = :offset,
                          high = (SELECT high FROM run_events WHERE id = :offset)
                    WHERE id = :number""",
                number=number,
                offset=offset,
            )
        return self._known(id_)

    def copy(self, source: Run, from_sequence: int) -> Run:
        """A run that has ended, with the snapshot of another one and its log."""
        id_, number = self._add(
            None,
            RunKind.REPLAY,
            source.model_copy(update={"from_sequence": from_sequence}),
            status=source.status.value,
            agent=source.agent,
            workflow=source.workflow,
            refs=tag_array(source.refs),
            ended_at=None if source.is_open else micros(self._now),
        )
        uids = [self._uids.make(self._now) for _ in range(self.count_events(source))]
        self._execute(
            f"""INSERT INTO run_events (uid, run, sequence, type, payload, node, at, copied, high)
                SELECT given.value, :run, v.sequence, v.type, v.payload, v.node, v.at,
                       coalesce(v.copied, v.id), v.high
                  FROM {self._sql.texts("given")}
                 {self._sql.leads} run_events v ON v.run = :source AND v.sequence = given.key
              ORDER BY v.sequence""",
            texts=json.dumps(uids),
            run=number,
            source=source.number,
        )
        return self._known(id_)

    def tell(
        self, run: Run, type_: RunEventType, payload: JsonObject, node: str | None = None
    ) -> None:
        """Add an event to the log of a run."""
        last = self._number("SELECT max(sequence) FROM run_events WHERE run = :run", run=run.number)
        self._tell(run.number, last + 1, type_, payload, node)

    def end(self, run: Run, status: RunStatus) -> Run:
        """End a run; the last event of its log says how."""
        self.tell(run, ENDS[status], {})
        self._execute(
            "UPDATE runs SET status = :status, ended_at = :now WHERE id = :number",
            number=run.number,
            status=status.value,
            now=micros(self._now),
        )
        return self._known(run.id)

    def record(self, type_: RunEventType, events: Sequence[Recorded]) -> None:
        """Make a run of the kind `pass` for each event, of which there is one at least.

        Its log is complete: the run has started, the event, the run has completed. However many
        there are, the others take two statements, which copy the first.
        """
        payload, refs = events[0]
        first = self.open(refs=refs, kind=RunKind.PASS)
        self.tell(first, type_, payload)
        first = self.end(first, RunStatus.COMPLETED)
        if not (others := events[1:]):
            return
        started, _, ended = log = self.log(first, -1, 3)
        value, ids = partial(self._sql.element, "given.value"), [self._new_id() for _ in others]
        numbers = dict(
            self._execute(
                f"""INSERT INTO runs (name, kind, status, refs, from_sequence, log_offset, high, at,
                                      secrets, wrote, started_at, heard_at, ended_at)
                    SELECT {value(0)}, r.kind, r.status, {value(1)}, r.from_sequence, r.log_offset,
                           r.high, r.at, r.secrets, r.wrote, r.started_at, r.heard_at, r.ended_at
                      FROM {self._sql.texts("given")}
                     {self._sql.leads} runs r ON r.id = :like
                  ORDER BY given.key
                 RETURNING name, id""",
                texts=_rows(zip(ids, (tag_array(refs) for _, refs in others), strict=True)),
                like=first.number,
            )
        )
        self._execute(
            f"""INSERT INTO run_events (uid, run, sequence, type, payload, at, high)
                SELECT {value(0)}, CAST({value(1)} AS BIGINT), CAST({value(2)} AS BIGINT),
                       {value(3)}, {value(4)}, :now, :high
                  FROM {self._sql.texts("given")}
              ORDER BY given.key""",
            texts=_rows(
                (self._uids.make(self._now), numbers[id_], it.sequence, it.type, payload_text(each))
                for id_, (payload, _) in zip(ids, others, strict=True)
                for it, each in zip(log, (started.payload, payload, ended.payload), strict=True)
            ),
            high=first.snapshot.high,
            now=micros(self._now),
        )

    def hear(self, run: Run, ref: MemoryRef | None = None) -> None:
        """Note that something was done in a run, to a ref; the same is not noted each time."""
        wrote = run.wrote if ref is None or ref in run.wrote else (*run.wrote, ref)
        if wrote is not run.wrote or abs(self._now - run.heard_at) >= HEARD:
            self._execute(
                "UPDATE runs SET heard_at = :now, wrote = :wrote WHERE id = :number",
                number=run.number,
                wrote=tag_array(wrote),
                now=micros(self._now),
            )

    def event(self, run: Run, sequence: int) -> RunEvent | None:
        """The event of a run."""
        where = "v.run = :run AND v.sequence = :sequence"
        found = self.some(where, run=run.number, sequence=sequence)
        return found[0] if found else None

    def last(self, run: Run) -> RunEvent | None:
        """The last event of a run so far; None if its events are gone."""
        found = self.some("v.run = :run ORDER BY v.sequence DESC LIMIT 1", run=run.number)
        return found[0] if found else None

    def count_events(self, run: Run) -> int:
        """How many events of it are there."""
        return self._number("SELECT count(*) FROM run_events WHERE run = :run", run=run.number)

    def log(self, run: Run, after: int, limit: int) -> list[RunEvent]:
        """The events of a run after a sequence, in order."""
        return self.some(
            "v.run = :run AND v.sequence > :after ORDER BY v.sequence LIMIT :limit",
            run=run.number,
            after=after,
            limit=limit,
        )

    def some(self, which: str, **values: object) -> list[RunEvent]:
        """Events `v` of runs `r`."""
        rows = self._execute(
            f"SELECT {_EVENT} FROM run_events v JOIN runs r ON r.id = v.run WHERE {which}", **values
        )
        return list(map(_event_of, rows))

    def newest(self) -> Offset:
        """The offset of the newest event; 0 if there is none."""
        return Offset(self._number("SELECT coalesce(max(id), 0) FROM run_events"))

    def silent(self, until: datetime, most: int) -> list[RunId]:
        """Open runs in which nothing was done since then."""
        rows = self._execute(
            f"""SELECT {RUN}
                  FROM runs
                 WHERE ended_at IS NULL AND heard_at <= :until
              ORDER BY high, log_offset, id
                 LIMIT :most""",
            until=micros(until),
            most=most,
        )
        return [run.id for run in self._intact(rows, run_of)]

    def past(self, until: datetime, most: int, *, with_events: bool) -> list[int]:
        """Runs that had ended by then, of which there are events still; or all of them."""
        told = "AND EXISTS (SELECT 1 FROM run_events WHERE run = runs.id)" if with_events else ""
        return self._scalars(
            f"SELECT id FROM runs WHERE ended_at <= :until {told} LIMIT :most",
            until=micros(until),
            most=most,
        )

    def forget_events(self, runs: Sequence[int], most: int) -> int:
        """Remove events of runs, at most so many; how many were removed."""
        return self._execute(
            f"""DELETE FROM run_events
                 WHERE id IN (SELECT v.id
                                FROM {self._sql.ids("given")}
                                JOIN run_events v ON v.run = given.value
                            ORDER BY v.run, v.sequence DESC
                               LIMIT :most)""",
            ids=json.dumps(list(runs)),
            most=most,
        ).rowcount

    def forget(self, runs: Sequence[int]) -> int:
        """Remove runs, with what events they have left; how many were removed."""
        given, ids = f"(SELECT value FROM {self._sql.ids('given')})", json.dumps(list(runs))
        self._execute(f"DELETE FROM run_events WHERE run IN {given}", ids=ids)
        gone = self._execute(f"DELETE FROM runs WHERE id IN {given}", ids=ids).rowcount
        self._execute(  # what no run that is left can have seen
            """DELETE FROM ref_losses
                WHERE deleted_after < (SELECT min(log_offset) FROM runs)
                      OR NOT EXISTS (SELECT 1 FROM runs)"""
        )
        self._execute(
            """DELETE FROM ref_supersessions
                WHERE ended_after < (SELECT min(log_offset) FROM runs)
                      OR (ended_after IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs))"""
        )
        return gone

    def _known(self, id_: RunId) -> Run:
        run = self.get(id_)
        assert run is not None  # this transaction has just written it
        return run

    def _new_id(self) -> RunId:
        return RunId(f"run_{self._uids.make(self._now).replace('-', '')}")

    def _add(
        self, id_: RunId | None, kind: RunKind, of: Run | None, **row: object
    ) -> tuple[RunId, int]:
        now, id_ = micros(self._now), id_ or self._new_id()
        number = self._inserted(
            "runs",
            name=id_,
            kind=kind.value,
            source=of and of.id,
            from_sequence=of.from_sequence if of else 0,
            log_offset=of.snapshot.offset if of else 0,
            high=of.snapshot.high if of else 0,
            at=micros(of.snapshot.at) if of else now,
            secrets="{}",
            wrote="[]",
            started_at=now,
            heard_at=now,
            **row,
        )
        return id_, number

    def _tell(
        self,
        number: int,
        sequence: int,
        type_: RunEventType,
        payload: JsonObject,
        node: str | None = None,
    ) -> int:
        return self._inserted(
            "run_events",
            uid=self._uids.make(self._now),
            run=number,
            sequence=sequence,
            type=type_.value,
            payload=payload_text(payload),
            node=node,
            at=micros(self._now),
            high=self._number("SELECT coalesce(max(id), 0) FROM memories"),
        )


def run_of(row: Any) -> Run:
    """The run in a row of RUN."""
    (number, id_, kind, status, agent, workflow, refs, source, sequence, offset, high, at, secrets,
     wrote, started_at, heard_at, ended_at) = row  # fmt: skip
    strict = StrictRow("runs", number)
    return Run(
        number=number,
        id=RunId(id_),
        kind=strict.member("kind", RunKind, kind),
        status=strict.member("status", RunStatus, status),
        agent=agent,
        workflow=workflow,
        refs=strict.texts("refs", refs),
        source=None if source is None else RunId(source),
        from_sequence=count(sequence),
        snapshot=Snapshot(offset=Offset(offset), high=MemoryId(high), at=instant(at)),
        secrets=LOST if (counts := counts_of(secrets)) is None else counts,
        wrote=strict.texts("wrote", wrote),
        started_at=instant(started_at),
        heard_at=instant(heard_at),
        ended_at=optional_instant(ended_at),
    )


def payload_text(payload: JsonObject) -> str:
    """What an event tells, as its row has it."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def _event_of(row: Any) -> RunEvent:
    offset, uid, run, sequence, type_, payload, node, at, of, high, workflow, kind = row
    then, type_ = instant(at), member(RunEventType, type_, RunEventType.WRITTEN)
    told = stored_object(payload) or {}
    if type_ is RunEventType.STARTED and "workflowId" not in told:
        # Of an older version. What a replay is a copy of may be gone: most runs are of hosts.
        known = member(RunKind, kind, RunKind.HOST)
        named = RunKind.HOST if known is RunKind.REPLAY else known
        told = {"workflowId": workflow or named.value, **told}
    if type_ is RunEventType.FAILED:
        told = {"error": dict(RUN_FAILED), **told}
    return RunEvent(
        offset=Offset(offset),
        id=f"evt_{uid.replace('-', '')}",
        run=RunId(run),
        sequence=count(sequence),
        type=type_,
        payload=told,
        node=node,
        at=then,
        snapshot=Snapshot(offset=Offset(of), high=MemoryId(high), at=then),
    )


def _rows(rows: Iterable[Sequence[object]]) -> str:
    """A JSON array of texts, each a JSON array itself: the rows that a statement inserts."""
    return json.dumps([json.dumps(row) for row in rows])
