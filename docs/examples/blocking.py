"""A loop without asyncio: the session runs on a thread of its own, by anyio."""

from anyio.from_thread import start_blocking_portal

from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.runtime import ChatMessage, MemorySession, WorkingMemory

working = WorkingMemory()
with (
    start_blocking_portal() as portal,
    portal.wrap_async_context_manager(AsyncMemoryClient.from_environment()) as client,
    portal.wrap_async_context_manager(MemorySession(client, working, project="shop")) as memory,
):
    for prompt in ("How long does a payment take?",):
        with portal.wrap_async_context_manager(memory.turn(prompt)) as remembered:
            print(remembered)
            working.add(ChatMessage.assistant("Twelve seconds."))
print(memory.report.ended)
