"""An agent's host for a test: the official MCP client, asked without an event loop."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx2
import mcp_types as types
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from .engines import command
from .process import environment
from .service import PLAIN

# With a handshake, as hosts have it; and without, as the protocol has it since 2026-07-28.
BARE = "2026-07-28"
MODES = ("legacy", BARE)
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a tool told the agent."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Agent:
    """One connection of a host."""

    portal: BlockingPortal
    client: Client

    def call(self, tool: str, **arguments: object) -> Told:
        answer = self.portal.call(self.client.call_tool, tool, arguments)
        assert isinstance(answer, types.CallToolResult)
        assert answer.structured_content is None
        return Told(text=_text(answer.content), is_error=answer.is_error)

    def said(self, tool: str, **arguments: object) -> str:
        """What a tool says that does what it should."""
        told = self.call(tool, **arguments)
        assert not told.is_error, told
        return told.text

    def refusal(self, tool: str, **arguments: object) -> str:
        """What a tool says that does not."""
        told = self.call(tool, **arguments)
        assert told.is_error, told
        return told.text

    def tools(self) -> dict[str, types.Tool]:
        return {tool.name: tool for tool in self.portal.call(self.client.list_tools).tools}

    def resource(self, uri: str = "memory://context") -> str:
        read = partial(self.client.read_resource, uri)
        answer = self.portal.call(read)
        assert isinstance(answer, types.ReadResourceResult)
        return "".join(c.text for c in answer.contents if isinstance(c, types.TextResourceContents))

    def prompt(self, name: str = "use-memory") -> str:
        answer = self.portal.call(self.client.get_prompt, name)
        assert isinstance(answer, types.GetPromptResult)
        return _text([message.content for message in answer.messages])


@contextmanager
def agent(url: str, mode: str = "legacy", headers: Mapping[str, str] = NOTHING) -> Iterator[Agent]:
    """An agent that speaks to an address of a service."""
    http = httpx2.AsyncClient(headers=dict(headers), verify=PLAIN, timeout=120)
    client = Client(streamable_http_client(url, http_client=http), mode=mode)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(http),
        portal.wrap_async_context_manager(client) as connected,
    ):
        yield Agent(portal, connected)


@contextmanager
def hosted(
    arguments: Sequence[str], mode: str = "legacy", variables: Mapping[str, str] = NOTHING
) -> Iterator[Agent]:
    """An agent whose host starts `agentops-memory mcp` with these arguments."""
    given, told = command(["mcp", *arguments], variables)
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "agentops_memory", *given], env=dict(environment(told))
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio_client(program), mode=mode)) as connected,
    ):
        yield Agent(portal, connected)


def _text(content: Sequence[Any]) -> str:
    assert all(isinstance(part, types.TextContent) for part in content)
    return "\n".join(part.text for part in content)
