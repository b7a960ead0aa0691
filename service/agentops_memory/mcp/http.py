"""MCP over streamable HTTP: an address for each project, behind the same gate as other protocols.

A connection is identified by an id that its first response assigns and each request repeats. Only
the session that it named is kept, in memory, so connections survive a restart of the service.
"""

import asyncio
import base64
import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from agentops_memory_client.contract.service import MemoryService

from ..errors import Invalid, Refusal
from ..http.bodies import MAX_BODY, SHORT, whole_body
from ..http.gate import current_caller
from ..http.protocol import READ, Operation, Protocol, Refusals
from ..http.query import written
from ..light import dataclass, field
from ..memory.access import Caller, KeyId, Role, TenantId
from ..memory.redactor import MAX_PROJECT
from ..memory.space import Project, project_name
from ..recall.text import clean
from ..settings import Profile
from ..telemetry import annotate, trace_headers
from . import server as m
from .tools import Connection, SessionNames

PREFIX = "/mcp"
PROJECT = "X-Memory-Project"
SESSION = "Mcp-Session-Id"
VERSION, METHOD, NAME = "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"
PARAM_OF_NAME = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
REFUSED = -32000  # JSON-RPC 2.0 §5.1: the first code for a server's own errors
MISMATCH = -32020  # a header contradicts the body (protocol 2026-07-28)
REFUSALS = Refusals()
# HTTP statuses of JSON-RPC errors without a handshake; with one, answers to requests have 200.
STATUS = {-32700: 400, -32600: 400, -32601: 404, -32602: 400, -32020: 400, -32022: 400}
IN_BASE64 = ("=?base64?", "?=")  # prefix and suffix of a header value that is not ASCII

Owner = tuple[TenantId, KeyId | None]  # each owner has its own room for session names


@dataclass(kw_only=True)
class McpOverHttp:
    """The MCP endpoint of a service; a connection is identified by its requests alone."""

    profile: Profile
    service: Callable[[Callable[[], Caller], Mapping[str, str]], MemoryService]  # caller, trace
    clock: Callable[[], datetime]
    names: defaultdict[Owner, SessionNames] = field(
        default_factory=lambda: defaultdict(SessionNames)
    )

    @cached_property
    def _server(self) -> m.MemoryServer:
        return m.MemoryServer(self.profile)

    async def handle(self, request: Request) -> Response:
        """Answer one message of an agent; a new connection gets an id that cannot be guessed."""
        request.state.project = _project(request)
        annotate({"memory.project": request.state.project})
        body = await whole_body(request, MAX_BODY)
        # Checked again: the body may have arrived slowly, and the key may be revoked by now.
        request.state.caller = current_caller(request)
        version = request.headers.get(VERSION)
        has_envelope = version is not None and version not in m.HANDSHAKE
        call, program, status = None, "", STATUS
        try:
            if len(body) < SHORT:
                call = m.request_in(body)
            else:
                call = await asyncio.to_thread(m.request_in, body)  # keeps the event loop free
            if not call.needs_answer:
                return Response(status_code=202)
            if has_envelope:
                program = m.program_in_envelope(call.params)
                _require_headers(request, call)
        except m.Fault as fault:
            return _response(m.error_response(fault, call and call.id), STATUS)
        connection = self._connection(request, call, program)
        if has_envelope:
            # `server/discover` lists only versions with a handshake, so that each connection of a
            # host has its own session. A host that sends envelopes without discovery is served.
            result = self._server.answer_in_envelope(call, connection, m.HANDSHAKE)
        else:
            result, status = self._server.answer(call, connection), {}
        content = await m.response_to(call, result)
        answer = _response(content, status)
        if call.method == "initialize" and "result" in content and SESSION not in request.headers:
            answer.headers[SESSION] = secrets.token_hex(16)
        return answer

    def _connection(self, request: Request, call: m.Request, program: str) -> Connection:
        """Return the connection of an authorized request.

        Without a session id, which protocol 2026-07-28 dropped, all requests of one program for
        one project on one day share a connection.
        """
        meta = call.params.get("_meta")
        traceparent = meta.get("traceparent") if isinstance(meta, dict) else None
        trace = {"traceparent": traceparent} if isinstance(traceparent, str) else trace_headers()
        caller, project = request.state.caller, request.state.project
        id_ = request.headers.get(SESSION)
        # The session differs by key and project, whatever id is sent.
        parts = (caller.tenant, caller.key, project, id_ or f"{program} {self.clock():%Y-%m-%d}")
        return Connection(
            service=self.service(lambda: current_caller(request), trace),
            project=project, profile=self.profile, clock=self.clock, is_lasting=id_ is not None,
            own_session=f"mcp-{sha256(repr(parts).encode()).hexdigest()[:24]}",
            names=self.names[caller.tenant, caller.key],
        )  # fmt: skip

    async def end(self, request: Request) -> Response:
        _project(request)
        return Response(status_code=204)


