"""A look at where projects lie in the index."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from agentops_memory.engine.maintenance import Tidied
from agentops_memory.memory import saves as memories
from agentops_memory.memory.access import Caller
from agentops_memory.memory.space import Space, project_name
from agentops_memory.sqlite.engine import SqliteEngine, SqliteMaintenance

from .engine import Work, draft, run
from .engines import rows
from .recall import search, titles
from .service import Service


def places(path: Path) -> dict[str, set[int]]:
    """The partitions in which projects lie."""
    return _by_project(path, "partition")


def areas(path: Path) -> dict[str, set[int]]:
    """The areas of projects."""
    return _by_project(path, "area")


def _by_project(path: Path, column: str) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for project, value in rows(path, f"SELECT project, {column} FROM spaces WHERE area <> 0"):
        found.setdefault(project, set()).add(value)
    return found


def titles_of(service: Service, project: str) -> list[str]:
    answer = service.http.get("/observations/recent", params={"project": project})
    return titles(answer.json())


def found(service: Service, **asked: str) -> set[int]:
    return {hit["id"] for hit in search(service, "apple", limit=100, **asked)}


def saving(project: str, content: str) -> Work:
    """Work that saves into a project, and answers with the content."""

    def work(tx: Any) -> str:
        given = replace(draft(content), space=Space(project=project_name(project)))
        memories.save(tx, given, timedelta())
        return content

    return work


def inside(path: Path, number: int) -> list[tuple[Any, ...]]:
    """All that the tables of a partition hold, byte for byte."""
    return [
        row
        for table in ("data", "docsize", "idx")
        for row in rows(path, f"SELECT * FROM memories_fts_{number}_{table}")
    ]


def keeping(path: Path, work: Callable[[SqliteMaintenance], Awaitable[None]]) -> None:
    """Run work with the maintenance of a file."""

    async def test(database: SqliteEngine) -> None:
        await work(database.maintenance)

    run(path, test)


def swept(path: Path) -> Tidied:
    """What a sweep found and did."""
    results: list[Tidied] = []

    async def work(maintenance: SqliteMaintenance) -> None:
        results.append(await asyncio.wait_for(maintenance.tidy(Caller()), 60))

    keeping(path, work)
    return results[0]


def plan_of(database: Any, statement: str) -> Iterable[str]:
    """How SQLite reads what a statement asks for; nothing of its own statements."""
    if statement.startswith("--"):
        return []
    return [step for *_, step in database.execute(f"EXPLAIN QUERY PLAN {statement}")]
