"""What is answered from memory is what the stored index answers, to the last bit."""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Refusal
from agentops_memory.jobs import jobs as sweeping
from agentops_memory.local import opened_here
from agentops_memory.memory import projects, saves
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memory import Change, Draft, LifecycleChange, MemoryId, SessionId, Text
from agentops_memory.memory.search import Filter
from agentops_memory.memory.space import Project, Space
from agentops_memory.recall import area, cache, group, stems
from agentops_memory.recall.cache import DatabaseIndex, IndexCache, LoadPlan
from agentops_memory.recall.recall import Recall
from agentops_memory.recall.stems import Entry
from agentops_memory.settings import settings
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.sqlite.areas import StoredAreas
from agentops_memory.sqlite.connection import token_of
from agentops_memory.telemetry import Telemetry

from ..support.chart import CHECKS
from ..support.engine import Work, raising, save, statement, together
from ..support.fast_reads import counted
from ..support.process import until
from ..support.samples import for_each
from ..support.service import Clock
from .test_index import small_partitions

__all__ = ["counted"]

STEPS = 50
PROJECTS = [Project(f"p{number}") for number in range(5)]
WORDS = "heron stork crane nest egg wing max_wings max wings maxwings flight flights".split()
ACUTE = "\u0301"


@dataclass(frozen=True, slots=True)
class Sides:
    """An engine with memory, and one on the same file without."""

    engine: SqliteEngine
    stored: SqliteEngine
    cache: IndexCache
    clock: Clock

    async def save(self, content: str, project: str = "demo", **fields: Any) -> None:
        text = Text(
            type=fields.get("type", "note"), title=fields.get("title", "t"), content=content
        )
        space = Space(project=Project(project), scope=fields.get("scope", "project"))
        session = SessionId(fields.get("session", "s"))
        draft = Draft(session=session, space=space, text=text, key=fields.get("key"))
        await self.engine.write(OPERATOR, saves.save, draft, timedelta())

    async def found(
        self, words: str, project: str = "demo", limit: int = 9, type_: str | None = None
    ) -> list[tuple[int, float]]:
        """What a context and a search of both find, which is the same."""
        filter_ = Filter(project=Project(project), global_too=True, type=type_)
        answers = list[list[tuple[int, float]]]()
        for engine in (self.engine, self.stored):
            recall = Recall(engine=engine)
            whole = await recall.context(OPERATOR, words, filter_, limit)
            searched = await recall.search(OPERATOR, words, filter_, limit)
            hits = (*whole.found.hits, *searched.hits)
            answers.append([(hit.memory.id, hit.rank) for hit in hits])
        assert answers[0] == answers[1], (words, project)
        return answers[0]

    async def hold(self, words: str, project: str = "demo") -> None:
        """Return when the project is in memory."""
        for _ in range(1_000):
            await self.found(words, project)
            if self.cache.size:
                return
        raise AssertionError("It was never read into memory.")


def side_by_side(
    path: Path, play: Callable[[Sides], Awaitable[None]], *, most: int = 1 << 25
) -> None:
    """Play with both; a project is read into memory when it is first asked for, or soon after."""

    async def whole() -> None:
        clock, held = Clock(), IndexCache(most)
        async with (
            SqliteEngine.opened(path, clock=clock, index_cache=held) as engine,
            SqliteEngine.opened(path, clock=clock, index_cache=IndexCache(0)) as stored,
        ):
            await play(Sides(engine, stored, held, clock))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cache, "MAX_DEFERRALS", 1)
        asyncio.run(whole())


