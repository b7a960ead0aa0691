"""The tables, and what each of their columns holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    TEXT = "text that is no UTF-8"
    INSTANT = "an instant out of range"
    COUNT = "a number out of range"
    TAGS = "no list of texts"
    PAIRS = "no pairs of texts"
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


def _table(key: str, columns: str) -> Table:
    pairs = (column.split() for column in columns.split(", "))
    return Table(key=key, columns={name: Kind[kind] for name, kind in pairs})


# Each column by its name and its kind, in the order in which damage is reported.
TABLES: Mapping[str, Table] = {
    "spaces": _table("id",
        "kind SPACE, project TEXT, scope TEXT, id KEY, area AREA, partition PARTITION"),
    "sessions": _table("number",
        "number KEY, id TEXT, project TEXT, started_at INSTANT, ended_at INSTANT, summary TEXT, "
        "message_count COUNT"),
    "memories": _table("id",
        "type TEXT, title TEXT, content TEXT, tags TAGS, id KEY, uid TEXT, space_id KEY, "
        "session_id TEXT, key TEXT, content_hash TEXT, fingerprint KEY, revision COUNT, "
        "duplicates COUNT, last_seen_at INSTANT, promoted_to TEXT, created_at INSTANT, "
        "updated_at INSTANT, deleted_at INSTANT, extras PAIRS"),
    "revisions": _table("id",
        "type TEXT, title TEXT, content TEXT, tags TAGS, id KEY, memory_id KEY, number COUNT, "
        "deed DEED, at INSTANT"),
    "lifecycles": _table("memory_id",
        "memory_id KEY, space_id KEY, expires_at INSTANT, is_swept FLAG, held_key TEXT, "
        "pinned_at INSTANT, review_at INSTANT, confirmed_at INSTANT"),
    "supersessions": _table("newer_id", "newer_id KEY, older_id KEY, at INSTANT"),
    "derivations": _table("memory_id", "memory_id KEY, source_id KEY"),
    "archives": _table("memory_id",
        "memory_id KEY, space_id KEY, sources COUNT, first_at INSTANT, last_at INSTANT"),
    "passes": _table("run",
        "run KEY, space_id KEY, written TAGS, replaced COUNT, undone_at INSTANT"),
    "lookalikes": _table("later_id", "later_id KEY, earlier_id KEY, score KEY, at INSTANT"),
    "transcripts": _table("session",
        "session KEY, messages COUNT, user COUNT, assistant COUNT, first TEXT, last TEXT, "
        "heard_at INSTANT"),
    "erasures": _table("id",
        "id TEXT, kind ERASURE, project TEXT, observations COUNT, revisions COUNT, sessions COUNT, "
        "erased_at INSTANT, bytes_gone_at INSTANT, goes_on FLAG"),
    "erased": _table("memory_id", "memory_id KEY, erasure_id TEXT"),
    "stores": _table("space_id",
        "space_id KEY, uid TEXT, name TEXT, description TEXT, metadata PAIRS, entries COUNT, "
        "size COUNT, created_at INSTANT, updated_at INSTANT, archived_at INSTANT, erasure_id TEXT"),
    "versions": _table("uid",
        "uid TEXT, store_id KEY, memory_id KEY, number COUNT, path TEXT, size COUNT, sha256 TEXT, "
        "author TEXT, redacted_at INSTANT, redacted_by TEXT"),
    "done": _table("key", "key KEY, request KEY, status COUNT, ids TEXT, at INSTANT, answer TEXT"),
    "done_memories": _table("memory_id", "memory_id KEY, key KEY"),
    "seals": _table("memory_id", "memory_id KEY, key TEXT, nonce KEY, sealed KEY"),
    "tasks": _table("rowid",
        "id TEXT, intent TEXT, parent TEXT, agent TEXT, status STATUS, inherits FLAG, "
        "policy POLICY, details TEXT, version COUNT, attempt COUNT, created_at INSTANT, "
        "started_at INSTANT, completed_at INSTANT"),
    "agents": _table("rowid", "name TEXT, episodic_capacity CAPACITY"),
    "agent_spaces": _table("space_id", "space_id KEY, tier TIER, agent TEXT, namespace TEXT"),
    "agent_memories": _table("memory_id",
        "memory_id KEY, tier TIER, agent TEXT, created_by TEXT, task TEXT, intent TEXT, "
        "is_pinned FLAG, priority COUNT, sensitivity SENSITIVITY, curated_by TEXT, size COUNT, "
        "ttl TEXT, is_own_expiry FLAG, accessed_at INSTANT, binding BINDING, attempt ATTEMPT"),
    "namespaces": _table(
        "rowid",
        "name TEXT, default_access ACCESS, version COUNT, created_at INSTANT, updated_at INSTANT",
    ),
    "namespace_access": _table("rowid", "namespace TEXT, agent TEXT, access ACCESS"),
    "events": _table("id", "id KEY, uid TEXT, type TEXT, payload TEXT, at INSTANT"),
    "agent_events": _table("event_id",
        "event_id KEY, agent TEXT, actor TEXT, task TEXT, intent TEXT, binding BINDING"),
    "intents": _table("rowid", "id TEXT, created_by TEXT, details TEXT, created_at INSTANT"),
    "coordinators": _table("rowid",
        "id TEXT, intent TEXT, agent TEXT, is_ended FLAG, details GUARDRAILS, version COUNT, "
        "granted_at INSTANT, expires_at INSTANT"),
    "grants": _table("rowid",
        "id TEXT, intent TEXT, agent TEXT, permission PERMISSION, reason TEXT, granted_by TEXT, "
        "granted_at INSTANT, expires_at INSTANT"),
    "pending_archives": _table(
        "event_id",
        "event_id KEY, task TEXT, attempt COUNT, agent TEXT, first KEY, last KEY, size COUNT",
    ),
    "refs": _table("space_id",
        "space_id KEY, ref TEXT, entries COUNT, size COUNT, newest KEY, consolidated KEY"),
    "ref_entries": _table("memory_id",
        "memory_id KEY, space_id KEY, name TEXT, created_at INSTANT, size COUNT, length COUNT, "
        "ends_at INSTANT, deleted_after COUNT, run TEXT, node TEXT, agent TEXT, method TEXT, "
        "renews KEY"),
    "ref_supersessions": _table(
        "newer_id",
        "newer_id KEY, older_id KEY, made_after KEY, ended_after KEY, pass KEY, seen COUNT",
    ),
    "ref_losses": _table("memory_id",
        "memory_id KEY, space_id KEY, ends_at INSTANT, deleted_after COUNT"),
    "ref_tags": _table("memory_id", "memory_id KEY, space_id KEY, tag TEXT, created_at INSTANT"),
    "runs": _table("id",
        "id KEY, name TEXT, kind RUN, status RUN_STATUS, agent TEXT, workflow TEXT, refs TAGS, "
        "source TEXT, from_sequence COUNT, log_offset KEY, high KEY, at INSTANT, secrets COUNTS, "
        "wrote TAGS, started_at INSTANT, heard_at INSTANT, ended_at INSTANT"),
    "commitments": _table("id",
        "id KEY, uid TEXT, memory_id KEY, space_id KEY, due_at INSTANT, tag TEXT, "
        "state COMMITMENT, created_at INSTANT, fired_at INSTANT"),
    "met_tags": _table("id", "id KEY, space_id KEY, tag TEXT, newest KEY, source_id KEY"),
    "run_events": _table("id",
        "id KEY, uid TEXT, run KEY, sequence COUNT, type TEXT, payload TEXT, node TEXT, "
        "at INSTANT, copied KEY, high KEY"),
    "proposals": _table("id",
        "id KEY, name TEXT, kind ARTIFACT, state PROPOSAL, title TEXT, rationale TEXT, "
        "artifact TEXT, checksum KEY, digest KEY, place KEY, size COUNT, source_runs TAGS, "
        "synthesizer TEXT, principal TEXT, revision COUNT, created_at INSTANT, updated_at INSTANT"),
}  # fmt: skip
"""Every table but those that are made of these: of the index, and what goes with it."""

RESTRICTING = frozenset({
    ("spaces", "area"), ("spaces", "partition"),
    ("lifecycles", "expires_at"),
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

DERIVED = frozenset(
    {"partitions", "index_rules", "purges", "remains", "memory_stems", "database_state"}
)
