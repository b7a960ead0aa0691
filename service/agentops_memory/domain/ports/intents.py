"""The ports of intents: they and who takes part, tasks, what is bound to them, archives."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from ..model.agent_memory import AgentEntry, Eyes
from ..model.agents import AgentId
from ..model.intents import (
    Coordinator,
    CoordinatorId,
    EndingEntry,
    Grant,
    GrantId,
    Guardrails,
    Intent,
    IntentId,
    PendingArchive,
    Standing,
    Task,
    TaskId,
    TaskStatus,
)


class IntentTable(Protocol):
    """Intents, and who takes part in them."""

    def add(self, intent: Intent) -> None:
        """Insert an intent."""

    def get(self, intent: IntentId) -> Intent | None:
        """The intent, whoever may see it."""

    def standing(self, intent: IntentId, eyes: Eyes) -> Standing:
        """What an agent is to an intent; nothing to one that there is not."""

    def coordinates(self, eyes: Eyes, agent: AgentId) -> bool:
        """Whether it coordinates an intent in which another agent has an unfinished task."""

    def add_coordinator(self, coordinator: Coordinator) -> None:
        """Insert a coordinator."""

    def coordinator(self, coordinator: CoordinatorId) -> Coordinator | None:
        """The coordinator, ended or not."""

    def coordinators(self, intent: IntentId) -> list[Coordinator]:
        """All that an intent has had, the first first."""

    def guardrails(self, intent: IntentId) -> list[Guardrails]:
        """What bounds the memory of an intent: of each who coordinates it now."""

    def end_coordinator(self, coordinator: CoordinatorId) -> None:
        """Let it coordinate no more."""

    def add_grant(self, grant: Grant) -> None:
        """Insert a grant."""

    def grants(self, intent: IntentId) -> list[Grant]:
        """Those on an intent, the first first."""

    def remove_grant(self, grant: GrantId) -> None:
        """Remove a grant."""


class TaskTable(Protocol):
    """Tasks."""

    def add(self, task: Task) -> None:
        """Insert a task."""

    def get(self, task: TaskId) -> Task | None:
        """The task, whoever may see it."""

    def replace(self, task: Task) -> None:
        """Update a task."""

    def listed(
        self, intent: IntentId, limit: int, offset: int, status: TaskStatus | None = None
    ) -> list[tuple[TaskId, int]]:
        """Those of an intent, the first first, with their bytes."""

    def some(self, tasks: Sequence[TaskId]) -> list[Task]:
        """Those of these that there are, in their order."""

    def past(self, until: datetime, most: int) -> list[TaskId]:
        """Those that were finished by then, and of which nothing is left to archive."""

    def forget(self, tasks: Sequence[TaskId], until: datetime) -> int:
        """Remove those that were finished by then; how many."""


class BoundTable(Protocol):
    """How much is bound to tasks and intents; what has expired does not count."""

    def count_of(self, task: Task) -> int:
        """The working entries of a task, of all agents."""

    def size_of(self, task: Task) -> int:
        """The bytes of their values."""

    def count_outside(self, agent: AgentId) -> int:
        """The working entries of an agent that are bound to no task."""

    def size_outside(self, agent: AgentId) -> int:
        """The bytes of their values."""

    def episodic_of(self, intent: IntentId, agent: AgentId) -> int:
        """The episodic entries of an agent that are bound to an intent."""

    def bind(self, task: Task) -> None:
        """Bind what its agent has under the id of a task."""


class ArchiveTable(Protocol):
    """What ends with tasks."""

    def ending(self, task: Task) -> list[EndingEntry]:
        """The working entries of a task, by agent, the first first."""

    def ending_with(self, task: Task, ttl: str, most: int) -> list[AgentEntry]:
        """Entries of other tiers that are bound to a task, and have this lifetime alone."""

    def expire_with(self, task: Task, ttl: str) -> None:
        """Let all of these have expired now."""

    def expired(self, task: Task) -> list[AgentEntry]:
        """Working entries of a task that have expired, and were not removed yet."""

    def add(self, pending: PendingArchive) -> None:
        """Let the entries of an archive be seen in its event alone."""

    def next(self, task: TaskId | None = None) -> PendingArchive | None:
        """The first that is pending, of a task if one is given."""

    def of_event(self, event: int) -> PendingArchive | None:
        """The one whose event has this sequence, if it is pending."""

    def holding(self, entry: AgentEntry) -> PendingArchive | None:
        """The one that an entry lies in, if it is pending."""

    def entries(self, pending: PendingArchive) -> list[AgentEntry]:
        """The entries that lie in one, the first first."""

    def settled(self, pending: PendingArchive) -> None:
        """Note that its entries have been moved."""
