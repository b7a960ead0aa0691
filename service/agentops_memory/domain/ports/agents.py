"""The ports of agents' memory: entries, agents, permissions and events."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from ..model.agent_events import AgentEvent, EventFilter
from ..model.agent_memory import (
    AgentEntry,
    AgentEntryId,
    AgentFilter,
    AgentSpace,
    AgentSummary,
    Eyes,
    Labels,
    Namespace,
    Permissions,
    Place,
    Tier,
)
from ..model.agents import AgentExtent, AgentId, ListedAgent
from ..model.intents import IntentId
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

    def add(self, entry: AgentEntry) -> None:
        """Insert what lies beside the memory of a new entry."""

    def replace(self, entry: AgentEntry) -> None:
        """Update what lies beside its memory."""

    def listed(
        self, filter_: AgentFilter, eyes: Eyes, limit: int, offset: int
    ) -> list[tuple[MemoryId, int]]:
        """Those that these eyes may see, newest first, with the bytes of their values."""

    def some(self, memories: Sequence[MemoryId], eyes: Eyes) -> list[AgentEntry]:
        """Those of these that the eyes may see still, in their order."""

    def writable(
        self, filter_: AgentFilter, eyes: Eyes, limit: int, offset: int
    ) -> list[AgentEntry]:
        """Those that the asking agent may change, newest first; guardrails are not asked."""

    def total(self, filter_: AgentFilter, eyes: Eyes) -> int:
        """How many these eyes may see."""

    def count(self, tier: Tier, agent: AgentId) -> int:
        """How many entries of a tier an agent has."""

    def summary(self, agent: AgentId, eyes: Eyes) -> AgentSummary:
        """What these eyes may read of an agent's; its capacity is left out: no table knows it."""

    def expired(
        self, limit: int, *, agent: AgentId | None = None, until: datetime | None = None
    ) -> list[AgentEntry]:
        """Entries that have expired, by then or by now, of any agent or of one; the first first."""

    def victim(
        self, agent: AgentId, but: Collection[MemoryId], intent: IntentId | None = None
    ) -> AgentEntry | None:
        """The episodic entry that is evicted next (RFC-0015 §2.2): none if all are pinned.

        The lowest priority, then the longest not accessed, then the earliest updated; of
        those that are bound to an intent, if one is given.
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
    """Events: the streams of agents, and the logs of intents."""

    def add(
        self,
        type_: str,
        payload: Mapping[str, object],
        labels: Labels,
        *,
        agent: AgentId | None,
        actor: AgentId | None,
    ) -> int:
        """Add an event, in the transaction of what it tells, to an agent's stream; its sequence.

        It stands in the log of the intent that the labels name.
        """

    def listed(self, filter_: EventFilter, limit: int) -> list[tuple[int, int]]:
        """The sequences of events, with their bytes: newest first, or oldest after a sequence."""

    def some(self, sequences: Sequence[int]) -> list[AgentEvent]:
        """The events of these sequences that there are, in their order."""

    def fill(self, sequence: int, payload: Mapping[str, object]) -> None:
        """Let an event tell this."""

    def past(self, until: datetime, most: int, *, of_log: bool = False) -> list[int]:
        """Sequences of that time or earlier, oldest first: of memory's events, or of the rest."""

    def forget(self, sequences: Sequence[int]) -> int:
        """Remove events; how many were there."""
