"""The chart's probes, asked beside a load: `python -m tests.support.probing DEPLOYMENT`."""

import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from threading import Event
from typing import Any

from benchmarks import corpus
from benchmarks.client import Client, Request, get, post

from .manifests import container

PORT = 7437
EVERY = 1.0  # seconds between two questions; a cluster leaves ten and thirty
PROJECTS = 10
SAVES, CONTEXTS, SCRAPES = 1_500, 300, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A question that must be answered with 200 in time."""

    path: str
    timeout: float  # seconds
    failures: int  # misses one after the other that are too many

    def seconds(self) -> float | None:
        """How long an answer took; none for a miss."""
        began = time.monotonic()
        try:
            address = f"http://127.0.0.1:{PORT}{self.path}"
            with urllib.request.urlopen(address, timeout=self.timeout) as answer:
                answer.read()
        except OSError:
            return None
        took = time.monotonic() - began
        return took if took <= self.timeout else None


def main(deployment: Path) -> None:
    """Prints how each probe fared; one that would have acted ends the program."""
    asked = container(deployment)
    probes = [
        _probe(asked["livenessProbe"], asked["livenessProbe"]["failureThreshold"]),
        _probe(asked["readinessProbe"], 1),
        Probe(path="/health", timeout=1, failures=3),  # as the original's chart asks
    ]
    loads = _loads()
    began = time.monotonic()
    tries = _beside(probes, loads)
    took = time.monotonic() - began
    print(f"{SAVES} saves, {CONTEXTS} contexts and {SCRAPES} scrapes in {took:.0f} s")
    for probe, seconds in zip(probes, tries, strict=True):
        print(_verdict(probe, seconds))


def _probe(rendered: dict[str, Any], failures: int) -> Probe:
    return Probe(
        path=rendered["httpGet"]["path"], timeout=rendered["timeoutSeconds"], failures=failures
    )


def _beside(probes: list[Probe], loads: list[list[Request]]) -> list[list[float | None]]:
    done = Event()
    with ThreadPoolExecutor(len(probes) + len(loads)) as threads:
        watches = [threads.submit(_watched, probe, done) for probe in probes]
        try:
            list(threads.map(_ask, loads))
        finally:
            done.set()
        return [watch.result() for watch in watches]


def _watched(probe: Probe, done: Event) -> list[float | None]:
    tries = [probe.seconds()]
    while not done.wait(EVERY):
        tries.append(probe.seconds())
    return tries


def _verdict(probe: Probe, tries: Sequence[float | None]) -> str:
    in_turn = (len(list(run)) for missed, run in groupby(t is None for t in tries) if missed)
    worst = max(in_turn, default=0)
    slowest = max((t for t in tries if t is not None), default=0)
    said = (
        f"{probe.path}: asked {len(tries)} times, missed {tries.count(None)}, "
        f"slowest {slowest:.2f} s of {probe.timeout} s"
    )
    if worst >= probe.failures:
        raise SystemExit(f"{said}; {worst} misses one after the other")
    return said


def _ask(requests: list[Request]) -> None:
    client = Client(PORT)
    for request in requests:
        client.ask(request)
    client.close()


def _loads() -> list[list[Request]]:
    """What three clients ask at the same time, on a connection each."""
    return [list(_saves()), list(_contexts()), [get("/metrics")] * SCRAPES]


def _saves() -> Iterator[Request]:
    for number, piece in enumerate(islice(corpus.pieces(1), SAVES)):
        yield post("/observations", {
            "session_id": "load", "type": "discovery", "title": piece.title,
            "content": piece.content, "project": f"p{number % PROJECTS}",
        })  # fmt: skip


def _contexts() -> Iterator[Request]:
    for number, prompt in enumerate(corpus.sentences(1, CONTEXTS)):
        yield get("/context", project=f"p{number % PROJECTS}", query=prompt)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
