"""What an agent is reminded of: summaries, the best observations, then the newest."""

import pytest

from ..support.recall import context, ended
from ..support.requirements import requirement
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
