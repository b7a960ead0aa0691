"""What a request to memory stores leaves in a trace."""

from pathlib import Path

import pytest

from ..support.stores import (
    STORES,
    at,
    delete,
    entry,
    entry_at,
    redact,
    store,
    update,
    version_at,
    versions,
)
from ..telemetry.test_tracing import traced


@pytest.mark.slow
def test_each_operation_says_what_it_was_about(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        http = service.http
        home = store(http)
        made = entry(http, home, "notes/a", "blue whales sing")
        update(http, home, made, "blue whales dive")
        http.get(entry_at(home, made))
        http.get(at(home, "search"), params={"q": "whales"})
        _, first = versions(http, home)
        redact(http, home, first)
        for path in (STORES, at(home), at(home, "memories"), version_at(home, first)):
            assert http.get(path).status_code == 200
        delete(http, entry_at(home, made))
        http.post(at(home, "archive"))
        delete(http, at(home))
        paths = http.get("/openapi.json").json()["paths"]
        collector = received()

    within = {"memory.store.id": home["id"]}
    about = within | {"memory.entry.id": made["id"]}
    version = about | {"memory.version.id": first["id"], "memory.version.action": "created"}
    told: dict[str, dict[str, object]] = {
        "get_store": within | {"memory.store.entry_count": 1},
        "archive_store": within | {"memory.store.entry_count": 0},
        "list_entries": within | {"memory.page.result_count": 1}, "get_version": version,
        "search_store": within | {"memory.search.query": "whales", "memory.search.result_count": 1},
        "create_store": within | {"memory.store.entry_count": 0},
        "create_entry": about | {"memory.entry.version": 1, "memory.entry.size": 16},
        "update_entry": about | {"memory.entry.version": 2, "memory.entry.size": 16},
        "get_entry": about | {"memory.entry.version": 2},
        "list_versions": within | {"memory.page.result_count": 2}, "redact_version": version,
        "list_stores": {"memory.page.result_count": 1}, "delete_entry": about,
        "delete_store": within,
    }  # fmt: skip
    served = {
        operation["operationId"]
        for path, methods in paths.items()
        for operation in methods.values()
        if path.startswith(STORES)
    }
    assert told.keys() == served
    for name, attributes in told.items():
        span = collector.one(f"memory.{name}")
        assert span.attributes.items() >= (attributes | {"memory.operation": name}).items()
    search = collector.one("memory.search_store")
    (hit,) = search.events
    assert hit.name == "search.result"
    assert hit.attributes["memory.entry.id"] == made["id"]
    assert hit.attributes["memory.entry.path"] == "notes/a"
    assert "whales" not in repr([span for span in collector.spans if span is not search])


def test_a_refusal_is_a_failed_span_with_its_type(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        home = store(service.http)
        made = entry(service.http, home, "a")
        taken = {"path": "a", "content": "x"}
        assert service.http.post(at(home, "memories"), json=taken).status_code == 409
        stale = {"content": "x", "version": 7}
        assert service.http.put(entry_at(home, made), json=stale).status_code == 409
        assert service.http.get(at(home, "versions", "x")).status_code == 404
        assert service.http.get(f"{STORES}?limit=0").status_code == 400
        collector = received()

    def error(name: str) -> object:
        return collector.all(f"memory.{name}")[-1].attributes["error.type"]

    assert error("create_entry") == error("update_entry") == "constraint_violation"
    assert error("get_version") == "not_found"
    assert error("list_stores") == "invalid_input"
