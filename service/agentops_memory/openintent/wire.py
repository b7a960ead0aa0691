"""What OpenIntent answers. Pure: no storage, no clock, no request."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..errors import BadFields, Invalid, Refusal
from ..http.ids import ENTRY, EVENT, public_id
from ..memory.model.agent_events import AgentEvent
from ..memory.model.agent_memory import Access, AgentEntry, AgentSummary, Namespace
from ..memory.model.agents import AgentId
from ..recall.text.json_words import stored_object
from .rules.binding import OverCapacity
from .rules.lifetime import BadField
from .rules.namespaces import OutdatedNamespace
from .rules.rules import NO_ENTRY, AtItem, Outdated, Taken
from .rules.search import AgentFound
from .rules.task_changes import OutdatedTask

JsonObject = dict[str, Any]

CODES: Mapping[str, str] = {
    "invalid_input": "INVALID_REQUEST",
    "validation_error": "INVALID_REQUEST",
    "unauthenticated": "UNAUTHENTICATED",
    "denied": "ACCESS_DENIED",
    "not_found": "NOT_FOUND",
    "no_path": "NOT_FOUND",
    "no_method": "METHOD_NOT_ALLOWED",
    "too_slow": "TIMEOUT",
    "constraint_violation": "IDEMPOTENCY_KEY_REUSED",
    "stale": "VERSION_MISMATCH",
    "task_finished": "TASK_FINISHED",
    "already_exists": "ALREADY_EXISTS",
    "too_large": "TOO_LARGE",
    "version_required": "VERSION_REQUIRED",
    "over_capacity": "CAPACITY_EXCEEDED",
    "too_many": "RATE_LIMITED",
    "failed": "INTERNAL",
    "over_quota": "QUOTA_EXCEEDED",
}
UNAVAILABLE = "UNAVAILABLE"


def entry(of: AgentEntry) -> JsonObject:
    """The entry; if its value is damaged, without it, so that clients can read the others."""
    space, handling, labels = of.place.space, of.handling, of.labels
    value = stored_object(of.value)
    scope = {"task_id": labels.task, "intent_id": labels.intent}
    shown: JsonObject = {
        "id": public_id(ENTRY, of.id),
        "agent_id": space.agent or of.created_by,
        "namespace": space.namespace,
        "key": of.place.key,
        "value": {} if value is None else value,
        "memory_type": space.tier.value,
        "scope": {name: label for name, label in scope.items() if label is not None},
        "tags": list(handling.tags),
        "ttl": handling.ttl,
        "pinned": handling.is_pinned,
        "priority": handling.priority.name.lower(),
        "sensitivity": handling.sensitivity,
        "curated_by": handling.curated_by,
        "created_by": of.created_by,
        "version": of.version,
        "created_at": rendered(of.created_at),
        "updated_at": rendered(of.updated_at),
        "expires_at": _rendered_if_any(handling.expires_at),
    }
    return shown if value is not None else {**shown, "unreadable": True}


def found(of: AgentFound) -> JsonObject:
    """What a search found, with the places where it looked."""
    return {
        "entries": [{**entry(hit.entry), "rank": hit.rank} for hit in of.hits],
        "searched": {"own": of.own, "namespaces": list(of.namespaces)},
    }


def deleted(entry_id: str) -> JsonObject:
    return {"status": "deleted", "entry_id": entry_id}


def event(of: AgentEvent) -> JsonObject:
    """An event under the names of the package, and under those of the RFC."""
    type_, payload, at = of.type, dict(of.payload), rendered(of.at)
    if "entry_id" in payload:
        payload["entry_id"] = public_id(ENTRY, str(payload["entry_id"]))
    return {
        "id": public_id(EVENT, of.id),
        "sequence": of.sequence,
        "intent_id": of.labels.intent,
        "task_id": of.labels.task,
        "agent_id": of.agent,
        "actor": of.actor,
        "event_type": type_,
        "type": type_,
        "payload": payload,
        "data": payload,
        "created_at": at,
        "timestamp": at,
    }


def summary(agent: AgentId, of: AgentSummary) -> JsonObject:
    working, episodic = of.working, of.episodic
    return {
        "agent_id": agent,
        "working": {
            "entry_count": working.entries,
            "total_size_kb": _kilobytes(working.size),
            "tasks_with_memory": list(of.tasks),
        },
        "episodic": {
            "entry_count": episodic.entries,
            "capacity": of.capacity,
            "pinned_count": episodic.pinned,
            "total_size_kb": _kilobytes(episodic.size),
            "oldest_entry": _rendered_if_any(episodic.oldest),
            "newest_entry": _rendered_if_any(episodic.newest),
            "eviction_policy": "lru",
        },
        "semantic_namespaces_accessible": list(of.namespaces),
    }


def namespace(of: Namespace) -> JsonObject:
    allow = of.permissions.allow.items()
    return {
        "namespace": of.name,
        "permissions": {
            "default": _access(of.permissions.default),
            "allow": [{"agent": agent, "access": _access(level)} for agent, level in allow],
        },
        "access": _access(of.access),
        "version": of.version,
        "entry_count": of.entries,
        "total_size_kb": _kilobytes(of.size),
        "created_at": rendered(of.created_at),
        "updated_at": rendered(of.updated_at),
    }


def listed_namespace(of: Namespace) -> JsonObject:
    return {
        "namespace": of.name,
        "access": _access(of.access),
        "entry_count": of.entries,
        "updated_at": rendered(of.updated_at),
    }


def problem(refusal: Refusal) -> JsonObject:
    """A refusal, with the state that refuses if there is one."""
    cause = refusal.refusal if isinstance(refusal, AtItem) else refusal
    code = CODES.get(cause.code, UNAVAILABLE)
    shown: JsonObject = {
        "message": str(refusal),
        "error": {"code": "ENTRY_NOT_FOUND" if str(cause) == NO_ENTRY else code},
    }
    item = f"entries[{refusal.number}]." if isinstance(refusal, AtItem) else ""
    if isinstance(cause, BadFields):
        shown["errors"] = [{"field": item + name, "message": said} for name, said in cause.faults]
    elif isinstance(cause, BadField):
        shown["errors"] = [{"field": item + cause.field, "message": cause.said}]
    elif isinstance(cause, Invalid):
        shown["errors"] = []
    if isinstance(cause, Taken | Outdated):
        current = entry(cause.current)
        shown |= {"current_version": cause.current.version, "current_value": current["value"]}
        shown["current"] = current
    if isinstance(cause, OutdatedNamespace | OutdatedTask):
        shown["current_version"] = cause.current.version
    if isinstance(cause, OverCapacity):
        shown |= {"limit": cause.limit, "current_count": cause.count, "max_capacity": cause.most}
    return shown


def rendered(at: datetime) -> str:
    """The instant as every version of Python reads it: with six digits and `+00:00`."""
    return at.isoformat(timespec="microseconds")


def _rendered_if_any(at: datetime | None) -> str | None:
    return None if at is None else rendered(at)


def _access(level: Access) -> str:
    return level.name.lower()


def _kilobytes(size: int) -> int:
    return -(-size // 1024)
