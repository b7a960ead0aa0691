"""Memory stores join a context: what they and the project find becomes one list."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory.errors import TimedOut
from agentops_memory.memory.search import Filter, Scored
from agentops_memory.postgresql.search import PostgresSearch
from agentops_memory.recall.query import Query
from agentops_memory.sqlite.search import SqliteSearch

from ..support.callers import calling, made_key
from ..support.engines import is_postgresql
from ..support.samples import for_each
from ..support.service import Service, lasting as service, serving
from ..support.stores import NEVER, entry, store

__all__ = ["service"]


@pytest.fixture(scope="module")
def stores(service: Service) -> tuple[str, str]:
    """A project with two zebras, a store with two, a store with one."""
    for content in ("zebra zebra stripes", "a zebra among many other animals of the plain", "hens"):
        service.save(content, project="zoo", title=content[:20])
    first, second = store(service.http, "First"), store(service.http, "Second")
    entry(service.http, first, "notes/zebra.md", "all of the zebra")
    entry(service.http, first, "notes/far.md", "in a long text there is one zebra, and not more")
    entry(service.http, second, "one.md", "one zebra")
    entry(service.http, second, "lion.md", "one lion")
    return first["id"], second["id"]


def context(http: httpx.Client, **query: object) -> list[tuple[str, str]]:
    """Types and titles of what is told."""
    answer = http.get("/context", params=query)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    return [(line["type"], line["title"]) for line in answer.json()["recent_observations"]]


def test_lists_are_merged_by_reciprocal_rank_whatever_the_order_of_the_names(
    service: Service, stores: tuple[str, str]
) -> None:
    told = context(service.http, project="zoo", query="zebra", stores=",".join(stores), limit=5)

    assert told == [
        ("discovery", "zebra zebra stripes"), ("memory", "notes/zebra.md"), ("memory", "one.md"),
        ("discovery", "a zebra among many o"), ("memory", "notes/far.md"),
    ]  # fmt: skip

    one, other = (
        context(service.http, project="zoo", query="zebra", stores=",".join(ids), limit=9)[:5]
        for ids in (stores, (*reversed(stores), stores[0]))
    )

    assert one == other


def test_what_is_left_is_filled_with_the_newest_of_the_project_then_of_the_stores(
    service: Service, stores: tuple[str, str]
) -> None:
    query = {"project": "zoo", "query": "lion", "limit": 9}

    assert context(service.http, **query, stores=stores[1]) == [
        ("memory", "lion.md"), ("discovery", "hens"), ("discovery", "a zebra among many o"),
        ("discovery", "zebra zebra stripes"), ("memory", "one.md"),
    ]  # fmt: skip


def test_stores_do_without_a_project_and_put_words_right_by_themselves(
    service: Service, stores: tuple[str, str]
) -> None:
    assert context(service.http, stores=stores[1]) == [("memory", "lion.md"), ("memory", "one.md")]
    assert context(service.http, stores=stores[1], query="zebra", limit=1) == [("memory", "one.md")]

    assert context(service.http, stores=stores[1], query="lionn", limit=1) == [
        ("memory", "lion.md")
    ]

    assert context(service.http, query="zebra", stores=f",{stores[1]},,", limit=1) == [
        ("memory", "one.md")
    ]
    assert context(service.http, project="zoo", stores=",", limit=1) == [("discovery", "hens")]


def test_stores_that_are_not_named_join_nothing(service: Service, stores: tuple[str, str]) -> None:
    plain = service.http.get("/context?project=zoo&query=zebra&limit=9&explain=true").json()

    titles = [line["title"] for line in plain["recent_observations"]]
    assert titles == ["zebra zebra stripes", "a zebra among many o", "hens"]
    assert not {"store_id", "memory_id", "source_place"} & {
        name for line in plain["recent_observations"] for name in line["explain"]
    }
    assert context(service.http, query="zebra") == []
    assert stores


def test_each_tells_where_it_comes_from_and_what_found_it(
    service: Service, stores: tuple[str, str]
) -> None:
    query = {"project": "zoo", "query": "zebra", "stores": ",".join(stores), "explain": "true"}
    answer = service.http.get("/context", params=query).json()

    told = [line["explain"] for line in answer["recent_observations"]]
    assert [one.get("source_place") for one in told] == [1, 1, 1, 2, 2]
    assert [one.get("store_id") for one in told] == [None, stores[0], stores[1], None, stores[0]]
    assert all(one["memory_id"].startswith("mem_") for one in told if "store_id" in one)
    for one in told:
        assert [word["term"] for word in one["matched"]] == ["zebra"]
        assert one["score"] == one["rank"]
        assert abs(sum(one["fields"].values()) - 1) < 1e-9
    assert answer["explain"]["explained"] == 5


def test_a_budget_counts_entries_as_it_counts_observations(
    service: Service, stores: tuple[str, str]
) -> None:
    line = "- [memory] one.md: one zebra\n"
    query = {"query": "zebra", "stores": stores[1]}

    assert context(service.http, **query, max_chars=len(line)) == [("memory", "one.md")]
    assert context(service.http, **query, max_chars=len(line) - 1, limit=1) == []


@for_each(
    "ids, status, said",
    [
        (f"memstore_{NEVER}", 404, "No such memory store."),
        ("memstore_1", 404, "No such memory store."),
        (f"mem_{NEVER}", 404, "No such memory store."),
        ("1", 404, "No such memory store."),
        (",".join(f"memstore_{at:032x}" for at in range(9)), 400, "at most 8 memory stores"),
    ],
)
def test_what_is_no_store_is_refused(service: Service, ids: str, status: int, said: str) -> None:
    answer = service.http.get("/context", params={"project": "zoo", "stores": ids})

    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_a_key_for_some_projects_sees_no_store(path: Path) -> None:
    everything, some = made_key(path), made_key(path, projects=("zoo",))
    other = made_key(path, tenant="acme")
    with serving(path) as service, calling(service, everything) as whole:
        made = store(whole)
        entry(whole, made, "a.md", "zebra")
        query: dict[str, Any] = {"project": "zoo", "stores": made["id"], "query": "zebra"}

        with calling(service, some) as http:
            assert http.get("/context", params=query).status_code == 403
        with calling(service, other) as http:
            assert http.get("/context", params=query).status_code == 404
        assert context(whole, **query) == [("memory", "a.md")]
        whole.delete(f"/api/v1/cloud/memory_stores/{made['id']}")
        assert whole.get("/context", params=query).status_code == 404


def test_what_was_found_in_time_is_kept_when_a_store_takes_too_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_in_stores(
        self: SqliteSearch, query: Query, seen: Filter, limit: int
    ) -> list[Scored]:
        if seen.store is not None:
            raise TimedOut("The search took too long.")
        return list(best(self, query, seen, limit))

    search: Any = PostgresSearch if is_postgresql() else SqliteSearch
    best = search.best
    with serving(path) as service:
        service.save("zebra", title="best")
        service.save("hens", title="newest")
        home = store(service.http)
        entry(service.http, home, "a.md", "zebra")
        monkeypatch.setattr(search, "best", interrupted_in_stores)
        query = {"project": "demo", "stores": home["id"], "query": "zebra", "explain": "true"}

        answer = service.http.get("/context", params=query).json()

    titles = [line["title"] for line in answer["recent_observations"]]
    assert titles == ["best", "newest", "a.md"]
    assert answer["explain"]["degraded"] is True


def test_why_not_does_not_blame_the_size_of_an_answer_that_others_have_filled(
    service: Service, stores: tuple[str, str]
) -> None:
    query: dict[str, Any] = {"project": "zoo", "query": "zebra", "limit": 3}
    missing = next(
        row["id"]
        for row in service.http.get("/observations/recent?project=zoo").json()
        if row["content"].startswith("a zebra among")
    )

    answer = service.http.get(
        "/context", params={**query, "stores": ",".join(stores), "why_not": missing}
    ).json()

    why = answer["explain"]["why_not"]
    assert (why["reason"], why["place"]) == ("rank", 2)
