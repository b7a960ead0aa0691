"""What a process takes, as the kernel tells it, and how it answers those who read meanwhile."""

import itertools
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


class Onlookers:
    """What they were answered: by status, and in which times."""

    def __init__(self, url: str, paths: Sequence[str], count: int) -> None:
        self._url = url
        self._paths = paths
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []
        self.unanswered = 0

    @property
    def told(self) -> str:
        """All that in words."""
        middle, most = statistics.median(self.times) * 1000, max(self.times) * 1000
        return f"{len(self.times):,} reads beside it, {middle:.0f} ms, at most {most:.0f}"

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()

    def _ask(self) -> None:
        paths = itertools.cycle(self._paths)
        with httpx.Client(base_url=self._url, timeout=DEADLINE, verify=PLAIN) as http:
            while not self._is_over.is_set():
                began = time.perf_counter()
                try:
                    answer = http.get(next(paths))
                except httpx.TransportError:
                    self.unanswered += 1
                    return
                self.times.append(time.perf_counter() - began)
                self.statuses[answer.status_code] += 1


@contextmanager
def looked_on(
    url: httpx.URL | str, paths: Sequence[str] = PATHS, *, count: int = 2
) -> Iterator[Onlookers]:
    """Inside, so many clients read; each until it gets no answer."""
    onlookers = Onlookers(str(url), paths, count)
    onlookers.start()
    try:
        yield onlookers
    finally:
        onlookers.end()
