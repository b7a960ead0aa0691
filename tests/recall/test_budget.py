"""A context keeps to what an agent has room for."""

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentops_memory.memory.memory import Text
from agentops_memory.memory.search import Budget
from agentops_memory.recall.recall import Cost, cost_of, entry_line, fitting, summary_line

from ..support.samples import for_each
from ..support.service import Service

BOUND = st.none() | st.integers(0, 60)


@given(st.lists(st.builds(Cost, tokens=st.integers(1, 20), chars=st.integers(3, 30))), BOUND, BOUND)
def test_what_is_packed_fits_and_what_is_left_out_did_not(
    costs: list[Cost], max_tokens: int | None, max_chars: int | None
) -> None:
    fits = fitting(costs, Budget(max_tokens=max_tokens, max_chars=max_chars))

    tokens = chars = 0
    for cost, is_in in zip(costs, fits, strict=True):
        would_fit = (max_tokens is None or tokens + cost.tokens <= max_tokens) and (
            max_chars is None or chars + cost.chars <= max_chars
        )
        assert is_in == would_fit
        if is_in:
            tokens, chars = tokens + cost.tokens, chars + cost.chars
    assert max_tokens is None or tokens <= max_tokens
    assert max_chars is None or chars <= max_chars


@for_each(
    "line, tokens, chars", [("- a\n", 1, 4), ("- ab\n", 2, 5), ("- é\n", 2, 4), ("- 😀😀\n", 3, 5)]
)
def test_a_line_costs_a_token_for_four_bytes_and_a_character_a_code_point(
    line: str, tokens: int, chars: int
) -> None:
    assert cost_of(line) == Cost(tokens=tokens, chars=chars)


def test_the_lines_are_those_of_the_runtime() -> None:
    text = Text(type="note", title="Queue", content="abcdef")

    assert summary_line("Session: 1") == "- Session: 1\n"
    assert entry_line(text, 300) == "- [note] Queue: abcdef\n"
    assert entry_line(text, 3) == "- [note] Queue: abc...\n"


def test_summaries_are_counted_first_then_each_entry_in_its_order(service: Service) -> None:
    _ended(service, "s1", "hello")
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
    _ended(service, "s1", "hello " * 40)
    service.save("small", title="last", session_id="a")
    service.save("x" * 40, title="long", session_id="b")
    service.save("tiny", title="first", session_id="c")

    answer = _context(service, explain="true", max_chars=60, max_tokens=99)

    assert answer["recent_sessions"] == []
    assert answer["explain"]["budget"] == {
        "max_tokens": 99, "max_chars": 60, "tokens": 14, "chars": 52, "summaries_left_out": 1,
        "left_out": [{"id": 2, "place": 2, "tokens": 16, "chars": 61}],
    }  # fmt: skip
    places = [row["explain"]["place"] for row in answer["recent_observations"]]
    assert places == [1, 3]


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


def _ended(service: Service, id_: str, said: str) -> None:
    messages = [{"role": "user", "content": said}]
    service.http.post("/sessions", json={"id": id_, "project": "demo"})
    service.http.post(f"/sessions/{id_}/end", json={"messages": messages})
