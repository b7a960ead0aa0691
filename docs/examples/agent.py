"""An agent with a memory and without a model: a few rules say what a model would.

    python docs/examples/agent.py CHECKPOINT

Each line of its input is a prompt; `run COMMAND` makes it use its tool. Kill it
whenever you like and start it again: it goes on where it was.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.runtime import (
    ChatMessage,
    MemorySession,
    ToolCall,
    ToolHooks,
    WorkingMemory,
)

HOOKS = ToolHooks.from_file(Path(__file__).with_name("hooks.yaml"))
BUDGET = 4_000  # tokens of a prompt


async def main(checkpoint: Path) -> None:
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    working = WorkingMemory.resume(checkpoint)
    async with (
        AsyncMemoryClient.from_environment() as client,
        MemorySession(
            client, working, project="example", hooks=HOOKS, checkpoint=checkpoint
        ) as memory,
    ):
        print(f"session {working.session_id} goes on after turn {working.turn}", flush=True)
        if working.messages and is_unfinished(working):
            async with memory.turn() as remembered:
                await work(memory, remembered)
        async for prompt in prompts():
            async with memory.turn(prompt) as remembered:
                await work(memory, remembered)
            print(f"turn {working.turn} is over", flush=True)
    report = memory.report
    print(report.ended.summary if report.ended else f"not told: {len(report.unsent)}", flush=True)


async def work(memory: MemorySession, remembered: str) -> None:
    """Ask the model and run its tools, until it has nothing more to do."""
    working = memory.working
    for call in working.unanswered():
        working.add(ChatMessage.tool(call.id, "The agent was started anew; this was cut short."))
    while is_unfinished(working):
        working.trim_to_token_budget(BUDGET)
        said = model(remembered, working.messages, f"{working.turn}.{len(working.messages)}")
        working.add(said)
        print(said.content or f"runs {said.tool_calls[0].arguments}", flush=True)
        for call in said.tool_calls:
            await memory.checkpoint()  # so that the next run knows what was begun
            output = await memory.run_tool(call, partial(shell, call))
            working.add(ChatMessage.tool(call.id, output))


def is_unfinished(working: WorkingMemory) -> bool:
    last = working.messages[-1]
    return last.role != "assistant" or bool(last.tool_calls)


def model(remembered: str, messages: Sequence[ChatMessage], call_id: str) -> ChatMessage:
    """What a model would say, of what it is reminded of and of what was said."""
    last = messages[-1]
    if last.role == "tool":
        return ChatMessage.assistant(f"It says: {last.content}")
    if last.content.startswith("run "):
        command = last.content.removeprefix("run ")
        return ChatMessage.assistant(
            tool_calls=[ToolCall(id=call_id, name="bash", arguments={"command": command})]
        )
    if not remembered:
        return ChatMessage.assistant("Tell me more.")
    return ChatMessage.assistant(f"I remember:\n{remembered.strip()}")


async def shell(call: ToolCall) -> str:
    try:
        process = await asyncio.create_subprocess_shell(
            call.arguments["command"],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as fault:
        return f"error: {fault}"
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
        raise
    return output.decode(errors="replace").strip()


async def prompts() -> AsyncIterator[str]:
    """Each line of the input, be it typed, piped in or in a file; a thread waits for them."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    threading.Thread(target=read, args=(lines, asyncio.get_running_loop()), daemon=True).start()
    while (line := await lines.get()) is not None:
        if prompt := line.strip():
            yield prompt


def read(lines: "asyncio.Queue[str | None]", loop: asyncio.AbstractEventLoop) -> None:
    with (
        suppress(RuntimeError),  # the loop has ended before the input
        open(0, encoding="utf-8", errors="replace", closefd=False) as given,
    ):
        for line in given:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, None)


if __name__ == "__main__":
    with suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(main(Path(sys.argv[1])))
