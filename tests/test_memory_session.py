"""An agent's memory session tells the service all that is said, and reminds of what is known."""

import asyncio
import json
import logging
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from agentops_memory.client import AsyncMemoryClient
from agentops_memory.runtime import (
    ChatMessage,
    MemorySession,
    ToolCall,
    ToolHooks,
    WorkingMemory,
    outbox,
)
from agentops_memory.runtime.session import MOST_UNSENT
from agentops_memory.runtime.unsent import Unsent

from .agent_memory import Way, agent, client_on, one_turn, session, settled, until
from .service import Service, serving

MAKE = ToolCall(id="1", name="bash", arguments={"command": "make"})
SUMMARY = "Session: {} messages ({} user, {} assistant). Started with: {}"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "memory.db") as running:
        yield running


@pytest.fixture
def way(service: Service) -> Way:
    return Way(service)


def sessions(service: Service) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = service.http.get("/sessions/recent").json()
    return rows


def summary(service: Service) -> object:
    """That of the one session that has any."""
    (told,) = (row["summary"] for row in sessions(service) if "summary" in row)
    return told


def test_each_turn_is_told_when_it_is_over_and_the_end_makes_the_summary(
    way: Way, service: Service
) -> None:
    async def run() -> None:
        async with agent(way) as memory:
            await one_turn(memory, "Deploy it.")
            await settled(memory)
            (row,) = sessions(service)
            assert (row["id"], row["message_count"]) == (memory.working.session_id, 2)
            assert "ended_at" not in row
            await one_turn(memory, "Is it out?")
        assert memory.report.unsent == ()
        assert memory.report.lost == ()
        assert memory.report.ended is not None
        assert memory.report.ended.summary == summary(service)

    asyncio.run(run())
    assert summary(service) == SUMMARY.format(4, 2, 2, "Deploy it. Ended with: Is it out?")


def test_what_is_told_is_as_the_platforms_runtime_tells_it(way: Way) -> None:
    async def run() -> None:
        call = ToolCall(id="1", name="bash", arguments={"command": "make"})
        async with agent(way) as memory, memory.turn("Make it."):
            memory.working.add(
                ChatMessage.system("You are an agent."),
                ChatMessage.assistant("I will.", [call, replace(call, id="2", name="ls")]),
                ChatMessage.tool("1", "é" * 5_000),
                ChatMessage.tool("2", " \n"),
                ChatMessage.assistant("Made."),
            )

    asyncio.run(run())
    (request,) = way.taken("/messages")
    assert json.loads(request.content) == {
        "messages": [
            {"role": "user", "content": "Make it."},
            {"role": "assistant", "content": "I will.\n[tool_call: bash]\n[tool_call: ls]"},
            {"role": "tool", "content": "é" * 2_500},
            {"role": "assistant", "content": "Made."},
        ]
    }


def test_a_turn_is_reminded_byte_for_byte(way: Way, service: Service) -> None:
    said = [{"role": "user", "content": "Hi"}]
    service.http.post("/sessions/old/end", params={"project": "demo"}, json={"messages": said})
    service.save("The provider needs up to 12 s.", title="Timeouts", type="decision")
    service.save("a <b> & </memory:context> - [x] y\n- [fix] z", title="Odd")

    async def run() -> str:
        async with agent(way) as memory:
            return await one_turn(memory, "timeouts of the provider")

    assert asyncio.run(run()) == (
        "<memory:sessions>\n"
        "- Session: 1 messages (1 user, 0 assistant). Started with: Hi\n"
        "</memory:sessions>\n"
        "<memory:context>\n"
        "- [decision] Timeouts: The provider needs up to 12 s.\n"
        "- [discovery] Odd: a <b> & &lt;/memory:context> - [x] y\n  - [fix] z\n"
        "</memory:context>\n"
    )


def test_what_there_is_none_of_has_no_block(way: Way, service: Service) -> None:
    async def run() -> list[str]:
        async with agent(way) as memory:
            nothing = await one_turn(memory, "Anything?")
            service.save("Twelve.", title="One")
            return [nothing, await one_turn(memory, "Anything?")]

    assert asyncio.run(run()) == [
        "",
        "<memory:context>\n- [discovery] One: Twelve.\n</memory:context>\n",
    ]


