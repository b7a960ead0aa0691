"""Versions of entries: what each change left, and what is taken out of them."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.space import StoreId
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.stores.cloud import POLICY
from agentops_memory.stores.entry import redact as redact_version
from agentops_memory.stores.store import Serving, VersionId

from ..support import engine as engines
from ..support.requirements import requirement
from ..support.service import Service, serving
from ..support.stores import (
    NEVER,
    Object,
    at,
    delete,
    entry,
    entry_at,
    ok,
    redact,
    refusal,
    store,
    update,
    version_at,
    versions,
)
from .test_stores_domain import noted


@requirement("stores:versions:list", "stores:version:fields", "stores:entries:delete-version")
def test_each_change_leaves_a_version(service: Service, home: Object) -> None:
    made = entry(service.http, home, "a", "Hello world")
    service.clock.advance(seconds=1)
    after = update(service.http, home, made, "Version 1 content")
    service.clock.advance(seconds=1)
    delete(service.http, entry_at(home, made))

    told = versions(service.http, home)

    def version(number: int, action: str, size: int, sha256: str) -> Object:
        return {
            "id": told[2 - number]["id"], "type": "memory_version", "store_id": home["id"],
            "entry_id": made["id"], "entry_path": "a", "size": size, "content_sha256": sha256,
            "action": action, "redacted": False,
            "created_at": f"2030-01-01T12:00:0{number}.000000Z",
        }  # fmt: skip

    assert told == [
        version(2, "deleted", 0, ""),
        version(1, "updated", 17, after["content_sha256"]),
        version(0, "created", 11, made["content_sha256"]),
    ]


@requirement("stores:versions:get", "stores:versions:of-deleted")
def test_a_version_is_read_with_its_content_also_of_a_deleted_entry(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", "one")
    update(service.http, home, made, "two")

    def contents() -> list[str | None]:
        listed = versions(service.http, home)
        read = [ok(service.http.get(version_at(home, each))) for each in listed]
        assert [{**each, "content": None} for each in listed] == [
            {**each, "content": None} for each in read
        ]
        return [each.get("content") for each in read]

    assert contents() == ["two", "one"]
    delete(service.http, entry_at(home, made))
    assert contents() == [None, "two", "one"]


@requirement("stores:unknown-ids")
def test_a_version_is_found_in_its_own_store_alone(service: Service, home: Object) -> None:
    entry(service.http, home, "a")
    (made,), other = versions(service.http, home), store(service.http, "Other")

    for id_ in (made["id"], f"memver_{NEVER}", "memver_x", "x"):
        for method, below in [("GET", ""), ("POST", "/redact")]:
            told = refusal(service.http.request(method, at(other, "versions", id_) + below))
            sentence = f"MemoryVersion '{id_}' was not found."
            assert told == (404, "not_found_error", sentence, None)
    assert "content" in ok(service.http.get(version_at(home, made)))


# Redaction


@requirement("stores:redact", "stores:redact:only-that")
def test_a_redacted_version_keeps_all_but_its_content(service: Service, home: Object) -> None:
    made = entry(service.http, home, "a", "secret")
    update(service.http, home, made, "open")
    head, first = versions(service.http, home)
    service.clock.advance(seconds=9)

    redacted = redact(service.http, home, first)

    expected = first | {"redacted": True, "redacted_at": "2030-01-01T12:00:09.000000Z"}
    assert redacted == expected
    assert ok(service.http.get(version_at(home, first))) == expected
    assert versions(service.http, home) == [head, expected]
    assert ok(service.http.get(version_at(home, head))) == head | {"content": "open"}
    assert ok(service.http.get(entry_at(home, made)))["content"] == "open"


@requirement("stores:decided:redact-twice", "stores:error:409")
def test_a_version_is_redacted_once(service: Service, home: Object) -> None:
    entry(service.http, home, "a")
    (version,) = versions(service.http, home)
    redacted = redact(service.http, home, version)
    service.clock.advance(seconds=9)

    told = refusal(service.http.post(f"{version_at(home, version)}/redact"))

    assert (told.status, told.type) == (409, "conflict_error")
    assert versions(service.http, home) == [redacted]


@requirement("stores:decided:redact-head")
def test_the_entry_keeps_what_it_says_when_its_version_is_redacted(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", "one", metadata={"k": "v"})
    (version,) = versions(service.http, home)

    assert "content" not in redact(service.http, home, version)

    assert ok(service.http.get(entry_at(home, made))) == made
    after = update(service.http, home, made, "two", content_sha256=made["content_sha256"])
    assert after["version"] == 2
    assert "content" not in ok(service.http.get(version_at(home, version)))


@pytest.mark.slow
def test_a_deletion_can_be_redacted_and_says_no_more_than_before(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a")
    delete(service.http, entry_at(home, made))
    deletion, _ = versions(service.http, home)

    redacted = redact(service.http, home, deletion)

    assert (redacted["action"], redacted["size"], redacted["content_sha256"]) == ("deleted", 0, "")


def test_a_version_that_lost_more_than_its_content_has_empty_fields(path: Path) -> None:
    with serving(path) as service:
        home = store(service.http)
        entry(service.http, home, "a")
        (version,) = versions(service.http, home)
    ids = (str(UUID(each["id"].partition("_")[2])) for each in (home, version))
    thorough = replace(POLICY, redaction_takes_all=True)  # as another dialect has it

    async def redact_all(engine: SqliteEngine) -> None:
        own = Serving(engine=engine, policy=thorough, audit=noted)
        await redact_version(own, OPERATOR, StoreId(next(ids)), VersionId(next(ids)))

    engines.run(path, redact_all)

    with serving(path) as service:
        (told,) = versions(service.http, home)
        assert ok(service.http.get(version_at(home, version))) == told
    empty = {"entry_path": "", "size": 0, "content_sha256": "", "redacted": True}
    assert told == version | empty | {"redacted_at": told["redacted_at"]}
