"""Lists of the Memory Stores API: their pages, their order, and what they leave out."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from agentops_memory.memory.rows import Uids

from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import START, Service, lasting as shared
from ..support.store_dialects import ANTHROPIC, CLOUD, Dialect, in_both
from ..support.stores import (
    NEVER,
    STORES,
    at,
    delete,
    entry,
    entry_at,
    fault,
    ids,
    invalid,
    ok,
    refusal,
    store,
    update,
)

__all__ = ["shared"]

Listed = tuple[str, list[str]]
"""The path of a list, and the ids in it, newest first."""

SORTS = ("stores", "entries", "versions")
NONE: dict[str, Any] = {"data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.fixture(params=SORTS)
def path(request: pytest.FixtureRequest, shared: Service) -> str:
    """The path of a list."""
    home = store(shared.http)
    paths = {"entries": at(home, "memories"), "versions": at(home, "versions")}
    return paths.get(request.param, STORES)


@pytest.fixture(params=SORTS)
def listed(request: pytest.FixtureRequest, service: Service) -> Callable[[int], Listed]:
    """Makes a list of so many items."""

    def made(count: int) -> Listed:
        http = service.http
        if request.param == "stores":
            return STORES, [store(http, f"n{n}")["id"] for n in range(count)][::-1]
        home = store(http)
        written = [entry(http, home, f"p{n}") for n in range(count)]
        if request.param == "entries":
            return at(home, "memories"), [each["id"] for each in written][::-1]
        return at(home, "versions"), ids(http.get(at(home, "versions"), params={"limit": "100"}))

    return made


def page(http: httpx.Client, path: str, **asked: object) -> tuple[list[str], bool]:
    """The ids of a page, and whether there is more; its ends are named rightly."""
    told = ok(http.get(path, params={name: str(value) for name, value in asked.items()}))
    found = [item["id"] for item in told["data"]]
    assert told.keys() == {"data", "first_id", "last_id", "has_more"}
    assert (told["first_id"], told["last_id"]) == ((found[0], found[-1]) if found else (None, None))
    return found, told["has_more"]


@pytest.mark.representative(1)
@requirement("stores:paging:limit", "stores:paging:limit-capped")
def test_a_page_has_20_items_and_never_more_than_100(
    service: Service, listed: Callable[[int], Listed]
) -> None:
    path, every = listed(101)

    assert page(service.http, path) == (every[:20], True)
    assert page(service.http, path, limit="") == (every[:20], True)
    assert page(service.http, path, limit=1) == (every[:1], True)
    assert page(service.http, path, limit="007") == (every[:7], True)
    assert page(service.http, path, limit=100) == (every[:100], True)
    for more in ("101", "1000", "9" * 5000):
        assert page(service.http, path, limit=more) == (every[:100], True)


@for_each("limit", ["0", "00", "-1", "abc", "1.5", "1e2", "+5", "\u0665", "0x10", "%00", "%20"])
@requirement("stores:paging:limit-refused", "anthropic:paging")
def test_what_is_no_number_of_items_is_refused(shared: Service, path: str, limit: str) -> None:
    assert fault(shared.http.get(f"{path}?limit={limit}")) == invalid("limit")
    theirs = path.replace(CLOUD.prefix, ANTHROPIC.prefix).replace("/versions", "/memory_versions")
    for text in (limit, "", "101", "1000"):  # which ours takes
        told = ANTHROPIC.refusal(shared.http.get(f"{theirs}?limit={text}"))
        sentence = "limit: it must be a whole number from 1 to 100."
        assert told == (400, "invalid_request_error", sentence, None)


@pytest.mark.representative(2)
@requirement(
    "stores:list", "stores:paging:order", "stores:paging:envelope", "stores:paging:empty",
    "stores:paging:before", "stores:paging:has-more", "stores:paging:stable",
    "stores:paging:both-cursors",
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pages_lead_through_a_list_and_back(
    service: Service, listed: Callable[[int], Listed], size: int
) -> None:
    http = service.http
    assert ok(http.get(listed(0)[0])) == NONE
    path, every = listed(7)

    assert page(http, path) == (every, False)
    assert every == sorted(every, reverse=True)  # the newest first
    down: list[str] = []
    while len(down) < 7:
        cursor = {"after_id": down[-1]} if down else {}
        found, has_more = page(http, path, limit=size, **cursor)
        down += found
        assert has_more == (len(down) < 7)
    assert down == every
    up = [every[-1]]
    while len(up) < 7:
        found, has_more = page(http, path, limit=size, before_id=up[0])
        up = found + up
        assert has_more == (len(up) < 7)
    assert up == every
    prefix = every[0].partition("_")[0]
    lowest, highest = f"{prefix}_{NEVER}", f"{prefix}_{'f' * 32}"  # a cursor is a place
    for nothing in (
        {"before_id": every[0]}, {"after_id": every[-1]}, {"after_id": lowest},
        {"before_id": highest},
    ):  # fmt: skip
        assert page(http, path, **nothing) == ([], False)
    assert page(http, path, after_id=highest) == (every, False)
    assert page(http, path, before_id=lowest, limit=2) == (every[5:], True)
    both = {"after_id": every[0], "before_id": every[2]}
    assert fault(http.get(path, params=both)) == invalid("before_id")


@requirement("stores:paging:stable")
def test_a_cursor_holds_when_what_it_names_is_deleted(service: Service) -> None:
    http, home = service.http, store(service.http)
    written = [entry(http, home, f"p{n}") for n in range(5)]
    every = [each["id"] for each in written][::-1]
    first, _ = page(http, at(home, "memories"), limit=2)

    delete(http, entry_at(home, written[3]))  # the last of that page

    assert page(http, at(home, "memories"), after_id=first[-1]) == (every[2:], False)
    assert page(http, at(home, "memories"), before_id=first[-1]) == (every[:1], False)


@for_each("name", ["after_id", "before_id"])
@for_each(
    "cursor",
    [
        "x",
        "memstore_",
        f"memv_{NEVER}",
        f"other_{NEVER}",
        f"{NEVER}",
        "%00",
        "mem_" + "G" * 32,
        "1",
    ],
)
@requirement("stores:paging:malformed-cursor")
def test_a_cursor_that_is_no_id_of_the_kind_is_refused(
    shared: Service, path: str, name: str, cursor: str
) -> None:
    assert fault(shared.http.get(f"{path}?{name}={cursor}")) == invalid(name)


# What is left out


@requirement("stores:list:archived")
def test_archived_stores_are_listed_when_asked_for(service: Service) -> None:
    old, new = store(service.http, "Old"), store(service.http, "New")
    ok(service.http.post(at(old, "archive")))

    for asked in ({}, {"include_archived": "false"}, {"include_archived": "False"}):
        assert ids(service.http.get(STORES, params=asked)) == [new["id"]]
    for flag in ("true", "True"):
        every = ids(service.http.get(STORES, params={"include_archived": flag}))
        assert every == [new["id"], old["id"]]


@requirement("stores:list:archived-flag", "anthropic:sdk:list-stores")
@in_both
def test_the_first_of_repeated_parameters_counts(service: Service, dialect: Dialect) -> None:
    old, new = store(service.http, "Old"), store(service.http, "New")
    ok(service.http.post(at(old, "archive")))

    def found(query: str) -> list[str]:
        return ids(service.http.get(f"{dialect.stores}?{query}"))

    both = [new["id"], old["id"]]
    assert found("include_archived=true&include_archived=false") == both
    assert found("include_archived=True&include_archived=x") == both
    assert found("include_archived=false&include_archived=true&limit=5&limit=x") == both[:1]
    assert service.http.get(f"{dialect.stores}?limit=x&limit=1").status_code == 400
    if dialect is CLOUD:
        assert found("include_archived=true&name=O&name=%FF") == both[1:]
        assert found("include_archived=true&name=&name=O") == both


@for_each("text", ["%FF", "a%00", "%ED%A0%80", "a%C3", "%00"])
@requirement("stores:error:400")
def test_what_no_stored_text_can_be_like_is_refused(service: Service, text: str) -> None:
    home = store(service.http)

    for path, name in [(STORES, "name"), (at(home, "memories"), "path_prefix"),
                       (at(home, "search"), "q")]:  # fmt: skip
        assert fault(service.http.get(f"{path}?{name}={text}")) == invalid(name)
        assert ok(service.http.get(f"{path}?{name}=%EF%BF%BD+"))["data"] == []


@requirement("stores:list:archived-flag")
@for_each("flag", ["garbage", "1", "yes", "%00"])
def test_a_flag_that_is_neither_true_nor_false_is_refused(shared: Service, flag: str) -> None:
    answer = shared.http.get(f"{STORES}?include_archived={flag}")

    assert fault(answer) == invalid("include_archived")


@requirement("stores:list:name")
def test_stores_are_found_by_the_beginning_of_their_names(service: Service) -> None:
    names = (
        "Notes", "notebook", "My notes", "\u00c4pfel", "Stra\u00dfe", "100%", "100 more", "no_e",
    )  # fmt: skip
    made = {store(service.http, name)["id"]: name for name in names}

    def found(prefix: str) -> list[str]:
        listed = ids(service.http.get(STORES, params={"name": prefix}))
        return sorted(made[id_] for id_ in listed)

    assert found("note") == found("NOTE") == ["Notes", "notebook"]
    assert found("\u00e4PF") == ["\u00c4pfel"]
    assert found("strasse") == ["Stra\u00dfe"]
    assert found("100%") == ["100%"]
    assert found("no_") == ["no_e"]
    assert found("otes") == []
    assert len(found("")) == len(names)


@pytest.mark.slow
@requirement("stores:list:name", "stores:paging:has-more")
def test_a_filter_fills_the_page(service: Service) -> None:
    wanted = []
    for number in range(4):
        wanted.append(store(service.http, f"wanted {number}")["id"])
        store(service.http, f"other {number}")

    assert page(service.http, STORES, name="wanted", limit=3) == (wanted[:0:-1], True)
    rest = page(service.http, STORES, name="wanted", limit=3, after_id=wanted[1])
    assert rest == (wanted[:1], False)
    back = page(service.http, STORES, name="wanted", limit=2, before_id=wanted[0])
    assert back == ([wanted[2], wanted[1]], True)


@requirement("stores:list:created", "anthropic:sdk:list-stores", "anthropic:times")
@pytest.mark.parametrize("sort", ["stores", "entries", "theirs"])
def test_a_list_is_bounded_by_time_with_both_ends(service: Service, sort: str) -> None:
    home = store(service.http, "Home")
    paths = {"stores": STORES, "entries": at(home, "memories"), "theirs": ANTHROPIC.stores}
    path = paths[sort]
    made = []
    for number in range(3):
        service.clock.advance(seconds=10)
        if sort != "entries":
            made.append(store(service.http, str(number)))
        else:
            made.append(entry(service.http, home, str(number)))
    first, second, third = (each["id"] for each in made)

    def found(**ends: str) -> list[str]:
        bounds = {f"created_at[{end}]": at_ for end, at_ in ends.items()}
        return [id_ for id_ in ids(service.http.get(path, params=bounds)) if id_ != home["id"]]

    assert found(gte="2030-01-01T12:00:20Z") == [third, second]
    assert found(gte="2030-01-01T12:00:20.000001Z") == [third]
    assert found(lte="2030-01-01T12:00:20Z") == [second, first]
    assert found(gte=made[1]["created_at"], lte=made[1]["created_at"]) == [second]
    assert found(gte="2030-01-01T14:00:20+02:00", lte="2030-01-01t06:30:20-05:30") == [second]
    unescaped = service.http.get(f"{path}?created_at[gte]=2030-01-01T14:00:30+02:00")
    assert ids(unescaped) == [third]
    assert found(gte="2030-01-01T12:00:30.0000001Z") == []
    assert found(lte="2030-01-01T12:00:10.0000009Z") == [first]
    assert found(gte="2031-01-01T00:00:00Z") == []
    if sort == "theirs":  # where an instant without an offset is in UTC
        for same in ("2030-01-01T12:00:20", "2030-01-01 12:00:20"):
            assert found(gte=same, lte=same) == [second]
    assert found(gte="0001-01-01T00:00:00Z", lte="9999-12-31T23:59:59Z") == [third, second, first]


@for_each("name", ["created_at[gte]", "created_at[lte]"])
@for_each(
    "time",
    ["garbage", "2030-01-01", "2030-13-01T12:00:00Z", "20300101T120000Z", "2030-01-01T12",
     "2030-01-01\N{WATERMELON}12:00:00Z", "2030-01-01T12:00:00Z\n", " 2030-01-01T12:00:00Z",
     "2030-01-01T24:00:00Z", "2030-01-01T12:00:00+01:60", "2030-01-01T12:00:60Z",
     "2030-01-01T12:00Z", "2030-01-01T25:00:00Z", "2030-02-30T12:00:00Z", "1893499200",
     "2030-01-01T12:00:00,5Z", "2030-01-01T12:00:00+0200",
     "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "0000-01-01T00:00:00Z",
     "10000-01-01T00:00:00Z", "2030-01-01T12:00:00+99:00", "2030-W01-1T12:00:00Z", "\0",
     "\u0662\u0660\u0663\u0660-01-01T12:00:00Z"],
)  # fmt: skip
@requirement("stores:list:created-invalid", "anthropic:times")
def test_what_is_no_time_is_refused(shared: Service, name: str, time: str) -> None:
    home = store(shared.http)

    for path in (STORES, at(home, "memories")):
        told = refusal(shared.http.get(path, params={name: time}))
        assert (told.status, told.type, told.param) == invalid(name)
    sentence = f"{name}: it must be an instant in RFC 3339."
    theirs = ANTHROPIC.refusal(shared.http.get(ANTHROPIC.stores, params={name: time}))
    assert theirs == (400, "invalid_request_error", sentence, None)
    if time == "garbage":  # ours asks for an offset, too
        naive = shared.http.get(STORES, params={name: "2030-01-01T12:00:00"})
        assert fault(naive) == invalid(name)
        empty = shared.http.get(ANTHROPIC.stores, params={name: ""})
        assert ANTHROPIC.refusal(empty) == theirs
        late = {"created_at[gte]": "9999-12-31T23:59:59.9999999Z"}  # no instant is as late
        assert fault(shared.http.get(STORES, params=late)) == invalid("created_at[gte]")


@requirement("stores:entries:prefix")
def test_entries_are_listed_by_the_beginning_of_their_paths(service: Service) -> None:
    home = store(service.http)
    paths = ("a/b", "a/bc.md", "a/x", "A/b", "a%/1", "a_b", "ab", "\u00e4/b")
    for path in paths:
        entry(service.http, home, path)

    def found(prefix: str) -> set[str]:
        answer = service.http.get(at(home, "memories"), params={"path_prefix": prefix})
        return {item["path"] for item in ok(answer)["data"]}

    assert found("a/b") == {"a/b", "a/bc.md"}
    assert found("a/") == {"a/b", "a/bc.md", "a/x"}
    assert found("A") == {"A/b"}
    assert found("a%") == {"a%/1"}
    assert found("a_") == {"a_b"}
    assert found("\u00e4") == {"\u00e4/b"}
    assert found("/a") == set()
    assert found("") == set(paths)


@requirement("stores:decided:entry-id")
def test_versions_are_listed_of_one_entry(service: Service) -> None:
    home, never = store(service.http), f"mem_{Uids().make(START).replace('-', '')}"
    one, other = entry(service.http, home, "one"), entry(service.http, home, "other")
    update(service.http, home, one, "Changed")

    def of(entry_id: str) -> list[tuple[str, str]]:
        answer = service.http.get(at(home, "versions"), params={"entry_id": entry_id})
        return [(item["entry_path"], item["action"]) for item in ok(answer)["data"]]

    assert of(one["id"]) == [("one", "updated"), ("one", "created")]
    assert of(other["id"]) == [("other", "created")]
    assert of(never) == []
    answer = service.http.get(at(home, "versions"), params={"entry_id": "x"})
    assert fault(answer) == invalid("entry_id")
