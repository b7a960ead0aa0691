"""What the index in memory counts against its bound is what it takes."""

import gc
import tracemalloc
from pathlib import Path

import pytest
from benchmarks.corpus import prompts
from benchmarks.seeding import Size, seeded

from agentops_memory.recall import cache
from agentops_memory.recall.cache import DatabaseIndex

from ..support.process import until
from ..support.service import Service, serving

PROJECTS = 6
SIZE = Size(rows=100 * PROJECTS, projects=PROJECTS)
MADE_BY = [
    tracemalloc.Filter(True, f"*/agentops_memory/{it}")
    for it in ("recall/*", "sqlite/search.py", "agentops/shortcuts.py")
]
SLACK = 0.25  # of the estimate: the allocator's own share is in it, and tracemalloc sees none


@pytest.mark.heavy
def test_what_is_held_takes_as_many_bytes_as_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "REST", 0)
    path = tmp_path / "memory.db"
    seeded(path, SIZE, 1)
    tracemalloc.start(1)
    try:
        with serving(path) as service:
            texts = prompts(2, 6)
            until(lambda: held(ask(service, texts[:1])))
            ask(service, texts)
            (index,) = held(True)
            counted, taken = index.size, tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    real = sum(it.size for it in taken.filter_traces(MADE_BY).statistics("filename"))
    assert counted * (1 - SLACK) < real < counted, (real, counted)


def ask(service: Service, texts: list[str]) -> bool:
    """Ask all projects; true, for a condition."""
    for text in texts:
        for number in range(PROJECTS):
            params = {"project": f"project-{number}", "query": text}
            service.http.get("/context", params=params).raise_for_status()
    return True


def held(_: bool) -> list[DatabaseIndex]:
    """The indexes that hold all memories."""
    every = [it for it in gc.get_objects() if isinstance(it, DatabaseIndex)]
    return [it for it in every if memories(it) == SIZE.rows]


def memories(index: DatabaseIndex) -> int:
    groups = [group for number in index.parts if (group := index.group(number))]
    return sum(group.memories_of(area) for group in groups for area in group.areas)