def _require_headers(request: Request, call: m.Request) -> None:
    """Refuse a request whose headers, by which proxies may route, contradict its body."""
    expected = {VERSION: call.params["_meta"][m.VERSION], METHOD: call.method}
    if (key := PARAM_OF_NAME.get(call.method, "")) in call.params:
        expected[NAME] = call.params[key]
    for name, value in expected.items():
        if [_decoded(it) for it in request.headers.getlist(name)] != [value]:
            raise m.Fault(MISMATCH, f"{name.lower()} header does not match the request's body")


def _decoded(header: str) -> str | None:
    start, end = IN_BASE64
    if not (header.startswith(start) and header.endswith(end)):
        return header
    try:
        return base64.b64decode(header[len(start) : -len(end)], validate=True).decode()
    except ValueError:
        return None


def _response(answer: Mapping[str, Any], status: Mapping[int, int]) -> Response:
    code = answer["error"]["code"] if "error" in answer else 0
    return Response(written(answer), status.get(code, 200), media_type="application/json")


def _project(request: Request) -> Project:
    headers = (
        it.encode("latin-1").decode(errors="replace") for it in request.headers.getlist(PROJECT)
    )
    texts = (request.path_params.get("project", ""), *headers)
    named = {project_name(clean(it).rstrip("/")) for it in texts} - {Project("")}
    if len(named) != 1:
        raise Invalid(
            f"Which project? Use /mcp/PROJECT as the address, or set the header {PROJECT}."
        )
    project = named.pop()
    if len(project) > MAX_PROJECT:
        raise Invalid(f"validation failed: project exceeds {MAX_PROJECT} chars")
    return project


def operations(agents: McpOverHttp) -> tuple[Operation, ...]:
    """Return the routes; each message needs a reader's key, a tool that writes a writer's."""
    return tuple(
        Operation(
            method=method, path=f"{PREFIX}{path}", name=name, summary=summary, handler=handler,
            role=Role.READER, status=status,
        )
        for path in ("/{project:path}", "")
        for method, name, summary, handler, status in (
            ("POST", "mcp", "Answer one message of an agent.", agents.handle, 200),
            ("DELETE", "mcp_end", "End an agent's connection.", agents.end, 204),
        )
    )  # fmt: skip


def refused(refusal: Refusal, _: Scope) -> Response:
    """Return a refusal as a JSON-RPC error: clients display messages of these only."""
    error = {"code": REFUSED, "message": str(refusal)}
    return REFUSALS.response(refusal, written({"jsonrpc": "2.0", "id": None, "error": error}))


# MCP is described by its own `tools/list`, not by OpenAPI.
PROTOCOL = Protocol(
    title="MCP", summary="Memory as tools of agents.", prefix=PREFIX, refused=refused,
    sent=(SESSION, VERSION, METHOD, NAME, PROJECT), read=(*READ, SESSION),
)  # fmt: skip
