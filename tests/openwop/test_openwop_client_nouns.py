"""The nouns of the protocol through the Python client: what is sent, read and refused."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import httpx
import pytest
from pydantic.alias_generators import to_camel

from agentops_memory_client import Conflict, Denied, Invalid, MemoryClient, NotFound
from agentops_memory_client.contract.models import Refused
from agentops_memory_client.openwop import MemoryEntry, Merge, OpenWopMemory

from ..support.asking import asking, over
from ..support.openwop_hosts import REF, H, Json, wire
from ..support.requirements import requirement
from ..support.service import START, Service

T = TypeVar("T")
EMPTY: tuple[object, ...] = (None, (), [], {})
MALFORMED = ("", "a/../b", "..", "a\\..", "\x01", "\x7f", "\0", "\ud800", "x" * 257, "x" * 70_000)


def as_json(value: object) -> Any:
    """A noun by the protocol's names of its fields, without those that say nothing."""
    if is_dataclass(value) and not isinstance(value, type):
        return as_json({to_camel(it.name): getattr(value, it.name) for it in fields(value)})
    if isinstance(value, datetime):
        return wire(value)
    if isinstance(value, Mapping):
        shown = {name: as_json(it) for name, it in value.items()}
        return {name: it for name, it in shown.items() if it is not False and it not in EMPTY}
    return [as_json(it) for it in value] if isinstance(value, list | tuple) else value


def nouns_of(answer: Json) -> Any:
    """What a method returns of an answer."""
    if "ranks" in answer:
        pairs = zip(answer["entries"], answer["ranks"], strict=True)
        return [{"entry": entry, "rank": rank} for entry, rank in pairs]
    if "event" in answer:
        payload = {**answer.pop("event")["payload"]}
        distillation = payload.pop("distillation", {})
        distillation.pop("indexUpdated", None)
        return answer | payload | distillation
    for name, kind in (("entry", dict), ("entries", list), ("removed", bool)):
        if isinstance(answer.get(name), kind):
            return answer[name]
    return answer


@dataclass(slots=True)
class Walk:
    """The client of a service, and the last request and answer of it."""

    service: Service
    client: MemoryClient = field(init=False)
    last: tuple[httpx.Request, httpx.Response] = field(init=False)

    def road(self, request: httpx.Request) -> httpx.Response:
        self.last = request, over(self.service)(request)
        self.service.clock.advance(seconds=1)  # so that no two times are equal
        return self.last[1]

    def checked(self, result: T, route: str, **sent: object) -> T:
        """The result of a method that sent just this to the route, and read its whole answer."""
        request, answer = self.last
        assert f"{request.method} {request.url.path.removeprefix(H)}" == route
        if request.method in ("GET", "DELETE"):
            assert dict(request.url.params) == {name: str(it) for name, it in sent.items()}
        else:
            assert json.loads(request.content or "{}") == sent
        assert as_json(result) == as_json(nouns_of(answer.json()))
        return result


@contextmanager
def walking(kind: str, service: Service) -> Iterator[Walk]:
    walk = Walk(service)
    with asking(kind, road=walk.road) as walk.client:
        yield walk


@requirement("OW-104")
def test_entries_and_what_is_known_of_them_are_read_as_they_are_answered(
    kind: str, service: Service
) -> None:
    ends, of_ref = START + timedelta(hours=1, milliseconds=5), {"memoryRef": REF}
    with walking(kind, service) as walk:
        memory, checked = walk.client.openwop, walk.checked
        put: Json = {**of_ref, "content": "green apples"}
        first = checked(
            memory.put(REF, "green apples", tags=["fruit", "green"], expires_at=ends),
            "POST /memory", **put, tags=["fruit", "green"], expiresAt=ends.isoformat(),
        )  # fmt: skip
        assert first == MemoryEntry(
            id=first.id, content="green apples", tags=("fruit", "green"), created_at=START,
            expires_at=ends,
        )  # fmt: skip
        with pytest.raises(AttributeError):
            first.content = "x"  # type: ignore[misc]
        second = checked(
            memory.put(REF, "red apples", ttl_seconds=60, id="apples/red"), "POST /memory",
            **of_ref, content="red apples", ttlSeconds=60, id="apples/red",
        )  # fmt: skip
        with memory.run("r1", agent_id="ada") as run:
            newer = run.put(REF, "apples, and more", supersedes=[first.id], node_id="paint")
            of_run = {"runId": "r1", "nodeId": "paint", "agentId": "ada"}
            checked(newer, "POST /memory", **of_ref, content="apples, and more",
                    supersedes=[first.id], **of_run)  # fmt: skip
            run.put(REF, "blue plums", node_id="build", agent_id="bob")
            assert json.loads(walk.last[0].content)["agentId"] == "bob"
        assert len(checked(memory.list(REF), "GET /memory", **of_ref)) == 3
        portion: Json = {"limit": 1, "tag": "fruit", "before": second.id}
        checked(memory.list(REF, token_budget=20, **portion), "GET /memory", **of_ref, **portion,
                tokenBudget=20)  # fmt: skip
        assert checked(memory.get(REF, second.id), f"GET /memory/{second.id}", **of_ref) == second
        found = checked(
            memory.search(REF, "apples", tag="", limit=5, token_budget=100), "GET /search",
            **of_ref, q="apples", tag="", limit=5, tokenBudget=100,
        )  # fmt: skip
        assert len(found) == 2
        assert memory.search(REF, "apples " + "x" * 100_000)[0] == found[0]
        for entry in (first, newer):
            checked(memory.provenance(REF, entry.id), f"GET /provenance/{entry.id}", **of_ref)
        assert memory.provenance(REF, "nothing") is None
        events = checked(memory.events(limit=2), "GET /events", limit=2)
        checked(memory.events(events.next, type="memory.written"), "GET /events",
                after=events.next, type="memory.written")  # fmt: skip
        assert checked(memory.delete(REF, second.id), f"DELETE /memory/{second.id}", **of_ref)
        assert memory.delete(REF, second.id) is False


