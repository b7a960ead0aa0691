"""What the service itself moves, sweeps, merges and undoes is in memory as it is in the index."""

import asyncio
import random
import sys
from array import array
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Refusal
from agentops_memory.jobs.retention import RetentionSweep
from agentops_memory.memory import memories, writes
from agentops_memory.memory.lifecycle import projects
from agentops_memory.memory.model.access import OPERATOR
from agentops_memory.memory.model.bm25 import Postings, Totals, lowest, of_any
from agentops_memory.memory.model.memory import (
    Change,
    Draft,
    LifecycleChange,
    MemoryId,
    SessionId,
    Text,
)
from agentops_memory.memory.model.search import Filter
from agentops_memory.memory.model.space import Project, Space
from agentops_memory.recall.index_cache import area, vectors
from agentops_memory.recall.index_cache import cache as cache_module
from agentops_memory.recall.index_cache.area import Entry
from agentops_memory.recall.index_cache.cache import PATIENCE, CachedGroups, IndexCache, Wanted
from agentops_memory.recall.index_cache.rows import row_number
from agentops_memory.recall.index_cache.writes import IndexWrites
from agentops_memory.recall.recall import Recall
from agentops_memory.recall.text.columns import Columns
from agentops_memory.sqlite import SqliteEngine

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
        return lambda tx: memories.save(tx, draft, timedelta())

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


@contextmanager
def large_areas(*, have_numpy: bool = True) -> Iterator[None]:
    """Inside, every project in memory is one for which numpy pays, if it is there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(vectors, "LARGE", 1)
        patched.setattr(area, "LEAST_CHANGED", 1)
        if not have_numpy:
            patched.setitem(sys.modules, "numpy", None)
        vectors.numpy.cache_clear()
        yield
    vectors.numpy.cache_clear()


@pytest.mark.parametrize(
    ("seed", "areas"),
    [
        (0, nullcontext),
        pytest.param(1, large_areas, marks=pytest.mark.heavy),
        (2, partial(large_areas, have_numpy=False)),
        pytest.param(3, large_areas, marks=pytest.mark.heavy),
    ],
)
def test_memory_follows_whatever_the_service_does(
    tmp_path: Path, seed: int, areas: Callable[[], AbstractContextManager[None]]
) -> None:
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

    with small_partitions(), read_at_once(), areas():
        asyncio.run(whole())
    assert sum(size > 0 for size in held) > STEPS / 2


async def held(cache: IndexCache, asked: Callable[[], Any]) -> None:
    """Return when something is in memory that was asked for."""
    for _ in range(1_000):
        await asked()
        if cache.size:
            return
    raise AssertionError("It was never read into memory.")


@pytest.mark.parametrize("is_read_before", [True, False])
def test_what_contradicts_memory_is_told_by_the_stored_index(
    tmp_path: Path, is_read_before: bool
) -> None:
    """Words that came into a row behind the index's back, and are taken out of it all the same."""
    path, clock, cache = tmp_path / "memory.db", Clock(), IndexCache()
    filter_ = Filter(project=Project("demo"))

    content = "egg egg" if is_read_before else "egg egg egg"

    def behind(tx: Transaction) -> None:
        statement(tx, f"UPDATE memories SET content = '{content}' WHERE id = 1")

    async def whole() -> None:
        async with (
            SqliteEngine.opened(path, clock=clock, index_cache=cache) as engine,
            SqliteEngine.opened(path, clock=clock, index_cache=IndexCache(0)) as stored,
        ):

            async def told(asked: SqliteEngine, word: str) -> list[Any]:
                found = await Recall(engine=asked).search(OPERATOR, word, filter_, 9)
                return [(hit.memory.id, hit.rank) for hit in found.hits]

            for saved in ("heron nest", "heron egg", "stork nest egg"):
                await save(engine, saved)
            if is_read_before:
                await held(cache, lambda: told(engine, "nest egg"))
            await engine.write(OPERATOR, behind)
            if is_read_before:
                await engine.write(OPERATOR, writes.amend, MemoryId(1), Change(content="heron"))
            for word in ("nest egg", "heron", "stork", "egg", "nest egg"):
                assert await told(engine, word) == await told(stored, word)

    with read_at_once():
        asyncio.run(whole())


@pytest.mark.parametrize("marks", [0, 12])
def test_a_word_that_is_there_is_known_with_memory_and_without(tmp_path: Path, marks: int) -> None:
    """However many marks it has: a longer word than those whose terms are kept."""
    word = "".join(letter + "\u0301" * marks for letter in "zebra")
    path, clock, cache = tmp_path / "memory.db", Clock(), IndexCache()
    filter_ = Filter(project=Project("demo"))

    async def whole() -> None:
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

    with read_at_once():
        asyncio.run(whole())


@pytest.mark.parametrize("areas", [nullcontext, large_areas])
def test_memory_looks_as_deep_as_the_stored_index(
    tmp_path: Path, areas: Callable[[], AbstractContextManager[None]]
) -> None:
    """Better ones of another type come first, and many are equally good."""
    path, clock, cache = tmp_path / "memory.db", Clock(), IndexCache()
    contents = [("note", "heron")] * 40 + [("decision", f"heron {'egg ' * 30}")] * 30

    async def whole() -> None:
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

    with read_at_once(), areas():
        asyncio.run(whole())


