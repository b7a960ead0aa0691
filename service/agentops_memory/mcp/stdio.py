"""MCP over standard input and output: one agent, one project, one connection."""

import secrets
from typing import Any, cast

from mcp.server.stdio import stdio_server

from agentops_memory_client.contract.service import MemoryService

from ..settings.profile import Profile
from .connection import Connection, SessionNames
from .server import MemoryServer
from .stdio_stream import Answers, Calls, lines


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
