"""What chance lets a team of agents do: who acts, on what, and with what words."""

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from agentops_memory.memory.model.access import OPERATOR, Caller, Role
from agentops_memory.memory.model.agent_memory import (
    KEPT,
    AgentChange,
    AgentDraft,
    AgentEntry,
    AgentFilter,
    AgentSpace,
    Eyes,
    Handling,
    Labels,
    Place,
    Priority,
    Sensitivity,
    Tier,
)
from agentops_memory.memory.model.agents import AgentId
from agentops_memory.memory.model.intents import (
    IntentId,
    MemoryPolicy,
    Task,
    TaskChange,
    TaskDraft,
    TaskId,
    TaskStatus,
)

from .service import Clock
from .team_model import FINAL, State
from .team_rules import LIFETIME, TTL

T = TypeVar("T")

LEAD, ADA, BOB, CYN = TEAM = [AgentId(name) for name in ("lead", "ada", "bob", "cyn")]
ROOT = AgentId("root")
NAMESPACES, KEYS, TAGS = ("notes", "facts"), ("a", "b", "c", "d", "e", "f"), ("x", "y")
CHOSEN = [TaskId(f"task-{number}") for number in range(6)]
MOST_INTENTS, MOST_TASKS = 3, 20
GOING = [it for it in TaskStatus if it not in FINAL]


