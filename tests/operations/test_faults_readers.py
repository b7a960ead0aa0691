"""A reader that never finishes: others are served, and the log's growth is bounded or told."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ..support.losses import Losses
from ..support.process import Load, served, stored
from ..support.raw import request, wire
from ..support.service import observation
from ..support.vitals import MEBIBYTE, looked_on

pytestmark = pytest.mark.slow

LARGE = "x" * 49_000
ROWS = 100  # of an import: 5 MB
IMPORTS = 4
SAVES = 300
BOUND = 64  # MiB of log with nobody who holds it back: a checkpoint begins at 16


def test_a_client_that_takes_a_large_export_by_drops_holds_nobody_up(
    path: Path, lost: Losses
) -> None:
    with served(path) as (_, http), wire(url(http), receive_buffer=4096) as slow:
        bring(http, 0)
        slow.send(request("GET", "/export"))
        with looked_on(http.base_url) as onlookers, dribbling(slow.socket.recv):
            load = Load(str(http.base_url), saves=SAVES).start()
            for number in range(1, IMPORTS):
                bring(http, number)
            load.join()
        log = log_size(path)

    lost(
        "a client that never finishes an export", acknowledged=load.acknowledged.items(),
        found=stored(path).items(), remark=f"{onlookers.told}; the log has {log:.0f} MiB",
    )  # fmt: skip
    assert load.refused == {}
    assert ({*onlookers.statuses}, onlookers.unanswered) == ({200}, 0)
    assert log < BOUND


def url(http: httpx.Client) -> str:
    return str(http.base_url).rstrip("/")


def bring(http: httpx.Client, number: int) -> None:
    """Import some megabytes."""
    rows = [observation(f"{number} {row} {LARGE}", project="large") for row in range(ROWS)]
    assert http.post("/import", json={"observations": rows}).status_code == 200


def log_size(path: Path) -> float:
    """The write-ahead log, in mebibytes."""
    return path.with_name(f"{path.name}-wal").stat().st_size / MEBIBYTE


@contextmanager
def dribbling(take: object) -> Iterator[None]:
    """Inside, a few bytes of the answer are taken now and then."""
    is_over = threading.Event()

    def drop_by_drop() -> None:
        while not is_over.wait(0.05):
            assert callable(take)
            take(64)

    thread = threading.Thread(target=drop_by_drop)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
