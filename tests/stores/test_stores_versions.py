"""Versions of entries: what each change left, and what is taken out of them."""

from pathlib import Path

import pytest

from ..support.requirements import requirement
from ..support.service import Clock, Service, serving
from ..support.store_dialects import ANTHROPIC
from ..support.stores import (
    Object,
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


@pytest.mark.slow
def test_versions_order_as_they_were_made_whatever_the_clock_does_and_who_makes_them(
    path: Path, clock: Clock
) -> None:
    with serving(path, clock=clock) as service:
        home = store(service.http)
        made = entry(service.http, home, "a", "0")
    for first in (1, 6, 11):  # each by a service of its own, which makes other ids
        with serving(path, clock=clock) as service:
            for number in range(first, first + 5):
                clock.advance(milliseconds=-1 if number % 3 else 2)
                update(service.http, home, made, str(number))

            listed = versions(service.http, home, entry_id=made["id"], limit="9")
            after = listed[-1]["id"]
            listed += versions(service.http, home, limit="100", after_id=after)
            read = [ok(service.http.get(version_at(home, each)))["content"] for each in listed]
            assert read == [str(number) for number in range(first + 4, -1, -1)]


# Redaction


@requirement(
    "stores:redact", "stores:redact:only-that", "stores:decided:redact-twice",
    "stores:decided:redact-head", "stores:error:409",
)  # fmt: skip
def test_a_redacted_version_keeps_all_but_its_content_and_the_entry_all_of_it(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", "secret")
    made = update(service.http, home, made, "open")
    head, first = versions(service.http, home)
    at_ = "2030-01-01T12:00:09.000000Z"
    service.clock.advance(seconds=9)

    redacted = redact(service.http, home, first)

    expected = first | {"redacted": True, "redacted_at": at_}
    assert redacted == expected
    assert ok(service.http.get(version_at(home, first))) == expected
    assert versions(service.http, home) == [head, expected]
    assert ok(service.http.get(version_at(home, head))) == head | {"content": "open"}
    service.clock.advance(seconds=9)
    again = refusal(service.http.post(f"{version_at(home, first)}/redact"))
    assert (again.status, again.type) == (409, "conflict_error")
    assert ok(service.http.get(version_at(home, first))) == expected

    assert "content" not in redact(service.http, home, head)
    assert ok(service.http.get(entry_at(home, made))) == made
    more = update(service.http, home, made, "two", content_sha256=made["content_sha256"])
    assert more["version"] == 3
    delete(service.http, entry_at(home, made))
    deletion = redact(service.http, home, versions(service.http, home)[0])
    assert (deletion["action"], deletion["size"], deletion["content_sha256"]) == ("deleted", 0, "")


def test_a_version_that_the_other_dialect_has_redacted_has_empty_fields(
    service: Service, home: Object
) -> None:
    update(service.http, home, entry(service.http, home, "a"), "other")
    first = versions(service.http, home)[-1]

    ok(service.http.post(f"{ANTHROPIC.at(home, 'versions', first['id'])}/redact"))

    told = versions(service.http, home)[-1]
    assert ok(service.http.get(version_at(home, first))) == told
    empty = {"entry_path": "", "size": 0, "content_sha256": "", "redacted": True}
    assert told == first | empty | {"redacted_at": told["redacted_at"]}
