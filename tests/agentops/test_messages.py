"""Messages are told as a session goes, and what its end says is what an end with all would say."""

import asyncio
import logging
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from hypothesis import assume, example, given, strategies as st

from agentops_memory.engine.engine import Engine
from agentops_memory.jobs.schedule import end_all_idle
from agentops_memory.memory.access import OPERATOR, Caller, TenantId
from agentops_memory.memory.memory import Session, SessionId
from agentops_memory.memory.redactor import Redactor
from agentops_memory.memory.sessions import AT_ONCE, append_messages, end_idle, recent_sessions
from agentops_memory.memory.space import Project
from agentops_memory.recall.summary import (
    ENDED,
    Message,
    Transcript,
    parsed_summary,
    summary,
    transcript,
)
from agentops_memory.secrets.redaction import Rules, redacted
from agentops_memory.sqlite import SqliteEngine, TenantsEngine
from agentops_memory_client.contract import models

from ..support.another import another
from ..support.callers import calling, made_key
from ..support.engine import opened
from ..support.engines import is_postgresql, rows, storage_at, tables
from ..support.files import disk
from ..support.process import served, until
from ..support.projects import erased
from ..support.requirements import requirement
from ..support.samples import examples
from ..support.service import START, Clock, Service, lasting_with, serving
from ..support.terminal import Terminal

shared = lasting_with()

DAY = timedelta(days=1)
SECRET = "AKIA" + "QZXV7RARE" + "K3YQ9AB"
Said = dict[str, str]

role = st.sampled_from(["user", "assistant", "user", "tool"])
piece = st.sampled_from(["a", " ", ".", "...", ENDED, "Ended with:", "ä" * 197, "x" * 250, SECRET])
content = st.lists(piece, max_size=3).map("".join)
messages = st.lists(st.builds(lambda r, c: {"role": r, "content": c}, role, content), max_size=3)
deed: st.SearchStrategy[tuple[str, list[Said]]] = st.one_of(
    st.tuples(st.just("messages"), messages), st.tuples(st.just("messages"), messages),
    st.tuples(st.just("end"), st.just([]) | messages), st.tuples(st.just("silence"), st.just([])),
)  # fmt: skip
EXAMPLES = examples(30)


@pytest.fixture(scope="module")
def sweep(shared: Service) -> Iterator[Callable[..., int]]:
    """Another process that uses the file, and ends the sessions that are idle: how many."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        engine = runner.run(stack.enter_async_context(opened(shared.path, shared.clock)))
        yield lambda idle=DAY: runner.run(end_idle(engine, OPERATOR, idle))
        runner.run(stack.aclose())


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    """A session of the test's own."""
    name: str = request.node.name
    return name


def tell(service: Service, session: str, *said: str | Said, **named: str) -> httpx.Response:
    """The answer to messages, of the user where no role is given."""
    body = [{"role": "user", "content": it} if isinstance(it, str) else it for it in said]
    return service.http.post(f"/sessions/{session}/messages", json={"messages": body}, params=named)


