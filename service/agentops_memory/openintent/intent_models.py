"""What answers about intents, tasks, coordinators and grants hold."""

from typing import Any, Literal

from pydantic import BaseModel

from ..http.bodies import Instant
from .intent_bodies import TaskState


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
