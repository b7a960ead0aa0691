"""Projects in tests: changed over an engine of the test, and looked at from outside."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from agentops_memory.engine.engine import Transaction
from agentops_memory.memory import saves
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memory import Draft, SessionId, Text
from agentops_memory.memory.projects import Projects
from agentops_memory.memory.space import Project, Space
from agentops_memory.sqlite import SqliteEngine

from .engine import run
from .engines import rows
from .service import Clock, Service

T = TypeVar("T")


@dataclass(frozen=True)
class Said:
    """A memory that is saved by a test."""

    project: str
    content: str
    scope: str = "project"
    session: str = "s1"
    key: str | None = None
    is_deleted: bool = False


def unaudited(*_: object, **__: object) -> None:
    """For tests that do not look at the audit."""


def changed(path: Path, said: list[Said], work: Callable[[Projects], Awaitable[T]]) -> T:
    """What work answers, with the projects of a file in which this was said before."""
    answers: list[T] = []
    clock = Clock()

    def saved(tx: Transaction, one: Said) -> None:
        draft = Draft(
            session=SessionId(one.session),
            space=Space(project=Project(one.project), scope=one.scope),
            text=Text(type="note", title=one.content[:20], content=one.content),
            key=one.key,
        )
        memory = saves.save(tx, draft, timedelta()).memory
        if one.is_deleted:
            saves.forget(tx, memory.id)

    async def test(engine: SqliteEngine) -> None:
        for one in said:  # each at an instant of its own
            await engine.write(OPERATOR, saved, one)
            clock.advance(seconds=1)
        answers.append(await work(Projects(engine=engine, audit=unaudited)))

    run(path, test, clock)
    return answers[0]


def texts(path: Path) -> set[str]:
    """All that memories and their histories say."""
    kept = rows(path, "SELECT content FROM memories UNION SELECT content FROM revisions")
    return {content for (content,) in kept if content is not None}


def of_project(path: Path, project: str) -> list[tuple[Any, ...]]:
    """The memories of a project, without their ids in the index."""
    return rows(
        path,
        f"""SELECT m.id, m.uid, s.scope, m.session_id, m.key, m.content, m.deleted_at
              FROM memories m
              JOIN spaces s ON s.id = m.space_id
             WHERE s.project = '{project}'
          ORDER BY m.id""",
    )


def erased(service: Service, project: str, **asked: str) -> Any:
    """The answer to the erasure of a project."""
    return service.http.delete(f"/projects/{project}", params={"hard": "true", **asked})
