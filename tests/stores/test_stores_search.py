"""Full text in a memory store: an addition of ours."""

import pytest

from ..support.engine import slow_words
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving
from ..support.stores import (
    Object,
    at,
    delete,
    entry,
    entry_at,
    fault,
    ids,
    invalid,
    ok,
    refusal,
    store,
    update,
)


def found(service: Service, home: Object, text: str, **asked: str) -> list[Object]:
    """The hits of a search."""
    told = ok(service.http.get(at(home, "search"), params={"q": text, **asked}))
    assert told.keys() == {"data"}
    hits: list[Object] = told["data"]
    return hits


@requirement("stores:search")
def test_a_hit_is_the_entry_with_the_beginning_of_its_content(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", "Queues hold. " * 100, metadata={"k": "v"})
    made = update(service.http, home, made, "Retried queues fill the disk. " * 100)

    (hit,) = found(service, home, "why is the queue full")

    content = made.pop("content")
    assert hit.pop("rank") < 0
    assert hit.pop("snippet") == content[:300] + "..."
    assert hit == made


@requirement("stores:search")
def test_entries_are_found_by_words_and_by_paths_best_first(service: Service, home: Object) -> None:
    entry(service.http, home, "notes/cats.md", "A cat sleeps beside a dog.")
    both = entry(service.http, home, "notes/animals.md", "Cats and dogs, dogs and cats.")
    path = entry(service.http, home, "deploy/kubernetes.md", "Nothing of that name.")
    other = store(service.http, "Other")
    entry(service.http, other, "notes/cats.md", "Cats and dogs elsewhere.")

    hits = found(service, home, "cats dogs")
    assert len(hits) == 2
    assert hits[0]["id"] == both["id"]
    assert [hit["rank"] for hit in hits] == sorted(hit["rank"] for hit in hits)
    assert [hit["id"] for hit in found(service, home, "kubernetes")] == [path["id"]]
    assert [hit["id"] for hit in found(service, home, "deploy/kuber")][:1] == [path["id"]]
    assert found(service, home, "zanzibar") == found(service, home, "???") == []


@pytest.mark.slow
@requirement("stores:search")
def test_a_search_follows_what_entries_say(service: Service, home: Object) -> None:
    made = entry(service.http, home, "a", "A walnut.")
    assert len(found(service, home, "walnut")) == 1
    update(service.http, home, made, "A chestnut.")
    assert (found(service, home, "walnut"), len(found(service, home, "chestnut"))) == ([], 1)
    delete(service.http, entry_at(home, made))
    assert found(service, home, "chestnut") == []


def test_a_search_answers_as_many_as_a_list_would(service: Service, home: Object) -> None:
    for number in range(25):
        entry(service.http, home, str(number), "A walnut.")

    assert len(found(service, home, "walnut")) == 20
    assert len(found(service, home, "walnut", limit="3")) == 3
    assert len(found(service, home, "walnut", limit="500")) == 25
    answer = service.http.get(at(home, "search"), params={"q": "walnut", "limit": "0"})
    assert fault(answer) == invalid("limit")


@for_each("asked", ["", "?q=", "?query=walnut"])
def test_a_search_needs_words(service: Service, home: Object, asked: str) -> None:
    told = refusal(service.http.get(at(home, "search") + asked))

    assert told == (400, "invalid_request_error", "Missing required field: q", "q")


def test_the_newest_stand_in_when_words_take_too_long(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = service.path.with_name("hasty.db")
    slow_words(path, monkeypatch)
    with serving(path, MEMORY_RECALL_LIMIT="0") as hasty:
        home = store(hasty.http)
        for number in range(3):
            made = entry(hasty.http, home, str(number), f"walnut {number}")
        answer = hasty.http.get(at(home, "search"), params={"q": "walnut", "limit": "1"})

        assert ids(answer) == [made["id"]]
