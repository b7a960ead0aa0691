"""What an agent is reminded of: summaries, the best observations, then the newest."""

from itertools import product
from typing import Any

import pytest

from ..support.recall import context, ended
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service


@requirement("agentops:context:summaries")
def test_the_three_newest_summaries_of_the_project_come_newest_first(service: Service) -> None:
    for number in range(5):
        service.clock.advance(seconds=1)
        ended(service, f"s{number}", f"topic {number}")
    service.clock.advance(seconds=1)
    ended(service, "other", "elsewhere", project="other")
    service.http.post("/sessions", json={"id": "open", "project": "demo"})
    service.http.post("/sessions/silent/end?project=demo")
    service.clock.advance(seconds=1)
    ended(service, "s0", "topic 0 ended once more")

    assert service.http.get("/context?project=demo&query=topic").json() == {
        "recent_sessions": [
            {"summary": f"Session: 1 messages (1 user, 0 assistant). Started with: topic {number}"}
            for number in (4, 3, 2)
        ],
        "recent_observations": [],
    }
    assert service.http.get("/context?query=topic").json()["recent_sessions"] == []


@requirement("agentops:context:query")
def test_any_word_of_the_query_may_match_and_more_are_better(service: Service) -> None:
    service.save("The cat sleeps.", title="a")
    service.save("Deployments are rolled back by the scheduler.", title="b")
    service.save("A scheduler exists.", title="c")
    service.save("Nothing of the kind.", title="d")

    assert context(service, "how does the scheduler roll back a deployment?", limit=2) == [
        "b",
        "c",
    ]
    assert context(service, "scheduler", limit=9) == ["c", "b", "d", "a"]


@requirement("agentops:context:query")
def test_no_query_or_no_hit_means_the_newest(service: Service) -> None:
    for title in "abc":
        service.save(f"word {title}", title=title)

    for query in ("", "unheard", "?!", "\0", '"AND" OR NOT (', "*"):
        assert context(service, query) == ["c", "b", "a"], query


@requirement("agentops:context:backfill")
def test_what_words_do_not_fill_is_filled_with_the_newest(service: Service) -> None:
    service.save("needle in hay", title="hit")
    for title in "abcd":
        service.save(f"hay {title}", title=title, session_id=title)

    assert context(service, "needle", limit=3) == ["hit", "d", "c"]
    assert context(service, "needle", limit=9) == ["hit", "d", "c", "b", "a"]
    assert context(service, "needle hay", limit=9)[0] == "hit"
    assert len(set(context(service, "needle hay", limit=9))) == 5


@pytest.mark.slow
@requirement("agentops:context:backfill", "agentops:global:visibility")
def test_global_memories_are_ranked_but_backfilled_last(service: Service) -> None:
    service.save("own old", title="own old")
    service.save("own global", title="own global", scope="global")
    service.save("needle", title="found", scope="global", project="other")
    service.save(
        "foreign", title="foreign global", scope="global", project="other", session_id="s2"
    )
    service.save("foreign secret", title="foreign", project="other")

    assert context(service, "needle", limit=9) == [
        "found", "own global", "own old", "foreign global",
    ]  # fmt: skip
    assert context(service, "", limit=2) == ["own global", "own old"]
    assert context(service, "", limit=3) == ["own global", "own old", "foreign global"]


@pytest.mark.slow
@requirement("agentops:context:query")
def test_a_context_is_narrowed_by_scope_and_tag(service: Service) -> None:
    service.save("needle", title="team", scope="team")
    service.save("needle two", title="tagged", tags=["x"])
    service.save("needle three", title="global", scope="global", tags=["x"], project="other")

    for query in ("needle", ""):
        assert context(service, query, scope="team") == ["team"]
        assert sorted(context(service, query, tag="x")) == ["global", "tagged"]
        assert context(service, query, scope="global") == ["global"]
        assert context(service, query, scope="project", tag="x") == ["tagged"]


