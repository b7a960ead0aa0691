"""New memories wait for the full-text index, many together, and nobody who asks misses one."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.sqlite import index, partitions, transaction
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.index import Index
from agentops_memory.sqlite.partitions import SEGMENTS

from ..support.another import another
from ..support.engine import locked
from ..support.engines import rows
from ..support.fast_reads import Counted, counted, held
from ..support.files import assert_index_is_whole, assert_sound, imported, put_in_index
from ..support.process import until
from ..support.recall import context, search, titles
from ..support.service import Service, observation, serving
from ..support.stores import STORES, entry, store

__all__ = ["counted"]

ONLY_SQL: Any = {"MEMORY_INDEX_CACHE": "0"}
OF_STORES = 1024  # the partition of entries of stores


def test_saves_enter_the_index_together_once_many_wait(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "MOST_WAITING", 5)
    monkeypatch.setattr(transaction, "ENTRIES_PAUSE", 0.0)  # which is not for them
    monkeypatch.setattr(index, "AT_ONCE", 4)
    for number in range(5):
        service.save(f"apple {number}")
    assert indexed(service.path) == 0

    service.save("apple 5")

    assert indexed(service.path) == 4
    put_in_index(service.path)
    assert_index_is_whole(service.path)


def test_those_of_the_oldest_partition_enter_the_index_together_before_others(
    service: Service,
) -> None:
    for number in range(4):
        for project in ("one", "another"):
            service.save(f"apple {number}", project=project, session_id=project)
    with closing(connect(service.path)) as database, database:
        of_writer = Index(database)
        ((area,),) = database.execute("SELECT area FROM spaces WHERE project = 'another'")
        of_writer.partitions.make(1)
        rows_of_one = "SELECT count(*) FROM memories_fts_{}_docsize WHERE id < 1 << 62"
        of_writer.partitions.assign(area, 1)
        assert of_writer.flush(3)
        ((mark,),) = database.execute("SELECT indexed_to FROM index_rules")
        assert (database.execute(rows_of_one.format(0)).fetchone(), mark) == ((3,), 1)
        assert Index(database).flush(3)  # which knows of none that has entered
    assert (indexed(service.path), indexed(service.path, 1)) == (3, 3)

    assert len(search(service, "apple")) == 8
    put_in_index(service.path)
    assert (indexed(service.path), indexed(service.path, 1)) == (4, 4)
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_what_waits_is_bounded_in_characters_though_the_first_are_short(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MAX_STEP", 500)
    for number in range(50):
        service.save(f"apple {number}")
    assert indexed(service.path) == 0

    service.save("pie " * 1000)

    assert indexed(service.path) == 51


def test_what_waits_enters_the_index_by_and_by_when_no_change_comes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "AT_ONCE", 3)
    for number in range(7):
        service.save(f"apple {number}")

    until(lambda: indexed(service.path) == 6)
    assert_index_is_whole(service.path)


def test_segments_are_merged_a_little_at_a_time_between_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "PAGES", 1)
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        for number in range(SEGMENTS + 2):  # each of them puts in what it waits for
            service.save(" ".join(f"w{number}x{it}" for it in range(500)), session_id=f"{number}")
            put_in_index(path)
    with closing(connect(path)) as database, database:
        of_writer = Index(database)
        ((_, segments), *_) = of_writer.partitions.levels(0)
        assert segments > SEGMENTS  # no change has merged them all
        of_writer.partitions.segments[0] = SEGMENTS
        merged = 0
        while of_writer.partitions.merge_some():
            merged += 1
        assert merged > 1
        assert max(it for _, it in of_writer.partitions.levels(0)) < SEGMENTS
        assert not of_writer.partitions.merge_some()
    assert_index_is_whole(path)


@pytest.mark.parametrize("damage", ["UPDATE {} SET block = x'00'", "DELETE FROM {}"])
def test_what_cannot_be_read_of_segments_keeps_no_change_from_its_own(
    service: Service, damage: str
) -> None:
    service.save("apple")
    with closing(connect(service.path)) as database:
        database.execute(f"{damage.format('memories_fts_0_data')} WHERE id = 10")
        of_writer = Index(database)
        of_writer.partitions.segments[0] = SEGMENTS
        assert not of_writer.partitions.merge_some()


def test_what_has_many_segments_is_merged_when_no_change_comes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "AT_ONCE", 1)
    for number in range(SEGMENTS):
        service.save(f"apple {number}")
        until(lambda: indexed(service.path) == number + 1)  # noqa: B023 - called at once

    until(lambda: most_segments(service.path) < SEGMENTS)
    assert_index_is_whole(service.path)


def test_statements_that_put_in_what_waits_have_few_sizes(service: Service) -> None:
    statements: list[str] = []
    for many in (3, 5, 7):
        for number in range(many):
            service.save(f"apple {many} {number}")
        with closing(connect(service.path)) as database, database:
            database.set_trace_callback(statements.append)
            Index(database).flush()

    inserts = [it for it in statements if it.startswith("INSERT INTO memories_fts")]
    assert [it.count("), (") + 1 for it in inserts] == [4, 8, 8]
    assert_index_is_whole(service.path)


def test_what_entered_one_partition_alone_since_a_change_waited_enters_the_others_later(
    service: Service,
) -> None:
    service.save("apple of one")
    service.save("apple of another", project="other", session_id="another")
    with closing(connect(service.path)) as database, database:
        of_writer = Index(database, is_awaited=lambda: True)
        of_other = "SELECT area FROM spaces WHERE project = 'other'"
        ((area,),) = database.execute(of_other).fetchall()
        of_writer.partitions.make(1)
        of_writer.partitions.assign(area, 1)
        assert of_writer.flush(may_stop=True)
    assert (indexed(service.path), indexed(service.path, 1)) == (1, 0)

    assert len(search(service, "apple")) == 2
    put_in_index(service.path)
    assert (indexed(service.path), indexed(service.path, 1)) == (1, 1)
    assert_index_is_whole(service.path)


def test_who_asks_the_index_finds_what_waits_and_new_ones_wait_no_more(path: Path) -> None:
    with serving(path, **ONLY_SQL) as service:
        service.save("apple", title="first")
        assert titles(search(service, "apple")) == ["first"]
        service.save("apple pie", title="second")
        assert indexed(service.path) == 2
        assert context(service, "pie", limit=1) == ["second"]


def test_while_it_is_locked_the_index_alone_answers_what_it_has(path: Path) -> None:
    with serving(path, **ONLY_SQL) as service:
        service.save("apple", title="indexed")
        put_in_index(service.path)
        service.save("apple", title="waits", session_id="another")
        with locked(service.path):
            assert titles(search(service, "apple")) == ["indexed"]
        assert sorted(titles(search(service, "apple"))) == ["indexed", "waits"]


def test_memory_finds_what_waits_without_the_index(counted: Counted, service: Service) -> None:
    imported(service, [observation("apple", title="first")])
    put_in_index(service.path)
    held(service, counted, "/context?query=apple&project=demo")
    before = indexed(service.path)
    service.save("apple", title="second", session_id="another")

    assert sorted(titles(search(service, "apple", project="demo"))) == ["first", "second"]
    assert indexed(service.path) == before == 1
    with locked(service.path):
        found = titles(search(service, "apple", project="demo"))
        assert sorted(found) == ["first", "second"]


@pytest.mark.parametrize("variables", [{}, ONLY_SQL], ids=["memory", "index"])
def test_what_waits_is_changed_and_leaves_like_any_memory(path: Path, variables: Any) -> None:
    with serving(path, **variables) as service:
        for title in ("amended", "deleted", "erased", "kept"):
            service.save("apple", title=title, session_id=title)
        service.http.patch("/observations/1", json={"content": "pear"}).raise_for_status()
        service.http.delete("/observations/2").raise_for_status()
        service.http.delete("/observations/3", params={"hard": True}).raise_for_status()

        assert titles(search(service, "apple")) == ["kept"]
        assert titles(search(service, "pear")) == ["amended"]
        assert_index_is_whole(service.path)


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{}, ONLY_SQL], ids=["memory", "index"])
def test_what_another_program_left_waiting_is_found(path: Path, variables: Any) -> None:
    with serving(path, **variables) as service, another(path) as other:
        for number in range(3):
            service.save(f"apple {number}", title=f"one {number}")
            other.save(f"apple {number}", title=f"other {number}", session_id="other")
            assert len(search(service, "apple", project="demo")) == 2 * number + 2
    assert_sound(path, live=6)


def test_a_start_after_a_kill_finds_what_waited(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with serving(path) as service:
        service.save("apple", title="first")
        copied = tmp_path / "killed.db"
        with closing(connect(path)) as database, closing(connect(copied)) as copy:
            database.backup(copy)
    assert indexed(copied) == 0

    assert indexed(path) == 1  # at its end a service leaves nothing waiting
    with serving(copied, **ONLY_SQL) as service:
        assert titles(search(service, "apple")) == ["first"]
    assert_sound(copied, live=1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 99, 1 << 62, -5])
def test_a_damaged_mark_of_what_waits_loses_and_doubles_nothing(
    service: Service, number: int
) -> None:
    for each in range(3):
        service.save(f"apple {each}", title=f"{each}")
    put_in_index(service.path)
    rows(service.path, f"UPDATE index_rules SET indexed_to = {number}")

    service.save("apple 3", title="3")
    put_in_index(service.path)

    assert_index_is_whole(service.path)
    assert sorted(titles(search(service, "apple"))) == ["0", "1", "2", "3"]


@pytest.mark.slow
def test_a_damaged_project_keeps_no_other_from_the_index(path: Path) -> None:
    with serving(path, **ONLY_SQL) as service:
        service.save("apple")
        service.save("apple", title="found", project="other", session_id="another")
        with closing(connect(service.path)) as database:
            database.execute("PRAGMA ignore_check_constraints = ON")
            database.execute("UPDATE spaces SET partition = -1 WHERE project = 'demo'")

        assert titles(search(service, "apple", project="other")) == ["found"]


def test_entries_of_stores_enter_the_index_soon_after_the_last(service: Service) -> None:
    place = store(service.http)
    for number in range(3):
        entry(service.http, place, f"{number}", "apple")

    until(lambda: indexed(service.path, OF_STORES) == 3)
    assert_index_is_whole(service.path)


@pytest.mark.parametrize("options", [{}, ONLY_SQL])
def test_a_search_of_a_store_finds_what_was_just_put(
    path: Path, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "ENTRIES_PAUSE", 60.0)
    with serving(path, **options) as service:
        place = store(service.http)
        entry(service.http, place, "a", "apple")
        assert indexed(path, OF_STORES) == 0

        search = service.http.get(f"{STORES}/{place['id']}/search", params={"q": "apple"})

        assert [it["path"] for it in search.json()["data"]] == ["a"]


def test_a_damaged_index_of_stores_keeps_changes_of_projects_out_until_it_is_mended(
    path: Path,
) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        place = store(service.http)
        entry(service.http, place, "a", "apple")
        id_ = service.save("a pear")["id"]
        until(lambda: indexed(path, OF_STORES) == 1)
        rows(path, "UPDATE memories_fts_1024_data SET block = x'00' WHERE id = 10")
        entry(service.http, place, "b", "apple")

        change = service.http.patch(f"/observations/{id_}", json={"content": "a plum"})

        assert change.status_code in (200, 503)  # it may be mended by then
        until(lambda: service.http.patch(f"/observations/{id_}", json={"title": "t"}).is_success)
        hits = service.http.get(f"{STORES}/{place['id']}/search", params={"q": "apple"})
        assert sorted(it["path"] for it in hits.json()["data"]) == ["a", "b"]
    assert_index_is_whole(path)


def most_segments(path: Path) -> int:
    with closing(connect(path)) as database:
        return max(it for _, it in Index(database).partitions.levels(0))


def indexed(path: Path, partition: int = 0) -> int:
    """The memories that a partition has, whose prior has other numbers."""
    name = f"memories_fts_{partition}_docsize"
    ((count,),) = rows(path, f"SELECT count(*) FROM {name} WHERE id < 1 << 62")
    return int(count)
