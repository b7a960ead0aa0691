"""`python -m benchmarks.postgresql`: PostgreSQL beside SQLite, over the same memories.

Both are seeded once: a file is filled, and copied into the database. What is compared is asked
in turns. Processor time is that of the service, and of the backends that serve its database.
"""

import argparse
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .. import corpus
from ..client import Client, Request, get
from ..figures import Aim, Figure, at_least, at_most, show
from ..plan import Bench, Subject, parser, prepared
from ..process import running
from ..saves import TURNS, WRITERS, requests
from ..seeding import Size
from .contenders import Contender, asked_in_turns
from .database import Database, filled, server
from .proxy import counted

FULL, REDUCED = 100_000, 10_000  # memories
PROJECTS = 1_000  # at most, of a hundred memories or more
LARGE = 100_000  # memories of the one large project, at most
ASKED_AGAIN = 8  # projects that are asked until they are in memory
WARMING = 80  # prompts of each of these
TRIPS = 40  # saves whose round trips are counted
SETTINGS = {"SQL": {"MEMORY_INDEX_CACHE": "0"}, "memory": {"MEMORY_INDEX_CACHE": "512MiB"}}
KINDS = {
    "six sentences": corpus.sentences,
    "one run": corpus.prompts,
    "three words": corpus.keywords,
}

