"""The chart's probes, asked beside a load: `.ci/probing.py DEPLOYMENT`."""

import sys
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from pathlib import Path
from threading import Event
from typing import NamedTuple

from benchmarks import corpus
from benchmarks.client import Client, Request, get, post
from tests.support.manifests import container

PORT = 7437
EVERY = 1.0  # seconds between two questions; a cluster leaves ten and thirty
PROJECTS = 10
SAVES, CONTEXTS, SCRAPES = 1_500, 300, 30


class Probe(NamedTuple):
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

    def watched(self, done: Event) -> list[float | None]:
        tries = [self.seconds()]
        while not done.wait(EVERY):
            tries.append(self.seconds())
        return tries

    def verdict(self, tries: Sequence[float | None]) -> str:
        in_turn = (len(list(run)) for missed, run in groupby(t is None for t in tries) if missed)
        worst = max(in_turn, default=0)
        slowest = max((t for t in tries if t is not None), default=0)
        said = (
            f"{self.path}: asked {len(tries)} times, missed {tries.count(None)}, "
            f"slowest {slowest:.2f} s of {self.timeout} s"
        )
        if worst >= self.failures:
            raise SystemExit(f"{said}; {worst} misses one after the other")
        return said


def main(deployment: Path) -> None:
    """Prints how each probe fared; one that would have acted ends the program."""
    rendered = container(deployment)
    live, ready = (rendered[f"{name}Probe"] for name in ("liveness", "readiness"))
    probes = [
        Probe(live["httpGet"]["path"], live["timeoutSeconds"], live["failureThreshold"]),
        Probe(ready["httpGet"]["path"], ready["timeoutSeconds"], 1),
        Probe("/health", 1, 3),  # as the original's chart asks
    ]
    done, began = Event(), time.monotonic()
    with ThreadPoolExecutor(6) as threads:
        watches = [threads.submit(probe.watched, done) for probe in probes]
        try:
            list(threads.map(_ask, _loads()))
        finally:
            done.set()
    took = time.monotonic() - began
    print(f"{SAVES} saves, {CONTEXTS} contexts and {SCRAPES} scrapes in {took:.0f} s")
    for probe, watch in zip(probes, watches, strict=True):
        print(probe.verdict(watch.result()))


def _ask(requests: list[Request]) -> None:
    client = Client(PORT)
    for request in requests:
        client.ask(request)
    client.close()


def _loads() -> list[list[Request]]:
    """What three clients ask at the same time, on a connection each."""
    saves = [
        post("/observations", {
            "session_id": "load", "type": "discovery", "title": piece.title,
            "content": piece.content, "project": f"p{number % PROJECTS}",
        })
        for number, piece in enumerate(islice(corpus.pieces(1), SAVES))
    ]  # fmt: skip
    contexts = [
        get("/context", project=f"p{number % PROJECTS}", query=prompt)
        for number, prompt in enumerate(corpus.sentences(1, CONTEXTS))
    ]
    return [saves, contexts, [get("/metrics")] * SCRAPES]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
