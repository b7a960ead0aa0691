"""An agent's memory session tells the service all that is said, and reminds of what is known."""

import asyncio
import json
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory_client.runtime import (
    ChatMessage,
    MemorySession,
    ToolCall,
    ToolHooks,
    WorkingMemory,
)

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


async def test_each_turn_is_told_when_it_is_over_and_the_end_makes_the_summary(
    way: Way, service: Service
) -> None:
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
    assert summary(service) == SUMMARY.format(4, 2, 2, "Deploy it. Ended with: Is it out?")


async def test_what_is_told_is_as_the_platforms_runtime_tells_it(way: Way) -> None:
    call = ToolCall(id="1", name="bash", arguments={"command": "make"})
    async with agent(way) as memory, memory.turn("Make it."):
        memory.working.add(
            ChatMessage.system("You are an agent."),
            ChatMessage.assistant("I will.", [call, replace(call, id="2", name="ls")]),
            ChatMessage.tool("1", "é" * 5_000),
            ChatMessage.tool("2", " \n"),
            ChatMessage.assistant("Made."),
        )
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


async def test_the_first_500_characters_of_a_prompt_are_looked_up(way: Way) -> None:
    async with agent(way, limit=7) as memory:
        await one_turn(memory, "ü" * 501)
    (request,) = way.taken("/context")
    assert dict(request.url.params) == {"project": "demo", "query": "ü" * 500, "limit": "7"}


def test_without_memories_to_be_reminded_of_nothing_is_asked(way: Way, service: Service) -> None:
    service.save("Twelve.")

    async def run() -> str:
        async with agent(way, limit=0) as memory:
            return await one_turn(memory, "How many?")

    assert asyncio.run(run()) == ""
    assert way.taken("/context") == []


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


async def test_an_agent_that_is_cancelled_ends_its_session(way: Way, service: Service) -> None:
    async def work(begun: asyncio.Event) -> None:
        async with agent(way) as memory, memory.turn("Deploy it."):
            begun.set()
            await asyncio.Event().wait()

    begun = asyncio.Event()
    task = asyncio.create_task(work(begun))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert summary(service) == SUMMARY.format(1, 1, 0, "Deploy it.")


@pytest.mark.slow
async def test_a_session_that_has_ended_goes_on_when_it_is_opened_again(
    way: Way, service: Service
) -> None:
    async with client_on(way) as client:
        memory = session(client)
        for prompt in ("First.", "Second."):
            async with memory:
                await one_turn(memory, prompt)
        memory.working.add(ChatMessage.user("Nobody is told this."))
        assert (await memory.end()).ended is not None
        way.is_open = False
        memory.open()
        assert memory.report.ended is None
        assert (await memory.end()).ended is None
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert summary(service) == SUMMARY.format(4, 2, 2, "First. Ended with: Second.")


async def test_many_messages_of_one_turn_fit_into_requests(way: Way, service: Service) -> None:
    async with agent(way) as memory, memory.turn("Talk."):
        for _ in range(100):
            memory.working.add(ChatMessage.assistant("\x01" * 5_000))
    assert summary(service) == SUMMARY.format(101, 1, 100, "Talk.")
    assert len(way.taken("/messages")) == 4


async def test_what_is_said_after_the_last_turn_is_told_at_the_end(
    way: Way, service: Service
) -> None:
    async with agent(way) as memory:
        await one_turn(memory, "First.")
        memory.working.add(ChatMessage.user("Second."))
    assert summary(service) == SUMMARY.format(3, 2, 1, "First. Ended with: Second.")


def test_the_same_said_under_the_same_id_by_another_memory_counts(
    way: Way, service: Service
) -> None:
    async def run() -> None:
        async with agent(way, WorkingMemory(session_id="nightly")) as memory:
            await one_turn(memory, "Run the report.")

    asyncio.run(run())
    asyncio.run(run())
    assert summary(service) == SUMMARY.format(
        4, 2, 2, "Run the report. Ended with: Run the report."
    )


def test_a_cancellation_gets_through_to_the_agent_at_any_step_of_the_end(way: Way) -> None:
    async def is_cancelled_after(steps: int) -> bool:
        async with client_on(way) as client:
            memory = session(client)
            memory.open()
            task = asyncio.create_task(memory.end(within=timedelta(0)))
            for _ in range(steps):
                await asyncio.sleep(0)
            if not task.cancel():
                return False
            with pytest.raises(asyncio.CancelledError):
                await task
            if steps:  # else it never began
                assert memory.report == await memory.end()
            return True

    way.is_open, steps = False, 0
    while asyncio.run(is_cancelled_after(steps)):
        steps += 1
    assert steps > 1


async def test_each_call_is_saved_also_one_with_the_id_or_the_output_of_another(
    way: Way, service: Service
) -> None:
    hooks = ToolHooks.from_yaml("memorySaveRules: [{tool: bash}]")

    async with agent(way, hooks=hooks) as memory:
        for _ in range(2):
            async with memory.turn("Make it."):
                memory.after_tool(MAKE, "made")
                memory.after_tool(replace(MAKE, id="2"), "made")
    (row,) = service.http.get("/observations/recent").json()
    assert row["duplicate_count"] == 4


def test_a_session_that_has_ended_leaves_no_thread(way: Way, tmp_path: Path) -> None:
    async def run() -> MemorySession:
        async with agent(way, checkpoint=tmp_path / "checkpoint") as memory:
            await one_turn(memory, "Deploy it.")
            (writer,) = (it for it in threading.enumerate() if "checkpoint" in it.name)
        await asyncio.to_thread(writer.join, 30)
        assert not writer.is_alive()
        return memory

    assert asyncio.run(run()).report.ended is not None
