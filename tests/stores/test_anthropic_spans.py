"""Each operation of the Anthropic dialect is a span that names what it was about."""

from pathlib import Path

from ..support.anthropic_access import every_request
from ..support.anthropic_sdk import NOWHERE, STORES
from ..telemetry.test_tracing import traced

ABOUT_A_MEMORY = {"memory.store.id", "memory.entry.id", "memory.version.id", "memory.entry.size"}
ABOUT_A_VERSION = ABOUT_A_MEMORY - {"memory.entry.size"}
ABOUT_A_LIST = {"memory.store.id", "memory.result_count"}
ABOUT_A_STORE = {"memory.store.id"}
SAID = {
    "create_store": ABOUT_A_STORE, "list_stores": {"memory.result_count"},
    "get_store": ABOUT_A_STORE, "update_store": ABOUT_A_STORE, "archive_store": ABOUT_A_STORE,
    "delete_store": ABOUT_A_STORE, "create_memory": ABOUT_A_MEMORY, "list_memories": ABOUT_A_LIST,
    "get_memory": ABOUT_A_MEMORY, "update_memory": ABOUT_A_MEMORY,
    "delete_memory": {"memory.store.id", "memory.entry.id"}, "list_versions": ABOUT_A_LIST,
    "get_version": ABOUT_A_VERSION, "redact_version": ABOUT_A_VERSION,
}  # fmt: skip


def test_each_operation_says_what_it_was_about_and_nothing_that_was_written(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        store = service.http.post(STORES, json={"name": "hippopotamus"}).json()["id"]
        url = f"{STORES}/{store}/memories"
        body = {"path": "/hippopotamus", "content": "hippopotamus"}
        held = service.http.post(url, json=body).json()
        service.http.post(f"{url}/{held['id']}", json={"content": "second"})
        ids = {"memory.store.id": store, "memory.entry.id": held["id"]}
        every = every_request(store, held["id"], held["memory_version_id"])
        assert {asked.name for asked in every} == {f"anthropic_{name}" for name in SAID}
        for asked in every:
            assert asked.of(service.http).status_code == 200
        collector = received()

    for name, expected in SAID.items():
        span = collector.all(f"memory.anthropic_{name}")[-1]
        assert span.attributes.keys() - {"memory.operation"} == expected, name
        assert span.attributes["memory.operation"] == f"anthropic_{name}"
        if not name.startswith("create"):
            named = {key: span.attributes[key] for key in ids.keys() & expected}
            assert named.items() <= ids.items(), name
    assert "hippopotamus" not in repr(collector.spans)


def test_a_refusal_is_a_failed_span(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        service.http.get(f"{STORES}/{NOWHERE}")
        span = received().one("memory.anthropic_get_store")

    assert (span.failed, span.attributes["error.type"]) == (True, "not_found")
