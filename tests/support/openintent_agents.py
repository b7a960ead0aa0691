"""Agents that ask a service over HTTP, alone and in a team, and the package `openintent`."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from openintent import AsyncOpenIntentClient, OpenIntentClient

from .callers import calling, made_key
from .service import Service

MEMORY = "/api/v1/memory"
BATCH = f"{MEMORY}/batch"
NAMESPACES = f"{MEMORY}/namespaces"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent, through a client that may bring a key."""

    http: httpx.Client
    id: str = "ada"
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        headers = {"X-Agent-ID": self.id} | self.headers | options.pop("headers", {})
        return self.http.request(method, path, json=body, headers=headers, **options)

    def post(self, **fields: object) -> httpx.Response:
        """The answer to the creation of an entry with these members and plain defaults."""
        return self.ask("POST", MEMORY, self.body(**fields))

    def body(self, **fields: object) -> Json:
        return {
            "agent_id": self.id, "namespace": "notes", "key": "apple", "value": {"colour": "green"},
            "memory_type": "episodic",
        } | fields  # fmt: skip

    def make(self, **fields: object) -> Json:
        """A new entry."""
        entry: Json = ok(self.post(**fields), 201)
        return entry

    def patch(self, entry: Json, at: int | None = None, **fields: object) -> httpx.Response:
        match = {"If-Match": str(at or entry["version"])}
        return self.ask("PATCH", f"{MEMORY}/{entry['id']}", fields, headers=match)

    def get(self, entry: Json) -> httpx.Response:
        return self.ask("GET", f"{MEMORY}/{entry['id']}")

    def delete(self, entry: Json, **headers: str) -> httpx.Response:
        return self.ask("DELETE", f"{MEMORY}/{entry['id']}", headers=headers)

    def query(self, **filters: object) -> Json:
        """The entries that a query finds, with their total."""
        page: Json = ok(self.ask("GET", MEMORY, params=filters))
        return page

    def found(self, **filters: object) -> list[str]:
        """The keys of the entries that a query finds, in their order."""
        return [entry["key"] for entry in self.query(**filters)["entries"]]

    def permit(self, namespace: str, default: str = "read", **allow: str) -> Json:
        """Say who may do what in a namespace."""
        listed = [{"agent": agent, "access": access} for agent, access in allow.items()]
        body = {"permissions": {"default": default, "allow": listed}}
        changed: Json = ok(self.ask("PATCH", f"{NAMESPACES}/{namespace}", body))
        return changed

    def events(self, **filters: object) -> list[Json]:
        found: list[Json] = ok(self.ask("GET", f"/api/v1/agents/{self.id}/events", params=filters))
        return found

    def told(self) -> list[tuple[str, str]]:
        """The types and keys of all events, oldest first."""
        found = self.events(after=0, limit=1000)
        return [(it["type"].removeprefix("memory."), it["payload"]["key"]) for it in found]

    def summary(self) -> Json:
        found: Json = ok(self.ask("GET", f"/api/v1/agents/{self.id}/memory/summary"))
        return found


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def refused(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal, whose shape is checked."""
    body = answer.json()
    assert isinstance(body["message"], str)
    assert body["message"]
    if answer.status_code == 409:
        assert "lease" not in body["message"].lower()
    return answer.status_code, body["error"]["code"]


def faults(answer: httpx.Response) -> list[str]:
    """The fields that a refusal names."""
    assert refused(answer) == (400, "INVALID_REQUEST")
    return [fault["field"] for fault in answer.json()["errors"]]


def time_passes(service: Service) -> None:
    """So that the clock is known to be steady, and what has expired is swept."""
    for _ in range(8):
        service.clock.advance(minutes=1)
        ok(service.http.get("/health"))


def racing(count: int, ask: Callable[[int], httpx.Response]) -> list[httpx.Response]:
    """The answers to requests that are sent at once, each with its number."""
    start = threading.Barrier(count)

    def one(number: int) -> httpx.Response:
        start.wait()
        return ask(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@contextmanager
def package(service: Service, agent: str = "ada", key: str = "any") -> Iterator[OpenIntentClient]:
    """The package's client as it is."""
    with OpenIntentClient(service.url, api_key=key, agent_id=agent) as client:
        yield client


def async_package(service: Service, agent: str = "ada") -> AsyncOpenIntentClient:
    return AsyncOpenIntentClient(service.url, api_key="any", agent_id=agent)


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
