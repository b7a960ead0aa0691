"""What an agent is reminded of: summaries, the best observations, then the newest."""

import pytest

from ..support.requirements import requirement
from ..support.service import Service


@requirement("agentops:context:summaries")
def test_the_three_newest_summaries_of_the_project_come_newest_first(service: Service) -> None:
    for number in range(5):
        service.clock.advance(seconds=1)
        _ended(service, f"s{number}", f"topic {number}")
    service.clock.advance(seconds=1)
    _ended(service, "other", "elsewhere", project="other")
    service.http.post("/sessions", json={"id": "open", "project": "demo"})
    service.http.post("/sessions/silent/end?project=demo")
    service.clock.advance(seconds=1)
    _ended(service, "s0", "topic 0 ended once more")

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

    assert _titles(service, query="how does the scheduler roll back a deployment?", limit=2) == [
        "b",
        "c",
    ]
    assert _titles(service, query="scheduler", limit=9) == ["c", "b", "d", "a"]


@requirement("agentops:context:query")
def test_no_query_or_no_hit_means_the_newest(service: Service) -> None:
    for title in "abc":
        service.save(f"word {title}", title=title)

    for query in ("", "unheard", "?!", "\0", '"AND" OR NOT (', "*"):
        assert _titles(service, query=query) == ["c", "b", "a"], query


@requirement("agentops:context:backfill")
def test_what_words_do_not_fill_is_filled_with_the_newest(service: Service) -> None:
    service.save("needle in hay", title="hit")
    for title in "abcd":
        service.save(f"hay {title}", title=title, session_id=title)

    assert _titles(service, query="needle", limit=3) == ["hit", "d", "c"]
    assert _titles(service, query="needle", limit=9) == ["hit", "d", "c", "b", "a"]
    assert _titles(service, query="needle hay", limit=9)[0] == "hit"
    assert len(set(_titles(service, query="needle hay", limit=9))) == 5


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

    assert _titles(service, query="needle", limit=9) == [
        "found", "own global", "own old", "foreign global",
    ]  # fmt: skip
    assert _titles(service, limit=2) == ["own global", "own old"]
    assert _titles(service, limit=3) == ["own global", "own old", "foreign global"]


@pytest.mark.slow
@requirement("agentops:context:query")
def test_a_context_is_narrowed_by_scope_and_tag(service: Service) -> None:
    service.save("needle", title="team", scope="team")
    service.save("needle two", title="tagged", tags=["x"])
    service.save("needle three", title="global", scope="global", tags=["x"], project="other")

    for query in ("needle", ""):
        assert _titles(service, query=query, scope="team") == ["team"]
        assert sorted(_titles(service, query=query, tag="x")) == ["global", "tagged"]
        assert _titles(service, query=query, scope="global") == ["global"]
        assert _titles(service, query=query, scope="project", tag="x") == ["tagged"]


def _titles(service: Service, *, project: str = "demo", **asked: str | int) -> list[str]:
    answer = service.http.get("/context", params={"project": project, **asked})
    assert answer.status_code == 200, answer.text
    return [row["title"] for row in answer.json()["recent_observations"]]


def _ended(service: Service, id_: str, said: str, project: str = "demo") -> None:
    messages = [{"role": "user", "content": said}]
    service.http.post("/sessions", json={"id": id_, "project": project})
    service.http.post(f"/sessions/{id_}/end", json={"messages": messages})
