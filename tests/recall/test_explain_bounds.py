"""An explanation keeps to its bounds: of memories, of bytes, of time."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.http import query as http
from agentops_memory.recall import explanation

from ..support.engine import slow_words
from ..support.recall import ended, explained
from ..support.service import Service, serving
from ..telemetry.test_tracing import traced


@pytest.mark.slow
def test_at_most_fifty_are_explained(service: Service) -> None:
    with serving(service.path.with_name("many.db")) as many:
        letters = [f"{a}{b}" for a in "bcdfghjk" for b in "lmnpqrtv"]
        rows = [
            {"session_id": f"s{n}", "type": "t", "title": f"n{n}", "project": "demo",
             "content": " ".join(letters[n % 3 :])}
            for n in range(1000)
        ]  # fmt: skip
        assert many.http.post("/import", json={"observations": rows}).status_code == 200

        answer = explained(many, "/search", q=" ".join(letters), limit=1000)

    assert len(answer["explain"]["terms"][0]) == 64
    assert answer["explain"]["explained"] == 50
    assert answer["explain"]["timed_out"] is False
    told = [hit["explain"] for hit in answer["results"]]
    assert all("fields" in item for item in told[:50])
    assert [sorted(item) for item in told[50:51]] == [
        ["id", "matched", "method", "place", "rank", "tier"]
    ]


def test_an_explained_answer_keeps_to_its_bound_with_all_that_explains_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        service.save(f"apple {number}" * 20, title=f"apple {number}", session_id=f"s{number}")
    runs = ["".join(map(chr, range(at, at + 4))) for at in range(0x4E00, 0x4E00 + 4 * 90, 4)]
    monkeypatch.setattr(http, "MAX_ANSWER", 6000)

    for path, name in (("/search", "q"), ("/context", "query")):
        for dropped, flag in (([], "explain"), (runs, "why_not")):
            asked: dict[str, Any] = {flag: "1", "limit": 20, "project": "demo"}
            answer = service.http.get(path, params={name: " ".join(["apple", *dropped]), **asked})
            body = answer.json()
            shown = len(body["results" if path == "/search" else "recent_observations"])
            assert len(answer.content) <= 6000
            assert 0 < shown == 20 - int(answer.headers["X-Results-Omitted"])
            assert (len(body["explain"]["dropped"]) > 100) == bool(dropped)


def test_what_a_prompt_says_beyond_its_limit_is_not_even_dropped(service: Service) -> None:
    why = explained(service, "/search", q=f"the {'y' * 496} is beyond")["explain"]

    assert (why["terms"], why["dropped"]) == ([["y" * 496]], ["the"])


def test_when_words_took_too_long_a_memory_is_out_by_its_age_and_spans_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_words(tmp_path / "memory.db", monkeypatch)
    asked: dict[str, Any] = {"limit": 1, "why_not": 1, "project": "demo"}
    with traced(tmp_path, MEMORY_RECALL_LIMIT="0") as (service, received):
        service.save("apple")
        service.save("apple again", session_id="s2")
        for path, name in (("/search", "q"), ("/context", "query")):
            answer = explained(service, path, **{name: "apple"}, **asked)
            assert answer["explain"]["degraded"] is True
            assert answer["explain"]["method"] == "recency"
            (row,) = answer["results" if path == "/search" else "recent_observations"]
            assert row["explain"]["method"] == "recency"
            assert answer["explain"]["why_not"] == {"id": 1, "reason": "recency", "older": True}
        ended(service, "s9", "hello " * 40)
        service.http.get("/context", params={"project": "demo", "max_tokens": 8}).raise_for_status()
        collector = received()

    (search,) = collector.all("memory.search")
    degraded, brief = collector.all("memory.fetch_context")
    assert search.attributes["memory.search.degraded"] is True
    assert degraded.attributes["memory.context.degraded"] is True
    assert "memory.context.degraded" not in brief.attributes


@pytest.mark.sqlite_files
def test_an_explanation_that_takes_too_long_is_left_out_and_said_to_be(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.save("apple")
    slow_words(service.path, monkeypatch)
    monkeypatch.setattr(explanation, "TIMEOUT", timedelta(seconds=-1))

    answer = explained(service, "/search", q="apple", why_not=1)

    assert answer["explain"]["degraded"] is False
    assert answer["explain"]["timed_out"] is True
    assert answer["explain"]["why_not"] == {"id": 1, "reason": "timed_out"}
    assert [sorted(hit["explain"]) for hit in answer["results"]] == [
        ["id", "matched", "method", "place", "rank", "tier"]
    ]
