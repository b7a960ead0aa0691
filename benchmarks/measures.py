"""Many small runs become a few numbers."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .client import Client, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long single runs took, in milliseconds, and how many ran a second."""

    p50: float
    p99: float
    rate: float


def times_in_turns(rounds: Iterable[Mapping[str, Callable[[], object]]]) -> dict[str, Times]:
    """The works of each round one after another, so that all meet the machine alike."""
    taken: dict[str, list[float]] = {}
    for works in rounds:
        for name, work in works.items():
            start = time.perf_counter()
            work()
            taken.setdefault(name, []).append(time.perf_counter() - start)
    return {name: _times(each, sum(each)) for name, each in taken.items()}


def request_times(port: int, requests: Sequence[Request], connections: int) -> Times:
    """Each request once, over so many connections at a time."""
    taken: list[float] = []
    waiting = iter(requests)

    def run() -> None:
        client = Client(port)
        for request in waiting:
            start = time.perf_counter()
            client.ask(request)
            taken.append(time.perf_counter() - start)
        client.close()

    threads = [threading.Thread(target=run) for _ in range(connections)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(taken) != len(requests):
        raise SystemExit("A connection failed.")
    return _times(taken, time.perf_counter() - began)


def _times(taken: list[float], whole: float) -> Times:
    taken = sorted(taken)
    return Times(
        p50=taken[len(taken) // 2] * 1e3,
        p99=taken[len(taken) * 99 // 100] * 1e3,
        rate=len(taken) / whole,
    )
