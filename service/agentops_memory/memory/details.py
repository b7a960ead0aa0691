"""The column `details` of intents, tasks and coordinators, and a task's policy, with their checks.

Their defaults are the same as in the clients of the OpenIntent package.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ..errors import Unreadable
from ..recall.text import object_of
from ..record import Record, defaults_of

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


def details_of(text: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Parse details, with defaults for missing members; Unreadable for a member of a wrong type."""
    members = object_of(text)
    details = {name: value if members.get(name) is None else members[name]
               for name, value in defaults.items()}  # fmt: skip
    for name, value in defaults.items():
        if value is not None and not isinstance(details[name], type(value)):
            raise Unreadable
    if not all(isinstance(it, dict) for it in details.get("requires_tools", ())):
        raise Unreadable
    return details


Limit = Annotated[int, Field(ge=0)] | None


class Guardrails(Record):
    """The limits for memory that is bound to a coordinator's intent (§6.6)."""

    max_working_memory_per_task: Limit = None
    max_episodic_memory_per_agent: Limit = None
    allowed_semantic_namespaces: list[str] | None = None  # None allows all
    denied_semantic_namespaces: list[str] | None = None
    memory_archive_required: bool = False

    def allows(self, namespace: str) -> bool:
        """Whether entries of a semantic namespace may be changed."""
        allowed = self.allowed_semantic_namespaces
        is_allowed = allowed is None or namespace in allowed
        return is_allowed and namespace not in (self.denied_semantic_namespaces or ())


class TaskPolicy(Record, extra="forbid"):
    """The memory policy of a task, as stored in its row."""

    archives: bool
    inherits: bool
    max_entries: Limit
    max_size: Limit  # KB


def guardrails_of(details: str) -> Guardrails:
    """Parse the guardrails in a coordinator's details; Unreadable, or ValueError, if damaged."""
    stated = details_of(details, defaults_of(CoordinatorDetails))["guardrails"]
    return Guardrails.model_validate({} if stated is None else stated)


def policy_of(text: str) -> TaskPolicy:
    """Parse a policy; ValueError if it is damaged, as a missing limit would allow more."""
    return TaskPolicy.model_validate(object_of(text))


CHECKS: Mapping[str, Callable[[str], object]] = {  # by column
    "tasks.policy": policy_of,
    "tasks.details": lambda text: details_of(text, defaults_of(TaskDetails)),
    "intents.details": lambda text: details_of(text, defaults_of(IntentDetails)),
    "coordinators.details": guardrails_of,
}
