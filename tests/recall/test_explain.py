"""Why a memory was found: the shares are those of the score itself."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from agentops_memory.memory.search import WEIGHTS
from agentops_memory.recall.stems import TOKENIZER
from agentops_memory.sqlite.connection import connect

from ..support.recall import assert_true, explained, plain_of
from ..support.samples import for_each
from ..support.service import Service, serving

FIELDS = ("title", "content", "context", "tags")
WORDS = ("queue", "queues", "orders", "retry", "deploy", "deployment", "pool", "max_connections",
         "HTTPServer", "service", "東京", "東", "大阪駅", "café", "Straße", "data/base.py", "v1.2",
         "the", "is", "kafkaa", "zzz", "Ⅷ", "नमस्ते")  # fmt: skip


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with projects in two partitions, and global memories beside them."""
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as running:
        for number in range(60):
            words = [WORDS[(number * step + number // step) % len(WORDS)] for step in (1, 3, 5, 7)]
            running.save(
                f"{' '.join(words)} again {words[0]}. Note {number}", title=" ".join(words[1:3]),
                tags=[words[3], words[0]], project=f"p{number % 12}",
                scope="global" if number % 5 == 0 else "project", session_id=f"s{number % 6}",
            )  # fmt: skip
        yield running


@pytest.mark.slow
@pytest.mark.sqlite_files
@for_each(
    "text, asked",
    [
        ("orders pool", {"limit": 40}), ("東", {}), ("data/base.py data base", {"project": "p3"}),
        ("max_connections pool. connections. retri orders!", {}),
        ("queue. queue orders. retry", {"limit": 3, "scope": "global"}),
    ],
)  # fmt: skip
def test_the_pieces_of_a_score_make_it_whole_and_the_shares_of_fields_are_those_of_their_counts(
    full: Service, text: str, asked: dict[str, Any]
) -> None:
    for path, name, rows, first in (
        ("/search", "q", "results", "every"), ("/context", "query", "recent_observations", "any")
    ):  # fmt: skip
        answer = explained(full, path, **{name: text}, **asked)
        assert plain_of(answer) == full.http.get(path, params={name: text, **asked}).json()
        for place, row in enumerate(answer[rows], start=1):
            item = row["explain"]
            assert item["place"] == place
            assert ("score" in item) == (item["method"] == "fts5_bm25")
            if "score" not in item:
                continue
            assert_true(item)
            # A later tier is never ranked better; within the first, the rank is the score.
            assert item["rank"] >= item["score"] - 1e-9
            assert item["tier"] != first or item["rank"] == pytest.approx(item["score"], rel=1e-12)
        if path == "/search" and text == "orders pool":
            assert answer[rows]
            for row in answer[rows]:
                assert_shares(full, row)


def assert_shares(service: Service, row: dict[str, Any]) -> None:
    for one in row["explain"]["matched"]:
        own = row["explain"]["tier"] == "every"
        parts = {
            field: weight * count * (not own or field != "context")
            for field, weight, count in zip(
                FIELDS, WEIGHTS, counted(service, row["id"], one["term"]), strict=True
            )
        }
        whole = sum(parts.values())
        expected = {field: part / whole for field, part in parts.items() if part}
        assert one["fields"] == pytest.approx(expected, abs=1e-9)


def counted(service: Service, memory: int, word: str) -> list[int]:
    """How often the word's stem stands in each field, by a table of its own."""
    with closing(connect(service.path)) as database:
        (texts,) = database.execute(
            f"SELECT {', '.join(FIELDS)} FROM memory_text WHERE id = ?", (memory,)
        )
        database.execute(
            f'CREATE VIRTUAL TABLE temp.scratch USING fts5 (text, tokenize = "{TOKENIZER}")'
        )
        database.execute("CREATE VIRTUAL TABLE temp.tokens USING fts5vocab (scratch, instance)")
        database.executemany(
            "INSERT INTO scratch (rowid, text) VALUES (?, ?)", enumerate([*texts, word])
        )
        tokens = database.execute("SELECT doc, term FROM temp.tokens").fetchall()
    (stem,) = (term for doc, term in tokens if doc == len(FIELDS))
    return [tokens.count((doc, stem)) for doc in range(len(FIELDS))]


def test_without_the_flags_an_answer_is_what_it_was(service: Service) -> None:
    service.save("Orders go through a queue.", title="Queue", topic_key="shop/queue")
    context = (
        b'{"recent_sessions":[],"recent_observations":[{"type":"discovery","title":"Queue",'
        b'"content":"Orders go through a queue."}]}'
    )

    for flags in ("", "&explain=", "&explain=false", "&why_not=", "&max_tokens=&content_chars="):
        found = service.http.get(f"/search?q=queue{flags}").content
        assert found.startswith(b'[{"id":1,"type":"discovery","title":"Queue","content":"Orders')
        assert found.endswith(b',"topic_key":"shop/queue"}]')
        assert b"explain" not in found
        assert service.http.get(f"/context?project=demo&query=queue{flags}").content == context


def test_an_answer_says_what_it_looked_for_and_what_it_dropped(service: Service) -> None:
    service.save("Kafka is rolled back.", title="it")

    answer = explained(service, "/context", project="demo", query="What is a kafkaa? Roll it.")

    assert answer["explain"] == {
        "method": "fts5_bm25", "terms": [["kafkaa", "kafka"], ["roll"]],
        "dropped": ["what", "is", "a", "it"], "corrected": {"kafkaa": ["kafka"]}, "degraded": False,
        "timed_out": False, "explained": 1,
        "budget": {"tokens": 10, "chars": 40, "summaries_left_out": 0, "left_out": []},
    }  # fmt: skip
    item = answer["recent_observations"][0]["explain"]
    assert (item["id"], item["place"], item["tier"]) == (1, 1, "any")
    assert item["content_cut"] is False
    assert [(one["term"], one.get("instead_of")) for one in item["matched"]] == [
        ("kafka", "kafkaa"),
        ("roll", None),
    ]
    assert [part["sentence"] for part in item["sentences"]] == [1, 2]


def test_what_is_looked_for_is_told_word_by_word(service: Service) -> None:
    service.save("Kafka.", title="it")
    service.save("東京 tower", title="tower", session_id="s2")
    words = [f"{letter}{number}" for letter in "abcdefgh" for number in range(10)]

    typo = explained(service, "/search", project="demo", q="kafka kafkaa")
    prefix = explained(service, "/search", q="東")
    many = explained(service, "/search", q=" ".join(words))["explain"]

    (hit,) = typo["results"]
    assert typo["explain"]["corrected"] == {"kafkaa": ["kafka"]}
    # A word that was written stands for none.
    assert {(one["term"], one.get("instead_of")) for one in hit["explain"]["matched"]} == {
        ("kafka", None)
    }
    assert prefix["explain"]["terms"] == [["東*"]]
    assert [one["term"] for one in prefix["results"][0]["explain"]["matched"]] == ["東*"]
    assert (many["terms"], many["dropped"]) == ([words[:64]], words[64:])
    for text in ("", "?!", "/", "\0", '"AND" OR NOT (', "*", "😀"):
        answer = explained(service, "/search", q=text)
        assert (answer["results"], answer["explain"]["explained"]) == ([], 0)


def test_a_sentence_in_which_a_memory_was_not_among_the_best_counts_for_nothing(
    service: Service,
) -> None:
    for number in range(14):
        service.save(
            f"apple {'and pears ' * number}", title=f"apple {number}", session_id=f"s{number}"
        )
    service.save(f"banana apple {'and pears ' * 40}", title="it", session_id="it")

    hits = explained(service, "/search", q="Apple none. Banana here.", limit=5)["results"]
    (item,) = (hit["explain"] for hit in hits if hit["title"] == "it")

    apple, banana = item["sentences"]
    assert apple["counted"] is False
    assert apple["share"] == 0
    assert apple["score"] < 0
    assert item["score"] == pytest.approx(banana["weight"] * banana["score"])
    assert (banana["sentence"], banana["share"], banana["counted"]) == (2, 1.0, True)
    assert_true(item)


def test_a_search_says_which_tier_found_it(service: Service) -> None:
    service.save("something", title="keyed", topic_key="apple/banana", session_id="a")
    service.save("apple banana", title="both", session_id="b")
    service.save("apple", title="one", session_id="c")

    answer = explained(service, "/search", q="apple/banana")

    items = {hit["title"]: hit["explain"] for hit in answer["results"]}
    assert {name: (item["method"], item.get("tier")) for name, item in items.items()} == {
        "keyed": ("topic_key", None), "both": ("fts5_bm25", "every"), "one": ("fts5_bm25", "any"),
    }  # fmt: skip
    assert items["keyed"] == {
        "id": 1, "place": 1, "rank": -1000.0, "method": "topic_key", "matched": [],
    }  # fmt: skip
    assert {one["term"] for one in items["both"]["matched"]} == {"apple", "banana"}


def test_parts_of_an_identifier_count_for_every_word_only_when_none_is_missing(
    service: Service,
) -> None:
    service.save("maxconnections of the pool, and at max", title="joined", session_id="a")
    service.save("max_connections of the pool", title="parts", session_id="b")

    hits = explained(service, "/search", q="max_connections pool")["results"]

    for hit in hits:
        assert hit["explain"]["tier"] == "every"
        assert_true(hit["explain"])
    terms = {hit["title"]: {one["term"] for one in hit["explain"]["matched"]} for hit in hits}
    assert terms["joined"] == {"maxconnections", "pool"}
    assert terms["parts"] == {"max", "connections", "maxconnections", "pool"}


def test_the_newest_have_no_score(service: Service) -> None:
    service.save("x" * 400, title="long")

    (row,) = explained(service, "/context", project="demo")["recent_observations"]

    assert row["explain"] == {
        "id": 1, "place": 1, "rank": 0.0, "method": "recency", "matched": [], "content_cut": True,
    }  # fmt: skip
