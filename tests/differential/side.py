"""One of two services that are asked the same."""

import asyncio
import re
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx
import psycopg

from agentops_memory.engine.engine import Engine
from agentops_memory.errors import Refusal
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.projects import Projects
from agentops_memory.memory.space import Project
from agentops_memory.postgresql.engine import PostgresEngine
from agentops_memory.sqlite import SqliteEngine

from ..support.engines import rows
from ..support.postgres import ordered
from ..support.projects import unaudited
from ..support.service import Clock, serving
from .names import Names
from .steps import NOTHING, RESTART, Answer, Step

# What is of the moment, of the process, or of the kind of storage.
LEFT_OUT = {"date", "content-length", "connection", "transfer-encoding"}
_OF_THE_STORAGE = re.compile(
    r',"(?:bytes_gone_at|bytesGoneAt)":"[^"]*"'
    r'|,"(?:copies_not_reached|notReached)":\[[^\]]*\]'
)


class Side:
    """A service, its names, and its database if it is no file."""

    def __init__(self, path: Path, variables: dict[str, str], url: str | None = None) -> None:
        self._path = path
        self._variables: dict[str, Any] = variables
        self._url = url
        self._clock = Clock()
        self._names = Names()
        self._running = ExitStack()

    def start(self) -> None:
        running = serving(self._path, clock=self._clock, **self._variables)
        self._http = self._running.enter_context(running).http

    def stop(self) -> None:
        self._running.close()

    def done(self, step: Step) -> Answer:
        """What came of a step."""
        if step.seconds:
            self._clock.advance(seconds=step.seconds)
            return NOTHING
        if step.method == RESTART:
            self.stop()
            # Ids of one instant are in order within one process alone.
            self._clock.advance(seconds=1)
            self.start()
            return NOTHING
        return self._changed(step) if step.method in ("rename", "merge") else self._asked(step)

    def is_settled(self) -> bool:
        """Whether nothing is being erased, whose words would still count."""
        going = "SELECT id FROM erasures WHERE goes_on"
        if self._url is None:
            return rows(self._path, going) == []
        with psycopg.connect(self._url, options='-c search_path="t_default"') as connection:
            return connection.execute(going).fetchall() == []

    def analyze(self) -> None:
        """Let the planner know what is there, as autovacuum does; without, it expects no row."""
        if self._url is not None:
            ordered(self._url, "ANALYZE")

    def _asked(self, step: Step) -> Answer:
        real = self._names.real
        answer = self._http.request(
            step.method,
            real(step.path),
            content=real(step.body).encode("utf-8", "surrogateescape"),
            headers=[(name.encode(), real(it).encode()) for name, it in step.headers.items()],
        )
        return self._named(answer, step.number)

    def _named(self, answer: httpx.Response, number: int) -> Answer:
        naming = self._names.naming(number)
        text = _OF_THE_STORAGE.sub("", answer.content.decode("utf-8", "surrogateescape"))
        told = [it for it in answer.headers.multi_items() if it[0] not in LEFT_OUT]
        return Answer(
            status=answer.status_code,
            text=naming(text),
            headers=tuple((name, naming(value)) for name, value in sorted(told)),
        )

    def _changed(self, step: Step) -> Answer:
        """What came of work on projects, as a command does it beside the service."""
        projects = [Project(name) for name in step.path.split(" ")]

        async def change() -> str:
            async with self._opened() as engine:
                work: Any = getattr(Projects(engine=engine, audit=unaudited), step.method)
                try:
                    return str(await work(OPERATOR, *projects))
                except Refusal as refusal:
                    return repr(refusal)

        return Answer(status=0, headers=(), text=asyncio.run(change()))

    def _opened(self) -> AbstractAsyncContextManager[Engine]:
        """An engine of its own, as a command has it."""
        if self._url is not None:
            return PostgresEngine.opened(self._url, clock=self._clock)
        return SqliteEngine.opened(self._path, clock=self._clock)
