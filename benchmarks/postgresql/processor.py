"""The processor time of other processes, and which these are."""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

SCHEDULED = 2  # of the clocks of a process, that with nanoseconds


def used(pids: Iterable[int]) -> dict[int, float]:
    """The seconds that each of the processes has had; one that has ended is left out."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            found[pid] = time.clock_gettime(~pid << 3 | SCHEDULED)
    return found


def since(before: dict[int, float], now: dict[int, float]) -> float:
    """The seconds that processes had between two looks, those that began meanwhile with all."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in now.items())


def children(pid: int) -> Iterator[tuple[int, str]]:
    """The children of a process of PostgreSQL, each with its title."""
    for folder in Path("/proc").glob("[0-9]*"):
        if (title := _title(folder)).startswith("postgres") and parent(int(folder.name)) == pid:
            yield int(folder.name), title


def parent(pid: int) -> int | None:
    """The parent of a process of PostgreSQL; None if it is none of this machine."""
    folder = Path(f"/proc/{pid}")
    if not _title(folder).startswith("postgres"):
        return None
    return int((folder / "stat").read_text().rpartition(")")[2].split()[1])


def _title(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_text("utf-8", "replace").replace("\0", " ")
    except OSError:
        return ""
