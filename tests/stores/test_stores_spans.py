"""What a request to memory stores leaves in a trace, in either dialect."""

from pathlib import Path

import pytest

from ..support.store_dialects import ANTHROPIC, CLOUD, Dialect, every_request, in_both, stocked
from ..support.stores import at, entry, store
from ..telemetry.test_tracing import traced

STORE, ENTRY, VERSION = "memory.store.id", "memory.entry.id", "memory.version.id"
SIZE, NUMBER, ENTRIES = "memory.entry.size", "memory.entry.version", "memory.store.entry_count"
OURS = "memory.page.result_count"
ACTION, QUERY, HITS = "memory.version.action", "memory.search.query", "memory.search.result_count"
# What each operation says of itself beside the ids in its path; None is any value.
SAID: dict[Dialect, dict[str, dict[str, object]]] = {
    CLOUD: {
        "create_store": {STORE: None, ENTRIES: 0}, "list_stores": {OURS: 2},
        "get_store": {ENTRIES: 1}, "archive_store": {ENTRIES: 1}, "delete_store": {},
        "search_store": {QUERY: "second", HITS: 1}, "list_entries": {OURS: 2},
        "create_entry": {ENTRY: None, VERSION: None, NUMBER: 1, SIZE: 3},
        "get_entry": {VERSION: None, NUMBER: 2, SIZE: 6},
        "update_entry": {VERSION: None, NUMBER: 3, SIZE: 5}, "delete_entry": {},
        "list_versions": {OURS: 4},
        "get_version": {ENTRY: None, ACTION: "created"},
        "redact_version": {ENTRY: None, ACTION: "created"},
    },
    ANTHROPIC: {
        "create_store": {STORE: None, ENTRIES: 0}, "list_stores": {OURS: 2},
        "get_store": {ENTRIES: 1}, "update_store": {ENTRIES: 1}, "archive_store": {ENTRIES: 1},
        "delete_store": {}, "create_memory": {ENTRY: None, VERSION: None, NUMBER: 1, SIZE: 3},
        "list_memories": {OURS: 2}, "get_memory": {VERSION: None, NUMBER: 2, SIZE: 6},
        "update_memory": {VERSION: None, NUMBER: 3, SIZE: 5}, "delete_memory": {},
        "list_versions": {OURS: 4}, "get_version": {ENTRY: None, ACTION: "created"},
        "redact_version": {ENTRY: None, ACTION: "created"},
    },
}  # fmt: skip


@pytest.mark.slow
@in_both
def test_each_operation_says_what_it_was_about_and_nothing_that_was_written(
    tmp_path: Path, dialect: Dialect
) -> None:
    with traced(tmp_path) as (service, received):
        ids = stocked(service.http, "hippopotamus")
        every = every_request(*ids, dialect)
        names = [it.name.removeprefix("anthropic_") for it in every]
        assert {*names} == {*SAID[dialect]}
        for it in every:
            assert it.send(service.http).status_code == it.status, it
        collector = received()

    path_ids = dict(zip((STORE, ENTRY, VERSION), ids, strict=True))
    for it, name in zip(every, names, strict=True):
        span = collector.all(f"memory.{it.name}")[-1]
        named = {key: id_ for key, id_ in path_ids.items() if id_ in it.path}
        due = {"memory.operation": it.name} | named | SAID[dialect][name]
        assert span.attributes.keys() == due.keys(), name
        assert [
            value for key, value in due.items() if value not in (None, span.attributes[key])
        ] == []
    assert "hippopotamus" not in repr(collector.spans)


@pytest.mark.slow
def test_a_search_tells_its_hits_by_their_paths_and_its_words_to_itself_alone(
    tmp_path: Path,
) -> None:
    with traced(tmp_path) as (service, received):
        home = store(service.http)
        made = entry(service.http, home, "notes/a", "blue whales sing")
        service.http.get(at(home, "search"), params={"q": "whales"})
        collector = received()

    search = collector.one("memory.search_store")
    (hit,) = search.events
    assert hit.name == "search.result"
    assert hit.attributes["memory.entry.id"] == made["id"]
    assert hit.attributes["memory.entry.path"] == "notes/a"
    assert "whales" not in repr([span for span in collector.spans if span is not search])