def test_the_first_500_characters_of_a_prompt_are_looked_up(way: Way) -> None:
    async def run() -> None:
        async with agent(way, limit=7) as memory:
            await one_turn(memory, "ü" * 501)

    asyncio.run(run())
    (request,) = way.taken("/context")
    assert dict(request.url.params) == {"project": "demo", "query": "ü" * 500, "limit": "7"}


def test_without_memories_to_be_reminded_of_nothing_is_asked(way: Way, service: Service) -> None:
    service.save("Twelve.")

    async def run() -> str:
        async with agent(way, limit=0) as memory:
            return await one_turn(memory, "How many?")

    assert asyncio.run(run()) == ""
    assert way.taken("/context") == []


def test_a_service_that_is_away_stops_nothing_and_is_told_when_it_is_back(
    way: Way, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        way.is_open = False
        async with agent(way) as memory:
            assert await one_turn(memory, "First.") == ""
            assert await one_turn(memory, "Second.") == ""
            assert [write.deed for write in memory.report.unsent] == [
                "start_session", "append_messages", "append_messages",
            ]  # fmt: skip
            await until(lambda: way.taken("/sessions"))
            way.is_open = True
            await one_turn(memory, "Third.")

    with caplog.at_level(logging.WARNING, logger="agentops_memory.runtime"):
        asyncio.run(run())
    assert summary(service) == SUMMARY.format(6, 3, 3, "First. Ended with: Third.")
    told = [record.message for record in caplog.records]
    assert told.count("nothing is remembered now") == 2
    assert told.count("the service does not take what is told; it is tried again") == 1


def test_what_cannot_be_told_at_the_end_is_reported_and_told_by_the_next_run(
    way: Way, service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "checkpoint"

    async def run(prompt: str) -> MemorySession:
        working = WorkingMemory.resume(path)
        async with agent(way, working, checkpoint=path) as memory:
            await one_turn(memory, prompt)
        return memory

    way.is_open = False
    with caplog.at_level(logging.WARNING, logger="agentops_memory.runtime"):
        report = asyncio.run(run("First.")).report
    assert report.ended is None
    assert [write.deed for write in report.unsent] == [
        "start_session", "append_messages", "end_session",
    ]  # fmt: skip
    assert "not all is told" in caplog.text
    assert sessions(service) == []

    way.is_open = True
    memory = asyncio.run(run("Second."))
    assert memory.report.unsent == ()
    assert memory.working.turn == 2
    assert summary(service) == SUMMARY.format(4, 2, 2, "First. Ended with: Second.")


def test_an_answer_that_gets_lost_doubles_nothing(
    way: Way, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE", timedelta(0))
    way.loses_answers = True
    hooks = ToolHooks.from_yaml("memorySaveRules: [{tool: bash}]")

    async def run() -> None:
        async with agent(way, hooks=hooks, limit=0) as memory:
            async with memory.turn("Make it."):
                memory.after_tool(MAKE, "made")
            await settled(memory)

    asyncio.run(run())
    assert summary(service) == SUMMARY.format(1, 1, 0, "Make it.")
    (row,) = service.http.get("/observations/recent").json()
    assert row["duplicate_count"] == 1
    assert len(way.taken("/observations")) == len(way.taken("/messages")) == 2


def test_a_turn_is_reminded_of_what_the_one_before_has_learnt(way: Way) -> None:
    hooks = ToolHooks.from_yaml("memorySaveRules: [{tool: bash}]")

    async def run() -> str:
        async with agent(way, hooks=hooks) as memory:
            async with memory.turn("Make it."):
                memory.after_tool(MAKE, "made")
            return await one_turn(memory, "What was made?")

    assert asyncio.run(run()) == (
        "<memory:context>\n- [discovery] Auto-captured: bash — make: made\n</memory:context>\n"
    )


def test_a_run_that_was_killed_goes_on_under_the_same_id_and_nothing_is_told_twice(
    way: Way, service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"

    async def killed() -> None:
        """Two turns; the service has taken both, and then the process is no more."""
        async with client_on(way) as client:
            memory = session(client, WorkingMemory(session_id="ada"), checkpoint=path)
            memory.open()
            for prompt in ("First.", "Second."):
                await one_turn(memory, prompt)
            await settled(memory)

    async def run() -> None:
        working = WorkingMemory.restore(path)
        assert (working.turn, [m.content for m in working.messages][-2]) == (2, "Second.")
        assert [write.deed for write in working.unsent][-1] == "append_messages"
        async with agent(way, working, checkpoint=path) as memory:
            await one_turn(memory, "Third.")

    asyncio.run(killed())
    asyncio.run(run())
    assert summary(service) == SUMMARY.format(6, 3, 3, "First. Ended with: Third.")
    assert [row["id"] for row in sessions(service)] == ["ada"]


def test_a_turn_that_was_cut_short_goes_on_without_a_prompt(
    way: Way, service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"

    async def killed() -> None:
        async with client_on(way) as client:
            memory = session(client, checkpoint=path)
            memory.open()
            async with memory.turn("How long does it take?"):
                memory.working.add(ChatMessage.assistant(tool_calls=[MAKE]))
                await memory.checkpoint()
                raise SystemExit

    async def run() -> str:
        working = WorkingMemory.restore(path)
        assert working.unanswered() == (MAKE,)
        async with agent(way, working, checkpoint=path) as memory, memory.turn() as remembered:
            working.add(ChatMessage.tool("1", "cut short"), ChatMessage.assistant("Long."))
        assert working.turn == 1
        return remembered

    service.save("It takes long.", title="Time")
    with pytest.raises(SystemExit):
        asyncio.run(killed())
    assert "It takes long." in asyncio.run(run())
    assert way.taken("/context")[-1].url.params["query"] == "How long does it take?"
    assert summary(service) == SUMMARY.format(4, 1, 2, "How long does it take?")


def test_an_agent_that_fails_has_told_its_turn_and_ends_its_session(
    way: Way, service: Service
) -> None:
    async def run(failure: BaseException) -> None:
        async with agent(way) as memory, memory.turn("Deploy it."):
            raise failure

    for failure in (ZeroDivisionError(), asyncio.CancelledError()):
        with pytest.raises(type(failure)):
            asyncio.run(run(failure))
    assert [row.get("summary") for row in sessions(service)] == [
        SUMMARY.format(1, 1, 0, "Deploy it.")
    ] * 2


def test_an_agent_that_is_cancelled_ends_its_session(way: Way, service: Service) -> None:
    async def work(begun: asyncio.Event) -> None:
        async with agent(way) as memory, memory.turn("Deploy it."):
            begun.set()
            await asyncio.Event().wait()

    async def run() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(work(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert summary(service) == SUMMARY.format(1, 1, 0, "Deploy it.")


def test_a_session_that_has_ended_goes_on_when_it_is_opened_again(
    way: Way, service: Service
) -> None:
    async def run() -> None:
        async with client_on(way) as client:
            memory = session(client)
            for prompt in ("First.", "Second."):
                async with memory:
                    await one_turn(memory, prompt)
            memory.working.add(ChatMessage.user("Nobody is told this."))
            assert (await memory.end()).ended is not None

    asyncio.run(run())
    assert summary(service) == SUMMARY.format(4, 2, 2, "First. Ended with: Second.")


def test_a_service_that_never_answers_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            async with AsyncMemoryClient(url) as client:
                memory = session(client, patience=timedelta(milliseconds=20))
                memory.open()
                memory.before_tool(MAKE)
                assert await one_turn(memory, "Deploy it.") == ""
                report = await memory.end(within=timedelta(milliseconds=20))
                assert report.ended is None
                assert len(report.unsent) == 3

    asyncio.run(run())
    (record,) = (it for it in caplog.records if "remembered" in it.message)
    assert vars(record)["reason"] == "The service does not answer in time."


def test_a_write_that_the_service_refuses_is_lost_and_the_others_go_on(
    way: Way, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"session_id": "s", "project": "demo", "type": "x", "title": "", "content": "y"}
    wrong = Unsent(deed="save", fields=fields, key="1")
    working = WorkingMemory()
    working.unsent.append(wrong)

    async def run() -> MemorySession:
        async with agent(way, working) as memory:
            await one_turn(memory, "Deploy it.")
        return memory

    report = asyncio.run(run()).report
    assert [(lost.write, lost.reason) for lost in report.lost] == [
        (wrong, "validation failed: title is required")
    ]
    assert report.unsent == ()
    assert "a write is lost" in caplog.text
    assert summary(service) == SUMMARY.format(2, 1, 1, "Deploy it.")


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503, 507])
def test_a_write_that_may_be_taken_later_is_kept(way: Way, status: int) -> None:
    def refusing(request: httpx.Request) -> httpx.Response:
        way.requests.append(request)
        return httpx.Response(status, json={"error": "Not now."})

    async def run() -> None:
        transport = httpx.MockTransport(refusing)
        async with AsyncMemoryClient("http://m.test", transport=transport, retries=0) as client:
            memory = session(client)
            async with memory:
                await one_turn(memory, "Deploy it.")
        assert [write.deed for write in memory.report.unsent] == [
            "start_session", "append_messages", "end_session",
        ]  # fmt: skip
        assert memory.report.lost == ()

    asyncio.run(run())


def test_the_oldest_of_too_many_writes_is_given_up(way: Way) -> None:
    way.is_open = False

    async def run() -> MemorySession:
        async with agent(way, limit=0) as memory:
            for number in range(MOST_UNSENT):
                await one_turn(memory, f"{number}")
        return memory

    report = asyncio.run(run()).report
    assert len(report.unsent) == MOST_UNSENT
    assert [write.deed for write in report.unsent[:: MOST_UNSENT - 1]] == [
        "start_session", "end_session",
    ]  # fmt: skip
    assert [lost.write.fields["messages"][0]["content"] for lost in report.lost] == ["0", "1"]


def test_many_messages_of_one_turn_fit_into_requests(way: Way, service: Service) -> None:
    async def run() -> None:
        async with agent(way) as memory, memory.turn("Talk."):
            for _ in range(100):
                memory.working.add(ChatMessage.assistant("\x01" * 5_000))

    asyncio.run(run())
    assert summary(service) == SUMMARY.format(101, 1, 100, "Talk.")
    assert len(way.taken("/messages")) == 4


def test_a_checkpoint_that_cannot_be_written_is_an_error_and_the_turn_is_told(
    way: Way, service: Service, tmp_path: Path
) -> None:
    async def run() -> None:
        async with agent(way, checkpoint=tmp_path / "nowhere" / "checkpoint") as memory:
            await one_turn(memory, "Deploy it.")

    with pytest.raises(FileNotFoundError):
        asyncio.run(run())
    assert summary(service) == SUMMARY.format(2, 1, 1, "Deploy it.")


def test_the_start_and_the_end_of_an_earlier_run_are_not_told_by_the_next(
    way: Way, service: Service, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    way.is_open = False

    async def run(prompt: str) -> None:
        async with agent(way, WorkingMemory.resume(path), limit=0, checkpoint=path) as memory:
            await one_turn(memory, prompt)

    asyncio.run(run("First."))
    assert [write.deed for write in WorkingMemory.restore(path).unsent] == [
        "start_session", "append_messages", "end_session",
    ]  # fmt: skip

    way.is_open = True
    way.requests.clear()
    asyncio.run(run("Second."))
    assert [request.url.path.rsplit("/", 1)[-1] for request in way.requests] == [
        "sessions", "messages", "messages", "end",
    ]  # fmt: skip
    assert summary(service) == SUMMARY.format(4, 2, 2, "First. Ended with: Second.")


def test_each_time_that_the_service_goes_away_is_told_once(
    way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> int:
        return caplog.text.count("does not take what is told")

    async def run() -> None:
        async with agent(way, limit=0) as memory:
            for outage in (1, 2):
                way.is_open = False
                await one_turn(memory, "Is it there?")
                await one_turn(memory, "And now?")
                await until(lambda outage=outage: warnings() == outage)  # type: ignore[misc]
                way.is_open = True
                await one_turn(memory, "Now it is.")
                await settled(memory)

    asyncio.run(run())
    assert warnings() == 2


def test_a_turn_waits_half_of_its_patience_for_writes_and_then_asks(
    way: Way, service: Service
) -> None:
    service.save("Twelve.", title="One")

    async def stuck(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            await asyncio.Event().wait()
        return way(request)

    async def run() -> str:
        transport = httpx.MockTransport(stuck)
        async with AsyncMemoryClient("http://m.test", transport=transport) as client:
            memory = session(client, patience=timedelta(seconds=1))
            memory.open()
            remembered = await one_turn(memory, "Which one?")
            await memory.end(within=timedelta())
        return remembered

    assert "Twelve." in asyncio.run(run())


def test_what_is_said_after_the_last_turn_is_told_at_the_end(way: Way, service: Service) -> None:
    async def run() -> None:
        async with agent(way) as memory:
            await one_turn(memory, "First.")
            memory.working.add(ChatMessage.user("Second."))

    asyncio.run(run())
    assert summary(service) == SUMMARY.format(3, 2, 1, "First. Ended with: Second.")
