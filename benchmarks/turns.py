"""`python -m benchmarks.turns`: what a turn of the runtime kit adds to what it asks."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from agentops_memory_client import AsyncMemoryClient
from agentops_memory_client.runtime import ChatMessage, MemorySession

from . import corpus
from .figures import Figure, show
from .measures import times_in_turns
from .plan import Bench, parser, prepared
from .process import running

ROUNDS = 400
WARMING = 50  # rounds before the first that counts
BUDGET = 4_000  # tokens to which a conversation is trimmed
PROJECT = "project-0"

Round = dict[str, Callable[[], object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """A client, and two agents that use it: one keeps nothing, the other a checkpoint."""

    runner: asyncio.Runner
    client: AsyncMemoryClient
    plain: MemorySession
    kept: MemorySession

    @classmethod
    def of(cls, port: int, folder: Path, runner: asyncio.Runner) -> "Agents":
        client = AsyncMemoryClient(f"http://127.0.0.1:{port}")
        plain = MemorySession(client, project=PROJECT)
        kept = MemorySession(client, project=PROJECT, checkpoint=folder / "checkpoint")
        return cls(runner=runner, client=client, plain=plain, kept=kept)

    async def open(self) -> None:
        self.plain.open()
        self.kept.open()

    async def end(self) -> None:
        await self.plain.end()
        await self.kept.end()
        await self.client.aclose()

    def rounds(self, prompts: Iterator[str]) -> Iterator[Round]:
        """The same prompt for each; when a round is over, all is told."""
        for prompt in prompts:
            yield {
                "context": partial(self._run, self._context, prompt),
                "turn": partial(self._run, self._turn, self.plain, prompt),
                "turn with a checkpoint": partial(self._run, self._turn, self.kept, prompt),
            }
            self.runner.run(self._all_told())

    def _run(self, work: Callable[..., object], *given: object) -> None:
        self.runner.run(work(*given))  # type: ignore[arg-type]

    async def _context(self, prompt: str) -> None:
        await self.client.context(project=PROJECT, query=prompt, limit=5)

    async def _turn(self, memory: MemorySession, prompt: str) -> None:
        async with memory.turn(prompt) as remembered:
            memory.working.trim_to_token_budget(BUDGET)
            memory.working.add(ChatMessage.assistant(remembered))

    async def _all_told(self) -> None:
        while self.plain.report.unsent or self.kept.report.unsent:  # noqa: ASYNC110 - none tells
            await asyncio.sleep(0.001)


def main() -> None:
    """Seed, start, take turns, print."""
    with prepared(parser("benchmarks.turns", __doc__).parse_args()) as made:
        show(_figures(made))


def _figures(made: Bench) -> Iterator[Figure]:
    prompts = cycle(corpus.prompts(made.seed + 1, made.plan.reads))
    with running(made.files.of(made.plan.few)) as service, asyncio.Runner() as runner:
        agents = Agents.of(service.port, made.folder, runner)
        runner.run(agents.open())
        rounds = agents.rounds(prompts)
        times_in_turns(islice(rounds, WARMING))
        times = times_in_turns(islice(rounds, ROUNDS))
        runner.run(agents.end())
    bare = times.pop("context")
    for name, turn in times.items():
        yield Figure(
            what=f"a {name} against context() of the client: p50",
            value=turn.p50 / bare.p50,
            beside=f"{turn} against {bare}; {turn.p50 - bare.p50:.2f} ms more",
        )


if __name__ == "__main__":
    main()
