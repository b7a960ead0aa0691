"""MCP over streamable HTTP: a project's address, behind the same gate as everything else.

Nothing is kept of a connection but the session that it named, so a restart of the
service cuts none: a connection is known by the id that it was given at its start
and sends with each request.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from agentops_memory_client.contract.extras import SERVER, requirements_command

from ..errors import Invalid, Refusal
from ..http.endpoint import current_caller
from ..http.json_reader import parsed, written
from ..http.protocol import READ, NoPath, Operation, Protocol, Refusals
from ..http.requests import MAX_BODY, SHORT, whole_body
from ..memory.model.access import Role
from ..memory.model.space import Project, project_name
from ..memory.redactor import MAX_PROJECT
from ..recall.text.normalization import clean
from ..telemetry import annotate
from .connection import SESSION, Connections

if TYPE_CHECKING:
    from .server import Transport

PREFIX = "/mcp"
PROJECT = "X-Memory-Project"
REFUSED = -32000  # of JSON-RPC: an error of the server's own
REFUSALS = Refusals()
NO_MCP = "This service does not speak MCP: its environment needs {}, and a new start."

_FORMATS = {b"accept": b"application/json", b"content-type": b"application/json"}
_TRACE = TraceContextTextMapPropagator()


class McpOverHttp:
    """The handlers of /mcp. What speaks the protocol is loaded with the first request: it
    takes a third of a second and 30 MiB, which a service without agents is spared."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._starting: asyncio.Task[Transport] | None = None
        self._end = asyncio.Event()
        self._hosting: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["McpOverHttp"]:
        try:
            yield self
        finally:
            self._end.set()
            if self._hosting is not None:
                await self._hosting

    async def ask(self, request: Request) -> Response:
        """One message of an agent; what the SDK answers, with an id for a new connection."""
        request.state.project = _project(request)
        annotate({"memory.project": request.state.project})
        request.state.trace = {}
        _TRACE.inject(request.state.trace)
        message, body = await _message(request)
        # Again: the body may have come slowly, and the key may be gone.
        request.state.caller = current_caller(request)
        transport = await self._transport()
        is_new = SESSION not in request.headers and message.get("method") == "initialize"
        relayed = _Relayed()
        send = _naming(relayed.send) if is_new else relayed.send
        await transport.answer(_in_json(request.scope), _again(body, request.receive), send)
        return relayed

    async def end(self, request: Request) -> Response:
        _project(request)
        return Response(status_code=204)

    async def _transport(self) -> "Transport":
        if self._starting is None or _has_failed(self._starting):
            self._starting = asyncio.create_task(self._started())
        return await asyncio.shield(self._starting)

    async def _started(self) -> "Transport":
        if find_spec("mcp") is None:
            raise _no_mcp()
        try:
            transport = await asyncio.to_thread(_loaded, self._connections)
        except ImportError as error:  # an older one, in which much has another place
            raise _no_mcp() from error
        ready = asyncio.Event()
        self._hosting = asyncio.create_task(transport.host(ready, self._end))
        await ready.wait()
        return transport


class _Relayed(Response):
    """What another application answers, in one piece."""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status_code = message["status"]
            self.raw_headers = list(message.get("headers", ()))
        else:
            self.body += message.get("body", b"")


def _no_mcp() -> NoPath:
    # Whoever asks may be on another machine, which no folder of this one is to be named to.
    return NoPath(NO_MCP.format(requirements_command(SERVER, "mcp")))


async def _message(request: Request) -> tuple[dict[str, object], bytes]:
    body = await whole_body(request, MAX_BODY)
    if len(body) < SHORT:
        return _read(body)
    return await asyncio.to_thread(_read, body)  # others are served meanwhile


def _read(body: bytes) -> tuple[dict[str, object], bytes]:
    message = parsed(body)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Invalid("The body must be one message of JSON-RPC 2.0, as MCP has it.")
    return message, written(message)


def _has_failed(task: "asyncio.Task[Transport]") -> bool:
    """Whether to try again: a file that could not be opened then may be by now."""
    return task.done() and (task.cancelled() or task.exception() is not None)


def _loaded(connections: Connections) -> "Transport":
    # Not at the top, as said above.
    from .server import Transport  # noqa: PLC0415

    return Transport(connections)


def _project(request: Request) -> Project:
    in_path = clean(request.path_params.get("project", "")).rstrip("/")
    named = {project_name(_as_utf8(value)) for value in request.headers.getlist(PROJECT)}
    named |= {project_name(in_path)}
    named.discard(Project(""))
    if len(named) != 1:
        raise Invalid(
            f"Which project? Name one: /mcp/PROJECT as the address, or the header {PROJECT}."
        )
    project = named.pop()
    if len(project) > MAX_PROJECT:
        raise Invalid(f"validation failed: project exceeds {MAX_PROJECT} chars")
    return project


def _as_utf8(header: str) -> str:
    """A header as it was meant: what is no UTF-8 stays as it is read, as Latin-1."""
    try:
        return clean(header.encode("latin-1").decode("utf-8"))
    except UnicodeDecodeError:
        return clean(header)


def _naming(send: Send) -> Send:
    """A new connection gets an id that cannot be guessed."""

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            header = (SESSION.lower().encode(), secrets.token_hex(16).encode())
            message["headers"] = [*message.get("headers", ()), header]
        await send(message)

    return named


def _in_json(scope: Scope) -> Scope:
    """The request as one in JSON that takes JSON, whatever it says: `curl -d` says neither."""
    said = [header for header in scope["headers"] if header[0] not in _FORMATS]
    return {**scope, "headers": [*said, *_FORMATS.items()]}


def _again(body: bytes, receive: Receive) -> Receive:
    is_read = False

    async def received() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return received


def operations(agents: McpOverHttp) -> tuple[Operation, ...]:
    """Every message needs a reader's key; a tool that changes something needs a writer's."""
    return tuple(
        Operation(
            method=method, path=f"{PREFIX}{path}", name=name, summary=summary, handler=handler,
            role=Role.READER, status=status,
        )
        for path in ("/{project:path}", "")
        for method, name, summary, handler, status in (
            ("POST", "mcp", "One message of an agent.", agents.ask, 200),
            ("DELETE", "mcp_end", "The end of an agent's connection.", agents.end, 204),
        )
    )  # fmt: skip


def refused(refusal: Refusal) -> Response:
    """A refusal as an error of JSON-RPC: no client tells another's sentence."""
    error = {"code": REFUSED, "message": str(refusal)}
    content = {"jsonrpc": "2.0", "id": None, "error": error}
    return JSONResponse(content, REFUSALS.status(refusal.code), REFUSALS.headers_of(refusal))


# MCP is described by itself (tools/list) and not by OpenAPI.
PROTOCOL = Protocol(
    title="MCP",
    summary="Memory as tools of agents.",
    prefix=PREFIX,
    refused=refused,
    sent=(SESSION, "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", PROJECT),
    read=(*READ, SESSION),
)
