"""What a team's work and memory should be, by the contract alone: who sees, reads and writes."""

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from agentops_memory.engine.engine import Engine, Transaction
from agentops_memory.errors import Refusal
from agentops_memory.memory.access import OPERATOR, AgentId
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
    Viewer,
)
from agentops_memory.openintent.api import NO_ENTRY
from agentops_memory.openintent.entries import AgentEntry, AgentFilter, EntryKey
from agentops_memory.openintent.events import AgentEvent, EventFilter, Events
from agentops_memory.openintent.intents import (
    NO_COORDINATOR,
    NO_INTENT,
    NOT_YOURS,
    Coordinator,
    Grant,
    Intent,
    visible_coordinator,
    visible_coordinators,
    visible_grants,
    visible_intent,
)
from agentops_memory.openintent.memory import AgentEntries
from agentops_memory.openintent.tasks import NO_TASK, Task, Tasks, known

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


T = TypeVar("T")
MOST = 1_000
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked for by its id, some of which there is not, or not any more."""

    entries: Sequence[AgentEntryId]
    intents: Sequence[IntentId]
    tasks: Sequence[TaskId]
    coordinators: Sequence[CoordinatorId]


class Within:
    """The engine of one transaction that is open: every question has the same instant."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    async def read(self, _: object, work: Any, *args: Any) -> Any:
        return work(self._tx, *args)


@dataclass
class Look:
    """What one agent is shown through the services."""

    engine: Engine
    viewer: Viewer
    after: int  # the events since this sequence
    newest: int = 0  # of those that it is shown

    def entries(self, asked: Asked) -> dict[str, Any]:
        """Its entries, and what it is told of some ids."""
        service = AgentEntries(engine=self.engine)
        page = now(service.page(self._asking, AgentFilter(), MOST, 0))
        by_id: dict[str, Any] = {
            it: answer(service.get(OPERATOR, self.viewer, it)) for it in asked.entries
        }
        return {"entries": now(_taken(page.portions)), "total": page.total, **by_id}

    def work(self, state: State, asked: Asked) -> dict[str, Any]:
        """What it is shown of every intent there is, and of one that there is not."""
        tasks = Tasks(engine=self.engine, audit=_audit)
        shown: dict[str, Any] = {}
        for it in (*state.intents, IntentId(UNKNOWN)):
            page = answer(tasks.page(self._asking, it, MOST, 0))
            shown[f"{it} tasks"] = page if isinstance(page, str) else now(_taken(page.portions))
            shown[f"{it} log"] = self.told(intent=it)
        for it in asked.intents:
            shown[f"intent {it}"] = self.read(visible_intent, it)
            shown[f"{it} coordinators"] = self.read(visible_coordinators, it)
            shown[f"{it} acl"] = self.read(visible_grants, it)
        for task in asked.tasks:
            shown[f"task {task}"] = self.read(known, task)
        for each in asked.coordinators:
            shown[f"part {each}"] = self.read(visible_coordinator, each)
        return shown | {"stream": self.told(agent=self.viewer.agent)}

    def read(self, work: Callable[..., Any], what: str) -> Any:
        return answer(self.engine.read(OPERATOR, work, self.viewer, what))

    def told(self, **of: Any) -> Any:
        filter_ = EventFilter(after=self.after, **of)
        page = answer(Events(engine=self.engine).page(self._asking, filter_, MOST))
        if isinstance(page, str):
            return page
        found: list[AgentEvent] = now(_taken(page.portions))
        self.newest = max([self.newest, *(it.sequence for it in found)])
        return words(found)

    def _asking(self) -> tuple[Any, Viewer]:
        return OPERATOR, self.viewer


HIDDEN = ("namespace", "key", "tags")


def looked(
    tx: Transaction, state: State, agents: Sequence[AgentId], asked: Asked, after: int
) -> tuple[dict[AgentId, dict[str, Any]], int]:
    """What every agent is shown in one transaction, and the sequence of the newest event."""
    engine = cast("Engine", Within(tx))
    shown, newest = {}, after
    for agent in agents:
        look = Look(engine, Viewer(agent=agent, is_admin=state.is_admin(agent)), after)
        shown[agent] = look.entries(asked) | look.work(state, asked)
        newest = max(newest, look.newest)
    return shown, newest


