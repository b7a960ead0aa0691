"""The index of PostgreSQL is made again in portions: others write, and no statement is large."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
)
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.engine.engine import Tidied
from agentops_memory.jobs import schedule
from agentops_memory.memory.access import OPERATOR
from agentops_memory.postgresql import engine as engines, index as upkeep
from agentops_memory.postgresql.connection import OTHER_RULES
from agentops_memory.postgresql.engine import PostgresEngine
from agentops_memory.recall.stems import INDEX_RULES

from ..support.files import assert_areas_are_whole
from ..support.forks import PROGRAM
from ..support.pods import looked
from ..support.process import ANY_PORT, program, until
from ..support.service import Clock, Service, observation, serving
from ..support.terminal import Terminal

Deed = Callable[[], object]

OLDER = f"""
from agentops_memory.postgresql import index

index.INDEX_RULES = "the rules of a release before"
{PROGRAM}
"""

LEFT = "SELECT count(*) FROM postings WHERE area NOT IN (SELECT area FROM spaces)"

# A statement that deletes more than 300 postings takes longer than it may.
SLOW = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF (SELECT count(*) FROM gone) > 300 THEN
            RAISE EXCEPTION USING ERRCODE = 'query_canceled';
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER slow AFTER DELETE ON postings
        REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION slow()"""


def said(number: int) -> str:
    return " ".join(f"w{number}x{word}" for word in range(20))


@pytest.mark.slow
def test_an_area_is_rebuilt_whose_words_no_statement_could_delete(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "PORTION", 4)
    terminal = Terminal(settings(postgresql))
    with served(tmp_path, postgresql) as service:
        for number in range(20):
            service.save(said(number), title=f"t{number}")
    looked(postgresql, SLOW)
    looked(postgresql, "DELETE FROM postings WHERE term LIKE 'w3x%'")
    looked(postgresql, "UPDATE postings SET counts = counts + 1 WHERE term LIKE 'w7x1%'")
    looked(postgresql, "UPDATE areas SET memories = memories - 1, words = 0 WHERE area = 1")
    before = terminal.run("index", "--check")

    rebuilt = terminal.say("index", "--rebuild")

    assert (before.exit_code, before.stdout) == (
        1,
        "partition 1: differs from the memories in 1 row\n",
    )
    assert rebuilt == "partition 1: rebuilt\n"
    assert terminal.say("index", "--check") == "partition 1: exact\n"
    assert looked(postgresql, "SELECT memories, words > 0, rebuild FROM areas WHERE area = 1") == [
        (20, True, None)
    ]
    assert_is_whole(postgresql)


@pytest.mark.heavy
def test_what_is_written_while_words_are_made_again_by_other_rules_stays(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "PORTION", 2)
    with older(tmp_path, postgresql) as old, served(tmp_path, postgresql) as new:
        demo, other = (seven_saved(old, project) for project in ("demo", "other"))
        terminal = Terminal(settings(postgresql))
        deeds: Iterator[Deed] = iter([
            lambda: changed(new, demo[0]),
            lambda: changed(new, demo[6]),
            lambda: new.http.delete(f"/observations/{demo[1]}").raise_for_status(),
            lambda: new.http.delete(f"/observations/{demo[5]}").raise_for_status(),
            lambda: new.save("a new one", tags=["t"]),
            lambda: new.save("another new one", project="other", tags=["t"]),
            lambda: terminal.say("projects", "merge", "other", "demo", "--yes"),
            lambda: changed(new, other[0]),
            lambda: changed(new, other[6]),
        ])  # fmt: skip

        asyncio.run(brought_to_rules(postgresql, deeds))

        assert next(deeds, None) is None
        for project in ("demo", "new"):
            late = old.http.post("/observations", json=observation("late", project=project))
            assert late.status_code == 503
        hits = new.http.get("/search?q=changed&limit=20").json()
        assert sum(it["content"].startswith("changed") for it in hits) == 4
    assert_is_whole(postgresql)
    assert looked(postgresql, LEFT) == [(0,)]


def seven_saved(service: Service, project: str) -> list[object]:
    """The ids of memories with many words."""
    titles = [f"{project} {number}" for number in range(7)]
    return [
        service.save(said(number), title=title, project=project, tags=["t"])["id"]
        for number, title in enumerate(titles)
    ]


def changed(service: Service, memory: object) -> None:
    body = {"content": f"changed {memory}", "tags": ["other"]}
    service.http.patch(f"/observations/{memory}", json=body).raise_for_status()


async def brought_to_rules(url: str, deeds: Iterator[Deed]) -> None:
    """Make the words of all areas again, while something else is done between two steps."""
    async with opened(url) as engine:
        await engine.write(OPERATOR, lambda tx: tx.index.take_over())
        for name in ("read", "write"):
            setattr(engine, name, interrupted(getattr(engine, name), deeds))
        await engine.bring_to_rules(OPERATOR)


