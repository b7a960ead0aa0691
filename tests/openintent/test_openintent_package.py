"""The Python package `openintent` against the service's own address, unmodified."""

from collections.abc import Iterator
from datetime import datetime

import pytest
from openintent import OpenIntentClient
from openintent.exceptions import ConflictError, NotFoundError, OpenIntentError, ValidationError
from openintent.models import (
    EventType,
    IntentEvent,
    MemoryPriority,
    MemoryType,
    NamespacePermissions,
)

from ..support.openintent_agents import NAMESPACES, Agent, async_package, ok, package
from ..support.requirements import requirement
from ..support.service import Service


@pytest.fixture
def sdk(service: Service) -> Iterator[OpenIntentClient]:
    with package(service) as client:
        yield client


@requirement("OI-1", "OI-13", "OI-14", "OI-28")
def test_an_entry_goes_through_the_packages_calls(sdk: OpenIntentClient) -> None:
    made = sdk.create_memory(
        "ada", "invoices", "progress", {"done": 12}, memory_type="episodic", tags=["batch"],
        scope={"task_id": "t1"}, pinned=True, priority="high", ttl="duration:P30D",
    )  # fmt: skip
    assert (made.memory_type, made.priority) == (MemoryType.EPISODIC, MemoryPriority.HIGH)
    assert (made.value, made.tags, made.pinned, made.version) == ({"done": 12}, ["batch"], True, 1)
    assert made.scope is not None
    assert made.scope.task_id == "t1"
    assert made.expires_at == datetime.fromisoformat("2030-01-31T12:00:00+00:00")

    assert sdk.get_memory(made.id) == made
    after = sdk.update_memory(made.id, made.version, value={"done": 13})
    assert (after.version, after.value, after.tags) == (2, {"done": 13}, ["batch"])
    assert sdk.list_memory("ada", namespace="inv*", memory_type="episodic", tags=["batch"]) == [
        after
    ]
    sdk.delete_memory(made.id)
    with pytest.raises(NotFoundError):
        sdk.get_memory(made.id)
    assert sdk.list_memory("ada") == []


@requirement("OI-10", "OI-25")
def test_the_package_is_told_what_won(sdk: OpenIntentClient) -> None:
    made = sdk.create_memory("ada", "notes", "b", {"by": "me"})
    sdk.update_memory(made.id, 1, value={"by": "another"})
    with pytest.raises(ConflictError) as caught:
        sdk.update_memory(made.id, 1, value={"by": "me"})
    assert (caught.value.current_version, type(caught.value)) == (2, ConflictError)
    assert caught.value.response is not None
    assert caught.value.response["current"]["value"] == {"by": "another"}
    plain = sdk.create_memory("ada", "notes", "a", {})
    with pytest.raises(ConflictError) as taken:
        sdk.create_memory("ada", "notes", "a", {})
    assert taken.value.current_version == plain.version

    told = sdk.create_memory("ada", "notes", "a lease", {})  # a word that the package looks for
    with pytest.raises(OpenIntentError) as other:
        sdk.update_memory(told.id, 7, value={})
    assert other.value.response is not None
    assert other.value.response["current_version"] == 1


@requirement("OI-9", "OI-5")
def test_the_package_shows_what_is_wrong(sdk: OpenIntentClient) -> None:
    with pytest.raises(ValidationError, match="key must not be empty") as caught:
        sdk.create_memory("ada", "notes", "", {})
    assert [fault["field"] for fault in caught.value.errors] == ["key"]
    with pytest.raises(OpenIntentError, match="403"):
        sdk.create_memory("bob", "notes", "a", {})


@requirement("OI-1")
async def test_the_asynchronous_client_does_the_same(service: Service) -> None:
    async with async_package(service) as sdk:
        made = await sdk.create_memory("ada", "notes", "a", {"n": 1})
        assert await sdk.get_memory(made.id) == made
        after = await sdk.update_memory(made.id, 1, value={"n": 2})
        with pytest.raises(ConflictError) as caught:
            await sdk.update_memory(made.id, 1, value={"n": 3})
        assert caught.value.current_version == 2
        assert await sdk.list_memory("ada") == [after]
        await sdk.delete_memory(made.id)
        assert await sdk.list_memory("ada") == []


@requirement("OI-74", "OI-66")
def test_the_package_reads_events_and_namespaces(service: Service) -> None:
    ada = Agent(service.http)
    ok(ada.delete(ada.make(tags=["a"])))
    permitted = ada.permit("team", "none", bob="write")

    events = [IntentEvent.from_dict(told) for told in ada.events()]
    assert [it.event_type for it in events] == [EventType("memory.deleted"),
                                                EventType("memory.created")]  # fmt: skip
    assert [it.actor for it in events] == ["ada", "ada"]
    parsed = NamespacePermissions.from_dict(permitted)
    assert (parsed.namespace, parsed.default) == ("team", "none")
    assert parsed.allow == [{"agent": "bob", "access": "write"}]
    assert NamespacePermissions.from_dict(ok(ada.ask("GET", f"{NAMESPACES}/team"))) == parsed
