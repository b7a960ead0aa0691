"""MCP over standard input and output: one agent, one project, one connection."""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self, cast

import anyio
import mcp_types as types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from agentops_memory_client.contract.service import MemoryService

from ..errors import Invalid
from ..http.json_reader import parsed, written
from ..settings.parsing import Profile
from .connection import Connection, SessionNames
from .server import MemoryServer

LONGEST_CALL = 30.0  # seconds: a client's repetitions, and a write that waits in line


async def speak(service: MemoryService, project: str, profile: Profile) -> None:
    """Answer until the input ends and its calls are done, or nobody reads any more.

    Nothing but the protocol is written to the output meanwhile.
    """
    connection = Connection(
        service=service,
        project=project,
        profile=profile,
        own_session=f"mcp-{secrets.token_hex(12)}",
        names=SessionNames(),
        clock=partial(datetime.now, UTC),
    )
    server = MemoryServer(profile, lambda _: connection).served(project)
    calls = Calls()
    given = cast(Any, lines(calls))  # the SDK asks for a file, of which it takes the lines
    try:
        async with stdio_server(given) as (read, write):
            options = server.create_initialization_options()
            await server.run(read, Answers(write, calls), options)
    except* BrokenPipeError:
        pass  # the host is gone: there is nobody to tell


class Calls:
    def __init__(self) -> None:
        self._open: set[object] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    def began(self, id_: object) -> None:
        self._open.add(id_)
        self._none_open.clear()

    def ended(self, id_: object) -> None:
        self._open.discard(id_)
        if not self._open:
            self._none_open.set()

    async def all_ended(self) -> None:
        """Wait until none is open, but no longer than the longest may take."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_CALL):
                await self._none_open.wait()


async def lines(calls: Calls) -> AsyncIterator[str]:
    """The lines of standard input, as any reader of JSON takes them.

    A host that closes it may have a save under way, and the SDK would cancel that:
    the end comes when each call is answered.
    """
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    async for line in anyio.wrap_file(sys.stdin):
        yield _heard(line, calls)
    await calls.all_ended()


class Answers:
    """An output of answers, each of which ends its call."""

    def __init__(self, stream: Any, calls: Calls) -> None:  # the SDK names no type of its streams
        self._stream = stream
        self._calls = calls

    async def send(self, item: SessionMessage, /) -> None:
        await self._stream.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._calls.ended(item.message.id)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _heard(line: str, calls: Calls) -> str:
    try:
        message = parsed(line.encode())
    except Invalid:
        return line  # for the SDK to refuse
    if isinstance(message, dict) and isinstance(message.get("method"), str):
        _note(message, calls)
    return written(message).decode()


def _note(message: dict[str, object], calls: Calls) -> None:
    params = message.get("params")
    if isinstance(message.get("id"), str | int):
        calls.began(message["id"])
    elif message["method"] == "notifications/cancelled" and isinstance(params, dict):
        calls.ended(params.get("requestId"))  # what was cancelled is not answered
