"""The list of a ref: its order, its limits, its tags, and how it goes on."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ..support.openwop_hosts import Host, Json, faults, ok
from ..support.openwop_tenants import EXAMPLES, NEVER, anew, page, said
from ..support.requirements import requirement
from ..support.service import Service

MOST = 2 * 1024 * 1024
NO_NUMBERS = ["-1", "x", "1.5", "1e2", "+5", " 5", "\u0665", "true", "9" * 30 + "x"]


@requirement("OW-17")
def test_a_list_is_newest_first_and_of_equal_instants_the_later_is_first(
    service: Service, host: Host
) -> None:
    assert page(host) == {"memoryRef": host.ref, "entries": []}
    for text in ("one", "two", "three"):
        host.put(text)
    service.clock.advance(seconds=1)
    host.put("four")
    assert host.contents() == ["four", "three", "two", "one"]

    service.clock.now -= timedelta(hours=1)
    host.put("before all")

    assert host.contents() == ["four", "three", "two", "one", "before all"]
    assert said(page(host, limit=2, before=host.entries()[1]["id"])["entries"]) == ["two", "one"]


@requirement("OW-17")
def test_without_a_ref_the_tenants_own_is_listed(host: Host) -> None:
    host.put()
    for query in ({}, {"memoryRef": ""}):
        answer = ok(host.ask("GET", "/memory", params=query))
        assert answer == {"memoryRef": "tenant-memory", "entries": []}


@pytest.mark.slow
@requirement("OW-18")
def test_a_list_has_a_hundred_entries_unless_it_is_told_and_five_hundred_at_most(
    host: Host,
) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: host.put(str(number))["id"], range(502)))
    assert len(page(host)["entries"]) == 100
    for limit, count in [(0, 100), ("", 100), (1, 1), (500, 500), (501, 500), (10**12, 500)]:
        answer = page(host, limit=limit)
        assert len(answer["entries"]) == count, limit
        assert {it["id"] for it in answer["entries"]} <= {*made}
        assert "next" in answer


@requirement("OW-18", "OW-12")
def test_what_is_no_number_of_entries_is_refused(host: Host) -> None:
    host.put()
    for text in NO_NUMBERS:
        answer = host.ask("GET", "/memory", params={"memoryRef": host.ref, "limit": text})
        assert faults(answer) == ["limit"], text
    several = [("memoryRef", host.ref), ("memoryRef", "other"), ("limit", "1"), ("limit", "x")]
    assert len(ok(host.ask("GET", "/memory", params=several))["entries"]) == 1  # the first counts
    wrong = {"limit": "x", "tokenBudget": "x", "rank": "x", "tag": "t" * 257}
    assert {*faults(host.ask("GET", "/memory", params=wrong))} == {*wrong}


DEEDS = st.sampled_from(["nothing", "put", "delete the last seen", "delete the next", "expire"])


@pytest.mark.slow
@EXAMPLES
@given(count=st.integers(0, 9), limit=st.integers(1, 4), deeds=st.lists(DEEDS, max_size=9))
@requirement("OW-19")
def test_a_walk_has_every_entry_once_whatever_others_do_meanwhile(
    service: Service, count: int, limit: int, deeds: list[str]
) -> None:
    host, doing = anew(Host(service.http)), iter(deeds)
    for number in range(count):
        host.put(str(number))
        service.clock.advance(milliseconds=number % 2)
    left, seen = [str(number) for number in reversed(range(count))], list[str]()
    wanted, query = list(left), dict[str, object]()

    while True:
        portion = page(host, limit=limit, **query)
        entries: list[Json] = portion["entries"]
        seen += said(entries)
        left = [text for text in left if text not in seen]
        if "next" not in portion:
            break
        assert len(entries) == limit
        query = {"before": portion["next"]}
        match next(doing, "nothing"):
            case "put":
                host.put("put meanwhile")
            case "delete the last seen":
                ok(host.delete(entries[-1]["id"]))
            case "delete the next" if left:
                wanted.remove(left[0])
                (doomed,) = [it["id"] for it in host.entries() if it["content"] == left[0]]
                ok(host.delete(doomed))
            case "expire":
                host.put("put meanwhile", ttlSeconds=1)
                service.clock.advance(seconds=2)

    assert seen == wanted


@requirement("OW-19", "OW-33")
def test_a_walk_goes_on_from_what_is_gone_and_not_from_what_never_was_of_the_ref(
    service: Service, host: Host
) -> None:
    first = host.put("one")
    gone, ended = host.put("two"), host.put("three", ttlSeconds=1)
    ok(host.delete(gone["id"]))
    service.clock.advance(seconds=1)
    host.put("four")

    for memory in (gone, ended):
        assert page(host, before=memory["id"]) == {"memoryRef": host.ref, "entries": [first]}
    assert page(host, before=first["id"])["entries"] == []
    foreign = anew(host).put()["id"]
    unknown = [
        host.ask("GET", "/memory", params={"memoryRef": host.ref, "before": memory})
        for memory in (NEVER, "nothing", foreign)
    ]
    assert {tuple(faults(it)) for it in unknown} == {("before",)}
    assert len({it.content for it in unknown}) == 1


@requirement("OW-20")
def test_a_tag_is_compared_exactly_and_whole(host: Host) -> None:
    for number, tags in enumerate([["a"], ["A"], ["ab", "b"], ["a", "b"], [], ["\u00e9"], ["a b"]]):
        host.put(str(number), tags=tags)

    for tag, found in [
        ("a", ["3", "0"]), ("A", ["1"]), ("b", ["3", "2"]), ("ab", ["2"]), ("%", []), ("_", []),
        ("\u00e9", ["5"]), ("e\u0301", []), ("a b", ["6"]), (" a", []), ('"', []),
        ("t" * 256, []), ("", ["6", "5", "4", "3", "2", "1", "0"]),
    ]:  # fmt: skip
        assert host.contents(tag=tag) == found, tag
    assert page(host, tag="a", limit=1)["next"]
    last = page(host, tag="a", before=page(host, tag="a", limit=1)["next"])
    assert said(last["entries"]) == ["0"]
    long = host.ask("GET", "/memory", params={"memoryRef": host.ref, "tag": "t" * 257})
    assert faults(long) == ["tag"]


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("sign", ["x", "\u00e9", '"'])  # the last is two bytes on the wire
@requirement("OW-21")
def test_no_answer_is_over_two_mebibytes_and_each_says_where_to_go_on(
    host: Host, sign: str
) -> None:
    size = 65_000 // len(sign.encode())
    made = [host.put(f"heron {number:03} {sign * size}")["id"] for number in range(40)]
    walked, query = list[str](), dict[str, object]()

    for _ in range(9):
        answer = host.ask("GET", "/memory", params={"memoryRef": host.ref, "limit": 500, **query})
        assert len(answer.content) <= MOST + 1024  # what stands around the entries
        portion = ok(answer)
        walked += [it["id"] for it in portion["entries"]]
        if "next" not in portion:
            break
        query = {"before": portion["next"]}

    assert walked == made[::-1]
    words = {"memoryRef": host.ref, "q": "heron", "limit": 100}
    found = host.ask("GET", "/search", params=words)
    assert len(found.content) <= MOST + 1024
    assert len(ok(found)["entries"]) > 10


@requirement("OW-50")
def test_a_list_is_by_recency_and_by_nothing_else(host: Host) -> None:
    for text in ("apple", "pear"):
        host.put(text)

    for query in ({}, {"rank": "recency"}, {"rank": ""}, {"rank": "recency", "query": ""}):
        assert host.contents(**query) == ["pear", "apple"]
    for more in ({"rank": "relevance"}, {"rank": "Recency"}, {"rank": "x"}, {"query": "apple"}):
        answer = host.ask("GET", "/memory", params={"memoryRef": host.ref, **more})
        assert faults(answer) == [*more]
