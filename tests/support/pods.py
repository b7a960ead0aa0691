"""Two services on one database of PostgreSQL, as two pods are, and requests that race over them."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agentops_memory.memory.access import OPERATOR
from agentops_memory.postgresql.connection import with_placeholders
from agentops_memory.postgresql.engine import PostgresEngine

from .engines import DATABASE_URL
from .files import assert_areas_are_whole
from .service import PLAIN, Clock, Service, serving

RACERS = 8
TIMEOUT = 60.0  # seconds; whatever a test waits for comes long before

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pods:
    """Services of one database, which the test may look into."""

    services: tuple[Service, ...]
    url: str

    @property
    def http(self) -> httpx.Client:
        """A client of the first of them."""
        return self.services[0].http

    @property
    def clock(self) -> Clock:
        return self.services[0].clock

    def at_once(self, *works: Callable[[httpx.Client], T]) -> list[T]:
        """What the works give, all begun together, each on the next pod."""
        start = threading.Barrier(len(works))

        def work(number: int) -> T:
            url = self.services[number % len(self.services)].url
            with httpx.Client(base_url=url, timeout=TIMEOUT, verify=PLAIN) as http:
                start.wait(TIMEOUT)
                return works[number](http)

        with ThreadPoolExecutor(len(works)) as threads:
            return [*threads.map(work, range(len(works)))]

    def racing(self, work: Callable[[httpx.Client, int], T], racers: int = RACERS) -> list[T]:
        """What so many racers give, each of which is told its number."""
        return self.at_once(*(lambda http, it=it: work(http, it) for it in range(racers)))

    def rows(self, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
        """What a query answers in the schema of the default tenant."""
        return looked(self.url, statement, **parameters)

    def assert_index_is_whole(self) -> None:
        assert_index_is_whole(self.url)


@contextmanager
def pods(path: Path, url: str, count: int = 2, **variables: str) -> Iterator[Pods]:
    """Services of the database at the URL, with one clock."""
    given = {DATABASE_URL: url, "MEMORY_SWEEP_EVERY": "0", **variables}
    clock = Clock()
    with ExitStack() as stack:
        begun = [
            stack.enter_context(serving(path, clock=clock, telemetry=None, **given))
            for _ in range(count)
        ]
        yield Pods(tuple(begun), url)


@pytest.fixture
def two(tmp_path: Path, postgresql: str) -> Iterator[Pods]:
    with pods(tmp_path / "postgresql", postgresql) as both:
        yield both


@pytest.fixture
def one(tmp_path: Path, postgresql: str) -> Iterator[Pods]:
    with pods(tmp_path / "postgresql", postgresql, count=1) as single:
        yield single


def looked(url: str, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
    """What a statement answers in the schema of the default tenant."""
    with psycopg.connect(make_conninfo(url, options='-c search_path="t_default"')) as connection:
        cursor = connection.execute(with_placeholders(statement).encode(), parameters)
        return cursor.fetchall() if cursor.description else []


def assert_index_is_whole(url: str) -> None:
    """Each area of it holds just the live memories that lie in it, word for word."""

    async def look() -> None:
        async with PostgresEngine.opened(url, clock=Clock()) as engine:
            await engine.read(OPERATOR, assert_areas_are_whole)

    asyncio.run(look())
