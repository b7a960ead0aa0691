"""The members in the JSON of an intent's, a task's and a coordinator's row.

Their defaults are the same as in the clients of the OpenIntent package.
"""

from typing import Any, Literal

from pydantic import Field

from ..record import Record, defaults_of

__all__ = ["CoordinatorDetails", "IntentDetails", "TaskDetails", "defaults_of"]

JsonObject = dict[str, Any]


class IntentDetails(Record):
    title: str = ""
    description: str = ""
    state: JsonObject = Field(default={})
    constraints: JsonObject = Field(default={})
    parent_intent_id: str | None = None
    depends_on: list[str] = Field(default=[])
    governance_policy: JsonObject | None = None


class TaskDetails(Record):
    name: str = ""
    plan_id: str | None = None
    description: str | None = None
    priority: str = "normal"
    input: JsonObject = Field(default={})
    output: JsonObject | None = None
    artifacts: list[str] = Field(default=[])
    capabilities_required: list[str] = Field(default=[])
    depends_on: list[str] = Field(default=[])
    blocks: list[str] = Field(default=[])
    requires_tools: list[JsonObject] = Field(default=[])
    retry_policy: str | None = None
    timeout_seconds: int | None = None
    permissions: str = "inherit"
    metadata: JsonObject = Field(default={})
    error: str | None = None
    blocked_reason: str | None = None
    max_attempts: int = 3


class CoordinatorDetails(Record):
    role: str = "coordinator"
    supervisor_id: str | None = None
    coordinator_type: Literal["llm", "human", "composite", "system"] = "llm"
    scope: Literal["intent", "portfolio"] = "intent"
    guardrails: JsonObject | None = None
    heartbeat_interval_seconds: int = 60
    metadata: JsonObject = Field(default={})
