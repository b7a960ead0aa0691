"""A running service whose calls are traced, one request at a time."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path

from .. import SERVICE
from ..process import running
from .profiled import Call

PROFILED = Path(__file__).with_name("profiled.py")
QUIET = 0.05  # seconds in which a request comes to its end behind its answer
WARMING = 3  # requests before the first that counts
TRIES = 5

# What the service does by itself waits until the end; sets have one order.
SETTINGS = {"MEMORY_SWEEP_EVERY": "0", "PYTHONHASHSEED": "0"}

Ask = Callable[[int], object]
"""Sends a request: the one of this number, as no two of them are quite the same."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What was called for one request."""

    calls: Sequence[Call]

    @property
    def functions(self) -> int:
        """How many different functions were called."""
        return len({function for _, function, _ in self.calls})

    @property
    def files(self) -> Counter[str]:
        """The calls of each file, in the order in which the files were come to."""
        return Counter(file for file, _, _ in self.calls)

    @property
    def changes(self) -> int:
        """How many calls led from one file into another."""
        return sum(caller not in (None, file) for file, _, caller in self.calls)


@dataclass(frozen=True, slots=True)
class Tracer:
    """A service at a port of this machine, and a connection to its profiler."""

    port: int
    profiler: Connection

    def trace(self, ask: Ask) -> Trace:
        """The trace of a warm request: the shortest, in which nothing else was done."""
        for number in range(WARMING):
            ask(number)
        traces = [self._once(ask, number) for number in range(WARMING, WARMING + TRIES)]
        return min(traces, key=lambda trace: len(trace.calls))

    def _once(self, ask: Ask, number: int) -> Trace:
        time.sleep(QUIET)
        self._told()
        ask(number)
        time.sleep(QUIET)
        return Trace(self._told())

    def _told(self) -> list[Call]:
        """What the profiler answers, when it begins and when it ends."""
        self.profiler.send(None)
        calls: list[Call] = self.profiler.recv()
        return calls


@contextmanager
def traced(folder: Path) -> Iterator[Tracer]:
    """A service over a new file in the folder, under the profiler."""
    address = str(folder / "profiler")
    under = [sys.executable, "-P", str(PROFILED), address, f"{SERVICE}/"]
    with (
        running(folder / "memory.db", under, settings=SETTINGS) as service,
        connection.Client(address) as profiler,
    ):
        yield Tracer(service.port, profiler)
