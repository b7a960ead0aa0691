"""What a caller is told while another process holds the database, or too many wait for it."""

import json
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from itertools import islice
from pathlib import Path

import httpx
import pytest

from agentops_memory.sqlite import connection, engine, transaction

from ..support.engine import locked
from ..support.engines import rows
from ..support.files import assert_sound
from ..support.process import until
from ..support.raw import request, wire
from ..support.service import Service, observation, serving

LOCKED = "The database is locked by another process; try again."
FULL = "Too many writes are waiting; try again."
SLOW = "This took too long and was stopped."

TIMEOUT = timedelta(milliseconds=300)
TOGETHER = 40  # writes, each of which waits for a second: far more of them than that takes


def assert_unavailable(answer: httpx.Response, sentence: str) -> None:
    assert (answer.status_code, answer.json()) == (503, {"error": sentence})
    assert answer.headers["Retry-After"] == "1"


def save(service: Service, content: str) -> httpx.Response:
    return service.http.post("/observations", json=observation(content))


@pytest.mark.slow
def test_writes_wait_for_another_process_then_are_refused_together_and_reads_go_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT", timedelta(seconds=1))
    service.save("before")

    with locked(service.path), ThreadPoolExecutor(TOGETHER) as threads:
        began = time.monotonic()
        saves = threads.map(lambda number: save(service, str(number)), range(TOGETHER))
        for path in ("/observations/1", "/search?q=before", "/stats", "/health"):
            assert service.http.get(path).status_code == 200
        answers, lasted = [*saves], time.monotonic() - began

    for answer in answers:
        assert_unavailable(answer, LOCKED)
    assert 0.9 <= lasted < TOGETHER
    assert service.save("after")["id"] == 2


@pytest.mark.slow
def test_a_full_queue_refuses_what_found_no_place_and_serves_what_did(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "QUEUE", 2)
    monkeypatch.setattr(engine, "QUEUE_TIMEOUT", TIMEOUT)
    monkeypatch.setattr(connection, "BUSY_TIMEOUT", timedelta(minutes=1))

    with serving(path) as service, ThreadPoolExecutor() as threads:
        with locked(service.path):
            saves = [threads.submit(save, service, str(number)) for number in range(5)]
            refused = [done.result() for done in islice(as_completed(saves), 3)]
        answers = [done.result() for done in saves]
        listed = service.http.get("/observations/recent").json()

    for answer in refused:
        assert_unavailable(answer, FULL)
    acknowledged = [answer.json()["id"] for answer in answers if answer.status_code == 201]
    assert sorted(row["id"] for row in listed) == sorted(acknowledged) == [1, 2]


def test_a_caller_that_leaves_keeps_no_place_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "QUEUE", 1)
    monkeypatch.setattr(engine, "QUEUE_TIMEOUT", TIMEOUT)
    path = tmp_path / "memory.db"

    with serving(path) as service:
        with locked(path):
            for number in range(3):
                with wire(service.url) as client:
                    body = json.dumps(observation(f"left {number}")).encode()
                    client.send(request("POST", "/observations", body))
                    assert service.http.get("/health").status_code == 200  # it came later
        until(lambda: save(service, "stayed").status_code == 201)
    ((stored,),) = rows(path, "SELECT count(*) FROM memories")  # one may be late, but by the end
    left = stored - 1

    # One had the place, and was committed whole; the others may have been refused unheard.
    assert 1 <= left <= 3
    assert_sound(path, live=left + 1)


@pytest.mark.slow
def test_a_read_that_takes_too_long_is_refused_and_the_next_is_served(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [observation(f"row {number} word") for number in range(2000)]
    service.http.post("/import", json={"observations": rows})
    most = {"limit": 1000}

    for _ in range(transaction.READERS + 1):
        with monkeypatch.context() as limited:
            limited.setattr(connection, "READ_LIMIT", timedelta())
            limited.setattr(connection, "PROGRESS", 1)
            assert_unavailable(service.http.get("/observations/recent", params=most), SLOW)
        assert len(service.http.get("/observations/recent", params=most).json()) == 1000
