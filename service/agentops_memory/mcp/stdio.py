"""MCP over standard input and output: one agent, one project, one connection."""

import asyncio
import secrets
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Any

from agentops_memory_client.contract.service import MemoryService

from ..http.query import written
from ..settings.parsing import Profile
from . import server as m
from .tools import Connection, SessionNames

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
    await Host(m.MemoryServer(profile, project), connection).serve()


class Host:
    """The program at the other end. Its first request decides how it speaks for good."""

    def __init__(self, server: m.MemoryServer, connection: Connection) -> None:
        self._server = server
        self._connection = connection
        self._has_envelopes: bool | None = None  # unknown before its first request
        self._is_welcome = False
        self._is_gone = False  # and nobody is left to tell
        self._calls = set[asyncio.Task[None]]()
        self._latest: dict[int | str, asyncio.Task[None]] = {}  # by the id, which may come twice
        self._writing = asyncio.Lock()

    async def serve(self) -> None:
        """A host that closes the input may have a save under way: the end comes when it is done."""
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            if self._is_gone:
                return
            if line.strip():
                self._take(line)
        if self._calls:
            await asyncio.wait(self._calls, timeout=LONGEST_CALL)

    def _take(self, line: bytes) -> None:
        try:
            message = m.message_in(line)
        except m.Fault as fault:
            self._start(self._write(m.refused(None, fault)))
            return
        if request := m.request_of(message):
            self._latest[request.id] = call = self._start(self._answer(request))
            call.add_done_callback(partial(self._ended, request.id))
        elif (notification := m.notification_of(message)) is not None:
            self._note(*notification)
        elif not m.is_answer(message):
            invalid = m.Fault(m.INVALID_REQUEST, m.NO_MESSAGE)
            self._start(self._write(m.refused(m.id_of(message), invalid)))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    def _note(self, method: str, params: m.Json) -> None:
        id_ = params.get("requestId")
        cancelled = self._latest.get(id_) if isinstance(id_, int | str) else None
        if method == "notifications/cancelled" and cancelled:
            cancelled.cancel()  # and is not answered

    def _ended(self, id_: int | str, call: asyncio.Task[None]) -> None:
        if self._latest.get(id_) is call:
            del self._latest[id_]

    async def _answer(self, request: m.Request) -> None:
        await self._write(await m.answered(request.id, self._result(request)))

    async def _write(self, answer: m.Json) -> None:
        try:
            async with self._writing:
                await asyncio.to_thread(_write, written(answer) + b"\n")
        except BrokenPipeError:
            self._is_gone = True

    async def _result(self, request: m.Request) -> m.Json:
        is_handshake = request.method == "initialize"
        if self._has_envelopes is None:
            self._has_envelopes = request.has_envelope and not is_handshake
        if self._has_envelopes:
            if is_handshake:
                raise m.unsupported(
                    (request.params or {}).get("protocolVersion"),
                    "connection is serving the 2026-07-28 protocol; the initialize handshake is "
                    "not accepted",
                )
            m.envelope_of(request.params)
            return await self._server.answer_in_envelope(request, self._connection)
        if is_handshake:
            result = self._server.shake_hands(request.params)
            self._is_welcome = True
            return result
        if request.has_envelope:
            raise m.Fault(
                m.INVALID_REQUEST,
                "this connection serves the handshake protocol era; requests carrying the "
                "2026-07-28 envelope are not accepted on it",
            )
        is_known = request.method in self._server.methods and request.method != "ping"
        if is_known and not self._is_welcome:
            raise m.Fault(m.INVALID_PARAMS, "Invalid request parameters", "")
        return await self._server.answer(request, self._connection)


def _write(answer: bytes) -> None:
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
