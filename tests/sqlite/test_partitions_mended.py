"""Partitions of the index: damage that is mended, projects that move, how they are read."""

from contextlib import closing

import pytest

from agentops_memory.memory import space as kinds
from agentops_memory.memory.access import Caller
from agentops_memory.memory.space import IndexGroup
from agentops_memory.recall import visibility as document
from agentops_memory.recall.visibility import PRIOR
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.engine import SqliteMaintenance

from ..support.engines import rows
from ..support.files import assert_index_is_whole, put_in_index
from ..support.partitions import found, inside, keeping, places, plan_of, swept
from ..support.process import until
from ..support.recall import search, titles
from ..support.service import Service
from ..support.stores import Object, at, store

# Damage, and what mends it

DAMAGES = {
    "a missing row": (f"DELETE FROM memories_fts_1_docsize WHERE id & 1 = 0 AND id < {PRIOR}", 1),
    "a row too many": (
        "INSERT INTO memories_fts_1 (rowid, title) VALUES (99 << 40 | 99, 'bogus')",
        1,
    ),
    "other words": (
        """INSERT INTO memories_fts_1 (memories_fts_1, rowid, title, content, context, tags)
           SELECT 'delete', id, title, 'pear', context, tags FROM memory_text_1 LIMIT 1""",
        1,
    ),
}


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_seen_in_its_partition_and_mended_there_alone(
    service: Service, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    for project in ("a", "b", "c"):
        for content in ("apple", "cherry"):
            service.save(content, project=project, session_id=content)
    statement, drift = DAMAGES[damage]
    put_in_index(service.path)
    with closing(connect(service.path)) as database:
        database.execute(statement)
    others = [inside(service.path, number) for number in (0, 2)]

    async def mended(maintenance: SqliteMaintenance) -> None:
        assert await maintenance.drifts(Caller()) == {0: 0, 1: drift, 2: 0}
        assert [await maintenance.is_exact(Caller(), number) for number in range(3)] == [
            True, False, True,
        ]  # fmt: skip
        await maintenance.rebuild(Caller(), 1)
        assert await maintenance.drifts(Caller()) == {0: 0, 1: 0, 2: 0}
        assert await maintenance.is_exact(Caller(), 1)

    keeping(service.path, mended)

    assert [inside(service.path, number) for number in (0, 2)] == others
    assert [hit["id"] for hit in search(service, "apple", project="b")] == [3]
    assert_index_is_whole(service.path)


# Moving


@pytest.mark.slow
def test_the_smallest_project_is_moved_to_a_partition_that_is_made_for_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.save("apple for all", title="all", scope="global")
    for project, count in (("large", 5), ("medium", 3), ("small", 2)):
        for number in range(count):
            scope = "team" if number == 1 else "project"
            service.save(f"apple {number}", project=project, scope=scope)
    asked = [{}, *({"project": it} for it in ("large", "medium", "small"))]
    before = [found(service, **narrowed) for narrowed in asked]
    monkeypatch.setattr(document, "MOST_MEMORIES", 2)
    monkeypatch.setattr(document, "OVERSIZED", 9)

    assert swept(service.path).moved == 1

    assert places(service.path) == {"large": {0}, "medium": {0}, "small": {1}}
    assert [found(service, **narrowed) for narrowed in asked] == before
    assert_index_is_whole(service.path)
    service.save("walnut", project="small")
    assert titles(search(service, "walnut", project="small")) == ["walnut"]
    assert_index_is_whole(service.path)


def test_a_project_alone_and_one_too_large_to_move_stay(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "OVERSIZED", 1)
    for number in range(3):
        service.save(f"apple {number}", project="alone")
    assert swept(service.path).moved == 0

    for number in range(3):
        service.save(f"apple {number}", project="beside")
    monkeypatch.setattr(document, "MOVABLE", 2)
    assert swept(service.path).moved == 0


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

    assert swept(service.path).moved == 0
    assert_index_is_whole(service.path)


# Memory stores


@pytest.mark.slow
def test_a_partition_that_stores_have_left_is_used_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    monkeypatch.setitem(kinds.NUMBERS, IndexGroup.STORES, range(1024, 1026))
    first, second, third = (store(service.http) for _ in range(3))
    assert [place_of(service, home) for home in (first, second, third)] == [1024, 1025, 1024]
    for home in (first, third):
        service.http.delete(at(home))
    until(lambda: rows(service.path, "SELECT count(*) FROM stores") == [(1,)])

    assert place_of(service, store(service.http)) == 1024
    assert_index_is_whole(service.path)


# How it is read


def test_the_text_of_a_partition_is_read_along_its_spaces_alone(service: Service) -> None:
    service.save("one")
    with closing(connect(service.path)) as database:
        for columns in ("count(*)", "*"):
            plan = [*plan_of(database, f"SELECT {columns} FROM memory_text_0 ORDER BY id")]
            assert "SEARCH m USING INDEX memories_in_space (space_id=?)" in plan
            assert any("INDEX spaces_by_partition (partition=?)" in step for step in plan)
            of_memories = plan[: plan.index("UNION ALL")]  # behind it comes the prior
            assert [step for step in of_memories if step.startswith("SCAN")] == []


def place_of(service: Service, home: Object) -> int:
    """The partition of a store."""
    ((number,),) = rows(
        service.path,
        f"""SELECT partition
              FROM spaces
             WHERE replace(scope, '-', '') = '{home["id"].removeprefix("memstore_")}'""",
    )
    assert isinstance(number, int)
    return number
