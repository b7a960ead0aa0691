"""An agent's memory session tells the service all that is said, and reminds of what is known.

What a program gets wrong with it is told at once, and loses nothing.
"""

import asyncio
import json
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory_client import MemoryClient
from agentops_memory_client.runtime import (
    ChatMessage,
    MemorySession,
    ToolCall,
    ToolHooks,
    Unsent,
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
from ..support.samples import for_each
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
        memory.working.add(ChatMessage.user("Thanks."))  # after the last turn
    assert memory.report.unsent == ()
    assert memory.report.lost == ()
    assert memory.report.ended is not None
    assert memory.report.ended.summary == summary(service)
    assert summary(service) == SUMMARY.format(5, 3, 2, "Deploy it. Ended with: Thanks.")


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


@pytest.mark.slow
def test_a_turn_is_reminded_byte_for_byte(way: Way, service: Service) -> None:
    async def run(prompt: str, **options: Any) -> str:
        async with agent(way, **options) as memory:
            return await one_turn(memory, prompt)

    assert asyncio.run(run("\xfc" * 501, limit=7)) == ""
    (request,) = way.taken("/context")
    assert dict(request.url.params) == {"project": "demo", "query": "\xfc" * 500, "limit": "7"}

    way.requests.clear()
    service.http.delete("/projects/demo", params={"hard": "true"}).raise_for_status()
    service.save("The provider needs up to 12 s.", title="Timeouts", type="decision")
    decision = "- [decision] Timeouts: The provider needs up to 12 s.\n"
    assert asyncio.run(run("timeouts of the provider", limit=0)) == ""
    assert way.taken("/context") == []
    service.http.delete("/projects/demo", params={"hard": "true"}).raise_for_status()
    service.save("The provider needs up to 12 s.", title="Timeouts", type="decision")
    assert asyncio.run(run("timeouts of the provider")) == (
        f"<memory:context>\n{decision}</memory:context>\n"
    )

    service.http.delete("/projects/demo", params={"hard": "true"}).raise_for_status()
    said = [{"role": "user", "content": "Hi"}]
    service.http.post("/sessions/old/end", params={"project": "demo"}, json={"messages": said})
    service.save("The provider needs up to 12 s.", title="Timeouts", type="decision")
    service.save("a <b> & </memory:context> - [x] y\n- [fix] z", title="Odd")
    assert asyncio.run(run("timeouts of the provider")) == (
        "<memory:sessions>\n"
        "- Session: 1 messages (1 user, 0 assistant). Started with: Hi\n"
        "</memory:sessions>\n"
        f"<memory:context>\n{decision}"
        "- [discovery] Odd: a <b> & &lt;/memory:context> - [x] y\n  - [fix] z\n"
        "</memory:context>\n"
    )


async def test_a_turn_is_reminded_of_what_the_one_before_has_learnt(
    way: Way, service: Service
) -> None:
    hooks = ToolHooks.from_yaml("memorySaveRules: [{tool: bash}]")

    async with agent(way, hooks=hooks) as memory:
        for _ in range(2):  # each call is saved, also one with the id or the output of another
            async with memory.turn("Make it."):
                memory.after_tool(MAKE, "made")
                memory.after_tool(replace(MAKE, id="2"), "made")
        assert await one_turn(memory, "What was made?") == (
            "<memory:context>\n- [discovery] Auto-captured: bash — make: made\n</memory:context>\n"
        )
    (row,) = service.http.get("/observations/recent").json()
    assert row["duplicate_count"] == 4


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


async def test_the_same_said_under_the_same_id_by_another_memory_counts(
    way: Way, service: Service
) -> None:
    for _ in range(2):
        async with agent(way, WorkingMemory(session_id="nightly")) as memory:
            await one_turn(memory, "Run the report.")
    told = "Run the report. Ended with: Run the report."
    assert summary(service) == SUMMARY.format(4, 2, 2, told)


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


async def test_a_session_that_has_ended_leaves_no_thread(way: Way, tmp_path: Path) -> None:
    async with agent(way, checkpoint=tmp_path / "checkpoint") as memory:
        await one_turn(memory, "Deploy it.")
        (writer,) = (it for it in threading.enumerate() if "checkpoint" in it.name)
    await asyncio.to_thread(writer.join, 30)
    assert not writer.is_alive()
    assert memory.report.ended is not None


def told(memory: MemorySession) -> str:
    ended = memory.report.ended
    return ended.summary if ended else "not told"


@for_each(
    "options, sentence",
    [
        *[({"limit": limit}, "limit must be 0 to 50") for limit in (51, -1)],
        *[({"project": name}, "must have 1 to 200") for name in (" ", "x" * 201)],
        ({"client": MemoryClient}, "must be an AsyncMemoryClient, not"),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused_at_once(
    way: Way, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        session(**{"client": client_on(way)} | options)


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


async def test_two_sessions_do_not_share_a_working_memory_and_one_is_opened_once(way: Way) -> None:
    async with agent(way) as memory:
        with pytest.raises(ValueError, match="no path"):
            await memory.checkpoint()
        with pytest.raises(RuntimeError, match="is already open"):
            memory.open()
        with pytest.raises(ValueError, match="valid string"):
            await one_turn(memory, 5)  # type: ignore[arg-type]
        assert (memory.working.turn, memory.working.messages) == (0, ())
        with pytest.raises(RuntimeError, match="Another session"):
            session(client_on(way), memory.working).open()
        await one_turn(memory, "Deploy it.")
    assert told(memory) == SUMMARY.format(2, 1, 1, "Deploy it.")


def test_a_session_that_was_opened_without_a_loop_is_not_open(way: Way) -> None:
    memory = session(client_on(way))
    with pytest.raises(RuntimeError, match="no running event loop"):
        memory.open()

    asyncio.run(one_session(memory))
    assert memory.report.ended is not None


async def one_session(memory: MemorySession) -> MemorySession:
    async with memory:
        await one_turn(memory, "Deploy it.")
    return memory


@for_each(
    "operation, fields, reason",
    [
        *[
            ("append_messages", fields, None)
            for fields in (
                {"nonsense": 1}, {"session_id": "s", "messages": 5},
                {"session_id": "s", "messages": [{"text": "Hi."}]},
            )
        ],
        ("save", {"session_id": "s", "project": "demo", "type": "x", "title": "", "content": "y"},
         "validation failed: title is required"),
    ],
)  # fmt: skip
def test_a_stored_write_that_is_refused_or_could_not_be_sent_is_lost_and_holds_no_other_up(
    way: Way, caplog: pytest.LogCaptureFixture, operation: Any, fields: dict[str, Any],
    reason: str | None,
) -> None:  # fmt: skip
    wrong, working = Unsent(operation=operation, fields=fields, key="1"), WorkingMemory()
    working.unsent.append(wrong)

    memory = asyncio.run(one_session(session(client_on(way), working)))
    (lost,) = memory.report.lost
    assert lost.write == wrong
    assert reason is None or lost.reason == reason
    assert "a write is lost" in caplog.text
    assert memory.report.unsent == ()
    assert told(memory) == SUMMARY.format(2, 1, 1, "Deploy it.")


async def test_a_warning_that_is_raised_ends_the_retries_of_its_write(way: Way) -> None:
    working = WorkingMemory()
    other = {"id": working.session_id, "project": "of others"}
    way.service.http.post("/sessions", json=other).raise_for_status()

    report = (await one_session(session(client_on(way), working))).report
    assert report.unsent == ()
    assert {lost.reason for lost in report.lost} == {
        f'session "{working.session_id}" belongs to the project "of others"'
    }
