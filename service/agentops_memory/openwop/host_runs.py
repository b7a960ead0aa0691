"""Runs of hosts: open, register secrets, end, read events, replay and branch."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ..engine.engine import Transaction
from ..errors import BadFields, Conflict, DamagedRow, Invalid, OverQuota, TooMany
from ..http.bodies import Param, fault_of, whole_number
from ..http.protocol import Operation
from ..memory.access import Caller
from ..memory.idempotency import once
from ..memory.redactor import require_margin
from ..memory.saves import Written
from ..memory.space import MemoryRef
from ..memory.table import Sql
from ..record import CamelRecord, Milliseconds, shape
from ..secrets.redaction import SHORTEST_VALUE
from ..telemetry import Cut, annotate
from . import api
from .api import BASE, Offset, Page, Serving, op, reading
from .runs import Run, RunEnded, RunEvent, RunKind, RunStatus, RunTable, fork_run, require_open

MAX_REFS = 32  # most refs that a run declares
ABOVE_SEQUENCES = 2**53  # more than any sequence number


class OpenedRun(CamelRecord):
    """A run that was opened."""

    run_id: str
    status: Literal["running"]
    started_at: Milliseconds


class ForkedRun(CamelRecord):
    """A replay or branch of another run."""

    run_id: str
    source_run_id: str
    from_seq: int
    mode: Literal["replay", "branch"]
    status: RunStatus


class RegisteredSecret(CamelRecord):
    """Whether a value is redacted from now on; a short value is not."""

    secret_id: str
    registered: bool


RunEvents = shape(
    "RunEvents", "Events of a run, and whether they include its last event.", CamelRecord,
    events=[RunEvent], is_complete=bool,
)  # fmt: skip
AllRunEvents = shape(
    "AllRunEvents", "Events of all runs; `next` is the `after` of the next page.",
    events=[RunEvent], next=str,
)  # fmt: skip


class RunBody(api.CamelBody):
    """A new run."""

    run_id: api.RunName | None = None
    agent_id: api.AgentName | None = None
    workflow_id: api.PlainName | None = None
    memory_refs: list[api.MemoryRefText] = Field(default=[], max_length=MAX_REFS)


class RunSecretBody(api.CamelBody):
    """A secret value of a run."""

    secret_id: Annotated[str, Field(min_length=1, max_length=api.LONGEST_ID), api.Exact]
    value: Annotated[str, Field(repr=False), api.Exact]


class RunEndBody(api.CamelBody):
    """The final status of a run."""

    status: Literal["completed", "failed", "cancelled"]


class RunForkBody(api.CamelBody):
    """The kind of fork, and the event of the source run at which it begins."""

    mode: Literal["replay", "branch"]
    from_seq: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _check_sequence(self) -> "RunForkBody":
        if self.mode == "branch" and self.from_seq is None:
            raise fault_of("fromSeq", "is required")
        return self


class RunConflict(Conflict):
    code = "run_conflict"  # the id belongs to a different run, or to a run that has ended


def operations(serving: Serving) -> Sequence[Operation]:
    after = partial(Param, name="after", kind="integer", read=whole_number())
    every, one = f"{BASE}/runs", f"{BASE}/runs/{{runId}}"
    it = partial(op, serving)
    return (
        it("POST", every, "open_run",
           "Open a run, which sees memory as it is now; repeating the request returns the first "
           "run.",
           open_run, body=RunBody, body_required=False, answer=OpenedRun, status=200,
           status_if_new=201, is_limited=False, refusals=(409,)),
        it("GET", one, "get_run", "One run.",
           reading(lambda tx, run_id: tx[RunTable].known(run_id)), answer=Run),
        it("POST", f"{one}/secrets", "register_secret",
           "Register a secret value; it is redacted in everything written until the run ends.",
           register, body=RunSecretBody, answer=RegisteredSecret, takes_key=False,
           refusals=(408, 409, 413, 507)),
        it("POST", f"{one}/end", "end_run", "End a run.", end, body=RunEndBody, answer=Run,
           is_limited=False, refusals=(409,)),
        it("GET", f"{one}/events", "run_events", "The events of a run, in order.", log,
           answer=RunEvents,
           query=(after(help="Only events after this sequence number."), api.limit())),
        it("POST", f"{one}/fork", "fork_run", "Replay an ended run, or branch off from it.", fork,
           body=RunForkBody, answer=ForkedRun, status=201, refusals=(409, 422)),
        it("GET", f"{BASE}/events", "events", "The events of all runs, in commit order.", events,
           answer=AllRunEvents, query=(after(help="The `next` of the previous page."), api.limit(),
                                       Param(name="type", help="Only this type."))),
    )  # fmt: skip


async def open_run(serving: Serving, caller: Caller, body: RunBody) -> Written[OpenedRun]:
    """Open a run; repeating the request returns the first run.

    Raises RunConflict if the id belongs to a different run, or to a run that has ended.
    """
    screen = serving.screen(caller)
    api.require_plain(screen, runId=body.run_id, agentId=body.agent_id, workflowId=body.workflow_id)
    for number, ref in enumerate(body.memory_refs):
        api.require_ref(MemoryRef(ref), caller.tenant, screen, f"memoryRefs[{number}]")
    work = once(open_or_known, status=lambda it: 201 if it.is_new else 200)
    done = await serving.engine.write(caller, work, body)
    run = done.value
    annotate({"openwop.run_id": Cut(run.id, api.LONGEST_IN_SPAN)})
    # The run as it was opened, even if it has changed since.
    opened = OpenedRun(run_id=run.id, status="running", started_at=run.started_at)
    return Written(value=opened, is_new=done.is_new)


async def register(
    serving: Serving, caller: Caller, run_id: str, body: RunSecretBody
) -> RegisteredSecret:
    """Redact a value in all that the tenant writes until the run ends.

    A value so short that words may contain it is not registered. Texts stored after the answer
    do not have the value. Raises RunEnded, BadFields, OverQuota or TooMany.
    """
    secret, value, tenant = body.secret_id, body.value, caller.tenant
    # Otherwise the run may be idle, and its values dropped as soon as they are registered.
    await serving.engine.write(caller, lambda tx: tx[RunTable].touch(require_open(tx, run_id)))
    redaction = serving.redaction
    if redaction.rules(caller).has_value_in(secret):  # the id is returned and stored
        raise BadFields([("secretId", "holds a registered value")])
    if len(value.strip()) < SHORTEST_VALUE:
        return RegisteredSecret(secret_id=secret, registered=False)
    # Answers contain both names, and the id replaces the value in texts.
    names = {"secretId": secret, "runId": run_id}
    if faults := [(name, "holds the value") for name, it in names.items() if value in it]:
        raise BadFields(faults)
    try:
        try:
            redaction.register(tenant, run_id, secret, value)
        except (OverQuota, TooMany):  # values of runs that another process ended may use the quota
            await drop_idle(serving, caller, timedelta())
            redaction.register(tenant, run_id, secret, value)
    except Invalid as refusal:
        raise BadFields([("value", "cannot be registered")]) from refusal
    try:
        counted = partial(redaction.count, tenant, run_id)
        await serving.engine.write(caller, note_secrets, run_id, counted)
    except RunEnded:
        redaction.forget(tenant, run_id)
        raise
    return RegisteredSecret(secret_id=secret, registered=True)


async def end(serving: Serving, caller: Caller, run_id: str, body: RunEndBody) -> Run:
    """End a run and forget its values; raises RunEnded if it ended with another status."""
    ended = await serving.engine.write(caller, once(end_run), run_id, RunStatus(body.status))
    serving.redaction.forget(caller.tenant, run_id)
    return ended


async def log(serving: Serving, caller: Caller, run_id: str, after: int | None, limit: int) -> Page:
    """List the events of a run after a sequence number, or from its first event."""
    since = -1 if after is None else after
    run, rows = await serving.engine.read(caller, read_log, run_id, since, limit + 1)
    has_ended, events = not run.is_open and len(rows) <= limit, rows[:limit]
    return Page("events", events, more=lambda n: {"isComplete": has_ended and n == len(events)})


async def events(
    serving: Serving, caller: Caller, after: int | None, limit: int, **of: str | None
) -> Page:
    """List the events of all runs in commit order, with the cursor of the next page."""
    events, last = await serving.engine.read(caller, read_events, Offset(after or 0), limit, **of)

    def more(sent: int) -> Mapping[str, object]:
        return {"next": str(last if sent == len(events) else events[sent - 1].offset)}

    return Page("events", events, more=more)


async def fork(serving: Serving, caller: Caller, run_id: str, body: RunForkBody) -> ForkedRun:
    """Replay a run, or open a run that begins at an event of another run.

    Raises InvalidSequence, or SnapshotLost if the memory that the run saw is gone.
    """
    kind, from_sequence = RunKind(body.mode), min(body.from_seq or 0, ABOVE_SEQUENCES)
    run = await serving.engine.write(caller, once(fork_run), run_id, kind, from_sequence)
    return ForkedRun(
        run_id=run.id, source_run_id=run_id, from_seq=run.from_sequence,
        mode=body.mode, status=run.status,
    )  # fmt: skip


async def drop_idle(serving: Serving, caller: Caller, idle: timedelta) -> None:
    """Forget the values of runs that have ended or been idle for `idle` (0: ended only)."""
    if runs := serving.redaction.runs(caller.tenant):
        for run in await serving.engine.read(caller, ended_or_idle, runs, idle):
            serving.redaction.forget(caller.tenant, run)


def open_or_known(tx: Transaction, body: RunBody) -> Written[Run]:
    id_, refs = body.run_id, tuple(body.memory_refs)
    known = tx[RunTable].get(id_) if id_ is not None else None
    if known is None:
        require_margin(tx)
        columns = {"name": id_, "agent": body.agent_id, "workflow": body.workflow_id}
        return Written(value=tx[RunTable].open(RunKind.HOST, refs, **columns), is_new=True)
    same = (known.agent, known.workflow, known.refs) == (body.agent_id, body.workflow_id, refs)
    if not (known.is_open and same and known.kind is RunKind.HOST):
        raise RunConflict("The id belongs to a different run, or to a run that has ended.")
    return Written(value=known)


def note_secrets(tx: Transaction, run: str, counted: Callable[[], Mapping[str, int]]) -> None:
    known = require_open(tx, run)
    require_margin(tx)
    counts = Counter(known.secrets) | Counter(counted())  # keeps the larger count of each id
    tx[Sql].update("runs", "id", {"id": known.number, "secrets": json.dumps(counts)})


def end_run(tx: Transaction, run: str, status: RunStatus) -> Run:
    known = tx[RunTable].known(run)
    if known.is_open:  # even over quota: its values stay redacted until it ends
        return tx[RunTable].end(known, status)
    if known.status is not status:
        raise RunEnded("The run has ended.")
    return known


def read_log(tx: Transaction, run: str, after: int, limit: int) -> tuple[Run, Sequence[RunEvent]]:
    known = tx[RunTable].known(run)
    return known, tx[RunTable].some(
        "v.run = :run AND v.sequence > :after ORDER BY v.sequence LIMIT :limit",
        run=known.number, after=after, limit=limit,
    )  # fmt: skip


def read_events(
    tx: Transaction, /, after: Offset, limit: int, **of: str | None
) -> tuple[Sequence[RunEvent], Offset]:
    of_type = "" if of.get("type") is None else "AND v.type = :type"
    events = tx[RunTable].some(
        f"v.id > :after {of_type} ORDER BY v.id", most=limit, after=after, **of
    )
    return events, events[-1].offset if len(events) == limit else max(after, tx[RunTable].newest())


def ended_or_idle(tx: Transaction, names: Sequence[str], idle: timedelta) -> Sequence[str]:
    ended = []
    for name in names:
        with suppress(DamagedRow):  # the run's state is unknown, so its values stay redacted
            run = tx[RunTable].get(name)
            if run is None or not run.is_open or (idle and run.heard_at <= tx.now - idle):
                ended.append(name)
    return ended