class Play:
    """What the service itself moves, sweeps, merges and undoes, by chances that are the same."""

    def __init__(self, sides: Sides, seed: int) -> None:
        self.sides, self.engine = sides, sides.engine
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
            self.hits += len(await self.sides.found(words, project))

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
        self.sides.clock.advance(seconds=40)
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
        return lambda tx: saves.save(tx, draft, timedelta())

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
def large_areas(*, have_numpy: bool = False) -> Iterator[None]:
    """Inside, every project in memory is one of which the likely memories are told first."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group, "LARGE", 1)
        patched.setattr(area, "MIN_ADDED", 1)
        if have_numpy:
            pytest.importorskip("numpy", reason=CHECKS)
        else:
            patched.setitem(sys.modules, "numpy", None)
        group.numpy_if_installed.cache_clear()
        yield
    group.numpy_if_installed.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "areas"),
    [
        (2, large_areas),
        (3, partial(large_areas, have_numpy=True)),
    ],
)
def test_memory_follows_whatever_the_service_does(
    path: Path, seed: int, areas: Callable[[], AbstractContextManager[None]]
) -> None:
    sizes: list[int] = []

    async def play(sides: Sides) -> None:
        chances = Play(sides, seed)
        for _ in range(STEPS):
            await chances.step()
            sizes.append(sides.cache.size)
        assert chances.hits > STEPS

    with small_partitions(), areas():
        side_by_side(path, play)
    assert sum(size > 0 for size in sizes) > STEPS / 2


@pytest.mark.slow
def test_what_has_no_room_is_not_loaded_again_and_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, install = list[int](), DatabaseIndex.install

    def counting(self: DatabaseIndex, token: int, plan: LoadPlan, *of: Any) -> bool:
        loads.append(plan.number)
        return install(self, token, plan, *of)

    async def play(sides: Sides) -> None:
        for number in range(160):
            await sides.save(f"{' '.join(WORDS)} {number}", f"p{number % 8}", session=f"s{number}")
        monkeypatch.setattr(cache, "MAX_DEFERRALS", 20)
        await sides.hold("heron", "p0")
        sides.cache.max_bytes = sides.cache.size + 50_000
        for _ in range(64):
            for project in range(8):
                await sides.found("heron nest", f"p{project}")

    monkeypatch.setattr(DatabaseIndex, "install", counting)
    with small_partitions():
        side_by_side(path, play)
    assert 0 < len(loads) < 16


@pytest.mark.slow
@pytest.mark.parametrize("marks", [0, 12])
def test_a_word_that_is_stored_is_known_with_memory_and_without(path: Path, marks: int) -> None:
    """However many marks it has: a longer word than those whose terms are kept."""

    async def play(sides: Sides) -> None:
        word = "".join(letter + marks * ACUTE for letter in "zebra")
        await sides.save(f"{word} nest")
        await sides.save("zebrb stork")
        await sides.hold("stork")
        assert (await sides.found("zebra"))[0][0] == 1
        for words in ("zebrc", "zebrb"):
            await sides.found(words)

    side_by_side(path, play)


@pytest.mark.slow
@pytest.mark.parametrize("areas", [nullcontext, large_areas])
def test_memory_looks_as_deep_as_the_stored_index(
    path: Path, areas: Callable[[], AbstractContextManager[None]]
) -> None:
    """Better ones of another type come first, and many are equally good."""

    async def play(sides: Sides) -> None:
        for at in range(70):
            type_, content = ("note", "heron") if at < 40 else ("decision", f"heron {'egg ' * 30}")
            await sides.save(content, session=f"s{at}", type=type_, key=f"k/{at}")
        await sides.hold("a heron")
        for kind in (None, "decision"):
            for limit in (5, 21, 30):
                assert len(await sides.found("a heron", limit=limit, type_=kind)) == 2 * limit

    with areas():
        side_by_side(path, play)


@pytest.mark.sqlite_files
async def test_a_commit_of_another_process_while_a_project_is_first_loaded_is_not_missed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards this process commits, too, so that its own commits have a gap."""
    place, load = settings({"MEMORY_DB_PATH": str(path)}), StoredAreas.load
    between: list[Awaitable[object]] = []
    async with opened_here(place, Telemetry()) as here, opened_here(place, Telemetry()) as other:
        loop = asyncio.get_running_loop()
        old = await here.save(session_id="s", project="p", type="note", title="t", content="heron")
        between += [
            other.update(old.id, content="stork"), here.start_session("s2", project="p"),
        ]  # fmt: skip

        async def awaited(work: Awaitable[object]) -> None:
            await work

        def loaded(self: StoredAreas, index: DatabaseIndex, plan: LoadPlan) -> None:
            token_of(self._connection)  # now the snapshot is that of this moment
            while between:
                asyncio.run_coroutine_threadsafe(awaited(between.pop(0)), loop).result()
            load(self, index, plan)

        monkeypatch.setattr(StoredAreas, "load", loaded)
        await here.search("heron", project="p")

        assert not between
        assert not (await here.search("heron", project="p")).hits
        assert [it.id for it in await here.search("stork", project="p")] == [old.id]


