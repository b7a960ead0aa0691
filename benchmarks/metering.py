"""`python -m benchmarks.metering`: what it costs a request to be measured for Prometheus."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import cycle, islice

from . import corpus
from .client import Client, get
from .figures import Figure, at_most, show
from .measures import Times, times_in_turns
from .plan import Bench, Subject, parser, prepared
from .process import running
from .saves import requests

ROUNDS = 400  # of each repetition
REPETITIONS = 3
WARMING = 50  # rounds before the first that counts
COST = at_most(1.03)
SERVICES = {"measured": "keys", "unmeasured": "off", "measured, too": "keys"}  # MEMORY_METRICS
KINDS = ("/context", "/search", "a save")

Round = dict[str, Callable[[], object]]
Repetition = dict[str, Times]


def main() -> None:
    """Seed, start three services, ask them in turns, print.

    Two of them are the same: what differs between these is no cost.
    """
    with (
        prepared(parser("benchmarks.metering", __doc__).parse_args()) as made,
        ExitStack() as stack,
    ):
        rounds = _rounds(made, _subjects(made, stack), stack)
        times_in_turns(islice(rounds, WARMING))
        show(_figures([times_in_turns(islice(rounds, ROUNDS)) for _ in range(REPETITIONS)]))


def _subjects(made: Bench, stack: ExitStack) -> dict[str, Subject]:
    """Services that differ in this one setting, each over a file of its own."""
    size = made.plan.few
    seeded, subjects = made.files.of(size), {}
    for number, (name, metrics) in enumerate(SERVICES.items()):
        path = seeded.with_name(f"metering-{number}.db")
        shutil.copyfile(seeded, path)
        service = stack.enter_context(running(path, settings={"MEMORY_METRICS": metrics}))
        subjects[name] = Subject(size=size, service=service)
    return subjects


def _rounds(made: Bench, subjects: dict[str, Subject], stack: ExitStack) -> Iterator[Round]:
    """The same three requests to each service, in an order that chance gives."""
    chance = random.Random(made.seed)  # noqa: S311 - an order, no secret
    asks = {
        name: stack.enter_context(closing(Client(subject.service.port))).ask
        for name, subject in subjects.items()
    }
    order = list(asks)
    any_subject = subjects[order[0]]
    prompts = cycle(corpus.prompts(made.seed + 1, made.plan.reads))
    words = cycle(corpus.keywords(made.seed + 1, made.plan.reads))
    for number, save in enumerate(requests(any_subject, made.seed + 2)):
        project = any_subject.project(number)
        asked = (
            get("/context", project=project, query=next(prompts)),
            get("/search", project=project, q=next(words)),
            save,
        )
        chance.shuffle(order)
        yield {
            f"{kind}, {name}": partial(asks[name], request)
            for kind, request in zip(KINDS, asked, strict=True)
            for name in order
        }


def _figures(repeated: list[Repetition]) -> Iterator[Figure]:
    for number, times in enumerate(repeated, 1):
        for kind in KINDS:
            measured, bare, again = (times[f"{kind}, {name}"] for name in SERVICES)
            yield Figure(
                what=f"{kind}, measured against unmeasured: p50, {number} of {REPETITIONS}",
                value=(measured.p50 + again.p50) / 2 / bare.p50,
                aim=COST,
                beside=f"{measured} against {bare}; another that is measured: {again.p50:.2f} ms",
            )


if __name__ == "__main__":
    main()
