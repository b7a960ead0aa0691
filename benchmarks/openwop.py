"""`python -m benchmarks.openwop`: what hosts ask for, beside itself and the REST API, in turns."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

from . import corpus
from .client import Client, delete, get
from .figures import Figure, at_most, show
from .measures import Times, times_in_turns
from .openwop_host import H, Host, Work
from .openwop_passes import beside_a_pass
from .openwop_refs import HALF, LARGE, RARE, SMALL, Refs, entry_id, refs_put
from .process import running
from .seeding import Size, seeded

STORES = "/api/v1/cloud/memory_stores"
PROJECT = "project-0"
VALUES = 100  # that a run has registered
BLOCK = 20  # puts with values, and then without

Works = dict[str, Work]


def main() -> None:
    """Seed, start, take turns, print."""
    parser = ArgumentParser(prog="python -m benchmarks.openwop", description=__doc__)
    parser.add_argument("--seed", type=int, default=7, help="of the texts and their order")
    parser.add_argument("--entries", type=int, default=100_000, help="of a large ref")
    parser.add_argument("--small", type=int, default=1000, help="entries of a small ref")
    parser.add_argument("--total", type=int, default=0, help="entries of all refs, if more")
    parser.add_argument("--observations", type=int, default=5000, help="in ten projects")
    parser.add_argument(
        "--repeating", type=int, default=10_000, help="entries of which half are repeated"
    )
    parser.add_argument("--passes", type=int, default=8, help="over these")
    parser.add_argument("--rounds", type=int, default=300, help="of each comparison")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        show(_figures(Path(folder), asked))


def _figures(folder: Path, asked: Namespace) -> Iterator[Figure]:
    refs = Refs(
        large=asked.entries, small=asked.small, total=asked.total, repeating=asked.repeating
    )
    path, other = folder / "with.db", folder / "without.db"
    for each in (path, other):
        seeded(each, Size(rows=asked.observations, projects=10), asked.seed)
    refs_put(path, refs.live, asked.seed)
    settings = {"MEMORY_DEDUPE_WINDOW": "0"}
    # Both are new each time: one that has been asked for a while holds projects in memory.
    with running(path, settings=settings) as service, running(other, settings=settings) as bare:
        name = f"/context with {sum(refs.live.values()):,} entries in refs"
        yield from _elsewhere(name, service.port, bare.port, asked)
    refs_put(path, refs.half | refs.twice, asked.seed)
    with running(path, settings=settings) as service, running(other, settings=settings) as bare:
        name = f"/context with {refs.large:,} more, half of them superseded,"
        yield from _elsewhere(name, service.port, bare.port, asked)
        host = Host(service.port, asked.seed + 1)
        yield from _lists(host, refs, asked.rounds)
        yield from _entry(host, asked.rounds)
        yield from _puts(host, asked.rounds)
        yield _values(host, asked.rounds // BLOCK or 1)
        yield beside_a_pass(host, service.port, refs.repeating, asked.passes)


def _lists(host: Host, refs: Refs, rounds: int) -> Iterator[Figure]:
    """The newest 100 of refs of different sizes, by tag, in a run, and beside what is replaced."""
    newest = f"newest 100 of {refs.large:,}"
    small = f"newest 100 of {refs.small:,}"
    yield from _beside(
        {small: host.listing(SMALL), newest: host.listing(LARGE)}, rounds, {newest: 1.5}
    )
    run = host.open()
    for number in range(100):  # so that the run sees what is not there any more, and not the newest
        gone = entry_id(refs.large - 1 - number)
        host.client.ask(delete(f"{H}/memory/{gone}?memoryRef={LARGE}"))
        host.put(LARGE)
    others: Works = {
        "with a tag of one in a thousand": host.listing(LARGE, tag=RARE),
        "in a run, 100 put and 100 deleted since": host.listing(LARGE, runId=run),
        f"of {refs.large:,}, half of them superseded": host.listing(HALF),
    }
    yield from _beside({newest: host.listing(LARGE)} | others, rounds, dict.fromkeys(others, 1.5))
    host.end(run)


def _entry(host: Host, rounds: int) -> Iterator[Figure]:
    store = host.ask(STORES, {"name": "notes"})["id"]
    stored = host.ask(f"{STORES}/{store}/memories", {"path": "a.md", "content": host.text()})
    entry = host.put()["entry"]["id"]
    ours, theirs = "GET an entry", "GET a store's entry"
    works: Works = {
        theirs: partial(host.client.ask, get(f"{STORES}/{store}/memories/{stored['id']}")),
        ours: partial(host.client.ask, get(f"{H}/memory/{entry}", memoryRef="mem://new")),
    }
    yield from _beside(works, rounds, {ours: 1.2})


def _puts(host: Host, rounds: int) -> Iterator[Figure]:
    run = host.open()
    put = partial(host.put, runId=run, nodeId="summarize", tags=["note", "shop"])
    name = "put in a run with two tags"
    yield from _beside({"POST /observations": host.save, name: put}, rounds, {name: 1.3})
    host.end(run)


def _values(host: Host, blocks: int) -> Figure:
    """Puts while a run has registered values, and after its end."""
    times: dict[bool, Times] = {True: Times(), False: Times()}
    for _ in range(blocks):
        run = host.open()
        for number in range(VALUES):
            host.register(run, number)
        times[True].taken += _put_times(host)
        host.end(run)
        times[False].taken += _put_times(host)
    return Figure(
        what=f"put with {VALUES} registered values against none: p50",
        value=times[True].p50 / times[False].p50,
        aim=at_most(2),
        beside=f"{times[True]} against {times[False]}",
    )


def _put_times(host: Host) -> list[float]:
    return times_in_turns({"put": host.put} for _ in range(BLOCK))["put"].taken


def _elsewhere(name: str, full: int, bare: int, asked: Namespace) -> Iterator[Figure]:
    prompts = cycle(corpus.prompts(asked.seed, 2000))

    def context(client: Client) -> None:
        client.ask(get("/context", project=PROJECT, query=next(prompts)))

    works = {"without": partial(context, Client(bare)), name: partial(context, Client(full))}
    yield from _beside(works, 2 * asked.rounds, {name: 1.1})


def _beside(works: Mapping[str, Work], rounds: int, aims: dict[str, float]) -> Iterator[Figure]:
    """Each beside the first of them."""
    times = times_in_turns(works for _ in range(rounds))
    base, *others = works
    for name in others:
        yield Figure(
            what=f"{name} against {base}: p50",
            value=times[name].p50 / times[base].p50,
            aim=at_most(aims[name]),
            beside=f"{times[name]} against {times[base]}",
        )


if __name__ == "__main__":
    main()
