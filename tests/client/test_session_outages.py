"""A service that is away or an agent that is killed loses nothing, and nothing is told twice."""

import asyncio
import logging
import socket
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.runtime import (
    ChatMessage,
    MemorySession,
    ToolHooks,
    WorkingMemory,
    session as backlog,
)
from agentops_memory_client.runtime.session import MOST_UNSENT

from ..support.agent_memory import (
    MAKE,
    SUMMARY,
    Way,
    agent,
    client_on,
    one_turn,
    session,
    sessions,
    settled,
    summary,
    until,
    way,
)
from ..support.samples import for_each
from ..support.service import Service

__all__ = ["way"]


async def test_a_service_that_is_away_stops_nothing_and_is_told_when_it_is_back(
    way: Way, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="agentops_memory.runtime"):
        way.is_open = False
        async with agent(way) as memory:
            assert await one_turn(memory, "First.") == ""
            assert await one_turn(memory, "Second.") == ""
            assert [write.operation for write in memory.report.unsent] == [
                "start_session", "append_messages", "append_messages",
            ]  # fmt: skip
            await until(lambda: way.taken("/sessions"))
            way.is_open = True
            await one_turn(memory, "Third.")
    assert summary(service) == SUMMARY.format(6, 3, 3, "First. Ended with: Third.")
    told = [record.message for record in caplog.records]
    assert told.count("no memories for this turn") == 2
    assert told.count("the service does not accept writes; retrying") == 1


async def test_an_answer_that_gets_lost_doubles_nothing(
    way: Way, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "FIRST_PAUSE", timedelta(0))
    way.loses_answers = True
    hooks = ToolHooks.from_yaml("memorySaveRules: [{tool: bash}]")

    async with agent(way, hooks=hooks, limit=0) as memory:
        async with memory.turn("Make it."):
            memory.after_tool(MAKE, "made")
        await settled(memory)
    assert summary(service) == SUMMARY.format(1, 1, 0, "Make it.")
    (row,) = service.http.get("/observations/recent").json()
    assert row["duplicate_count"] == 1
    assert len(way.taken("/observations")) == len(way.taken("/messages")) == 2


async def test_a_service_that_never_answers_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with AsyncMemoryClient(url, timeout=timedelta(minutes=10)) as client:
            memory = session(client, patience=timedelta(milliseconds=20))
            memory.open()
            memory.before_tool(MAKE)
            assert await one_turn(memory, "Deploy it.") == ""
            async with asyncio.timeout(60):  # the client itself would wait for minutes
                report = await memory.end(within=timedelta(milliseconds=20))
            assert report.ended is None
            assert len(report.unsent) == 3
    (record,) = (it for it in caplog.records if "no memories" in it.message)
    assert vars(record)["reason"] == "The service did not answer in time."


@for_each("status", [400, 401, 403, 404, 408, 409, 413, 429, 500, 503, 507])
def test_a_write_that_may_be_taken_later_is_kept_and_one_refused_for_what_it_is_is_lost(
    status: int,
) -> None:
    writes = ["start_session", "append_messages", "end_session"]

    async def run() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(status, json={"error": "No."}))
        async with AsyncMemoryClient("http://m.test", transport=transport, retries=0) as client:
            memory = session(client)
            async with memory:
                await one_turn(memory, "Deploy it.")
        is_lost = status in (400, 409, 413)
        unsent = [write.operation for write in memory.report.unsent]
        lost = [lost.reason for lost in memory.report.lost]
        assert (unsent, lost) == (([], ["No."] * 3) if is_lost else (writes, []))

    asyncio.run(run())


async def test_the_oldest_of_too_many_writes_is_given_up(way: Way) -> None:
    way.is_open = False
    async with agent(way, limit=0) as memory:
        for number in range(MOST_UNSENT):
            await one_turn(memory, f"{number}")
    report = memory.report
    assert len(report.unsent) == MOST_UNSENT
    assert [write.operation for write in report.unsent[:: MOST_UNSENT - 1]] == [
        "start_session", "end_session",
    ]  # fmt: skip
    assert [lost.write.fields["messages"][0]["content"] for lost in report.lost] == ["0", "1"]