def interrupted(transaction: Any, deeds: Iterator[Deed]) -> Callable[..., Any]:
    """A method of an engine, beside which something else is done before each transaction."""

    async def run(*given: Any) -> Any:
        await asyncio.to_thread(next(deeds, int))
        return await transaction(*given)

    return run


# Whose rules stand


@pytest.mark.slow
def test_the_rules_of_who_leads_stand(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (engines, schedule):
        monkeypatch.setattr(module, "LOOK", timedelta(milliseconds=20))
    with older(tmp_path, postgresql) as old:
        old.save("apple", tags=["hidden"])
    with ExitStack() as stack:
        old = stack.enter_context(older(tmp_path, postgresql))
        with served(tmp_path, postgresql) as new:
            until(lambda: looked(postgresql, "SELECT 1 FROM areas WHERE area < 0"))
            bodies = [observation("banana"), observation("damson", project="new")]
            refused = [new.http.post("/observations", json=body) for body in bodies]
            old.save("cherry", tags=["hidden"])
            stack.close()

            until(lambda: all(new.http.post("/observations", json=it).is_success for it in bodies))

            until(lambda: looked(postgresql, "SELECT DISTINCT rebuild FROM areas") == [(None,)])
    assert [(it.status_code, it.json()["error"]) for it in refused] == [(503, OTHER_RULES)] * 2
    assert_is_whole(postgresql)


@pytest.mark.slow
def test_a_sweep_ends_what_was_begun_also_of_a_project_that_is_no_more(
    postgresql: str, tmp_path: Path
) -> None:
    with older(tmp_path, postgresql) as service:
        for project in ("demo", "other"):
            service.save(f"apple of {project}", project=project, tags=["hidden"])

    async def begun() -> None:
        async with opened(postgresql) as engine:
            await engine.write(OPERATOR, lambda tx: tx.index.take_over())

    asyncio.run(begun())
    terminal = Terminal(settings(postgresql))
    terminal.say("projects", "merge", "other", "demo", "--yes")

    tidied = Tidied(parts=2, drift=0, rebuilt=(), moved=0, is_damaged=False)
    assert swept(postgresql) == tidied
    assert_is_whole(postgresql)
    assert looked(postgresql, LEFT) == [(0,)]


def test_a_rebuild_ends_when_another_begins(postgresql: str, tmp_path: Path) -> None:
    with served(tmp_path, postgresql) as service:
        service.save("apple")

    async def raced() -> list[bool]:
        async with opened(postgresql) as engine:
            numbers = [
                await engine.write(OPERATOR, lambda tx: tx.index.begin_rebuild(1)) for _ in range(2)
            ]
            portion = await engine.read(OPERATOR, lambda tx: tx.index.portion(1, upkeep.FIRST))
            await engine.write(OPERATOR, lambda tx: tx.index.rebuild(numbers[0], portion))
            begun = await engine.write(OPERATOR, lambda tx: tx.index.take_over())
            await engine.write(OPERATOR, lambda tx: tx.index.rebuild(numbers[1], portion))
            return [begun == [1], await engine.read(OPERATOR, lambda tx: tx.index.is_exact(1))]

    assert asyncio.run(raced()) == [True, True]
    assert_is_whole(postgresql)


def swept(url: str) -> Tidied:
    """What a sweep by other rules has found and done."""

    async def sweep() -> Tidied:
        async with opened(url) as engine:
            return await engine.maintenance.tidy(OPERATOR)

    return asyncio.run(sweep())


def opened(url: str) -> AbstractAsyncContextManager[PostgresEngine]:
    """An engine that does not lead."""
    return PostgresEngine.opened(url, clock=Clock())


def served(folder: Path, url: str) -> AbstractContextManager[Service]:
    return serving(folder / "all", clock=None, telemetry=None, **settings(url))


@contextmanager
def older(folder: Path, url: str) -> Iterator[Service]:
    """A service of a release whose index has other rules."""
    own = {**ANY_PORT, **settings(url)}
    with (
        program("serve", variables=own, cwd=folder, code=OLDER) as running,
        running.client() as http,
    ):
        yield Service(http=http, url=str(http.base_url), path=folder, clock=Clock())


def settings(url: str) -> dict[str, str]:
    return {"MEMORY_DATABASE_URL": url, "MEMORY_SWEEP_EVERY": "0"}


def assert_is_whole(url: str) -> None:
    """Word for word, by our rules."""

    assert looked(url, "SELECT DISTINCT rules, rebuild FROM areas") == [(INDEX_RULES, None)]

    async def look() -> None:
        async with opened(url) as engine:
            await engine.read(OPERATOR, assert_areas_are_whole)

    asyncio.run(look())
