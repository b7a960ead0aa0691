"""The end of a large task, whose archives are settled step by step: no reader sees a half state."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.engine.engine import Engine, Transaction
from agentops_memory.errors import NotFound
from agentops_memory.memory.access import OPERATOR, AgentId
from agentops_memory.memory.agents import TaskStatus, Viewer
from agentops_memory.openintent import events
from agentops_memory.openintent.drafts import AgentBatchItem
from agentops_memory.openintent.entries import AgentEntry, AgentFilter
from agentops_memory.openintent.events import EventFilter, Events
from agentops_memory.openintent.events import past_events as past
from agentops_memory.openintent.intents import Intent, IntentBody, Intents
from agentops_memory.openintent.memory import AgentEntries
from agentops_memory.openintent.tasks import MemoryPolicy, Task, TaskBody, TaskChangeBody, Tasks
from agentops_memory.operations.files.seals import SealFile
from agentops_memory.sqlite import SqliteEngine

from ..support.requirements import requirement
from ..support.service import Clock

LEAD = Viewer(agent=AgentId("lead"))
TEAM = [AgentId(name) for name in ("ada", "bob", "cyn")]
COUNTS = dict(zip(TEAM, (210, 60, 30), strict=True))  # more than an archive holds, and less
SIZE, MIB = 4_500, 1024 * 1024  # together more than the transaction of an end settles
POLICY = MemoryPolicy(max_entries=10_000)


class End:
    """A task with entries of three agents, who had it one after the other."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.entries = AgentEntries(engine=engine)
        self.tasks = Tasks(engine=engine, audit=lambda *_, **__: None)
        self.made: list[AgentEntry] = []
        self.intent: Intent
        self.task: Task

    async def begin(self) -> None:
        intents = Intents(engine=self.engine)
        self.intent = (await intents.create(OPERATOR, LEAD, IntentBody(title="work"))).value
        draft = TaskBody(
            intent_id=self.intent.id, assigned_agent=TEAM[0], memory_policy=POLICY, name="large"
        )
        self.task = (await self.tasks.create(OPERATOR, LEAD, draft)).value
        for agent in TEAM:
            await self.change(assigned_agent=agent)
            items = [self.draft(agent, it) for it in range(COUNTS[agent])]
            done = await self.entries.write_batch(OPERATOR, Viewer(agent=agent), items)
            self.made += done.value

    async def change(self, **said: Any) -> None:
        version = self.task.version
        change = TaskChangeBody(**said)
        done = await self.tasks.amend(OPERATOR, LEAD, self.task.id, change, version)
        self.task = done.value

    def draft(self, agent: AgentId, number: int) -> AgentBatchItem:
        word = "secret" if number % 50 == 0 else "plain"
        return AgentBatchItem.model_validate(
            {
                "agent_id": agent, "namespace": "notes", "key": f"{number}",
                "value": {"n": number, "word": word * (SIZE // len(word))},
                "memory_type": "working", "scope": {"task_id": self.task.id},
                "sensitivity": "restricted" if word == "secret" else None,
            }
        )  # fmt: skip

    async def seen(self, agents: Sequence[AgentId] = (*TEAM, LEAD.agent)) -> dict[str, Any]:
        """What everybody is shown: lists, totals, summaries, logs and streams."""
        shown: dict[str, Any] = {"log": await self.told(LEAD, EventFilter(intent=self.intent.id))}
        for agent in agents:
            viewer = Viewer(agent=agent)
            page = await self.entries.page(lambda it=viewer: (OPERATOR, it), AgentFilter(), 9, 0)  # type: ignore[misc]
            found = [it async for portion in page.portions for it in portion]
            summary = await self.entries.summary(OPERATOR, viewer, viewer.agent)
            stream = await self.told(viewer, EventFilter(agent=agent))
            shown[agent] = (page.total, found, summary, stream)
            for entry in self.made[::50]:
                with pytest.raises(NotFound):
                    await self.entries.get(OPERATOR, viewer, entry.id)
        return shown

    async def told(self, viewer: Viewer, filter_: EventFilter) -> list[Any]:
        events = Events(engine=self.engine)
        page = await events.page(lambda: (OPERATOR, viewer), filter_, 10_000)
        return [it async for portion in page.portions for it in portion]

    async def settle(self) -> bool:
        return await self.engine.write(OPERATOR, events.settle_next)


def past_events(tx: Transaction) -> list[int]:
    """The events of logs that would go if nothing were kept."""
    return past(tx, tx.now, 10_000, of_log=True)


def value_of(entry: AgentEntry) -> Any:
    """What an archive keeps of its value."""
    return None if entry.is_sealed else json.loads(entry.value)


def ended(path: Path, status: TaskStatus, then: Any) -> None:
    async def whole() -> None:
        clock = Clock()
        sealer = SealFile(path / "memory.seal", clock)
        async with SqliteEngine.opened(
            path / "memory.db", clock=clock, sealer=sealer.sealer
        ) as engine:
            end = End(engine)
            await end.begin()
            await end.change(status=status.value)
            await then(end)

    asyncio.run(whole())


@pytest.mark.slow
@requirement("OI-34", "OI-35", "OI-36")
def test_a_large_end_is_whole_for_every_reader_however_far_it_is_settled(tmp_path: Path) -> None:
    async def then(end: End) -> None:
        before, steps = await end.seen(), 0
        pending = await end.engine.read(OPERATOR, past_events)
        while await end.settle():
            steps += 1
            assert await end.seen() == before
        everything = await end.engine.read(OPERATOR, past_events)
        assert len(everything) - len(pending) == steps > 1  # what is pending is no old event yet
        assert steps > 1
        archived = [it for it in before["log"] if it.type == "memory.archived"]
        kept = [
            (it.agent_id, each["key"], each.get("value"))
            for it in archived
            for each in it.payload["snapshot"]
        ]
        due = [(it.owner, it.key, value_of(it)) for it in end.made]
        assert sorted(kept, key=str) == sorted(due, key=str)
        assert [before[agent][0] for agent in TEAM] == [0, 0, 0]
        for event in archived:
            snapshot = event.payload["snapshot"]
            assert event.payload["entries_archived"] == len(snapshot) <= 200
            assert sum(len(json.dumps(each.get("value"))) for each in snapshot) <= MIB

    ended(tmp_path, TaskStatus.COMPLETED, then)


@pytest.mark.heavy
@requirement("OI-34", "OI-80")
def test_what_is_made_while_an_end_is_settled_is_left_alone(tmp_path: Path) -> None:
    async def then(end: End) -> None:
        archived = await end.told(LEAD, EventFilter(intent=end.intent.id))
        await end.change(status="ready", assigned_agent=TEAM[2])
        assert (end.task.attempt, end.task.status) == (2, TaskStatus.READY)
        viewer, again = Viewer(agent=TEAM[2]), [end.draft(TEAM[2], number) for number in (0, 1, 29)]
        made = [(await end.entries.create(OPERATOR, viewer, it)).value for it in again]
        while await end.settle():
            assert [await end.entries.get(OPERATOR, viewer, it.id) for it in made] == made
            log = await end.told(LEAD, EventFilter(intent=end.intent.id))
            assert log[-len(archived) :] == archived
        await end.change(status="completed")
        last = (await end.told(LEAD, EventFilter(intent=end.intent.id)))[0]
        assert [it["key"] for it in last.payload["snapshot"]] == ["0", "1", "29"]

    ended(tmp_path, TaskStatus.FAILED, then)
