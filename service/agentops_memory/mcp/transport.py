"""The official SDK's streamable HTTP, one message a request, with nothing kept between them."""

import asyncio
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import Receive, Scope, Send

from ..api.kit.http import MAX_BODY
from .connections import Connections
from .server import Incoming, MemoryServer


class Transport:
    """The SDK's server for the connections of a service."""

    def __init__(self, connections: Connections) -> None:
        server = MemoryServer(connections.profile, connections.of).served()
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
