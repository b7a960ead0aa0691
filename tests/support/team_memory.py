"""Steps of a team with its memory, through the services and by the model alike."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from agentops_memory.engine.engine import Engine
from agentops_memory.errors import AtItem, Refusal
from agentops_memory.jobs import retention as sweeping
from agentops_memory.memory.access import OPERATOR, AgentId
from agentops_memory.memory.agents import (
    Access,
    AgentEntryId,
    CoordinatorId,
    Permissions,
    TaskId,
    Viewer,
)
from agentops_memory.memory.retention import Capacities, Kind
from agentops_memory.openintent.drafts import AgentBatchItem
from agentops_memory.openintent.entries import AgentEntry
from agentops_memory.openintent.events import Events
from agentops_memory.openintent.intents import Intents
from agentops_memory.openintent.memory import AgentEntries
from agentops_memory.openintent.namespaces import Namespaces, PermissionsBody
from agentops_memory.openintent.participants import Participants
from agentops_memory.openintent.tasks import Tasks

from .service import Clock
from .team_chance import LEAD, NAMESPACES, TEAM, Chance
from .team_looks import UNKNOWN, Asked, differences, expected, looked
from .team_rules import Entries
from .team_work import Work

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
        self.gone: list[AgentEntryId] = []
        self.sequence = 0

    async def compare(self, deed: str) -> None:
        state, asked = self.state, self.asked()
        shown, self.sequence = await self.engine.read(
            OPERATOR, looked, state, self.agents, asked, self.sequence
        )
        found = differences(shown, expected(state, self.agents, asked))
        assert not found, f"after {deed}:\n" + "\n".join(found)
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

    async def both(self, deed: str, asked: Awaitable[Any], due: Callable[[Any], Any]) -> None:
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
            assert kinds[0] == kinds[1], (deed, kinds, done or refused, outcome)
            self.counts[f"{deed}: {kinds[0]}"] += 1
            return
        self.counts[deed] += 1
        said = getattr(done, "value", done)
        assert said == outcome, f"{deed}:\n  said {said}\n  due  {outcome}"

    # Entries.

    async def create(self) -> None:
        agent = self.agent()
        draft = self.draft(agent)
        asked = self.entries.create(OPERATOR, self.viewer(agent), draft)
        await self.both(
            "create", asked, lambda done: self.model.create(agent, draft, self.made(done))
        )

    async def amend(self) -> None:
        entry = self.entry()
        if entry is None:
            return
        agent = self.one_of(entry.owner or LEAD)
        version = entry.version + self.is_rare()
        change = self.change()
        asked = self.entries.amend(OPERATOR, self.viewer(agent), entry.id, change, version)
        await self.both(
            "amend", asked, lambda _: self.model.amend(agent, self.row(entry), change, version)
        )  # fmt: skip

    async def delete(self) -> None:
        entry = self.entry()
        if entry is None:
            return
        agent = self.one_of(entry.owner or LEAD)
        version = self.chance.choice([None, entry.version, entry.version + 1])
        asked = self.entries.delete(OPERATOR, self.viewer(agent), entry.id, version)
        await self.both(
            "delete", asked, lambda _: self.model.delete(agent, self.row(entry), version)
        )

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
        await self.both(
            "batch", asked, lambda done: tuple(self.model.batch(agent, items, self.made(done)))
        )

    async def delete_batch(self) -> None:
        agent = self.agent()
        filter_ = self.filter()
        most = self.chance.choice([1, 2, 100])

        asked = self.entries.delete_batch(OPERATOR, self.viewer(agent), filter_, most)
        await self.both(
            "delete_batch", asked, lambda _: self.model.delete_batch(agent, filter_, most)
        )

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
