"""Changes of memories in the Anthropic dialect: contents, names, and what is expected before."""

import hashlib
from datetime import timedelta

import anthropic
import httpx
import pytest
from anthropic.types.beta import BetaManagedAgentsMemoryStore as Store
from anthropic.types.beta.memory_stores import BetaManagedAgentsMemory as Memory

from ..support.anthropic_sdk import STORES, memory, paths, refusal, sdk, store, versions
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import START, Service

__all__ = ["sdk"]

OTHER = hashlib.sha256(b"other").hexdigest()


def change(service: Service, held: Memory, **fields: object) -> httpx.Response:
    return service.http.post(f"{STORES}/{held.memory_store_id}/memories/{held.id}", json=fields)


def expecting(sha256: str) -> dict[str, str]:
    return {"type": "content_sha256", "content_sha256": sha256}


@pytest.fixture
def notes(sdk: anthropic.Anthropic) -> Store:
    return store(sdk)


@pytest.fixture
def held(sdk: anthropic.Anthropic, notes: Store) -> Memory:
    return memory(sdk, notes, "/a", "first")


@requirement("anthropic:sdk:update-memory", "anthropic:head", "anthropic:precondition:met")
def test_a_new_content_is_a_new_version(
    service: Service, sdk: anthropic.Anthropic, notes: Store, held: Memory
) -> None:
    service.clock.advance(minutes=1)

    changed = sdk.beta.memory_stores.memories.update(
        held.id, memory_store_id=notes.id, content="second", view="full",
        precondition={"type": "content_sha256", "content_sha256": held.content_sha256},
    )  # fmt: skip

    newest, oldest = versions(sdk, notes)
    assert changed == held.model_copy(
        update={
            "content": "second", "content_sha256": hashlib.sha256(b"second").hexdigest(),
            "content_size_bytes": 6, "updated_at": START + timedelta(minutes=1),
            "memory_version_id": newest.id,
        }
    )  # fmt: skip
    assert held.memory_version_id == oldest.id
    assert sdk.beta.memory_stores.memories.retrieve(held.id, memory_store_id=notes.id) == changed


@requirement("anthropic:memories:rename")
def test_a_new_path_keeps_the_id_and_what_is_not_said(
    sdk: anthropic.Anthropic, notes: Store, held: Memory
) -> None:
    memories = sdk.beta.memory_stores.memories

    renamed = memories.update(held.id, memory_store_id=notes.id, path="/a/b", view="full")
    both = memories.update(held.id, memory_store_id=notes.id, path="/c", content="second")

    assert (renamed.id, renamed.path, renamed.content) == (held.id, "/a/b", "first")
    assert (both.id, both.path, both.content) == (held.id, "/c", None)
    assert paths(sdk, notes) == ["/c"]
    assert [(v.operation, v.path) for v in versions(sdk, notes)] == [
        ("modified", "/c"), ("modified", "/a/b"), ("created", "/a"),
    ]  # fmt: skip
    memory(sdk, notes, "/a")  # which is free again


@requirement("anthropic:memories:unchanged")
def test_a_change_of_nothing_writes_no_version(
    service: Service, sdk: anthropic.Anthropic, notes: Store, held: Memory
) -> None:
    service.clock.advance(minutes=1)
    same: list[dict[str, object]] = [
        {}, {"content": None, "path": None}, {"content": "first"}, {"path": "/a"},
        {"content": "first", "path": "/a"}, {"precondition": None},
    ]  # fmt: skip

    answers = [change(service, held, **fields) for fields in same]
    bodiless = service.http.post(f"{STORES}/{notes.id}/memories/{held.id}")

    assert {answer.status_code for answer in [*answers, bodiless]} == {200}
    assert {answer.json()["memory_version_id"] for answer in [*answers, bodiless]} == {
        held.memory_version_id
    }
    assert [version.id for version in versions(sdk, notes)] == [held.memory_version_id]
    read = sdk.beta.memory_stores.memories.retrieve(held.id, memory_store_id=notes.id, view="basic")
    assert read == held


@for_each("sha256", [OTHER, "", "0" * 64, "no hash", hashlib.sha256(b"first").hexdigest().upper()])
@requirement("anthropic:precondition:failed")
def test_a_change_that_expects_another_content_is_not_made(
    sdk: anthropic.Anthropic, notes: Store, held: Memory, sha256: str
) -> None:
    memories = sdk.beta.memory_stores.memories

    error = refusal(
        lambda: memories.update(
            held.id, memory_store_id=notes.id, content="second",
            precondition={"type": "content_sha256", "content_sha256": sha256},
        ),
        anthropic.ConflictError,
    )  # fmt: skip

    assert error == {
        "type": "memory_precondition_failed_error",
        "message": "The memory has changed: it is not in the expected state.",
    }
    assert memories.retrieve(held.id, memory_store_id=notes.id).content == "first"


