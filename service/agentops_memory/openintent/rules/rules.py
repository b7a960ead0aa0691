"""What holds for every write of agents' memory: access, places, capacity, events."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ...engine.engine import Transaction
from ...errors import Conflict, Denied, NotFound, Refusal, Unavailable
from ...memory.limits import require_room
from ...memory.model.agent_events import EventType
from ...memory.model.agent_memory import (
    Access,
    AgentDraft,
    AgentEntry,
    AgentEntryId,
    Eyes,
    Labels,
    Place,
    Tier,
)
from ...memory.model.agents import AgentId
from ...memory.model.erasure import ErasureId
from ...memory.model.intents import IntentId
from ...memory.model.memory import MemoryId
from ...memory.model.retention import Capacities
from ...memory.sql.memories import MemoryTable
from ...memory.sql.receipts import ReceiptTable
from ..sql.agents import AgentDirectory
from ..sql.archives import BoundTable
from ..sql.entries import AgentTable
from ..sql.events import AgentEventTable
from ..sql.namespaces import NamespaceTable
from .binding import TASK_LIFETIME, OverCapacity, most_episodic, require_working_room

NO_ENTRY = "No such entry."
ENDED, TASK_ENDED = "expired", "task_ended"  # the reasons of an event
MOST_EVICTED = 100  # in one transaction: a capacity that was lowered is reached step by step


class Taken(Conflict):
    """A live entry lies at the place (§1.2)."""

    code = "stale"

    def __init__(self, current: AgentEntry) -> None:
        super().__init__("There is an entry at this key already.")
        self.current = current


class Outdated(Conflict):
    """The entry is not at the version that was expected (§3.2)."""

    code = "stale"

    def __init__(self, current: AgentEntry) -> None:
        super().__init__(f"The entry is at version {current.version}.")
        self.current = current


class KeyLost(Unavailable):
    """The value is sealed, and nothing opens it now (§9.2)."""

    def __init__(self) -> None:
        super().__init__(
            "This value cannot be opened: its key is not in the seal file, or it is damaged. Put "
            "the file back; until then the entry takes a new value, or can be deleted."
        )


class AtItem(Refusal):
    """An item of a batch is refused, and so is all of it, by the code of its refusal."""

    code = "invalid_input"  # of those that tell no items apart

    def __init__(self, number: int, refusal: Refusal) -> None:
        super().__init__(f"entries[{number}]: {refusal}")
        self.number, self.refusal = number, refusal


def known(tx: Transaction, entry: AgentEntryId, eyes: Eyes) -> AgentEntry:
    """The entry; NotFound for one that there is not, or that these eyes may not see."""
    found = tx[AgentTable].get(entry, eyes)
    if found is None:
        raise NotFound(NO_ENTRY)
    return found


def require_write(tx: Transaction, place: Place, eyes: Eyes) -> None:
    """Refuse who may not write at a place: what may be read is Denied, what is hidden NotFound."""
    space = place.space
    if space.agent is not None:
        if space.agent != eyes.agent:
            raise Denied("An agent writes its own memory alone.")
        return
    access = tx[NamespaceTable].permissions(space.namespace).of(eyes)
    if access < Access.WRITE:
        raise Denied("The agent may not write in this namespace.")


def require_version(entry: AgentEntry, version: int | None) -> None:
    """Raise Outdated unless the entry is at this version; None is any."""
    if version is not None and version != entry.version:
        raise Outdated(entry)


def make_room(
    tx: Transaction,
    draft: AgentDraft,
    capacities: Capacities,
    but: Collection[MemoryId] = (),
    most_evicted: int = MOST_EVICTED,
) -> int:
    """Let a new entry fit; how many others were evicted for it.

    Episodic ones make room, those that have expired first; of working ones there is an end.
    OverCapacity, with nothing changed, where none may go.
    """
    require_room(tx)
    space = draft.place.space
    if space.agent is None:
        return 0
    agent = space.agent
    if space.tier is Tier.WORKING:
        size = len(draft.value.encode())
        require_working_room(tx, agent, draft.labels, capacities, size)
        return 0
    evicted = 0
    for limit in _episodic_limits(tx, agent, draft.labels, capacities):
        evicted += _evict(tx, agent, limit, but, most_evicted - evicted)
    return evicted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """How many episodic entries an agent may hold: in all, or bound to an intent."""

    name: str
    count: int
    most: int
    intent: IntentId | None = None


def _episodic_limits(
    tx: Transaction, agent: AgentId, labels: Labels, capacities: Capacities
) -> Iterator[_Limit]:
    most = most_episodic(tx, labels)
    if most is not None and labels.intent is not None:
        intent = IntentId(labels.intent)
        yield _Limit(
            name="max_episodic_memory_per_agent",
            count=tx[BoundTable].episodic_of(intent, agent),
            most=most,
            intent=intent,
        )
    yield _Limit(
        name="episodic_capacity",
        count=tx[AgentTable].count(Tier.EPISODIC, agent),
        most=episodic_capacity(tx, agent, capacities),
    )


def _evict(
    tx: Transaction, agent: AgentId, limit: _Limit, but: Collection[MemoryId], most_evicted: int
) -> int:
    over = max(0, min(limit.count + 1 - limit.most, most_evicted))
    if over > 0:
        for gone in tx[AgentTable].expired(MOST_EVICTED, agent=agent):
            expire(tx, gone)
    for _ in range(over):
        victim = tx[AgentTable].victim(agent, but, limit.intent)
        if victim is None:
            raise OverCapacity(limit.name, limit.count, limit.most)
        remove(tx, victim, EventType.EVICTED, reason="capacity")
    return over


def episodic_capacity(tx: Transaction, agent: AgentId, capacities: Capacities) -> int:
    """How many episodic entries an agent may hold: its own number, else that of all."""
    return tx[AgentDirectory].capacity(agent) or capacities.episodic


def remove(
    tx: Transaction,
    entry: AgentEntry,
    type_: EventType,
    *,
    actor: Eyes | None = None,
    reason: str | None = None,
) -> None:
    """Remove an entry for good, with its event; its bytes leave the files soon."""
    tx[MemoryTable].erase(entry.memory)
    note(tx, type_, entry, actor, reason=reason)
    add_receipt(tx)


def expire(tx: Transaction, entry: AgentEntry) -> None:
    """Remove an entry that has ended by itself, or with its task."""
    with_task = entry.handling.ttl == TASK_LIFETIME and not entry.handling.is_own_expiry
    reason = TASK_ENDED if with_task else ENDED
    remove(tx, entry, EventType.EXPIRED, reason=reason)


def add_receipt(tx: Transaction) -> None:
    """Let the bytes leave the files of what this transaction removes, and of all before it."""
    tx[ReceiptTable].add_of_agents(ErasureId(tx.new_uid(tx.now)))


def note(
    tx: Transaction,
    type_: EventType,
    entry: AgentEntry,
    actor: Eyes | None,
    *,
    before: AgentEntry | None = None,
    reason: str | None = None,
) -> None:
    """Write the event of a change, which tells no value (§5.2)."""
    payload: dict[str, object] = {
        "entry_id": entry.id,
        "namespace": entry.place.space.namespace,
        "key": entry.place.key,
        "memory_type": entry.place.space.tier.value,
        "version": entry.version,
        "tags": list(entry.handling.tags),
    }
    if before is not None:
        payload["previous_version"] = before.version
    if reason is not None:
        payload["reason"] = reason
    who = None if actor is None else actor.agent
    owner = entry.place.space.agent or who or entry.created_by
    tx[AgentEventTable].add(type_, payload, entry.labels, agent=owner, actor=who)
