"""Entries of memory stores: written at paths, read, replaced, deleted."""

from ..support.requirements import requirement
from ..support.service import Service, lasting as service
from ..support.stores import (
    Object,
    at,
    delete,
    entry,
    entry_at,
    ids,
    ok,
    refusal,
    store,
    update,
    versions,
)

__all__ = ["service"]

TAKEN = (409, "conflict_error", "Version or state conflict.", None)


@requirement(
    "stores:entries:create", "stores:entries:get", "stores:entry:fields", "stores:entry:version",
    "stores:entries:list",
)  # fmt: skip
def test_a_new_entry_is_answered_with_its_content_and_listed_without(
    service: Service, home: Object
) -> None:
    body = {"path": "notes/today.md", "content": "Hello world", "metadata": {"kind": "note"}}

    made = ok(service.http.post(at(home, "memories"), json=body), 201)
    now = f"{service.clock.now:%Y-%m-%dT%H:%M:%S.%f}Z"

    assert made == {
        "id": made["id"], "type": "memory", "store_id": home["id"], "path": "notes/today.md",
        "size": 11,
        "content_sha256": "64ec88ca00b268e5ba1a35678a1b5316d212f4f366b2477232534a8aeca37f3c",
        "version": 1, "metadata": {"kind": "note"}, "content": "Hello world",
        "created_at": now, "updated_at": now,
    }  # fmt: skip
    assert ok(service.http.get(entry_at(home, made))) == made
    (listed,) = ok(service.http.get(at(home, "memories")))["data"]
    assert listed | {"content": "Hello world"} == made
    assert "content" not in listed


@requirement("stores:entries:path-taken", "stores:decided:conflict-type")
def test_a_path_is_taken_once_in_one_store_alone(service: Service, home: Object) -> None:
    made = entry(service.http, home, "a/b")

    body = {"path": "a/b", "content": "Other"}
    assert refusal(service.http.post(at(home, "memories"), json=body)) == TAKEN
    assert ok(service.http.get(entry_at(home, made))) == made
    assert len(versions(service.http, home)) == 1
    assert ok(service.http.get(at(home)))["entry_count"] == 1

    entry(service.http, home, "a")

    assert entry(service.http, store(service.http, "Other"), "a")["version"] == 1


@requirement("stores:entries:case")
def test_paths_are_told_apart_sign_by_sign(service: Service, home: Object) -> None:
    for path in ("a/b", "A/b", "a/B", "a", "a/b/c", "\u00e9", "e\u0301"):
        entry(service.http, home, path)

    assert ok(service.http.get(at(home)))["entry_count"] == 7


# Updates


@requirement(
    "stores:entries:update", "stores:entry:version", "stores:entries:path-ignored",
    "stores:decided:metadata", "stores:decided:identical",
)  # fmt: skip
def test_an_update_replaces_the_content_and_nothing_that_it_does_not_name(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", "Version 1 content", metadata={"k": "v"})
    service.clock.advance(seconds=1)

    after = update(service.http, home, made, "Hello world")

    assert after == made | {
        "content": "Hello world", "size": 11,
        "content_sha256": "64ec88ca00b268e5ba1a35678a1b5316d212f4f366b2477232534a8aeca37f3c",
        "version": 2, "updated_at": after["updated_at"],
    }  # fmt: skip
    assert after["updated_at"] > made["updated_at"]
    assert ok(service.http.get(entry_at(home, made))) == after
    for path in ("b", "/..", 7, None):
        assert update(service.http, home, made, "Other", path=path)["path"] == "a"
    changes: list[Object] = [
        {}, {"metadata": None}, {"metadata": {"three": "3"}}, {"metadata": {}}
    ]  # fmt: skip
    told = [update(service.http, home, made, "Same", **it)["metadata"] for it in changes]
    assert told == [made["metadata"], made["metadata"], {"three": "3"}, {}]
    actions = [it["action"] for it in versions(service.http, home)]
    assert actions == ["updated"] * 9 + ["created"]  # of the same content, too


# Deletion


@requirement("stores:entries:delete", "stores:entries:path-free-again")
def test_a_deleted_entry_is_gone_and_its_path_is_free_again(service: Service, home: Object) -> None:
    made, kept = entry(service.http, home, "a"), entry(service.http, home, "b")

    delete(service.http, entry_at(home, made))

    sentence = f"Memory '{made['id']}' was not found."
    for method, body in [("GET", None), ("PUT", {"content": "x"}), ("DELETE", None)]:
        told = refusal(service.http.request(method, entry_at(home, made), json=body))
        assert told == (404, "not_found_error", sentence, None)
    assert ids(service.http.get(at(home, "memories"))) == [kept["id"]]
    assert ids(service.http.get(at(home, "search"), params={"q": "hello"})) == [kept["id"]]
    second = entry(service.http, home, "a", "Second")
    assert (second["id"] != made["id"], second["version"]) == (True, 1)
    told_of = [(it["entry_id"], it["action"]) for it in versions(service.http, home)]
    assert told_of == [
        (second["id"], "created"), (made["id"], "deleted"), (kept["id"], "created"),
        (made["id"], "created"),
    ]  # fmt: skip