def test_what_changes_while_a_project_is_read_is_in_memory_afterwards() -> None:
    groups = CachedGroups(IndexCache(), (2.0, 1.0, 0.4, 2.0))
    once, twice = Entry(2, {"heron": 1, "egg": 1}), Entry(1, {"heron": 1})

    def entry_of(said: Columns) -> Entry:
        return Entry(len(said.content.split()), dict.fromkeys(said.content.split(), 1))

    def written(version: int, memory: int, content: str, sign: int) -> None:
        with groups.writing() as hand_over:
            writes = IndexWrites()
            writes.note(7, version, [(row_number(3, memory), Columns("", content, "", ""))], sign)
            hand_over(writes)

    def entries() -> Iterator[tuple[MemoryId, Entry]]:
        yield MemoryId(1), once
        written(11, 1, "heron egg", -1)
        written(12, 9, "stork", 1)
        with groups.reading(7, 12, 0.0, entry_of) as group:  # it has caught up before the end
            assert group is not None
        yield MemoryId(2), twice

    groups.load(Wanted(7, 3, 0), 10, 0.0, entries(), entry_of)
    with groups.reading(7, 12, 0.0, entry_of) as group:
        assert group is not None
        (known,) = group.areas([3]) or []
        there = {
            stem: sorted(known.memories[at] for at in known.postings(it, 1.0, own=False).places)
            for stem, it in known.found(["heron", "egg", "stork"]).items()
        }
        assert there == {"heron": [2], "stork": [9]}


def test_what_was_not_read_to_the_end_is_not_in_memory() -> None:
    groups = CachedGroups(IndexCache(), (2.0, 1.0, 0.4, 2.0))
    seen = []

    def entry_of(_: Columns) -> Entry:
        raise AssertionError("Nothing was written.")

    def entries() -> Iterator[tuple[MemoryId, Entry]]:
        yield MemoryId(1), Entry(1, {"heron": 1})
        with groups.reading(7, 10, 0.0, entry_of) as group:  # by who has it before it goes
            seen.append(group)
        groups.drop(7)
        yield MemoryId(2), Entry(1, {"heron": 1})

    groups.load(Wanted(7, 3, 0), 10, 0.0, entries(), entry_of)

    (group,) = seen
    assert group is not None
    assert group.areas([3]) is None


def next_wanted(groups: CachedGroups) -> Wanted | None:
    with groups.loading() as wanted:
        return wanted


def test_a_project_is_read_when_prompts_have_asked_often_and_not_soon_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = CachedGroups(IndexCache(), (1.0, 1.0, 0.4, 1.0))
    for _ in range(PATIENCE - 1):
        groups.want(7, [3])
    assert next_wanted(groups) is None
    groups.want(7, [3])
    monkeypatch.setattr(cache_module, "REST", 10**9)  # times as long as the last one took
    wanted = next_wanted(groups)
    assert wanted is not None
    assert (wanted.number, wanted.area) == (7, 3)

    for _ in range(PATIENCE):
        groups.want(7, [4])
    assert next_wanted(groups) is None

    groups = CachedGroups(IndexCache(), (1.0, 1.0, 0.4, 1.0))
    groups.refuse(wanted)
    for _ in range(10 * PATIENCE):
        groups.want(7, [3])
    assert next_wanted(groups) is None  # what cannot be read is not tried again and again


def test_of_more_projects_than_there_is_room_for_those_in_use_stay() -> None:
    def entry_of(_: Columns) -> Entry:
        raise AssertionError("Nothing was written.")

    groups = CachedGroups(IndexCache(3_000), (1.0, 1.0, 0.4, 1.0))
    entries = [(MemoryId(it), Entry(1, {"heron": 1})) for it in range(9)]
    groups.load(Wanted(1, 3, 0), 10, 0.0, entries, entry_of)
    asked = Wanted(2, 4, 0)
    assert groups.admit(asked, 2)  # nobody has asked for the other one since
    with groups.reading(1, 10, 0.0, entry_of) as group:
        assert group is not None
    assert not groups.admit(asked, 2)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.dictionaries(st.integers(0, 30), st.integers(0, 4), max_size=20), max_size=6),
    st.lists(st.integers(1, 400), min_size=31, max_size=31),
    st.integers(1, 12),
)
def test_numpy_adds_up_as_the_domain(
    stems: list[dict[int, int]], lengths: list[int], most: int
) -> None:
    numpy, often = vectors.numpy(), array("d", (0.4, 1.0, 1.4, 2.0, 3.0))
    assert numpy is not None
    norms = array("d", Totals(rows=1_600, words=160_000).norms(lengths))
    postings = [
        (0.1 + at, array("I", chain.from_iterable(it.items()))) for at, it in enumerate(stems)
    ]
    memories = [MemoryId(100 - at) for at in range(31)]
    asked = [Postings(idf, it[::2], [often[code] for code in it[1::2]]) for idf, it in postings]
    sums = of_any(asked, norms)
    assert vectors.of_any(numpy, postings, often, norms, None) == sums
    best = vectors.of_any(numpy, postings, often, norms, most)
    assert lowest([(best, memories)], most) == lowest([(sums, memories)], most)


def test_an_area_that_was_refused_is_not_read_because_it_waited_already() -> None:
    groups = CachedGroups(IndexCache(), [1.0])
    with read_at_once():
        groups.want(0, [1])
        with groups.loading() as wanted:
            assert wanted is not None
            groups.admit(wanted, 1)
            groups.want(0, [1])  # by another reader, meanwhile
        groups.refuse(wanted)
        with groups.loading() as again:
            assert again is None
        groups.want(0, [2])
        with groups.loading() as other:
            assert other is not None
            assert other.area == 2
