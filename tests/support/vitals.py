"""What a process takes, as the kernel tells it, and how quickly it answers."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

MEBIBYTE = 1 << 20
_PAGE = 4096


def resident(pid: int) -> float:
    """The memory that a process holds, in mebibytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * _PAGE / MEBIBYTE


def open_files(pid: int) -> int:
    """How many files and sockets a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def times(ask: Callable[[], object], count: int) -> list[float]:
    """The seconds that each of so many questions took, one after another."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - began)
    return taken


def shown(taken: list[float]) -> str:
    """The middle and the slowest of some times, in milliseconds."""
    return f"{statistics.median(taken) * 1000:.1f} ms, at most {max(taken) * 1000:.0f}"
