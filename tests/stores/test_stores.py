"""Memory stores as a whole: made, read, archived, deleted."""

import re
from uuid import UUID

from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service
from ..support.store_dialects import CLOUD, Dialect, every_request, in_both, stocked
from ..support.stores import (
    NEVER,
    STORES,
    TIME,
    at,
    delete,
    entry,
    entry_at,
    fault,
    ids,
    ok,
    redact,
    store,
    update,
    version_at,
    versions,
)


@requirement(
    "stores:base", "stores:no-version-header", "stores:create", "stores:store:fields",
    "stores:metadata:default", "stores:decided:description",
)  # fmt: skip
def test_a_new_store_is_active_and_empty(service: Service) -> None:
    answer = service.http.post("/api/v1/cloud/memory_stores", json={"name": "Notes"})

    made = ok(answer, 201)
    assert made == {
        "id": made["id"], "type": "memory_store", "name": "Notes", "description": "",
        "status": "active", "entry_count": 0, "total_size": 0, "metadata": {},
        "created_at": "2030-01-01T12:00:00.000000Z", "updated_at": "2030-01-01T12:00:00.000000Z",
    }  # fmt: skip


@requirement(
    "stores:get", "stores:store:trimmed", "stores:create:names-repeat", "stores:unknown-fields"
)
def test_a_store_is_read_as_it_was_made_of_a_trimmed_name_and_what_is_known(
    service: Service,
) -> None:
    made = store(service.http, "Notes", description="Of the team", metadata={"team": "a"})

    assert ok(service.http.get(at(made))) == made
    assert (made["description"], made["metadata"]) == ("Of the team", {"team": "a"})

    made = store(service.http, " \t\u3000My notes\n", description="\n of mine \n")

    assert (made["name"], made["description"]) == ("My notes", "of mine")

    assert store(service.http, "Same")["id"] != store(service.http, "Same")["id"]

    made = store(service.http, description=None, metadata=None)

    assert (made["description"], made["metadata"]) == ("", {})

    made = store(service.http, id="memstore_mine", status="archived", more={"a": [1]})
    written = entry(service.http, made, "a", size=5, version=7)
    after = update(service.http, made, written, "Other", more=None)

    assert (made["status"], written["version"], after["version"]) == ("active", 1, 2)
    assert made["id"] != "memstore_mine"


@requirement("stores:ids", "stores:ids-in-order")
def test_ids_are_those_of_uuids_of_version_7_and_order_by_time(service: Service) -> None:
    made = store(service.http)
    written = [entry(service.http, made, str(number)) for number in range(3)]
    service.clock.advance(seconds=1)
    written.append(entry(service.http, made, "later"))
    told = versions(service.http, made)

    for prefix, objects in (("memstore_", [made]), ("mem_", written), ("memver_", told)):
        for each in objects:
            assert re.fullmatch(f"{prefix}[0-9a-f]{{32}}", each["id"])
            assert UUID(each["id"].removeprefix(prefix)).version == 7
    assert sorted(each["id"] for each in written) == [each["id"] for each in written]


@requirement("stores:times")
def test_times_have_six_digits_of_a_second(service: Service) -> None:
    service.clock.advance(microseconds=494_349)
    made = store(service.http)
    written = entry(service.http, made, "a")
    service.clock.advance(microseconds=1)
    archived = ok(service.http.post(at(made, "archive")))
    (version,) = versions(service.http, made)
    redacted = redact(service.http, made, version)

    for told in (made, written, archived, version, redacted):
        times = {name: told[name] for name in told if name.endswith("_at")}
        assert all(TIME.fullmatch(time) for time in times.values()), times
    assert made["created_at"] == "2030-01-01T12:00:00.494349Z"
    assert archived["archived_at"] == "2030-01-01T12:00:00.494350Z"


@requirement("stores:store:counts")
def test_a_store_counts_active_entries_and_their_bytes(service: Service) -> None:
    made = store(service.http)

    def counts() -> tuple[int, int]:
        told = ok(service.http.get(at(made)))
        (listed,) = ok(service.http.get(STORES))["data"]
        assert listed == told
        return told["entry_count"], told["total_size"]

    first = entry(service.http, made, "a", "\u00e9\u00e9")
    entry(service.http, made, "b", "12345")
    assert counts() == (2, 9)
    update(service.http, made, first, "1")
    assert counts() == (2, 6)
    delete(service.http, entry_at(made, first))
    assert counts() == (1, 5)


# Archiving


@requirement(
    "stores:archive", "stores:archive:twice", "stores:error:409", "stores:decided:conflict-type",
)  # fmt: skip
def test_an_archived_store_says_since_when_and_is_archived_once(service: Service) -> None:
    made = store(service.http, "Notes", metadata={"a": "b"})
    service.clock.advance(seconds=5)

    archived = ok(service.http.post(at(made, "archive")))

    time = "2030-01-01T12:00:05.000000Z"
    assert archived == made | {"status": "archived", "archived_at": time, "updated_at": time}
    service.clock.advance(seconds=5)
    assert fault(service.http.post(at(made, "archive"))) == (409, "conflict_error", None)
    assert ok(service.http.get(at(made))) == archived


