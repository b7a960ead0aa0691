"""Who waits for PostgreSQL waits for some seconds: then it is 503, and others are served."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agentops_memory.memory.access import DEFAULT_TENANT, Role, patterns
from agentops_memory.memory.keys import issued
from agentops_memory.postgresql.keys import PostgresKeys
from agentops_memory.postgresql.migrate import schema_of
from agentops_memory.postgresql.transaction import number_of

from ..support.callers import OPERATOR, calling
from ..support.openwop_hosts import H
from ..support.pods import Pods, pods, two
from ..support.process import until
from ..support.service import START, observation
from ..support.stores import STORES

__all__ = ["two"]

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


def test_writers_that_wait_for_all_places_are_refused_in_time_and_readers_served(
    small: Pods,
) -> None:
    def work(http: httpx.Client, it: int) -> httpx.Response:
        return http.get("/observations/1") if it % 2 else save(http, it)

    with holding(small.url, "LOCK TABLE sessions IN EXCLUSIVE MODE"):
        answers = small.racing(work, 24)
    refused = [it for it in answers[::2] if it.status_code != 201]

    assert {it.status_code for it in answers[1::2]} == {200}
    assert len(refused) == 12
    assert {(it.status_code, it.headers["retry-after"]) for it in refused} == {(503, "1")}
    assert {it.json()["error"] for it in refused} <= {HELD, WAITED}
    assert save(small.http, 99).status_code == 201


def test_readers_that_wait_for_all_places_are_refused_in_time_and_health_is_told(
    small: Pods,
) -> None:
    def work(http: httpx.Client, it: int) -> httpx.Response:
        return http.get("/health/live") if it % 4 == 0 else http.get("/observations/1")

    with holding(small.url, "LOCK TABLE memories IN ACCESS EXCLUSIVE MODE"):
        answers = small.racing(work, 16)

    assert {it.status_code for it in answers[::4]} == {200}
    refused = [it for number, it in enumerate(answers) if number % 4]
    assert {(it.status_code, it.headers["retry-after"]) for it in refused} == {(503, "1")}
    assert small.http.get("/observations/1").status_code == 200


def test_a_key_that_is_revoked_is_refused_by_each_pod(
    two: Pods, record_property: Callable[[str, object], None]
) -> None:
    keys = PostgresKeys(two.url)
    for _ in range(5):
        key, token = issued("ci", DEFAULT_TENANT, Role.ADMIN, patterns(("*",)), START)
        keys.create(key, at=START, by=OPERATOR)
        clients = [calling(it, token) for it in two.services]
        until(partial(answered, clients, 200))

        keys.revoke(key.id, at=START, by=OPERATOR)
        revoked = time.monotonic()
        until(partial(answered, clients, 401))
        record_property("seconds", time.monotonic() - revoked)
        for http in clients:
            http.close()


def answered(clients: list[httpx.Client], status: int) -> bool:
    """Whether each pod answers so."""
    return all(it.get("/stats").status_code == status for it in clients)
