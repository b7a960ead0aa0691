"""Lists and searches of a ref: order, limits, tags, budgets, and how they go on."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from agentops_memory.http import query as http

from ..support.files import assert_index_is_whole
from ..support.openwop_hosts import Host, Json, faults, ok
from ..support.openwop_tenants import EXAMPLES, NEVER, anew, page, said
from ..support.requirements import requirement
from ..support.service import Service


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
    anew(host).put("of another ref", tags=["a", "b"])

    for tag, found in [
        ("a", ["3", "0"]), ("A", ["1"]), ("b", ["3", "2"]), ("ab", ["2"]), ("%", []), ("_", []),
        ("\u00e9", ["5"]), ("e\u0301", []), ("a b", ["6"]), (" a", []), ('"', []),
        ("t" * 256, []), ("", ["6", "5", "4", "3", "2", "1", "0"]),
    ]:  # fmt: skip
        assert host.contents(tag=tag) == found, tag
    assert page(host, tag="a", limit=1)["next"]
    last = page(host, tag="a", before=page(host, tag="a", limit=1)["next"])
    assert said(last["entries"]) == ["0"]


@requirement("OW-21")
def test_entries_that_do_not_fit_into_an_answer_are_in_the_next_one(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [host.put(f"heron {number} {'x' * 500}")["id"] for number in range(12)]
    monkeypatch.setattr(http, "MAX_ANSWER", 4096)

    walked, query = list[str](), dict[str, object]()
    while (answer := page(host, **query))["entries"]:
        assert 0 < len(answer["entries"]) < 6
        walked += [it["id"] for it in answer["entries"]]
        if "next" not in answer:
            break
        query = {"before": answer["next"]}
    assert walked == made[::-1]

    words = {"memoryRef": host.ref, "q": "heron", "limit": 100}
    found = ok(host.ask("GET", "/search", params=words))
    assert 0 < len(found["entries"]) == len(found["ranks"]) < 6


@requirement("OW-50")
def test_a_list_is_by_recency_and_by_nothing_else(host: Host) -> None:
    for text in ("apple", "pear"):
        host.put(text)

    for query in ({}, {"rank": "recency"}, {"rank": ""}, {"rank": "recency", "query": ""}):
        assert host.contents(**query) == ["pear", "apple"]


SIGNS = "a\u00e9\u4f1a\U0001f332"  # of one to four bytes


def fitting(contents: list[str], budget: int) -> list[str]:
    """The model: too large ones are left out, and the first that finds no room ends it."""
    kept = list[str]()
    for text in contents:
        if len(text) > budget:
            continue
        if sum(map(len, kept)) + len(text) > budget:
            break
        kept.append(text)
    return kept


@pytest.mark.slow
@EXAMPLES
@given(
    texts=st.lists(st.text(SIGNS, min_size=1, max_size=6), max_size=8),
    budgets=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    limit=st.integers(1, 8),
)
@requirement("OW-48", "OW-49")
def test_a_budget_takes_the_longest_prefix_of_those_that_fit_alone(
    service: Service, texts: list[str], budgets: list[int], limit: int
) -> None:
    host = anew(Host(service.http))
    for text in texts:
        host.put(text)

    for budget in budgets:
        kept = fitting(texts[::-1], budget)
        assert host.contents(tokenBudget=budget) == kept
        assert host.contents(tokenBudget=budget, limit=0) == kept
        assert host.contents(tokenBudget=budget, limit=limit) == kept[:limit]
        assert host.contents(limit=limit) == texts[::-1][:limit]


@requirement("OW-48", "OW-45")
def test_a_budget_counts_what_is_listed_alone(service: Service, host: Host) -> None:
    host.put("a" * 10, tags=["t"])
    host.put("b" * 10)
    host.put("c" * 10, tags=["t"], ttlSeconds=1)
    ok(host.delete(host.put("d" * 10, tags=["t"])["id"]))
    old = host.put("e" * 10, tags=["t"])
    host.put("f" * 5, tags=["t"], supersedes=[old["id"]])
    service.clock.advance(seconds=1)

    assert host.contents(tag="t", tokenBudget=15) == ["f" * 5, "a" * 10]
    assert host.contents(tag="t", tokenBudget=14) == ["f" * 5]
    assert host.contents(tokenBudget=25) == ["f" * 5, "b" * 10, "a" * 10]


@requirement("OW-48", "OW-28")
def test_a_search_has_a_budget_too(host: Host) -> None:
    for text in ("heron", "a heron and a stork", "heron heron, and more of what is no bird"):
        host.put(text)
    query: dict[str, object] = {"memoryRef": host.ref, "q": "heron"}
    whole = ok(host.ask("GET", "/search", params=query))

    for budget in (1, 5, 19, 24, 30, 1000):
        part = ok(host.ask("GET", "/search", params={**query, "tokenBudget": budget}))
        assert said(part["entries"]) == fitting(said(whole["entries"]), budget)
        ranks = dict(zip(said(whole["entries"]), whole["ranks"], strict=True))
        assert part["ranks"] == [ranks[text] for text in said(part["entries"])]


def found(host: Host, words: str, **query: object) -> Json:
    given = {"memoryRef": host.ref, "q": words, **query}
    answer: Json = ok(host.ask("GET", "/search", params=given))
    assert answer.keys() == {"memoryRef", "entries", "ranks"}
    assert answer["memoryRef"] == host.ref
    assert len(answer["entries"]) == len(answer["ranks"])
    assert answer["ranks"] == sorted(answer["ranks"])  # as everywhere, lower is better
    return answer


@requirement("OW-28")
def test_words_find_entries_of_the_ref_alone_the_best_first(service: Service, host: Host) -> None:
    host.put("One heron stood among very many storks and cranes by the water.")
    best = host.put("Herons, and a heron.")
    host.put("A crane.", tags=["pelican"])
    other = anew(host)
    other.put("A heron of another ref.", id="other")

    both = found(host, "heron")
    assert len(both["entries"]) == 2
    assert both["entries"][0] == best
    assert all(rank < 0 for rank in both["ranks"])
    assert said(found(host, "the pelicans")["entries"]) == ["A crane."]
    assert said(found(other, "heron crane")["entries"]) == ["A heron of another ref."]
    assert found(replace(host, ref="unknown"), "heron")["entries"] == []
    assert found(host, "zebra")["ranks"] == []
    assert found(host, '" OR * NEAR( -heron')["entries"] != []
    assert_index_is_whole(service.path)


@requirement("OW-28", "OW-20")
def test_a_search_has_ten_entries_unless_it_is_told_and_may_ask_for_a_tag(host: Host) -> None:
    for number in range(15):
        host.put(f"A heron, {number}.", tags=["odd"] if number % 2 else [])
    anew(host).put("A heron of another ref.", tags=["odd"])

    assert len(found(host, "heron")["entries"]) == 10
    assert len(found(host, "heron", limit=12)["entries"]) == 12
    assert len(found(host, "heron", limit=100)["entries"]) == 15
    odd = found(host, "heron", tag="odd")
    assert len(odd["entries"]) == 7
    assert all(it["tags"] == ["odd"] for it in odd["entries"])
    assert found(host, "heron", tag="ODD")["entries"] == []


@requirement("OW-28", "OW-23")
def test_another_refs_words_and_deletions_have_no_part_in_a_rank(host: Host) -> None:
    host.put("A heron.")
    before = found(host, "heron")
    doomed = host.put("A heron, and a heron.")
    for _ in range(3):
        anew(host).put("A heron; herons.")
    ok(host.delete(doomed["id"]))

    after = found(host, "heron")

    assert after["entries"] == before["entries"]
    assert after["ranks"][0] < 0
