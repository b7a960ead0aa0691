"""What OpenIntent answers about intents, tasks, coordinators and grants. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from ..http.bodies import Instant
from ..memory.model.intents import Coordinator, Grant, Intent, IntentId, MemoryPolicy, Task
from ..recall.text.json_words import object_of
from .intent_bodies import TaskState
from .wire import JsonObject, rendered


class IntentObject(BaseModel):
    """An intent."""

    id: str
    title: str
    description: str
    status: Literal["active"] = "active"
    version: int
    state: dict[str, Any]
    constraints: dict[str, Any]
    parent_intent_id: str | None
    depends_on: list[str]
    governance_policy: dict[str, Any] | None
    created_by: str
    confidence: int
    created_at: Instant
    updated_at: Instant


class MemoryPolicyObject(BaseModel):
    """How the working memory of a task is kept."""

    archive_on_completion: bool
    inherit_from_parent: bool
    max_entries: int | None
    max_total_size_kb: int | None


class ToolRequirementObject(BaseModel):
    """A service that a task needs."""

    service: str
    scopes: list[str]
    required: bool


class TaskObject(BaseModel):
    """A task."""

    id: str
    intent_id: str
    name: str
    version: int
    status: TaskState
    state: TaskState
    assigned_agent: str | None
    parent_task_id: str | None
    memory_policy: MemoryPolicyObject | None
    plan_id: str | None
    description: str | None
    priority: str
    input: dict[str, Any]
    output: dict[str, Any] | None
    artifacts: list[str]
    capabilities_required: list[str]
    depends_on: list[str]
    blocks: list[str]
    requires_tools: list[ToolRequirementObject]
    retry_policy: str | None
    timeout_seconds: int | None
    permissions: str
    metadata: dict[str, Any]
    error: str | None
    blocked_reason: str | None
    attempt: int
    max_attempts: int
    created_at: Instant
    started_at: Instant | None
    completed_at: Instant | None


class CoordinatorObject(BaseModel):
    """That an agent coordinates an intent."""

    id: str
    intent_id: str
    agent_id: str
    role: str
    supervisor_id: str | None
    coordinator_type: Literal["llm", "human", "composite", "system"]
    scope: Literal["intent", "portfolio"]
    status: Literal["active", "completed"]
    guardrails: dict[str, Any] | None
    heartbeat_interval_seconds: int
    granted_at: Instant
    expires_at: Instant | None
    version: int
    metadata: dict[str, Any]


class GrantObject(BaseModel):
    """That an agent may read an intent, its tasks, its log and their working memory."""

    id: str
    principal_id: str
    principal_type: Literal["agent"] = "agent"
    permission: Literal["read", "write", "admin"]
    granted_by: str
    granted_at: Instant
    expires_at: Instant | None
    reason: str | None


class AccessList(BaseModel):
    """The grants on an intent."""

    intent_id: str
    default_policy: Literal["closed"] = "closed"
    entries: list[GrantObject]


class RevokedGrant(BaseModel):
    """That a grant is taken back."""

    status: Literal["deleted"] = "deleted"
    entry_id: str


# Of what was not said: as the package's clients take it to be.
INTENT: Mapping[str, Any] = {
    "title": "", "description": "", "state": {}, "constraints": {}, "parent_intent_id": None,
    "depends_on": [], "governance_policy": None,
}  # fmt: skip
TASK: Mapping[str, Any] = {
    "name": "", "plan_id": None, "description": None, "priority": "normal", "input": {},
    "output": None, "artifacts": [], "capabilities_required": [], "depends_on": [], "blocks": [],
    "requires_tools": [], "retry_policy": None, "timeout_seconds": None, "permissions": "inherit",
    "metadata": {}, "error": None, "blocked_reason": None, "max_attempts": 3,
}  # fmt: skip
COORDINATOR: Mapping[str, Any] = {
    "role": "coordinator", "supervisor_id": None, "coordinator_type": "llm", "scope": "intent",
    "guardrails": None, "heartbeat_interval_seconds": 60, "metadata": {},
}  # fmt: skip


def intent(of: Intent) -> JsonObject:
    at = rendered(of.created_at)
    return {
        "id": of.id,
        **_said(of.details, INTENT),
        "status": "active",
        "version": 1,
        "created_by": of.created_by,
        "confidence": 0,
        "created_at": at,
        "updated_at": at,
    }


def task(of: Task) -> JsonObject:
    said = _said(of.details, TASK)
    return {
        "id": of.id,
        "intent_id": of.intent,
        **said,
        "requires_tools": [{"scopes": [], "required": True, **it} for it in said["requires_tools"]],
        "version": of.version,
        "status": of.status.value,
        "state": of.status.value,
        "assigned_agent": of.agent,
        "parent_task_id": of.parent,
        "memory_policy": None if of.policy is None else _policy(of.policy),
        "attempt": of.attempt,
        "created_at": rendered(of.created_at),
        "started_at": _rendered_if_any(of.started_at),
        "completed_at": _rendered_if_any(of.completed_at),
    }


def coordinator(of: Coordinator, now: datetime) -> JsonObject:
    return {
        "id": of.id,
        "intent_id": of.intent,
        "agent_id": of.agent,
        **_said(of.details, COORDINATOR),
        "status": "active" if of.is_active(now) else "completed",
        "granted_at": rendered(of.granted_at),
        "expires_at": _rendered_if_any(of.expires_at),
        "version": of.version,
    }


def grant(of: Grant) -> JsonObject:
    return {
        "id": of.id,
        "principal_id": of.agent,
        "principal_type": "agent",
        "permission": of.permission.value,
        "granted_by": of.granted_by,
        "granted_at": rendered(of.granted_at),
        "expires_at": _rendered_if_any(of.expires_at),
        "reason": of.reason,
    }


def access_list(of: IntentId, grants: Sequence[Grant]) -> JsonObject:
    return {
        "intent_id": of,
        "default_policy": "closed",
        "entries": [grant(each) for each in grants],
    }


def _said(details: str, otherwise: Mapping[str, Any]) -> JsonObject:
    """What was said; of a damaged member, what holds of one that was not."""
    said = object_of(details)
    kinds = {name: type(value) for name, value in otherwise.items() if value is not None}
    return {
        name: said[name]
        if name in said and isinstance(said[name], kinds.get(name, object))
        else value
        for name, value in otherwise.items()
    }


def _policy(of: MemoryPolicy) -> JsonObject:
    return {
        "archive_on_completion": of.archives,
        "inherit_from_parent": of.inherits,
        "max_entries": of.max_entries,
        "max_total_size_kb": of.max_size,
    }


def _rendered_if_any(at: datetime | None) -> str | None:
    return None if at is None else rendered(at)
