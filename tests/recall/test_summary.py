"""The summary of a session, byte by byte."""

from ..support.requirements import requirement
from ..support.service import Service

EMOJI = "👩‍🚀"  # three code points


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


CONVERSATIONS: list[tuple[list[dict[str, str] | None], str]] = [
    (
        [said("user", "a"), said("assistant", "b"), said("user", "c")],
        "Session: 3 messages (2 user, 1 assistant). Started with: a Ended with: c",
    ),
    ([said("user", "a")], "Session: 1 messages (1 user, 0 assistant). Started with: a"),
    ([said("assistant", "b")], "Session: 1 messages (0 user, 1 assistant). "),
    (
        [said("system", "x"), said("tool", "y"), said("User", "z"), said("", "")],
        "Session: 4 messages (0 user, 0 assistant). ",
    ),
    (
        [said("user", ""), said("user", " two\nlines ")],
        "Session: 2 messages (2 user, 0 assistant). Started with:  Ended with:  two\nlines ",
    ),
    (
        [said("user", "same"), said("user", "same")],
        "Session: 2 messages (2 user, 0 assistant). Started with: same Ended with: same",
    ),
    ([{"role": "user"}, {}, None], "Session: 3 messages (1 user, 0 assistant). Started with: "),
]


@requirement("agentops:summary:format")
def test_the_summary_has_one_form(service: Service) -> None:
    for number, (messages, summary) in enumerate(CONVERSATIONS):
        answer = service.http.post(f"/sessions/s{number}/end", json={"messages": messages})
        assert answer.json() == {
            "session_id": f"s{number}", "summary": summary, "message_count": len(messages),
        }  # fmt: skip


@requirement("agentops:summary:cut")
def test_each_message_is_cut_at_200_code_points(service: Service) -> None:
    whole, over = "ä" * 200, EMOJI * 67
    messages = [said("user", whole), said("user", "x" * 999), said("user", over)]
    answer = service.http.post("/sessions/s1/end", json={"messages": messages})

    assert answer.json()["summary"] == (
        "Session: 3 messages (3 user, 0 assistant). "
        f"Started with: {whole} Ended with: {over[:200]}..."
    )


@requirement("agentops:summary:empty")
def test_a_session_without_messages_has_no_summary_in_any_context(service: Service) -> None:
    service.http.post("/sessions", json={"id": "s1", "project": "demo"})
    answer = service.http.post("/sessions/s1/end", json={"messages": []})

    assert answer.json() == {"session_id": "s1", "summary": "", "message_count": 0}
    assert service.http.get("/context?project=demo").json()["recent_sessions"] == []
    (row,) = service.http.get("/sessions/recent").json()
    assert "summary" not in row
    assert row["ended_at"] == "2030-01-01T12:00:00Z"
