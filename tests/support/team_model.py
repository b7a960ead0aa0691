"""What a team's work and memory should be, by the contract alone: who sees, reads and writes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentops_memory.memory.access import AgentId
from agentops_memory.memory.agents import (
    Access,
    AgentEntryId,
    Binding,
    CoordinatorId,
    GrantId,
    IntentId,
    Permissions,
    TaskId,
    Tier,
)
from agentops_memory.openintent.entries import AgentEntry, AgentFilter, EntryKey
from agentops_memory.openintent.intents import Intent
from agentops_memory.openintent.participants import Coordinator, Grant
from agentops_memory.openintent.tasks import Task

from .service import Clock

FINAL = ("completed", "failed", "cancelled", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An event that there should be: in whose stream it stands, and in which intent's log."""

    type: str
    payload: Mapping[str, object]
    stream: AgentId | None
    actor: AgentId | None
    log: IntentId | None

    @property
    def words(self) -> str:
        """All of it as text."""
        said = json.dumps(self.payload, sort_keys=True)
        return f"{self.type} {said} {self.stream} {self.actor} {self.log}"


@dataclass
class State:
    """What there should be; the nouns are the service's, the rules are not."""

    clock: Clock
    admins: frozenset[AgentId]
    intents: dict[IntentId, Intent] = field(default_factory=dict)
    tasks: dict[TaskId, Task] = field(default_factory=dict)
    coordinators: dict[CoordinatorId, Coordinator] = field(default_factory=dict)
    grants: dict[GrantId, Grant] = field(default_factory=dict)
    rows: dict[AgentEntryId, AgentEntry] = field(default_factory=dict)  # expired ones, too
    accessed: dict[AgentEntryId, object] = field(default_factory=dict)
    permissions: dict[str, Permissions] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)

    def saved(self) -> dict[str, Any]:
        """What `restore` brings back."""
        return {name: it.copy() for name, it in vars(self).items() if isinstance(it, dict | list)}

    def restore(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)

    # Who is what to an intent (section 9).

    def is_admin(self, agent: AgentId) -> bool:
        return agent in self.admins

    def coordinates(self, agent: AgentId, intent: IntentId) -> bool:
        return any(it.agent_id == agent for it in self.active(intent))

    def active(self, intent: IntentId) -> Iterator[Coordinator]:
        for it in self.coordinators.values():
            ends = it.expires_at
            if (
                it.intent_id == intent
                and not it.is_ended
                and (ends is None or ends > self.clock.now)
            ):
                yield it

    def is_granted(self, agent: AgentId, intent: IntentId) -> bool:
        return any(
            it.intent == intent
            and it.principal_id == agent
            and (it.expires_at is None or it.expires_at > self.clock.now)
            for it in self.grants.values()
        )

    def governs(self, agent: AgentId, intent: IntentId) -> bool:
        held = self.intents.get(intent)
        return held is not None and (held.created_by == agent or self.is_admin(agent))

    def directs(self, agent: AgentId, intent: IntentId) -> bool:
        return self.governs(agent, intent) or (
            intent in self.intents and self.coordinates(agent, intent)
        )

    def sees(self, agent: AgentId, intent: IntentId) -> bool:
        return self.governs(agent, intent) or self.takes_part(agent, intent)

    def takes_part(self, agent: AgentId, intent: IntentId) -> bool:
        held = self.intents.get(intent)
        return (
            (held is not None and held.created_by == agent)
            or self.coordinates(agent, intent)
            or self.is_granted(agent, intent)
            or any(
                it.intent_id == intent and it.assigned_agent == agent for it in self.tasks.values()
            )
        )

    def seen_task(self, agent: AgentId, task: str | None) -> Task | None:
        found = None if task is None else self.tasks.get(TaskId(task))
        return found if found and self.sees(agent, found.intent_id) else None

    def of_intent(self, intent: IntentId) -> list[Task]:
        found = [it for it in self.tasks.values() if it.intent_id == intent]
        return sorted(found, key=lambda it: (it.created_at, it.id))

    # Who reads and writes an entry (section 5).

    def is_live(self, entry: AgentEntry) -> bool:
        ends = entry.expires_at
        return ends is None or ends > self.clock.now

    def access(self, agent: AgentId, namespace: str) -> Access:
        if self.is_admin(agent):
            return Access.ADMIN
        said = self.permissions.get(namespace, Permissions())
        return said.allow.get(agent, said.default)

    def reads(self, agent: AgentId, entry: AgentEntry) -> bool:
        space = entry.entry_key
        if not self.is_live(entry):
            return False
        if space.owner is None:
            return self.access(agent, space.namespace) >= Access.READ
        if space.owner == agent:
            return True
        if space.tier is Tier.EPISODIC:
            return self._coordinates_work_of(agent, space.owner)
        if entry.scope.binding is not Binding.TASK:
            return False
        return self._reads_task(agent, self.tasks[TaskId(str(entry.scope.task))])

    def _coordinates_work_of(self, agent: AgentId, owner: AgentId) -> bool:
        return any(
            it.assigned_agent == owner
            and it.status not in FINAL
            and self.coordinates(agent, it.intent_id)
            for it in self.tasks.values()
        )

    def _reads_task(self, agent: AgentId, task: Task) -> bool:
        if task.status in FINAL:
            return False
        if task.assigned_agent == agent or self.coordinates(agent, task.intent_id):
            return True
        return self.is_granted(agent, task.intent_id) or any(
            it.parent_task_id == task.id
            and it.assigned_agent == agent
            and it.status not in FINAL
            and it.memory_policy is not None
            and it.memory_policy.inherit_from_parent
            for it in self.tasks.values()
        )

    def writes(self, agent: AgentId, space: EntryKey) -> bool:
        if space.owner is None:
            return self.access(agent, space.namespace) >= Access.WRITE
        return space.owner == agent

    # What is where.

    def at(self, place: EntryKey) -> AgentEntry | None:
        return next((it for it in self.rows.values() if it.entry_key == place), None)

    def readable(self, agent: AgentId, filter_: AgentFilter | None = None) -> list[AgentEntry]:
        """What it reads, newest first."""
        found = [it for it in self.rows.values() if self.reads(agent, it)]
        if filter_ is not None:
            found = [it for it in found if fits(filter_, it)]
        return sorted(found, key=lambda it: -it.memory)

    def owned(self, agent: AgentId, tier: Tier) -> list[AgentEntry]:
        return [
            it
            for it in self.rows.values()
            if (it.memory_type, it.owner) == (tier, agent) and self.is_live(it)
        ]

    def working_of(self, task: Task) -> list[AgentEntry]:
        """The working rows that are bound to a task, by agent and age."""
        found = [it for it in self.rows.values() if is_bound_working(it, task.id)]
        return sorted(found, key=lambda it: (it.owner or "", it.memory))

    def rails(self, intent: str | None) -> list[dict[str, Any]]:
        """The guardrails of those who coordinate an intent now."""
        if intent is None:
            return []
        every = (json.loads(it.details) for it in self.active(IntentId(intent)))
        return [it.get("guardrails", {}) for it in every]


def is_bound_working(entry: AgentEntry, task: str) -> bool:
    labels = entry.scope
    is_working = entry.memory_type is Tier.WORKING
    return is_working and labels.binding is Binding.TASK and labels.task == task


def fits(filter_: AgentFilter, entry: AgentEntry) -> bool:
    """Whether an entry is one that is asked for, by what these tests ask for."""
    space = entry.entry_key
    return (
        filter_.agent in (None, space.owner or entry.created_by)
        and filter_.namespace in (None, space.namespace)
        and filter_.key in (None, entry.key)
        and filter_.tier in (None, space.tier)
        and filter_.task in (None, entry.scope.task)
        and filter_.intent in (None, entry.scope.intent)
        and filter_.is_pinned in (None, entry.pinned)
    )
