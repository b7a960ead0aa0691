"""Agents with keys of their own that work on an intent together."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from .callers import calling, made_key
from .openintent_agents import Agent, Json, ok
from .service import Service

INTENTS, TASKS, COORDINATORS = (f"/api/v1/{it}" for it in ("intents", "tasks", "coordinators"))


@dataclass(frozen=True, slots=True)
class Team:
    """A lead that may make intents, and agents that may not, each by its own key."""

    service: Service
    _enter: Callable[[Any], httpx.Client]
    _agents: dict[object, Agent] = field(default_factory=dict)

    def agent(
        self, id_: str, role: str = "writer", *, coordinates: bool = False,
        speaks: tuple[str, ...] | None = None, projects: tuple[str, ...] = ("*",),
    ) -> Agent:  # fmt: skip
        """An agent by a key that speaks for it alone, or for these."""
        held = (id_, role, coordinates, speaks, projects)
        if held not in self._agents:
            token = made_key(
                self.service.path, role, projects=projects, coordinates=coordinates,
                agents=(id_,) if speaks is None else speaks,
            )  # fmt: skip
            self._agents[held] = Agent(self._enter(calling(self.service, token)), id_)
        return self._agents[held]

    @property
    def lead(self) -> Agent:
        return self.agent("lead", coordinates=True)

    @property
    def root(self) -> Agent:
        return self.agent("root", "admin")

    @property
    def ada(self) -> Agent:
        return self.agent("ada")

    @property
    def bob(self) -> Agent:
        return self.agent("bob")

    def intent(self, **fields: object) -> Json:
        made: Json = ok(self.lead.ask("POST", INTENTS, {"title": "Invoices"} | fields), 201)
        return made

    def task(self, intent: Json, assigned_agent: str | None = "ada", **fields: object) -> Json:
        body = {"intent_id": intent["id"], "name": "read", "assigned_agent": assigned_agent}
        made: Json = ok(self.lead.ask("POST", TASKS, body | fields), 201)
        return made

    def work(self, assigned_agent: str | None = "ada", **fields: object) -> Json:
        """A task of an intent of its own."""
        return self.task(self.intent(), assigned_agent, **fields)

    def coordinate(self, intent: Json, agent: str = "lead", **guardrails: object) -> Json:
        body = {"intent_id": intent["id"], "agent_id": agent}
        if guardrails:
            body["guardrails"] = guardrails
        made: Json = ok(self.lead.ask("POST", COORDINATORS, body), 201)
        return made

    def log(self, of: Json, who: Agent | None = None, **filters: object) -> list[Json]:
        """The log of an intent, or of a task's, oldest first."""
        asked = {"after": 0, "limit": 1000} | filters
        path = f"{INTENTS}/{of.get('intent_id', of['id'])}/events"
        found: list[Json] = ok((who or self.lead).ask("GET", path, params=asked))
        return found


def report(
    agent: Agent, task: Json, version: int | None = None, **fields: object
) -> httpx.Response:
    """The answer to a change of a task, at the version that it has now unless one is said."""
    path = f"{TASKS}/{task['id']}"
    at = version or ok(agent.ask("GET", path))["version"]
    return agent.ask("PATCH", path, fields, headers={"If-Match": f'"{at}"'})


def working(agent: Agent, task: Json, key: str = "progress", **fields: object) -> Json:
    """A working entry that is bound to a task."""
    scope = {"task_id": task["id"]}
    return agent.make(**{"memory_type": "working", "key": key, "scope": scope} | fields)


@pytest.fixture
def team(service: Service) -> Iterator[Team]:
    with ExitStack() as stack:
        team = Team(service, stack.enter_context)
        team.agent("root", "admin")  # from now on a key is needed
        yield team
