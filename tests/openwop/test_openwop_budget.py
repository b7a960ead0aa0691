"""What a budget lets through: the longest prefix of the entries that could fit alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ..support.openwop_hosts import Host, faults, ok
from ..support.openwop_tenants import EXAMPLES, anew, said
from ..support.requirements import requirement
from ..support.service import Service
from .test_openwop_lists import NO_NUMBERS

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


@requirement("OW-48")
def test_a_giant_starves_nobody_and_alone_it_gives_nothing(host: Host) -> None:
    host.put("x" * 101)
    assert host.contents(tokenBudget=100) == []
    host.put("y" * 60)
    host.put("z" * 101)
    assert host.contents(tokenBudget=100) == ["y" * 60]
    assert host.contents(tokenBudget=101) == ["z" * 101]
    assert len(host.contents(tokenBudget=10**12)) == 3


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


@requirement("OW-49")
def test_what_is_no_budget_is_refused(host: Host) -> None:
    host.put("apple")
    for route, more in (("/memory", {}), ("/search", {"q": "apple"})):
        for text in ("0", *NO_NUMBERS):
            query = {"memoryRef": host.ref, "tokenBudget": text, **more}
            assert faults(host.ask("GET", route, params=query)) == ["tokenBudget"], text
        unset = {"memoryRef": host.ref, "tokenBudget": "", **more}
        assert said(ok(host.ask("GET", route, params=unset))["entries"]) == ["apple"]
