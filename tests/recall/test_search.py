"""Search by words and by topic key."""

from ..support.requirements import requirement
from ..support.service import Service


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
    for query, titles in asked.items():
        hits = service.http.get(f"/search?q=word&{query}").json()
        assert "".join(sorted(hit["title"] for hit in hits)) == titles, query
