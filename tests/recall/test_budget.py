"""A context keeps to what an agent has room for."""

from itertools import product
from typing import Any

from ..support.recall import ended
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service


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