SQL_BESIDE_SQL = at_most(2.5)
RATE = at_least(0.3)
ROUND_TRIPS = at_most(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same memories in a file and in a database."""

    size: Size
    path: Path
    database: Database

    @contextmanager
    def sqlite(self, settings: Mapping[str, str]) -> Iterator[Contender]:
        """A service over a copy of the file: another may be over another."""
        path = self.path.with_name(f"copy-{len(list(self.path.parent.iterdir()))}.db")
        shutil.copyfile(self.path, path)
        with running(path, settings=settings) as service:
            yield Contender(services=[service])

    @contextmanager
    def postgresql(self, settings: Mapping[str, str]) -> Iterator[Contender]:
        """A service over the database."""
        given = {**settings, "MEMORY_DATABASE_URL": self.database.url}
        with running(self.path, settings=given) as service:
            yield Contender(services=[service], database=self.database)


def main() -> None:
    """Seed, copy, start, ask, print."""
    options = _options()
    memories = options.memories or (FULL if options.full else REDUCED)
    wide = Size(rows=memories, projects=min(PROJECTS, max(1, memories // 100)))
    with prepared(options) as made, server() as url:
        with _pair(made, url, wide, "wide") as pair:
            show(_sizes(pair))
            show(_contexts(made, pair, made.plan.reads, SQL_BESIDE_SQL))
            show(_round_trips(made, pair))
            show(_saves(made, pair))
        large = Size(rows=min(memories, LARGE), projects=1)
        with _pair(made, url, large, "large") as pair:
            show(_contexts(made, pair, made.plan.reads // 5, None))


def _options() -> argparse.Namespace:
    options = parser("benchmarks.postgresql", __doc__)
    options.add_argument(
        "--memories",
        type=int,
        metavar="COUNT",
        help=f"that are seeded; {REDUCED:,}, with --full {FULL:,}",
    )
    return options.parse_args()


@contextmanager
def _pair(made: Bench, url: str, size: Size, name: str) -> Iterator[Pair]:
    path = made.files.of(size)
    with filled(url, path, name) as database:
        yield Pair(size=size, path=path, database=database)


def _sizes(pair: Pair) -> Iterator[Figure]:
    file, database = pair.path.stat().st_size, pair.database.size()
    yield Figure(
        what=f"{pair.size}: bytes a memory",
        value=database / file,
        beside=f"{database / pair.size.rows:,.0f} against {file / pair.size.rows:,.0f}",
    )


def _contexts(made: Bench, pair: Pair, reads: int, aim: Aim | None) -> Iterator[Figure]:
    """SQL beside SQL over all projects; the index in memory of few, which are asked again."""
    with ExitStack() as stack:
        for how, settings in SETTINGS.items():
            engines = {
                "SQLite": stack.enter_context(pair.sqlite(settings)),
                "PostgreSQL": stack.enter_context(pair.postgresql(settings)),
            }
            projects = pair.size.projects if how == "SQL" else ASKED_AGAIN
            warming = WARMING * min(ASKED_AGAIN, pair.size.projects) if how == "memory" else 50
            asked_in_turns(
                engines, _prompts(made, pair, "six sentences", warming, projects, engines)
            )
            for kind in KINDS:
                asked = {name: it.anew() for name, it in engines.items()}
                asked_in_turns(asked, _prompts(made, pair, kind, reads, projects, asked))
                ours, theirs = asked["PostgreSQL"].spent, asked["SQLite"].spent
                yield Figure(
                    what=f"/context, {kind}, {pair.size}, {how}: processor time",
                    value=ours.processor / theirs.processor,
                    aim=aim if how == "SQL" else None,
                    beside=f"{ours} against {theirs}",
                )


def _prompts(
    made: Bench, pair: Pair, kind: str, count: int, projects: int, asked: Mapping[str, Contender]
) -> dict[str, list[Request]]:
    """The same for each."""
    service = next(iter(asked.values())).services[0]
    of_projects = Subject(size=pair.size, service=service)
    prompts = [
        get("/context", project=of_projects.project(number % projects), query=text)
        for number, text in enumerate(KINDS[kind](made.seed + 1, count))
    ]
    return dict.fromkeys(asked, prompts)


def _round_trips(made: Bench, pair: Pair) -> Iterator[Figure]:
    with counted(pair.database.url) as proxy:
        settings = {"MEMORY_DATABASE_URL": proxy.url}
        with running(pair.path, settings=settings) as service, closing(Client(service.port)) as one:
            asked = Subject(size=pair.size, service=service)
            trips = []
            for request in islice(requests(asked, made.seed + 2), TRIPS):
                before = proxy.trips
                one.ask(request)
                trips.append(proxy.trips - before)
    yield Figure(
        what="round trips to the database of a save: median",
        value=statistics.median(trips),
        aim=ROUND_TRIPS,
        unit="",
        beside=f"{min(trips)} to {max(trips)} of {TRIPS} saves",
    )


def _saves(made: Bench, pair: Pair) -> Iterator[Figure]:
    """Of sixteen writers, over all projects and into one."""
    with pair.sqlite({}) as file, pair.postgresql({}) as database:
        for where, projects in ((str(pair.size), pair.size.projects), ("one project", 1)):
            size = Size(rows=pair.size.rows, projects=projects)
            asked = {"SQLite": file.anew(), "PostgreSQL": database.anew()}
            _saved_in_turns(asked, _texts(made, asked, size))
            theirs, ours = (it.spent for it in asked.values())
            what = f"saves of {WRITERS} writers, {where} (present: {pair.size.rows:,})"
            yield Figure(
                what=f"{what}: rate",
                value=ours.times.rate / theirs.times.rate,
                aim=RATE,
                beside=f"{ours.times.rate:,.0f} a second ({ours}) against "
                f"{theirs.times.rate:,.0f} ({theirs})",
            )


def _texts(made: Bench, asked: Mapping[str, Contender], size: Size) -> dict[str, Sequence[Request]]:
    """Other texts for each, as two of them share a database."""
    count = made.plan.saves // TURNS * TURNS
    return {
        name: list(
            islice(
                requests(
                    Subject(size=size, service=it.services[0]),
                    made.seed + 10 * size.projects + number,
                ),
                count,
            )
        )
        for number, (name, it) in enumerate(asked.items())
    }


def _saved_in_turns(asked: Mapping[str, Contender], texts: Mapping[str, Sequence[Request]]) -> None:
    for turn in range(TURNS):
        for name, contender in asked.items():
            share = len(texts[name]) // TURNS
            contender.crowd(texts[name][turn * share : (turn + 1) * share], WRITERS)


if __name__ == "__main__":
    main()
