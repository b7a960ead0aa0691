"""`python -m tests.differential --seed 7`: where two engines differ, and the fewest requests.

Ends with 1 if they differ.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..support import postgres
from ..support.databases import Databases
from ..support.service import initialized
from .pair import Pair, paired
from .play import play
from .steps import Step


def main() -> int:
    """Play, and shrink what differs."""
    options = argparse.ArgumentParser(prog="tests.differential", description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--requests", type=int, default=1_500)
    options.add_argument("--engine", choices=["sqlite", "postgresql"], default="postgresql")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = _told(_Pairs(Path(folder), given.engine), given.seed, given.requests)
    print("\n".join(lines))  # noqa: T201 - the result
    return 1 if lines[1:] else 0


def _told(pairs: "_Pairs", seed: int, requests: int) -> list[str]:
    with pairs.new() as pair:
        play(pair, seed, requests)
    lines = [f"{len(pair.differences)} differences in {Counter(pair.statuses)}"]
    lines += [str(it) for it in pair.differences]
    if pair.differences:
        last = pair.differences[0].step
        fewest = shrunk(pair.steps[: pair.steps.index(last) + 1], pairs.differ)
        lines += ["The fewest requests that show the first:", *map(str, fewest)]
    return lines


def shrunk(steps: list[Step], differs: Callable[[list[Step]], bool]) -> list[Step]:
    """Fewer steps that differ at the last, too: none of them can be left out."""
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps) - 1:
            fewer = [*steps[:at], *steps[min(at + size, len(steps) - 1) :]]
            if differs(fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


class _Pairs:
    """Pairs, the second of each on an engine."""

    def __init__(self, folder: Path, engine: str) -> None:
        self._folder = folder
        self._databases: Databases | None = None
        if engine == "postgresql":
            self._databases = Databases(postgres.cluster(folder), initialized)

    @contextmanager
    def new(self) -> Iterator[Pair]:
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            folder = Path(name)
            url = None if self._databases is None else self._databases.at(folder / "other.db")
            with paired(folder, url) as pair:
                yield pair
            if self._databases is not None:
                self._databases.release(folder)

    def differ(self, steps: list[Step]) -> bool:
        with self.new() as pair:
            for step in steps:
                pair.play(step)
        return any(it.step == steps[-1] for it in pair.differences)


if __name__ == "__main__":
    sys.exit(main())
