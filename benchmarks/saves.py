"""`python -m benchmarks.saves`: durable saves of sixteen writers, and what look-alikes cost."""

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import islice

from . import corpus
from .client import Client, Request, get, post
from .disk import DELAY, Unavailable, slowed_syncs
from .figures import Aim, Figure, at_least, at_most, show
from .measures import Times, crowds_in_turns, times_in_turns
from .plan import Bench, Subject, bench, subject
from .seeding import Size

WRITERS = 16
TURNS = 4
SHARE = 8  # so many saves of the crowd for one of those made one by one

AS_IT_IS = at_least(1.5)
SLOWED = at_least(8)
TAIL = at_most(10)

LARGE = Size(rows=10_000, projects=1)
PAIRS = 400  # saves that ask for look-alikes, and as many that do not
LOOKALIKES = at_most(2)


def main() -> None:
    """Seed, start, drive, print."""
    with bench("benchmarks.saves", __doc__) as made:
        with subject(made, made.plan.wide) as asked:
            show(plain(made, asked))
        show(slowed(made))
        show(lookalikes(made))


def plain(made: Bench, asked: Subject) -> Iterator[Figure]:
    """With the disk as it is."""
    times = measured(asked, made.seed + 2, made.plan.saves)
    what = f"saves, {asked.size} present, {WRITERS} writers"
    yield _gain(f"{what} against 1", times, AS_IT_IS)
    yield _tail(what, times)


def slowed(made: Bench) -> Iterator[Figure]:
    """With each sync slowed."""
    what = f"saves, each sync slowed by {DELAY // 1000} ms, {WRITERS} writers"
    try:
        with subject(made, made.plan.wide, slowed_syncs()) as asked:
            times = measured(asked, made.seed + 3, made.plan.slowed)
    except Unavailable as refusal:
        yield Figure(what=f"{what} against 1", value=None, aim=SLOWED, beside=str(refusal))
        return
    if times[1].p50 < DELAY / 1000:
        reason = f"The delay is not seen: one by one, p50 is {times[1].p50:.2f} ms."
        yield Figure(what=f"{what} against 1", value=None, aim=SLOWED, beside=reason)
        return
    yield _gain(f"{what} against 1", times, SLOWED)
    yield _tail(what, times)


def lookalikes(made: Bench) -> Iterator[Figure]:
    """Saves that ask for three look-alikes beside saves that do not, in one large project."""
    with subject(made, LARGE) as asked, closing(Client(asked.service.port)) as client:
        without = requests(asked, made.seed + 4)
        with_ = requests(asked, made.seed + 5, "?similar=3")
        times = times_in_turns(
            {
                "without": partial(client.ask, next(without)),
                "with": partial(client.ask, next(with_)),
            }
            for _ in range(PAIRS)
        )
    what = f"a save that asks for three look-alikes, {asked.size} present"
    yield Figure(
        what=f"{what}, against one that does not",
        value=times["with"].p50 / times["without"].p50,
        aim=LOOKALIKES,
        beside=f"{times['with']} against {times['without']}",
    )


def measured(asked: Subject, seed: int, size: int) -> dict[int, Times]:
    """So many saves, one by one and of a crowd; every one is new, and counted through the API."""
    source = requests(asked, seed)
    sizes = {1: size // SHARE // TURNS * TURNS, WRITERS: size // TURNS * TURNS}
    given = {writers: list(islice(source, size)) for writers, size in sizes.items()}
    before = _observations(asked)
    times = crowds_in_turns(asked.service.port, given, TURNS)
    if _observations(asked) - before != sum(sizes.values()):
        raise SystemExit("The service has not as many new observations as were saved.")
    return times


def requests(asked: Subject, seed: int, query: str = "") -> Iterator[Request]:
    """Saves without end, each of a new observation."""
    for number, piece in enumerate(corpus.pieces(seed)):
        yield post(
            f"/observations{query}",
            {
                "session_id": f"saves-{number * 7 % asked.size.projects}",
                "project": asked.project(number),
                "type": "discovery",
                "title": piece.title,
                "content": f"{piece.content} {seed}.{number}",
            },
        )


def _observations(asked: Subject) -> int:
    with closing(Client(asked.service.port)) as client:
        return int(json.loads(client.ask(get("/stats")))["total_observations"])


def _gain(what: str, times: dict[int, Times], aim: Aim) -> Figure:
    return Figure(
        what=what,
        value=times[WRITERS].rate / times[1].rate,
        aim=aim,
        beside=f"{times[WRITERS].rate:,.0f} a second against {times[1].rate:,.0f} ({times[1]})",
    )


def _tail(what: str, times: dict[int, Times]) -> Figure:
    slow = times[WRITERS]
    return Figure(what=f"{what}: p99 / p50", value=slow.p99 / slow.p50, aim=TAIL, beside=f"{slow}")


if __name__ == "__main__":
    main()
