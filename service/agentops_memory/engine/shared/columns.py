"""The tables, and what each of their columns holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a column holds."""

    TEXT = "text that is no UTF-8"
    INSTANT = "an instant out of range"
    COUNT = "a number out of range"
    TAGS = "no list of texts"
    PAIRS = "no pairs of texts"
    IDS = "no ids"
    DEED = "no deed"
    ERASURE = "no kind of erasure"
    SPACE = "no kind of space"
    TIER = "no tier of agents' memory"
    STATUS = "no status of a task"
    PERMISSION = "no permission"
    FLAG = "neither yes nor no"
    ACCESS = "no access"
    BINDING = "no binding"
    ATTEMPT = "no attempt at a task"
    SENSITIVITY = "no sensitivity"
    CAPACITY = "no capacity"
    GUARDRAILS = "no guardrails"
    POLICY = "no memory policy"
    COUNTS = "no counts"
    RUN = "no kind of a run"
    RUN_STATUS = "no status of a run"
    COMMITMENT = "no state of a commitment"
    PROPOSAL = "no state of a proposal"
    ARTIFACT = "no kind of an artifact"
    AREA = "no area of the index"
    PARTITION = "no partition of the index"
    KEY = "whatever names a row"  # as integers or digests do: `references` tells what is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of rows that nothing else could be made of."""

    key: str  # what names a row, which is nothing that a user has named
    columns: Mapping[str, Kind]


_TEXTS = {"type": Kind.TEXT, "title": Kind.TEXT, "content": Kind.TEXT, "tags": Kind.TAGS}

