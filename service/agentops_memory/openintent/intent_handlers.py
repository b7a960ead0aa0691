"""Requests about intents, tasks, coordinators and grants: parse, call, render."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadFields, NotFound
from ..http.bodies import answered
from ..http.endpoint import current_caller
from ..http.requests import parameter, query_of
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
from ..telemetry import annotate
from . import intent_bodies as b
from . import intent_drafts as drafts
from . import intent_wire, queries, wire
from .answers import listed_events, listed_tasks, tag
from .drafts import BODIES
from .queries import asked
from .rules.events import Events
from .rules.intents import NO_INTENT, Intents
from .rules.participants import NO_COORDINATOR, NO_GRANT, Participants
from .rules.task_changes import NO_TASK
from .rules.tasks import Tasks


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
        caller, eyes, idempotency = await asked(request)
        id_ = None if given.id is None else IntentId(given.id)
        made = await self.intents.create(
            caller, eyes, drafts.intent(given), id_, idempotency=idempotency
        )
        return _intent(made.value, 201, redacted=made.redacted)

    async def get_intent(self, request: Request) -> Response:
        caller = current_caller(request)
        found = await self.intents.get(caller, queries.eyes(request, caller), _intent_id(request))
        return _intent(found)

    async def create_task(self, request: Request) -> Response:
        given = await BODIES.read(request, b.TaskBody)
        draft = drafts.task(given)
        caller, eyes, idempotency = await asked(request)
        made = await self.tasks.create(caller, eyes, draft, idempotency=idempotency)
        return _task(made.value, 201, redacted=made.redacted)

    async def get_task(self, request: Request) -> Response:
        caller = current_caller(request)
        found = await self.tasks.get(caller, queries.eyes(request, caller), _task_id(request))
        return _task(found)

    async def update_task(self, request: Request) -> Response:
        version = queries.version(request)
        given = await BODIES.read(request, b.TaskChangeBody, nulls=True)
        change = drafts.change(given)
        caller, eyes, idempotency = await asked(request)
        after = await self.tasks.amend(
            caller, eyes, _task_id(request), change, version, idempotency=idempotency
        )
        annotate({"memory.archived_count": after.archived})
        return _task(after.value, redacted=after.redacted)

    async def list_tasks(self, request: Request) -> Response:
        limit, offset = queries.page(request)
        asking = partial(queries.asking, request)
        found = await self.tasks.page(asking, _intent_id(request), limit, offset, _status(request))
        return await listed_tasks(found)

    async def log_event(self, request: Request) -> Response:
        given = await BODIES.read(request, b.EventBody)
        payload = drafts.payload(given)
        caller, eyes, idempotency = await asked(request)
        made = await self.events.log(
            caller, eyes, _intent_id(request), given.event_type, payload, idempotency=idempotency
        )
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
        caller, eyes, idempotency = await asked(request)
        made = await self.participants.coordinate(caller, eyes, draft, idempotency=idempotency)
        return self._coordinator(made.value, 201, redacted=made.redacted)

    async def get_coordinator(self, request: Request) -> Response:
        caller = current_caller(request)
        eyes, which = queries.eyes(request, caller), _coordinator_id(request)
        return self._coordinator(await self.participants.coordinator(caller, eyes, which))

    async def end_coordinator(self, request: Request) -> Response:
        caller, eyes, idempotency = await asked(request)
        ended = await self.participants.end_coordinator(
            caller, eyes, _coordinator_id(request), idempotency=idempotency
        )
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
        caller, eyes, idempotency = await asked(request)
        made = await self.participants.grant(
            caller, eyes, _intent_id(request), drafts.grant(given), idempotency=idempotency
        )
        return answered(intent_wire.grant(made.value), 201, redacted=made.redacted)

    async def revoke_grant(self, request: Request) -> Response:
        caller, eyes, idempotency = await asked(request)
        grant = GrantId(_known(request, "grant_id", NO_GRANT))
        await self.participants.revoke(
            caller, eyes, _intent_id(request), grant, idempotency=idempotency
        )
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
