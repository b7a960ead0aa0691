"""A write to a store that has an idempotency key is done once, and answered as before."""

from itertools import count
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from ..support.callers import calling, made_key
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving
from ..support.service import lasting as service
from ..support.store_dialects import (
    ANTHROPIC,
    UNKNOWN,
    Dialect,
    every_request,
    in_both,
    stocked,
)
from ..support.stores import STORES, at, entry, entry_at, fault, store, update

__all__ = ["service"]

KEYS = count()
ERASED = "This was done, but its response has been erased."
REUSED = "Idempotency key reused with a different request body."


class Write(NamedTuple):
    """A request that is sent under a key."""

    method: str
    path: str
    body: dict[str, object] | None = None


def ask(http: httpx.Client, write: Write, key: str, body: object = None) -> httpx.Response:
    return http.request(
        write.method, write.path, json=body or write.body, headers={"Idempotency-Key": key}
    )


@pytest.mark.slow
@requirement("stores:idempotency:again", "anthropic:once")
@in_both
def test_the_same_request_again_has_the_same_answer_and_is_not_done_again(
    service: Service, dialect: Dialect
) -> None:
    known = stocked(service.http)
    home = {"id": known[0]}
    traces = [STORES, at(home, "memories"), at(home, "versions")]

    def state() -> list[object]:
        return [service.http.get(path).json().get("data") for path in traces]

    for it in every_request(*known, dialect):
        if it.role == "reader":
            continue
        write, key = Write(it.method, it.path, it.body), f"again-{next(KEYS)}"
        first = ask(service.http, write, key)
        after = state()
        second = ask(service.http, write, key)

        assert first.status_code == it.status, (it, first.text)
        assert (second.status_code, second.content) == (first.status_code, first.content)
        assert "idempotent-replayed" not in first.headers
        assert second.headers["idempotent-replayed"] == "true"
        assert state() == after, it
        if dialect is ANTHROPIC:
            assert first.headers["request-id"] != second.headers["request-id"]


@pytest.mark.slow
@in_both
def test_every_write_is_described_with_a_key(service: Service, dialect: Dialect) -> None:
    described = service.http.get("/openapi.json").json()["paths"]

    takes = {
        operation["operationId"]
        for path, operations in described.items()
        for operation in operations.values()
        if path.startswith(dialect.prefix)
        if "Idempotency-Key" in {it["name"] for it in operation.get("parameters", ())}
    }
    asked = every_request(*UNKNOWN, dialect)
    assert takes == {it.name for it in asked if it.role != "reader"}


@for_each("key", [b"", "é".encode(), b"k" * 256])
@in_both
def test_what_is_no_key_is_refused(service: Service, dialect: Dialect, key: bytes) -> None:
    headers = {b"Idempotency-Key": key}
    answer = service.http.post(dialect.stores, json={"name": "n"}, headers=headers)

    assert dialect.fault(answer) == (400, "invalid_request_error")


@requirement("stores:idempotency:other", "anthropic:once")
@in_both
def test_another_request_under_the_key_is_a_conflict(service: Service, dialect: Dialect) -> None:
    key, write = f"other-{next(KEYS)}", Write("POST", dialect.stores, {"name": "One"})
    ask(service.http, write, key)

    other = dialect.refusal(ask(service.http, write, key, {"name": "Other"}))

    assert (other.status, other.type, other.message) == (409, "conflict_error", REUSED)


@requirement("stores:idempotency:again")
def test_the_first_answer_comes_again_although_things_went_on(service: Service) -> None:
    http = service.http
    made, key = store(http), f"later-{next(KEYS)}"
    created = Write("POST", at(made, "memories"), {"path": "a.md", "content": "one"})
    first = ask(http, created, key)
    updated = Write("PUT", entry_at(made, first.json()), {"content": "two"})
    second = ask(http, updated, f"{key}-2")
    service.clock.advance(hours=1)
    update(http, made, first.json(), "three")
    http.delete(entry_at(made, first.json()))
    http.post(at(made, "archive"))

    assert ask(http, created, key).content == first.content
    assert ask(http, updated, f"{key}-2").content == second.content


