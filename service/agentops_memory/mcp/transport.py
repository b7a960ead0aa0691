"""The official SDK's streamable HTTP, one message a request, with nothing kept between them."""

import asyncio

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from ..api.http import MAX_BODY
from .connections import Connections
from .server import MemoryServer


class Transport:
    """The SDK's server for the connections of a service."""

    def __init__(self, connections: Connections) -> None:
        server = MemoryServer(connections.profile, connections.of).served()
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
