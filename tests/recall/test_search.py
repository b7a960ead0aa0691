"""Search by words and by topic key."""

import pytest

from agentops_memory.recall.query import parse_query
from agentops_memory.recall.text import indexed
from agentops_memory.recall.visibility import PRIOR
from agentops_memory.sqlite.dialect import PRIOR_TEXT

from ..support.engines import rows
from ..support.files import imported
from ..support.recall import context, search, titles
from ..support.requirements import requirement
from ..support.service import Service, observation
from ..support.stores import entry, store


@requirement("agentops:search:hits")
def test_a_hit_has_its_text_and_a_negative_rank(service: Service) -> None:
    service.save("WAL lets readers read", title="Journal", type="decision", topic_key="db")
    service.save("another wal")
    keyed, plain = service.http.get("/search?q=wal+readers").json()

    assert keyed.pop("rank") < plain.pop("rank") < 0
    assert keyed == {
        "id": 1, "type": "decision", "title": "Journal", "content": "WAL lets readers read",
        "topic_key": "db",
    }  # fmt: skip
    assert plain == {"id": 2, "type": "discovery", "title": "another wal", "content": "another wal"}


@requirement("agentops:search:no-query")
def test_no_query_finds_nothing(service: Service) -> None:
    service.save("one")

    for path in ("/search", "/search?q=", "/search?q=%20", "/search?q=%3F%21", "/search?limit=5"):
        assert service.http.get(path).text == "[]"


@requirement("agentops:search:topic-keys")
def test_topic_keys_that_hold_the_query_come_first(service: Service) -> None:
    service.save("all about a/b in words", title="words")
    service.save("x", topic_key="db/a/b", title="old")
    service.save("x", topic_key="a/b", title="new")
    service.save("x", topic_key="A/B", title="case")
    service.save("x", topic_key="a_b", title="like")
    hits = service.http.get("/search", params={"q": " a/b "}).json()

    assert [(hit["title"], hit["rank"]) for hit in hits[:2]] == [("new", -1000), ("old", -1000)]
    assert [hit["topic_key"] for hit in hits[:2]] == ["a/b", "db/a/b"]
    assert [hit["title"] for hit in hits[2:]] == ["words"]
    assert -1000 < hits[2]["rank"] < 0


@requirement("agentops:search:topic-keys")
def test_signs_in_a_topic_key_are_literal(service: Service) -> None:
    service.save("x", topic_key="a/50%_done", title="literal")
    service.save("x", topic_key="a/50xxdone", title="pattern")
    service.save("x", topic_key="hooks/audit", title="other")

    def found(query: str) -> list[str]:
        hits = service.http.get("/search", params={"q": query}).json()
        return [hit["title"] for hit in hits if hit["rank"] == -1000]

    assert found("a/50%_d") == ["literal"]
    assert found("/") == ["other", "pattern", "literal"]
    assert found("a/%") == []
    assert found("audit") == []


@requirement("agentops:search:topic-keys")
def test_topic_keys_are_narrowed_like_words(service: Service) -> None:
    service.save("x", topic_key="a/b", title="own", tags=["t"])
    service.save("x", topic_key="a/b", title="other", project="other", type="decision")
    service.save("x", topic_key="a/b", title="global", project="other", scope="global")

    def found(**asked: str | int) -> list[str]:
        hits = service.http.get("/search", params={"q": "a/b", **asked}).json()
        return [hit["title"] for hit in hits]

    assert found(project="DEMO") == ["global", "own"]
    assert found(type="decision") == ["other"]
    assert found(tag="t") == ["own"]
    assert found(scope="global") == ["global"]
    assert found(limit=1) == ["global"]


@requirement("agentops:search:hits")
def test_words_are_narrowed_by_what_is_asked(service: Service) -> None:
    service.save("word a", type="decision", title="a", session_id="a")
    service.save("word b", tags=["t"], title="b", session_id="b")
    service.save("word c", project="other", title="c", type="decision", session_id="c")
    service.save("word d", scope="team", title="d", session_id="d")

    asked = {
        "": "abcd", "type=decision": "ac", "tag=t": "b", "scope=team": "d", "scope=project": "abc",
        "project=Demo": "abd", "project=other&type=decision": "c", "project=nobody": "",
        "limit=2": "ac",
    }  # fmt: skip
    for query, expected in asked.items():
        hits = service.http.get(f"/search?q=word&{query}").json()
        assert "".join(sorted(hit["title"] for hit in hits)) == expected, query


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


# Two projects, a and b; in each one memory of a scope: p(roject), g(lobal), t(eam).
ALL = {"ap", "ag", "at", "bp", "bg", "bt"}
OWN = {"ap", "ag", "at"}
GLOBALS = {"ag", "bg"}

