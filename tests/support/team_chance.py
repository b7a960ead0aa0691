"""What chance lets a team of agents do: who acts, on what, and with what words."""

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from agentops_memory.memory.access import OPERATOR, AgentId, Caller, Role
from agentops_memory.memory.agents import (
    IntentId,
    Priority,
    Sensitivity,
    TaskId,
    TaskStatus,
    Tier,
    Viewer,
)
from agentops_memory.openintent.drafts import AgentChangeBody, AgentEntryBody
from agentops_memory.openintent.entries import AgentEntry, AgentFilter
from agentops_memory.openintent.tasks import MemoryPolicy, Task, TaskBody, TaskChangeBody

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

    def viewer(self, agent: AgentId) -> Viewer:
        return Viewer(agent=agent, is_admin=self.state.is_admin(agent))

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

    def draft(self, agent: AgentId) -> AgentEntryBody:
        tier = self.chance.choice([*[Tier.WORKING] * 4, *[Tier.EPISODIC] * 2, Tier.SEMANTIC])
        whose = self.chance.choice([*[agent] * 8, ADA]) if tier.has_owner else None
        namespace, scope = self.chance.choice(NAMESPACES), self.labels(agent)
        ttls = [*[None] * 6, TTL] + [LIFETIME] * ("task_id" in scope)
        said: dict[str, object] = {
            "tags": self.chance.sample(TAGS, self.chance.choice([0, 1, 2])),
            "pinned": self.chance.random() < 0.2,
            "priority": self.chance.choice(list(Priority)).name.lower(),
            "sensitivity": self.chance.choice([None, None, *map(str, Sensitivity)]),
            "ttl": self.chance.choice(ttls),
            "expires_at": self.soon() if self.is_rare() else None,
        }
        return AgentEntryBody.model_validate(
            said | {
                "agent_id": whose, "namespace": namespace, "key": self.chance.choice(KEYS),
                "value": self.value(), "memory_type": tier.value, "scope": scope,
            }
        )  # fmt: skip

    def soon(self) -> str:
        return (self.now + timedelta(seconds=30)).isoformat()

    def labels(self, agent: AgentId) -> dict[str, str]:
        tasks = [it for it in self.state.tasks.values() if it.assigned_agent == agent]
        own = [it.id for it in tasks if it.status not in FINAL]
        task = self.chance.choice([None, self.task(), *own * 3])
        is_named = task is None or self.is_rare()
        intent = self.chance.choice([None, self.intent()]) if is_named else None
        named = {"task_id": task, "intent_id": intent}
        return {name: it for name, it in named.items() if it is not None}

    def change(self) -> AgentChangeBody:
        said: dict[str, object] = {
            "value": self.chance.choice([None, self.value(), self.value()]),
            "tags": self.chance.choice([None, ["x"]]),
            "priority": self.chance.choice([None, "low", "normal", "high"]),
        }
        sensitivity = self.chance.choice(["", "", None, "confidential"])
        said = {name: it for name, it in said.items() if it is not None}
        if sensitivity != "":
            said["sensitivity"] = sensitivity
        if self.chance.random() < 0.3:
            said["ttl"] = self.chance.choice([None, TTL, LIFETIME])
        elif self.chance.random() < 0.2:
            said["expires_at"] = self.soon()
        return AgentChangeBody.model_validate(said)

    def value(self) -> dict[str, str]:
        return {"n": "v" * self.chance.choice([1, 9, 90, 600, 1100])}

    def filter(self) -> AgentFilter:
        return AgentFilter(
            agent=self.chance.choice([None, None, *TEAM]),
            namespace=self.chance.choice([None, *NAMESPACES]),
            key=self.chance.choice([None, *KEYS]),
            tier=self.chance.choice([None, *Tier]),
            task=self.chance.choice([None, None, self.task()]),
            intent=self.chance.choice([None, None, None, self.intent()]),
            is_pinned=self.chance.choice([None, False]) if self.chance.random() < 0.5 else False,
        )

    def task_draft(self, intent: IntentId) -> TaskBody:
        siblings = [it.id for it in self.state.of_intent(intent)]
        parents = [None, *siblings, *([self.task()] if self.is_rare() else [])]
        return TaskBody(
            intent_id=intent, id=self.chance.choice([None, None, self.chance.choice(CHOSEN)]),
            parent_task_id=self.chance.choice(parents),
            assigned_agent=self.chance.choice([None, *TEAM, ADA, BOB]),
            status=self.chance.choice([*[TaskStatus.PENDING] * 9, *TaskStatus]).value,
            memory_policy=self.policy(), name="read",
        )  # fmt: skip

    def task_change(self, task: Task, agent: AgentId) -> TaskChangeBody:
        """A change; the agent of the task more often says what it may."""
        is_report = agent == task.assigned_agent and not self.is_rare()
        said: dict[str, object] = {}
        if not is_report and (whom := self.chance.choice(["", None, *TEAM])) != "":
            said["assigned_agent"] = whom
        if not is_report and self.is_rare(0.33):
            said["memory_policy"] = self.policy()
        states = [None, *GOING * 4, *TaskStatus]
        status = TaskStatus.READY if task.status == "failed" else self.chance.choice(states)
        if status is not None:
            said["status"] = status.value
        return TaskChangeBody(**said, **self.chance.choice([{}, {"output": {"n": 1}}]))  # type: ignore[arg-type]

    def policy(self) -> MemoryPolicy | None:
        if self.is_rare(0.3):
            return None
        return MemoryPolicy(
            archive_on_completion=not self.is_rare(0.5),
            inherit_from_parent=not self.is_rare(0.3),
            max_entries=self.chance.choice([None, None, 1, 3]),
            max_total_size_kb=self.chance.choice([None, None, 1]),
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
