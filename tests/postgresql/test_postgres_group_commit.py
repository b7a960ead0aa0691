"""Writes that wait for each other on PostgreSQL share a commit; each is answered for itself."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import httpx
import psycopg
import pytest

from agentops_memory.memory.access import DEFAULT_TENANT
from agentops_memory.postgresql import transaction, transactions
from agentops_memory.postgresql.migrate import schema_of
from agentops_memory.postgresql.transaction import number_of

from ..support.cutting import Cut, way
from ..support.measures import key, measured
from ..support.openwop_hosts import H
from ..support.pods import Pods, pods
from ..support.process import until
from ..support.service import observation

SCHEMA = schema_of(DEFAULT_TENANT)
WRITERS = 8
KEY = "Idempotency-Key"


class Kind(NamedTuple):
    """Writes that wait for each other while a stranger holds a lock."""

    lock: int
    path: str
    body: Callable[[int], dict[str, object]]
    table: str


KINDS = {
    "of one project": Kind(
        number_of(SCHEMA, "project", "demo"), "/observations",
        lambda number: observation(f"herons {number}", session_id=f"s{number}"), "memories",
    ),
    "of one tenant": Kind(
        number_of(SCHEMA), f"{H}/memory",
        lambda number: {"memoryRef": f"mem://{number}", "content": "herons"}, "memories",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes until all wait."""
    long = timedelta(minutes=5)
    monkeypatch.setattr(transaction, "MAX_WAIT", long)
    monkeypatch.setattr(transactions, "MAX_WAIT", long)
    monkeypatch.setattr(transactions, "LONGEST", 2 * long)
    monkeypatch.setattr(transaction, "LONGEST", long)


@pytest.fixture
def one(tmp_path: Path, postgresql: str) -> Iterator[Pods]:
    with pods(tmp_path / "postgresql", postgresql, count=1) as running:
        yield running


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_writes_that_wait_for_each_other_share_a_commit(one: Pods, kind: str) -> None:
    its = KINDS[kind]

    answers = waiting_together(one, its, [its.body(it) for it in range(WRITERS)])

    assert [it.status_code for it in answers] == [201] * WRITERS
    assert commits(one) == (2, WRITERS)  # the first had to wait for the stranger alone
    assert stored(one, its) == WRITERS
    one.assert_index_is_whole()


@pytest.mark.heavy
def test_writes_of_different_projects_share_a_commit(one: Pods) -> None:
    its = KINDS["of one project"]._replace(lock=number_of(SCHEMA))
    bodies = [its.body(it) | {"project": f"p{it}"} for it in range(WRITERS)]

    answers = waiting_together(one, its, bodies)

    assert [it.status_code for it in answers] == [201] * WRITERS
    assert commits(one) == (3, WRITERS)  # two groups at a time: each waited for the stranger
    assert stored(one, its) == WRITERS
    one.assert_index_is_whole()


def test_a_project_that_another_process_holds_delays_no_other(one: Pods) -> None:
    its = KINDS["of one project"]

    def save(number: int) -> int:
        body = its.body(number) | {"project": f"p{number}"}
        return one.http.post(its.path, json=body).status_code

    with ThreadPoolExecutor(4) as threads:
        with holding(one.url, number_of(SCHEMA, "project", "p1")):
            saving = [threads.submit(save, it) for it in range(4)]
            assert [saving[it].result() for it in (0, 2, 3)] == [201] * 3
            assert not saving[1].done()
        assert saving[1].result() == 201


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_groups_that_have_no_time_for_all_leave_them_to_others(
    one: Pods, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "LONGEST", timedelta(0))
    its = KINDS[kind]

    answers = waiting_together(one, its, [its.body(it) for it in range(WRITERS)])

    assert [it.status_code for it in answers] == [201] * WRITERS
    assert commits(one) == (WRITERS, WRITERS)
    assert stored(one, its) == WRITERS