SEEN = {
    "/search?q=word": {
        "": ALL, "project=a": OWN | {"bg"}, "scope=global": GLOBALS,
        "project=a&scope=global": GLOBALS, "project=none&scope=global": GLOBALS,
        "project=none": GLOBALS, "scope=team": {"at", "bt"}, "project=a&scope=team": {"at"},
        "project=a&scope=project": {"ap"},
    },
    "/observations/recent?limit=9": {
        "": ALL, "project=a": OWN, "scope=global": GLOBALS, "project=a&scope=global": GLOBALS,
        "project=none": set(), "scope=team": {"at", "bt"}, "project=a&scope=team": {"at"},
        "project=a&scope=project": {"ap"},
    },
    "/context?limit=9": {
        "": GLOBALS, "project=a": OWN | {"bg"}, "scope=global": GLOBALS,
        "project=a&scope=global": GLOBALS, "project=none": GLOBALS, "scope=team": set(),
        "project=a&scope=team": {"at"}, "project=a&scope=project": {"ap"},
    },
    "/export?": {"": ALL, "project=a": OWN, "project=none": set()},
}  # fmt: skip
SEEN["/context?limit=9&query=word"] = SEEN["/context?limit=9"]
SEEN["/context?limit=9&query=unheard"] = SEEN["/context?limit=9"]


@requirement("agentops:global:visibility", "agentops:fault:global-unread")
def test_each_read_sees_the_global_memories_that_it_should(service: Service) -> None:
    for project in "ab":
        for scope in ("project", "global", "team"):
            text = {"title": project + scope[0], "project": project, "scope": scope}
            service.save(f"word of {project}", **text)

    for path, seen in SEEN.items():
        for query, expected in seen.items():
            assert _titles(service, f"{path}&{query}") == expected, (path, query)


def _titles(service: Service, path: str) -> set[str]:
    answer = service.http.get(path).json()
    if isinstance(answer, dict):
        answer = answer.get("recent_observations") or answer.get("observations") or []
    return {row["title"] for row in answer}


ROWS = 1005
MIDDLE = 503
DEFAULT = [
    "", "0", "-1", "-999", "ten", "1.5", "1e3", "0x10", "१०", "\uff11\uff10", " 5", "%2B5", "5%00",
]  # fmt: skip
DEFAULTS = {
    "/observations/recent?limit={}": 20, "/sessions/recent?limit={}": 5,
    "/search?q=word&limit={}": 10, "/context?project=demo&limit={}": 5,
    f"/timeline?observation_id={MIDDLE}&after=1&before={{}}": 3,
    f"/timeline?observation_id={MIDDLE}&before=1&after={{}}": 3,
}  # fmt: skip


@pytest.mark.slow
@requirement("agentops:parameters:row-counts")
def test_a_number_of_rows_that_is_missing_or_none_is_the_default_and_at_most_a_thousand(
    service: Service,
) -> None:
    _fill(service)

    for path, default in DEFAULTS.items():
        beside = 2 if "timeline" in path else 0
        for text in DEFAULT:
            assert _count(service, path.format(text)) == default + beside, (path, text)
        for text in ("2", "0002"):
            assert _count(service, path.format(text)) == 2 + beside
        if not beside:
            assert _count(service, path.replace("limit={}", "")) == default
            for huge in ("1001", "1000", "99999999999999999999", "9" * 5000):
                assert _count(service, path.format(huge)) == 1000, (path, huge[:9])
    around = f"/timeline?observation_id={MIDDLE}"
    assert _count(service, around) == 7
    assert _count(service, f"{around}&before={'9' * 20}&after={'9' * 5000}") == ROWS
    assert _count(service, "/observations/recent?limit=999") == 999


def _fill(service: Service) -> None:
    imported(
        service,
        [observation(f"word {number}") for number in range(ROWS)],
        [{"id": f"s{number}", "project": "demo"} for number in range(ROWS)],
    )


def _count(service: Service, path: str) -> int:
    answer = service.http.get(path)
    assert answer.status_code == 200, answer.text
    rows = answer.json()
    return len(rows if isinstance(rows, list) else rows["recent_observations"])


TEXTS = (
    "Ada likes apples and the sea", "Ada walks with Ben by the sea", "Ben writes to Ada",
    "Ada and Ben plan a trip to the lake", "Ada sold the boat", "Ben asks Ada about apples",
)  # fmt: skip


def best_rank(service: Service, text: str) -> float:
    return float(search(service, text, project="demo", limit=20)[0]["rank"])


def test_a_word_that_each_memory_of_a_lone_project_has_still_counts(service: Service) -> None:
    for text in TEXTS:
        service.save(text, session_id=text)

    assert best_rank(service, "Ada") < -1


def test_no_search_finds_the_prior(service: Service) -> None:
    service.save("one \ufe00 two")

    for text in ("\ufe00", "\ufe00 two", " ".join(["\ufe00"] * 9), "*", '""'):
        assert len(search(service, text)) <= 1
    assert search(service, "two")[0]["id"] == 1
    assert len(search(service, "two", limit=1000)) == 1


def test_the_word_of_the_prior_is_in_no_text_and_in_no_query() -> None:
    assert indexed(PRIOR_TEXT).split() == []
    assert not parse_query(PRIOR_TEXT)


@pytest.mark.sqlite_files
def test_partitions_of_projects_and_of_stores_have_it(service: Service) -> None:
    service.save("one")
    assert service.path.stat().st_size < 1_000_000
    entry(service.http, store(service.http), "a.md", "one")

    for number in (0, 1024):
        behind = f"SELECT count(*) FROM memories_fts_{number}_docsize WHERE id >= {PRIOR}"
        assert rows(service.path, behind) == [(1500,)]
