"""What is answered from memory is what the stored index answers, to the last bit."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.local import LocalService, opened_here
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memory import MemoryId
from agentops_memory.memory.saves import erase
from agentops_memory.memory.search import Filter
from agentops_memory.memory.space import Project
from agentops_memory.recall import cache
from agentops_memory.recall.cache import IndexCache
from agentops_memory.recall.recall import Recall
from agentops_memory.settings.settings import settings
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.telemetry import Telemetry
from agentops_memory_client import AsyncMemoryClient

from ..support.engine import save
from ..support.histories import any_observation, any_text
from ..support.process import until
from ..support.samples import sampled
from ..support.service import Clock, Service, serving

STEPS = 40
PROJECTS = ("heron", "stork", "crane")
WORDS = (
    "deploy deploys deployment rollback worker queue retry timeout café naïve 東京都 kyoto "
    "max_connections maxConnections max connections maxconnections main HTTPServer v1.2 "
    "src/app/main.py went going noise noises \u3c3b\u0300 \u0301 "
    "the of index schema migration postgres sqlite vacuum 42 x"
).split()
TYPOS = ("rolback", "migratoin", "postgers", "noisse")


@asynccontextmanager
async def stored(path: Path, clock: Clock, **variables: str) -> AsyncIterator[LocalService]:
    """The same file for a program of another process, which holds nothing of it in memory."""
    environment = {"MEMORY_DB_PATH": str(path), "MEMORY_INDEX_CACHE": "0", **variables}
    given = settings(environment)
    async with opened_here(given, Telemetry.started(None), clock=clock) as local:
        yield local


@contextmanager
def read_at_once() -> Iterator[None]:
    """Inside, a project is read into memory when it is first asked for, or soon afterwards."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cache, "PATIENCE", 1)
        patched.setattr(cache, "REST", 0)
        yield


class Play:
    """A service, another program on its file, and chances that are the same each time."""

    def __init__(
        self, service: Service, remote: AsyncMemoryClient, local: LocalService, seed: int
    ) -> None:
        self.service, self.remote, self.local = service, remote, local
        self.chance = random.Random(seed)  # noqa: S311 - the same each time
        self.done: list[str] = []
        self.last = 1

    async def step(self) -> None:
        deeds = [self.save] * 6 + [self.change] * 2 + [self.delete, self.erase, self.expire]
        deeds += [self.save_elsewhere, self.supersede, self.pin, self.import_, self.rename]
        for _ in range(self.chance.randint(1, 3)):
            await self.chance.choice(deeds)()
        for _ in range(2):
            await self.compare()

    async def compare(self) -> None:
        chance = self.chance
        project = chance.choice(PROJECTS)
        words = chance.choices([*WORDS, *TYPOS], k=chance.choice([1, 2, 3, 12, 30]))
        text = chance.choice([" ".join(words), ". ".join(words[:6])])
        asked: dict[str, Any] = {"project": project, "limit": chance.choice([1, 5, 20])}
        if chance.random() < 0.3:
            asked |= chance.choice(
                [
                    {"tag": "worker"}, {"scope": "team"}, {"scope": "global"}, {"explain": True},
                    {"exclude_types": ["discovery"]},
                ]
            )  # fmt: skip
        for side in (self.remote.search, self.remote.context):
            own = self.local.search if side == self.remote.search else self.local.context
            assert await side(query=text, **asked) == await own(query=text, **asked), (
                side.__name__, text, asked, self.done,
            )  # fmt: skip

    async def save(self) -> None:
        self._post(self._body())

    async def save_elsewhere(self) -> None:
        body = self._body() | {"session_id": "elsewhere"}
        self.done.append(f"elsewhere {body}")
        await self.local.save(**body)

    async def change(self) -> None:
        self._ask("PATCH", f"/observations/{self._id()}", {"content": self._text()})

    async def delete(self) -> None:
        self._ask("DELETE", f"/observations/{self._id()}")

    async def erase(self) -> None:
        self._ask("DELETE", f"/observations/{self._id()}?hard=true")

    async def supersede(self) -> None:
        self._post(self._body() | {"supersedes": [self._id()]})

    async def pin(self) -> None:
        self._ask("PATCH", f"/observations/{self._id()}", {"pinned": True})

    async def expire(self) -> None:
        self._post(self._body() | {"ttl": 60})
        if self.chance.random() < 0.5:
            self.service.clock.advance(seconds=61)

    async def import_(self) -> None:
        rows = self.service.http.get("/export", params={"project": "heron"}).text
        renamed = rows.replace('"project":"heron"', '"project":"stork"')
        self.service.http.post("/import", content=renamed)
        self.done.append("import")

    async def rename(self) -> None:
        name = self.chance.choice(PROJECTS)
        self._ask("DELETE", f"/projects/{name}")

    def _body(self) -> dict[str, Any]:
        return any_observation(self.chance, WORDS, PROJECTS)

    def _text(self) -> str:
        return any_text(self.chance, WORDS)

    def _id(self) -> int:
        return self.chance.randint(1, self.last)

    def _post(self, body: dict[str, Any]) -> None:
        answer = self._ask("POST", "/observations", body)
        self.last = max(self.last, answer.get("id", 0))

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = self.service.http.request(method, path, json=body)
        self.done.append(f"{method} {path} {body} {answer.status_code}")
        assert answer.status_code < 500
        told: dict[str, Any] = answer.json() if answer.content else {}
        return told