TABLES: Mapping[str, Table] = {
    "spaces": Table(key="id", columns={
        "kind": Kind.SPACE, "project": Kind.TEXT, "scope": Kind.TEXT, "id": Kind.KEY,
        "area": Kind.AREA, "partition": Kind.PARTITION,
    }),
    "sessions": Table(key="number", columns={
        "number": Kind.KEY, "id": Kind.TEXT, "project": Kind.TEXT, "started_at": Kind.INSTANT,
        "ended_at": Kind.INSTANT, "summary": Kind.TEXT, "message_count": Kind.COUNT,
    }),
    "memories": Table(key="id", columns={
        **_TEXTS, "id": Kind.KEY, "uid": Kind.TEXT, "space_id": Kind.KEY,
        "session_id": Kind.TEXT, "key": Kind.TEXT, "content_hash": Kind.TEXT,
        "fingerprint": Kind.KEY, "revision": Kind.COUNT, "duplicates": Kind.COUNT,
        "last_seen_at": Kind.INSTANT, "promoted_to": Kind.TEXT,
        "created_at": Kind.INSTANT, "updated_at": Kind.INSTANT,
        "deleted_at": Kind.INSTANT, "extras": Kind.PAIRS,
    }),
    "revisions": Table(key="id", columns={
        **_TEXTS, "id": Kind.KEY, "memory_id": Kind.KEY, "number": Kind.COUNT,
        "deed": Kind.DEED, "at": Kind.INSTANT,
    }),
    "lifecycles": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "space_id": Kind.KEY, "expires_at": Kind.INSTANT,
        "is_swept": Kind.FLAG, "held_key": Kind.TEXT, "pinned_at": Kind.INSTANT,
        "review_at": Kind.INSTANT, "confirmed_at": Kind.INSTANT,
    }),
    "supersessions": Table(key="newer_id", columns={
        "newer_id": Kind.KEY, "older_id": Kind.KEY, "at": Kind.INSTANT,
    }),
    "derivations": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "source_id": Kind.KEY,
    }),
    "archives": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "space_id": Kind.KEY, "sources": Kind.COUNT,
        "first_at": Kind.INSTANT, "last_at": Kind.INSTANT,
    }),
    "passes": Table(key="run", columns={
        "run": Kind.KEY, "space_id": Kind.KEY, "written": Kind.TAGS, "replaced": Kind.COUNT,
        "undone_at": Kind.INSTANT,
    }),
    "lookalikes": Table(key="later_id", columns={
        "later_id": Kind.KEY, "earlier_id": Kind.KEY, "score": Kind.KEY, "at": Kind.INSTANT,
    }),
    "transcripts": Table(key="session", columns={
        "session": Kind.KEY, "messages": Kind.COUNT, "user": Kind.COUNT,
        "assistant": Kind.COUNT, "first": Kind.TEXT, "last": Kind.TEXT,
        "heard_at": Kind.INSTANT,
    }),
    "erasures": Table(key="id", columns={
        "id": Kind.TEXT, "kind": Kind.ERASURE, "project": Kind.TEXT,
        "observations": Kind.COUNT, "revisions": Kind.COUNT, "sessions": Kind.COUNT,
        "erased_at": Kind.INSTANT, "bytes_gone_at": Kind.INSTANT, "goes_on": Kind.FLAG,
    }),
    "erased": Table(key="memory_id", columns={"memory_id": Kind.KEY, "erasure_id": Kind.TEXT}),
    "stores": Table(key="space_id", columns={
        "space_id": Kind.KEY, "uid": Kind.TEXT, "name": Kind.TEXT, "description": Kind.TEXT,
        "metadata": Kind.PAIRS, "entries": Kind.COUNT, "size": Kind.COUNT,
        "created_at": Kind.INSTANT, "updated_at": Kind.INSTANT, "archived_at": Kind.INSTANT,
        "erasure_id": Kind.TEXT,
    }),
    "versions": Table(key="uid", columns={
        "uid": Kind.TEXT, "store_id": Kind.KEY, "memory_id": Kind.KEY, "number": Kind.COUNT,
        "path": Kind.TEXT, "size": Kind.COUNT, "sha256": Kind.TEXT, "author": Kind.TEXT,
        "redacted_at": Kind.INSTANT, "redacted_by": Kind.TEXT,
    }),
    "done": Table(key="key", columns={
        "key": Kind.KEY, "request": Kind.KEY, "status": Kind.COUNT, "ids": Kind.IDS,
        "at": Kind.INSTANT,
    }),
    "imports": Table(key="id", columns={
        "id": Kind.KEY, "projects": Kind.TAGS, "touched_at": Kind.INSTANT,
        "accepted_at": Kind.INSTANT, "finished_at": Kind.INSTANT, "staged": Kind.COUNT,
        "size": Kind.COUNT, "applied": Kind.COUNT, "sessions": Kind.COUNT,
        "observations": Kind.COUNT, "refused": Kind.COUNT,
    }),
    "seals": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "key": Kind.TEXT, "nonce": Kind.KEY, "sealed": Kind.KEY,
    }),
    "tasks": Table(key="rowid", columns={
        "id": Kind.TEXT, "intent": Kind.TEXT, "parent": Kind.TEXT, "agent": Kind.TEXT,
        "status": Kind.STATUS, "inherits": Kind.FLAG, "policy": Kind.POLICY,
        "details": Kind.TEXT, "version": Kind.COUNT, "attempt": Kind.COUNT,
        "created_at": Kind.INSTANT, "started_at": Kind.INSTANT, "completed_at": Kind.INSTANT,
    }),
    "agents": Table(key="rowid", columns={
        "name": Kind.TEXT, "episodic_capacity": Kind.CAPACITY,
    }),
    "agent_spaces": Table(key="space_id", columns={
        "space_id": Kind.KEY, "tier": Kind.TIER, "agent": Kind.TEXT, "namespace": Kind.TEXT,
    }),
    "agent_memories": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "tier": Kind.TIER, "agent": Kind.TEXT, "created_by": Kind.TEXT,
        "task": Kind.TEXT, "intent": Kind.TEXT, "is_pinned": Kind.FLAG, "priority": Kind.COUNT,
        "sensitivity": Kind.SENSITIVITY, "curated_by": Kind.TEXT, "size": Kind.COUNT,
        "ttl": Kind.TEXT, "is_own_expiry": Kind.FLAG, "accessed_at": Kind.INSTANT,
        "binding": Kind.BINDING, "attempt": Kind.ATTEMPT,
    }),
    "namespaces": Table(key="rowid", columns={
        "name": Kind.TEXT, "default_access": Kind.ACCESS, "version": Kind.COUNT,
        "created_at": Kind.INSTANT, "updated_at": Kind.INSTANT,
    }),
    "namespace_access": Table(key="rowid", columns={
        "namespace": Kind.TEXT, "agent": Kind.TEXT, "access": Kind.ACCESS,
    }),
    "events": Table(key="id", columns={
        "id": Kind.KEY, "uid": Kind.TEXT, "type": Kind.TEXT, "payload": Kind.TEXT,
        "at": Kind.INSTANT,
    }),
    "agent_events": Table(key="event_id", columns={
        "event_id": Kind.KEY, "agent": Kind.TEXT, "actor": Kind.TEXT, "task": Kind.TEXT,
        "intent": Kind.TEXT, "binding": Kind.BINDING,
    }),
    "intents": Table(key="rowid", columns={
        "id": Kind.TEXT, "created_by": Kind.TEXT, "details": Kind.TEXT,
        "created_at": Kind.INSTANT,
    }),
    "coordinators": Table(key="rowid", columns={
        "id": Kind.TEXT, "intent": Kind.TEXT, "agent": Kind.TEXT, "is_ended": Kind.FLAG,
        "details": Kind.GUARDRAILS, "version": Kind.COUNT, "granted_at": Kind.INSTANT,
        "expires_at": Kind.INSTANT,
    }),
    "grants": Table(key="rowid", columns={
        "id": Kind.TEXT, "intent": Kind.TEXT, "agent": Kind.TEXT,
        "permission": Kind.PERMISSION, "reason": Kind.TEXT, "granted_by": Kind.TEXT,
        "granted_at": Kind.INSTANT, "expires_at": Kind.INSTANT,
    }),
    "pending_archives": Table(key="event_id", columns={
        "event_id": Kind.KEY, "task": Kind.TEXT, "attempt": Kind.COUNT, "agent": Kind.TEXT,
        "first": Kind.KEY, "last": Kind.KEY, "size": Kind.COUNT,
    }),
    "refs": Table(key="space_id", columns={
        "space_id": Kind.KEY, "ref": Kind.TEXT, "entries": Kind.COUNT, "size": Kind.COUNT,
        "newest": Kind.KEY, "consolidated": Kind.KEY,
    }),
    "ref_entries": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "space_id": Kind.KEY, "name": Kind.TEXT,
        "created_at": Kind.INSTANT, "size": Kind.COUNT, "length": Kind.COUNT,
        "ends_at": Kind.INSTANT, "deleted_after": Kind.COUNT, "run": Kind.TEXT,
        "node": Kind.TEXT, "agent": Kind.TEXT, "method": Kind.TEXT, "renews": Kind.KEY,
    }),
    "ref_supersessions": Table(key="newer_id", columns={
        "newer_id": Kind.KEY, "older_id": Kind.KEY, "made_after": Kind.KEY,
        "ended_after": Kind.KEY, "pass": Kind.KEY, "seen": Kind.COUNT,
    }),
    "ref_losses": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "space_id": Kind.KEY, "ends_at": Kind.INSTANT,
        "deleted_after": Kind.COUNT,
    }),
    "ref_tags": Table(key="memory_id", columns={
        "memory_id": Kind.KEY, "space_id": Kind.KEY, "tag": Kind.TEXT,
        "created_at": Kind.INSTANT,
    }),
    "runs": Table(key="id", columns={
        "id": Kind.KEY, "name": Kind.TEXT, "kind": Kind.RUN, "status": Kind.RUN_STATUS,
        "agent": Kind.TEXT, "workflow": Kind.TEXT, "refs": Kind.TAGS, "source": Kind.TEXT,
        "from_sequence": Kind.COUNT, "log_offset": Kind.KEY, "high": Kind.KEY,
        "at": Kind.INSTANT, "secrets": Kind.COUNTS, "wrote": Kind.TAGS, "started_at": Kind.INSTANT,
        "heard_at": Kind.INSTANT, "ended_at": Kind.INSTANT,
    }),
    "commitments": Table(key="id", columns={
        "id": Kind.KEY, "uid": Kind.TEXT, "memory_id": Kind.KEY, "space_id": Kind.KEY,
        "due_at": Kind.INSTANT, "tag": Kind.TEXT, "state": Kind.COMMITMENT,
        "created_at": Kind.INSTANT, "fired_at": Kind.INSTANT,
    }),
    "met_tags": Table(key="id", columns={
        "id": Kind.KEY, "space_id": Kind.KEY, "tag": Kind.TEXT, "newest": Kind.KEY,
        "source_id": Kind.KEY,
    }),
    "run_events": Table(key="id", columns={
        "id": Kind.KEY, "uid": Kind.TEXT, "run": Kind.KEY, "sequence": Kind.COUNT,
        "type": Kind.TEXT, "payload": Kind.TEXT, "node": Kind.TEXT, "at": Kind.INSTANT,
        "copied": Kind.KEY, "high": Kind.KEY,
    }),
    "proposals": Table(key="id", columns={
        "id": Kind.KEY, "name": Kind.TEXT, "kind": Kind.ARTIFACT, "state": Kind.PROPOSAL,
        "title": Kind.TEXT, "rationale": Kind.TEXT, "artifact": Kind.TEXT, "checksum": Kind.KEY,
        "digest": Kind.KEY, "place": Kind.KEY, "size": Kind.COUNT, "source_runs": Kind.TAGS,
        "synthesizer": Kind.TEXT, "principal": Kind.TEXT, "revision": Kind.COUNT,
        "created_at": Kind.INSTANT, "updated_at": Kind.INSTANT,
    }),
    "import_rows": Table(key="number", columns={
        "number": Kind.KEY, "project": Kind.TEXT, "row": Kind.TEXT,
    }),
}  # fmt: skip
"""Every table but those that are made of these: of the index, and what goes with it."""