@requirement("stores:idempotency:holder")
def test_a_key_is_its_holders_alone(path: Path) -> None:
    tokens = [made_key(path), made_key(path)]
    with serving(path) as service:
        ids = set()
        for token in tokens:
            with calling(service, token) as http:
                write = Write("POST", STORES, {"name": "Mine"})
                ids.add(ask(http, write, "same").json()["id"])

    assert len(ids) == 2


def test_secrets_are_counted_as_before(service: Service) -> None:
    made, key = store(service.http), f"secret-{next(KEYS)}"
    body: dict[str, object] = {"path": "a.md", "content": "AKIAQZXV7RAREK3YQ9AB is it"}
    write = Write("POST", at(made, "memories"), body)

    answers = [ask(service.http, write, key) for _ in range(2)]

    assert [answer.headers["x-redacted"] for answer in answers] == ["1", "1"]
    assert answers[0].json() == answers[1].json()


def test_what_was_made_and_is_gone_is_not_there(service: Service) -> None:
    key = f"made-{next(KEYS)}"
    writes = [Write("POST", STORES, {"name": "Gone"})]
    home = ask(service.http, writes[0], key).json()
    writes.append(Write("POST", at(home, "memories"), {"path": "a.md", "content": "b"}))
    held = ask(service.http, writes[1], f"{key}-2").json()
    writes.append(Write("PUT", entry_at(home, held), {"content": "c"}))
    ask(service.http, writes[2], f"{key}-3")
    writes.append(Write("POST", f"/anthropic/v1/memory_stores/{home['id']}", {"name": "Going"}))
    ask(service.http, writes[3], f"{key}-4")
    service.http.delete(at(home))

    again = [
        ask(service.http, write, under)
        for write, under in zip(writes, (key, f"{key}-2", f"{key}-3", f"{key}-4"), strict=True)
    ]

    assert [fault(answer)[0] for answer in again[:3]] == [404] * 3
    assert again[3].status_code == 404
    messages = [answer.json()["error"]["message"] for answer in again]
    assert messages[0] == ERASED
    assert all(home["id"] in message for message in messages[1:3])
    assert messages[3] == "No such memory store."


@requirement("anthropic:once")
def test_a_change_of_a_store_comes_again_as_it_was_asked_for(service: Service) -> None:
    home, key = store(service.http, "one", metadata={"a": "1"}), f"amend-{next(KEYS)}"
    theirs = f"/anthropic/v1/memory_stores/{home['id']}"
    patch: dict[str, object] = {"name": "two", "metadata": {"b": "2", "a": None}}
    first = ask(service.http, Write("POST", theirs, patch), key).json()
    service.http.post(theirs, json={"name": "three", "metadata": {"b": "3", "a": "4"}})
    service.clock.advance(minutes=1)
    service.http.post(f"{theirs}/archive")

    again = ask(service.http, Write("POST", theirs, patch), key)

    assert again.headers["idempotent-replayed"] == "true"
    assert (first["name"], first["metadata"]) == ("two", {"b": "2"})
    assert again.json() == first


def test_an_answer_that_was_taken_out_is_a_conflict(service: Service) -> None:
    home, key = store(service.http), f"taken-{next(KEYS)}"
    held = entry(service.http, home, "a.md", "one")
    theirs = f"/anthropic/v1/memory_stores/{home['id']}"
    write = Write("POST", f"{theirs}/memories/{held['id']}", {"content": "two"})
    version = ask(service.http, write, key).json()["memory_version_id"]
    update(service.http, home, held, "three")
    assert service.http.post(f"{theirs}/memory_versions/{version}/redact").status_code == 200

    again = ask(service.http, write, key)

    assert again.status_code == 409
    assert "no longer known" in again.json()["error"]["message"]
