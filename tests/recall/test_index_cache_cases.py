"""Projects in memory and the stored index, side by side: what once told them apart."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.memory import projects, saves
from agentops_memory.memory import saves as memories
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memory import Draft, MemoryId, SessionId, Text
from agentops_memory.memory.search import Filter
from agentops_memory.memory.space import Project, Space
from agentops_memory.recall import visibility as document
from agentops_memory.recall.cache import IndexCache
from agentops_memory.recall.features import ALL, Feature
from agentops_memory.recall.recall import Recall
from agentops_memory.sqlite import SqliteEngine

from ..support.service import Clock
from ..support.spelling import SAID, by_hand, mistyped
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

    async def corrected(self, words: list[str], project: str) -> Mapping[str, tuple[str, ...]]:
        """What both make of misspelt words, which is the same."""
        filter_ = Filter(project=Project(project), global_too=True)
        told = [
            await engine.read(OPERATOR, lambda tx: tx.search.corrections(words, filter_))
            for engine in (self.engine, self.stored)
        ]
        assert told[0] == told[1], words
        return told[0]

    async def _found(
        self, engine: SqliteEngine, words: str, project: str
    ) -> list[tuple[int, float]]:
        recall = Recall(engine=engine, features=self.features)
        filter_ = Filter(project=Project(project), global_too=True)
        whole = await recall.context(OPERATOR, words, filter_, 9)
        searched = await recall.search(OPERATOR, words, filter_, 9)
        return [(hit.memory.id, hit.rank) for hit in (*whole.found.hits, *searched.hits)]


def side_by_side(
    path: Path, play: Callable[[Sides], Coroutine[Any, Any, None]], *,
    features: frozenset[Feature] = ALL, most: int = 1 << 25,
) -> None:  # fmt: skip
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


@pytest.mark.slow
@pytest.mark.parametrize("later", ["aa", "dd"])
def test_a_global_memory_has_another_session_when_its_project_was_merged(
    path: Path, later: str
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

    side_by_side(path, play)


@pytest.mark.parametrize("gone", [saves.forget, saves.erase])
def test_a_word_with_many_marks_has_a_term_that_goes_with_it(path: Path, gone: Any) -> None:
    async def play(sides: Sides) -> None:
        await sides.save("zebra", session="a")
        await sides.save("".join(letter + 12 * ACUTE for letter in "zebra"), session="b")
        await sides.save("zebrb", session="c")
        for memory in (1, 2):
            await sides.engine.write(OPERATOR, gone, MemoryId(memory))
        await sides.hold("zebra")
        assert await sides.found("zebra") == await sides.found("zebrb")

    side_by_side(path, play)


def test_words_with_many_marks_take_no_place_of_a_misspelt_one(path: Path) -> None:
    async def play(sides: Sides) -> None:
        marked = "".join(it if it == " " else it + 12 * ACUTE for it in "zebra heron stork crane")
        await sides.save(marked)
        await sides.save("rollback", title="u")
        await sides.hold("zebra")
        found = await sides.found("zebra heron stork crane rolback")
        assert dict(found)[2] < 0

    side_by_side(path, play)


@pytest.mark.heavy
def test_prompts_alone_let_memory_grow_to_its_bound_and_no_further(path: Path) -> None:
    most, slack = 260_000, 5_000

    async def play(sides: Sides) -> None:
        words = [f"w{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}x" for n in range(600)]
        for at in range(0, 600, 30):
            await sides.save(" ".join(words[at : at + 30]), title=str(at))
        await sides.hold(words[0])
        for at in range(0, 600, 6):
            await sides.found(" ".join(words[at : at + 6]))
            assert sides.cache.size < most + slack

    side_by_side(path, play, most=most)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(2))
def test_memory_fts5_and_a_look_at_each_text_correct_alike(
    path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 2)
    chance = random.Random(seed)  # noqa: S311 - the same each time
    texts: dict[str, list[str]] = {name: [] for name in ("heron", "stork", "crane", "global")}

    async def play(sides: Sides) -> None:
        for number in range(60):
            name = chance.choice(list(texts))
            texts[name].append(" ".join(chance.choices(SAID, k=chance.randint(1, 6))))
            place = ("heron", "global") if name == "global" else (name, "project")
            session = f"s{number % 5}"
            await sides.save(texts[name][-1], place[0], scope=place[1], session=session)
        for name in ("heron", "stork", "crane"):
            await sides.hold("worker", name)
            own = ["t", *texts[name], *texts["global"]]
            for _ in range(80):
                words = [mistyped(it, chance) for it in chance.sample(SAID, 6)]
                assert await sides.corrected(words, name) == by_hand(words, own), words

    side_by_side(path, play)
