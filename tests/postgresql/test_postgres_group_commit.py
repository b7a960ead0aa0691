"""Writes that wait for each other on PostgreSQL share a commit; each is answered for itself."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
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

from ..support.clusters import Cut, way
from ..support.measures import key, measured
from ..support.openwop_hosts import H
from ..support.pods import Pods, pods
from ..support.process import until
from ..support.service import observation

SCHEMA = schema_of(DEFAULT_TENANT)
WRITERS = 8
WAITING = """SELECT 1
               FROM pg_locks l
               JOIN pg_database d ON d.oid = l.database
              WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Writes that wait together: how they differ, which status the fourth has, and the commits."""

    kinds: tuple[str, ...] = tuple(KINDS)
    lock: int | None = None
    body: Callable[[int], dict[str, object]] = lambda _: {}
    keys: tuple[str, ...] = ()
    longest: timedelta | None = None
    refused: int | None = None
    commits: tuple[int, int]  # and the writes of all of them


def fourth(**fields: object) -> Callable[[int], dict[str, object]]:
    return lambda number: fields if number == 3 else {}


OF_PROJECTS = ("of one project",)
GROUPS = {
    # The first of them had to wait for the stranger alone.
    "share a commit": Group(commits=(2, WRITERS)),
    "are of different projects": Group(  # two groups at a time: each waited for the stranger
        kinds=OF_PROJECTS, lock=number_of(SCHEMA), body=lambda it: {"project": f"p{it}"},
        commits=(3, WRITERS),
    ),
    "have no time for others": Group(longest=timedelta(0), commits=(WRITERS, WRITERS)),
    "have one that is refused after it stored its session": Group(
        kinds=OF_PROJECTS, body=fourth(supersedes=[99]), refused=404, commits=(2, WRITERS - 1)
    ),
    "have two under one key": Group(
        keys=("first", "shared", "shared"), refused=409, commits=(2, WRITERS - 1)
    ),
    "have one that the database does not take": Group(
        body=fourth(content="storks"), refused=409, commits=(WRITERS - 1, WRITERS - 1)
    ),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, group in GROUPS.items() for kind in group.kinds]
)
def test_writes_that_wait_for_each_other_share_a_commit_and_are_answered_for_themselves(
    one: Pods, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, its = GROUPS[name], KINDS[kind]
    if group.longest is not None:
        monkeypatch.setattr(transaction, "LONGEST", group.longest)
    one.rows("ALTER TABLE memories ADD CHECK (content <> 'storks')")
    bodies = [its.body(it) | group.body(it) for it in range(WRITERS)]
    waited_for = its if group.lock is None else its._replace(lock=group.lock)

    answers = waiting_together(one, waited_for, bodies, keys=[*group.keys])

    refused = [] if group.refused is None else [group.refused]
    statuses = [it.status_code for it in answers]
    assert sorted(statuses) == [201] * (WRITERS - len(refused)) + refused
    assert group.keys or [*filter(lambda it: it != 201, [statuses[3]])] == refused
    assert group.body(3).get("content") or commits(one) == group.commits
    assert stored(one, its) == WRITERS - len(refused)
    if "supersedes" in group.body(3):
        others = [(f"s{it}",) for it in range(WRITERS) if it != 3]
        assert one.rows("SELECT id FROM sessions ORDER BY id") == others
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


def test_who_waits_for_a_project_holds_nothing_that_others_wait_for(one: Pods) -> None:
    """Else a group and a write of another pod could each wait for the other."""
    its = KINDS["of one project"]
    with ThreadPoolExecutor(1) as threads, holding(one.url, its.lock):
        with psycopg.connect(one.url) as stranger:
            saving = threads.submit(one.http.post, its.path, json=its.body(1))
            until(lambda: stranger.execute(WAITING).fetchall())
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
