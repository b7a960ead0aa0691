"""An agent that was killed goes on where its checkpoint is, and nothing is told twice."""

import asyncio
import fcntl
import logging
from pathlib import Path

import httpx
import pytest

from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.runtime import ChatMessage, MemorySession, WorkingMemory

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
    way,
)
from ..support.service import Service

__all__ = ["way"]


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
    with (tmp_path / ".checkpoint.new").open("wb") as draft:  # another writer's
        fcntl.flock(draft, fcntl.LOCK_EX)
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
            with pytest.raises(IsADirectoryError):
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
