"""A team of agents that do as chance says, through the services and by the model alike."""

import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from agentops_memory.engine.engine import Engine
from agentops_memory.errors import AtItem, Refusal
from agentops_memory.jobs import retention as sweeping
from agentops_memory.memory.access import OPERATOR, AgentId, Caller, Role
from agentops_memory.memory.agents import (
    Access,
    AgentEntryId,
    CoordinatorId,
    GrantId,
    IntentId,
    Permission,
    Permissions,
    Priority,
    Sensitivity,
    TaskId,
    TaskStatus,
    Tier,
    Viewer,
)
from agentops_memory.memory.retention import Capacities, Kind
from agentops_memory.openintent.drafts import AgentBatchItem, AgentChangeBody, AgentEntryBody
from agentops_memory.openintent.entries import AgentEntry, AgentFilter
from agentops_memory.openintent.events import Events
from agentops_memory.openintent.intents import (
    Coordinator,
    CoordinatorBody,
    Grant,
    GrantBody,
    IntentBody,
    Intents,
    Participants,
)
from agentops_memory.openintent.memory import AgentEntries
from agentops_memory.openintent.namespaces import Namespaces, PermissionsBody
from agentops_memory.openintent.tasks import MemoryPolicy, Task, TaskBody, TaskChangeBody, Tasks

from .service import Clock
from .team_model import FINAL, UNKNOWN, Asked, State, differences, expected, looked
from .team_rules import LIFETIME, TTL, Entries, Work

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

    def voice(self, agent: AgentId) -> tuple[Caller, Viewer]:
        return self.caller(agent), self.viewer(agent)

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


CAPACITIES = Capacities(working=4, episodic=4)