@pytest.mark.slow
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


@pytest.mark.slow
def test_memory_is_bounded_and_keeps_nothing_of_what_was_erased(path: Path) -> None:
    most = 40_000

    async def play(sides: Sides) -> None:
        held = sides.cache
        for text in ("zebra one", "zebra two"):
            await sides.save(text)
        await sides.hold("zebra")
        assert held.size <= most

        await sides.engine.write(OPERATOR, saves.erase, MemoryId(1))
        assert held.size == 0
        await save(sides.stored, "zebra three")
        await sides.hold("zebra")
        assert (await sides.found("three"))[0][0] == 3

        await sides.stored.write(OPERATOR, saves.erase, MemoryId(2))
        assert held.size > 0
        await sides.engine.scrub_file(OPERATOR)
        assert held.size == 0

        for number in range(40):
            words = " ".join(f"word{number * 100 + it}" for it in range(100))
            await sides.save(f"zebra {words}")
            await sides.found("zebra")
            await asyncio.to_thread(until, lambda: held.size <= most)

    side_by_side(path, play, most=most)


PART, AREA = 1, 7
WEIGHTS = (1.0, 1.0, 1.0, 1.0)


def entry_of(texts: Iterable[str]) -> Entry:
    return stems.entry_of([it.split() for it in texts])


@pytest.mark.slow
@for_each("seed", range(40))
def test_the_candidate_positions_hold_the_best_and_are_few(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - not secret
    size, depth = chance.choice([500, 2_000]), chance.choice([1, 10, 20])
    terms = [some_scores(chance, size) for _ in range(chance.choice([1, 8, 40]))]
    hidden = frozenset(chance.sample(range(size), chance.choice([0, 3, 200])))
    sums, total = [0.0] * size, 0
    for term in terms:
        total += group.lanes_of(size, [(place, group.bound_of(it)) for place, it in term])
        for place, it in term:
            sums[place] += it
    seen = [0.0 if place in hidden else it for place, it in enumerate(sums)]

    likely = group.candidate_positions(total, size, depth, len(terms), hidden)

    least = sorted(seen, reverse=True)[depth - 1]
    assert {place for place, it in enumerate(seen) if it and it >= least} <= {*likely}
    assert hidden.isdisjoint(likely)
    assert likely == sorted(likely)
    # A sum and the least of the best may each be told larger by a unit a term.
    least -= 2 * len(terms) / group.UNIT
    assert all(seen[place] >= least for place in likely)


def test_the_best_is_likely_where_its_bound_has_a_smaller_upper_byte() -> None:
    size, many = 600, 10
    scores = [[(1, 0.397)] for _ in range(many)] + [[(2, 3.98)]]  # 4 is the first upper byte
    total = sum(
        group.lanes_of(size, [(at, group.bound_of(it)) for at, it in each]) for each in scores
    )

    assert 2 in group.candidate_positions(total, size, 1, len(scores), ())


def some_scores(chance: random.Random, size: int) -> list[tuple[int, float]]:
    """What one term adds, most of it close to what it adds elsewhere."""
    worth = chance.uniform(0.01, 9.0)
    places = sorted(chance.sample(range(size), chance.choice([1, 30, size // 2])))
    return [(place, worth * chance.uniform(0.9, 1.0)) for place in places]
