"""What the service itself moves, sweeps, merges and undoes is in memory as it is in the index."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.domain.errors import Refusal
from agentops_memory.domain.lifecycle import projects
from agentops_memory.domain.lifecycle.retention import RetentionSweep
from agentops_memory.domain.memories import saves, writes
from agentops_memory.domain.model.access import OPERATOR
from agentops_memory.domain.model.memory import (
    Change,
    Draft,
    LifecycleChange,
    MemoryId,
    SessionId,
    Text,
)
from agentops_memory.domain.model.search import Filter
from agentops_memory.domain.model.space import Project, Space
from agentops_memory.domain.ports.engine import Transaction
from agentops_memory.domain.recall.recall import Recall
from agentops_memory.storage.index_cache.cache import IndexCache
from agentops_memory.storage.sqlite import SqliteEngine

from .engine import Work, raising, save, statement, together
from .service import Clock
from .test_index import small_partitions

STEPS = 70
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
        deed = self.chance.choice([writes.forget, writes.erase])
        await self.engine.write(OPERATOR, deed, self._id())

    async def rename(self) -> None:
        there, other = self.chance.sample(PROJECTS, 2)
        await self.engine.write(OPERATOR, projects.rename, there, other)

    async def merge(self) -> None:
        there, other = self.chance.sample(PROJECTS, 2)
        await self.engine.write(OPERATOR, projects.merge, there, other)

    async def sweep(self) -> None:
        self.clock.advance(seconds=40)
        await RetentionSweep(engine=self.engine).sweep_index(OPERATOR)

    async def move(self) -> None:
        def moving(tx: Transaction) -> None:
            tx.index.rebalance()  # type: ignore[attr-defined]

        works = [self._saving(), moving, self._saving()]
        await self.engine.write(OPERATOR, self._both(*works[: self.chance.choice([2, 3])]))

    async def rebuild(self) -> None:
        memory, content = self._id(), " ".join(self.chance.choices(WORDS, k=9))

        def mended(tx: Transaction) -> None:
            statement(tx, f"UPDATE memories SET content = '{content}' WHERE id = {memory}")
            tx.index.refill([memory])  # type: ignore[attr-defined]

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
        return lambda tx: saves.save(tx, draft, timedelta())

    def _amending(self) -> Work:
        memory, content = self._id(), " ".join(self.chance.choices(WORDS, k=7))

        def work(tx: Transaction) -> None:
            with suppress(Refusal):
                writes.amend(tx, memory, Change(content=content))

        return work

    def _id(self) -> MemoryId:
        return MemoryId(self.chance.randint(1, 60))

    @staticmethod
    def _both(*works: Work) -> Work:
        def work(tx: Transaction) -> None:
            for each in works:
                each(tx)

        return work


@pytest.mark.parametrize("seed", range(4))
def test_memory_follows_whatever_the_service_does(tmp_path: Path, seed: int) -> None:
    path, clock, cache = tmp_path / "memory.db", Clock(), IndexCache()
    held: list[int] = []

    async def whole() -> None:
        async with (
            SqliteEngine.opened(path, clock=clock, index_cache=cache) as engine,
            SqliteEngine.opened(path, clock=clock, index_cache=IndexCache(0)) as stored,
        ):
            play = Play(engine, stored, clock, seed)
            for _ in range(STEPS):
                await play.step()
                held.append(cache.size)
            assert play.hits > STEPS

    with small_partitions():
        asyncio.run(whole())
    assert sum(size > 0 for size in held) > STEPS / 2


def test_what_contradicts_memory_is_read_again(tmp_path: Path) -> None:
    """Words that came into a row behind the index's back, and are taken out of it all the same."""
    path, clock = tmp_path / "memory.db", Clock()
    filter_ = Filter(project=Project("demo"))

    async def whole() -> None:
        async with (
            SqliteEngine.opened(path, clock=clock, index_cache=IndexCache()) as engine,
            SqliteEngine.opened(path, clock=clock, index_cache=IndexCache(0)) as stored,
        ):
            for content in ("heron nest", "heron egg", "stork nest egg"):
                await save(engine, content)
            for word in ("nest egg", "nest egg", "heron"):
                await Recall(engine=engine).search(OPERATOR, word, filter_, 9)
            await engine.write(
                OPERATOR,
                lambda tx: statement(tx, "UPDATE memories SET content = 'egg egg' WHERE id = 1"),
            )
            await engine.write(OPERATOR, writes.amend, MemoryId(1), Change(content="heron"))
            for word in ("nest egg", "heron", "stork"):
                found = [
                    await Recall(engine=it).search(OPERATOR, word, filter_, 9)
                    for it in (engine, stored)
                ]
                told = [[(hit.memory.id, hit.rank) for hit in it.hits] for it in found]
                assert told[0] == told[1]

    asyncio.run(whole())
