"""An agent that uses its memory through the official client of MCP."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anyio.from_thread import start_blocking_portal
from mcp.client.client import Client

Tool = Callable[..., object]
"""Calls a tool by its name, with arguments."""


@contextmanager
def agent(port: int, project: str) -> Iterator[Tool]:
    """What calls the tools of a project, over one connection."""
    client = Client(f"http://127.0.0.1:{port}/mcp/{project}", mode="legacy")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(client) as connected,
    ):

        def call(tool: str, **arguments: object) -> object:
            answer = portal.call(connected.call_tool, tool, arguments)
            if answer.is_error:
                raise SystemExit(f"{tool}: {answer.content}")
            return answer

        yield call
