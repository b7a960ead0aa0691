"""Versions of the Anthropic dialect: what each change left, and what is taken out of it."""

import hashlib
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import anthropic
import pytest
from anthropic.types.beta import BetaManagedAgentsMemoryStore as Store

from ..support.anthropic_sdk import (
    NOTHING,
    STORES,
    client,
    memory,
    refusal,
    sdk,
    store,
    versions,
)
from ..support.callers import made_key
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import START, Service, serving

__all__ = ["sdk"]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def at(minutes: int) -> str:
    return f"2030-01-01T12:{minutes:02}:00.000000Z"


@pytest.fixture
def notes(service: Service, sdk: anthropic.Anthropic) -> Store:
    """A store with a memory that was made, changed and deleted, a minute after each other."""
    notes, memories = store(sdk), sdk.beta.memory_stores.memories
    held = memory(sdk, notes, "/a", "first")
    service.clock.advance(minutes=1)
    memories.update(held.id, memory_store_id=notes.id, content="second", path="/b")
    service.clock.advance(minutes=1)
    memories.delete(held.id, memory_store_id=notes.id)
    return notes


@requirement(
    "anthropic:sdk:list-versions", "anthropic:versions:prefix", "anthropic:versions:operations",
    "anthropic:versions:deleted", "anthropic:fields", "anthropic:times",
)  # fmt: skip
def test_each_change_is_a_version_and_the_newest_comes_first(
    service: Service, notes: Store
) -> None:
    listed = service.http.get(f"{STORES}/{notes.id}/memory_versions").json()

    common = {
        "type": "memory_version", "memory_store_id": notes.id,
        "memory_id": listed["data"][0]["memory_id"], "content": None, "created_by": None,
        "redacted_at": None, "redacted_by": None,
    }  # fmt: skip
    ids = [version["id"] for version in listed["data"]]
    assert listed == {
        "data": [
            {**common, "id": ids[0], "operation": "deleted", "path": "/b", "created_at": at(2),
             "content_sha256": None, "content_size_bytes": None},
            {**common, "id": ids[1], "operation": "modified", "path": "/b", "created_at": at(1),
             "content_sha256": sha256("second"), "content_size_bytes": 6},
            {**common, "id": ids[2], "operation": "created", "path": "/a", "created_at": at(0),
             "content_sha256": sha256("first"), "content_size_bytes": 5},
        ],
        "next_page": None,
    }  # fmt: skip
    assert all(id_.startswith("memver_") for id_ in ids)


@requirement("anthropic:sdk:get-version", "anthropic:view")
def test_a_version_is_read_with_its_content_unless_the_view_is_basic(
    sdk: anthropic.Anthropic, notes: Store
) -> None:
    retrieve = sdk.beta.memory_stores.memory_versions.retrieve
    listed = versions(sdk, notes)

    shown = [retrieve(version.id, memory_store_id=notes.id) for version in listed]

    assert [version.content for version in shown] == [None, "second", "first"]
    assert shown == versions(sdk, notes, view="full")
    assert [
        retrieve(version.id, memory_store_id=notes.id, view="basic") for version in listed
    ] == listed


@pytest.mark.slow
@requirement("anthropic:sdk:list-versions", "anthropic:versions:filters")
def test_versions_are_listed_by_what_they_are(
    service: Service, sdk: anthropic.Anthropic, notes: Store
) -> None:
    other = memory(sdk, notes, "/other")
    deleted, modified, created = versions(sdk, notes)[1:]
    new = versions(sdk, notes)[0]
    first, second = START, START + timedelta(minutes=1)

    assert versions(sdk, notes, memory_id=created.memory_id) == [deleted, modified, created]
    assert versions(sdk, notes, memory_id=other.id) == [new]
    assert versions(sdk, notes, operation="created") == [new, created]
    assert versions(sdk, notes, operation="modified") == [modified]
    assert versions(sdk, notes, operation="deleted", memory_id=other.id) == []
    assert versions(sdk, notes, created_at_lte=first) == [created]
    assert versions(sdk, notes, created_at_gte=second, created_at_lte=second) == [modified]
    for nobody in ("memory_id", "api_key_id", "session_id", "service_account_id"):
        for given in ("", "x", NOTHING, notes.id):
            assert versions(sdk, notes, **{nobody: given}) == []
    for bad in ("", "updated", "CREATED"):
        answer = service.http.get(f"{STORES}/{notes.id}/memory_versions", params={"operation": bad})
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            400,
            "operation: it must be one of created, modified, deleted.",
        )


