"""An agent's memory session in a test, over a real service, and conversations for it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
from hypothesis import strategies as st

from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.runtime import ChatMessage, MemorySession, ToolCall, WorkingMemory

from .asking import over
from .service import Service

TIMEOUT = timedelta(seconds=10)
MAKE = ToolCall(id="1", name="bash", arguments={"command": "make"})
SUMMARY = "Session: {} messages ({} user, {} assistant). Started with: {}"


@dataclass(slots=True)
class Way:
    """The way to a service: open or closed, and perhaps one that loses the first answer to each."""

    service: Service
    is_open: bool = True
    loses_answers: bool = False
    requests: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        key = request.headers.get("idempotency-key")
        is_new = key not in [it.headers.get("idempotency-key") for it in self.requests]
        self.requests.append(request)
        if not self.is_open:
            raise httpx.ConnectError("refused")
        return over(self.service, lost=self.loses_answers and is_new)(request)

    def taken(self, path: str) -> list[httpx.Request]:
        """The requests to a path that ends so."""
        return [request for request in self.requests if request.url.path.endswith(path)]


@pytest.fixture
def way(service: Service) -> Way:
    return Way(service)


def sessions(service: Service) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = service.http.get("/sessions/recent").json()
    return rows


def summary(service: Service) -> object:
    """That of the one session that has any."""
    (told,) = (row["summary"] for row in sessions(service) if "summary" in row)
    return told


@asynccontextmanager
async def agent(
    way: Way, working: WorkingMemory | None = None, **options: Any
) -> AsyncIterator[MemorySession]:
    """A memory session of the project `demo`, which ends."""
    async with client_on(way) as client, session(client, working, **options) as memory:
        yield memory


def client_on(way: Way) -> AsyncMemoryClient:
    transport = httpx.MockTransport(way)
    return AsyncMemoryClient("http://memory.test", transport=transport, retries=0)


def session(
    client: AsyncMemoryClient, working: WorkingMemory | None = None, **options: Any
) -> MemorySession:
    chosen: dict[str, Any] = {"project": "demo", "patience": TIMEOUT} | options
    return MemorySession(client, working, **chosen)


async def one_turn(memory: MemorySession, prompt: str, reply: str = "Yes.") -> str:
    """A turn in which the agent says one thing; what it was reminded of."""
    async with memory.turn(prompt) as remembered:
        memory.working.add(ChatMessage.assistant(reply))
    return remembered


async def settled(memory: MemorySession) -> None:
    """Wait until all that was handed over is told."""
    await until(lambda: not memory.report.unsent)


async def until(is_so: Callable[[], object]) -> None:
    """Let the loop turn until it is so."""
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - nobody would tell of it
            await asyncio.sleep(0)


IDS = st.sampled_from("abcd")  # few, so that they are used again
TEXTS = st.sampled_from(["", "short", "some words more than that", "long " * 40])


def call(id: str, name: str = "Bash", **arguments: object) -> ToolCall:  # noqa: A002
    return ToolCall(id=id, name=name, arguments=arguments)


def calls(*ids: str) -> ChatMessage:
    """An assistant's message that calls a tool under each of these ids."""
    return ChatMessage.assistant(tool_calls=map(call, ids))


def result(id: str) -> ChatMessage:  # noqa: A002
    return ChatMessage.tool(id, "done")


messages = st.one_of(
    st.builds(ChatMessage.system, TEXTS), st.builds(ChatMessage.user, TEXTS),
    st.builds(ChatMessage.assistant, TEXTS), st.builds(ChatMessage.tool, IDS, TEXTS),
    st.builds(ChatMessage.assistant, TEXTS, st.lists(IDS.map(call), min_size=1, max_size=3)),
)  # fmt: skip
conversations = st.lists(messages, max_size=24)