@pytest.mark.heavy
def test_what_is_refused_in_a_group_leaves_nothing(one: Pods) -> None:
    """Its session was stored when it was refused."""
    its = KINDS["of one project"]
    bodies = [its.body(it) for it in range(WRITERS)]
    bodies[3] = {**bodies[3], "supersedes": [99]}

    answers = waiting_together(one, its, bodies)

    assert [it.status_code for it in answers] == [201 if it != 3 else 404 for it in range(WRITERS)]
    assert commits(one) == (2, WRITERS - 1)
    assert one.rows("SELECT id FROM sessions ORDER BY id") == [
        (f"s{it}",) for it in range(WRITERS) if it != 3
    ]
    one.assert_index_is_whole()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_of_two_requests_under_one_key_in_a_group_one_is_done(one: Pods, kind: str) -> None:
    its = KINDS[kind]
    bodies = [its.body(it) for it in range(WRITERS)]

    answers = waiting_together(one, its, bodies, keys=["first", *["shared"] * 2])

    assert sorted(it.status_code for it in answers) == [201] * (WRITERS - 1) + [409]
    assert stored(one, its) == WRITERS - 1


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_one_that_the_database_does_not_take_harms_no_other(one: Pods, kind: str) -> None:
    its = KINDS[kind]
    one.rows("ALTER TABLE memories ADD CHECK (content <> 'storks')")
    bodies = [its.body(it) for it in range(WRITERS)]
    bodies[3] = {**bodies[3], "content": "storks"}

    answers = waiting_together(one, its, bodies)

    assert [it.status_code for it in answers] == [409 if it == 3 else 201 for it in range(WRITERS)]
    assert stored(one, its) == WRITERS - 1
    one.assert_index_is_whole()


def test_who_waits_for_a_project_holds_nothing_that_others_wait_for(one: Pods) -> None:
    """Else a group and a write of another pod could each wait for the other."""
    its = KINDS["of one project"]
    with ThreadPoolExecutor(1) as threads, holding(one.url, its.lock):
        with psycopg.connect(one.url) as stranger:
            saving = threads.submit(one.http.post, its.path, json=its.body(1))
            waits = """SELECT 1
                         FROM pg_locks l
                         JOIN pg_database d ON d.oid = l.database
                        WHERE d.datname = current_database() AND l.locktype = 'advisory'
                              AND NOT l.granted"""
            until(lambda: stranger.execute(waits).fetchall())
            lock = number_of(SCHEMA, "session", "s1")
            ((is_free,),) = stranger.execute("SELECT pg_try_advisory_xact_lock(%s)", (lock,))
        assert is_free
        assert not saving.done()


@pytest.mark.heavy
@pytest.mark.parametrize("when", Cut)
def test_a_group_whose_commit_is_cut_is_done_once_under_its_keys(
    tmp_path: Path, postgresql: str, when: Cut
) -> None:
    its, keys = KINDS["of one project"], [f"key-{it}" for it in range(WRITERS)]
    bodies = [its.body(it) for it in range(WRITERS)]
    with way(postgresql) as carrying, pods(tmp_path / "postgresql", carrying.url, count=1) as one:
        one.http.post(its.path, json=observation("said before"), headers={KEY: keys[0]})
        carrying.cut(when)  # the first of these is refused, and commits nothing

        answers = waiting_together(one, its, bodies, keys=keys)
        was_done = stored(one, its) - 1
        again = [
            one.http.post(its.path, json=body, headers={KEY: it})
            for body, it in zip(bodies, keys, strict=True)
        ]

        assert [it.status_code for it in answers] == [409] + [503] * (WRITERS - 1)
        assert was_done == (WRITERS - 1 if when is Cut.AFTER else 0)
        assert [it.status_code for it in again] == [409] + [201] * (WRITERS - 1)
        assert stored(one, its) == WRITERS


def waiting_together(
    one: Pods, kind: Kind, bodies: list[dict[str, object]], keys: list[str] | None = None
) -> list[httpx.Response]:
    """The answers to writes all of which wait for a stranger, the first at their head."""
    answers: list[Future[httpx.Response]] = []

    def ask(number: int) -> httpx.Response:
        given = {} if number >= len(keys or ()) else {KEY: (keys or [])[number]}
        with httpx.Client(base_url=one.services[0].url, timeout=60) as http:
            return http.post(kind.path, json=bodies[number], headers=given)

    with ThreadPoolExecutor(len(bodies)) as threads:
        with holding(one.url, kind.lock):
            for number in range(len(bodies)):
                answers.append(threads.submit(ask, number))
                until(lambda: queued(one) == len(answers))
        return [it.result() for it in answers]


@contextmanager
def holding(url: str, lock: int) -> Iterator[None]:
    """Inside, a stranger holds an advisory lock."""
    with psycopg.connect(url) as stranger:
        stranger.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        yield


def queued(one: Pods) -> float:
    return measured(one.services[0])[key("memory_write_queue_depth")]


def commits(one: Pods) -> tuple[float, float]:
    """How many there were, and of how many writes."""
    seen = measured(one.services[0])
    name = "memory_commit_batch_size"
    return seen[key(f"{name}_count")], seen[key(f"{name}_sum")]


def stored(one: Pods, kind: Kind) -> int:
    ((number,),) = one.rows(f"SELECT count(*) FROM {kind.table}")
    return int(number)
