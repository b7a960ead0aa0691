"""`python -m benchmarks.postgresql.pods`: what two services save against one. For root.

Each has a share of a processor, as on a machine of its own; the database and the clients are
outside of it. One service has sixteen writers. Two have as many in all, or as many each. All save
into sixteen projects, in each of which several agents work.
"""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import NamedTuple

from .. import corpus
from ..client import Request, post
from ..figures import Figure, at_least, show
from ..plan import Bench, parser, prepared
from ..process import running
from ..saves import WRITERS
from ..seeding import Size
from .contenders import Contender, Spent
from .database import Database, filled, server
from .limits import limited

SHARE = 0.25  # of a processor: two of them, and a database that serves both, leave some of two
TURNS = 5
SAVES = 480  # of each in a turn
PROJECTS = 16
AGENTS = 4  # in each project
SCALED = at_least(1.6)


class Load(NamedTuple):
    """So many writers, dealt out to so many services."""

    services: int
    writers: int


ONE = Load(1, WRITERS)
TWO = {"as many writers in all": Load(2, WRITERS), "as many writers each": Load(2, 2 * WRITERS)}


def main() -> None:
    """Seed, start two services, drive one and both in turns, print."""
    options = parser("benchmarks.postgresql.pods", __doc__)
    options.add_argument("--share", type=float, default=SHARE, metavar="PROCESSORS")
    options.add_argument("--turns", type=int, default=TURNS)
    given = options.parse_args()
    with prepared(given) as made, server() as url:
        size = Size(rows=PROJECTS * 100, projects=PROJECTS)
        with filled(url, made.files.of(size), "pods") as database:
            print(f"{given.turns} turns, each service has {given.share:g} of a processor")
            show(_figures(_spent(made, size, database, given.share, given.turns)))


def _spent(
    made: Bench, size: Size, database: Database, share: float, turns: int
) -> dict[Load, list[Spent]]:
    """What the saves of each load took in every turn; the first warms, and is left out."""
    spent: dict[Load, list[Spent]] = {load: [] for load in (ONE, *TWO.values())}
    with ExitStack() as stack:
        path, settings = made.files.of(size), {"MEMORY_DATABASE_URL": database.url}
        services = [stack.enter_context(running(path, settings=settings)) for _ in range(2)]
        stack.enter_context(limited([it.pid for it in services], share))
        texts = _saves(made.seed)
        for turn in range(turns + 1):
            loads = list(spent) if turn % 2 else list(spent)[::-1]
            for load in loads:
                its = Contender(services=services[: load.services], database=database)
                its.crowd(list(islice(texts, SAVES)), load.writers)
                if turn:
                    spent[load].append(its.spent)
    return spent


def _saves(seed: int) -> Iterator[Request]:
    """Saves without end, each of a new observation."""
    for number, piece in enumerate(corpus.pieces(seed)):
        body = {
            "session_id": f"pods-{number % (PROJECTS * AGENTS)}",
            "project": f"project-{number % PROJECTS}",
            "type": "discovery",
            "title": piece.title,
            "content": f"{piece.content} {seed}.{number}",
        }
        yield post("/observations", body)


def _figures(spent: dict[Load, list[Spent]]) -> Iterator[Figure]:
    for name, load in TWO.items():
        ratios = sorted(
            both.times.rate / one.times.rate
            for both, one in zip(spent[load], spent[ONE], strict=True)
        )
        yield Figure(
            what=f"two services save against one, {name}",
            value=statistics.median(ratios),
            aim=SCALED,
            beside=f"{ratios[0]:.2f} to {ratios[-1]:.2f}; "
            f"{_told(spent[load])} against {_told(spent[ONE])}",
        )


def _told(turns: Sequence[Spent]) -> str:
    rate, service, backends = (
        statistics.median(values)
        for values in zip(*((it.times.rate, *it.of_each) for it in turns), strict=True)
    )
    return f"{rate:,.0f} a second (CPU a save: service {service:.2f} ms, backends {backends:.2f})"


if __name__ == "__main__":
    main()
