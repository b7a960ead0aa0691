"""Routes and handlers of the work that memory hangs on: intents, tasks, coordinators, grants."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadFields, NotFound
from ..http.bodies import WRITTEN, Instant, answered
from ..http.endpoint import current_caller
from ..http.protocol import Operation, Parameter
from ..http.requests import parameter, query_of
from ..memory.model.access import Role
from ..memory.model.intents import (
    Coordinator,
    CoordinatorId,
    Grant,
    GrantId,
    Intent,
    IntentId,
    MemoryPolicy,
    Task,
    TaskId,
    TaskStatus,
)
from ..telemetry import annotate, count
from ..telemetry.measures import AGENT_ARCHIVED
from . import intent_bodies as b
from . import intent_bodies as drafts
from . import queries, wire
from .intent_bodies import TaskState
from .queries import BODIES, EVENTS, MUST_MATCH, PAGE, PREFIX, TAG, asked
from .rules.events import Events
from .rules.intents import NO_COORDINATOR, NO_GRANT, NO_INTENT, Intents, Participants
from .rules.tasks import NO_TASK, Tasks
from .sql.intents import DETAILS_OF_COORDINATOR, DETAILS_OF_INTENT
from .sql.tasks import DETAILS_OF_TASK, details_of
from .wire import AgentEventObject, JsonObject, listed, listed_events, rendered, tag


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
def intent(of: Intent) -> JsonObject:
    at = rendered(of.created_at)
    return {
        "id": of.id,
        **details_of(of.details, DETAILS_OF_INTENT),
        "status": "active",
        "version": 1,
        "created_by": of.created_by,
        "confidence": 0,
        "created_at": at,
        "updated_at": at,
    }


def task(of: Task) -> JsonObject:
    said = details_of(of.details, DETAILS_OF_TASK)
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
        **details_of(of.details, DETAILS_OF_COORDINATOR),
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


def _policy(of: MemoryPolicy) -> JsonObject:
    return {
        "archive_on_completion": of.archives,
        "inherit_from_parent": of.inherits,
        "max_entries": of.max_entries,
        "max_total_size_kb": of.max_size,
    }


def _rendered_if_any(at: datetime | None) -> str | None:
    return None if at is None else rendered(at)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentHandlers:
    """The handlers of the work that memory hangs on."""

    intents: Intents
    participants: Participants
    tasks: Tasks
    events: Events
    clock: Callable[[], datetime]

    async def create_intent(self, request: Request) -> Response:
        given = await BODIES.read(request, b.IntentBody)
        caller, eyes = await asked(request)
        id_ = None if given.id is None else IntentId(given.id)
        made = await self.intents.create(caller, eyes, drafts.intent(given), id_)
        return _intent(made.value, 201, redacted=made.redacted)

    async def get_intent(self, request: Request) -> Response:
        caller = current_caller(request)
        found = await self.intents.get(caller, queries.eyes(request, caller), _intent_id(request))
        return _intent(found)

    async def create_task(self, request: Request) -> Response:
        given = await BODIES.read(request, b.TaskBody)
        draft = drafts.task(given)
        caller, eyes = await asked(request)
        made = await self.tasks.create(caller, eyes, draft)
        return _task(made.value, 201, redacted=made.redacted)

    async def get_task(self, request: Request) -> Response:
        caller = current_caller(request)
        found = await self.tasks.get(caller, queries.eyes(request, caller), _task_id(request))
        return _task(found)

    async def update_task(self, request: Request) -> Response:
        version = queries.version(request)
        given = await BODIES.read(request, b.TaskChangeBody, nulls=True)
        change = drafts.change(given)
        caller, eyes = await asked(request)
        after = await self.tasks.amend(caller, eyes, _task_id(request), change, version)
        annotate({"memory.archived_count": after.archived})
        if not caller.is_replay:
            count(AGENT_ARCHIVED, by=after.archived)
        return _task(after.value, redacted=after.redacted)

    async def list_tasks(self, request: Request) -> Response:
        limit, offset = queries.page(request)
        asking = partial(queries.asking, request)
        found = await self.tasks.page(asking, _intent_id(request), limit, offset, _status(request))
        return await listed(found, task)

    async def log_event(self, request: Request) -> Response:
        given = await BODIES.read(request, b.EventBody)
        payload = drafts.payload(given)
        caller, eyes = await asked(request)
        made = await self.events.log(caller, eyes, _intent_id(request), given.event_type, payload)
        return answered(wire.event(made.value), 201, redacted=made.redacted)

    async def list_events(self, request: Request) -> Response:
        limit, _ = queries.page(request)
        filter_ = queries.events(request, intent=_intent_id(request))
        return await listed_events(
            await self.events.page(partial(queries.asking, request), filter_, limit)
        )

    async def create_coordinator(self, request: Request) -> Response:
        given = await BODIES.read(request, b.CoordinatorBody)
        draft = drafts.coordinator(given)
        caller, eyes = await asked(request)
        made = await self.participants.coordinate(caller, eyes, draft)
        return self._coordinator(made.value, 201, redacted=made.redacted)

    async def get_coordinator(self, request: Request) -> Response:
        caller = current_caller(request)
        eyes, which = queries.eyes(request, caller), _coordinator_id(request)
        return self._coordinator(await self.participants.coordinator(caller, eyes, which))

    async def end_coordinator(self, request: Request) -> Response:
        caller, eyes = await asked(request)
        ended = await self.participants.end_coordinator(caller, eyes, _coordinator_id(request))
        return self._coordinator(ended)

    async def list_coordinators(self, request: Request) -> Response:
        caller = current_caller(request)
        eyes, now = queries.eyes(request, caller), self.clock()
        found = await self.participants.coordinators(caller, eyes, _intent_id(request))
        annotate({"memory.result_count": len(found)})
        return answered([coordinator(each, now) for each in found])

    async def get_access_list(self, request: Request) -> Response:
        caller, intent = current_caller(request), _intent_id(request)
        found = await self.participants.grants(caller, queries.eyes(request, caller), intent)
        annotate({"memory.result_count": len(found)})
        return answered(access_list(intent, found))

    async def create_grant(self, request: Request) -> Response:
        given = await BODIES.read(request, b.GrantBody)
        caller, eyes = await asked(request)
        made = await self.participants.grant(caller, eyes, _intent_id(request), drafts.grant(given))
        return answered(grant(made.value), 201, redacted=made.redacted)

    async def revoke_grant(self, request: Request) -> Response:
        caller, eyes = await asked(request)
        grant = GrantId(_known(request, "grant_id", NO_GRANT))
        await self.participants.revoke(caller, eyes, _intent_id(request), grant)
        return answered({"status": "deleted", "entry_id": grant})

    def _coordinator(self, of: Coordinator, status: int = 200, *, redacted: int = 0) -> Response:
        shown = coordinator(of, self.clock())
        return answered(shown, status, redacted=redacted)


def _intent(of: Intent, status: int = 200, *, redacted: int = 0) -> Response:
    return answered(intent(of), status, redacted=redacted)


def _task(of: Task, status: int = 200, *, redacted: int = 0) -> Response:
    shown = task(of)
    return answered(shown, status, redacted=redacted, headers=tag(of.version))


def _intent_id(request: Request) -> IntentId:
    return IntentId(_known(request, "intent_id", NO_INTENT))


def _task_id(request: Request) -> TaskId:
    return TaskId(_known(request, "task_id", NO_TASK))


def _coordinator_id(request: Request) -> CoordinatorId:
    return CoordinatorId(_known(request, "coordinator_id", NO_COORDINATOR))


def _known(request: Request, name: str, sentence: str) -> str:
    """The id in the path; NotFound, with the sentence, for what nothing can have as one."""
    shown: str = request.path_params[name]
    if not b.CHOSEN.fullmatch(shown):
        raise NotFound(sentence)
    return shown


def _status(request: Request) -> TaskStatus | None:
    said = parameter(query_of(request), "status")
    if said is not None and said not in [*TaskStatus]:
        raise BadFields([("status", f"must be one of {', '.join(TaskStatus)}")])
    return None if said is None else TaskStatus(said)


INTENTS, TASKS, COORDINATORS = (f"{PREFIX}/{it}" for it in ("intents", "tasks", "coordinators"))
INTENT, TASK = f"{INTENTS}/{{intent_id}}", f"{TASKS}/{{task_id}}"
COORDINATOR = f"{COORDINATORS}/{{coordinator_id}}"
ACL = f"{INTENT}/acl"
OF_TASK = replace(MUST_MATCH, help='The version that the task must have, such as "3".')


def operations(api: IntentHandlers) -> tuple[Operation, ...]:
    """Every operation about intents."""
    return (
        Operation(
            method="POST", path=INTENTS, name="openintent_create_intent", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Make an intent, which needs a key that may.",
            handler=api.create_intent, body=b.IntentBody, answer=IntentObject, headers=WRITTEN,
            refusals=(409,),
        ),
        Operation(
            method="GET", path=INTENT, name="openintent_get_intent", role=Role.READER,
            summary="One intent, for who takes part in it.",
            handler=api.get_intent, answer=IntentObject, refusals=(404,),
        ),
        Operation(
            method="POST", path=TASKS, name="openintent_create_task", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Make a task of an intent, and assign it.",
            handler=api.create_task, body=b.TaskBody, answer=TaskObject,
            headers={**WRITTEN, **TAG}, refusals=(404, 409),
        ),
        Operation(
            method="GET", path=TASK, name="openintent_get_task", role=Role.READER,
            summary="One task.",
            handler=api.get_task, answer=TaskObject, headers=TAG, refusals=(404,),
        ),
        Operation(
            method="PATCH", path=TASK, name="openintent_update_task", role=Role.WRITER,
            summary="Assign a task, or report on it; its end archives its working memory.",
            handler=api.update_task, body=b.TaskChangeBody, answer=TaskObject,
            sends=(OF_TASK,), takes_key=True, headers={**WRITTEN, **TAG},
            refusals=(404, 409, 428),
        ),
        Operation(
            method="GET", path=f"{INTENT}/tasks", name="openintent_list_tasks", role=Role.READER,
            summary="The tasks of an intent, the first first.",
            handler=api.list_tasks, answer=TaskObject, is_list=True, refusals=(404,),
            query=(Parameter(name="status", help="Of this status alone.",
                             choices=tuple(TaskStatus)), *PAGE),
        ),
        Operation(
            method="POST", path=f"{INTENT}/events", name="openintent_log_event", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Add an event to the log of an intent.",
            handler=api.log_event, body=b.EventBody, answer=AgentEventObject, headers=WRITTEN,
            refusals=(404,),
        ),
        Operation(
            method="GET", path=f"{INTENT}/events", name="openintent_list_events",
            role=Role.READER,
            summary="The log of an intent, newest first.",
            handler=api.list_events, answer=AgentEventObject, is_list=True, query=EVENTS,
            refusals=(404,),
        ),
        Operation(
            method="POST", path=COORDINATORS, name="openintent_create_coordinator", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Let an agent coordinate an intent, within guardrails.",
            handler=api.create_coordinator, body=b.CoordinatorBody, answer=CoordinatorObject,
            headers=WRITTEN, refusals=(404,),
        ),
        Operation(
            method="GET", path=COORDINATOR, name="openintent_get_coordinator", role=Role.READER,
            summary="One coordinator.",
            handler=api.get_coordinator, answer=CoordinatorObject, refusals=(404,),
        ),
        Operation(
            method="DELETE", path=COORDINATOR, name="openintent_delete_coordinator",
            role=Role.WRITER, takes_key=True,
            summary="Let an agent coordinate an intent no more.",
            handler=api.end_coordinator, answer=CoordinatorObject, refusals=(404,),
        ),
        Operation(
            method="GET", path=f"{INTENT}/coordinators", name="openintent_list_coordinators",
            role=Role.READER,
            summary="The coordinators of an intent, ended ones too.",
            handler=api.list_coordinators, answer=CoordinatorObject, is_list=True,
            refusals=(404,),
        ),
        Operation(
            method="GET", path=ACL, name="openintent_get_access_list", role=Role.READER,
            summary="Who may read an intent beside those who work on it.",
            handler=api.get_access_list, answer=AccessList, refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{ACL}/entries", name="openintent_create_grant", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Let an agent read an intent, its tasks, its log and their working memory.",
            handler=api.create_grant, body=b.GrantBody, answer=GrantObject, headers=WRITTEN,
            refusals=(404,),
        ),
        Operation(
            method="DELETE", path=f"{ACL}/entries/{{grant_id}}", name="openintent_delete_grant",
            role=Role.WRITER, takes_key=True,
            summary="Take a grant back.",
            handler=api.revoke_grant, answer=RevokedGrant, refusals=(404,),
        ),
    )  # fmt: skip