class Memory(Chance):
    """Steps by chance, each compared with the model, and after each what every agent is shown."""

    def __init__(self, engine: Engine, clock: Clock, seed: int) -> None:
        super().__init__(clock, seed)
        self.engine = engine
        self.model = Entries(self.state, CAPACITIES)
        self.work = Work(self.state, self.model)
        self.entries = AgentEntries(engine=engine, capacities=CAPACITIES)
        self.intents, self.tasks = Intents(engine=engine), Tasks(engine=engine, audit=audit)
        self.participants = Participants(engine=engine, audit=audit)
        self.events = Events(engine=engine)
        self.counts = Counter[str]()
        self.deed = ""
        self.gone: list[AgentEntryId] = []
        self.sequence = 0

    async def compare(self) -> None:
        state, asked = self.state, self.asked()
        shown, self.sequence = await self.engine.read(
            OPERATOR, looked, state, self.agents, asked, self.sequence
        )
        found = differences(shown, expected(state, self.agents, asked))
        assert not found, f"after {self.deed}:\n" + "\n".join(found)
        state.told.clear()

    def asked(self) -> Asked:
        """Some of what there is, was, and never was."""
        state = self.state
        return Asked(
            entries=[*self.some(state.rows), *self.some(self.gone), AgentEntryId(UNKNOWN)],
            intents=self.some(state.intents),
            tasks=[*self.some(state.tasks), TaskId(UNKNOWN)],
            coordinators=[*self.some(state.coordinators), CoordinatorId(UNKNOWN)],
        )

    async def both(self, asked: Awaitable[Any], due: Callable[[Any], Any]) -> None:
        """Let the service and the model do the same: both refuse it alike, or both answer alike."""
        refused, done, saved = None, None, self.state.saved()
        rows = set(self.state.rows)
        try:
            done = await asked
        except Refusal as refusal:
            refused = refusal.refusal if isinstance(refusal, AtItem) else refusal
        try:
            outcome = due(done)
        except Refusal as refusal:
            self.state.restore(saved)
            outcome = refusal
        self.gone += [it for it in rows if it not in self.state.rows]
        if refused is not None or isinstance(outcome, Refusal):
            kinds = type(refused).__name__, type(outcome).__name__
            assert kinds[0] == kinds[1], (self.deed, kinds, done or refused, outcome)
            self.counts[f"{self.deed}: {kinds[0]}"] += 1
            return
        self.counts[self.deed] += 1
        said = getattr(done, "value", done)
        assert said == outcome, f"{self.deed}:\n  said {said}\n  due  {outcome}"

    # Entries.

    async def create(self) -> None:
        agent = self.agent()
        draft = self.draft(agent)
        asked = self.entries.create(OPERATOR, self.viewer(agent), draft)
        await self.both(asked, lambda done: self.model.create(agent, draft, self.made(done)))

    async def amend(self) -> None:
        entry = self.entry()
        if entry is None:
            return
        agent = self.one_of(entry.owner or LEAD)
        version = entry.version + self.is_rare()
        change = self.change()
        asked = self.entries.amend(OPERATOR, self.viewer(agent), entry.id, change, version)
        await self.both(asked, lambda _: self.model.amend(agent, self.row(entry), change, version))

    async def delete(self) -> None:
        entry = self.entry()
        if entry is None:
            return
        agent = self.one_of(entry.owner or LEAD)
        version = self.chance.choice([None, entry.version, entry.version + 1])
        asked = self.entries.delete(OPERATOR, self.viewer(agent), entry.id, version)
        await self.both(asked, lambda _: self.model.delete(agent, self.row(entry), version))

    async def batch(self) -> None:
        agent = self.agent()
        items = []
        for _ in range(self.chance.choice([1, 2, 3])):
            entry = self.own_entry(agent)
            if entry is not None and self.chance.random() < 0.5:
                said = self.change().model_dump(exclude_unset=True, exclude_none=True)
                said |= {
                    "agent_id": entry.owner, "namespace": entry.namespace, "key": entry.key,
                    "memory_type": entry.memory_type.value, "version": entry.version,
                    "value": self.value(),
                }  # fmt: skip
                items.append(AgentBatchItem.model_validate(said))
            else:
                said = self.draft(agent).model_dump() | {"value": self.value()}
                items.append(AgentBatchItem.model_validate(said))
        asked = self.entries.write_batch(OPERATOR, self.viewer(agent), items)
        await self.both(asked, lambda done: tuple(self.model.batch(agent, items, self.made(done))))

    async def delete_batch(self) -> None:
        agent = self.agent()
        filter_ = self.filter()
        most = self.chance.choice([1, 2, 100])

        asked = self.entries.delete_batch(OPERATOR, self.viewer(agent), filter_, most)
        await self.both(asked, lambda _: self.model.delete_batch(agent, filter_, most))

    async def get(self) -> None:
        """A list that the agent asks for, which is access to what it owns."""
        agent, filter_ = self.agent(), self.filter()
        page = await self.entries.page(lambda: (OPERATOR, self.viewer(agent)), filter_, 100, 0)
        found = [it async for portion in page.portions for it in portion]
        due = self.state.readable(agent, filter_)
        assert (page.total, found) == (len(due), due)
        for it in due:
            if it.owner == agent:
                self.state.accessed[it.id] = self.now

    async def sweep(self) -> None:
        swept = await sweeping.sweep(self.engine, OPERATOR, {Kind.EXPIRED})
        assert swept == {Kind.EXPIRED: self.model.sweep()}

    async def permit(self) -> None:
        levels = list(Access)
        allow = {agent: self.chance.choice(levels) for agent in self.chance.sample(TEAM, 2)}
        default = self.chance.choice([*levels[1:], Access.WRITE])
        permissions = Permissions(default=default, allow=allow)
        namespace = self.chance.choice(NAMESPACES)
        listed = [{"agent": it, "access": level.name.lower()} for it, level in allow.items()]
        change = PermissionsBody.model_validate({"default": default.name.lower(), "allow": listed})
        namespaces = Namespaces(engine=self.engine, audit=audit)
        operator = Viewer(agent=AgentId("operator"), is_admin=True)
        await namespaces.permit(OPERATOR, operator, namespace, change)
        self.state.permissions[namespace] = permissions

    def made(self, done: Any) -> Iterator[AgentEntry]:
        """The entries that a write of the service has made, whose ids the model takes."""
        value = () if done is None else done.value
        found: Sequence[AgentEntry] = [value] if isinstance(value, AgentEntry) else value
        new = [it for it in found if it.id not in self.state.rows]
        return iter(sorted(new, key=lambda it: it.memory))


def audit(*_: object, **__: object) -> None:
    """What is audited is told elsewhere."""