class Chance:
    """A team, of which one may make intents; with every second seed, an administrator too."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self.clock = clock
        self.chance = random.Random(seed)  # noqa: S311 - the same each time
        admins = [ROOT] if seed % 2 else []
        self.agents = [*TEAM, *admins]
        self.state = State(clock, frozenset(admins))

    @property
    def now(self) -> datetime:
        return self.clock()

    def agent(self) -> AgentId:
        return self.chance.choice(self.agents)

    def eyes(self, agent: AgentId) -> Eyes:
        return Eyes(agent=agent, is_admin=self.state.is_admin(agent))

    def caller(self, agent: AgentId) -> Caller:
        role = Role.ADMIN if self.state.is_admin(agent) else Role.WRITER
        return replace(OPERATOR, role=role, coordinates=agent == LEAD)

    def is_rare(self, share: float = 0.1) -> bool:
        return self.chance.random() < share

    def intent(self) -> IntentId:
        return self.chance.choice([*[*self.state.intents] * 4, IntentId("none")])

    def task(self) -> TaskId:
        """A task, more often one that goes on; or one that there is not, or not yet."""
        tasks = [*self.state.tasks.values()]
        going = [it.id for it in tasks if it.status not in FINAL or it.status == "failed"]
        return self.chance.choice([*going * 3, *self.state.tasks, self.chance.choice(CHOSEN)])

    def some(self, every: Iterable[T]) -> list[T]:
        """Two of them, or what there is."""
        found = [*every]
        return self.chance.sample(found, min(2, len(found)))

    def one_of(self, most: AgentId, *others: AgentId) -> AgentId:
        """An agent, more often the first."""
        return self.chance.choice([*[most] * 4, *others, self.agent()])

    def director(self, intent: IntentId) -> AgentId:
        held = self.state.intents.get(intent)
        return LEAD if held is None else held.created_by

    def entry(self) -> AgentEntry | None:
        rows = [*self.state.rows.values()]
        return self.chance.choice(rows) if rows else None

    def own_entry(self, agent: AgentId) -> AgentEntry | None:
        """One that it has written, more often than not."""
        own = [it for it in self.state.rows.values() if it.created_by == agent]
        return self.chance.choice(own) if own and not self.is_rare() else self.entry()

    def row(self, entry: AgentEntry) -> AgentEntry | None:
        return self.state.rows.get(entry.id)

    def ends(self) -> datetime | None:
        return self.chance.choice([None, self.now + timedelta(seconds=60)])

    def draft(self, agent: AgentId) -> AgentDraft:
        tier = self.chance.choice([*[Tier.WORKING] * 4, *[Tier.EPISODIC] * 2, Tier.SEMANTIC])
        whose = self.chance.choice([*[agent] * 8, ADA]) if tier.has_owner else None
        space = AgentSpace(tier=tier, agent=whose, namespace=self.chance.choice(NAMESPACES))
        labels = self.labels(agent)
        ttls = [*[None] * 6, TTL] + [LIFETIME] * (labels.task is not None)
        handling = Handling(
            tags=tuple(self.chance.sample(TAGS, self.chance.choice([0, 1, 2]))),
            is_pinned=self.chance.random() < 0.2,
            priority=self.chance.choice(list(Priority)),
            sensitivity=self.chance.choice([None, None, *Sensitivity]),
            ttl=self.chance.choice(ttls),
            expires_at=self.now + timedelta(seconds=30) if self.is_rare() else None,
        )
        place = Place(space=space, key=self.chance.choice(KEYS))
        return AgentDraft(place=place, value=self.value(), handling=handling, labels=labels)

    def labels(self, agent: AgentId) -> Labels:
        tasks = [it for it in self.state.tasks.values() if it.agent == agent]
        own = [it.id for it in tasks if it.status not in FINAL]
        task = self.chance.choice([None, self.task(), *own * 3])
        is_named = task is None or self.is_rare()
        return Labels(
            task=task, intent=self.chance.choice([None, self.intent()]) if is_named else None
        )

    def change(self) -> AgentChange:
        change = AgentChange(
            value=self.chance.choice([None, self.value(), self.value()]),
            tags=self.chance.choice([None, ("x",)]),
            priority=self.chance.choice([None, *Priority]),
            sensitivity=self.chance.choice([KEPT, KEPT, None, Sensitivity.CONFIDENTIAL]),
        )
        if self.chance.random() < 0.3:
            return replace(change, ttl=self.chance.choice([None, TTL, LIFETIME]))
        if self.chance.random() < 0.2:
            return replace(change, expires_at=self.now + timedelta(seconds=30))
        return change

    def value(self) -> str:
        return json.dumps(
            {"n": "v" * self.chance.choice([1, 9, 90, 600, 1100])}, separators=(",", ":")
        )

    def filter(self) -> AgentFilter:
        return AgentFilter(
            agent=self.chance.choice([None, None, *TEAM]),
            namespace=self.chance.choice([None, *NAMESPACES]),
            key=self.chance.choice([None, *KEYS]),
            tier=self.chance.choice([None, *Tier]),
            labels=Labels(
                task=self.chance.choice([None, None, self.task()]),
                intent=self.chance.choice([None, None, None, self.intent()]),
            ),
            is_pinned=self.chance.choice([None, False]) if self.chance.random() < 0.5 else False,
        )

    def task_draft(self, intent: IntentId) -> TaskDraft:
        siblings = [it.id for it in self.state.of_intent(intent)]
        parents = [None, *siblings, *([self.task()] if self.is_rare() else [])]
        return TaskDraft(
            intent=intent,
            id=self.chance.choice([None, None, self.chance.choice(CHOSEN)]),
            parent=self.chance.choice(parents),
            agent=self.chance.choice([None, *TEAM, ADA, BOB]),
            status=self.chance.choice([*[TaskStatus.PENDING] * 9, *TaskStatus]),
            policy=self.policy(),
            details='{"name":"read"}',
        )

    def task_change(self, task: Task, agent: AgentId) -> TaskChange:
        """A change; the agent of the task more often says what it may."""
        is_report = agent == task.agent and not self.is_rare()
        whom = KEPT if is_report else self.chance.choice([KEPT, None, *TEAM])
        policy = KEPT if is_report else self.chance.choice([KEPT, KEPT, self.policy()])
        states = [None, *GOING * 4, *TaskStatus]
        return TaskChange(
            status=TaskStatus.READY if task.status == "failed" else self.chance.choice(states),
            agent=whom,
            policy=policy,
            details=self.chance.choice(["{}", '{"output":{"n":1}}']),
            is_report=whom is KEPT and policy is KEPT,
        )

    def policy(self) -> MemoryPolicy | None:
        if self.is_rare(0.3):
            return None
        return MemoryPolicy(
            archives=not self.is_rare(0.5),
            inherits=not self.is_rare(0.3),
            max_entries=self.chance.choice([None, None, 1, 3]),
            max_size=self.chance.choice([None, None, 1]),
        )

    def rails(self) -> dict[str, object]:
        said = {
            "max_working_memory_per_task": self.chance.choice([0, 1, 2]),
            "max_episodic_memory_per_agent": self.chance.choice([0, 1, 2]),
            "allowed_semantic_namespaces": [self.chance.choice(NAMESPACES)],
            "denied_semantic_namespaces": [self.chance.choice(NAMESPACES)],
            "memory_archive_required": self.chance.choice([True, True, False]),
        }
        return {name: value for name, value in said.items() if self.is_rare(0.4)}
