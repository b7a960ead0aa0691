"""The requests that are traced, each by its name."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from ..client import Client, Request, get, post, put, with_body
from .agent import Tool, agent
from .tracing import Ask

PROJECT = "demo"
MEMORIES = 200
PROMPT = "When is host 7 of staging deployed, and which lock does the import hold then?"
WORDS = "staging deployed"

CLOUD = "/api/v1/cloud/memory_stores"
AGENTS = "/api/v1/memory"
ANTHROPIC = "/anthropic/v1/memory_stores"

Object = dict[str, str]


@contextmanager
def requests(port: int) -> Iterator[Mapping[str, Ask]]:
    """Requests to the service, which is given what they ask for."""
    # The client comes last: a connection that says nothing while the agent opens is closed.
    with agent(port, PROJECT) as call, closing(Client(port)) as client:
        for number in range(MEMORIES):
            client.ask(post("/observations", _memory(number)))
        yield _recall(client) | _saves(client) | _updates(client) | _entries(client) | _tools(call)


def _recall(client: Client) -> dict[str, Ask]:
    context = get("/context", project=PROJECT, query=PROMPT)
    search = get("/search", project=PROJECT, q=WORDS)
    return {"GET /context": _same(client, context), "GET /search": _same(client, search)}


def _saves(client: Client) -> dict[str, Ask]:
    def save(number: int) -> object:
        return client.ask(post("/observations", _memory(MEMORIES + number)))

    def save_once(number: int) -> object:
        body, key = _memory(2 * MEMORIES + number), {"Idempotency-Key": f"key-{number}"}
        return client.ask(post("/observations", body, key))

    return {"POST /observations": save, "POST /observations, Idempotency-Key": save_once}


def _updates(client: Client) -> dict[str, Ask]:
    """Updates of an entry that must be in the state in which the last one has left it."""
    entry, memory = _entry(client, CLOUD, "a/b"), _entry(client, ANTHROPIC, "/a/b")

    def replace(number: int) -> object:
        return client.ask(put(entry, {"content": _text(number + 1), "version": number + 1}))

    def update(number: int) -> object:
        body = {"content": _text(number + 1), "precondition": _digest(_text(number))}
        return client.ask(post(memory, body, {"x-api-key": "any"}))

    return {"PUT memory store, version": replace, "POST anthropic, precondition": update}


def _entries(client: Client) -> dict[str, Ask]:
    """A change of an agent's entry at the version that the last one has made."""
    named = {"agent_id": "ada", "namespace": "notes", "key": "deploy", "memory_type": "working"}
    headers = {"X-Agent-ID": "ada"}
    made = json.loads(client.ask(post(AGENTS, {**named, "value": {"text": _text(0)}}, headers)))

    def patch(number: int) -> object:
        body = json.dumps({"value": {"text": _text(number + 1)}}).encode()
        match = {"If-Match": str(number + 1)}
        return client.ask(with_body("PATCH", f"{AGENTS}/{made['id']}", body, headers | match))

    return {"PATCH OpenIntent entry, If-Match": patch}


def _tools(call: Tool) -> dict[str, Ask]:
    def save(number: int) -> object:
        return call("mem_save", title=_title(number), content=_text(3 * MEMORIES + number))

    return {"mem_save, MCP": save}


def _same(client: Client, request: Request) -> Ask:
    return lambda _: client.ask(request)


def _entry(client: Client, stores: str, path: str) -> str:
    """The route of a new entry in a new store."""
    store = _made(client, stores, {"name": "notes"})
    return _made(client, f"{store}/memories", {"path": path, "content": _text(0)})


def _made(client: Client, route: str, body: Object) -> str:
    """The route of what is made by a request to a route."""
    answer: Object = json.loads(client.ask(post(route, body)))
    return f"{route}/{answer['id']}"


def _digest(content: str) -> Object:
    digest = hashlib.sha256(content.encode()).hexdigest()
    return {"type": "content_sha256", "content_sha256": digest}


def _memory(number: int) -> Object:
    return {
        "session_id": "s1",
        "type": "discovery",
        "title": _title(number),
        "content": _text(number),
        "project": PROJECT,
    }


def _title(number: int) -> str:
    return f"Deploying host {number:03}"


def _text(number: int) -> str:
    return f"Host {number:03} of staging is deployed on Fridays, by the import that holds its lock."