def expected(
    state: State, agents: Sequence[AgentId], asked: Asked
) -> dict[AgentId, dict[str, Any]]:
    """What every agent should be shown; the events are those that the state tells."""
    return {agent: _entries(state, agent, asked) | _work(state, agent, asked) for agent in agents}


def _entries(state: State, agent: AgentId, asked: Asked) -> dict[str, Any]:
    found = state.readable(agent)
    seen = {it.id: it for it in found}
    by_id: dict[str, Any] = {
        it: seen.get(it, refusal("NotFound", NO_ENTRY)) for it in asked.entries
    }
    return {"entries": found, "total": len(found), **by_id}


def _work(state: State, agent: AgentId, asked: Asked) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    none = refusal("NotFound", NO_INTENT)
    for it in (*state.intents, IntentId(UNKNOWN)):
        sees = state.sees(agent, it)
        log = sorted(_as_told(state, agent, each) for each in state.told if each.log == it)
        shown[f"{it} tasks"] = state.of_intent(it) if sees else none
        shown[f"{it} log"] = log if sees else none
    for it in asked.intents:
        sees = state.sees(agent, it)
        parts = [each for each in state.coordinators.values() if each.intent_id == it]
        grants = [each for each in state.grants.values() if each.intent == it]
        acl = grants if state.governs(agent, it) else refusal("Denied", NOT_YOURS)
        shown[f"intent {it}"] = state.intents[it] if sees else none
        shown[f"{it} coordinators"] = parts if sees else none
        shown[f"{it} acl"] = acl if sees else none
    for task in asked.tasks:
        shown[f"task {task}"] = state.seen_task(agent, task) or refusal("NotFound", NO_TASK)
    for each in asked.coordinators:
        held = state.coordinators.get(each)
        is_seen = held is not None and state.sees(agent, held.intent_id)
        shown[f"part {each}"] = held if is_seen else refusal("NotFound", NO_COORDINATOR)
    stream = sorted(it.words for it in state.told if it.stream == agent)
    return shown | {"stream": stream}


def _as_told(state: State, agent: AgentId, event: Told) -> str:
    """An event of a log without what the agent may not read."""
    payload = dict(event.payload)
    if event.type == "memory.archived" and not state.takes_part(agent, cast("IntentId", event.log)):
        payload["snapshot"] = [
            {name: it for name, it in entry.items() if name != "value"} | {"redacted": True}
            for entry in cast("list[dict[str, Any]]", payload["snapshot"])
        ]
    hidden = state.access(agent, str(payload.get("namespace"))) < Access.READ
    if payload.get("memory_type") == "semantic" and hidden:
        payload = {it: said for it, said in payload.items() if it not in HIDDEN}
    return replace(event, payload=payload).words


def words(events: Sequence[AgentEvent]) -> list[str]:
    """Events as text, in no order: what one change tells has none."""
    return sorted(
        Told(
            type=it.type, payload=it.payload, stream=it.agent_id, actor=it.actor,
            log=IntentId(it.intent_id) if it.intent_id and it.binding else None,
        ).words
        for it in events
    )  # fmt: skip


def differences(shown: dict[AgentId, Any], due: dict[AgentId, Any]) -> list[str]:
    """Where what is shown is not what is due, in words."""
    found = []
    for agent, parts in due.items():
        for name, part in parts.items():
            said = shown[agent][name]
            if said == part:
                continue
            if isinstance(said, list) and isinstance(part, list):
                lists = _but(said, part), _but(part, said)
            else:
                lists = said, part
            found.append("{}, {}:\n  shown {}\n  due   {}".format(agent, name, *lists))
    return found


def _but(some: list[Any], others: list[Any]) -> list[Any]:
    """Those that are not among the others; all of them, if that is none."""
    return [it for it in some if it not in others] or some


def answer(asked: Coroutine[Any, Any, T]) -> T | str:
    """What a service answers, or the words of its refusal."""
    try:
        return now(asked)
    except Refusal as refused:
        return refusal(type(refused).__name__, str(refused))


def refusal(name: str, said: str) -> str:
    return f"{name}: {said}"


def now(asked: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that waits for nothing."""
    try:
        asked.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    raise AssertionError("It waits for something.")


async def _taken(portions: Any) -> list[Any]:
    return [it async for portion in portions for it in portion]


def _audit(*_: object, **__: object) -> None:
    """Reads are not audited."""
