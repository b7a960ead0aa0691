"""Events of agents' memory: what happened to entries, in order (RFC-0015 §5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from .agent_memory import Labels
from .agents import AgentId


class EventType(StrEnum):
    """What happened to an entry (§5.1)."""

    CREATED = "memory.created"
    UPDATED = "memory.updated"
    DELETED = "memory.deleted"
    EVICTED = "memory.evicted"
    EXPIRED = "memory.expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """One change of an entry, of which it tells no value."""

    id: str
    sequence: int
    type: EventType
    agent: AgentId  # whose stream it stands in
    actor: AgentId | None  # None where nobody did it
    labels: Labels
    payload: Mapping[str, object]
    at: datetime
