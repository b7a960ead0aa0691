"""Sessions: started, ended again and again, listed."""

from urllib.parse import quote

import httpx
import pytest

from ..support.requirements import requirement
from ..support.service import Service

HELLO = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "hi"}

STRANGE_IDS = [
    "a/b", "/", "a/end", "..", "a/../b", " ", "+", "%2F", "?q=1&r", "#x", "😀", "'\"\\", "\ufffd",
    "recent", "x" * 500,
]  # fmt: skip
OLDER_IDS = ["a\nb", "a\r\n"]  # which no new one has


@requirement("agentops:sessions:start")
def test_a_started_session_is_answered_with_its_row(service: Service) -> None:
    answer = service.http.post("/sessions", json={"id": "s1", "project": " Demo "})

    assert answer.status_code == 201
    assert answer.json() == {
        "id": "s1", "project": "demo", "started_at": "2030-01-01T12:00:00Z", "message_count": 0,
    }  # fmt: skip


@requirement("agentops:sessions:start-twice")
@pytest.mark.parametrize("is_ended", [False, True])
def test_a_session_that_is_started_twice_stays_as_it_is(service: Service, is_ended: bool) -> None:
    _started(service, "s1")
    if is_ended:
        _ended(service, "s1", [HELLO])
    before = service.http.get("/sessions/recent").json()
    service.clock.advance(hours=1)

    again = service.http.post("/sessions", json={"id": "s1", "project": "other"})
    assert again.status_code == 201
    assert service.http.get("/sessions/recent").json() == before
    shown = ("id", "project", "started_at", "message_count")
    assert again.json() == {name: before[0][name] for name in shown}


@pytest.mark.slow
@requirement("agentops:sessions:any-id")
def test_a_session_id_may_hold_any_character(service: Service) -> None:
    _started(service, "first")
    for id_ in STRANGE_IDS + OLDER_IDS:
        if id_ in OLDER_IDS:
            service.http.post("/import", json={"sessions": [{"id": id_, "project": "demo"}]})
        _started(service, id_)
        ended = _ended(service, id_, [HELLO])
        assert ended.status_code == 200, id_
        assert ended.json()["session_id"] == id_

        listed = service.http.get("/sessions/recent?limit=1").json()
        older = service.http.get("/sessions/recent", params={"before_id": id_, "limit": 1}).json()
        assert [row["id"] for row in listed] == [id_]
        assert len(older) == 1
    assert service.http.get("/stats").json()["total_sessions"] == len(STRANGE_IDS + OLDER_IDS) + 1


@requirement("agentops:sessions:any-id", "agentops:text:replacement")
def test_an_id_that_is_no_utf_8_is_one_session_wherever_it_is_read(service: Service) -> None:
    service.http.post("/sessions", content=b'{"id": "a\xff", "project": "demo"}')
    ended = service.http.post("/sessions/a%FF/end", json={"messages": [HELLO]})

    assert ended.json()["session_id"] == "a\ufffd"
    assert len(service.http.get("/sessions/recent").json()) == 1


@requirement("agentops:sessions:last-transcript", "agentops:sessions:end-is-repeatable")
def test_the_same_messages_give_the_same_bytes_and_the_last_transcript_wins(
    service: Service,
) -> None:
    _started(service, "s1")
    first = _ended(service, "s1", [HELLO, ANSWER])
    service.clock.advance(minutes=5)
    assert _ended(service, "s1", [HELLO, ANSWER]).content == first.content
    more = _ended(service, "s1", [HELLO, ANSWER, {"role": "user", "content": "bye"}])
    service.clock.advance(minutes=5)
    fewer = _ended(service, "s1", [ANSWER])

    assert more.json() == {
        "session_id": "s1",
        "summary": "Session: 3 messages (2 user, 1 assistant). Started with: hello Ended with: bye",
        "message_count": 3,
    }
    (row,) = service.http.get("/sessions/recent").json()
    assert row == {
        "id": "s1", "project": "demo", "started_at": "2030-01-01T12:00:00Z", "message_count": 1,
        "ended_at": "2030-01-01T12:10:00Z", "summary": fewer.json()["summary"],
    }  # fmt: skip


@requirement("agentops:sessions:end-without-messages")
def test_an_end_without_messages_keeps_summary_and_count(service: Service) -> None:
    first = _ended(service, "s1", [HELLO])

    for body in (b"", b" \n\t", b"{}", b'{"messages":null}', b'{"messages":[]}'):
        service.clock.advance(minutes=1)
        again = service.http.post("/sessions/s1/end", content=body)
        assert again.status_code == 200
        assert again.content == first.content
    silent = service.http.post("/sessions/s2/end?project=demo")
    assert silent.json() == {"session_id": "s2", "summary": "", "message_count": 0}
    _, row = service.http.get("/sessions/recent").json()
    assert row["ended_at"] == "2030-01-01T12:05:00Z"


@requirement("agentops:sessions:late-end", "agentops:fault:lost-summary")
def test_the_end_of_an_unknown_session_stores_it(service: Service) -> None:
    named = service.http.post(
        "/sessions/late/end", params={"project": " DEMO"}, json={"messages": [HELLO]}
    )
    _ended(service, "lost", [HELLO])
    service.http.post("/sessions/late/end?project=other", json={"messages": [HELLO]})

    assert named.status_code == 200
    rows = service.http.get("/sessions/recent").json()
    assert [(row["id"], row["project"], row["message_count"]) for row in rows] == [
        ("lost", "unknown", 1),
        ("late", "demo", 1),
    ]
    assert all(row["summary"] == named.json()["summary"] for row in rows)
    context = service.http.get("/context?project=demo").json()
    assert context["recent_sessions"] == [{"summary": named.json()["summary"]}]


@requirement("agentops:fault:large-transcript")
def test_a_transcript_of_several_mebibytes_is_summed_up(service: Service) -> None:
    messages = [
        {"role": "user", "content": f"{number} " + "long " * 10_000} for number in range(60)
    ]
    ended = _ended(service, "s1", messages)

    assert ended.status_code == 200
    assert ended.json()["message_count"] == 60


@requirement("agentops:sessions:recent")
def test_sessions_are_listed_newest_first_of_their_project(service: Service) -> None:
    for number in range(7):
        _started(service, f"s{number}", project="demo" if number % 2 else "other")
        service.clock.advance(seconds=1)
    _ended(service, "s0", [HELLO])

    every = service.http.get("/sessions/recent?limit=10").json()
    demo = service.http.get("/sessions/recent?project=demo").json()
    assert [row["id"] for row in every] == [f"s{number}" for number in reversed(range(7))]
    assert [row["id"] for row in demo] == ["s5", "s3", "s1"]
    assert demo[0] == {
        "id": "s5", "project": "demo", "started_at": "2030-01-01T12:00:05Z", "message_count": 0,
    }  # fmt: skip


def _started(service: Service, id_: str, project: str = "demo") -> None:
    answer = service.http.post("/sessions", json={"id": id_, "project": project})
    assert answer.status_code == 201
    assert answer.json()["id"] == id_


def _ended(service: Service, id_: str, messages: list[dict[str, str]]) -> httpx.Response:
    path = quote(id_, safe="").replace(".", "%2E")
    return service.http.post(f"/sessions/{path}/end", json={"messages": messages})
