"""`python -m benchmarks.once REVISION`: what happens once, beside another commit.

The first prompt of each project after a start, and one import of many rows. Each round starts
both services anew, in turns, over copies of files that they seeded themselves.
"""

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from . import reads
from .client import Client, get
from .compare import ROOT, checked_out, seed, settings_of
from .figures import Figure, show
from .imports import exported, imported
from .plan import Bench, Subject, parser, prepared
from .process import running
from .seeding import Size

COLD = Size(rows=20_000, projects=200), Size(rows=40_000, projects=40)
HOLDING = Size(rows=20_000, projects=200)  # before the import
HEALTH = get("/health")  # loads no project

Work = Callable[[Bench, Subject], float]
"""Does what is measured on a service that has just started, and returns milliseconds."""


def main() -> None:
    """Seed, start both anew for each round, print."""
    options = parser("benchmarks.once", __doc__)
    options.add_argument("revision", help="the commit before, as git names it")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--rows", type=int, default=100_000, help="of the import; 0 leaves it out")
    given = options.parse_args()
    with prepared(given) as made:
        sources = {"before": checked_out(given.revision, made.folder), "now": ROOT}
        for size in COLD:
            what = f"first prompt of a project of {size.rows // size.projects:,}"
            show(_compared(made, sources, size, what, _first_prompts, given.rounds))
        if given.rows:
            document = exported(given.rows, made.seed + 1)

            def importing(_: Bench, asked: Subject) -> float:
                return _taken(lambda: imported(asked.service.port, document))

            what = f"import of {given.rows:,} in one document"
            show(_compared(made, sources, HOLDING, what, importing, given.rounds))


def _compared(
    made: Bench, sources: dict[str, Path], size: Size, what: str, work: Work, rounds: int
) -> Iterator[Figure]:
    for name, source in sources.items():
        seed(made, made.folder / f"{name}-seeded.db", source, size)
    taken: dict[str, list[float]] = {name: [] for name in sources}
    for number in range(rounds):
        for name in list(sources)[:: 1 if number % 2 else -1]:
            path = made.folder / "copied.db"
            shutil.copyfile(made.folder / f"{name}-seeded.db", path)
            os.sync()
            with running(path, first=HEALTH, settings=settings_of(sources[name])) as service:
                taken[name].append(work(made, Subject(size=size, service=service)))
            for left in made.folder.glob("copied.db*"):
                left.unlink()
    before, now = taken["before"], taken["now"]
    yield Figure(
        what=f"{what}: rate",
        value=statistics.median(b / n for b, n in zip(before, now, strict=True)),
        beside=f"{statistics.median(now):,.1f} ms against {statistics.median(before):,.1f}",
    )


def _first_prompts(made: Bench, asked: Subject) -> float:
    """The median of all projects' first prompts, one after the other."""
    with closing(Client(asked.service.port)) as client:
        requests = map(reads.request, reads.RUN.reads(made, asked, asked.size.projects))
        return statistics.median([_taken(partial(client.ask, it)) for it in requests])


def _taken(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    main()
