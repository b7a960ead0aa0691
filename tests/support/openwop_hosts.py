"""Hosts of OpenWOP that ask a service over HTTP."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import httpx

DISCOVERY = "/.well-known/openwop"
H = "/v1/host/agentops-memory"
REF = "mem://notes"

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Host:
    """One host, through a client that may bring a key; in its run, if it has one."""

    http: httpx.Client
    ref: str = REF
    run: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        """The answer to a request below the vendor scope: `/memory`, `/runs`."""
        headers = self.headers | options.pop("headers", {})
        return self.http.request(method, H + path, json=body, headers=headers, **options)

    def in_run(self, run: str, **fields: object) -> "Host":
        """The same host, within a run, which it opens."""
        ok(self.ask("POST", "/runs", {"runId": run, **fields}), 201)
        return Host(self.http, self.ref, run, self.headers)

    def post(self, text: str = "green apples", **fields: object) -> httpx.Response:
        """The answer to a put of a text, with the run of this host."""
        bound = {} if self.run is None else {"runId": self.run}
        return self.ask(
            "POST", "/memory", {"memoryRef": self.ref, "content": text, **bound, **fields}
        )

    def put(self, content: str = "green apples", **fields: object) -> Json:
        """A new entry."""
        entry: Json = ok(self.post(content, **fields), 201)["entry"]
        return entry

    def entries(self, **query: object) -> list[Json]:
        """The entries of the ref; as the run sees them, if this host has one."""
        found: list[Json] = ok(self.ask("GET", "/memory", params=self._bound(query)))["entries"]
        return found

    def contents(self, **query: object) -> list[str]:
        """What the listed entries say."""
        return [entry["content"] for entry in self.entries(**query)]

    def get(self, memory: str, **query: object) -> httpx.Response:
        return self.ask("GET", f"/memory/{memory}", params=self._bound(query))

    def delete(self, memory: str, **query: object) -> httpx.Response:
        return self.ask("DELETE", f"/memory/{memory}", params=self._bound(query))

    def end(self, status: str = "completed") -> Json:
        ended: Json = ok(self.ask("POST", f"/runs/{self.run}/end", {"status": status}))
        return ended

    def register(self, secret: str, value: str) -> Json:
        """Register a value of the run."""
        body = {"secretId": secret, "value": value}
        done: Json = ok(self.ask("POST", f"/runs/{self.run}/secrets", body))
        return done

    def fork(self, mode: str = "replay", **fields: object) -> httpx.Response:
        return self.ask("POST", f"/runs/{self.run}/fork", {"mode": mode, **fields})

    def told(self, run: str | None = None, **query: object) -> list[Json]:
        """The events of a run."""
        path = f"/runs/{run or self.run}/events"
        events: list[Json] = ok(self.ask("GET", path, params=query))["events"]
        return events

    def search(self, words: str, **query: object) -> list[Json]:
        given = {"memoryRef": self.ref, "q": words, **query}
        found: list[Json] = ok(self.ask("GET", "/search", params=given))["entries"]
        return found

    def compact(self, **fields: object) -> httpx.Response:
        return self.ask("POST", "/compact", {"memoryRef": self.ref, **fields})

    def distill(self, **fields: object) -> httpx.Response:
        return self.ask("POST", "/distill", {"memoryRef": self.ref, **fields})

    def consolidate(self, *merges: Json, **fields: object) -> httpx.Response:
        named = {"merges": [*merges]} if merges else {}
        return self.ask("POST", "/consolidate", {"memoryRef": self.ref, **named, **fields})

    def undo(self, run: str) -> httpx.Response:
        return self.ask("POST", f"/passes/{run}/undo")

    def forget(self, subject: str, **fields: object) -> httpx.Response:
        return self.ask("POST", "/forget", {"subject": subject, **fields})

    def index(self) -> Json:
        """The index of the archives of the ref."""
        told: Json = ok(self.ask("GET", "/index", params={"memoryRef": self.ref}))
        return told

    def _bound(self, query: dict[str, object]) -> Any:
        bound = {} if self.run is None else {"runId": self.run}
        return {"memoryRef": self.ref, **bound, **query}


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def refused(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal, whose shape is checked."""
    body = answer.json()
    assert set(body) - {"details"} == {"error", "message"}
    assert isinstance(body["message"], str)
    assert body["message"]
    return answer.status_code, body["error"]


def faults(answer: httpx.Response) -> list[str]:
    """The fields that a refusal names."""
    assert refused(answer) == (400, "validation_error")
    return [fault["field"] for fault in answer.json()["details"]["fields"]]


def together(*works: Callable[[], T]) -> list[T]:
    """What each of them answers, asked at once."""
    with ThreadPoolExecutor(len(works)) as threads:
        return [it.result() for it in [threads.submit(work) for work in works]]


def wire(at: datetime) -> str:
    """An instant, as answers have it."""
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
