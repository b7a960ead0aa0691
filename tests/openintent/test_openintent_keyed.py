"""Episodic memory by namespace and key, as OpenIntent's TypeScript client asks for it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from ..support.openintent_agents import Agent, Json, faults, ok, racing, refused
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Clock, serving

OWN = "/api/v1/agents/ada/memory"
APPLE = f"{OWN}/notes/apple"


def put(agent: Agent, value: object, path: str = APPLE, **more: Any) -> httpx.Response:
    return agent.ask("PUT", path, {"value": value} | more)


@requirement("OI-72", "OI-81")
def test_what_is_put_is_an_episodic_entry_of_the_agent(ada: Agent, clock: Clock) -> None:
    working = ada.make(memory_type="working")
    assert refused(ada.ask("GET", APPLE)) == (404, "ENTRY_NOT_FOUND")
    answer = put(ada, {"colour": "red"}, ttl_seconds=90)
    made = ok(answer, 201)

    assert (made["agent_id"], made["namespace"], made["key"]) == ("ada", "notes", "apple")
    assert (made["memory_type"], made["value"]) == ("episodic", {"colour": "red"})
    assert (made["ttl"], made["expires_at"]) == (
        "duration:PT90S", "2030-01-01T12:01:30.000000+00:00",
    )  # fmt: skip
    assert answer.headers["etag"] == '"1"'
    assert ok(ada.ask("GET", APPLE)) == ok(ada.get(made)) == made
    assert ok(ada.get(working)) == working
    assert ada.told() == [("created", "apple")] * 2
    clock.advance(seconds=90)
    assert refused(ada.ask("GET", APPLE)) == (404, "ENTRY_NOT_FOUND")
    raced = racing(12, lambda number: put(ada, number, ttl_seconds=3_153_600_000))
    assert sorted(it.json()["version"] for it in raced) == [*range(1, 13)]
    assert sorted(it.status_code for it in raced) == [200] * 11 + [201]


@requirement("OI-72")
def test_a_put_changes_the_value_and_the_ttl_and_leaves_the_rest(ada: Agent) -> None:
    made = ada.make(
        tags=["fruit"], pinned=True, priority="high", curated_by="bob", ttl="duration:P1D"
    )
    after = ok(put(ada, {"colour": "red"}))

    same = made.keys() - {"value", "ttl", "expires_at", "version", "updated_at"}
    assert {name: after[name] for name in same} == {name: made[name] for name in same}
    assert (after["value"], after["version"]) == ({"colour": "red"}, 2)
    assert (after["ttl"], after["expires_at"]) == (None, None)
    assert [it["type"] for it in ada.events()] == ["memory.updated", "memory.created"]


@for_each("value", ["text", 7, 1.5, True, None, [1, {"a": 2}], "", []])
@requirement("OI-72")
def test_a_value_that_is_no_object_is_stored_as_the_value_of_one(ada: Agent, value: object) -> None:
    put(ada, value)

    stored = ok(ada.ask("GET", APPLE))["value"]
    assert stored == {"value": value}
    assert type(stored["value"]) is type(value)


@pytest.mark.slow
@for_each(
    "path, body, at_fault",
    [
        ("notes/apple", {}, "value"), ("notes/apple", {"value": "x" * 65_536}, "value"),
        *(("notes/apple", {"value": 1, "ttl_seconds": it}, "ttl_seconds")
          for it in (0, 3_153_600_001, "90", True)),
        ("a*/b", {"value": 1}, "namespace"), ("a/%01", {"value": 1}, "key"),
        (f"{'n' * 201}/b", {"value": 1}, "namespace"), ("a/" + "k" * 201, {"value": 1}, "key"),
    ],
)  # fmt: skip
@requirement("OI-72", "OI-15")
def test_what_cannot_be_put_is_named_and_changes_nothing(
    ada: Agent, path: str, body: Json, at_fault: str
) -> None:
    ada.ask("DELETE", "/api/v1/memory/batch?namespace=notes")
    before = ada.make()

    answer = ada.ask("PUT", f"{OWN}/{path}", body)

    assert faults(answer) == [at_fault]
    torn = ada.ask("PUT", APPLE, content=b'{"value": "\\ud800"}')
    assert refused(torn) == (400, "INVALID_REQUEST")
    assert ok(ada.get(before)) == before
    if path != "notes/apple":
        assert refused(ada.ask("GET", f"{OWN}/{path}")) == (404, "ENTRY_NOT_FOUND")


@requirement("OI-72")
def test_names_may_have_what_a_path_must_escape(ada: Agent) -> None:
    path = f"{OWN}/a%2Fb%3F/c%20%2F%C3%A9%23"

    made = ok(put(ada, 1, path), 201)

    assert (made["namespace"], made["key"]) == ("a/b?", "c /é#")
    assert ok(ada.ask("GET", path)) == made
    assert ok(ada.ask("GET", f"{OWN}/a%2Fb%3F")) == [made]
    assert ok(ada.ask("GET", f"{OWN}/summary%2Fx")) == []
    for other in (f"{OWN}/a/b%3F/c", f"{OWN}/a%2Fb%3F/", f"{OWN}//c", f"{OWN}/%FF/c"):
        assert refused(ada.ask("GET", other)) == (404, "NOT_FOUND")
        assert refused(put(ada, 1, other)) == (404, "NOT_FOUND")
    assert refused(ada.ask("GET", "/api/v1/agents/ada%2Fmemory/notes/c")) == (404, "NOT_FOUND")
    assert refused(ada.ask("GET", "/api/v1/agents/x%2Fmemory/memory/c")) == (404, "NOT_FOUND")


@requirement("OI-72", "OI-62")
def test_a_namespace_is_listed_as_all_are(ada: Agent) -> None:
    for number in range(3):
        put(ada, number, f"{OWN}/notes/{number}")
    put(ada, 9, f"{OWN}/notes2/0")

    answer = ada.ask("GET", f"{OWN}/notes", params={"limit": 2, "namespace": "other"})

    assert [it["key"] for it in ok(answer)] == ["2", "1"]
    assert answer.headers["x-total-count"] == "3"
    assert ok(ada.ask("GET", f"{OWN}/note*")) == []
    assert "entry_count" in ok(ada.ask("GET", f"{OWN}/summary"))["episodic"]


@requirement("OI-72", "OI-87")
def test_what_is_secret_is_taken_out_and_the_place_is_found_again(ada: Agent) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 12
    path = f"{OWN}/notes/key {secret}"

    answer = put(ada, secret, path)

    assert secret not in answer.text
    assert int(answer.headers["x-redacted"]) >= 2
    assert ok(ada.ask("GET", path)) == answer.json()
    assert ok(put(ada, "plain", path))["id"] == answer.json()["id"]


@requirement("OI-72", "OI-46", "OI-44")
def test_a_put_makes_room_and_a_get_is_an_access(path: Path, clock: Clock) -> None:
    with serving(path, clock=clock, MEMORY_EPISODIC_CAPACITY="2") as service:
        ada = Agent(service.http)
        for number in (1, 2):
            put(ada, number, f"{OWN}/notes/{number}")
            clock.advance(seconds=1)
        ok(ada.ask("GET", f"{OWN}/notes/1"))
        clock.advance(seconds=1)

        put(ada, 3, f"{OWN}/notes/3")

        assert ada.found() == ["3", "1"]
        assert ("evicted", "2") in ada.told()
