"""In which order memories are found: sentences, terms, ties, and the same every time."""

from pathlib import Path

import pytest

from ..support.recall import context, search, titles
from ..support.requirements import requirement
from ..support.service import Service, serving


def test_every_way_to_write_an_identifier_counts_as_all_of_it(service: Service) -> None:
    service.save("maxconnections at the limit", title="joined", session_id="a")
    service.save("max_connections at the limit", title="compound", session_id="b")
    service.save("max limit limit limit", title="part", session_id="c")

    for query in ("max_connections limit", "maxConnections limit", "max-connections limit"):
        assert set(titles(search(service, query))[:2]) == {"joined", "compound"}


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


def test_each_sentence_contributes_its_best_ten_alone(service: Service) -> None:
    for number in range(10):
        service.save(f"apple {number}", title="apple", session_id="apples")
    service.save("banana, and among many other words one apple at last", title="both")
    for number in range(30):
        service.save(f"other {number}", title="other", session_id="others")
    (alone,) = search(service, "banana")
    few = {hit["title"]: hit["rank"] for hit in search(service, "apple none. banana here", limit=5)}
    all_ = {
        hit["title"]: hit["rank"] for hit in search(service, "apple none. banana here", limit=40)
    }

    assert few["both"] == pytest.approx(alone["rank"])
    assert all_["both"] < alone["rank"]


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


@pytest.mark.slow
def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    texts = [
        "saves failed under load", "pool size is 40", "one worker", "max_connections is 40",
        "HTTPServer v1.2.3", "数据库连接池", "pool", "the pool and the load", "a/b", "the", "load",
    ]  # fmt: skip
    asked = [
        *texts, "Why do saves fail under load?", "pool. size! 数据库 limit", "connections. one",
    ]  # fmt: skip

    def answers(service: Service) -> list[bytes]:
        reads = [("/search", "q"), ("/context", "query")]
        return [
            service.http.get(path, params={name: text, "project": "demo"}).content
            for text in asked
            for path, name in reads
        ]

    def fed(path: Path) -> list[bytes]:
        with serving(path) as service:
            for text in texts:
                service.save(text)
            return answers(service)

    first = fed(tmp_path / "first.db")
    with serving(tmp_path / "first.db") as restarted:
        assert answers(restarted) == first
    assert fed(tmp_path / "second.db") == first


@pytest.mark.heavy
@pytest.mark.parametrize("rows", [5, 700])
def test_words_are_narrowed_alike_among_few_memories_and_many(service: Service, rows: int) -> None:
    kinds = [("decision", ["t", "u"]), ("bugfix", ["u"]), ("config", [])]
    body = [
        {"session_id": "s", "project": project, "title": f"{number}", "type": kinds[number % 3][0],
         "tags": kinds[number % 3][1], "content": "word " + "x " * (number % 7), "scope": scope}
        for project, scope in (("demo", "project"), ("demo", "team"), ("other", "project"))
        for number in range(rows)
    ] + [{"session_id": "s", "project": "other", "title": "everywhere", "type": "decision",
          "tags": ["t"], "content": "word", "scope": "global"}]  # fmt: skip
    assert service.http.post("/import", json={"observations": body}).status_code == 200

    def hits_of(**asked: str) -> int:
        for text in ("word", "word none. word x"):
            hits = search(service, text, limit=1000, **asked)
            assert len(hits) == len(search(service, "word", limit=1000, **asked))
        return len(hits)

    third, most = -(-rows // 3), min(2 * rows + 1, 1000)
    assert hits_of(project="demo") == most
    assert hits_of(project="demo", scope="team") == rows
    assert hits_of(project="demo", type="decision", scope="project") == third
    assert hits_of(project="demo", tag="t", scope="project") == third
    assert hits_of(project="demo", tag="t", type="bugfix") == 0
    assert hits_of(project="demo", tag="t", type="decision") == 2 * third + 1
    assert hits_of(scope="global") == hits_of(project="none") == 1
    assert hits_of(type="config", tag="u") == 0
    assert context(service, "word", project="none", tag="t") == ["everywhere"]
