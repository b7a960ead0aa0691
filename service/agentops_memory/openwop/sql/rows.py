"""Rows of runs and of their events, as the domain has them."""

import json
from typing import Any

from ...memory.model.memory import MemoryId
from ...memory.sql.rows import (
    StrictRow,
    count,
    counts_of,
    instant,
    member,
    optional_instant,
)
from ...recall.text.json_words import stored_object
from ..entries import ENTRY as ENTRY  # noqa: PLC0414
from ..entries import entry_of as entry_of  # noqa: PLC0414
from ..model.runs import (
    RUN_FAILED,
    JsonObject,
    Offset,
    Run,
    RunEvent,
    RunEventType,
    RunId,
    RunKind,
    RunStatus,
    Snapshot,
)

RUN = """id, name, kind, status, agent, workflow, refs, source, from_sequence, log_offset, high,
         at, secrets, wrote, started_at, heard_at, ended_at"""
EVENT = """v.id, v.uid, r.name, v.sequence, v.type, v.payload, v.node, v.at,
           coalesce(v.copied, v.id), v.high, r.workflow, r.kind"""


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


def event_of(row: Any) -> RunEvent:
    """The event in a row of EVENT."""
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
        uid=uid,
        run=RunId(run),
        sequence=count(sequence),
        type=type_,
        payload=told,
        node=node,
        at=then,
        snapshot=Snapshot(offset=Offset(of), high=MemoryId(high), at=then),
    )


LOST = {"": 1}
"""The secrets of a run of which it is not known how many there are: no put in it is safe."""


def payload_text(payload: JsonObject) -> str:
    """What an event tells, as its row has it."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
