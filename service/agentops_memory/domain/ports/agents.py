"""The ports of agents' memory: entries, agents, permissions and events."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from ..model.agent_events import AgentEvent, EventType
from ..model.agent_memory import (
    AgentDraft,
    AgentEntry,
    AgentEntryId,
    AgentFilter,
    AgentSpace,
    AgentSummary,
    Eyes,
    Namespace,
    Permissions,
    Place,
    Tier,
)
from ..model.agents import AgentExtent, AgentId, ListedAgent
from ..model.memory import MemoryId
from ..model.space import Space


class AgentTable(Protocol):
    """Entries, whose text and revision lie in the memories; what has expired is not there."""

    def space(self, space: AgentSpace) -> Space:
        """The space of the record, made with its first entry."""

    def get(self, entry: AgentEntryId, eyes: Eyes) -> AgentEntry | None:
        """The entry, if these eyes may see it."""

    def one(self, memory: MemoryId) -> AgentEntry | None:
        """The entry that a memory is, whoever may see it; None if it is none."""

    def at(self, place: Place) -> AgentEntry | None:
        """The entry at a place, whoever may see it, also one that has expired."""

    def add(self, memory: MemoryId, draft: AgentDraft, maker: AgentId) -> AgentEntry:
        """Insert what lies beside the memory of a new entry."""

    def replace(self, entry: AgentEntry) -> None:
        """Update what lies beside its memory."""

    def listed(
        self, filter_: AgentFilter, eyes: Eyes, limit: int, offset: int
    ) -> list[tuple[MemoryId, int]]:
        """Those that these eyes may see, newest first, with the bytes of their values."""

    def some(self, memories: Sequence[MemoryId], eyes: Eyes) -> list[AgentEntry]:
        """Those of these that the eyes may see still, in their order."""

    def writable(self, filter_: AgentFilter, eyes: Eyes, limit: int) -> list[AgentEntry]:
        """Those that the asking agent may change, newest first."""

    def total(self, filter_: AgentFilter, eyes: Eyes) -> int:
        """How many these eyes may see."""

    def count(self, tier: Tier, agent: AgentId) -> int:
        """How many entries of a tier an agent has."""

    def summary(self, eyes: Eyes) -> AgentSummary:
        """What an agent has; without its capacity, which the table does not know."""

    def expired(
        self, limit: int, *, agent: AgentId | None = None, until: datetime | None = None
    ) -> list[AgentEntry]:
        """Entries that have expired, by then or by now, of any agent or of one; the first first."""

    def victim(self, agent: AgentId, but: Collection[MemoryId]) -> AgentEntry | None:
        """The episodic entry that is evicted next (RFC-0015 §2.2): none if all are pinned.

        The lowest priority, then the longest not accessed, then the earliest updated.
        """

    def touch(self, accesses: Mapping[MemoryId, datetime]) -> None:
        """Note when entries were last accessed; what is gone is left out."""


class AgentDirectory(Protocol):
    """Whole agents: what each has, and what an operator has said of it."""

    def all(self) -> list[ListedAgent]:
        """Every agent of which something is stored, by name."""

    def exists(self, agent: AgentId) -> bool:
        """Whether anything is stored of the agent."""

    def extent(self, agent: AgentId) -> AgentExtent:
        """The counts of what the agent has."""

    def capacity(self, agent: AgentId) -> int | None:
        """How many episodic entries it may hold; None if nothing was said of that."""

    def set_capacity(self, agent: AgentId, capacity: int | None) -> None:
        """Say how many episodic entries it may hold; None takes back what was said."""

    def some(self, agent: AgentId, limit: int) -> list[MemoryId]:
        """A batch of entries to erase, expired ones too; fewer than the limit if they are long."""

    def some_events(self, agent: AgentId, limit: int) -> list[int]:
        """The sequences of a batch of the agent's stream."""

    def counted(self, entries: Sequence[MemoryId]) -> AgentExtent:
        """The counts of some entries."""

    def remove(self, agent: AgentId) -> None:
        """Remove what is left of an agent without entries: its spaces, and what was said of it."""

    def empty_spaces(self, most: int) -> list[int]:
        """Spaces in which there is nothing any more, but for their names."""

    def drop_spaces(self, spaces: Sequence[int]) -> int:
        """Remove those of the spaces that are empty still; how many."""


class NamespaceTable(Protocol):
    """Semantic namespaces."""

    def page(self, eyes: Eyes, limit: int, offset: int) -> list[Namespace]:
        """Those that these eyes may read, by name."""

    def total(self, eyes: Eyes) -> int:
        """How many these eyes may read."""

    def get(self, namespace: str, eyes: Eyes) -> Namespace | None:
        """The namespace, if these eyes may read it and there is something of it."""

    def permissions(self, namespace: str) -> Permissions:
        """Who may do what in a namespace; what holds for all where nothing was said of it."""

    def permit(self, namespace: str, permissions: Permissions) -> None:
        """Say who may do what in a namespace."""


class AgentEventTable(Protocol):
    """The streams of agents."""

    def add(
        self,
        type_: EventType,
        entry: AgentEntry,
        payload: Mapping[str, object],
        actor: AgentId | None,
    ) -> None:
        """Add an event of an entry, in the transaction of what it tells."""

    def page(
        self,
        agent: AgentId,
        limit: int,
        *,
        type_: str | None,
        since: datetime | None,
        after: int | None,
    ) -> Sequence[AgentEvent]:
        """Events of an agent's stream: newest first, or oldest first from a sequence on."""

    def past(self, until: datetime, most: int) -> list[int]:
        """The sequences of events of that time or earlier, oldest first."""

    def forget(self, sequences: Sequence[int]) -> int:
        """Remove events; how many were there."""
