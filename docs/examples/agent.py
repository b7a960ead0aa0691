"""An agent with a memory and without a model: a few rules say what a model would.

    python docs/examples/agent.py CHECKPOINT

Each line of its input is a prompt; `run COMMAND` makes it use its tool. Kill it
whenever you like and start it again: it goes on where it was.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from agentops_memory.client import AsyncMemoryClient
from agentops_memory.runtime import ChatMessage, MemorySession, ToolCall, ToolHooks, WorkingMemory

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


def model(remembered: str, messages: tuple[ChatMessage, ...], call_id: str) -> ChatMessage:
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
    process = await asyncio.create_subprocess_shell(
        call.arguments["command"],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output.decode(errors="replace").strip()


async def prompts() -> AsyncIterator[str]:
    """Each line that is typed or piped in."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        if prompt := line.decode(errors="replace").strip():
            yield prompt


if __name__ == "__main__":
    with suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(main(Path(sys.argv[1])))
