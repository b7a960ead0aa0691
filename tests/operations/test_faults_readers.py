"""A reader that never finishes: others are served, and the log's growth is bounded or told."""

import itertools
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from agentops_memory.sqlite import open_files as wal
from agentops_memory.sqlite.connection import connect

from ..support.losses import Losses
from ..support.process import CLIENTS, Load, served, stored, until
from ..support.raw import request, wire
from ..support.service import observation
from ..support.vitals import MEBIBYTE, looked_on

pytestmark = pytest.mark.slow

LARGE = "x" * 49_000
ROWS = 100  # of an import: 5 MB
IMPORTS = 4
SAVES = 300
BOUND = 64  # MiB of log with nobody who holds it back: a checkpoint begins at 16
LONG = 128  # MiB, of which /health/ready tells


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


@pytest.mark.heavy
def test_a_transaction_of_another_process_lets_the_log_grow_which_is_told_and_passes(
    path: Path, lost: Losses
) -> None:
    with served(path) as (program, http):
        with reading_on(path):
            for number in itertools.count():
                bring(http, number)
                if log_size(path) > LONG:
                    break
            with looked_on(http.base_url) as onlookers:
                load = Load(str(http.base_url), saves=SAVES).start()
                load.join()
            until(lambda: log_status(http) == "warning")
        later = Load(str(http.base_url), saves=2 * wal.EVERY * CLIENTS, about="later").start()
        later.join()
        after = log_size(path)
        until(lambda: log_status(http) == "ok")
        program.send(signal.SIGTERM)
        program.wait()

    lost(
        "a reader in another process that never finishes",
        acknowledged=load.acknowledged.items(),
        found=stored(path).items(),
        remark=f"{onlookers.told}; the log grew to {LONG} MiB, which was told, "
        f"and shrank to {after:.0f}",
    )
    assert load.refused == {}
    assert ({*onlookers.statuses}, onlookers.unanswered) == ({200}, 0)
    assert after <= BOUND


def url(http: httpx.Client) -> str:
    return str(http.base_url).rstrip("/")


def bring(http: httpx.Client, number: int) -> None:
    """Import some megabytes."""
    rows = [observation(f"{number} {row} {LARGE}", project="large") for row in range(ROWS)]
    assert http.post("/import", json={"observations": rows}).status_code == 200


def log_size(path: Path) -> float:
    """The write-ahead log, in mebibytes."""
    return path.with_name(f"{path.name}-wal").stat().st_size / MEBIBYTE


def log_status(http: httpx.Client) -> object:
    """What /health/ready says of the log."""
    return http.get("/health/ready").json()["checks"]["wal"]["status"]


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


@contextmanager
def reading_on(path: Path) -> Iterator[sqlite3.Connection]:
    """Inside, another process than the service has begun to read and does not end."""
    with closing(connect(path)) as database:
        database.execute("BEGIN")
        database.execute("SELECT count(*) FROM memories").fetchall()
        yield database
