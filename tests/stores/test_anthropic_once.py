"""Writes of the Anthropic dialect under an idempotency key are done once."""

import anthropic
import pytest

from ..support.anthropic_access import every_request
from ..support.anthropic_sdk import (
    NEVER,
    NOTHING,
    NOWHERE,
    STORES,
    memory,
    refusal,
    sdk,
    store,
    versions,
)
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service

__all__ = ["sdk"]

KEY = {"Idempotency-Key": "5b1d7e0c-order-17"}


@requirement("anthropic:once")
def test_each_write_is_done_once_under_a_key(service: Service, sdk: anthropic.Anthropic) -> None:
    notes = store(sdk)
    held = memory(sdk, notes, "/a", "first")
    sdk.beta.memory_stores.memories.update(held.id, memory_store_id=notes.id, content="second")

    for asked in every_request(notes.id, held.id, held.memory_version_id):
        if asked.role == "reader":
            continue
        key = {"Idempotency-Key": asked.name}
        answers = [
            service.http.request(asked.method, asked.path, json=asked.body, headers=key)
            for _ in range(2)
        ]
        assert [answer.status_code for answer in answers] == [200, 200], asked.name
        assert answers[0].json() == answers[1].json(), asked.name
        assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None, "true"]
        assert answers[0].headers["request-id"] != answers[1].headers["request-id"]


@requirement("anthropic:once")
def test_a_store_comes_as_it_was_made_although_it_is_archived(service: Service) -> None:
    def made() -> dict[str, object]:
        answer: dict[str, object] = service.http.post(
            STORES, json={"name": "notes"}, headers=KEY
        ).json()
        return answer

    first = made()
    service.clock.advance(minutes=1)
    service.http.post(f"{STORES}/{first['id']}/archive")

    assert first["updated_at"] == "2030-01-01T12:00:00.000000Z"
    assert made() == first


@pytest.mark.slow
def test_every_write_is_described_with_a_key(service: Service) -> None:
    described = service.http.get("/openapi.json").json()["paths"]

    takes = {
        operation["operationId"]
        for path, operations in described.items()
        for operation in operations.values()
        if path.startswith("/anthropic/")
        if "Idempotency-Key" in {parameter["name"] for parameter in operation["parameters"]}
    }
    asked = every_request(NOWHERE, NOTHING, NEVER)
    assert takes == {one.name for one in asked if one.role != "reader"}


@requirement("anthropic:once")
def test_another_request_under_the_key_is_a_conflict(sdk: anthropic.Anthropic) -> None:
    notes = store(sdk)
    memories = sdk.beta.memory_stores.memories
    first = memories.create(notes.id, path="/a", content="x", extra_headers=KEY)

    again = memories.create(notes.id, path="/a", content="x", extra_headers=KEY)
    error = refusal(
        lambda: memories.create(notes.id, path="/b", content="x", extra_headers=KEY),
        anthropic.ConflictError,
    )

    assert again == first
    assert error == {
        "type": "conflict_error",
        "message": "Idempotency key reused with a different request body.",
    }
    assert len(versions(sdk, notes)) == 1


@for_each("key", [b"", "é".encode(), b"k" * 256])
def test_what_is_no_key_is_refused_in_the_envelope(service: Service, key: bytes) -> None:
    answer = service.http.post(STORES, json={"name": "n"}, headers={b"Idempotency-Key": key})

    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
