"""Who waits for PostgreSQL waits for some seconds: then it is 503, and others are served."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agentops_memory.jobs import schedule
from agentops_memory.memory.access import DEFAULT_TENANT
from agentops_memory.postgresql.connection import schema_of
from agentops_memory.postgresql.transaction import number_of

from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import H, Host
from ..support.pods import Pods, pods
from ..support.process import until
from ..support.service import START, observation
from ..support.stores import STORES

pytestmark = pytest.mark.slow

HELD = "Another writer has held the database for too long; try again."
WAITED = "Too many requests are waiting; try again."


@contextmanager
def holding(url: str, statement: str) -> Iterator[None]:
    """Inside, a stranger's session has run the statement, and does not end its transaction."""
    with psycopg.connect(make_conninfo(url, options="-c search_path=t_default")) as stranger:
        stranger.execute(statement.encode())
        yield


@pytest.fixture
def small(tmp_path: Path, postgresql: str) -> Iterator[Pods]:
    with pods(tmp_path / "postgresql", postgresql, count=1, MEMORY_DATABASE_POOL="2") as one:
        one.services[0].save("said before")
        yield one


def save(http: httpx.Client, number: int) -> httpx.Response:
    about = {"session_id": f"s{number}", "project": f"p{number}"}
    return http.post("/observations", json=observation(f"said {number}", **about))


@pytest.mark.representative(1)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/observations", observation("said once")),
        (STORES, {"name": "Notes"}),
        (f"{H}/memory", {"memoryRef": "mem://n", "content": "once"}),
    ],
)
def test_a_lock_that_a_stranger_holds_is_told_of_as_one(
    small: Pods, path: str, body: object
) -> None:
    tenant = number_of(schema_of(DEFAULT_TENANT))
    with holding(small.url, f"SELECT pg_advisory_xact_lock({tenant})"):
        answer = small.http.post(path, json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
        assert HELD in answer.text

    assert small.http.post(path, json=body).is_success


@pytest.mark.parametrize(
    ("lock", "served"),
    [
        ("sessions IN EXCLUSIVE", "/observations/1"),
        ("memories IN ACCESS EXCLUSIVE", "/health/live"),
    ],
    ids=["writers", "readers"],
)
def test_who_waits_for_all_places_is_refused_in_time_and_others_are_served(
    small: Pods, lock: str, served: str
) -> None:
    def work(http: httpx.Client, it: int) -> httpx.Response:
        if it % 3 == 0:
            return http.get(served)
        return save(http, it) if lock.startswith("sessions") else http.get("/observations/1")

    with holding(small.url, f"LOCK TABLE {lock} MODE"):
        answers = small.racing(work, 18)

    assert {it.status_code for it in answers[::3]} == {200}
    refused = [it for number, it in enumerate(answers) if number % 3]
    assert {(it.status_code, it.headers["retry-after"]) for it in refused} == {(503, "1")}
    if lock.startswith("sessions"):
        assert {it.json()["error"] for it in refused} <= {HELD, WAITED}
    assert small.http.get("/observations/1").status_code == 200
    assert save(small.http, 99).status_code == 201


WAITING = """SELECT 1
               FROM pg_stat_activity
              WHERE datname = current_database() AND wait_event_type = 'Lock'
                    AND query LIKE 'ANALYZE %'"""


@pytest.mark.slow
def test_what_is_due_is_done_while_statistics_of_a_table_cannot_be_made(
    tmp_path: Path, blank_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "LOOK_EVERY", timedelta(milliseconds=20))
    with pods(tmp_path / "postgresql", blank_database, count=1) as one:
        host = Host(one.http)
        intents = Intents(host)
        with holding(one.url, "LOCK TABLE postings IN SHARE UPDATE EXCLUSIVE MODE"):
            entry = host.put(" ".join(f"heron{number}" for number in range(30)))["id"]
            intents.at(entry, START + timedelta(minutes=1))
            # The database counts what a session has written when the session has more to do.
            until(lambda: host.put("storks nest") and one.rows(WAITING))
            one.clock.advance(minutes=2)
            until(lambda: one.rows("SELECT 1 FROM commitments WHERE state = 'fired'"))
