"""What bodies about intents ask for. Pure."""

from typing import Any

from pydantic import BaseModel

from ..errors import BadFields, Invalid
from ..http.paging import instant
from ..memory.model.agent_memory import KEPT
from ..memory.model.agents import AgentId
from ..memory.model.intents import (
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
from . import intent_bodies as b
from .rules.values import compact

REPORTED = ("output", "error", "blocked_reason")
DETAILS = (*REPORTED, "metadata")


def intent(given: b.IntentBody) -> str:
    """The details of the intent that is to be made."""
    return _details(given, but={"id"})


def task(given: b.TaskBody) -> TaskDraft:
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


def change(given: b.TaskChangeBody) -> TaskChange:
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


def coordinator(given: b.CoordinatorBody) -> CoordinatorDraft:
    return CoordinatorDraft(
        intent=IntentId(given.intent_id),
        agent=AgentId(given.agent_id),
        details=_details(given, but={"intent_id", "agent_id", "expires_at"}),
        expires_at=None if given.expires_at is None else instant(given.expires_at),
    )


def grant(given: b.GrantBody) -> GrantDraft:
    return GrantDraft(
        agent=AgentId(given.principal_id),
        permission=Permission(given.permission),
        reason=given.reason,
        expires_at=None if given.expires_at is None else instant(given.expires_at),
    )


def payload(given: b.EventBody) -> str:
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


def _policy(given: b.MemoryPolicyBody | None) -> MemoryPolicy | None:
    if given is None:
        return None
    return MemoryPolicy(
        archives=given.archive_on_completion,
        inherits=given.inherit_from_parent,
        max_entries=given.max_entries,
        max_size=given.max_total_size_kb,
    )