class Play(Memory):
    """Steps by chance, each compared with the model, and after each what every agent is shown."""

    async def step(self) -> None:
        self.clock.advance(seconds=self.chance.choice([1, 1, 1, 1, 1, 1, 1, 20]))
        deeds: list[Callable[[], Awaitable[None]]] = [
            *[self.create] * 12, *[self.amend] * 5, *[self.change_task] * 6, *[self.make_task] * 4,
            self.delete, self.batch, self.batch, self.delete_batch, self.get, self.sweep,
            self.make_intent, self.coordinate, self.end_coordinator, self.grant, self.revoke,
            self.log, self.permit,
        ]  # fmt: skip
        deed = self.chance.choice(deeds) if len(self.state.intents) > 1 else self.make_intent
        self.deed = deed.__name__
        await deed()
        await self.compare()

    async def make_intent(self) -> None:
        agent = self.chance.choice([LEAD, self.agent()])
        id_ = self.chance.choice([None, IntentId("goal"), IntentId("aim")])
        if len(self.state.intents) >= MOST_INTENTS:
            agent, id_ = self.chance.choice([ADA, BOB]), None
        may = agent == LEAD
        said: dict[str, Any] = {"id": id_}
        asked = self.intents.create(*self.voice(agent), IntentBody.model_construct(None, **said))
        await self.both(
            asked,
            lambda done: self.work.create_intent(agent, _id(done), id_, may=may),
        )

    async def make_task(self) -> None:
        intent = self.intent()
        agent = self.one_of(self.director(intent))
        if len(self.state.tasks) >= MOST_TASKS:
            agent = self.agent()
        draft = self.task_draft(intent)
        asked = self.tasks.create(*self.voice(agent), draft)
        await self.both(asked, lambda done: self.work.create_task(agent, draft, _id(done)))

    async def change_task(self) -> None:
        task = self.state.tasks.get(self.task())
        if task is None:
            return
        director = self.director(task.intent_id)
        agent = self.one_of(director, *[task.assigned_agent or director] * 3)
        version = task.version + self.is_rare()
        change = self.task_change(task, agent)
        asked = self.tasks.amend(*self.voice(agent), task.id, change, version)
        await self.both(asked, lambda _: self.work.amend_task(agent, task.id, change, version))

    async def coordinate(self) -> None:
        intent = self.intent()
        agent = self.one_of(self.director(intent))
        whom, ends = self.agent(), self.ends()
        rails = self.rails()
        details = json.dumps({"guardrails": rails}, separators=(",", ":"))
        said = {"intent_id": intent, "agent_id": whom, "guardrails": rails}
        if ends is not None:
            said["expires_at"] = ends.isoformat()
        draft = CoordinatorBody.model_validate(said)

        def due(done: Any) -> Coordinator:
            id_ = CoordinatorId(_id(done))
            record = Coordinator.whole(
                details=details, id=id_, intent_id=intent, agent_id=whom, granted_at=self.now,
                expires_at=ends,
            )  # fmt: skip
            return self.work.coordinate(agent, record)

        asked = self.participants.coordinate(*self.voice(agent), draft)
        await self.both(asked, due)

    async def end_coordinator(self) -> None:
        if not self.state.coordinators:
            return
        held = self.chance.choice([*self.state.coordinators.values()])
        agent = self.chance.choice([held.agent_id, self.director(held.intent_id), self.agent()])
        asked = self.participants.end_coordinator(*self.voice(agent), held.id)
        await self.both(asked, lambda _: self.work.end_coordinator(agent, held.id))

    async def grant(self) -> None:
        intent = self.intent()
        agent = self.one_of(self.director(intent))
        ends, whom = self.ends(), self.agent()
        permission = self.chance.choice(list(Permission))
        draft = GrantBody(
            principal_id=whom,
            permission=permission.value,
            expires_at=None if ends is None else ends.isoformat(),
        )

        def due(done: Any) -> Grant:
            record = Grant.model_construct(
                id=GrantId(_id(done)), intent=intent, principal_id=whom, permission=permission,
                reason=None, granted_by=agent, granted_at=self.now, expires_at=ends,
            )  # fmt: skip
            return self.work.grant(agent, record)

        asked = self.participants.grant(*self.voice(agent), intent, draft)
        await self.both(asked, due)

    async def revoke(self) -> None:
        if not self.state.grants:
            return
        held = self.chance.choice([*self.state.grants.values()])
        intent = self.chance.choice([held.intent, held.intent, self.intent()])
        agent = self.one_of(self.director(intent))
        asked = self.participants.revoke(*self.voice(agent), intent, held.id)
        await self.both(asked, lambda _: self.work.revoke(agent, intent, held.id))

    async def log(self) -> None:
        agent, intent = self.agent(), self.intent()
        type_ = self.chance.choice(
            ["comment", "memory.archived", "task.completed", "agent_assigned", "nonsense"]
        )
        asked = self.events.log(*self.voice(agent), intent, type_, '{"n":1}')

        def due(done: Any) -> Any:
            self.work.log(agent, intent, type_, {"n": 1})
            return done.value

        await self.both(asked, due)


def _id(done: Any) -> Any:
    return "none" if done is None else done.value.id