@requirement("anthropic:precondition:done")
def test_what_is_as_wanted_already_is_done_whatever_was_expected(
    service: Service, sdk: anthropic.Anthropic, notes: Store, held: Memory
) -> None:
    wrong = expecting(OTHER)

    done = [
        change(service, held, content="first", precondition=wrong),
        change(service, held, path="/a", content="first", precondition=wrong),
        change(service, held, precondition=wrong),
    ]
    refused = [
        change(service, held, path="/b", content="first", precondition=wrong),
        change(service, held, path="/a", content="second", precondition=wrong),
    ]

    assert [answer.status_code for answer in done] == [200, 200, 200]
    assert [answer.status_code for answer in refused] == [409, 409]
    assert len(versions(sdk, notes)) == 1


@for_each(
    "precondition, sentence",
    [
        ({"type": "content_sha256"}, "precondition.content_sha256: Field required"),
        ({"content_sha256": OTHER}, "precondition.type: Field required"),
        ({"type": "etag", "content_sha256": OTHER},
         "precondition.type: Input should be 'content_sha256'"),
        ({"type": "content_sha256", "content_sha256": 1},
         "precondition.content_sha256: Input should be a valid string"),
        (OTHER, "precondition: Input should be an object"),
    ],
)  # fmt: skip
def test_a_precondition_that_is_none_is_refused(
    service: Service, held: Memory, precondition: object, sentence: str
) -> None:
    answer = change(service, held, content="second", precondition=precondition)

    assert (answer.status_code, answer.json()["error"]["message"]) == (400, sentence)


@requirement("anthropic:precondition:met", "anthropic:precondition:failed")
def test_a_deletion_may_expect_a_content_too(
    sdk: anthropic.Anthropic, notes: Store, held: Memory
) -> None:
    memories = sdk.beta.memory_stores.memories

    for wrong in (OTHER, ""):  # an empty one is no missing one
        error = refusal(
            lambda wrong=wrong: memories.delete(  # type: ignore[misc]
                held.id, memory_store_id=notes.id, expected_content_sha256=wrong
            ),
            anthropic.ConflictError,
        )
        assert error["type"] == "memory_precondition_failed_error"
    deleted = memories.delete(
        held.id, memory_store_id=notes.id, expected_content_sha256=held.content_sha256
    )

    assert (deleted.id, deleted.type, paths(sdk, notes)) == (held.id, "memory_deleted", [])


def test_a_memory_moves_below_its_own_path_and_back(
    sdk: anthropic.Anthropic, notes: Store, held: Memory
) -> None:
    memories = sdk.beta.memory_stores.memories

    for path in ("/a/b/c", "/a/b", "/a/b/c/d", "/a"):
        assert memories.update(held.id, memory_store_id=notes.id, path=path).path == path
    assert paths(sdk, notes) == ["/a"]


@requirement("anthropic:stored-bytes")
def test_size_hash_and_comparison_are_those_of_what_is_stored(
    service: Service, sdk: anthropic.Anthropic, notes: Store
) -> None:
    secret = f"the key is ghp_{'a1B2' * 9}."
    body = {"path": "/keys/ghp_" + "b3C4" * 9, "content": secret}

    answer = service.http.post(f"{STORES}/{notes.id}/memories?view=full", json=body)

    made, stored = answer.json(), "the key is [REDACTED:github-token]."
    assert answer.headers["x-redacted"] == "2"
    assert (made["content"], made["path"]) == (stored, "/keys/[REDACTED:github-token]")
    assert made["content_sha256"] == hashlib.sha256(stored.encode()).hexdigest()
    assert made["content_size_bytes"] == len(stored)
    again = service.http.post(
        f"{STORES}/{notes.id}/memories/{made['id']}",
        json={"content": secret, "precondition": expecting(OTHER)},
    )
    assert (again.status_code, again.headers["x-redacted"]) == (200, "1")
    assert len(versions(sdk, notes)) == 1
    read = service.http.get(f"{STORES}/{notes.id}/memories/{made['id']}")
    assert "x-redacted" not in read.headers
