"""The stream of an agent, and the log of an intent, as they are asked for and logged (§5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from ..engine.engine import Engine, Transaction
from ..errors import BadFields, Denied, Invalid
from ..http.bodies import GIVEN, WRITTEN
from ..http.faults import fault
from ..http.protocol import Operation, Parameter
from ..http.requests import parameter, query_of
from ..memory import sight
from ..memory.changes import Written
from ..memory.idempotency import once
from ..memory.limits import require_room
from ..memory.model.access import NOT_YOUR_AGENT, Caller, Role
from ..memory.model.agent_events import LOGGED, EventType
from ..memory.model.agent_memory import Access, Binding, Eyes, Labels, Tier
from ..memory.model.intents import IntentId, Standing
from ..memory.redactor import RulesOf, default_rules
from ..recall.text.json_words import object_of
from . import api, archives
from .api import BODIES, LIMIT, PREFIX, Left, answer, listed, number, op, own, page, whose, writer
from .events import AgentEvent, EventFilter, add_event, events_with, sequences
from .intents import INTENT, Object, intent_id, require_sight, seen

NAMES = frozenset({"namespace", "key", "tags"})
EVENTS = (
    Parameter(name="event_type", help="Of this type alone."),
    Parameter(name="since", kind="instant", help="Later than this."),
    Parameter(name="after", kind="integer", help="After this `sequence`, oldest first."),
    LIMIT,
)


def _logged(type_: str) -> str:
    if type_ not in LOGGED:
        raise fault("must be one that clients log: none of memory.*, task.* and agent_assigned")
    return type_


class EventBody(BaseModel):
    """POST /api/v1/intents/{id}/events."""

    model_config = GIVEN
    event_type: Annotated[
        str, AfterValidator(_logged), Field(json_schema_extra={"enum": sorted(LOGGED)})
    ]
    payload: Object = {}


def operations(events: "Events") -> Sequence[Operation]:
    async def log(request: Request) -> Response:
        body = await BODIES.read(request, EventBody)
        payload = api.compact(body.payload, "payload")
        caller, eyes = await writer(request)
        made = await events.log(caller, eyes, intent_id(request), body.event_type, payload)
        return answer(made.value, 201, redacted=made.redacted)

    async def of_intent(request: Request) -> Response:
        page(request)
        return await _list(request, intent=intent_id(request))

    async def of_agent(request: Request) -> Response:
        page(request)
        return await _list(request, agent=own(request)[1].agent)

    async def _list(request: Request, **of: Any) -> Response:
        query, faults = query_of(request), list[tuple[str, str]]()
        since = api.instant_in(query, "since", faults)
        if faults:
            raise BadFields(faults)
        type_, after = parameter(query, "event_type"), number(request, "after", 0)
        filter_ = EventFilter(type=type_, since=since, after=after, **of)
        return await api.streamed(
            await events.page(lambda: whose(request), filter_, api.limited(request))
        )

    return (
        op("POST", f"{INTENT}/events", "log_event", "Add an event to the log of an intent.",
           log, AgentEvent, status=201, body=EventBody, headers=WRITTEN, refusals=(404,)),
        op("GET", f"{INTENT}/events", "list_events", "The log of an intent, newest first.",
           of_intent, AgentEvent, is_list=True, query=EVENTS, refusals=(404,)),
        op("GET", f"{PREFIX}/agents/{{agent}}/events", "list_agent_events",
           "What happened to the agent's memory, newest first.",
           of_agent, AgentEvent, is_list=True, query=EVENTS),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The events of one service."""

    engine: Engine
    rules: RulesOf = default_rules

    async def page(
        self, asking: api.Asking, filter_: EventFilter, limit: int
    ) -> api.Listing[AgentEvent]:
        """Events, newest first, or oldest first after a sequence.

        Of an agent its own alone, else Denied; of an intent for whom sees it, else NotFound.
        Who asks is asked before each portion.
        """
        caller, eyes = asking()
        caller.require(Role.READER)
        first, ids = await self.engine.read(caller, _begin, eyes, filter_, limit)

        async def more(left: Left) -> tuple[Sequence[AgentEvent], Left]:
            caller, eyes = asking()
            return await self.engine.read(caller, _go_on, eyes, filter_, left)

        return listed(first, ids, more)

    async def log(
        self, caller: Caller, eyes: Eyes, intent: IntentId, type_: str, payload: str
    ) -> Written[AgentEvent]:
        """Add an event of a client's to the log of an intent that it sees.

        The payload is compact JSON of an object. Invalid for a type that the service itself
        tells, or that no reader of a log knows.
        """
        caller.require(Role.WRITER)
        if type_ not in LOGGED:
            raise Invalid("event_type must be one that clients log: no memory.*, no task.*.")
        redactor = api.redactor_for(self.rules, caller, eyes.agent)
        clean = api.screened(redactor, payload)
        work = once(_log, check=lambda tx, eyes, intent, *_: require_sight(tx, eyes, intent))
        event = await self.engine.write(caller, work, eyes, intent, type_, clean)
        return Written(value=event, redacted=redactor.count)


def _begin(
    tx: Transaction, eyes: Eyes, filter_: EventFilter, limit: int
) -> tuple[Sequence[AgentEvent], Left]:
    standing = _require_sight(tx, eyes, filter_)
    return _some(tx, eyes, standing, sequences(tx, filter_, limit))


def _go_on(
    tx: Transaction, eyes: Eyes, filter_: EventFilter, left: Left
) -> tuple[Sequence[AgentEvent], Left]:
    return _some(tx, eyes, _require_sight(tx, eyes, filter_), left)


def _require_sight(tx: Transaction, eyes: Eyes, filter_: EventFilter) -> Standing | None:
    if filter_.intent is not None:
        return require_sight(tx, eyes, filter_.intent)
    if filter_.agent != eyes.agent:
        raise Denied(NOT_YOUR_AGENT)
    return None


def _some(
    tx: Transaction, eyes: Eyes, standing: Standing | None, left: Left
) -> tuple[Sequence[AgentEvent], Left]:
    ids, left = api.portion(left)
    events = (archives.shown(tx, event) for event in events_with(tx, ids))
    if standing is None:  # of its own stream
        return list(events), left
    return [_without_hidden(tx, eyes, standing, event) for event in events], left


def _without_hidden(
    tx: Transaction, eyes: Eyes, standing: Standing, event: AgentEvent
) -> AgentEvent:
    """The event of a log without what the agent may not read: an administrator reads no values."""
    if event.type == EventType.ARCHIVED and not standing.takes_part:
        return archives.without_values(event)
    namespace = event.payload.get("namespace")
    if event.payload.get("memory_type") != Tier.SEMANTIC or not isinstance(namespace, str):
        return event
    if sight.permissions(tx, namespace).of(eyes) >= Access.READ:
        return event
    payload = {name: it for name, it in event.payload.items() if name not in NAMES}
    return event.model_copy(update={"payload": payload})


def _log(tx: Transaction, eyes: Eyes, intent: IntentId, type_: str, payload: str) -> AgentEvent:
    seen(tx, eyes, intent)
    require_room(tx)
    labels = Labels(intent=intent, binding=Binding.INTENT)
    said = object_of(payload)
    sequence = add_event(tx, type_, said, labels, agent=None, actor=eyes.agent)
    (event,) = events_with(tx, [sequence])
    return event
