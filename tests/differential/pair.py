"""Two services that are asked the same, and where their answers differ."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from agentops_memory.operations.files.seal import SealFile

from ..support.engines import DATABASE_URL
from ..support.process import until
from ..support.service import Clock
from .side import Side
from .steps import NOTHING, Answer, Headers, Step

# Sweeps are not timed alike, and no search is cut short.
VARIABLES = {
    "MEMORY_TOOLS": "all", "MEMORY_SWEEP_EVERY": "0", "MEMORY_RECALL_LIMIT": "60s",
    "MEMORY_KEEP_REVISIONS": "5", "MEMORY_EPISODIC_CAPACITY": "12", "MEMORY_WORKING_CAPACITY": "20",
    "MEMORY_REVIEW_AFTER": "config=7d,decision=30d",
}  # fmt: skip


@contextmanager
def paired(folder: Path, url: str | None = None, **others: str) -> "Iterator[Pair]":
    """Two new services on files, the second in the database at the URL if there is one.

    The second may have other variables.
    """
    seal = folder / "seal"
    SealFile(seal, Clock()).rotate(lambda _: None)
    both = VARIABLES | {"MEMORY_SEAL_FILE": str(seal)}
    at = {} if url is None else {DATABASE_URL: url}
    with ExitStack() as stack:
        one = Side(folder / "one.db", both)
        other = Side(folder / "other.db", both | at | others, url)
        for side in (one, other):
            side.start()
            stack.callback(side.stop)
        yield Pair(one, other)


@dataclass(frozen=True, slots=True)
class Difference:
    """One request that was answered in two ways."""

    step: Step
    one: Answer
    other: Answer

    def __str__(self) -> str:
        answers = [f"  {it.status} {it.text}" for it in (self.one, self.other)]
        lines = [str(self.step), *answers]
        if self.one.headers != self.other.headers:
            lines.append(f"  {set(self.one.headers) ^ set(self.other.headers)}")
        return "\n".join(lines)


class Pair:
    """Two services; what was done, and every answer that was not the same in both."""

    def __init__(self, one: Side, other: Side) -> None:
        self.sides = (one, other)
        self.steps: list[Step] = []
        self.differences: list[Difference] = []
        self.statuses: list[int] = []
        self._numbers = count(1)

    def ask(
        self, method: str, path: str, body: object = None, headers: Headers | None = None
    ) -> Answer:
        """The answer of the first; a body that is no text is sent as JSON."""
        text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
        return self.do(method=method, path=path, body=text, headers=headers or {})

    def do(self, **step: Any) -> Answer:
        """Do a new step."""
        return self.play(Step(number=next(self._numbers), **step))

    def play(self, step: Step) -> Answer:
        """Do a step, also one of an earlier pair."""
        self.steps.append(step)
        one, other = (side.done(step) for side in self.sides)
        if one is NOTHING:
            return one
        self.statuses.append(one.status)
        if step.method == "DELETE" and "/memory_stores/" in step.path and one.is_success:
            for side in self.sides:  # the words of what is erased in the background still count
                until(side.is_settled)
        if one != other:
            self.differences.append(Difference(step, one, other))
        return one
