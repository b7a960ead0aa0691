"""Services on either engine, asked in turns, with the processor time of each."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from ..client import Client, Request
from ..measures import Times, crowd_times
from ..process import Running
from .database import Database
from .processor import since, used

PER_BLOCK = 10  # requests of one contender before the next has its turn


@dataclass(slots=True)
class Spent:
    """What some requests took."""

    times: Times = field(default_factory=Times)
    service: float = 0.0  # seconds of processor time
    backends: float = 0.0

    @property
    def of_each(self) -> tuple[float, float]:
        """Milliseconds of processor time a request, of services and of backends."""
        count = len(self.times.taken)
        return self.service / count * 1e3, self.backends / count * 1e3

    @property
    def processor(self) -> float:
        """Milliseconds of processor time a request."""
        return sum(self.of_each)

    def __str__(self) -> str:
        _, backends = self.of_each
        shared = f" (of it backends {backends:.2f})" if backends else ""
        return f"p50 {self.times.p50:.2f} ms, processor {self.processor:.2f} ms{shared}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One service or several, over a file or a database."""

    services: Sequence[Running]
    database: Database | None = None
    spent: Spent = field(default_factory=Spent)

    def anew(self) -> "Contender":
        """The same, of which nothing was asked yet."""
        return Contender(services=self.services, database=self.database)

    def ask(self, requests: Sequence[Request]) -> None:
        """One after another, on one connection."""
        with closing(Client(self.services[0].port)) as client:
            self._measure(lambda: _each(client, requests))

    def crowd(self, requests: Sequence[Request], connections: int) -> None:
        """On so many connections at a time, which are dealt out to the services."""
        first, *others = (it.port for it in self.services)
        self._measure(lambda: crowd_times(first, requests, connections, *others))

    def _measure(self, work: Callable[[], Times]) -> None:
        ours, backends = self._used()
        times = work()
        ours_now, backends_now = self._used()
        self.spent.times.taken += times.taken
        self.spent.times.whole += times.whole
        self.spent.service += since(ours, ours_now)
        self.spent.backends += since(backends, backends_now)

    def _used(self) -> tuple[dict[int, float], dict[int, float]]:
        backends = self.database.backends() if self.database else ()
        return used(it.pid for it in self.services), used(backends)


def asked_in_turns(
    contenders: Mapping[str, Contender], requests: Mapping[str, Sequence[Request]]
) -> None:
    """Each of its requests, a block of them in every turn; another begins each time."""
    names = list(contenders)
    for number, start in enumerate(range(0, len(requests[names[0]]), PER_BLOCK)):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            contenders[name].ask(requests[name][start : start + PER_BLOCK])


def _each(client: Client, requests: Sequence[Request]) -> Times:
    times = Times()
    began = time.perf_counter()
    for request in requests:
        asked = time.perf_counter()
        client.ask(request)
        times.taken.append(time.perf_counter() - asked)
    times.whole = time.perf_counter() - began
    return times
