"""Routes and handlers of the work that memory hangs on: intents, tasks, coordinators, grants."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadFields, NotFound
from ..http.bodies import WRITTEN, answered
from ..http.endpoint import current_caller
from ..http.protocol import Operation, Parameter
from ..http.requests import parameter, query_of
from ..memory.model.access import Role
from ..memory.model.intents import (
    Coordinator,
    CoordinatorId,
    GrantId,
    Intent,
    IntentId,
    Task,
    TaskId,
    TaskStatus,
)
from ..telemetry import annotate, count
from ..telemetry.measures import AGENT_ARCHIVED
from . import intent_bodies as b
from . import intent_bodies as drafts
from . import intent_wire, queries, wire
from . import intent_wire as m
from .queries import BODIES, EVENTS, MUST_MATCH, PAGE, PREFIX, TAG, asked
from .rules.events import Events
from .rules.intents import NO_COORDINATOR, NO_GRANT, NO_INTENT, Intents, Participants
from .rules.tasks import NO_TASK, Tasks
from .wire import AgentEventObject, listed, listed_events, tag


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
        return await listed(found, intent_wire.task)

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
        return answered([intent_wire.coordinator(each, now) for each in found])

    async def get_access_list(self, request: Request) -> Response:
        caller, intent = current_caller(request), _intent_id(request)
        found = await self.participants.grants(caller, queries.eyes(request, caller), intent)
        annotate({"memory.result_count": len(found)})
        return answered(intent_wire.access_list(intent, found))

    async def create_grant(self, request: Request) -> Response:
        given = await BODIES.read(request, b.GrantBody)
        caller, eyes = await asked(request)
        made = await self.participants.grant(caller, eyes, _intent_id(request), drafts.grant(given))
        return answered(intent_wire.grant(made.value), 201, redacted=made.redacted)

    async def revoke_grant(self, request: Request) -> Response:
        caller, eyes = await asked(request)
        grant = GrantId(_known(request, "grant_id", NO_GRANT))
        await self.participants.revoke(caller, eyes, _intent_id(request), grant)
        return answered({"status": "deleted", "entry_id": grant})

    def _coordinator(self, of: Coordinator, status: int = 200, *, redacted: int = 0) -> Response:
        shown = intent_wire.coordinator(of, self.clock())
        return answered(shown, status, redacted=redacted)


def _intent(of: Intent, status: int = 200, *, redacted: int = 0) -> Response:
    return answered(intent_wire.intent(of), status, redacted=redacted)


def _task(of: Task, status: int = 200, *, redacted: int = 0) -> Response:
    shown = intent_wire.task(of)
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
            handler=api.create_intent, body=b.IntentBody, answer=m.IntentObject, headers=WRITTEN,
            refusals=(409,),
        ),
        Operation(
            method="GET", path=INTENT, name="openintent_get_intent", role=Role.READER,
            summary="One intent, for who takes part in it.",
            handler=api.get_intent, answer=m.IntentObject, refusals=(404,),
        ),
        Operation(
            method="POST", path=TASKS, name="openintent_create_task", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Make a task of an intent, and assign it.",
            handler=api.create_task, body=b.TaskBody, answer=m.TaskObject,
            headers={**WRITTEN, **TAG}, refusals=(404, 409),
        ),
        Operation(
            method="GET", path=TASK, name="openintent_get_task", role=Role.READER,
            summary="One task.",
            handler=api.get_task, answer=m.TaskObject, headers=TAG, refusals=(404,),
        ),
        Operation(
            method="PATCH", path=TASK, name="openintent_update_task", role=Role.WRITER,
            summary="Assign a task, or report on it; its end archives its working memory.",
            handler=api.update_task, body=b.TaskChangeBody, answer=m.TaskObject,
            sends=(OF_TASK,), takes_key=True, headers={**WRITTEN, **TAG},
            refusals=(404, 409, 428),
        ),
        Operation(
            method="GET", path=f"{INTENT}/tasks", name="openintent_list_tasks", role=Role.READER,
            summary="The tasks of an intent, the first first.",
            handler=api.list_tasks, answer=m.TaskObject, is_list=True, refusals=(404,),
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
            handler=api.create_coordinator, body=b.CoordinatorBody, answer=m.CoordinatorObject,
            headers=WRITTEN, refusals=(404,),
        ),
        Operation(
            method="GET", path=COORDINATOR, name="openintent_get_coordinator", role=Role.READER,
            summary="One coordinator.",
            handler=api.get_coordinator, answer=m.CoordinatorObject, refusals=(404,),
        ),
        Operation(
            method="DELETE", path=COORDINATOR, name="openintent_delete_coordinator",
            role=Role.WRITER, takes_key=True,
            summary="Let an agent coordinate an intent no more.",
            handler=api.end_coordinator, answer=m.CoordinatorObject, refusals=(404,),
        ),
        Operation(
            method="GET", path=f"{INTENT}/coordinators", name="openintent_list_coordinators",
            role=Role.READER,
            summary="The coordinators of an intent, ended ones too.",
            handler=api.list_coordinators, answer=m.CoordinatorObject, is_list=True,
            refusals=(404,),
        ),
        Operation(
            method="GET", path=ACL, name="openintent_get_access_list", role=Role.READER,
            summary="Who may read an intent beside those who work on it.",
            handler=api.get_access_list, answer=m.AccessList, refusals=(404,),
        ),
        Operation(
            method="POST", path=f"{ACL}/entries", name="openintent_create_grant", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Let an agent read an intent, its tasks, its log and their working memory.",
            handler=api.create_grant, body=b.GrantBody, answer=m.GrantObject, headers=WRITTEN,
            refusals=(404,),
        ),
        Operation(
            method="DELETE", path=f"{ACL}/entries/{{grant_id}}", name="openintent_delete_grant",
            role=Role.WRITER, takes_key=True,
            summary="Take a grant back.",
            handler=api.revoke_grant, answer=m.RevokedGrant, refusals=(404,),
        ),
    )  # fmt: skip
