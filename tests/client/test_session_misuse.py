"""What a program gets wrong with its memory session is told at once, and loses nothing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentops_memory_client import MemoryClient
from agentops_memory_client.runtime import MemorySession, ToolHooks, Unsent, WorkingMemory

from ..support.agent_memory import MAKE, Way, agent, client_on, one_turn, session
from ..support.samples import for_each
from ..support.service import serving

SUMMARY = "Session: 2 messages (1 user, 1 assistant). Started with: Deploy it."


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    with serving(tmp_path / "memory.db") as running:
        yield Way(running)


def summary(memory: MemorySession) -> str:
    ended = memory.report.ended
    return ended.summary if ended else "not told"


async def test_a_session_without_a_path_has_no_checkpoint(way: Way) -> None:
    async with agent(way) as memory:
        with pytest.raises(ValueError, match="no path"):
            await memory.checkpoint()
        with pytest.raises(RuntimeError, match="is already open"):
            memory.open()


@for_each("options", [{"limit": 51}, {"limit": -1}, {"project": " "}, {"project": "x" * 201}])
def test_what_cannot_be_right_is_refused_at_once(way: Way, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"limit must be 0 to 50|must have 1 to 200"):
        session(client_on(way), **options)


@for_each(
    "options",
    [
        {"project": None}, {"working": []}, {"hooks": None}, {"limit": "5"}, {"limit": 2.5},
        {"patience": 2}, {"ages": 1}, {"checkpoint": 7},
    ],
)  # fmt: skip
def test_what_is_of_the_wrong_kind_is_refused_at_once(way: Way, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"must be of the type|PathLike"):
        session(client_on(way), **options)


def test_a_client_that_blocks_is_refused_at_once() -> None:
    with (
        MemoryClient("http://memory.test") as client,
        pytest.raises(TypeError, match="must be of the type AsyncMemoryClient, not MemoryClient"),
    ):
        MemorySession(client, project="demo")  # type: ignore[arg-type]


async def test_a_turn_of_a_session_that_is_not_open_is_refused_and_nothing_begins(way: Way) -> None:
    async with client_on(way) as client:
        memory = session(client)
        with pytest.raises(RuntimeError, match="not open"):
            await one_turn(memory, "Deploy it.")
        with pytest.raises(RuntimeError, match="not open"):
            await memory.tell()
        assert (memory.working.turn, memory.working.messages) == (0, ())
    assert way.requests == []


async def test_hooks_outside_a_session_look_up_nothing_and_keep_what_is_to_be_saved(
    way: Way,
) -> None:
    hooks = ToolHooks.from_yaml("""
memorySaveRules: [{tool: bash}]
contextInjectTools: [{tool: bash, query: from_tool_args}]
""")

    async def made() -> str:
        return "made"

    async with client_on(way) as client:
        memory = session(client, hooks=hooks)
        assert await memory.run_tool(MAKE, made) == "made"
        assert [write.operation for write in memory.report.unsent] == ["save"]
        async with memory:
            pass
    assert (way.taken("/search"), len(way.taken("/observations"))) == ([], 1)


async def test_a_prompt_that_is_no_text_begins_no_turn(way: Way) -> None:
    async with agent(way) as memory:
        with pytest.raises(ValueError, match="must be text"):
            await one_turn(memory, 5)  # type: ignore[arg-type]
        assert (memory.working.turn, memory.working.messages) == (0, ())


async def test_two_sessions_do_not_share_a_working_memory(way: Way) -> None:
    async with agent(way) as memory:
        with pytest.raises(RuntimeError, match="Another session"):
            session(client_on(way), memory.working).open()
        await one_turn(memory, "Deploy it.")
    assert summary(memory) == SUMMARY


def test_a_session_that_was_opened_without_a_loop_is_not_open(way: Way) -> None:
    memory = session(client_on(way))
    with pytest.raises(RuntimeError, match="no running event loop"):
        memory.open()

    async def run() -> None:
        async with memory:
            await one_turn(memory, "Deploy it.")

    asyncio.run(run())
    assert memory.report.ended is not None


@for_each(
    "fields",
    [
        {"nonsense": 1}, {"session_id": 5, "messages": []}, {"session_id": "s", "messages": 5},
        {"session_id": "s", "messages": [{"text": "Hi."}]},
    ],
)  # fmt: skip
def test_a_stored_write_that_no_client_could_send_holds_no_other_up(
    way: Way, fields: dict[str, Any]
) -> None:
    wrong = Unsent(operation="append_messages", fields=fields, key="1")
    working = WorkingMemory()
    working.unsent.append(wrong)

    async def run() -> MemorySession:
        async with agent(way, working) as memory:
            await one_turn(memory, "Deploy it.")
        return memory

    memory = asyncio.run(run())
    report = memory.report
    assert [lost.write for lost in report.lost] == [wrong]
    assert report.unsent == ()
    assert summary(memory) == SUMMARY


def test_a_warning_that_is_raised_ends_the_retries_of_its_write(way: Way) -> None:
    working = WorkingMemory()
    other = {"id": working.session_id, "project": "of others"}
    way.service.http.post("/sessions", json=other).raise_for_status()

    async def run() -> MemorySession:
        async with agent(way, working) as memory:
            await one_turn(memory, "Deploy it.")
        return memory

    report = asyncio.run(run()).report
    assert report.unsent == ()
    assert {lost.reason for lost in report.lost} == {
        f'session "{working.session_id}" belongs to the project "of others"'
    }
