"""What the service itself moves, sweeps, merges and undoes is in memory as it is in the index."""

import random
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Refusal
from agentops_memory.jobs import retention as sweeping
from agentops_memory.memory import projects, saves
from agentops_memory.memory import saves as memories
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memory import Change, Draft, LifecycleChange, MemoryId, SessionId, Text
from agentops_memory.memory.search import Filter
from agentops_memory.memory.space import Project, Space
from agentops_memory.recall import area, group
from agentops_memory.recall.cache import IndexCache
from agentops_memory.recall.recall import Recall
from agentops_memory.sqlite import SqliteEngine

from ..support.chart import CHECKS
from ..support.engine import Work, raising, save, statement, together
from ..support.service import Clock
from .test_index import small_partitions
from .test_index_cache import read_at_once

STEPS = 50
PROJECTS = [Project(f"p{number}") for number in range(5)]
WORDS = "heron stork crane nest egg wing max_wings max wings maxwings flight flights".split()


class Play:
    """An engine, another on its file that holds nothing, and chances that are the same."""

    def __init__(self, engine: SqliteEngine, stored: SqliteEngine, clock: Clock, seed: int) -> None:
        self.engine, self.stored, self.clock = engine, stored, clock
        self.chance = random.Random(seed)  # noqa: S311 - the same each time
        self.hits = 0

    async def step(self) -> None:
        deeds: list[Callable[[], Awaitable[Any]]] = [
            self.save, self.save, self.save, self.batch, self.batch, self.amend, self.delete,
            self.rename, self.merge, self.sweep, self.move, self.rebuild, self.erase,
        ]  # fmt: skip
        with suppress(Refusal):
            await self.chance.choice(deeds)()
        for project in PROJECTS:
            words = " ".join(self.chance.choices(WORDS, k=self.chance.choice([1, 2, 8])))
            found = [await self.found(it, words, project) for it in (self.engine, self.stored)]
            assert found[0] == found[1], (project, words)
            self.hits += len(found[0])

    async def found(self, engine: SqliteEngine, words: str, project: Project) -> list[Any]:
        recall, filter_ = Recall(engine=engine), Filter(project=project)
        whole = await recall.context(OPERATOR, words, filter_, 9)
        searched = await recall.search(OPERATOR, words, filter_, 9)
        return [(hit.memory.id, hit.rank) for hit in (*whole.found.hits, *searched.hits)]

    async def save(self) -> None:
        await self.engine.write(OPERATOR, self._saving())

    async def batch(self) -> None:
        failing = self._both(self._saving(), raising(ValueError("no")))
        updating = self._both(self._saving(), self._amending(), raising(ValueError("no")))
        works = [self._saving(), failing, self._saving(), updating, self._amending()]
        await together(self.engine, works)

    async def amend(self) -> None:
        await self.engine.write(OPERATOR, self._amending())

    async def delete(self) -> None:
        deed = self.chance.choice([saves.forget, saves.erase])
        await self.engine.write(OPERATOR, deed, self._id())

    async def rename(self) -> None:
        there, other = self.chance.sample(PROJECTS, 2)
        await self.engine.write(OPERATOR, projects.rename, there, other)

    async def merge(self) -> None:
        there, other = self.chance.sample(PROJECTS, 2)
        await self.engine.write(OPERATOR, projects.merge, there, other)

    async def sweep(self) -> None:
        self.clock.advance(seconds=40)
        await sweeping.sweep_index(self.engine, OPERATOR)

    async def move(self) -> None:
        def moving(tx: Transaction) -> None:
            tx.index.rebalance()  # type: ignore[attr-defined]

        works = [self._saving(), moving, self._saving()]
        await self.engine.write(OPERATOR, self._both(*works[: self.chance.choice([2, 3])]))

    async def rebuild(self) -> None:
        memory, content = self._id(), " ".join(self.chance.choices(WORDS, k=9))

        def mended(tx: Transaction) -> None:
            statement(tx, f"UPDATE memories SET content = '{content}' WHERE id = {memory}")
            for partition in tx.partitions.all():  # type: ignore[attr-defined]
                tx.index.rebuild(partition)  # type: ignore[attr-defined]

        await self.engine.write(OPERATOR, mended)

    async def erase(self) -> None:
        project = self.chance.choice(PROJECTS)
        erasure = await self.engine.write(OPERATOR, projects.begin_erasure, project)
        await self.engine.write(OPERATOR, projects.erase_some, erasure.id)

    def _saving(self) -> Work:
        chance = self.chance
        content = " ".join(chance.choices(WORDS, k=chance.choice([2, 6, 30])))
        draft = Draft(
            session=SessionId(chance.choice("st")),
            space=Space(
                project=chance.choice(PROJECTS), scope=chance.choice(["project", "team", "global"])
            ),
            text=Text(type="note", title=content[:9], content=content, tags=(content[:5],)),
            key=chance.choice([None, None, "k"]),
            lifecycle=LifecycleChange(ttl=chance.choice([None, None, timedelta(seconds=30)])),
        )
        return lambda tx: memories.save(tx, draft, timedelta())

    def _amending(self) -> Work:
        memory, content = self._id(), " ".join(self.chance.choices(WORDS, k=7))

        def work(tx: Transaction) -> None:
            with suppress(Refusal):
                saves.amend(tx, memory, Change(content=content))

        return work

    def _id(self) -> MemoryId:
        return MemoryId(self.chance.randint(1, 60))

    @staticmethod
    def _both(*works: Work) -> Work:
        def work(tx: Transaction) -> None:
            for each in works:
                each(tx)

        return work


