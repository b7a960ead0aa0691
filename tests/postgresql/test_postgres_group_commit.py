"""Writes that wait for each other on PostgreSQL share a commit; each is answered for itself."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx
import psycopg
import pytest

from agentops_memory.memory.access import DEFAULT_TENANT
from agentops_memory.postgresql import transaction, transactions
from agentops_memory.postgresql.migrate import schema_of
from agentops_memory.postgresql.transaction import number_of

from ..support.measures import key, measured
from ..support.pods import Pods, one
from ..support.process import until
from ..support.service import observation
from .test_postgres_waiting import holding

__all__ = ["one"]

SCHEMA = schema_of(DEFAULT_TENANT)
WRITERS = 8
WAITING = """SELECT 1
               FROM pg_locks l
               JOIN pg_database d ON d.oid = l.database
              WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes until all wait."""
    long = timedelta(minutes=5)
    monkeypatch.setattr(transaction, "MAX_WAIT", long)
    monkeypatch.setattr(transactions, "MAX_WAIT", long)
    monkeypatch.setattr(transactions, "LONGEST", 2 * long)
    monkeypatch.setattr(transaction, "LONGEST", long)


def save(one: Pods, number: int, **fields: object) -> httpx.Response:
    body = observation(f"herons {number}", session_id=f"s{number}", **fields)
    return one.http.post("/observations", json=body)


def lock(*parts: str) -> str:
    """The statement by which a stranger takes a lock."""
    return f"SELECT pg_advisory_xact_lock({number_of(SCHEMA, *parts)})"


@pytest.mark.slow
def test_saves_that_wait_for_each_other_share_a_commit_and_are_answered_for_themselves(
    one: Pods,
) -> None:
    depth = key("memory_write_queue_depth")
    with ThreadPoolExecutor(WRITERS) as threads:
        with holding(one.url, lock("project", "demo")):
            saving = []
            for number in range(WRITERS):
                wrong = {"supersedes": [99]} if number == 3 else {}
                saving.append(threads.submit(save, one, number, **wrong))
                until(lambda: measured(one.services[0])[depth] == len(saving))
        statuses = [it.result().status_code for it in saving]

    assert statuses == [201, 201, 201, 404, 201, 201, 201, 201]
    seen, batches = measured(one.services[0]), "memory_commit_batch_size"
    # The first of them had to wait for the stranger alone.
    assert (seen[key(f"{batches}_count")], seen[key(f"{batches}_sum")]) == (2, WRITERS - 1)
    sessions = one.rows("SELECT id FROM sessions ORDER BY id")
    assert sessions == [(f"s{it}",) for it in range(WRITERS) if it != 3]
    one.assert_index_is_whole()


def test_a_project_that_another_process_holds_delays_no_other(one: Pods) -> None:
    with ThreadPoolExecutor(4) as threads:
        with holding(one.url, lock("project", "p1")):
            saving = [threads.submit(save, one, it, project=f"p{it}") for it in range(4)]
            assert [saving[it].result().status_code for it in (0, 2, 3)] == [201] * 3
            assert not saving[1].done()
        assert saving[1].result().status_code == 201


def test_who_waits_for_a_project_holds_nothing_that_others_wait_for(one: Pods) -> None:
    """Else a group and a write of another pod could each wait for the other."""
    with ThreadPoolExecutor(1) as threads, holding(one.url, lock("project", "demo")):
        with psycopg.connect(one.url) as stranger:
            saving = threads.submit(save, one, 1)
            until(lambda: stranger.execute(WAITING).fetchall())
            number = number_of(SCHEMA, "session", "s1")
            ((is_free,),) = stranger.execute("SELECT pg_try_advisory_xact_lock(%s)", (number,))
        assert is_free
        assert not saving.done()