@pytest.mark.heavy
@pytest.mark.parametrize("seed", sampled(range(2), 2))
def test_memory_answers_as_the_stored_index(path: Path, seed: int) -> None:
    # Without the prior a few memories make words common: BM25 gives them a least worth.
    without = "prior" if seed % 2 else ""

    async def whole(service: Service) -> None:
        async with (
            AsyncMemoryClient(service.url) as remote,
            stored(service.path, service.clock, MEMORY_RECALL_WITHOUT=without) as local,
        ):
            play = Play(service, remote, local, seed)
            for _ in range(STEPS):
                await play.step()

    with read_at_once(), serving(path, MEMORY_RECALL_WITHOUT=without) as service:
        asyncio.run(whole(service))


@pytest.mark.slow
def test_memory_is_bounded_and_keeps_nothing_of_what_was_erased(path: Path) -> None:
    held = IndexCache(40_000)
    clock = Clock()

    async def asked(engine: SqliteEngine, times: int = 2, text: str = "zebra") -> int:
        recall = Recall(engine=engine)
        for _ in range(times):
            found = await recall.search(OPERATOR, text, Filter(project=Project("demo")), 5)
        return len(found.hits)

    async def until_held(engine: SqliteEngine, text: str = "zebra") -> None:
        for _ in range(1_000):
            if held.size:
                return
            await asked(engine, 1, text)
        raise AssertionError("It was never read into memory.")

    async def whole() -> None:
        async with (
            SqliteEngine.opened(path, clock=clock, index_cache=held) as engine,
            SqliteEngine.opened(path, clock=clock) as elsewhere,
        ):
            for text in ("zebra one", "zebra two"):
                await save(engine, text)
            assert await asked(engine, 1) == 2
            await until_held(engine)
            assert await asked(engine) == 2
            assert held.size <= 40_000

            await engine.write(OPERATOR, erase, MemoryId(1))
            assert held.size == 0
            assert await asked(engine, 1) == 1

            await save(elsewhere, "zebra three")
            await until_held(engine)
            assert await asked(engine) == 2
            assert await asked(engine, text="three") == 1

            await elsewhere.write(OPERATOR, erase, MemoryId(2))
            assert held.size > 0
            await engine.scrub_file(OPERATOR)
            assert held.size == 0

            for number in range(40):
                words = " ".join(f"word{number * 100 + it}" for it in range(100))
                await save(engine, f"zebra {words}")
                await asked(engine, 3)
                await asyncio.to_thread(until, lambda: held.size <= 40_000)

    asyncio.run(whole())
