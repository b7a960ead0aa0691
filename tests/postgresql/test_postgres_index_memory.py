"""The index in memory of two services on one database: never older than what a request sees."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.local import opened_here
from agentops_memory.recall import cache
from agentops_memory.recall.group import Lookup, Weights
from agentops_memory.settings import settings
from agentops_memory.telemetry import Telemetry

from ..support.pods import looked
from ..support.service import Clock, Service, observation, serving


@pytest.fixture
def three(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Service]]:
    """Two services that hold at once whatever is asked for, and one that holds nothing."""
    monkeypatch.setattr(cache, "MAX_DEFERRALS", 1)
    clock = Clock()
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                serving(
                    tmp_path / name, clock=clock, MEMORY_DATABASE_URL=postgresql,
                    MEMORY_INDEX_CACHE=size, MEMORY_SWEEP_EVERY="0",
                )
            )
            for name, size in (("a", "32MiB"), ("b", "32MiB"), ("none", "0"))
        ]  # fmt: skip


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many areas memory answered, each time that it was asked."""
    areas, made = list[int](), Lookup.__init__

    def counted(self: Lookup, parts: list[Weights], *given: Any, **named: Any) -> None:
        areas.append(len(parts))
        made(self, parts, *given, **named)

    monkeypatch.setattr(Lookup, "__init__", counted)
    return areas


@pytest.mark.slow
def test_each_service_answers_as_the_database_is_now(three: list[Service], held: list[int]) -> None:
    one, other, plain = three
    first = one.save("apple", project="red")["id"]
    for number, writers in enumerate([(other,), (other, one), (one, other), ()]):
        for it in (one, other):
            held.clear()
            asked_until_held(it, held)
        for it in writers:
            it.save(f"apple {number} in {it.url}", project="red")
        if not writers:
            other.http.delete(f"/observations/{first}").raise_for_status()
        answers = [found(it, "apple") for it in three]
        assert answers == [found(plain, "apple")] * 3, number


@pytest.mark.slow
def test_what_is_held_is_dropped_with_a_connection(
    three: list[Service], held: list[int], postgresql: str
) -> None:
    """Another server may be there now, which never had the last commit, and has others since."""
    one, _, plain = three
    one.save("apple", project="red")
    asked_until_held(one, held)
    lost = one.save("banana", project="red")["id"]
    assert len(found(one, "banana")) == 1
    plain.http.delete(f"/observations/{lost}").raise_for_status()
    plain.save("cherry", project="red")

    looked(postgresql, "UPDATE areas SET version = version - 2")
    looked(
        postgresql,
        """SELECT pg_terminate_backend(pid)
             FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()""",
    )

    assert [len(found(it, "cherry")) for it in (one, plain)] == [1, 1]
    assert found(one, "apple") == found(plain, "apple")


def found(service: Service, words: str) -> list[object]:
    hits: list[object] = service.http.get("/search", params={"project": "red", "q": words}).json()
    return hits


def asked_until_held(service: Service, held: list[int]) -> None:
    for _ in range(200):
        service.http.get("/search", params={"project": "red", "q": "apple"})
        if any(held):
            return
    raise AssertionError("nothing was ever held")


def test_a_command_that_stays_holds_what_is_asked(
    postgresql: str, held: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MAX_DEFERRALS", 1)

    async def ask() -> None:
        variables = {"MEMORY_DATABASE_URL": postgresql, "MEMORY_DATABASE_POOL": "1"}
        async with opened_here(settings(variables), Telemetry.started(None)) as here:
            body: dict[str, Any] = observation("apple", project="red")
            await here.save(**body)
            for _ in range(200):
                await here.search("apple", project="red")
                if any(held):
                    return

    asyncio.run(ask())
    assert any(held)
