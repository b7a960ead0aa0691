"""Many small runs become a few numbers."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

from .client import Request
from .crowd import Conversation, Crowd


@dataclass(slots=True)
class Times:
    """How long single runs took, and how long all of them together."""

    taken: list[float] = field(default_factory=list)  # seconds
    whole: float = 0.0  # seconds

    @property
    def p50(self) -> float:
        """Milliseconds within which half of the runs ended."""
        return sorted(self.taken)[len(self.taken) // 2] * 1e3

    @property
    def p99(self) -> float:
        """Milliseconds within which all but one in a hundred ended."""
        return sorted(self.taken)[len(self.taken) * 99 // 100] * 1e3

    @property
    def rate(self) -> float:
        """Runs a second."""
        return len(self.taken) / self.whole

    def __str__(self) -> str:
        return f"p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms"


def times_in_turns(rounds: Iterable[Mapping[str, Callable[[], object]]]) -> dict[str, Times]:
    """The works of each round one after another, so that all meet the machine alike.

    Each round begins with another work: none always finds what the one before it warmed.
    """
    times: dict[str, Times] = {}
    for number, works in enumerate(rounds):
        names = list(works)
        first = number % len(names)
        for name in names[first:] + names[:first]:
            began = time.perf_counter()
            works[name]()
            _add(times.setdefault(name, Times()), time.perf_counter() - began)
    return times


def crowds_in_turns(
    port: int, requests: Mapping[int, Sequence[Request]], turns: int
) -> dict[int, Times]:
    """For each number of connections its requests, a part of them in every turn."""
    times = {connections: Times() for connections in requests}
    crowds = {connections: Crowd(port, connections) for connections in requests}
    sources = {connections: iter(each) for connections, each in requests.items()}
    for _ in range(turns):
        for connections, crowd in crowds.items():
            part = islice(sources[connections], len(requests[connections]) // turns)
            _drive(crowd, part, connections, times[connections])
    for crowd in crowds.values():
        crowd.close()
    return times


def crowd_times(port: int, requests: Sequence[Request], connections: int, *others: int) -> Times:
    """Each request once, over so many connections at a time, to one port or to others, too."""
    times = Times()
    with closing(Crowd(port, connections, *others)) as crowd:
        _drive(crowd, iter(requests), connections, times)
    return times


def _drive(crowd: Crowd, requests: Iterator[Request], connections: int, times: Times) -> None:
    began = time.perf_counter()
    crowd.converse([_timed(requests, times.taken) for _ in range(connections)])
    times.whole += time.perf_counter() - began


def _timed(requests: Iterator[Request], taken: list[float]) -> Conversation:
    for request in requests:
        began = time.perf_counter()
        answer = yield request
        taken.append(time.perf_counter() - began)
        answer.good()


def _add(times: Times, seconds: float) -> None:
    times.taken.append(seconds)
    times.whole += seconds