@contextmanager
def large_areas(*, dense: int = group.DENSE, have_numpy: bool = False) -> Iterator[None]:
    """Inside, every project in memory is one of which the likely memories are told first."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group, "LARGE", 1)
        patched.setattr(group, "DENSE", dense)
        patched.setattr(area, "LEAST_ADDED", 1)
        if have_numpy:
            pytest.importorskip("numpy", reason=CHECKS)
        else:
            patched.setitem(sys.modules, "numpy", None)
        group.numpy_or_none.cache_clear()
        yield
    group.numpy_or_none.cache_clear()


@pytest.mark.parametrize(
    ("seed", "areas"),
    [
        pytest.param(0, nullcontext, marks=pytest.mark.heavy),
        pytest.param(1, partial(large_areas, dense=1), marks=pytest.mark.heavy),
        pytest.param(2, large_areas, marks=pytest.mark.slow),
        pytest.param(3, partial(large_areas, have_numpy=True), marks=pytest.mark.slow),
    ],
)
async def test_memory_follows_whatever_the_service_does(
    tmp_path: Path, seed: int, areas: Callable[[], AbstractContextManager[None]]
) -> None:
    path, clock, cache = tmp_path / "memory.db", Clock(), IndexCache()
    held: list[int] = []

    with small_partitions(), read_at_once(), areas():
        async with (
            SqliteEngine.opened(path, clock=clock, index_cache=cache) as engine,
            SqliteEngine.opened(path, clock=clock, index_cache=IndexCache(0)) as stored,
        ):
            play = Play(engine, stored, clock, seed)
            for _ in range(STEPS):
                await play.step()
                held.append(cache.size)
            assert play.hits > STEPS
    assert sum(size > 0 for size in held) > STEPS / 2


async def held(cache: IndexCache, asked: Callable[[], Any]) -> None:
    """Return when something is in memory that was asked for."""
    for _ in range(1_000):
        await asked()
        if cache.size:
            return
    raise AssertionError("It was never read into memory.")


@pytest.mark.parametrize("marks", [0, 12])
async def test_a_word_that_is_there_is_known_with_memory_and_without(
    tmp_path: Path, marks: int
) -> None:
    """However many marks it has: a longer word than those whose terms are kept."""
    word = "".join(letter + "\u0301" * marks for letter in "zebra")
    path, clock, cache = tmp_path / "memory.db", Clock(), IndexCache()
    filter_ = Filter(project=Project("demo"))

    with read_at_once():
        async with (
            SqliteEngine.opened(path, clock=clock, index_cache=cache) as engine,
            SqliteEngine.opened(path, clock=clock, index_cache=IndexCache(0)) as stored,
        ):
            for saved in (f"{word} nest", "zebrb stork"):
                await save(engine, saved)

            async def told(asked: SqliteEngine, words: str) -> list[Any]:
                found = await Recall(engine=asked).search(OPERATOR, words, filter_, 9)
                return [(hit.memory.id, hit.rank) for hit in found.hits]

            await held(cache, lambda: told(engine, "stork"))
            assert (await told(engine, "zebra"))[0][0] == 1
            for words in ("zebra", "zebrc", "zebrb"):
                assert await told(engine, words) == await told(stored, words)


@pytest.mark.slow
@pytest.mark.parametrize("areas", [nullcontext, large_areas])
async def test_memory_looks_as_deep_as_the_stored_index(
    tmp_path: Path, areas: Callable[[], AbstractContextManager[None]]
) -> None:
    """Better ones of another type come first, and many are equally good."""
    path, clock, cache = tmp_path / "memory.db", Clock(), IndexCache()
    contents = [("note", "heron")] * 40 + [("decision", f"heron {'egg ' * 30}")] * 30

    with read_at_once(), areas():
        async with (
            SqliteEngine.opened(path, clock=clock, index_cache=cache) as engine,
            SqliteEngine.opened(path, clock=clock, index_cache=IndexCache(0)) as stored,
        ):
            for at, (kind, content) in enumerate(contents):
                draft = Draft(
                    session=SessionId(f"s{at}"), space=Space(project=PROJECTS[0], scope="project"),
                    text=Text(type=kind, title="t", content=content), key=f"k/{at}",
                )  # fmt: skip
                await engine.write(OPERATOR, memories.save, draft, timedelta())

            async def told(asked: SqliteEngine, type_: str | None, limit: int) -> list[Any]:
                filter_ = Filter(project=PROJECTS[0], type=type_)
                found = await Recall(engine=asked).context(OPERATOR, "a heron", filter_, limit)
                return [(hit.memory.id, hit.rank) for hit in found.found.hits]

            await held(cache, lambda: told(engine, None, 5))
            for type_ in (None, "decision"):
                for limit in (5, 21, 30):
                    found = await told(engine, type_, limit)
                    assert len(found) == limit
                    assert found == await told(stored, type_, limit)


async def test_stems_that_are_not_those_of_the_texts_are_found_and_made_anew(path: Path) -> None:
    clock = Clock()

    def damaged(tx: Transaction) -> None:
        tx.index.store_stems([MemoryId(1), MemoryId(2)])  # type: ignore[attr-defined]
        statement(tx, "UPDATE memory_stems SET stems = '1 stork' WHERE memory_id = 1")

    async with SqliteEngine.opened(path, clock=clock) as engine:
        for saved in ("heron nest", "heron egg"):
            await save(engine, saved)
        await engine.maintenance.tidy(OPERATOR)
        assert await engine.maintenance.is_exact(OPERATOR, 0)
        await engine.write(OPERATOR, damaged)
        assert not await engine.maintenance.is_exact(OPERATOR, 0)
        await engine.maintenance.rebuild(OPERATOR, 0)
        assert await engine.maintenance.is_exact(OPERATOR, 0)
