"""Projects in memory and the stored index, side by side: what once told them apart."""

import asyncio
from array import array
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.memory import memories, writes
from agentops_memory.memory.lifecycle import projects
from agentops_memory.memory.model.access import OPERATOR
from agentops_memory.memory.model.bm25 import Totals
from agentops_memory.memory.model.memory import Draft, MemoryId, SessionId, Text
from agentops_memory.memory.model.search import Filter
from agentops_memory.memory.model.space import Project, Space
from agentops_memory.recall.index_cache import cache as cache_module
from agentops_memory.recall.index_cache import vectors
from agentops_memory.recall.index_cache.area import Area, Codes, Entry
from agentops_memory.recall.index_cache.cache import CachedGroups, IndexCache, Wanted
from agentops_memory.recall.index_cache.writes import IndexWrites
from agentops_memory.recall.recall import Recall
from agentops_memory.recall.text.columns import Columns
from agentops_memory.recall.text.features import ALL, Feature
from agentops_memory.sqlite import SqliteEngine

from ..support.engines import rows
from ..support.service import Clock
from .test_index_cache import read_at_once

ACUTE = "\u0301"


@dataclass(frozen=True, slots=True)
class Sides:
    """An engine with memory, and one on the same file without."""

    engine: SqliteEngine
    stored: SqliteEngine
    cache: IndexCache
    features: frozenset[Feature]

    async def save(self, content: str, project: str = "demo", **fields: Any) -> None:
        text = Text(type="note", title=fields.get("title", "t"), content=content)
        space = Space(project=Project(project), scope=fields.get("scope", "project"))
        draft = Draft(session=SessionId(fields.get("session", "s")), space=space, text=text)
        await self.engine.write(OPERATOR, memories.save, draft, timedelta())

    async def found(self, words: str, project: str = "demo") -> list[tuple[int, float]]:
        """What both find, which is the same."""
        told = [await self._found(it, words, project) for it in (self.engine, self.stored)]
        assert told[0] == told[1], words
        return told[0]

    async def hold(self, words: str, project: str = "demo") -> None:
        """Return when the project is in memory."""
        for _ in range(1_000):
            await self.found(words, project)
            if self.cache.size:
                return
        raise AssertionError("It was never read into memory.")

    async def _found(
        self, engine: SqliteEngine, words: str, project: str
    ) -> list[tuple[int, float]]:
        recall = Recall(engine=engine, features=self.features)
        filter_ = Filter(project=Project(project), global_too=True)
        whole = await recall.context(OPERATOR, words, filter_, 9)
        searched = await recall.search(OPERATOR, words, filter_, 9)
        return [(hit.memory.id, hit.rank) for hit in (*whole.found.hits, *searched.hits)]


def side_by_side(
    path: Path,
    play: Callable[[Sides], Coroutine[Any, Any, None]],
    *,
    features: frozenset[Feature] = ALL,
    most: int = 1 << 25,
) -> None:
    async def whole() -> None:
        clock, cache = Clock(), IndexCache(most)
        async with (
            SqliteEngine.opened(path, clock=clock, features=features, index_cache=cache) as engine,
            SqliteEngine.opened(
                path, clock=clock, features=features, index_cache=IndexCache(0)
            ) as stored,
        ):
            await play(Sides(engine, stored, cache, features))

    with read_at_once():
        asyncio.run(whole())


@pytest.mark.parametrize("later", ["aa", "dd"])
def test_a_global_memory_has_another_session_when_its_project_was_merged(
    tmp_path: Path, later: str
) -> None:
    async def play(sides: Sides) -> None:
        await sides.save("stork", "cc", session="x")
        await sides.save("stork moss", "aa", session="z", scope="global")
        await sides.save("heron nest one", "bb", scope="global", title="a")
        await sides.hold("heron", "cc")
        await sides.found("heron", "cc")
        await sides.engine.write(OPERATOR, projects.merge, Project("bb"), Project("aa"))
        await sides.save("heron egg two", later, scope="global", title="b")
        assert await sides.found("heron", "cc")

    side_by_side(tmp_path / "memory.db", play)


def test_without_words_and_without_memories_nothing_is_divided(tmp_path: Path) -> None:
    async def play(sides: Sides) -> None:
        await sides.save("heron nest")
        await sides.hold("heron")
        await sides.engine.write(OPERATOR, writes.forget, MemoryId(1))
        assert await sides.found("heron") == []
        await sides.save("!!!", title="?")
        await sides.found("heron")

    side_by_side(tmp_path / "memory.db", play, features=ALL - {Feature.PRIOR})


