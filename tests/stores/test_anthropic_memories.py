"""Memories of the Anthropic dialect: written at paths, read, deleted."""

import hashlib

import anthropic
import httpx

from ..support.anthropic_sdk import (
    STORES,
    memory,
    paths,
    refusal,
    sdk,
    store,
    versions,
)
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, lasting as service

__all__ = ["sdk", "service"]

NOON = "2030-01-01T12:00:00.000000Z"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def create(service: Service, store: str, **fields: object) -> httpx.Response:
    return service.http.post(f"{STORES}/{store}/memories", json=fields)


@requirement(
    "anthropic:sdk:create-memory", "anthropic:fields", "anthropic:ids", "anthropic:times",
    "anthropic:paths:slash", "anthropic:head",
)  # fmt: skip
def test_a_memory_is_made_at_a_path(service: Service, sdk: anthropic.Anthropic) -> None:
    held = store(sdk)

    made = create(service, held.id, path="/a/b.md", content="héllo")

    assert made.status_code == 200
    assert made.json() == {
        "id": made.json()["id"], "type": "memory", "memory_store_id": held.id,
        "memory_version_id": versions(sdk, held)[0].id, "path": "/a/b.md", "content": None,
        "content_sha256": sha256("héllo"), "content_size_bytes": 6, "created_at": NOON,
        "updated_at": NOON,
    }  # fmt: skip
    assert made.json()["id"].startswith("mem_")


@requirement("anthropic:sdk:get-memory", "anthropic:view")
def test_a_memory_is_read_with_its_content_unless_the_view_is_basic(
    sdk: anthropic.Anthropic,
) -> None:
    held, memories = store(sdk), sdk.beta.memory_stores.memories
    shown = memories.create(held.id, path="/a", content="héllo", view="full")
    hidden = shown.model_copy(update={"content": None})

    assert shown.content == "héllo"
    assert memories.retrieve(shown.id, memory_store_id=held.id) == shown
    assert memories.retrieve(shown.id, memory_store_id=held.id, view="full") == shown
    assert memories.retrieve(shown.id, memory_store_id=held.id, view="basic") == hidden
    assert memories.create(held.id, path="/b", content="x").content is None


@for_each("view", ["", "FULL", "all", "full,basic"])
@requirement("anthropic:view")
def test_another_view_is_refused_and_nothing_is_written(
    service: Service, sdk: anthropic.Anthropic, view: str
) -> None:
    held = store(sdk)
    url = f"{STORES}/{held.id}/memories"

    answers = [
        service.http.post(url, params={"view": view}, json={"path": "/a", "content": "x"}),
        service.http.get(url, params={"view": view}),
    ]

    error = {"type": "invalid_request_error", "message": "view: it must be 'basic' or 'full'."}
    assert [(one.status_code, one.json()["error"]) for one in answers] == [(400, error)] * 2
    assert paths(sdk, held) == []


TAKEN: list[tuple[str, str]] = [
    ("/a/b", "/a/b"), ("/a", "/a/b"), ("/a/b/c", "/a/b"), ("/a/b/c/d", "/a/b"),
]  # fmt: skip


@for_each("wanted, held_path", TAKEN)
@requirement("anthropic:paths:taken", "anthropic:paths:nested")
def test_a_path_that_is_taken_or_leads_through_a_memory_is_refused(
    sdk: anthropic.Anthropic, wanted: str, held_path: str
) -> None:
    held = store(sdk)
    there = memory(sdk, held, held_path)
    other = memory(sdk, held, "/other")
    memories = sdk.beta.memory_stores.memories

    made = refusal(lambda: memory(sdk, held, wanted), anthropic.ConflictError)
    renamed = refusal(
        lambda: memories.update(other.id, memory_store_id=held.id, path=wanted),
        anthropic.ConflictError,
    )

    assert (
        made
        == renamed
        == {
            "type": "memory_path_conflict_error", "message": "Another memory has this path.",
            "conflicting_memory_id": there.id, "conflicting_path": held_path,
        }
    )  # fmt: skip
    assert paths(sdk, held) == [held_path, "/other"]


@for_each("path", ["/a/bc", "/a/b.md", "/A/b", "/a/b c", "/b", "/a-b"])
@requirement("anthropic:paths:nested")
def test_a_path_beside_another_one_is_free(sdk: anthropic.Anthropic, path: str) -> None:
    held = store(sdk)
    memory(sdk, held, "/a/b")

    assert memory(sdk, held, path).path == path


def test_a_path_in_another_store_and_that_of_a_deleted_memory_are_free(
    sdk: anthropic.Anthropic,
) -> None:
    held, other = store(sdk), store(sdk)
    first = memory(sdk, held, "/a")
    memory(sdk, other, "/a")
    sdk.beta.memory_stores.memories.delete(first.id, memory_store_id=held.id)

    again = memory(sdk, held, "/a/b")

    assert again.id != first.id
    assert (paths(sdk, held), paths(sdk, other)) == (["/a/b"], ["/a"])


@requirement("anthropic:sdk:delete-memory", "anthropic:deleting")
def test_a_deleted_memory_is_gone_and_its_versions_stay(
    service: Service, sdk: anthropic.Anthropic
) -> None:
    held = store(sdk)
    made = memory(sdk, held, "/a")
    url = f"{STORES}/{held.id}/memories/{made.id}"

    deleted = service.http.delete(url)

    assert (deleted.status_code, deleted.json()) == (200, {"id": made.id, "type": "memory_deleted"})
    again = [service.http.get(url), service.http.delete(url), service.http.post(url, json={})]
    assert [answer.status_code for answer in again] == [404, 404, 404]
    assert paths(sdk, held) == []
    assert [version.operation for version in versions(sdk, held)] == ["deleted", "created"]
