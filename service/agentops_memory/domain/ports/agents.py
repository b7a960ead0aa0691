"""The ports of agents' memory: entries, permissions and events."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from ..model.agent_memory import (
    AgentDraft,
    AgentEntry,
    AgentEntryId,
    AgentEvent,
    AgentFilter,
    AgentSpace,
    EventType,
    Eyes,
    Permissions,
    Place,
    Tier,
)
from ..model.agents import AgentId
from ..model.memory import MemoryId
from ..model.space import Space


class AgentTable(Protocol):
    """Entries, whose text and revision lie in the memories; what has expired is not there."""

    def space(self, space: AgentSpace) -> Space:
        """The space of the record, made with its first entry."""

    def get(self, entry: AgentEntryId, eyes: Eyes) -> AgentEntry | None:
        """The entry, if these eyes may see it."""

    def at(self, place: Place) -> AgentEntry | None:
        """The entry at a place, whoever may see it, also one that has expired."""

    def add(self, memory: MemoryId, draft: AgentDraft, maker: AgentId) -> AgentEntry:
        """Insert what lies beside the memory of a new entry."""

    def replace(self, entry: AgentEntry) -> None:
        """Update what lies beside its memory."""

    def page(self, filter_: AgentFilter, eyes: Eyes, limit: int, offset: int) -> list[AgentEntry]:
        """Those that these eyes may see, newest first; fewer than the limit at the end alone."""

    def total(self, filter_: AgentFilter, eyes: Eyes) -> int:
        """How many these eyes may see."""

    def count(self, tier: Tier, agent: AgentId) -> int:
        """How many entries of a tier an agent has."""

    def expired(self, limit: int, agent: AgentId | None = None) -> list[AgentEntry]:
        """Entries that have expired, of any agent or of one."""

    def victim(self, agent: AgentId, but: Collection[MemoryId]) -> AgentEntry | None:
        """The episodic entry that is evicted next (RFC-0015 §2.2): none if all are pinned.

        The lowest priority, then the longest not accessed, then the earliest updated.
        """

    def touch(self, accesses: Mapping[MemoryId, datetime]) -> None:
        """Note when entries were last accessed; what is gone is left out."""


class NamespaceTable(Protocol):
    """Semantic namespaces."""

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

    def newest(
        self, agent: AgentId, limit: int, *, type_: str | None, since: datetime | None
    ) -> Sequence[AgentEvent]:
        """Events of an agent's stream, newest first."""

    def after(self, agent: AgentId, sequence: int, limit: int) -> Sequence[AgentEvent]:
        """Events of an agent's stream with a higher sequence, oldest first."""
