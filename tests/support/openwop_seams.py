"""A suite that tests a service through its conformance seams, as its operator lets it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from ..openwop.seams.application import with_seams
from .callers import calling, made_key
from .openwop_hosts import DISCOVERY, Host, Json, ok
from .service import Service, speaking

OTHER = "conformance-other"
FIXTURES = (
    "conformance-noop", "conformance-idempotent", "conformance-agent-memory-roundtrip",
    "conformance-agent-memory-redaction", "conformance-agent-memory-ttl",
)  # fmt: skip
ACROSS = ("conformance-agent-memory-injection-budget", "conformance-agent-memory-cross-tenant")
REF = "mem://suite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite with the key of a writer, of the tenant default unless told."""

    service: Service
    http: httpx.Client

    @property
    def host(self) -> Host:
        return Host(self.http)

    def post(self, path: str, body: object = None, **options: Any) -> httpx.Response:
        return self.http.post(f"/v1{path}", content=dumps(body).encode(), **options)

    def get(self, path: str, **query: object) -> httpx.Response:
        return self.http.get(f"/v1{path}", params=query or None)  # type: ignore[arg-type]

    def discovered(self) -> Json:
        found: Json = ok(self.http.get(DISCOVERY))
        return found

    def ran(self, workflow: str, status: str = "completed") -> Json:
        """A run of a workflow that has ended so, as it is shown."""
        started = ok(self.post("/runs", {"workflowId": workflow}), 201)
        assert started["status"] == status
        run: Json = ok(self.http.get(started["statusUrl"]))
        assert run["status"] == status
        return run

    def compacted(self, ref: str) -> Json:
        done: Json = ok(self.post("/test/memory/compact", {"memoryRef": ref}))
        return done

    def seed(self, *entries: Json, ref: str = REF) -> int:
        """How many entries were put."""
        body = {"memoryRef": ref, "entries": list(entries)}
        seeded: int = ok(self.post("/test/memory/seed", body), 201)["seeded"]
        return seeded

    def listed(self, ref: str = REF, **query: object) -> list[Json]:
        """Entries of a ref, by the path that is a suite's."""
        entries: list[Json] = ok(self.get(f"/memory/{quote(ref, safe='')}", **query))["entries"]
        return entries

    def events(self, run: str) -> list[Json]:
        told: Json = ok(self.get(f"/runs/{run}/events"))
        assert told["isComplete"]
        events: list[Json] = told["events"]
        return events


@contextmanager
def driven(path: Path, **variables: Any) -> Iterator[Suite]:
    """A service with its seams on, and a suite that brings a writer's key."""
    token = made_key(path, "writer")
    with speaking(with_seams, path, variables) as service, calling(service, token) as http:
        yield Suite(service=service, http=http)


@contextmanager
def let_in(suite: Suite, role: str = "admin", tenant: str = "default") -> Iterator[Suite]:
    """The same, with a new key."""
    with calling(suite.service, made_key(suite.service.path, role, tenant)) as http:
        yield Suite(service=suite.service, http=http)