async def test_the_longer_the_service_is_away_the_longer_are_the_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = 0.004  # seconds
    monkeypatch.setattr(backlog, "FIRST_PAUSE", timedelta(seconds=first))
    tried: list[float] = []

    def away(_: httpx.Request) -> httpx.Response:
        tried.append(asyncio.get_running_loop().time())
        return httpx.Response(503)

    transport = httpx.MockTransport(away)
    async with AsyncMemoryClient("http://m.test", transport=transport, retries=0) as client:
        memory = session(client)
        memory.open()
        await until(lambda: len(tried) == 5)
        await memory.end(within=timedelta(0))
    pauses = [later - before for before, later in pairwise(tried[:5])]
    assert all(pause > 0.9 * first * 2**n for n, pause in enumerate(pauses))


async def test_however_long_the_service_was_away_it_is_told(
    way: Way, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "LONGEST_PAUSE", timedelta(0))
    way.is_open = False

    async with agent(way, limit=0) as memory:
        await one_turn(memory, "Is it there?")
        await until(lambda: len(way.requests) > 60)  # with pauses, half an hour
        way.is_open = True
        await settled(memory)
    assert summary(service) == SUMMARY.format(2, 1, 1, "Is it there?")


def stuck_client(way: Way, path: str) -> AsyncMemoryClient:
    """A client whose requests to a path that ends so are never answered."""

    async def stuck(request: httpx.Request) -> httpx.Response:
        if path in (request.method, request.url.path):
            way.requests.append(request)
            await asyncio.Event().wait()
        return way(request)

    return AsyncMemoryClient("http://m.test", transport=httpx.MockTransport(stuck))


@pytest.mark.slow
async def test_a_turn_waits_half_of_its_patience_for_writes_and_then_asks(
    way: Way, service: Service
) -> None:
    service.save("Twelve.", title="One")
    async with stuck_client(way, "POST") as client:
        memory = session(client, patience=timedelta(seconds=2))
        memory.open()
        assert "Twelve." in await one_turn(memory, "Which one?")
        await memory.end(within=timedelta())


async def test_an_end_waits_for_nothing_that_a_hook_looks_up(way: Way) -> None:
    hooks = ToolHooks.from_yaml("contextInjectTools: [{tool: bash, query: from_tool_args}]")
    async with stuck_client(way, "/search") as client:
        memory = session(client, hooks=hooks, patience=timedelta(days=1))
        memory.open()
        memory.before_tool(MAKE)
        await until(lambda: way.taken("/search"))
        async with asyncio.timeout(30):
            assert (await memory.end()).ended is not None


async def test_what_waits_for_its_next_attempt_goes_before_memories_are_read(
    way: Way, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "FIRST_PAUSE", timedelta(days=1))
    monkeypatch.setattr(backlog, "LONGEST_PAUSE", timedelta(days=1))

    with caplog.at_level(logging.WARNING, logger="agentops_memory.runtime"):
        async with agent(way) as memory:
            for prompt in ("First.", "Second."):
                way.is_open = False
                await one_turn(memory, prompt)
                await until(lambda: way.requests[-1].url.path != "/context")
                way.is_open = True
                await memory.context("And now?")
                assert memory.report.unsent == ()
    told = [record.message for record in caplog.records]
    assert told.count("the service does not accept writes; retrying") == 2


