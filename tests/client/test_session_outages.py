"""A service that is away or refuses stops no agent, and what it did not take is not forgotten."""

import asyncio
import logging
import socket
from datetime import timedelta
from itertools import pairwise

import httpx
import pytest

from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.runtime import ChatMessage, ToolHooks, Unsent, WorkingMemory
from agentops_memory_client.runtime import session as backlog
from agentops_memory_client.runtime.session import MOST_UNSENT

from ..support.agent_memory import (
    MAKE,
    SUMMARY,
    Way,
    agent,
    one_turn,
    session,
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


async def test_a_write_that_the_service_refuses_is_lost_and_the_others_go_on(
    way: Way, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    fields = {"session_id": "s", "project": "demo", "type": "x", "title": "", "content": "y"}
    wrong, working = Unsent(operation="save", fields=fields, key="1"), WorkingMemory()
    working.unsent.append(wrong)

    async with agent(way, working) as memory:
        await one_turn(memory, "Deploy it.")
    assert [(lost.write, lost.reason) for lost in memory.report.lost] == [
        (wrong, "validation failed: title is required")
    ]
    assert memory.report.unsent == ()
    assert "a write is lost" in caplog.text
    assert summary(service) == SUMMARY.format(2, 1, 1, "Deploy it.")


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