def test_summaries_are_counted_first_then_each_entry_in_its_order(service: Service) -> None:
    ended(service, "s1", "hello")
    summary = "Session: 1 messages (1 user, 0 assistant). Started with: hello"
    service.save("small", title="last", session_id="a")
    service.save("x" * 40, title="long", session_id="b")
    service.save("tiny", title="first", session_id="c")
    lines = {
        "summary": f"- {summary}\n", "first": "- [discovery] first: tiny\n",
        "long": f"- [discovery] long: {'x' * 40}\n", "last": "- [discovery] last: small\n",
    }  # fmt: skip

    def told(*names: str) -> dict[str, Any]:
        return {"max_chars": sum(len(lines[name]) for name in names)}

    assert _named(service) == ["summary", "first", "long", "last"]
    assert _named(service, **told("summary", "first", "last")) == ["summary", "first", "last"]
    assert _named(service, **told("summary", "first")) == ["summary", "first"]
    assert _named(service, max_chars=len(lines["summary"]) - 1) == ["first", "last"]
    assert _named(service, max_chars=26, max_tokens=1000) == ["first"]
    assert _named(service, max_chars=1000, max_tokens=7) == ["first"]
    assert _named(service, max_tokens=0) == _named(service, max_chars=0) == []
    assert _named(service, max_tokens="9" * 5000) == ["summary", "first", "long", "last"]
    assert _named(service, limit=1, max_chars=1000) == ["summary", "first"]


def test_an_explanation_lists_what_was_left_out(service: Service) -> None:
    """A line costs a token for four bytes, begun ones too, and a character a code point."""
    ended(service, "s1", "hello " * 40)
    service.save("small", title="last", session_id="a")
    service.save("x" * 40, title="long", session_id="b")
    service.save("tin😀", title="first", session_id="c")

    answer = _context(service, explain="true", max_chars=60, max_tokens=99)

    assert answer["recent_sessions"] == []
    assert answer["explain"]["budget"] == {
        "max_tokens": 99, "max_chars": 60, "tokens": 15, "chars": 52, "summaries_left_out": 1,
        "left_out": [{"id": 2, "place": 2, "tokens": 16, "chars": 61}],
    }  # fmt: skip
    places = [row["explain"]["place"] for row in answer["recent_observations"]]
    assert places == [1, 3]


@requirement("agentops:context:cut")
def test_a_content_is_cut_where_the_agent_wants_it(service: Service) -> None:
    service.save("é" * 400, title="it")

    def shown(**asked: Any) -> Any:
        return _context(service, **asked)["recent_observations"][0]["content"]

    assert shown(content_chars=5) == "é" * 5 + "..."
    assert shown(content_chars=400) == "é" * 400
    assert shown(content_chars="9" * 5000) == "é" * 400
    assert shown(content_chars="") == shown() == "é" * 300 + "..."
    assert _context(service, content_chars=3, max_chars=25)["recent_observations"] != []
    assert _context(service, content_chars=4, max_chars=25)["recent_observations"] == []
    assert _cut(service, content_chars=399) is True
    assert _cut(service, content_chars=400) is False


WRONG = ("x", "-1", "1.5", "+1", " 1", "1e3", "٣", "0x10", "-" + "9" * 30)


@for_each(
    "name, value",
    [
        ("content_chars", "0"),
        *product(("max_tokens", "max_chars", "content_chars"), WRONG),
    ],
)
def test_what_is_no_amount_is_refused(service: Service, name: str, value: str) -> None:
    answer = service.http.get("/context", params={name: value})

    assert answer.status_code == 400
    least = 1 if name == "content_chars" else 0
    assert answer.json() == {"error": f"{name} must be a whole number, {least} or more."}


def _context(service: Service, **asked: Any) -> Any:
    answer = service.http.get("/context", params={"project": "demo", **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


def _named(service: Service, **asked: Any) -> list[str]:
    answer = _context(service, **asked)
    titles = [row["title"] for row in answer["recent_observations"]]
    return ["summary" for _ in answer["recent_sessions"]] + titles


def _cut(service: Service, **asked: Any) -> Any:
    (row,) = _context(service, explain="1", **asked)["recent_observations"]
    return row["explain"]["content_cut"]
