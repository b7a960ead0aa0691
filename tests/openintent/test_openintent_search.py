"""Search in agents' memory: what is found by words, and that nothing hidden has a part in it."""

import pytest

from ..support.files import assert_index_is_whole
from ..support.openintent_agents import MEMORY, Agent, Json, faults, ok
from ..support.requirements import requirement
from ..support.service import Service

SEARCH = f"{MEMORY}/search"


def search(agent: Agent, text: str, **filters: object) -> Json:
    found: Json = ok(agent.ask("GET", SEARCH, params={"q": text, **filters}))
    return found


def keys(agent: Agent, text: str, **filters: object) -> list[str]:
    return [entry["key"] for entry in search(agent, text, **filters)["entries"]]


@pytest.mark.slow
@requirement("OI-68")
def test_words_of_keys_tags_and_values_are_found(service: Service, ada: Agent) -> None:
    ada.make(key="by value", value={"found": {"in": ["a heron", 4711]}})
    ada.make(key="stork", namespace="birds", value={})
    ada.make(key="by tag", tags=["pelican"], value={"n": True})
    ada.make(key="working", memory_type="working", value={"text": "heron"})

    assert keys(ada, "herons") == ["by value"]
    assert keys(ada, "4711") == ["by value"]
    assert keys(ada, "found") == ["by value"]  # the name of a member
    assert keys(ada, "stork") == ["stork"]
    assert keys(ada, "birds") == ["stork"]
    assert keys(ada, "a pelikan, please") == ["by tag"]
    assert keys(ada, "true") == []
    assert keys(ada, "zzz qqq") == []
    entry = search(ada, "heron")["entries"][0]
    assert entry.pop("rank") < 0
    assert entry == ada.query(key="by value")["entries"][0]
    assert_index_is_whole(service.path)


@pytest.mark.slow
@requirement("OI-68")
def test_what_changes_is_found_by_its_new_words(service: Service, ada: Agent) -> None:
    entry = ada.make(value={"text": "heron"}, tags=["old"])
    after = ok(ada.patch(entry, value={"text": "stork"}, tags=["new"]))
    assert [keys(ada, word) for word in ("heron", "old", "stork", "new")] == [
        [], [], ["apple"], ["apple"],
    ]  # fmt: skip
    assert_index_is_whole(service.path)
    ada.delete(after)
    assert keys(ada, "stork") == []
    ada.make(key="b", value={"text": "stork"}, ttl="duration:PT10S")
    assert keys(ada, "stork") == ["b"]
    service.clock.advance(seconds=10)
    assert keys(ada, "stork") == []


@pytest.mark.slow
@requirement("OI-68")
def test_filters_choose_and_the_places_are_told(ada: Agent) -> None:
    ada.make(key="own", value={"text": "heron"}, tags=["x", "y"])
    for number in range(10):
        ada.make(
            key=f"shared {number}", namespace=f"space {number}", memory_type="semantic",
            value={"text": "heron"}, tags=["x"],
        )  # fmt: skip

    whole = search(ada, "heron", limit=100)
    names = [f"space {number}" for number in range(8)]
    assert whole["searched"] == {"own": True, "namespaces": names}
    assert [it["key"] for it in whole["entries"]] == ["own", *[f"shared {n}" for n in range(8)]]
    assert {it["rank"] for it in whole["entries"]} == {-1 / 61}
    assert keys(ada, "heron", memory_type="episodic") == ["own"]
    told = search(ada, "heron", namespace="space 9")
    assert told["searched"] == {"own": True, "namespaces": ["space 9"]}
    assert [it["key"] for it in told["entries"]] == ["shared 9"]
    assert keys(ada, "heron", namespace="space*", memory_type="semantic", limit=2) == [
        "shared 0", "shared 1",
    ]  # fmt: skip
    assert keys(ada, "heron", tags="x,y") == ["own"]
    assert keys(ada, "heron", tags_any="y,z") == ["own"]
    for query, field in {"": "q", "q=": "q", "q=a&memory_type=working": "memory_type",
                         "q=a&limit=0": "limit"}.items():  # fmt: skip
        assert faults(ada.ask("GET", f"{SEARCH}?{query}")) == [field]


@requirement("OI-68")
def test_rare_words_and_keys_rank_first_within_a_place(ada: Agent) -> None:
    for number in range(6):
        ada.make(key=f"common {number}", value={"text": f"the stork number {number}"})
    ada.make(key="rare", value={"text": "a heron and a stork"})
    ada.make(key="heron", value={"text": "something else"})

    found = search(ada, "stork or heron", limit=3)["entries"]
    assert [it["key"] for it in found][:2] == ["rare", "heron"]
    ranks = [it["rank"] for it in found]
    assert ranks == sorted(ranks)
