"""What a process takes, as the kernel tells it, and how it answers those who read meanwhile."""

import itertools
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from .process import DEADLINE
from .service import PLAIN

MEBIBYTE = 1 << 20
_PAGE = 4096


def resident(pid: int) -> float:
    """The memory that a process holds, in mebibytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * _PAGE / MEBIBYTE


def open_files(pid: int) -> int:
    """How many files and sockets a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


PATHS = ("/context?project=demo&prompt=what+was+learned", "/search?q=learned", "/health")


@dataclass(slots=True)
class Onlookers:
    """What they were answered: by status, and in which times."""

    statuses: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    unanswered: int = 0

    @property
    def told(self) -> str:
        """All that in words."""
        middle, most = statistics.median(self.times) * 1000, max(self.times) * 1000
        return f"{len(self.times):,} reads beside it, {middle:.0f} ms, at most {most:.0f}"


@contextmanager
def looked_on(
    url: httpx.URL | str, paths: Sequence[str] = PATHS, *, count: int = 2
) -> Iterator[Onlookers]:
    """Inside, so many clients read; each until it gets no answer."""
    onlookers, is_over = Onlookers(), threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=url, timeout=DEADLINE, verify=PLAIN) as http:
            for path in itertools.cycle(paths):
                if is_over.is_set():
                    return
                began = time.perf_counter()
                try:
                    answer = http.get(path)
                except httpx.TransportError:
                    onlookers.unanswered += 1
                    return
                onlookers.times.append(time.perf_counter() - began)
                onlookers.statuses[answer.status_code] += 1

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield onlookers
    finally:
        is_over.set()
        for thread in threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()