@requirement(
    "stores:archive:allowed", "stores:decided:archived-writes", "stores:decided:archived-delete",
    "stores:decided:archived-redact",
)  # fmt: skip
def test_what_is_in_an_archived_store_is_read_and_redacted_and_nothing_else(
    service: Service,
) -> None:
    http, made = service.http, store(service.http)
    written = entry(http, made, "a")
    ok(http.post(at(made, "archive")))
    before = ok(http.get(at(made)))

    for answer in [
        http.post(at(made, "memories"), json={"path": "b", "content": "more"}),
        http.put(entry_at(made, written), json={"content": "other"}),
        http.delete(entry_at(made, written)),
    ]:
        assert fault(answer) == (409, "conflict_error", None)
    for method in ("PUT", "DELETE"):
        answer = http.request(method, at(made, "memories", f"mem_{NEVER}"), json={"content": "x"})
        assert fault(answer) == (404, "not_found_error", None)
    assert ok(http.get(entry_at(made, written))) == written
    assert ids(http.get(at(made, "memories"))) == [written["id"]]
    assert ids(http.get(at(made, "search"), params={"q": "hello"})) == [written["id"]]
    (version,) = versions(http, made)
    assert ok(http.get(version_at(made, version)))["content"] == "Hello world"
    assert redact(http, made, version)["redacted"] is True
    assert ok(http.get(at(made))) == before
    delete(http, at(made))


# Deletion


@requirement("stores:delete", "anthropic:sdk:delete-store", "anthropic:deleting")
@for_each("is_archived", [False, True])
@in_both
def test_a_deleted_store_is_gone_with_all_that_is_below_it(
    service: Service, dialect: Dialect, is_archived: bool
) -> None:
    http, kept = service.http, store(service.http, "Kept")
    gone, other = stocked(http), entry(http, kept, "a")
    home = {"id": gone[0]}
    if is_archived:
        ok(http.post(at(home, "archive")))

    answer = http.delete(dialect.at(home))

    if dialect is CLOUD:
        assert (answer.status_code, answer.content) == (204, b"")
    else:
        assert ok(answer) == {"id": gone[0], "type": "memory_store_deleted"}
    assert gone[0] not in ids(http.get(STORES, params={"include_archived": "true"}))
    for it in every_request(*gone, dialect):
        if gone[0] in it.path:
            assert dialect.refusal(it.send(http)) == missing(dialect, "MemoryStore", gone[0]), it
    assert ok(http.get(entry_at(kept, other))) == other


def missing(dialect: Dialect, kind: str, id_: str) -> tuple[int, str, str, None]:
    """The refusal of an id; ours names it, in the contract's words."""
    plain = {
        "MemoryStore": "No such memory store.", "Memory": "No such memory in this store.",
        "MemoryVersion": "No such version in this store.",
    }  # fmt: skip
    ours = f"{kind} '{id_}' was not found."
    return 404, "not_found_error", ours if dialect is CLOUD else plain[kind], None


@requirement("stores:unknown-ids", "stores:error:404", "anthropic:ids:foreign")
@in_both
def test_what_is_in_another_store_or_no_id_of_the_kind_is_not_found(
    service: Service, dialect: Dialect
) -> None:
    http = service.http
    (one, memory, version), (other, *_) = stocked(http), stocked(http)
    before = [ok(http.get(at({"id": one}, it))) for it in ("memories", "versions")]
    nobodys = (
        f"memstore_{NEVER}", "memstore_x", f"memstore_{NEVER[1:]}", f"memstore_{NEVER}0", "x", "1",
        "memstore_" + "G" * 32, f"mem_{NEVER}", "%00", "a%20b", "..%2f", "m" * 90,
    )  # fmt: skip
    shown = {"%00": "\ufffd", "a%20b": "a b"}
    cases = [((it, memory, version), "MemoryStore", it) for it in nobodys]
    cases += [
        ((other, it, version), "Memory", it)
        for it in (memory, f"mem_{NEVER}", "mem_x", one, "1", memory.upper())
    ]
    cases += [
        ((other, memory, it), "MemoryVersion", it)
        for it in (version, f"memver_{NEVER}", "memver_x", version.replace("memver", "mem"), "x")
    ]
    for known, kind, id_ in cases:
        due = missing(dialect, kind, shown.get(id_, id_))
        if "%2f" in id_:
            due = (404, "not_found_error", "There is nothing at this path.", None)
        for it in every_request(*known, dialect):
            if f"/{id_}" in it.path and (kind == "MemoryStore" or it.path.count(id_) == 1):
                assert dialect.refusal(it.send(http)) == due, it
    assert [ok(http.get(at({"id": one}, it))) for it in ("memories", "versions")] == before
