"""A team of agents that do as chance says, through the services and by the model alike."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from agentops_memory.memory.agents import CoordinatorId, GrantId, IntentId, Permission
from agentops_memory.openintent.intents import IntentBody
from agentops_memory.openintent.participants import Coordinator, CoordinatorBody, Grant, GrantBody

from .team_chance import ADA, BOB, LEAD, MOST_INTENTS, MOST_TASKS
from .team_memory import Memory


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
        await deed()
        await self.compare(deed.__name__)

    async def make_intent(self) -> None:
        agent = self.chance.choice([LEAD, self.agent()])
        id_ = self.chance.choice([None, IntentId("goal"), IntentId("aim")])
        if len(self.state.intents) >= MOST_INTENTS:
            agent, id_ = self.chance.choice([ADA, BOB]), None
        may = agent == LEAD
        said: dict[str, Any] = {"id": id_}
        asked = self.intents.create(
            self.caller(agent), self.viewer(agent), IntentBody.model_construct(None, **said)
        )
        await self.both(
            "make_intent", asked,
            lambda done: self.work.create_intent(agent, _id(done), id_, may=may),
        )  # fmt: skip

    async def make_task(self) -> None:
        intent = self.intent()
        agent = self.one_of(self.director(intent))
        if len(self.state.tasks) >= MOST_TASKS:
            agent = self.agent()
        draft = self.task_draft(intent)
        asked = self.tasks.create(self.caller(agent), self.viewer(agent), draft)
        await self.both(
            "make_task", asked, lambda done: self.work.create_task(agent, draft, _id(done))
        )

    async def change_task(self) -> None:
        task = self.state.tasks.get(self.task())
        if task is None:
            return
        director = self.director(task.intent_id)
        agent = self.one_of(director, *[task.assigned_agent or director] * 3)
        version = task.version + self.is_rare()
        change = self.task_change(task, agent)
        asked = self.tasks.amend(self.caller(agent), self.viewer(agent), task.id, change, version)
        await self.both(
            "change_task", asked, lambda _: self.work.amend_task(agent, task.id, change, version)
        )

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

        asked = self.participants.coordinate(self.caller(agent), self.viewer(agent), draft)
        await self.both("coordinate", asked, due)

    async def end_coordinator(self) -> None:
        if not self.state.coordinators:
            return
        held = self.chance.choice([*self.state.coordinators.values()])
        agent = self.chance.choice([held.agent_id, self.director(held.intent_id), self.agent()])
        asked = self.participants.end_coordinator(self.caller(agent), self.viewer(agent), held.id)
        await self.both(
            "end_coordinator", asked, lambda _: self.work.end_coordinator(agent, held.id)
        )

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

        asked = self.participants.grant(self.caller(agent), self.viewer(agent), intent, draft)
        await self.both("grant", asked, due)

    async def revoke(self) -> None:
        if not self.state.grants:
            return
        held = self.chance.choice([*self.state.grants.values()])
        intent = self.chance.choice([held.intent, held.intent, self.intent()])
        agent = self.one_of(self.director(intent))
        asked = self.participants.revoke(self.caller(agent), self.viewer(agent), intent, held.id)
        await self.both("revoke", asked, lambda _: self.work.revoke(agent, intent, held.id))

    async def log(self) -> None:
        agent, intent = self.agent(), self.intent()
        type_ = self.chance.choice(
            ["comment", "memory.archived", "task.completed", "agent_assigned", "nonsense"]
        )
        asked = self.events.log(self.caller(agent), self.viewer(agent), intent, type_, '{"n":1}')

        def due(done: Any) -> Any:
            self.work.log(agent, intent, type_, {"n": 1})
            return done.value

        await self.both("log", asked, due)


def _id(done: Any) -> Any:
    return "none" if done is None else done.value.id