@requirement(
    "anthropic:sdk:redact-version",
    "anthropic:versions:redacted",
    "anthropic:versions:redacted-twice",
)
def test_a_redacted_version_says_only_that_it_was(
    service: Service, sdk: anthropic.Anthropic, notes: Store
) -> None:
    deleted, modified, created = versions(sdk, notes)
    service.clock.advance(minutes=1)
    url = f"{STORES}/{notes.id}/memory_versions/{created.id}"

    redacted = service.http.post(f"{url}/redact").json()
    service.clock.advance(minutes=1)

    assert redacted == {
        "id": created.id, "type": "memory_version", "memory_store_id": notes.id,
        "memory_id": created.memory_id, "operation": "created", "path": None, "content": None,
        "content_sha256": None, "content_size_bytes": None, "created_at": at(0), "created_by": None,
        "redacted_at": at(3), "redacted_by": None,
    }  # fmt: skip
    again = service.http.post(f"{url}/redact", json={})
    assert (again.status_code, again.json()) == (200, redacted)
    assert service.http.get(url).json() == redacted
    kept = versions(sdk, notes)
    assert kept[:2] == [deleted, modified]
    deletion = service.http.post(f"{STORES}/{notes.id}/memory_versions/{deleted.id}/redact").json()
    assert (deletion["operation"], deletion["path"]) == ("deleted", None)
    assert (kept[2].id, kept[2].path, kept[2].redacted_at) == (
        created.id, None, START + timedelta(minutes=3),
    )  # fmt: skip


@requirement("anthropic:versions:head")
def test_the_head_of_a_live_memory_is_not_redacted(sdk: anthropic.Anthropic) -> None:
    notes = store(sdk)
    held = memory(sdk, notes, "/a", "first")
    redact = sdk.beta.memory_stores.memory_versions.redact

    error = refusal(lambda: redact(held.memory_version_id, memory_store_id=notes.id))

    assert error == {
        "type": "invalid_request_error",
        "message": "The version is its memory's current one; change or delete the memory first.",
    }
    sdk.beta.memory_stores.memories.delete(held.id, memory_store_id=notes.id)
    assert redact(held.memory_version_id, memory_store_id=notes.id).redacted_at


@requirement("anthropic:versions:actors", "anthropic:versions:filters")
def test_a_version_says_with_which_key_it_was_made_and_redacted(path: Path) -> None:
    with serving(path) as service:
        ada, bob = (made_key(service.path, role) for role in ("writer", "admin"))
        with client(service, ada) as hers, client(service, bob) as his:
            notes = store(hers)
            held = memory(hers, notes, "/a")
            his.beta.memory_stores.memories.delete(held.id, memory_store_id=notes.id)
            his.beta.memory_stores.memory_versions.redact(
                held.memory_version_id, memory_store_id=notes.id
            )

            listed = versions(hers, notes)

            actors = [
                {"type": "api_actor", "api_key_id": token.split("_")[1]} for token in (ada, bob)
            ]
            assert [
                (
                    v.created_by and v.created_by.model_dump(),
                    v.redacted_by and v.redacted_by.model_dump(),
                )
                for v in listed
            ] == [(actors[1], None), (actors[0], actors[1])]
            assert versions(hers, notes, api_key_id=ada.split("_")[1]) == listed[1:]
            assert versions(hers, notes, api_key_id=bob.split("_")[1]) == listed[:1]
            assert versions(hers, notes, api_key_id=bob) == []


@pytest.mark.sqlite_files
@requirement("anthropic:redacted-bytes")
def test_redacted_bytes_leave_the_file_and_its_log(
    service: Service, sdk: anthropic.Anthropic
) -> None:
    notes, memories = store(sdk), sdk.beta.memory_stores.memories
    held = memory(sdk, notes, "/passwordless/place", "a hippopotamus in the attic")
    memories.update(held.id, memory_store_id=notes.id, content="nothing", path="/p")
    words = (b"hippopotamus", b"passwordless", sha256("a hippopotamus in the attic").encode())
    assert all(_is_on_disk(service.path, word) for word in words)

    sdk.beta.memory_stores.memory_versions.redact(held.memory_version_id, memory_store_id=notes.id)

    until(lambda: not any(_is_on_disk(service.path, word) for word in words))
    assert memories.retrieve(held.id, memory_store_id=notes.id).content == "nothing"
    with closing(sqlite3.connect(service.path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _is_on_disk(path: Path, word: bytes) -> bool:
    return any(word in file.read_bytes() for file in path.parent.glob("memory.db*"))
