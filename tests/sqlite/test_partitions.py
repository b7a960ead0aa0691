"""The index lies in partitions: what shares one, what a read sees, damage that is mended, moves."""

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from agentops_memory.memory import space as kinds
from agentops_memory.memory.access import Caller
from agentops_memory.memory.space import IndexGroup
from agentops_memory.recall import visibility as document
from agentops_memory.recall.visibility import PRIOR
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.sqlite.connection import connect

from ..support.engine import run
from ..support.engines import rows
from ..support.files import assert_index_is_whole, imported, put_in_index
from ..support.process import until
from ..support.recall import context, search, titles
from ..support.service import Service, observation
from ..support.stores import at, store


def places(path: Path, column: str = "partition") -> dict[str, set[int]]:
    """The partitions in which projects lie, or their areas."""
    found: dict[str, set[int]] = {}
    for project, value in rows(path, f"SELECT project, {column} FROM spaces WHERE area <> 0"):
        found.setdefault(project, set()).add(value)
    return found


def moved(path: Path) -> int:
    """How many projects a sweep moves."""
    counts: list[int] = []

    async def sweep(database: SqliteEngine) -> None:
        counts.append((await database.maintenance.tidy(Caller())).moved)

    run(path, sweep)
    return counts[0]


SCOPES = ("global", "project", "team", "personal")
LIE: dict[str, tuple[dict[str, int], list[tuple[str, str]], dict[str, set[int]]]] = {
    "eight projects share one": (
        {}, [(f"p{it}", "project") for it in range(17)], {f"p{it}": {it // 8} for it in range(17)},
    ),
    "after enough memories the next begins": (
        {"MOST_MEMORIES": 3}, [(it, "project") for it in "aabacd"],
        {"a": {0}, "b": {0}, "c": {1}, "d": {1}},
    ),
    "only live memories fill one": (
        {"MOST_MEMORIES": 2}, [("a", "project"), ("a", "deleted"), ("b", "project")],
        {"a": {0}, "b": {0}},
    ),
    "all scopes of a project": (
        {"MOST_PROJECTS": 1}, [(it, scope) for it in "aba" for scope in SCOPES],
        {"a": {0}, "b": {1}},
    ),
    "there are no more than there may be": (
        {"MOST_PROJECTS": 1, "NUMBERS": 2}, [(it, "project") for it in "abcde"],
        {it: {at % 2} for at, it in enumerate("abcde")},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LIE)
def test_where_projects_lie(service: Service, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    limits, saves, expected = LIE[name]
    for limit, most in limits.items():
        if limit == "NUMBERS":
            monkeypatch.setitem(kinds.NUMBERS, IndexGroup.PROJECTS, range(most))
        else:
            monkeypatch.setattr(document, limit, most)
    for number, (project, scope) in enumerate(saves):
        where = "project" if scope == "deleted" else scope
        saved = service.save("apple", project=project, scope=where, type=f"t{number}")
        if scope == "deleted":
            service.http.delete(f"/observations/{saved['id']}")

    assert places(service.path) == expected
    assert {len(numbers) for numbers in places(service.path, "area").values()} == {1}
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_global_memories_are_found_from_every_project_and_in_all_of_them_each_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    for project in "abcd":
        service.save("apple for all", title=f"all {project}", project=project, scope="global")
        service.save("apple", title=project, project=project)
    service.save("apple for all", title="all none", project="none", scope="global")
    everywhere = {f"all {it}" for it in ("a", "b", "c", "d", "none")}

    for project in ("a", "b", "c", "d", "none", "never"):
        hits = titles(search(service, "apple", project=project, limit=50))
        assert Counter(hits) == Counter(everywhere | ({project} & {*"abcd"}))
        assert Counter(context(service, "apple", project=project, limit=50)) == Counter(hits)

    service.save("apple apple apple", title="best", project="c")
    every = search(service, "apple", limit=50)
    assert Counter(titles(every)) == Counter({*everywhere, *"abcd", "best"})
    order = [(hit["rank"], hit["id"]) for hit in every]
    assert order == sorted(order)
    for limit in range(1, 10):
        assert search(service, "apple", limit=limit) == every[:limit]
    assert_index_is_whole(service.path)


def test_an_import_puts_a_global_memory_once_into_a_partition_made_right_behind_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    service.save("apple", project="p0", scope="global")
    body = [
        observation("apple one", project="p0", scope="global"),
        observation("apple two", project="p0", scope="global"),
        observation("apple", project="p1"),
        observation("apple", project="p2"),
    ]
    refused = [observation("banana", project="new"), observation("", project="newer")]

    assert service.http.post("/import", json={"observations": refused}).status_code == 400
    assert rows(service.path, "SELECT number FROM partitions") == [(0,)]
    imported(service, body)

    assert len(set().union(*places(service.path).values())) == 2
    assert [len(search(service, "apple", project=f"p{n}", limit=50)) for n in range(3)] == [3, 4, 4]
    assert_index_is_whole(service.path)


HARMS = (
    f"DELETE FROM memories_fts_1_docsize WHERE id & 1 = 0 AND id < {PRIOR}",
    "INSERT INTO memories_fts_1 (rowid, title) VALUES (99 << 40 | 99, 'bogus')",
    """INSERT INTO memories_fts_1 (memories_fts_1, rowid, title, content, context, tags)
       SELECT 'delete', id, title, 'pear', context, tags FROM memory_text_1 LIMIT 1""",
)


@pytest.mark.slow
def test_damage_is_seen_in_its_partition_and_mended_there_alone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    for project in ("a", "b", "c"):
        for content in ("apple", "cherry"):
            service.save(content, project=project, session_id=content)
    put_in_index(service.path)
    others = [
        rows(service.path, f"SELECT * FROM memories_fts_{number}_{table}")
        for number in (0, 2)
        for table in ("data", "docsize", "idx")
    ]

    async def mended(database: SqliteEngine) -> None:
        maintenance, numbers = database.maintenance, range(3)
        for harm in HARMS:
            rows(service.path, harm)
            assert await maintenance.drifts(Caller()) == {0: 0, 1: 1, 2: 0}
            exact = [await maintenance.is_exact(Caller(), number) for number in numbers]
            assert exact == [True, False, True]
            await maintenance.rebuild(Caller(), 1)
            assert await maintenance.drifts(Caller()) == {0: 0, 1: 0, 2: 0}
            assert await maintenance.is_exact(Caller(), 1)

    run(service.path, mended)

    assert others == [
        rows(service.path, f"SELECT * FROM memories_fts_{number}_{table}")
        for number in (0, 2)
        for table in ("data", "docsize", "idx")
    ]
    assert [hit["id"] for hit in search(service, "apple", project="b")] == [3]
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_the_smallest_project_is_moved_to_a_partition_that_is_made_for_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(**narrowed: str) -> set[int]:
        return {hit["id"] for hit in search(service, "apple", limit=100, **narrowed)}

    monkeypatch.setattr(document, "OVERSIZED", 1)
    for number in range(5):
        service.save(f"apple {number}", project="large", scope="team" if number == 1 else "project")
    assert moved(service.path) == 0  # it is alone
    service.save("apple for all", title="all", scope="global")
    for project, count in (("medium", 3), ("small", 2)):
        for number in range(count):
            scope = "team" if number == 1 else "project"
            service.save(f"apple {number}", project=project, scope=scope)
    asked = [{}, *({"project": it} for it in ("large", "medium", "small"))]
    before = [found(**narrowed) for narrowed in asked]
    monkeypatch.setattr(document, "MOST_MEMORIES", 2)
    with monkeypatch.context() as immovable:
        immovable.setattr(document, "MOVABLE", 1)
        assert moved(service.path) == 0
    monkeypatch.setattr(document, "OVERSIZED", 9)

    assert moved(service.path) == 1

    assert places(service.path) == {"large": {0}, "medium": {0}, "small": {1}}
    assert [found(**narrowed) for narrowed in asked] == before
    assert_index_is_whole(service.path)
    service.save("walnut", project="small")
    assert titles(search(service, "walnut", project="small")) == ["walnut"]
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_projects_are_not_moved_to_and_fro_when_all_partitions_are_crowded(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kinds.NUMBERS, IndexGroup.PROJECTS, range(2))
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    for project, count in (("a", 5), ("b", 3), ("c", 5), ("d", 5)):
        for number in range(count):
            service.save(f"apple {number}", project=project)
    assert places(service.path) == {"a": {0}, "b": {1}, "c": {0}, "d": {1}}
    monkeypatch.setattr(document, "OVERSIZED", 4)

    assert moved(service.path) == 0
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_a_partition_that_stores_have_left_is_used_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    monkeypatch.setitem(kinds.NUMBERS, IndexGroup.STORES, range(1024, 1026))
    spaces = "SELECT partition FROM spaces WHERE kind = 'store' ORDER BY id"
    first, _, third = (store(service.http) for _ in range(3))
    assert rows(service.path, spaces) == [(1024,), (1025,), (1024,)]
    for home in (first, third):
        service.http.delete(at(home))
    until(lambda: rows(service.path, spaces) == [(1025,)])

    store(service.http)

    assert rows(service.path, spaces) == [(1025,), (1024,)]
    assert_index_is_whole(service.path)


def test_the_text_of_a_partition_is_read_along_its_spaces_alone(service: Service) -> None:
    service.save("one")
    with closing(connect(service.path)) as database:
        for columns in ("count(*)", "*"):
            text = f"SELECT {columns} FROM memory_text_0 ORDER BY id"
            plan = [step for *_, step in database.execute(f"EXPLAIN QUERY PLAN {text}")]
            assert "SEARCH m USING INDEX memories_in_space (space_id=?)" in plan
            assert any("INDEX spaces_by_partition (partition=?)" in step for step in plan)
            of_memories = plan[: plan.index("UNION ALL")]  # behind it comes the prior
            assert [step for step in of_memories if step.startswith("SCAN")] == []