RESTRICTING = frozenset({
    ("spaces", "area"), ("spaces", "partition"),
    ("lifecycles", "expires_at"),
    ("imports", "projects"),
    ("done", "at"),
    ("tasks", "status"), ("tasks", "inherits"), ("tasks", "policy"), ("tasks", "attempt"),
    ("agents", "episodic_capacity"),
    ("agent_spaces", "tier"),
    ("agent_memories", "tier"), ("agent_memories", "sensitivity"), ("agent_memories", "binding"),
    ("agent_memories", "attempt"),
    ("agent_events", "binding"),
    ("namespaces", "default_access"), ("namespace_access", "access"),
    ("coordinators", "is_ended"), ("coordinators", "details"), ("coordinators", "expires_at"),
    ("grants", "permission"), ("grants", "expires_at"),
    ("ref_entries", "ends_at"), ("ref_entries", "deleted_after"),
    ("ref_losses", "ends_at"), ("ref_losses", "deleted_after"),
    ("runs", "kind"), ("runs", "status"), ("runs", "refs"), ("runs", "wrote"), ("runs", "secrets"),
    ("commitments", "due_at"), ("commitments", "state"),
    ("proposals", "kind"), ("proposals", "state"),
})  # fmt: skip
"""The columns that restrict, permit or expire something: a damaged one is never read as another
value. Both engines look for damage in these; a column that no list, search or read shows for it
is read as the strictest."""

DERIVED = frozenset({"partitions", "index_rules", "terms", "purges", "remains"})