@pytest.mark.slow
async def test_of_a_turn_that_is_too_much_what_is_given_up_is_not_sent(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentops_memory_client.runtime.session.BATCH", 1)
    monkeypatch.setattr("agentops_memory_client.runtime.session.MOST_UNSENT", 20)
    way.is_open = False
    async with agent(way, limit=0) as memory:
        memory.working.add(*(ChatMessage.user(f"{number}") for number in range(30)))
        await memory.tell()
        assert len(memory.report.lost) == 11
        way.is_open = True
    assert memory.report.ended is not None
    assert memory.report.ended.message_count == 30 - len(memory.report.lost)


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
    assert [write.operation for write in report.unsent] == [
        "start_session", "append_messages", "end_session",
    ]  # fmt: skip
    assert "not all messages were recorded" in caplog.text
    assert sessions(service) == []

    way.is_open = True
    way.requests.clear()
    memory = asyncio.run(run("Second."))
    # The start and the end of the earlier run are not told.
    assert [it.url.path.rsplit("/", 1)[-1] for it in way.requests if it.method == "POST"] == [
        "sessions", "messages", "messages", "end",
    ]  # fmt: skip
    assert memory.report.unsent == ()
    assert WorkingMemory.restore(path).unsent == []
    assert memory.working.turn == 2
    assert summary(service) == SUMMARY.format(4, 2, 2, "First. Ended with: Second.")


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

    async def run(working: WorkingMemory) -> None:
        async with agent(way, working, checkpoint=path) as memory:
            await one_turn(memory, "Third.")

    asyncio.run(killed())
    working = WorkingMemory.restore(path)
    assert (working.turn, working.messages[-2].content) == (2, "Second.")
    assert working.unsent[-1].operation == "append_messages"
    asyncio.run(run(working))
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
            await one_turn(memory, "Hello.")
            async with memory.turn("How long does it take?"):
                memory.working.add(ChatMessage.assistant(tool_calls=[MAKE]))
                await memory.checkpoint()
                raise SystemExit

    async def run() -> str:
        working = WorkingMemory.restore(path)
        assert working.unanswered() == (MAKE,)
        async with agent(way, working, checkpoint=path) as memory, memory.turn() as remembered:
            working.add(ChatMessage.tool("1", "cut short"), ChatMessage.assistant("Long."))
        assert working.turn == 2
        return remembered

    service.save("It takes long.", title="Time")
    with pytest.raises(SystemExit):
        asyncio.run(killed())
    assert "It takes long." in asyncio.run(run())
    assert way.taken("/context")[-1].url.params["query"] == "How long does it take?"
    told = "Hello. Ended with: How long does it take?"
    assert summary(service) == SUMMARY.format(6, 2, 3, told)


async def test_a_turn_is_in_the_checkpoint_before_it_is_sent(way: Way, tmp_path: Path) -> None:
    path, stored = tmp_path / "checkpoint", []

    def sent(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/messages"):
            kept = {write.key for write in WorkingMemory.resume(path).unsent}
            stored.append(request.headers["idempotency-key"] in kept)
        return way(request)

    transport = httpx.MockTransport(sent)
    async with AsyncMemoryClient("http://m.test", transport=transport) as client:
        memory = session(client, limit=0, checkpoint=path)
        async with memory:
            for prompt in ("First.", "Second."):
                await one_turn(memory, prompt)
                await settled(memory)
    assert stored == [True, True]


@pytest.mark.slow
async def test_checkpoints_are_each_of_their_moment_and_written_in_their_order(
    way: Way, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"

    memory = session(client_on(way), checkpoint=path)
    writing = []
    for memory.working.turn in range(1, 9):
        writing.append(asyncio.create_task(memory.checkpoint()))
        await asyncio.sleep(0)
    memory.working.turn = 99
    await asyncio.gather(*writing)
    assert WorkingMemory.restore(path).turn == 8


@pytest.mark.slow
@pytest.mark.parametrize(("goes_on_with", "count"), [("Second.", 3), ("Another.", 4)])
def test_what_was_told_without_a_checkpoint_counts_once_and_hides_nothing_that_is_told_instead(
    way: Way, service: Service, tmp_path: Path, goes_on_with: str, count: int
) -> None:
    path, kept = tmp_path / "checkpoint", tmp_path / "kept"

    async def killed() -> None:
        """The last checkpoint is from the middle of the turn: then a folder is in its place."""
        async with client_on(way) as client:
            memory = session(client, checkpoint=path)
            memory.open()
            await one_turn(memory, "First.")
            await memory.checkpoint()
            path.rename(kept)
            path.mkdir()
            memory.working.add(ChatMessage.user("Second."))
            with pytest.raises(OSError, match="Not a regular file"):
                await memory.tell()
            await settled(memory)

    async def run() -> None:
        async with agent(way, WorkingMemory.restore(kept)) as memory:
            memory.working.add(ChatMessage.user(goes_on_with))

    asyncio.run(killed())
    asyncio.run(run())
    user, told = count - 1, f"First. Ended with: {goes_on_with}"
    assert summary(service) == SUMMARY.format(count, user, 1, told)


def test_a_checkpoint_that_cannot_be_written_is_an_error_that_hides_none_of_the_agent(
    way: Way, service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(failure: BaseException | None) -> None:
        path = tmp_path / "nowhere" / "checkpoint"
        async with agent(way, checkpoint=path) as memory, memory.turn("Deploy it."):
            if failure:
                raise failure

    for failure in (ZeroDivisionError(), asyncio.CancelledError()):
        with pytest.raises(type(failure)):
            asyncio.run(run(failure))
    assert [it.message for it in caplog.records].count("the checkpoint could not be written") == 4
    with pytest.raises(FileNotFoundError):
        asyncio.run(run(None))
    told = SUMMARY.format(1, 1, 0, "Deploy it.")
    assert [row.get("summary") for row in sessions(service)] == [told] * 3
