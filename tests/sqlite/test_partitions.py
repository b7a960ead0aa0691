"""The index lies in partitions: what shares one, and what every one has."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from agentops_memory.agentops import transfer
from agentops_memory.memory import space as kinds
from agentops_memory.memory.space import IndexGroup
from agentops_memory.recall import visibility as document
from agentops_memory.sqlite import SqliteEngine

from ..support.another import another
from ..support.database import assert_index_is_whole, imported
from ..support.engine import run, together
from ..support.engines import rows
from ..support.partitions import areas, places, saving, titles_of
from ..support.recall import context, search, titles
from ..support.service import Service, observation, serving

# Where projects lie


@pytest.mark.heavy
def test_eight_projects_share_a_partition_and_the_ninth_begins_the_next(service: Service) -> None:
    for number in range(17):
        service.save("apple", project=f"p{number}")

    assert places(service.path) == {f"p{number}": {number // 8} for number in range(17)}
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_a_project_after_enough_memories_begins_the_next_partition(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_MEMORIES", 3)
    for project in ("a", "a", "b", "a", "c", "d"):
        service.save("apple", project=project, type=f"t{len(titles_of(service, project))}")

    assert places(service.path) == {"a": {0}, "b": {0}, "c": {1}, "d": {1}}


def test_only_live_memories_fill_a_partition(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_MEMORIES", 2)
    for content in ("one", "two"):
        service.save(content, project="a")
    service.http.delete("/observations/1")
    service.save("apple", project="b")

    assert places(service.path) == {"a": {0}, "b": {0}}


@pytest.mark.slow
def test_all_scopes_of_a_project_lie_in_its_partition(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    service.save("apple", project="a", scope="global")
    for project in ("a", "b", "a"):
        for scope in ("project", "team", "personal"):
            service.save("apple", project=project, scope=scope)

    assert places(service.path) == {"a": {0}, "b": {1}}
    assert areas(service.path) == {"a": {1}, "b": {2}}
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_no_more_partitions_are_made_than_there_may_be(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    monkeypatch.setitem(kinds.NUMBERS, IndexGroup.PROJECTS, range(2))
    for number in range(5):
        service.save("apple", project=f"p{number}")

    assert places(service.path) == {"p0": {0}, "p1": {1}, "p2": {0}, "p3": {1}, "p4": {0}}
    assert_index_is_whole(service.path)


# What a read sees


@pytest.mark.slow
def test_a_memory_of_another_project_in_the_partition_is_never_shown(service: Service) -> None:
    service.save("apple of theirs", title="theirs", project="other")
    service.save("apple of their team", title="team", project="other", scope="team")
    service.save("apple of mine", title="mine")
    service.save("apple for all", title="all", project="other", scope="global")

    assert places(service.path) == {"demo": {0}, "other": {0}}
    for asked in ("apple", "apple. theirs", "theirs"):
        assert {"theirs", "team"}.isdisjoint(titles(search(service, asked, project="demo")))
        assert {"theirs", "team"}.isdisjoint(context(service, asked, limit=50))
    assert set(titles(search(service, "apple", project="demo"))) == {"mine", "all"}
    assert set(context(service, "apple", limit=50)) == {"mine", "all"}
    assert titles(search(service, "apple", project="demo", scope="team")) == []
    assert titles(search(service, "apple", scope="global")) == ["all"]
    assert titles(search(service, "apple", project="demo", scope="global")) == ["all"]


@pytest.fixture
def crowd(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """Four projects, each in a partition of its own, and a global memory from before each."""
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    for project in ("a", "b", "c", "d"):
        service.save("apple for all", title=f"all {project}", project=project, scope="global")
        service.save("apple", title=project, project=project)
    return service


EVERYWHERE = {"all a", "all b", "all c", "all d"}


@pytest.mark.heavy
def test_global_memories_are_found_from_every_project_and_once(crowd: Service) -> None:
    for project in ("a", "b", "c", "d"):
        hits = titles(search(crowd, "apple", project=project, limit=50))
        assert Counter(hits) == Counter(EVERYWHERE | {project})
        assert Counter(context(crowd, "apple", project=project, limit=50)) == Counter(hits)
    assert_index_is_whole(crowd.path)


@pytest.mark.heavy
def test_a_project_that_never_had_memories_finds_the_global_ones(crowd: Service) -> None:
    crowd.save("apple for all", title="of none", project="none", scope="global")
    for project in ("never", "none"):
        assert set(titles(search(crowd, "apple", project=project))) == EVERYWHERE | {"of none"}
        assert set(context(crowd, "apple", project=project)) == EVERYWHERE | {"of none"}


@pytest.mark.heavy
def test_a_search_in_all_projects_finds_each_memory_once_and_the_best_first(crowd: Service) -> None:
    crowd.save("apple apple apple", title="best", project="c")
    hits = search(crowd, "apple", limit=50)

    assert Counter(titles(hits)) == Counter({*EVERYWHERE, "a", "b", "c", "d", "best"})
    assert [hit["rank"] for hit in hits] == sorted(hit["rank"] for hit in hits)
    for limit in range(1, 10):
        assert search(crowd, "apple", limit=limit) == hits[:limit]


@pytest.mark.heavy
def test_equal_scores_of_several_partitions_are_in_the_order_of_their_ids(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    ids = [
        service.save(
            "same words", title="same", project=f"p{number % 4}", session_id=f"s{number}",
            type=f"t{number}",
        )
        for number in range(12)
    ]  # fmt: skip

    hits = search(service, "same words", limit=12)

    assert len({hit["rank"] for hit in hits}) == 1
    assert [hit["id"] for hit in hits] == [saved["id"] for saved in ids]
    assert [hit["id"] for hit in search(service, "same. words", limit=5)] == [1, 2, 3, 4, 5]


@pytest.mark.heavy
def test_what_becomes_of_a_global_memory_becomes_of_it_everywhere(crowd: Service) -> None:
    def finders(word: str) -> set[str]:
        return {
            project
            for project in ("a", "b", "c", "d", "never")
            if search(crowd, word, project=project)
        }

    everyone = {"a", "b", "c", "d", "never"}
    crowd.save("walnut", title="it", project="b", scope="global")
    assert finders("walnut") == everyone

    memory = search(crowd, "walnut")[0]["id"]
    crowd.http.patch(f"/observations/{memory}", json={"content": "hazelnut"})
    assert (finders("walnut"), finders("hazelnut")) == (set(), everyone)
    assert_index_is_whole(crowd.path)

    crowd.http.delete(f"/observations/{memory}")
    assert finders("hazelnut") == set()
    assert_index_is_whole(crowd.path)

    crowd.http.post(f"/observations/{memory}/restore", json={"revision": 1})
    assert finders("walnut") == everyone
    assert_index_is_whole(crowd.path)

    crowd.http.delete(f"/observations/{memory}", params={"hard": "true"})
    assert finders("walnut") == set()
    assert_index_is_whole(crowd.path)


@pytest.mark.heavy
@pytest.mark.parametrize("with_globals", [False, True])
def test_kinds_tags_and_scopes_narrow_what_is_found(service: Service, with_globals: bool) -> None:
    def save(title: str, **fields: object) -> None:
        service.save(f"apple {title}", title=title, **fields)

    save("fix", type="bugfix", tags=["core"])
    save("plan", type="decision", tags=["core", "later"])
    save("team plan", type="decision", scope="team")
    save("their plan", type="decision", tags=["later"], project="other")
    save("their team plan", type="decision", scope="team", project="other")
    everywhere = {"law"} if with_globals else set()
    if with_globals:
        save("law", type="decision", tags=["later"], scope="global", project="other")

    def narrowed(**asked: str) -> set[str]:
        found = titles(search(service, "apple", **asked))
        if "project" in asked:
            reminded = context(service, "apple", limit=50, **asked)
            assert sorted(reminded) == sorted(found)
        assert len(found) == len(set(found))
        return set(found)

    own: Callable[..., set[str]] = partial(narrowed, project="demo")
    assert own() == {"fix", "plan", "team plan"} | everywhere
    assert own(type="decision") == {"plan", "team plan"} | everywhere
    assert own(tag="later") == {"plan"} | everywhere
    assert own(type="bugfix", tag="later") == set()
    assert own(scope="team") == {"team plan"}
    assert own(scope="project") == {"fix", "plan"}
    assert own(scope="project", type="decision") == {"plan"}
    assert own(scope="global") == own(scope="global", type="decision") == everywhere
    assert own(scope="global", type="bugfix") == set()
    assert narrowed(scope="team") == {"team plan", "their team plan"}
    assert narrowed(type="decision", tag="later") == {"plan", "their plan"} | everywhere
    assert narrowed(scope="global") == everywhere


# Many at once


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("areas_each", [1, 2, 8])
def test_saves_into_new_projects_that_wait_together_all_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, areas_each: int
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", areas_each)
    path = tmp_path / "memory.db"
    works = [saving(f"p{number % 12}", f"save {number}") for number in range(30)]

    async def test(database: SqliteEngine) -> None:
        answers = await together(database, works)
        assert answers == [f"save {number}" for number in range(30)]

    run(path, test)

    ((count,),) = rows(path, "SELECT count(*) FROM memories")
    assert count == 30
    assert Counter(partition for (partition,) in places(path).values()) == Counter(
        number // areas_each for number in range(12)
    )
    assert_index_is_whole(path)


@pytest.mark.heavy
def test_two_programs_on_one_file_put_a_project_into_one_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 2)
    path = tmp_path / "memory.db"
    with serving(path) as service, another(path) as other, ThreadPoolExecutor(8) as threads:

        def saved(number: int) -> object:
            scope = "global" if number % 7 == 0 else "project"
            fields = {"project": f"p{number % 13}", "scope": scope}
            if number % 2:
                return other.save(f"apple {number}", **fields).id
            return service.save(f"apple {number}", **fields)["id"]

        assert len(set(threads.map(saved, range(78)))) == 78
        assert len(search(service, "apple", limit=100)) == 78
        assert len(other.asked(lambda here: here.search("apple", limit=100)).hits) == 78

    assert {len(numbers) for numbers in places(path).values()} == {1}
    assert {len(numbers) for numbers in areas(path).values()} == {1}
    assert_index_is_whole(path)


@pytest.mark.heavy
def test_an_import_of_many_new_projects_makes_their_partitions(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 2)
    service.save("apple for all", title="all", scope="global", project="first")

    imported(service, [observation(f"apple {n}", project=f"p{n % 7}") for n in range(21)])

    assert len(set().union(*places(service.path).values())) == 4
    assert [len(search(service, "apple", project=f"p{n}")) for n in range(7)] == [4] * 7
    assert_index_is_whole(service.path)


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("bulk", [1, 3, 200])
def test_an_import_puts_global_memories_into_partitions_that_it_makes(
    service: Service, monkeypatch: pytest.MonkeyPatch, bulk: int
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    monkeypatch.setattr(transfer, "SLICE", bulk)
    body = [
        observation(f"apple {n} {scope}", project=f"p{n}", scope=scope)
        for n in range(4)
        for scope in ("global", "project", "global", "team", "global")
    ]

    imported(service, [row | {"session_id": str(n)} for n, row in enumerate(body)])

    assert places(service.path) == {f"p{n}": {n} for n in range(4)}
    found = [len(search(service, "apple", project=f"p{n}", limit=50)) for n in range(5)]
    assert found == [14, 14, 14, 14, 12]
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

    imported(service, body)

    assert len(set().union(*places(service.path).values())) == 2
    assert [len(search(service, "apple", project=f"p{n}", limit=50)) for n in range(3)] == [3, 4, 4]
    assert_index_is_whole(service.path)


@pytest.mark.heavy
@pytest.mark.parametrize("bulk", [1, 3, 200])
def test_an_import_that_replaces_what_it_brought_before_leaves_the_index_exact(
    service: Service, monkeypatch: pytest.MonkeyPatch, bulk: int
) -> None:
    monkeypatch.setattr(transfer, "SLICE", bulk)
    texts = ["the walrus", "a lion", "the walrus", "a lion", "one zebra"]
    rows = [
        observation(text, title="it", topic_key=f"k{at // 3}", session_id=text)
        | {"updated_at": f"2030-01-02T12:00:{at:02}Z"}
        for at, text in enumerate(texts)
    ]

    imported(service, [*rows, observation("zebra and walrus", title="last", session_id="s")])

    found = {text: len(search(service, text)) for text in ("walrus", "lion", "zebra")}
    assert found == {"walrus": 2, "lion": 0, "zebra": 2}
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_a_refused_import_leaves_no_partition_behind(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    service.save("apple")
    body = [observation("banana", project="new"), observation("", project="newer")]

    answer = service.http.post("/import", json={"observations": body})

    assert answer.status_code == 400
    assert rows(service.path, "SELECT number FROM partitions") == [(0,)]
    assert service.save("banana", project="new")["id"] == 2
    assert_index_is_whole(service.path)
