"""Rows of entries, of runs and of their events, as the domain has them."""

import json
from typing import Any

from ...memory.model.memory import Memory, MemoryId
from ...memory.model.space import MemoryRef
from ...memory.sql.rows import (
    StrictRow,
    count,
    counts_of,
    end_of,
    instant,
    member,
    optional_instant,
    tag_tuple,
)
from ...recall.text.json_words import stored_object
from ..model.entries import RefEntry, RefEntryId, ref_entry_id, stable_id
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
ENTRY = "e.name, m.uid, m.id, m.content, m.tags, m.created_at, l.expires_at"

PROVENANCE = """e.name, m.uid, m.id, e.run, e.node, e.agent, e.method, m.duplicates,
                m.last_seen_at"""


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


def named(id_: RefEntryId, *, has_no_name: bool = True) -> str:
    """The entries of a ref that have had an id: a name is free again after a deletion.

    A stable id is the id of those alone that have no name.
    """
    if stable_id(id_) is None:
        return """refs f
                  JOIN ref_entries e ON f.ref = :ref AND e.space_id = f.space_id AND e.name = :name
                  JOIN memories m ON m.id = e.memory_id"""
    nameless = "AND e.name IS NULL" if has_no_name else ""
    return f"""memories m
               JOIN ref_entries e ON m.uid = :uid AND e.memory_id = m.id {nameless}
               JOIN refs f ON f.space_id = e.space_id AND f.ref = :ref"""


def names(ref: MemoryRef, id_: RefEntryId) -> dict[str, object]:
    """The values that `named` names."""
    return {"ref": ref, "name": id_, "uid": stable_id(id_)}


def entry_of(row: Any) -> RefEntry:
    """The entry in a row of ENTRY."""
    name, uid, id_, content, tags, created_at, expires_at = row
    return RefEntry(
        id=ref_entry_id(uid, name),
        memory=MemoryId(id_),
        uid=uid,
        content=content,
        tags=tag_tuple(tags),
        created_at=instant(created_at),
        expires_at=end_of(id_, expires_at),
    )


def measures(memory: Memory) -> dict[str, int]:
    content = memory.text.content
    return {"size": len(content.encode()), "length": len(content)}


def payload_text(payload: JsonObject) -> str:
    """What an event tells, as its row has it."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
