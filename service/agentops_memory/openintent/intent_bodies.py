"""What bodies about intents, tasks, coordinators and grants may hold.

Of each is kept what the package's clients can read back, and nothing else.
"""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator

from ..errors import BadFields, Invalid
from ..http.bodies import GIVEN, present
from ..http.faults import fault
from ..http.paging import instant
from ..memory.model.agent_events import LOGGED
from ..memory.model.agent_memory import KEPT
from ..memory.model.agents import AgentId
from ..memory.model.intents import (
    MOST_ENTRIES,
    MOST_SIZE,
    CoordinatorDraft,
    GrantDraft,
    IntentId,
    MemoryPolicy,
    Permission,
    TaskChange,
    TaskDraft,
    TaskId,
    TaskStatus,
)
from .bodies import Agent, Expiry, Label, Printable
from .rules.values import compact

MAX_TITLE, MAX_DESCRIPTION = 500, 10_000  # characters
MAX_ITEMS = 1_000  # of a list
CHOSEN = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._:-]{1,128}")  # an id that a client chooses
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # in JSON, where a backslash of a text is two

TaskState = Literal[
    "pending", "ready", "claimed", "running", "blocked", "completed", "failed", "cancelled",
    "skipped",
]  # fmt: skip


def _chosen(text: str) -> str:
    if not CHOSEN.fullmatch(text):
        raise fault("must be 1 to 128 of A-Z, a-z, 0-9, ., _, : and -")
    return text


def _without_nul(value: Any) -> Any:
    if _NUL.search(json.dumps(value)):
        raise fault("must have no NUL")
    return value


def _logged(type_: str) -> str:
    if type_ not in LOGGED:
        raise fault("must be one that clients log: none of memory.*, task.* and agent_assigned")
    return type_


WithoutNul = AfterValidator(_without_nul)
Chosen = Annotated[
    str,
    AfterValidator(_chosen),
    Field(json_schema_extra={"maxLength": 128, "pattern": "^[A-Za-z0-9._:-]+$"}),
]
Title = Annotated[str, Field(min_length=1, max_length=MAX_TITLE), Printable]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION), WithoutNul]
Word = Annotated[str, Field(max_length=MAX_TITLE), Printable]
Words = Annotated[list[Word], Field(max_length=MAX_ITEMS)]
Object = Annotated[dict[str, Any], WithoutNul, Field(examples=[{}])]
Small = Annotated[int, Field(ge=0, le=2**31 - 1)]


class IntentBody(BaseModel):
    """POST /api/v1/intents; who asks has made it, whatever the body says."""

    model_config = GIVEN
    id: Chosen | None = None
    title: Title
    description: Description = ""
    state: Object | None = None
    constraints: Object | None = None
    parent_intent_id: Label | None = None
    depends_on: Words | None = None
    governance_policy: Object | None = None


class Nested(BaseModel):
    """A part of a body, of which `null` is absent, too."""

    @model_validator(mode="before")
    @classmethod
    def _present(cls, given: Any) -> Any:
        return present(given) if isinstance(given, dict) else given


class MemoryPolicyBody(Nested):
    """How the working memory of a task is kept (§6.5)."""

    model_config = GIVEN
    archive_on_completion: bool = True
    inherit_from_parent: bool = False
    max_entries: Annotated[int, Field(ge=0, le=MOST_ENTRIES)] | None = None
    max_total_size_kb: Annotated[int, Field(ge=0, le=MOST_SIZE)] | None = None


class ToolRequirementBody(Nested):
    """A service that a task needs."""

    model_config = GIVEN
    service: Word
    scopes: Words = []
    required: bool = True


class TaskBody(BaseModel):
    """POST /api/v1/tasks."""

    model_config = GIVEN
    id: Chosen | None = None
    intent_id: Chosen
    name: Title
    status: TaskState = "pending"
    assigned_agent: Agent | None = None
    parent_task_id: Chosen | None = None
    memory_policy: MemoryPolicyBody | None = None
    plan_id: Word | None = None
    description: Description | None = None
    priority: Word | None = None
    input: Object | None = None
    output: Object | None = None
    artifacts: Words | None = None
    capabilities_required: Words | None = None
    depends_on: Words | None = None
    blocks: Words | None = None
    requires_tools: Annotated[list[ToolRequirementBody], Field(max_length=MAX_ITEMS)] | None = None
    retry_policy: Word | None = None
    timeout_seconds: Small | None = None
    max_attempts: Small | None = None
    permissions: Word | None = None
    metadata: Object | None = None
    error: Description | None = None
    blocked_reason: Description | None = None


class TaskChangeBody(BaseModel):
    """PATCH /api/v1/tasks/{id}: what is left out stays as it is.

    `null` takes away assigned_agent, memory_policy, output, error and blocked_reason.
    """

    model_config = GIVEN
    status: TaskState | None = None
    assigned_agent: Agent | None = None
    memory_policy: MemoryPolicyBody | None = None
    output: Object | None = None
    error: Description | None = None
    blocked_reason: Description | None = None
    metadata: Object | None = None


