"""The protocol's server: tools, a resource and a prompt over whichever service is behind them."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from agentops_memory_client.contract.errors import MemoryServiceError, Refused, Unreachable

from .. import __version__
from ..http.requests import MAX_BODY
from ..settings.parsing import Profile
from . import arguments as a
from .connection import Connection, Connections
from .texts import guide, instructions
from .tools import Tool, context, offered

log = logging.getLogger(__name__)

Incoming = ServerRequestContext[Any, Any]
Paged = types.PaginatedRequestParams | None

NAME = "agentops-memory"
CONTEXT = types.Resource(
    name="context",
    title="What this project should keep in mind",
    uri="memory://context",
    description="The latest sessions' summaries and the newest memories.",
    mime_type="text/plain",
)
PROMPT = types.Prompt(
    name="use-memory",
    title="Use your memory",
    description="Teaches an agent when to save, when to look, and how to write it down.",
)

MOST_ARGUMENTS = 50  # that are looked at; no tool takes as many
MOST_FAULTS = 10  # that are told

FAILED = "The memory service failed; its log has the reason. Nothing is known of what it did."
DEAD = "Go on without memory for now, and say so; what you wanted to save can be saved later."


class MemoryServer:
    """The handlers of one profile. `connection` tells whose request it is, and of which project."""

    def __init__(self, profile: Profile, connection: Callable[[Incoming], Connection]) -> None:
        self._profile = profile
        self._connection = connection
        self._tools = offered(profile)

    def served(self, project: str = "named by the address") -> "Server[Any]":
        """The server that a transport runs."""
        return Server(
            NAME,
            version=__version__,
            title="AgentOps memory",
            instructions=instructions(self._profile, project),
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_read_resource=self.read_resource,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
        )

    async def list_tools(self, _: Incoming, __: Paged) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

    async def call_tool(
        self, asked: Incoming, given: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """What the tool says. What the agent can mend comes as a result, so that it sees it.

        An argument that is null counts as absent.
        """
        tool = self._tools.get(given.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {given.name[:100]}")
        try:
            few = islice((given.arguments or {}).items(), MOST_ARGUMENTS)
            arguments = tool.takes.model_validate({k: v for k, v in few if v is not None})
        except ValidationError as error:
            return _text(_faults(tool, error), is_error=True)
        try:
            return _text(await tool.run(self._connection(asked), arguments))
        except MemoryServiceError as error:
            return _text(_sentence(error), is_error=True)
        except Exception:  # the boundary: nothing of its inside reaches the agent
            log.exception("a tool failed", extra={"tool": tool.name})
            return _text(FAILED, is_error=True)

    async def list_resources(self, _: Incoming, __: Paged) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[CONTEXT])

    async def read_resource(
        self, asked: Incoming, given: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        if str(given.uri) != CONTEXT.uri:
            raise MCPError(types.INVALID_PARAMS, f"Unknown resource; there is {CONTEXT.uri}.")
        connection = self._connection(asked)
        try:
            text = await context(connection, a.Context())
        except MemoryServiceError as error:
            raise MCPError(types.INTERNAL_ERROR, _sentence(error)) from error
        except Exception as error:  # the boundary, as above
            log.exception("a resource failed")
            raise MCPError(types.INTERNAL_ERROR, FAILED) from error
        contents = types.TextResourceContents(
            uri=CONTEXT.uri, mime_type=CONTEXT.mime_type, text=text
        )
        return types.ReadResourceResult(contents=[contents])

    async def list_prompts(self, _: Incoming, __: Paged) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[PROMPT])

    async def get_prompt(
        self, asked: Incoming, given: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        if given.name != PROMPT.name:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt; there is {PROMPT.name}.")
        text = guide(self._profile, self._connection(asked).project)
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(messages=[message])


class Transport:
    """The SDK's server for the connections of a service."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        server = MemoryServer(connections.profile, self._connection).served()
        _prefer_connections(server)
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=MAX_BODY
        )

    async def host(self, ready: asyncio.Event, end: asyncio.Event) -> None:
        """Be ready to answer, until the end."""
        async with self._manager.run():
            ready.set()
            await end.wait()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request whose connection can be told."""
        await self._manager.handle_request(scope, receive, send)

    def _connection(self, asked: Incoming) -> Connection:
        """The connection of a message, with its own trace, or else that of its HTTP request."""
        request, program = cast(Request, asked.request), asked.session.client_params
        told = (asked.meta or {}).get("traceparent")
        trace = {"traceparent": told} if isinstance(told, str) else request.state.trace
        return self._connections.of(request, program.client_info.name if program else "", trace)


def _prefer_connections(server: "Server[Any]") -> None:
    """Let a client that asks which versions there are choose one with a handshake.

    Only these have connections, each of which is a session of its own. A client
    that speaks a later one without asking is served all the same.
    """

    async def discover(_: Incoming, __: types.RequestParams) -> types.DiscoverResult:
        return types.DiscoverResult(
            supported_versions=list(HANDSHAKE_PROTOCOL_VERSIONS),
            capabilities=server.get_capabilities(),
            instructions=server.instructions,
        )

    server.add_request_handler("server/discover", types.RequestParams, discover)


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=_untitled(tool.takes.model_json_schema()),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.reads,
            destructive_hint=tool.destroys,
            idempotent_hint=tool.reads or tool.repeats,
            open_world_hint=False,
        ),
    )


def _untitled(schema: Any) -> Any:
    """The JSON Schema of arguments, without what only repeats their names."""
    if isinstance(schema, list):
        return [_untitled(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: {key: _untitled(value) for key, value in part.items()}
        if name in ("properties", "$defs")
        else _untitled(part)
        for name, part in schema.items()
        if name != "title"
    }


def _text(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=is_error)


def _faults(tool: Tool, error: ValidationError) -> str:
    """The faults of the arguments, in words, and what the tool takes."""
    every = error.errors(include_url=False, include_input=False, include_context=False)
    faults = [
        f"{'.'.join(map(str, fault['loc']))[:100] or 'the arguments'}: {fault['msg']}"
        for fault in every[:MOST_FAULTS]
    ]
    takes = ", ".join(
        name if field.is_required() else f"{name} (optional)"
        for name, field in tool.takes.model_fields.items()
    )
    return f"{tool.name} was not called: {'; '.join(faults)}. It takes {takes or 'nothing'}."


def _sentence(error: MemoryServiceError) -> str:
    if isinstance(error, Unreachable):
        return f"{error} {DEAD}"
    if isinstance(error, Refused) and error.status in _HINTS:
        return f"{error} {_HINTS[error.status]}"
    return str(error)


_HINTS = {
    401: "Whoever set up this connection must give it a key.",
    403: "Whoever set up this connection must give it a key with the right to do this.",
    429: "Wait some seconds, and call again.",
    500: DEAD,
    503: DEAD,
    507: "Nothing more can be saved until memories are erased or the quota is raised.",
}
