"""Writes that wait on PostgreSQL, and commits that are cut: what others and later requests see."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg
import pytest

from agentops_memory.memory.access import DEFAULT_TENANT
from agentops_memory.postgresql import transaction, transactions
from agentops_memory.postgresql.connection import schema_of
from agentops_memory.postgresql.transaction import number_of
from agentops_memory.recall.text import content_hash, fingerprint

from ..support.clusters import Cut, Way, way
from ..support.openwop_hosts import H
from ..support.pods import Pods, looked, one, pods
from ..support.process import until
from ..support.service import Service, observation
from .test_postgres_waiting import holding

__all__ = ["one"]

SCHEMA = schema_of(DEFAULT_TENANT)
WAITING = """SELECT 1
               FROM pg_locks l
               JOIN pg_database d ON d.oid = l.database
              WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"""

INSERTING = WAITING.replace("advisory", "relation")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes until all wait."""
    long = timedelta(minutes=5)
    monkeypatch.setattr(transaction, "MAX_WAIT", long)
    monkeypatch.setattr(transactions, "LONGEST", 2 * long)
    monkeypatch.setattr(transaction, "LONGEST", long)


def save(one: Pods, number: int, **fields: object) -> httpx.Response:
    body = observation(f"herons {number}", session_id=f"s{number}", **fields)
    return one.http.post("/observations", json=body)


def lock(*parts: str) -> str:
    """The statement by which a stranger takes a lock."""
    return f"SELECT pg_advisory_xact_lock({number_of(SCHEMA, *parts)})"


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


def test_saves_wait_for_no_other_process_that_adds_something_else_to_their_project(
    one: Pods,
) -> None:
    save(one, 0)
    with holding(one.url, lock("project", "demo").replace("lock", "lock_shared")):
        assert save(one, 1).status_code == 201


def test_a_save_waits_for_another_process_that_adds_the_same_text(one: Pods) -> None:
    """Else both would be stored."""
    save(one, 0)
    said = observation("herons 1")
    hash_ = content_hash(str(said["content"]))
    text = str(fingerprint(None, str(said["type"]), str(said["title"]), hash_))
    with ThreadPoolExecutor(1) as threads, psycopg.connect(one.url) as stranger:
        with holding(one.url, lock("text", "demo", text)):
            saving = threads.submit(save, one, 1)
            until(lambda: stranger.execute(WAITING).fetchall())
            assert not saving.done()
        assert saving.result().status_code == 201


@pytest.mark.slow
def test_a_text_that_another_save_holds_is_looked_for_when_it_is_free(one: Pods) -> None:
    """Else a save that has waited for the text would store it again."""
    for number in range(3):  # from now on saves share the project
        save(one, number)

    def said(session: str) -> str:
        body = observation("the same text", session_id=session)
        return str(one.http.post("/observations", json=body).json()["action"])

    with ThreadPoolExecutor(2) as threads, psycopg.connect(one.url) as stranger:
        with holding(one.url, "LOCK TABLE memories IN SHARE MODE"):
            saving = [threads.submit(said, "s1")]
            until(lambda: stranger.execute(INSERTING).fetchall())
            saving.append(threads.submit(said, "s2"))
            until(lambda: stranger.execute(WAITING).fetchall())
        assert [it.result() for it in saving] == ["created", "deduplicated"]


@pytest.mark.slow
def test_a_project_that_was_erased_begins_again_in_one_area(
    tmp_path: Path, postgresql: str
) -> None:
    """Else a search in it would find what one of two services saved alone."""
    with pods(tmp_path / "postgresql", postgresql, count=2) as both:
        for number, service in enumerate([*both.services] * 3):  # both know that it has a space
            service.save(f"herons {number}", project="demo")
        both.services[0].http.delete("/projects/demo?hard=true").raise_for_status()

        def saved(service: Service, scope: str) -> None:
            service.save(f"egrets of the {scope}", project="demo", session_id=scope, scope=scope)

        with ThreadPoolExecutor(2) as threads, psycopg.connect(postgresql) as stranger:
            with holding(postgresql, "LOCK TABLE spaces IN SHARE MODE"):
                saving = [
                    threads.submit(saved, *it)
                    for it in zip(both.services, ("project", "personal"), strict=True)
                ]
                until(lambda: stranger.execute(INSERTING).fetchall())
            for it in saving:
                it.result()
        areas = looked(postgresql, "SELECT DISTINCT area FROM spaces WHERE project = 'demo'")
    assert len(areas) == 1


class Cutting(NamedTuple):
    """A service that stores over a way that can be cut."""

    service: Service
    way: Way
    url: str

    def asked(self, method: str, path: str, body: object, key: str | None) -> httpx.Response:
        headers = {"X-Agent-ID": "ada"} | ({} if key is None else {"Idempotency-Key": key})
        return self.service.http.request(method, path, json=body, headers=headers)

    def count(self, table: str) -> int:
        ((number,),) = looked(self.url, f"SELECT count(*) FROM {table}")
        return int(number)


@pytest.fixture
def cutting(tmp_path: Path, postgresql: str) -> Iterator[Cutting]:
    with way(postgresql) as carrying, pods(tmp_path / "postgresql", carrying.url, count=1) as one:
        one.http.get("/stats")  # its connection is not new afterwards
        yield Cutting(one.services[0], carrying, postgresql)


MAKING: dict[str, tuple[str, Any, str]] = {
    "a save": ("/observations", observation("said once"), "memories"),
    "a host's entry": (f"{H}/memory", {"memoryRef": "mem://n", "content": "once"}, "memories"),
}


@pytest.mark.slow
@pytest.mark.representative(4)
@pytest.mark.parametrize("key", ["key-1", None])
@pytest.mark.parametrize("when", Cut)
@pytest.mark.parametrize("kind", MAKING)
def test_what_is_sent_again_under_its_key_is_done_once_and_nothing_is_by_the_service_itself(
    cutting: Cutting, kind: str, when: Cut, key: str | None
) -> None:
    path, body, table = MAKING[kind]
    cutting.way.cut(when)

    refused = cutting.asked("POST", path, body, key)

    assert cutting.way.cuts == 1
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1"), refused.text
    assert cutting.count(table) == (when is Cut.AFTER)
    if key is not None:
        again = [cutting.asked("POST", path, body, key) for _ in range(2)]
        assert {it.status_code for it in again} <= {200, 201}, [it.text for it in again]
        assert (cutting.count(table), cutting.count("done")) == (1, 1)
    elif kind == "a save":
        told = cutting.asked("POST", path, body, None).json()
        action = "deduplicated" if when is Cut.AFTER else "created"
        assert (told["action"], told["duplicate_count"]) == (action, 1 + (when is Cut.AFTER))
        assert cutting.count(table) == 1


def test_connections_that_end_while_they_wait_are_replaced_and_nobody_sees_it(
    cutting: Cutting,
) -> None:
    memory = cutting.service.save("said before")["id"]
    for number in range(3):
        with psycopg.connect(cutting.url) as stranger:
            stranger.execute(
                """SELECT pg_terminate_backend(pid)
                     FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
            )
        if number % 2:
            assert cutting.service.http.get(f"/observations/{memory}").status_code == 200
        cutting.service.save(f"said after {number}")
    assert cutting.count("memories") == 4