def end(service: Service, session: str, said: list[Said] | None = None) -> dict[str, Any]:
    body = {"messages": said} if said else {}
    answer = service.http.post(f"/sessions/{session}/end", json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def row(service: Service, session: str) -> dict[str, Any]:
    listed = service.http.get("/sessions/recent?limit=1000").json()
    found: dict[str, Any] = next(it for it in listed if it["id"] == session)
    return found


def open_ones(service: Service, sessions: str) -> int:
    """How many sessions whose ids match were told something since their last end."""
    told = "SELECT id FROM transcripts JOIN sessions ON number = session"
    return sum(fnmatchcase(id_, sessions) for (id_,) in rows(service.path, told))


def digest(said: list[Said]) -> Transcript:
    every = [Message(role=it["role"], content=it["content"]) for it in said]
    return transcript(every, lambda text: redacted(text).text)


# The law


USER = [{"role": "user", "content": "a"}]
ASSISTANT = [{"role": "assistant", "content": "b"}]


@requirement("agentops:messages:law", "agentops:messages:last-transcript")
@EXAMPLES
@example(deeds=[("messages", USER), ("end", []), ("silence", [])])
@example(deeds=[("messages", USER * 2), ("end", []), ("end", USER), ("messages", USER)])
@example(deeds=[("messages", USER * 2), ("messages", ASSISTANT), ("end", []), ("messages", USER)])
@given(deeds=st.lists(deed, max_size=7))
def test_an_end_says_what_one_with_all_messages_would(
    shared: Service, sweep: Callable[..., int], deeds: list[tuple[str, list[Said]]]
) -> None:
    number = shared.http.get("/stats").json()["total_sessions"]
    session, told = f"law {number}", list[Said]()
    for what, said in deeds:
        if what == "silence":
            shared.clock.advance(days=1)
            sweep()
            continue
        told = said if what == "end" and said else told + said
        first = digest(told).first
        assume((first + ENDED).find(ENDED) == len(first))  # it is told apart
        if what == "end":
            assert end(shared, session, said)["summary"] == summary(digest(told))
        else:
            assert tell(shared, session, *said).status_code == 204

    assert end(shared, session) == {
        "session_id": session, "summary": summary(digest(told)), "message_count": len(told),
    }  # fmt: skip
    assert row(shared, session)["message_count"] == len(told)
    assert open_ones(shared, session) == 0


def test_what_is_no_summary_of_ours_is_read_as_nothing() -> None:
    counts = "Session: 2 messages (2 user, 0 assistant). "
    for text in (
        "", "We talked.", counts, counts + "Started with: a", "Session: 1 messages",
        "Session: 02 messages (1 user, 0 assistant). Started with: a",
        "Session: ٢ messages (1 user, 0 assistant). Started with: a",
        "Session: 1 messages (1 user, 1 assistant). Started with: a",
        "Session: 0 messages (0 user, 0 assistant). ",
        f"Session: {10**30} messages (0 user, 0 assistant). ",
        "Session: 1 messages (0 user, 0 assistant). Started with: a",
        "Session: 1 messages (1 user, 0 assistant). Started with: " + "a" * 201,
        counts + "Started with: a Ended with: " + "b" * 203,
        f"{counts}Started with: {ENDED * 4000}",
    ):  # fmt: skip
        assert parsed_summary(text) == Transcript(), text


def test_of_several_readings_the_one_with_the_shortest_first_message_is_taken() -> None:
    for first, last, read in (
        ("x" * 300, "y" * 300, ("x" * 200 + "...", "y" * 200 + "...")),
        ("a", f"b{ENDED}c", ("a", f"b{ENDED}c")),
        (f"a{ENDED}b", "c", ("a", f"b{ENDED}c")),
        (f"a{ENDED}b", "y" * 300, (f"a{ENDED}b", "y" * 200 + "...")),
    ):
        said = [{"role": "user", "content": it} for it in (first, last)]
        of = parsed_summary(summary(digest(said)))
        assert (of.first, of.last) == read


# Telling


@requirement("agentops:messages:append")
def test_a_console_sees_a_session_grow_and_its_last_end_until_the_next(
    shared: Service, session: str
) -> None:
    shared.http.post("/sessions", json={"id": session, "project": "demo"})
    answer = tell(shared, session, "hello", {"role": "assistant", "content": "hi"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert "x-redacted" not in answer.headers
    assert (row(shared, session)["message_count"], row(shared, session).get("summary")) == (2, None)

    ended_at, first = shared.clock.now, end(shared, session)
    shared.clock.advance(hours=1)
    tell(shared, session, "more")

    shown = row(shared, session)
    assert shown["message_count"] == 3
    assert shown["summary"] == first["summary"]
    assert shown["ended_at"] == f"{ended_at:%Y-%m-%dT%H:%M:%SZ}"
    assert end(shared, session)["summary"] == (
        "Session: 3 messages (2 user, 1 assistant). Started with: hello Ended with: more"
    )
    assert row(shared, session)["ended_at"] == f"{shared.clock.now:%Y-%m-%dT%H:%M:%SZ}"


@requirement("agentops:messages:unknown")
def test_what_is_told_of_an_unknown_session_opens_it(shared: Service, session: str) -> None:
    tell(shared, f"{session} a", "x", project=" DEMO")
    tell(shared, f"{session} b", "x")
    empty = tell(shared, f"{session} c")
    tell(shared, f"{session} a", "x", project="other")

    shown = [row(shared, f"{session} {name}") for name in "abc"]
    assert [(it["project"], it["message_count"]) for it in shown] == [
        ("demo", 2), ("unknown", 1), ("unknown", 0),
    ]  # fmt: skip
    assert empty.status_code == 204
    assert open_ones(shared, f"{session} ?") == 2


@requirement("agentops:messages:redacted")
def test_secrets_stay_out_of_what_is_told_and_are_counted(shared: Service) -> None:
    session = f"id {SECRET}"
    answers = [tell(shared, session, it) for it in (f"use {SECRET}", f"then {SECRET}", "a")]

    assert [it.headers["x-redacted"] for it in answers[:2]] == ["2", "2"]  # and of the id
    told = rows(shared.path, "SELECT first, last FROM transcripts")
    assert SECRET not in str(told)
    assert row(shared, "id [REDACTED:aws-key-id]")["message_count"] == 3
    assert end(shared, session)["summary"].endswith(
        "Started with: use [REDACTED:aws-key-id] Ended with: a"
    )


@requirement("agentops:messages:faults")
def test_a_message_is_read_as_an_end_reads_it_and_refused_as_there(
    shared: Service, session: str
) -> None:
    lenient = [None, {}, {"role": None, "content": None, "x": 1}, {"role": "user", "content": "\0"}]
    path = f"/sessions/{session}"
    assert shared.http.post(f"{path}/messages", json={"messages": lenient}).status_code == 204
    told = end(shared, session)
    assert told == end(shared, session, lenient)  # type: ignore[arg-type]
    assert told["message_count"] == 4

    wrongs: list[list[object]] = [[5], [{"role": 5}], [{}, {"content": []}], ["x"], [{}, [1]]]
    for wrong in wrongs:
        answers = [shared.http.post(f"{path}/{it}", json={"messages": wrong})
                   for it in ("messages", "end")]  # fmt: skip
        assert [it.status_code for it in answers] == [400, 400]
        assert answers[0].json() == answers[1].json()
    for body, fault in (
        (b"{}", "validation failed: messages is required"),
        (b'{"messages": null}', "validation failed: messages is required"),
        (b'{"messages": {}}', "validation failed: messages must be a list"),
        (b"[]", "invalid JSON: an object is expected."),
    ):
        answer = shared.http.post(f"{path}/messages", content=body)
        assert (answer.status_code, answer.json()) == (400, {"error": fault})
    long = shared.http.post(f"/sessions/{'x' * 501}/messages", json={"messages": []})
    assert long.json() == {"error": "validation failed: id exceeds 500 chars"}
    big = shared.http.post(f"{path}/messages", content=b" " * (1024 * 1024 + 1))
    assert big.status_code == 413
    assert end(shared, session) == told


@requirement("agentops:messages:once")
def test_what_is_told_twice_under_a_key_counts_once(shared: Service, session: str) -> None:
    body = {"messages": [{"role": "user", "content": f"hello {SECRET}"}]}
    path = f"/sessions/{session}"

    def told(what: str, key: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": f"{session}-{key}"} if key else {}
        sent = body if what == "messages" else None
        return shared.http.post(f"{path}/{what}", json=sent, headers=headers)

    first, again, closed = told("messages", "a"), told("messages", "a"), told("end", "b")
    told("messages")
    same = told("end", "b")

    assert (again.status_code, again.headers["x-redacted"]) == (204, first.headers["x-redacted"])
    assert again.headers["idempotent-replayed"] == "true"
    assert closed.json()["message_count"] == 1
    assert same.json() == closed.json()
    assert row(shared, session)["message_count"] == 2


@requirement("agentops:messages:access")
def test_only_a_writer_of_the_project_may_tell(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        admin, reader, other = (
            calling(service, made_key(service.path, role, projects=projects))
            for role, projects in (("admin", ("*",)), ("reader", ("*",)), ("writer", ("other",)))
        )
        with admin, reader, other:
            told = {"messages": [{"role": "user", "content": "x"}]}
            path = "/sessions/s1/messages?project=demo"
            assert admin.post(path, json=told).status_code == 204
            assert reader.post(path, json=told).status_code == 403
            assert other.post(path, json=told).status_code == 403
            assert other.post("/sessions/s1/messages?project=other", json=told).status_code == 403
            assert other.post("/sessions/new/messages", json=told).status_code == 403
            assert other.post("/sessions/own/messages?project=other", json=told).is_success
            listed = admin.get("/sessions/recent").json()

    assert {(it["id"], it["message_count"]) for it in listed} == {("s1", 1), ("own", 1)}


# Silence


@requirement("agentops:messages:idle")
def test_a_session_ends_after_a_day_without_a_word_when_it_was_last_heard(
    shared: Service, sweep: Callable[..., int], session: str
) -> None:
    shared.clock.advance(days=1)
    sweep()
    shared.http.post("/sessions", json={"id": f"{session} silent", "project": "demo"})
    tell(shared, session, "hello")
    shared.clock.advance(hours=1)
    heard_at = shared.clock.now
    tell(shared, session, "bye")

    shared.clock.advance(days=1, microseconds=-1)
    assert sweep() == 0
    assert sweep(timedelta(0)) == 0
    assert "ended_at" not in row(shared, session)

    shared.clock.advance(microseconds=1)
    assert sweep() == 1
    assert sweep() == 0
    shown = row(shared, session)
    assert shown["ended_at"] == f"{heard_at:%Y-%m-%dT%H:%M:%SZ}"
    assert shown["summary"].endswith("Started with: hello Ended with: bye")
    assert "ended_at" not in row(shared, f"{session} silent")
    assert end(shared, session)["summary"] == shown["summary"]


async def test_a_session_that_an_index_alone_knows_is_not_ended_again_and_again() -> None:
    class Damaged:
        async def read(self, *_: object) -> bool:
            return True

        async def write(self, *_: object) -> int:
            await asyncio.sleep(0)
            return 0

    async with asyncio.timeout(30):
        assert await end_idle(cast("Engine", Damaged()), OPERATOR, DAY) == 0


@pytest.mark.slow
def test_however_many_are_idle_all_of_them_end(shared: Service) -> None:
    said = Transcript(messages=1, user=1, first="x", last="x")

    async def work() -> int:
        async with opened(shared.path, shared.clock) as engine:
            shared.clock.advance(days=1)
            await end_idle(engine, OPERATOR, DAY)
            for number in range(2 * AT_ONCE + 1):
                id_ = SessionId(f"many {number}")
                await engine.write(OPERATOR, append_messages, id_, said, None)
            shared.clock.advance(days=1)
            return sum(await asyncio.gather(*(end_idle(engine, OPERATOR, DAY) for _ in range(2))))

    assert asyncio.run(work()) == 2 * AT_ONCE + 1


@pytest.mark.slow
@requirement("agentops:messages:idle")
def test_what_is_idle_ends_in_each_tenant_when_its_database_is_opened_and_with_each_sweep(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock, keys = Clock(), [made_key(path, tenant=tenant) for tenant in ("default", "acme")]

    def summarized(client: httpx.Client) -> list[str]:
        shown = client.get("/context?project=demo").json()["recent_sessions"]
        return [it["summary"].split()[-1] for it in shown]

    for every, name, ended in (("0", "first", []), ("5ms", "second", ["first"])):
        with serving(path, clock=clock, MEMORY_SWEEP_EVERY=every) as service:
            for key in keys:
                with calling(service, key) as client:
                    assert summarized(client) == ended
                    said = {"messages": [{"role": "user", "content": name}]}
                    clock.advance(seconds=1)
                    path_of = f"/sessions/{name}/messages?project=demo"
                    assert client.post(path_of, json=said).is_success
            clock.advance(days=2)
            for key in keys if every != "0" else ():
                with calling(service, key) as client:
                    until(lambda: summarized(client) == ["second", "first"])
    lines = [vars(it) for it in caplog.records if it.message == "idle sessions have ended"]
    assert {(it["tenant"], it["sessions"]) for it in lines} == {("default", 1), ("acme", 1)}


async def test_what_fails_is_tried_again_and_holds_up_no_other_tenant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    told = Transcript(messages=1, user=1, first="x", last="x")
    nobody, somebody = (Caller(tenant=TenantId(it)) for it in ("nobody", "default"))
    engines = partial(SqliteEngine.opened, clock=clock)

    with disk(tmp_path / "disk", size=4 * 1024 * 1024) as folder:
        ballast = folder / "ballast"
        async with TenantsEngine.opened(
            folder / "memory.db", engines, has_key=lambda _: False
        ) as engine:
            await engine.write(somebody, append_messages, SessionId("s1"), told, None)
            clock.now = datetime.min.replace(tzinfo=UTC)  # there is no day before
            await end_all_idle(engine, [nobody, somebody], DAY)
            clock.now = START + DAY
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            await end_all_idle(engine, [nobody, somebody], DAY)
            (going_on,) = await engine.read(somebody, recent_sessions, None, 9, None)
            ballast.unlink()
            await end_all_idle(engine, [nobody, somebody], DAY)
            (ended,) = await engine.read(somebody, recent_sessions, None, 9, None)
    assert (going_on.ended_at, ended.ended_at) == (None, START)
    unforeseen, full = (it for it in caplog.records if it.name == end_all_idle.__module__)
    assert unforeseen.message == full.message == "idle sessions could not be ended; retrying later"
    assert (unforeseen.levelname, full.levelname) == ("ERROR", "WARNING")
    assert (vars(full)["code"], vars(full)["tenant"]) == ("SQLITE_FULL", somebody.tenant)


# Several at once, and crashes


@pytest.mark.slow
def test_what_was_told_through_two_programs_survives_kill_9_and_counts_exactly(path: Path) -> None:
    body = {"messages": [{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}]}
    with served(path) as (program, http), another(path) as other, ThreadPoolExecutor() as pool:
        said = [models.Message(**it) for it in body["messages"]]
        answers = [pool.submit(http.post, "/sessions/s1/messages", json=body) for _ in range(40)]
        told = [
            pool.submit(other.asked, lambda here: here.append_messages("s1", said))
            for _ in range(40)
        ]
        assert {it.result().status_code for it in answers} == {204}
        program.send(signal.SIGKILL)
        program.wait()
        for it in told:
            it.result()

    with serving(path) as service:
        ended = end(service, "s1")

    assert ended["summary"].startswith("Session: 160 messages (80 user, 0 assistant). ")
    assert ended["message_count"] == 160


# What is left of it


@pytest.mark.slow
def test_of_what_was_told_the_summary_alone_is_left(tmp_path: Path) -> None:
    words = [f"{word} word" for word in ("xylographer", "zugzwang", "quokka", "wyvern", "jabber")]
    with serving(tmp_path / "memory.db") as service:
        for word in words:
            tell(service, "s1", word)
        assert held(tmp_path) >= {words[0], words[-1]}
        assert rows(service.path, "SELECT first, last FROM transcripts") == [(words[0], words[-1])]
        end(service, "s1")
        assert rows(service.path, "SELECT * FROM transcripts") == []

    assert held(tmp_path) & set(words) == {words[0], words[-1]}

    with serving(tmp_path / "memory.db") as service:
        tell(service, "s1", *words)
        tell(service, "s2", *words)
        service.save("kept", session_id="s2", project="other")
        until(lambda: "bytes_gone_at" in erased(service, "unknown").json() or is_postgresql())
        assert held(tmp_path) == set()
        assert row(service, "s2")["message_count"] == 0
        assert end(service, "s2")["summary"] == ""


def held(folder: Path) -> set[str]:
    """The texts that end with `word` in any file of the folder, or table that stands for it."""
    files = [it.read_bytes() for it in folder.rglob("*") if it.is_file()]
    every = b"\n".join([*files, *(stored for _, stored in tables(folder))])
    return {it.decode() for it in re.findall(rb"[a-z]{5,} word", every)}


def test_what_was_told_goes_with_its_session_to_another_project(path: Path) -> None:
    projects = partial(Terminal(storage_at(path)).say, "projects")
    with serving(path) as service:
        service.save("one", project="a", session_id="s1")
        service.save("two", project="c", session_id="s2")
        tell(service, "s1", "hello")
        projects("rename", "a", "b")
        tell(service, "s1", "again")
        projects("merge", "b", "c", "--yes")
        told = end(service, "s1")
        assert told["summary"].endswith("Started with: hello Ended with: again")
        assert row(service, "s1")["project"] == "c"


@pytest.mark.slow
def test_a_scan_takes_out_what_was_told_before_and_a_session_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    path, exceptions = tmp_path / "memory.db", tmp_path / "memory.db.redaction"
    exceptions.write_text('{"default": {"allow_kinds": ["aws-key-id"]}}')
    said = [{"role": "user", "content": f"use {SECRET} {'x' * 300}"}] * 3
    more = [{"role": "user", "content": "more"}]
    with serving(path) as service:
        end(service, "ended", said)
        exported = service.http.get("/export").json()
        tell(service, "s1", f"use {SECRET}", "x", f"then {SECRET}")
        tell(service, "s2", f"only {SECRET}")
        heard = rows(path, "SELECT heard_at FROM transcripts")
    exceptions.unlink()
    terminal = Terminal(storage_at(path))

    looked = terminal.run("scan").stdout.splitlines()
    assert terminal.run("scan", "--redact").exit_code == 0

    assert {*looked} >= {
        "session s1 of unknown: aws-key-id 2", "session s2 of unknown: aws-key-id 1",
    }  # fmt: skip
    assert not any(SECRET.encode() in it.read_bytes() for it in tmp_path.rglob("*.db*"))
    assert rows(path, "SELECT heard_at FROM transcripts") == heard
    assert terminal.say("scan") == "no secrets found in texts\n"
    with serving(path) as scanned, serving(tmp_path / "other.db") as other:
        assert end(scanned, "s1")["summary"].endswith(
            "Started with: use [REDACTED:aws-key-id] Ended with: then [REDACTED:aws-key-id]"
        )
        assert other.http.post("/import", json=exported).headers["x-redacted"] == "2"
        for service in (scanned, other):
            assert row(service, "ended")["summary"] == summary(digest(said))
            tell(service, "ended", *more)
            assert end(service, "ended")["summary"] == summary(digest(said + more))


def test_a_secret_that_stands_across_both_messages_of_a_summary_leaves_it() -> None:
    said = [{"role": "user", "content": it} for it in ("open the gate", "to nobody")]
    screen = Redactor(Rules(values=(("password", f"gate{ENDED}to"),)))
    session = Session(
        id=SessionId("s1"), project=Project("demo"), started_at=START, summary=summary(digest(said))
    )

    assert screen.summary(session).summary.endswith(
        "Started with: open the [REDACTED:password] nobody"
    )
    assert screen.count == 1