@requirement("OW-104")
def test_passes_and_forgetting_are_asked_for_and_read_as_they_are_answered(
    kind: str, service: Service
) -> None:
    ends, of_ref = START + timedelta(days=1), {"memoryRef": REF}
    with walking(kind, service) as walk:
        memory, checked = walk.client.openwop, walk.checked
        ids = [memory.put(REF, it, tags=["subject:ada"]).id for it in ("It waits.", "It ends.")]
        done = checked(
            memory.compact(REF, content="All of it.", keep_sources=True), "POST /compact",
            **of_ref, content="All of it.", keepSources=True,
        )  # fmt: skip
        checked(memory.undo(done.run_id), f"POST /passes/{done.run_id}/undo")
        distilled = checked(
            memory.distill(REF, token_budget=500, expires_at=ends, recursive=True),
            "POST /distill", **of_ref, tokenBudget=500, expiresAt=ends.isoformat(), recursive=True,
        )  # fmt: skip
        assert (distilled.created, memory.distill(REF, token_budget=500).created) == (True, False)
        text = memory.distill(REF, content="Quick.")
        checked(text, "POST /distill", **of_ref, content="Quick.")
        merge = Merge(ids=ids, content="Both.", tags=["subject:ada"])
        checked(memory.consolidate(REF, merges=[merge]), "POST /consolidate", **of_ref,
                merges=[{"ids": ids, "content": "Both.", "tags": ["subject:ada"]}])  # fmt: skip
        would = checked(memory.forget("ada", dry_run=True), "POST /forget", subject="ada",
                        dryRun=True)  # fmt: skip
        forgotten = checked(memory.forget("ada"), "POST /forget", subject="ada")
        assert (would.dry_run, would.erasure_id, forgotten.dry_run) == (True, None, False)
        assert "ada" not in repr(forgotten)


@requirement("OW-104")
def test_each_refusal_is_of_its_class_and_has_its_code(memory: OpenWopMemory) -> None:
    entry = memory.put(REF, "alone")
    refusals: list[tuple[type[Refused], str | None, Callable[[], object]]] = [
        (Conflict, "nothing_to_compact", lambda: memory.compact(REF)),
        (Denied, "forbidden", lambda: memory.put("tenants/acme/notes", "text")),
        (Invalid, None, lambda: memory.put(REF, " ", expires_at=datetime(2031, 1, 1))),  # noqa: DTZ001
        (Invalid, None, lambda: memory.put(REF, "text", idempotency_key="ä")),
        *((Invalid, None, partial(memory.put, ref, "text")) for ref in MALFORMED),
        (Invalid, None, lambda: memory.list(REF, limit=-1)),
        (Invalid, None, lambda: memory.search(REF, "")),
        *((Invalid, None, partial(memory.forget, it)) for it in ("", "x" * 257)),
        # No path can be made of these ids.
        *((NotFound, None, partial(memory.undo, id_)) for id_ in ("a/../b", "\ud800", "..")),
    ]  # fmt: skip
    for error, code, ask in refusals:
        with pytest.raises(error) as refusal:
            ask()
        assert type(refusal.value) is error
        assert code in (None, refusal.value.code)
    with pytest.raises(Invalid) as invalid:
        memory.put(REF, " ", tags=["archive"], ttl_seconds=0)
    for name in ("content", "tags", "ttlSeconds"):
        assert name in str(invalid.value)
    assert memory.list(REF) == (entry,)
