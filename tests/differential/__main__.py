"""`python -m tests.differential --seed 7`: where two engines differ, and the fewest requests.

Ends with 1 if they differ.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
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
    with tempfile.TemporaryDirectory() as name:
        folder, databases = Path(name), None
        if given.engine == "postgresql":
            databases = Databases(postgres.cluster(folder), initialized)
            databases.begin()
        new_pair = partial(_new_pair, folder, databases)
        with new_pair() as pair:
            play(pair, given.seed, given.requests)
        lines = [f"{len(pair.differences)} differences in {Counter(pair.statuses)}"]
        lines += [str(it) for it in pair.differences]
        if pair.differences:
            last = pair.differences[0].step
            fewest = shrunk(pair.steps[: pair.steps.index(last) + 1], partial(_differ, new_pair))
            lines += ["The fewest requests that show the first:", *map(str, fewest)]
    print("\n".join(lines))  # noqa: T201 - the result
    return 1 if lines[1:] else 0


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


@contextmanager
def _new_pair(folder: Path, databases: Databases | None) -> Iterator[Pair]:
    """Two services, the second on an engine."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        own = Path(name)
        with paired(own, databases.at(own / "other.db") if databases else None) as pair:
            yield pair
        if databases is not None:
            databases.release(own)


def _differ(new_pair: Callable[[], AbstractContextManager[Pair]], steps: list[Step]) -> bool:
    with new_pair() as pair:
        for step in steps:
            pair.play(step)
    return any(it.step == steps[-1] for it in pair.differences)


if __name__ == "__main__":
    sys.exit(main())
