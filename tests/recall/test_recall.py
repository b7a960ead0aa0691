"""In which order memories are found: sentences, terms, ties, and the same every time."""

import pytest

from ..support.recall import context, search, titles
from ..support.requirements import requirement
from ..support.service import Service


@requirement("agentops:search:hits")
def test_search_takes_all_terms_first_and_then_any(service: Service) -> None:
    service.save("apple apple apple", title="often")
    service.save("apple and a long text about other things, and banana at its end", title="both")
    service.save("banana", title="one")

    assert titles(search(service, "apple banana"))[0] == "both"
    assert set(titles(search(service, "apple banana"))) == {"both", "often", "one"}
    assert titles(search(service, "apple banana", limit=1)) == ["both"]


def test_stop_words_count_only_where_nothing_else_is_asked(service: Service) -> None:
    service.save("to be or not to be", title="hamlet")
    service.save("the pool", title="pool", session_id="another")

    assert titles(search(service, "what is the pool?")) == ["pool"]
    assert titles(search(service, "to be or not")) == ["hamlet"]
    assert context(service, "is the THE pool not to be?", limit=1) == ["pool"]


def test_only_the_first_500_code_points_of_a_prompt_count(service: Service) -> None:
    service.save("zebra", title="it")

    assert titles(search(service, "😀" * 495 + "zebra")) == ["it"]
    assert titles(search(service, "😀" * 496 + "zebra")) == []


@requirement("agentops:search:hits")
def test_a_rank_is_the_best_sentence_and_two_fifths_of_the_others(service: Service) -> None:
    service.save("apple and the rest", title="one", session_id="a")
    service.save("apple with banana", title="two", session_id="b")
    service.save("banana with cherry", title="three", session_id="c")
    apple, banana = (
        {hit["title"]: hit["rank"] for hit in search(service, word)} for word in ("apple", "banana")
    )
    found = {hit["title"]: hit["rank"] for hit in search(service, "Apple none. Banana here?")}

    of_two_words, that_asks = 2**-0.35, 1.5
    best, other = sorted((of_two_words * apple["two"], that_asks * banana["two"]))
    assert found == pytest.approx(
        {
            "one": of_two_words * apple["one"],
            "two": best + 0.4 * other,
            "three": that_asks * banana["three"],
        }
    )


@requirement("agentops:search:hits")
def test_equal_scores_are_in_the_order_of_their_ids(service: Service) -> None:
    ids = [service.save("the same words", title="same", session_id=f"s{n}", type=f"t{n}")["id"]
           for n in range(9)]  # fmt: skip

    hits = search(service, "same words")
    assert [hit["id"] for hit in hits] == ids
    assert len({hit["rank"] for hit in hits}) == 1
    assert [hit["id"] for hit in search(service, "same. words", limit=4)] == ids[:4]


def test_the_title_weighs_twice_the_content(service: Service) -> None:
    service.save("pool and something", title="another thing")
    service.save("another thing", title="pool and something")

    assert titles(search(service, "pool")) == ["pool and something", "another thing"]
