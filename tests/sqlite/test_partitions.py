"""The index lies in partitions: what shares one, and what every one has."""

from collections import Counter

import pytest

from agentops_memory.memory import space as kinds
from agentops_memory.memory.space import IndexGroup
from agentops_memory.recall import visibility as document

from ..support.engines import rows
from ..support.files import assert_index_is_whole, imported
from ..support.partitions import areas, places
from ..support.recall import context, search, titles
from ..support.service import Service, observation

# Where projects lie


SCOPES = ("global", "project", "team", "personal")
LIE: dict[str, tuple[dict[str, int], list[tuple[str, str]], dict[str, set[int]]]] = {
    "eight projects share one": (
        {}, [(f"p{it}", "project") for it in range(17)], {f"p{it}": {it // 8} for it in range(17)},
    ),
    "after enough memories the next begins": (
        {"MOST_MEMORIES": 3}, [(it, "project") for it in "aabacd"],
        {"a": {0}, "b": {0}, "c": {1}, "d": {1}},
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
        service.save("apple", project=project, scope=scope, type=f"t{number}")

    assert places(service.path) == expected
    assert {len(numbers) for numbers in areas(service.path).values()} == {1}
    assert_index_is_whole(service.path)


def test_only_live_memories_fill_a_partition(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_MEMORIES", 2)
    for content in ("one", "two"):
        service.save(content, project="a")
    service.http.delete("/observations/1")
    service.save("apple", project="b")

    assert places(service.path) == {"a": {0}, "b": {0}}


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


@pytest.mark.slow
def test_what_becomes_of_a_global_memory_becomes_of_it_everywhere(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "MOST_PROJECTS", 1)
    for project in "ab":
        service.save("apple", project=project)
    everyone = {"a", "b", "never"}

    def finders(word: str) -> set[str]:
        assert_index_is_whole(service.path)
        return {it for it in everyone if search(service, word, project=it)}

    saved = service.save("walnut", title="it", project="b", scope="global")
    memory = f"/observations/{saved['id']}"
    assert finders("walnut") == everyone
    service.http.patch(memory, json={"content": "hazelnut"})
    assert (finders("walnut"), finders("hazelnut")) == (set(), everyone)
    service.http.delete(memory)
    assert finders("hazelnut") == set()
    service.http.post(f"{memory}/restore", json={"revision": 1})
    assert finders("walnut") == everyone
    service.http.delete(memory, params={"hard": "true"})
    assert finders("walnut") == set()


# Many at once


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
