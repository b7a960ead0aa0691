"""`python -m benchmarks.idle`: what a read waits while 200 connections idle and one drips bytes."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import chain, cycle, repeat, takewhile

from . import corpus
from .client import Client, connected, get
from .crowd import Crowd, in_turn
from .figures import Figure, at_most, show
from .measures import Times, times_in_turns
from .plan import Bench, Subject, parser, prepared
from .process import running

IDLE = 200  # connections that are kept open after a first request
DRIP = 1.0  # seconds between the bytes of a request that never ends
TRIES = 3
ROUNDS = 4000  # of a try, at most
LASTING = 12.0  # seconds of a try, at most; dripped headers are cut off after ten
WARMING = 100  # rounds before the first that counts

HEALTH = get("/health")
HEADERS = b"GET /health HTTP/1.1\r\nX-Slow: "
WAIT = at_most(3)

Round = dict[str, Callable[[], object]]


def main() -> None:
    """Seed, start, drive, print; the exit code is 1 when each try was over the bound."""
    with prepared(parser("benchmarks.idle", __doc__).parse_args()) as made:
        sys.exit(0 if _is_within(made) else 1)


def _is_within(made: Bench) -> bool:
    """Whether a try keeps the bound. Two services over one file are asked in turns."""
    path, size = made.files.of(made.plan.few), made.plan.few
    with running(path) as one, running(path) as other, crowded(other.port):
        quiet, crowd = Subject(size=size, service=one), Subject(size=size, service=other)
        return any(_is_met(_figures(made, quiet, crowd)) for _ in range(TRIES))


def _is_met(figures: Iterator[Figure]) -> bool:
    kept = list(figures)
    show(kept)
    return all(figure.value is not None and WAIT.is_met(figure.value) for figure in kept)


def _figures(made: Bench, quiet: Subject, crowd: Subject) -> Iterator[Figure]:
    times = _times(made, quiet, crowd)
    for path in ("/health", "/context"):
        alone, among = times[f"{path}, alone"], times[f"{path}, among"]
        yield Figure(
            what=f"p99 of {path}: {IDLE} idle connections and one that drips against none",
            value=among.p99 / alone.p99,
            aim=WAIT,
            beside=f"{among} against {alone}; {len(among.taken):,} of each",
        )


def _times(made: Bench, quiet: Subject, crowd: Subject) -> dict[str, Times]:
    with closing(Client(quiet.service.port)) as alone, closing(Client(crowd.service.port)) as among:
        rounds = _rounds(made, quiet, {"alone": alone, "among": among})
        times_in_turns(next(rounds) for _ in range(WARMING))
        end = time.monotonic() + LASTING
        return times_in_turns(takewhile(lambda _: time.monotonic() < end, rounds))


def _rounds(made: Bench, asked: Subject, clients: dict[str, Client]) -> Iterator[Round]:
    """The same requests to each service, /health and /context."""
    prompts = corpus.prompts(made.seed + 1, made.plan.reads)
    for number, prompt in zip(range(ROUNDS + WARMING), cycle(prompts), strict=False):
        context = get("/context", query=prompt, project=asked.project(number))
        yield {
            f"{path}, {name}": partial(client.ask, request)
            for path, request in (("/health", HEALTH), ("/context", context))
            for name, client in clients.items()
        }


@contextmanager
def crowded(port: int) -> Iterator[None]:
    """Clients that ask nothing more, and one that never ends to ask; all are there at the end."""
    over = threading.Event()
    drip = threading.Thread(target=_drip, args=(port, over))
    with closing(Crowd(port, IDLE)) as idle:
        idle.converse([in_turn([HEALTH]) for _ in range(IDLE)])
        drip.start()
        try:
            yield
        finally:
            over.set()
            drip.join()
        idle.converse([in_turn([HEALTH]) for _ in range(IDLE)])


def _drip(port: int, over: threading.Event) -> None:
    """Headers without end, byte by byte; cut off, it begins again."""
    while not over.is_set():
        with closing(connected(port)) as connection, suppress(ConnectionError):
            for byte in chain(HEADERS, repeat(ord("a"))):
                connection.sendall(bytes([byte]))
                if over.wait(DRIP):
                    break


if __name__ == "__main__":
    main()
