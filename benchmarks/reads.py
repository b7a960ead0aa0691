"""`python -m benchmarks.reads`: what a read costs, by the size of the file and the kind of text."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

from . import corpus, direct
from .client import Client, Request, get
from .direct import Read
from .figures import Aim, Figure, at_least, at_most, show
from .measures import Times, crowd_times, crowds_in_turns, times_in_turns
from .plan import Bench, Subject, bench, subject

CROWD = 16  # connections
TURNS = 8
WARMING = 400  # requests of each kind before the first that counts: until the index is in memory

SIZE = at_most(1.5)
HTTP = at_most(1.3)
SENTENCES = at_most(2)
RATE = at_least(1.7)

Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Reads that are measured together."""

    path: str
    name: str
    texts: Callable[[int, int], list[str]]

    def __str__(self) -> str:
        return f"{self.path}, {self.name}"

    def reads(self, made: Bench, asked: Subject, count: int, turn: int = 0) -> list[Read]:
        """So many of them, over all projects; others in each turn."""
        texts = enumerate(self.texts(made.seed + 1 + turn, count))
        return [Read(path=self.path, text=text, project=asked.project(at)) for at, text in texts]


RUN = Kind(path="/context", name="one run", texts=corpus.prompts)
SIX = Kind(path="/context", name="six sentences", texts=corpus.sentences)
WORDS = Kind(path="/search", name="three words", texts=corpus.keywords)


def main() -> None:
    """Seed, start, drive, print."""
    with bench("benchmarks.reads", __doc__) as made, ExitStack() as stack:
        wide = stack.enter_context(subject(made, made.plan.wide))
        show(layers(made, wide))
        show(crowd(made, wide))
        few = stack.enter_context(subject(made, made.plan.few))
        many = stack.enter_context(subject(made, made.plan.many))
        show(sizes(made, few, many))
        show(layers(made, many))


def sizes(made: Bench, few: Subject, many: Subject) -> Iterator[Figure]:
    """The same prompts to a small and to a large service, in turns."""
    with closing(Client(few.service.port)) as small, closing(Client(many.service.port)) as large:
        works = {
            f"{kind}, {name}": _asked(client, kind.reads(made, asked, made.plan.reads))
            for kind in (RUN, SIX)
            for name, client, asked in (("few", small, few), ("many", large, many))
        }
        _warm(made, few, many)
        times = times_in_turns(_rounds(works))
    for kind in (RUN, SIX):
        one, other = times[f"{kind}, few"], times[f"{kind}, many"]
        yield Figure(
            what=f"{kind}: {many.size} projects against {few.size}",
            value=other.p50 / one.p50,
            aim=SIZE,
            beside=f"{other} against {one}",
        )


def layers(made: Bench, asked: Subject) -> Iterator[Figure]:
    """HTTP beside the domain's functions and bare SQL; six sentences beside one run."""
    times = _layer_times(made, asked)
    for kind, aim in ((RUN, HTTP), (SIX, HTTP), (WORDS, None)):
        http, domain, bare = (times[f"{kind}, {name}"] for name in ("http", "domain", "bare"))
        yield Figure(
            what=f"{kind}, {asked.size}: HTTP against the same SQL",
            value=http.p50 / bare.p50,
            aim=aim,
            beside=f"HTTP {http}; domain {domain}; bare SQL {bare}",
        )
    run, sentences = times[f"{RUN}, http"], times[f"{SIX}, http"]
    yield Figure(
        what=f"/context, {asked.size}: six sentences against one run",
        value=sentences.p50 / run.p50,
        aim=SENTENCES,
        beside=f"{sentences} against {run}",
    )


def crowd(made: Bench, asked: Subject, aim: Aim | None = RATE) -> Iterator[Figure]:
    """Sixteen connections beside one, a part of each in every turn."""
    share = {1: made.plan.crowd // 4, CROWD: made.plan.crowd}
    for kind in (RUN, SIX):
        requests = [request(read) for read in kind.reads(made, asked, made.plan.crowd)]
        crowd_times(asked.service.port, requests[:WARMING], CROWD)
        given = {connections: requests[:size] for connections, size in share.items()}
        times = crowds_in_turns(asked.service.port, given, TURNS)
        yield Figure(
            what=f"{kind}, {asked.size}: {CROWD} connections against 1",
            value=times[CROWD].rate / times[1].rate,
            aim=aim,
            beside=f"{_rate(times[CROWD])} against {_rate(times[1])}",
        )


def _layer_times(made: Bench, asked: Subject) -> dict[str, Times]:
    service = asked.service
    with direct.opened(service.path) as database, closing(Client(service.port)) as client:
        works: dict[str, list[Work]] = {}
        for kind in (RUN, SIX, WORDS):
            reads = kind.reads(made, asked, made.plan.reads)
            recorded = [direct.statements(database, read) for read in reads]
            works[f"{kind}, bare"] = [partial(direct.bare, database, each) for each in recorded]
            works[f"{kind}, domain"] = [
                partial(direct.through_the_domain, database, read) for read in reads
            ]
            works[f"{kind}, http"] = _asked(client, reads)
        _warm(made, asked)
        return times_in_turns(_rounds(works))


def _asked(client: Client, reads: list[Read]) -> list[Work]:
    return [partial(client.ask, request(read)) for read in reads]


def _rounds(works: dict[str, list[Work]]) -> list[dict[str, Work]]:
    """One work of each name in every round."""
    return [dict(zip(works, each, strict=True)) for each in zip(*works.values(), strict=True)]


def _warm(made: Bench, *subjects: Subject) -> None:
    for asked in subjects:
        for kind in (RUN, SIX, WORDS):
            requests = [request(read) for read in kind.reads(made, asked, WARMING)]
            crowd_times(asked.service.port, requests, 4)


def request(read: Read) -> Request:
    query = {"/context": "query", "/search": "q"}[read.path]
    return get(read.path, **{query: read.text}, project=read.project)


def _rate(times: Times) -> str:
    return f"{times.rate:,.0f} a second ({times})"


if __name__ == "__main__":
    main()
