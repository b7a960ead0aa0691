"""What a write beside others may touch is claimed by name; what it cannot claim makes it wait."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import psycopg
import pytest

from agentops_memory import memory
from agentops_memory.engine.engine import target_of
from agentops_memory.memory.access import DEFAULT_TENANT
from agentops_memory.memory.lifecycles import SupersessionTable
from agentops_memory.memory.saves import RevisionTable
from agentops_memory.postgresql import transaction
from agentops_memory.postgresql.connection import schema_of

from ..support.databases import Databases
from ..support.pods import Pods, pods
from ..support.service import observation

HARMLESS = {"now", "caller", "retention", "new_uid", "room", "is_awaited"}  # touch no row
# What reads or changes rows of a memory alone that was claimed before.
OF_CLAIMED_MEMORIES = {RevisionTable, SupersessionTable}


@contextmanager
def another_writes(url: str) -> Iterator[None]:
    """Inside, another write shares the tenant: who would be alone waits for it."""
    with psycopg.connect(url) as stranger:
        number = transaction.number_of(schema_of(DEFAULT_TENANT))
        stranger.execute("SELECT pg_advisory_xact_lock_shared(%s)", (number,))
        yield


SAID = {"messages": [{"role": "user", "content": "Hi"}]}
# By the declared function that each of them runs.
BESIDE = {
    "save a new one": ("POST", "/observations", observation("new words", session_id="s2")),
    "save in a new project": ("POST", "/observations", observation("n", project="new")),
    "save at a topic key": ("POST", "/observations", observation("other words", topic_key="k")),
    "save of what is there": ("POST", "/observations", observation("what was said")),
    "save a pinned one": ("POST", "/observations", observation("pinned", pinned=True)),
    "open_session": ("POST", "/sessions", {"id": "s3", "project": "demo"}),
    "append_messages": ("POST", "/sessions/s1/messages", SAID),
    "close_session": ("POST", "/sessions/s1/end", SAID),
    "amend": ("PATCH", "/observations/1", {"content": "what is said"}),
    "confirm": ("POST", "/observations/1/confirm", None),
    "forget": ("DELETE", "/observations/1", None),
}


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.parametrize("key", [None, "the-key"])
@pytest.mark.parametrize("work", BESIDE)
def test_a_write_of_one_project_is_made_beside_others_and_alone_alike(
    tmp_path: Path, databases: Databases, monkeypatch: pytest.MonkeyPatch, work: str,
    key: str | None,
) -> None:  # fmt: skip
    with furnished(tmp_path / "beside", databases) as one:
        with another_writes(one.url):
            beside = asked(one.http, work, key)
        kept = (beside.status_code, beside.text, exported(one))
        one.assert_index_is_whole()
    (function,) = (it for it in declared() if it.__name__ == work.split(maxsplit=1)[0])
    monkeypatch.delattr(function, "target_of_work")
    with furnished(tmp_path / "alone", databases) as one:
        alone = asked(one.http, work, key)

        assert beside.is_success, beside.text
        assert (alone.status_code, alone.text, exported(one)) == kept
        one.assert_index_is_whole()


def test_a_write_that_touches_more_waits_for_others_to_end(
    tmp_path: Path, databases: Databases
) -> None:
    """What cannot be claimed, such as a global memory, is made alone."""
    with furnished(tmp_path / "alone", databases) as one, psycopg.connect(one.url) as stranger:
        number = transaction.number_of(schema_of(DEFAULT_TENANT))
        stranger.execute("SELECT pg_advisory_xact_lock_shared(%s)", (number,))

        def end_once_it_waits(http: httpx.Client) -> None:
            waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while not stranger.execute(waits).fetchall():
                http.get("/health/live")
            stranger.rollback()

        said = observation("of all", scope="global")
        _, answer = one.at_once(
            end_once_it_waits, lambda http: http.post("/observations", json=said)
        )

    assert answer is not None
    assert answer.status_code == 201


def test_each_declared_function_is_run_by_a_test_of_these() -> None:
    assert {it.__name__ for it in declared()} == {it.split()[0] for it in BESIDE}


class Rows:
    """Stands for any table: each method tells what was claimed before it touched a row."""

    def __init__(self, taken: list[str]) -> None:
        self._taken = taken

    def __getattr__(self, name: str) -> Callable[..., list[str]]:
        return lambda *_: [*self._taken]


class Transaction(SimpleNamespace):
    """Stands for a transaction; what it has beside its tables touches no row."""

    def __getitem__(self, _: type) -> Rows:
        return Rows(self.taken)


def test_a_write_beside_others_reaches_only_what_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[str] = []
    monkeypatch.setattr(transaction.Claims, "_claim", lambda _, kind, __: taken.append(kind))
    tx = Transaction(taken=taken, **dict.fromkeys(HARMLESS))
    within = transaction.WithinOneProject(
        cast("Any", tx), transaction.Claims(cast("Any", None), "t", set())
    )
    subject = SimpleNamespace(id="s", key=b"k", scope="project", project="p", hex=str)
    subject.kind = SimpleNamespace(traits=SimpleNamespace(has_project=True))
    subject.space = subject

    assert vars(within).keys() - HARMLESS == {"_tx", "_claims"}
    for table, methods in transaction.CLAIMED.items():
        if table not in OF_CLAIMED_MEMORIES:
            for method in methods:
                taken.clear()
                claimed = getattr(within[table], method)(subject)
                assert claimed, f"{table.__name__}.{method} claims nothing"


def test_what_is_not_claimed_cannot_be_touched() -> None:
    with pytest.raises(transaction.NeedsToBeAlone):
        transaction.Claimed(None, cast("Any", None), {}).refs  # noqa: B018 - it is the reading that is refused


def declared() -> list[Callable[..., object]]:
    """The functions of the memory core that are declared to lie within one project."""
    found = dict[str, Callable[..., object]]()
    for it in pkgutil.walk_packages(memory.__path__, f"{memory.__name__}."):
        for member in vars(import_module(it.name)).values():
            if inspect.isfunction(member) and target_of(member):
                found[f"{member.__module__}.{member.__name__}"] = member
    return list(found.values())


@contextmanager
def furnished(path: Path, databases: Databases) -> Iterator[Pods]:
    """A service of a database in which something was said."""
    try:
        with pods(path / "postgresql", databases.at(path), count=1) as one:
            said = one.http.post("/observations", json=observation("what was said"))
            assert said.json()["id"] == 1
            one.http.post("/observations", json=observation("words", topic_key="k"))
            yield one
    finally:
        databases.release(path)


def asked(http: httpx.Client, work: str, key: str | None) -> httpx.Response:
    method, path, body = BESIDE[work]
    headers = {} if key is None else {"Idempotency-Key": key}
    return http.request(method, path, json=body, headers=headers)


def exported(one: Pods) -> list[object]:
    """All that is stored, without what is random."""
    rows = one.http.get("/export").json()["observations"]
    history = one.http.get("/observations/1/history").json()
    return [
        history, *one.http.get("/export").json()["sessions"], *(it | {"uid": ""} for it in rows),
    ]  # fmt: skip