class GuardrailsBody(BaseModel):
    """What bounds an intent's memory (§6.6); what else the package sends is kept as it is."""

    model_config = GIVEN | {"extra": "allow"}
    on_exceed: Literal["pause", "escalate", "pause_and_escalate", "fail"] | None = None
    max_working_memory_per_task: Small | None = None
    max_episodic_memory_per_agent: Small | None = None
    allowed_semantic_namespaces: Words | None = None
    denied_semantic_namespaces: Words | None = None
    memory_archive_required: bool | None = None


def _readable(given: GuardrailsBody) -> GuardrailsBody:
    _without_nul(given.model_extra)
    return given


Guardrails = Annotated[GuardrailsBody, AfterValidator(_readable)]


class CoordinatorBody(BaseModel):
    """POST /api/v1/coordinators."""

    model_config = GIVEN
    intent_id: Chosen
    agent_id: Agent
    role: Word = "coordinator"
    supervisor_id: Word | None = None
    coordinator_type: Literal["llm", "human", "composite", "system"] = "llm"
    scope: Literal["intent", "portfolio"] = "intent"
    guardrails: Guardrails | None = None
    heartbeat_interval_seconds: Small | None = None
    metadata: Object | None = None
    expires_at: Expiry | None = None


class GrantBody(BaseModel):
    """POST /api/v1/intents/{id}/acl/entries; whatever the permission, it opens reading."""

    model_config = GIVEN
    principal_id: Agent
    principal_type: Literal["agent"] = "agent"
    permission: Literal["read", "write", "admin"] = "read"
    reason: Description | None = None
    expires_at: Expiry | None = None


class EventBody(BaseModel):
    """POST /api/v1/intents/{id}/events."""

    model_config = GIVEN
    event_type: Annotated[
        str, AfterValidator(_logged), Field(json_schema_extra={"enum": sorted(LOGGED)})
    ]
    payload: Object = {}


REPORTED = ("output", "error", "blocked_reason")
DETAILS = (*REPORTED, "metadata")


def intent(given: IntentBody) -> str:
    """The details of the intent that is to be made."""
    return _details(given, but={"id"})


def task(given: TaskBody) -> TaskDraft:
    ours = {"id", "intent_id", "status", "assigned_agent", "parent_task_id", "memory_policy"}
    return TaskDraft(
        id=None if given.id is None else TaskId(given.id),
        intent=IntentId(given.intent_id),
        parent=None if given.parent_task_id is None else TaskId(given.parent_task_id),
        agent=_agent(given.assigned_agent),
        status=TaskStatus(given.status),
        policy=_policy(given.memory_policy),
        details=_details(given, but=ours),
    )


def change(given: TaskChangeBody) -> TaskChange:
    """The change of a task; `null` takes away what may be absent."""
    named = given.model_fields_set
    details = {name: getattr(given, name) for name in DETAILS if name in named}
    if details.get("metadata", {}) is None:
        del details["metadata"]
    return TaskChange(
        status=None if given.status is None else TaskStatus(given.status),
        agent=_agent(given.assigned_agent) if "assigned_agent" in named else KEPT,
        policy=_policy(given.memory_policy) if "memory_policy" in named else KEPT,
        details=_compact(details),
        is_report=named <= {"status", *REPORTED},
    )


def coordinator(given: CoordinatorBody) -> CoordinatorDraft:
    return CoordinatorDraft(
        intent=IntentId(given.intent_id),
        agent=AgentId(given.agent_id),
        details=_details(given, but={"intent_id", "agent_id", "expires_at"}),
        expires_at=None if given.expires_at is None else instant(given.expires_at),
    )


def grant(given: GrantBody) -> GrantDraft:
    return GrantDraft(
        agent=AgentId(given.principal_id),
        permission=Permission(given.permission),
        reason=given.reason,
        expires_at=None if given.expires_at is None else instant(given.expires_at),
    )


def payload(given: EventBody) -> str:
    return _compact(given.payload, "payload")


def _details(given: BaseModel, but: set[str]) -> str:
    return _compact(given.model_dump(exclude=but, exclude_unset=True, exclude_none=True))


def _compact(said: dict[str, Any], field: str = "the body") -> str:
    try:
        return compact(said)
    except Invalid as error:
        phrase = str(error).removeprefix("value ").partition(";")[0].removesuffix(".")
        raise BadFields([(field, phrase)]) from error


def _agent(named: str | None) -> AgentId | None:
    return None if named is None else AgentId(named)


def _policy(given: MemoryPolicyBody | None) -> MemoryPolicy | None:
    if given is None:
        return None
    return MemoryPolicy(
        archives=given.archive_on_completion,
        inherits=given.inherit_from_parent,
        max_entries=given.max_entries,
        max_size=given.max_total_size_kb,
    )
