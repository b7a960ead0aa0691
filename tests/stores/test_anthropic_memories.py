"""Memories of the Anthropic dialect: written at paths, read, deleted."""

import hashlib

import anthropic
import httpx
import pytest

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
from ..support.service import Service
from ..support.service import lasting as service

__all__ = ["sdk", "service"]

NOON = "2030-01-01T12:00:00.000000Z"
LONGEST = 102_400  # bytes of a content


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


@for_each(
    "path",
    ["/a", "/a b", "/a/b/c.md", "/.a", "/..a", "/a..b/c", "/a.", "/日本語/メモ", "/é",
     "/" + "/".join("abcdefghijklmnopqrst"), "/" + "x" * 1023, "/" + "é" * 511, "/%2e%2e/%00",
     "/mem_1", "/*?[a]", "/a\\b", "/👍🏽"],
)  # fmt: skip
@requirement("anthropic:paths:rules", "anthropic:paths:dots")
def test_a_plain_path_is_kept_to_the_letter(sdk: anthropic.Anthropic, path: str) -> None:
    held = store(sdk)

    assert memory(sdk, held, path).path == path
    assert paths(sdk, held) == [path]


SEGMENT = "No segment of path may be empty, '.' or '..'."
CONTROL = "path must not contain control characters."
FORMAT = "path: it has no format characters, U+2028 or U+2029."
BYTES = "path: it has at most 1,024 bytes, the leading '/' included."


@pytest.mark.slow
@for_each(
    "path, sentence",
    [
        ("a", "path: String should match pattern '^/'"),
        ("", "path: String should match pattern '^/'"), ("/", SEGMENT), ("//a", SEGMENT),
        ("/a//b", SEGMENT), ("/a/", SEGMENT), ("/./a", SEGMENT), ("/a/..", SEGMENT),
        ("/" + "/".join("abcdefghijklmnopqrstu"), "path has at most 20 segments."),
        ("/" + "x" * 1024, "path: String should have at most 1024 characters"),
        ("/" + "é" * 512, BYTES),
        ("/e\u0301", "path: it must be in Unicode's normalization form C."), ("/a\0", CONTROL),
        ("/a\n", CONTROL), ("/\x7f", CONTROL), ("/\x85", CONTROL), ("/a\u200b", FORMAT),
        ("/\u202ea", FORMAT), ("/a\u2028b", FORMAT), ("/a\u2029b", FORMAT), ("/\U000e0001", FORMAT),
        (None, "path: Field required"), (7, "path: Input should be a valid string"),
    ],
)  # fmt: skip
@requirement("anthropic:paths:rules", "anthropic:paths:dots")
def test_any_other_path_is_refused_of_a_new_memory_and_of_a_renamed_one(
    service: Service, sdk: anthropic.Anthropic, path: object, sentence: str
) -> None:
    held = store(sdk)
    kept = memory(sdk, held, "/kept")
    url = f"{STORES}/{held.id}/memories/{kept.id}"

    made = create(service, held.id, path=path, content="x")
    renamed = service.http.post(url, json={"path": path})

    assert (made.status_code, made.json()["error"]["message"]) == (400, sentence)
    if path is not None:  # which renames nothing
        assert (renamed.status_code, renamed.json()["error"]["message"]) == (400, sentence)
    assert paths(sdk, held) == ["/kept"]


@for_each("content", ["", " ", "a" * LONGEST, "é" * (LONGEST // 2), "\ufeffa\r\n\x01"])
@requirement("anthropic:content:limits")
def test_a_content_is_kept_to_the_letter(sdk: anthropic.Anthropic, content: str) -> None:
    held = store(sdk)

    made = memory(sdk, held, "/a", content)

    read = sdk.beta.memory_stores.memories.retrieve(made.id, memory_store_id=held.id)
    assert read.content == content
    assert read.content_sha256 == sha256(content)
    assert read.content_size_bytes == len(content.encode())


@for_each(
    "content, sentence",
    [
        ("a" * (LONGEST + 1), "content: String should have at most 102400 characters"),
        ("é" * (LONGEST // 2) + "a", "content has at most 102,400 bytes."),
        ("a\0b", "content: String should have no NUL"),
        (None, "content: Field required"),
        (1, "content: Input should be a valid string"),
        (True, "content: Input should be a valid string"),
        (["a"], "content: Input should be a valid string"),
    ],
)
@requirement("anthropic:content:limits", "anthropic:body:strict")
def test_any_other_content_is_refused(
    service: Service, sdk: anthropic.Anthropic, content: object, sentence: str
) -> None:
    held = store(sdk)

    answer = create(service, held.id, path="/a", content=content)

    assert (answer.status_code, answer.json()["error"]["message"]) == (400, sentence)
    assert paths(sdk, held) == []


@for_each(
    "body",
    [
        b'{"path": "/a", "content": "\\ud800"}', b'{"path": "/\\udfff", "content": "x"}',
        b'{"path": "/a", "content": "\\u0000"}', b'{"path": "/a", "content": "caf\xe9"}',
        b'{"path": "/caf\xe9", "content": "x"}', b'{"path": "/a", "content": "x", "caf\xe9": 1}',
    ],
)  # fmt: skip
@requirement("anthropic:body:strict")
def test_what_could_not_be_stored_as_it_is_is_refused(
    service: Service, sdk: anthropic.Anthropic, body: bytes
) -> None:
    held = store(sdk)

    answer = service.http.post(f"{STORES}/{held.id}/memories", content=body)

    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
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
