"""Events: an agent's stream, and the log of an intent (RFC-0015 §5)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...engine.engine import Engine, Transaction
from ...errors import Denied, Invalid
from ...memory.idempotency import once
from ...memory.limits import require_room
from ...memory.model.access import Caller, Role
from ...memory.model.agent_events import LOGGED, AgentEvent, EventFilter, EventType
from ...memory.model.agent_memory import Access, Binding, Eyes, Labels, Tier
from ...memory.model.agents import NOT_YOUR_AGENT
from ...memory.model.intents import IntentId, Standing
from ...memory.model.stores import Written
from ...memory.redactor import Redactor, RulesOf, default_rules
from ...recall.text.json_words import object_of
from ..sql.events import AgentEventTable
from ..sql.namespaces import NamespaceTable
from . import archive, intents
from .entries import Asking, Listing, listed, portion
from .values import require_plain, screened

NAMES = frozenset({"namespace", "key", "tags"})

Left = Sequence[tuple[int, int]]
"""The sequences of events that were not read yet, with their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The events of one service."""

    engine: Engine
    rules: RulesOf = default_rules

    async def page(self, asking: Asking, filter_: EventFilter, limit: int) -> Listing[AgentEvent]:
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
        redactor = Redactor(self.rules(caller))
        require_plain(redactor, eyes.agent)
        clean = screened(redactor, payload)
        work = once(_log, check=lambda tx, eyes, intent, *_: intents.standing(tx, eyes, intent))
        event = await self.engine.write(caller, work, eyes, intent, type_, clean)
        return Written(value=event, redacted=redactor.count)


def _begin(
    tx: Transaction, eyes: Eyes, filter_: EventFilter, limit: int
) -> tuple[Sequence[AgentEvent], Left]:
    standing = _require_sight(tx, eyes, filter_)
    return _some(tx, eyes, standing, tx[AgentEventTable].listed(filter_, limit))


def _go_on(
    tx: Transaction, eyes: Eyes, filter_: EventFilter, left: Left
) -> tuple[Sequence[AgentEvent], Left]:
    return _some(tx, eyes, _require_sight(tx, eyes, filter_), left)


def _some(
    tx: Transaction, eyes: Eyes, standing: Standing | None, listed: Left
) -> tuple[Sequence[AgentEvent], Left]:
    sequences, left = portion(listed)
    events = (archive.shown(tx, event) for event in tx[AgentEventTable].some(sequences))
    if standing is None:  # of its own stream
        return list(events), left
    return [_without_hidden(tx, eyes, standing, event) for event in events], left


def _without_hidden(
    tx: Transaction, eyes: Eyes, standing: Standing, event: AgentEvent
) -> AgentEvent:
    """The event of a log without what the agent may not read: an administrator reads no values."""
    if event.type == EventType.ARCHIVED and not standing.takes_part:
        return archive.without_values(event)
    namespace = event.payload.get("namespace")
    if event.payload.get("memory_type") != Tier.SEMANTIC or not isinstance(namespace, str):
        return event
    if tx[NamespaceTable].permissions(namespace).of(eyes) >= Access.READ:
        return event
    payload = {name: it for name, it in event.payload.items() if name not in NAMES}
    return replace(event, payload=payload)


def _require_sight(tx: Transaction, eyes: Eyes, filter_: EventFilter) -> Standing | None:
    if filter_.intent is not None:
        return intents.standing(tx, eyes, filter_.intent)
    if filter_.agent != eyes.agent:
        raise Denied(NOT_YOUR_AGENT)
    return None


def _log(tx: Transaction, eyes: Eyes, intent: IntentId, type_: str, payload: str) -> AgentEvent:
    intents.seen(tx, eyes, intent)
    require_room(tx)
    labels = Labels(intent=intent, binding=Binding.INTENT)
    said = object_of(payload)
    sequence = tx[AgentEventTable].add(type_, said, labels, agent=None, actor=eyes.agent)
    return _known(tx, sequence)


def _known(tx: Transaction, sequence: int) -> AgentEvent:
    (event,) = tx[AgentEventTable].some([sequence])
    return event