@pytest.mark.parametrize("gone", [writes.forget, writes.erase])
def test_a_word_with_many_marks_has_a_term_that_goes_with_it(tmp_path: Path, gone: Any) -> None:
    async def play(sides: Sides) -> None:
        await sides.save("zebra", session="a")
        await sides.save("".join(letter + 12 * ACUTE for letter in "zebra"), session="b")
        await sides.save("zebrb", session="c")
        for memory in (1, 2):
            await sides.engine.write(OPERATOR, gone, MemoryId(memory))
        await sides.hold("zebra")
        assert rows(tmp_path / "memory.db", "SELECT term FROM terms") == [("zebrb",)]

    side_by_side(tmp_path / "memory.db", play)


def test_words_with_many_marks_take_no_place_of_a_misspelt_one(tmp_path: Path) -> None:
    async def play(sides: Sides) -> None:
        marked = "".join(it if it == " " else it + 12 * ACUTE for it in "zebra heron stork crane")
        await sides.save(marked)
        await sides.save("rollback", title="u")
        await sides.hold("zebra")
        found = await sides.found("zebra heron stork crane rolback")
        assert dict(found)[2] < 0

    side_by_side(tmp_path / "memory.db", play)


def test_prompts_alone_let_memory_grow_to_its_bound_and_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, slack = 60_000, 5_000
    monkeypatch.setattr(cache_module, "MUCH_MORE", 20)  # of some 100 bytes

    async def play(sides: Sides) -> None:
        words = [f"w{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}x" for n in range(600)]
        for at in range(0, 600, 30):
            await sides.save(" ".join(words[at : at + 30]), title=str(at))
        await sides.hold(words[0])
        for at in range(0, 600, 6):
            await sides.found(" ".join(words[at : at + 6]))
            assert sides.cache.size < most + slack

    side_by_side(tmp_path / "memory.db", play, most=most)


def nothing(_: Columns) -> Entry:
    raise AssertionError("Nothing was written.")


def test_what_waits_for_a_reader_counts() -> None:
    cache = IndexCache()
    groups = CachedGroups(cache, (1.0, 1.0, 0.4, 1.0))
    groups.load(Wanted(1, 3, 0), 10, 0.0, [(MemoryId(1), Entry(1, {"heron": 1}))], nothing)
    before, writes_ = cache.size, IndexWrites()
    writes_.note(1, 11, [(9, Columns("t", "x" * 999, "", ""))], 1)
    with groups.writing() as tell:
        tell(writes_)
    assert cache.size == before + 1_000


def test_a_database_that_is_closed_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = IndexCache()
    groups, put = CachedGroups(cache, (1.0, 1.0, 0.4, 1.0)), cache.put

    def closing(*args: Any) -> Any:
        groups.close()
        return put(*args)

    monkeypatch.setattr(cache, "put", closing)
    groups.load(Wanted(1, 3, 0), 10, 0.0, [(MemoryId(1), Entry(1, {"heron": 1}))], nothing)
    assert cache.size == 0
    assert cache.get(groups, 1) is None


class Growing:
    """As numpy, while another thread adds to what is by code."""

    def __init__(self, often: "array[float]") -> None:
        self.numpy: Any = vectors.numpy()
        self.often = often

    def array(self, given: Any) -> Any:
        with memoryview(given):
            self.often.append(0.5)
            return self.numpy.array(given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.numpy, name)


def test_another_thread_may_add_codes_while_numpy_adds_up() -> None:
    often, norms = array("d", [0.4, 1.0]), array("d", [1.0])

    sums = vectors.of_any(Growing(often), [(1.0, array("I", [0, 1]))], often, norms, None)

    assert list(sums) == [0]
    assert len(often) == 3


def test_lengths_are_weighed_by_the_totals_of_the_group_that_are_asked_with() -> None:
    area = Area(Codes((2.0, 1.0, 0.4, 2.0)), [(MemoryId(1), Entry(3, {}))])
    first, second = Totals(1, 3), Totals(2, 30)
    assert [*area.norms(first)] == [*first.norms([3])]
    assert [*area.norms(second)] == [*second.norms([3])]
