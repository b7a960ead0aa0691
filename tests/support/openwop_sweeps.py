"""A service that sweeps without pause, and what tells that a sweep has been over all of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from .engines import rows
from .openwop_hosts import Host, ok
from .process import until
from .service import Clock, Service, serving

KEPT = timedelta(hours=1)
SENTINEL = "mem://sentinel"


@contextmanager
def sweeping(folder: Path, clock: Clock | None = None, **variables: str) -> Iterator[Service]:
    """A service that keeps for an hour what is deleted."""
    kept = {"MEMORY_KEEP_DELETED": "1h", "MEMORY_SWEEP_EVERY": "5ms"}
    path, told = folder / "memory.db", kept | variables
    with serving(path, clock=clock, telemetry=None, **told) as service:
        yield service


def steadily(service: Service, time: timedelta) -> None:
    """Let this time pass, and some minutes, in which the clock proves to be steady."""
    service.clock.advance(seconds=time.total_seconds())
    for _ in range(7):
        service.clock.advance(minutes=1)
        service.http.get("/health")


def deleted_long_ago(service: Service) -> None:
    """Let an hour pass since the last deletion, and a sweep after it be over.

    What was deleted last, and is seen by nobody, goes in it; what goes in the next one tells
    that this one is over.
    """
    for _ in range(2):
        host, words = Host(service.http, SENTINEL), str(uuid4())
        ok(host.delete(host.put(words)["id"]))
        steadily(service, KEPT)
        until(lambda words=words: not is_stored(service.path, words))  # type: ignore[misc]


def swept_index(service: Service) -> None:
    """Wait until a sweep is over that trusts no clock: it has seen to what has expired since."""
    for _ in range(2):
        end, words = service.clock.now + timedelta(minutes=1), str(uuid4())
        Host(service.http, SENTINEL).put(words, expiresAt=end.isoformat())
        service.clock.now = end
        until(lambda words=words: _is_out_of_the_index(service.path, words))  # type: ignore[misc]


def _is_out_of_the_index(path: Path, content: str) -> bool:
    found = f"SELECT id FROM memories WHERE content = '{content}'"
    return bool(rows(path, f"SELECT 1 FROM lifecycles WHERE is_swept AND memory_id IN ({found})"))


def is_stored(path: Path, content: str) -> bool:
    """Whether a memory of this content has its row, whatever became of it."""
    return bool(rows(path, f"SELECT id FROM memories WHERE content = '{content}'"))
