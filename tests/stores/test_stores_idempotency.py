"""A write to a store that has an idempotency key is done once, and answered as before."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from ..support.callers import calling, made_key
from ..support.requirements import requirement
from ..support.service import Service, serving
from ..support.service import lasting as service
from ..support.stores import NEVER, STORES, at, entry, entry_at, fault, ok, store, update

__all__ = ["service"]

KEYS = count()
CONFLICT = (409, "conflict_error", None)
ERASED = "This was done, but its response has been erased."
REUSED = "Idempotency key reused with a different request body."


class Write(NamedTuple):
    """A request, and what it leaves: how often it was done."""

    method: str
    path: str
    body: dict[str, object] | None
    trace: str  # a list that it makes longer


def writes(http: httpx.Client) -> dict[str, Write]:
    """Each write, on a store and an entry of its own."""
    made = [store(http) for _ in range(7)]
    entries = [entry(http, one, "a.md", "first") for one in made]
    newest = [ok(http.get(at(one, "versions")))["data"][0] for one in made]
    return {
        "create store": Write("POST", STORES, {"name": " New ", "metadata": {"a": "b"}}, STORES),
        "archive": Write("POST", at(made[0], "archive"), {}, STORES),
        "delete store": Write("DELETE", at(made[1]), None, STORES),
        "create": Write(
            "POST", at(made[2], "memories"),
            {"path": "b.md", "content": "é", "metadata": {"c": "d"}}, at(made[2], "versions"),
        ),
        "update": Write(
            "PUT", entry_at(made[3], entries[3]), {"content": "next", "version": 1},
            at(made[3], "versions"),
        ),
        "delete": Write("DELETE", entry_at(made[4], entries[4]), None, at(made[4], "versions")),
        "redact": Write(
            "POST", at(made[5], "versions", newest[5]["id"], "redact"), None,
            at(made[5], "versions"),
        ),
    }  # fmt: skip


def ask(http: httpx.Client, write: Write, key: str, body: object = None) -> httpx.Response:
    return http.request(
        write.method, write.path, json=body or write.body, headers={"Idempotency-Key": key}
    )


@pytest.mark.representative(2)
@requirement("stores:idempotency:again")
@pytest.mark.parametrize(
    "name", ["create store", "archive", "delete store", "create", "update", "delete", "redact"]
)
def test_the_same_request_again_has_the_same_answer_and_is_not_done_again(
    service: Service, name: str
) -> None:
    write, key = writes(service.http)[name], f"again-{next(KEYS)}"

    first = ask(service.http, write, key)
    after = service.http.get(write.trace).json()
    second = ask(service.http, write, key)

    assert first.is_success
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert service.http.get(write.trace).json() == after


@requirement("stores:idempotency:again")
def test_the_older_spelling_is_the_same_header(service: Service) -> None:
    headers = {"X-Idempotency-Key": f"older-{next(KEYS)}"}

    first, second = (
        service.http.post(STORES, json={"name": "Once"}, headers=headers) for _ in range(2)
    )

    assert first.json() == second.json()


@requirement("stores:idempotency:other")
def test_another_request_under_the_key_is_a_conflict(service: Service) -> None:
    key = f"other-{next(KEYS)}"
    write = writes(service.http)["create store"]
    ask(service.http, write, key)

    other = ask(service.http, write, key, {"name": "Other"})

    assert fault(other) == CONFLICT
    assert other.json()["error"]["message"] == REUSED


@requirement("stores:idempotency:again")
def test_the_first_answer_comes_again_although_things_went_on(service: Service) -> None:
    http = service.http
    made, key = store(http), f"later-{next(KEYS)}"
    created = Write("POST", at(made, "memories"), {"path": "a.md", "content": "one"}, "")
    first = ask(http, created, key)
    updated = Write("PUT", entry_at(made, first.json()), {"content": "two"}, "")
    second = ask(http, updated, f"{key}-2")
    service.clock.advance(hours=1)
    update(http, made, first.json(), "three")
    http.delete(entry_at(made, first.json()))
    http.post(at(made, "archive"))

    assert ask(http, created, key).content == first.content
    assert ask(http, updated, f"{key}-2").content == second.content


@requirement("stores:idempotency:again")
def test_after_a_day_the_request_is_another_one(service: Service) -> None:
    write, key = writes(service.http)["create store"], f"day-{next(KEYS)}"
    first = ask(service.http, write, key)

    service.clock.advance(hours=24)

    assert ask(service.http, write, key).json()["id"] != first.json()["id"]


def test_what_was_refused_is_tried_again(service: Service) -> None:
    made, key = store(service.http), f"refused-{next(KEYS)}"
    held = entry(service.http, made, "a.md")
    write = Write("POST", at(made, "memories"), {"path": "a.md", "content": "again"}, "")

    assert fault(ask(service.http, write, key)) == CONFLICT
    service.http.delete(entry_at(made, held))

    assert ask(service.http, write, key).status_code == 201


def test_a_store_that_is_gone_is_still_not_there_under_a_new_key(service: Service) -> None:
    write = Write("DELETE", f"{STORES}/memstore_{NEVER}", None, "")

    assert fault(ask(service.http, write, f"gone-{next(KEYS)}"))[0] == 404


@pytest.mark.slow
def test_many_at_once_are_one(service: Service) -> None:
    write, key = writes(service.http)["create"], f"many-{next(KEYS)}"

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask(service.http, write, key), range(24)))

    assert {(answer.status_code, answer.content) for answer in answers} == {
        (201, answers[0].content)
    }
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1


@requirement("stores:idempotency:holder")
def test_a_key_is_its_holders_alone(path: Path) -> None:
    tokens = [made_key(path), made_key(path)]
    with serving(path) as service:
        ids = set()
        for token in tokens:
            with calling(service, token) as http:
                write = Write("POST", STORES, {"name": "Mine"}, "")
                ids.add(ask(http, write, "same").json()["id"])

    assert len(ids) == 2


def test_secrets_are_counted_as_before(service: Service) -> None:
    made, key = store(service.http), f"secret-{next(KEYS)}"
    body: dict[str, object] = {"path": "a.md", "content": "AKIAQZXV7RAREK3YQ9AB is it"}
    write = Write("POST", at(made, "memories"), body, "")

    answers = [ask(service.http, write, key) for _ in range(2)]

    assert [answer.headers["x-redacted"] for answer in answers] == ["1", "1"]
    assert answers[0].json() == answers[1].json()


def test_what_was_made_and_is_gone_is_not_there(service: Service) -> None:
    key = f"made-{next(KEYS)}"
    writes = [Write("POST", STORES, {"name": "Gone"}, "")]
    home = ask(service.http, writes[0], key).json()
    writes.append(Write("POST", at(home, "memories"), {"path": "a.md", "content": "b"}, ""))
    held = ask(service.http, writes[1], f"{key}-2").json()
    writes.append(Write("PUT", entry_at(home, held), {"content": "c"}, ""))
    ask(service.http, writes[2], f"{key}-3")
    service.http.delete(at(home))

    again = [
        ask(service.http, write, under)
        for write, under in zip(writes, (key, f"{key}-2", f"{key}-3"), strict=True)
    ]

    assert [fault(answer)[0] for answer in again] == [404, 404, 404]
    assert again[0].json()["error"]["message"] == ERASED
    assert home["id"] in again[1].json()["error"]["message"]


def test_a_change_of_a_store_comes_again_as_it_was_asked_for(service: Service) -> None:
    home, key = store(service.http, "one", metadata={"a": "1"}), f"amend-{next(KEYS)}"
    theirs = f"/anthropic/v1/memory_stores/{home['id']}"
    patch: dict[str, object] = {"name": "two", "metadata": {"b": "2", "a": None}}
    first = ask(service.http, Write("POST", theirs, patch, ""), key).json()
    service.http.post(theirs, json={"name": "three", "metadata": {"b": "3", "a": "4"}})

    again = ask(service.http, Write("POST", theirs, patch, ""), key)

    assert again.headers["idempotent-replayed"] == "true"
    assert (first["name"], first["metadata"]) == ("two", {"b": "2"})
    assert (again.json()["name"], again.json()["metadata"]) == ("two", {"b": "2"})


def test_an_answer_that_was_taken_out_is_a_conflict(service: Service) -> None:
    home, key = store(service.http), f"taken-{next(KEYS)}"
    held = entry(service.http, home, "a.md", "one")
    theirs = f"/anthropic/v1/memory_stores/{home['id']}"
    write = Write("POST", f"{theirs}/memories/{held['id']}", {"content": "two"}, "")
    version = ask(service.http, write, key).json()["memory_version_id"]
    update(service.http, home, held, "three")
    assert service.http.post(f"{theirs}/memory_versions/{version}/redact").status_code == 200

    again = ask(service.http, write, key)

    assert again.status_code == 409
    assert "no longer known" in again.json()["error"]["message"]
