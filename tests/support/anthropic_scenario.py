"""Every call of the package's memory stores, in one walk that any of its releases can do.

Run as a program it needs the package alone: `python anthropic_scenario.py RELEASE URL KEY`.
"""

import asyncio
import sys
from typing import Any

import anthropic


def walk(sdk: Any) -> None:
    """All fourteen calls, each with what it answers."""
    stores = sdk.beta.memory_stores
    notes = stores.create(name="notes", description="of Ada", metadata={"a": "1"})
    assert stores.retrieve(notes.id) == notes
    notes = stores.update(notes.id, name="diary", metadata={"a": None, "b": "2"})
    assert (notes.name, notes.description, notes.metadata) == ("diary", "of Ada", {"b": "2"})
    others = [stores.create(name=f"store {number}") for number in range(3)]
    assert [one.id for one in stores.list(limit=2, created_at_gte=notes.created_at)] == [
        one.id for one in (*others[::-1], notes)
    ]
    _memories(sdk, notes.id)
    _versions(sdk, notes.id)
    archived = stores.archive(notes.id)
    assert archived.archived_at is not None
    assert notes.id not in [one.id for one in stores.list()]
    assert archived in list(stores.list(include_archived=True))
    for one in (notes, *others):
        assert stores.delete(one.id).type == "memory_store_deleted"
    _assert_refused(stores.retrieve, notes.id, status=404, type_="not_found_error")


def _memories(sdk: Any, store: str) -> None:
    memories = sdk.beta.memory_stores.memories
    held = memories.create(store, path="/a/b.md", content="first", view="full")
    assert (held.path, held.content, held.content_size_bytes) == ("/a/b.md", "first", 5)
    assert memories.retrieve(held.id, memory_store_id=store) == held
    expected = {"type": "content_sha256", "content_sha256": held.content_sha256}
    held = memories.update(
        held.id, memory_store_id=store, path="/a/c.md", content="second", precondition=expected
    )
    assert (held.path, held.content) == ("/a/c.md", None)
    going = memories.create(store, path="/d", content="")
    assert [(item.type, item.path) for item in memories.list(store, depth=1, limit=1)] == [
        ("memory_prefix", "/a/"),
        ("memory", "/d"),
    ]
    full = memories.list(store, path_prefix="/a/", view="full")
    assert [item.content for item in full] == ["second"]
    create = {"memory_store_id": store, "path": "/d/e", "content": "x"}
    _assert_refused(memories.create, **create, status=409, type_="memory_path_conflict_error")
    deleted = memories.delete(
        going.id, memory_store_id=store, expected_content_sha256=going.content_sha256
    )
    assert (deleted.id, deleted.type) == (going.id, "memory_deleted")


def _versions(sdk: Any, store: str) -> None:
    history = sdk.beta.memory_stores.memory_versions
    listed = list(history.list(store, limit=1))
    assert [(version.operation, version.path) for version in listed] == [
        ("deleted", "/d"), ("created", "/d"), ("modified", "/a/c.md"), ("created", "/a/b.md"),
    ]  # fmt: skip
    first = history.retrieve(listed[3].id, memory_store_id=store)
    assert first.content == "first"
    assert [one.id for one in history.list(store, operation="modified")] == [listed[2].id]
    redacted = history.redact(first.id, memory_store_id=store)
    assert (redacted.path, redacted.content, redacted.content_sha256) == (None, None, None)
    assert redacted.redacted_at is not None


async def walk_async(sdk: Any) -> None:
    """The fourteen calls once more, on an event loop."""
    stores, memories = sdk.beta.memory_stores, sdk.beta.memory_stores.memories
    history = stores.memory_versions
    notes = await stores.create(name="notes")
    await stores.update(notes.id, name="diary")
    assert (await stores.retrieve(notes.id)).name == "diary"
    held = await memories.create(notes.id, path="/a", content="first")
    await memories.update(held.id, memory_store_id=notes.id, content="second")
    assert (await memories.retrieve(held.id, memory_store_id=notes.id)).content == "second"
    await memories.create(notes.id, path="/b", content="")
    assert [item.path async for item in memories.list(notes.id, limit=1)] == ["/a", "/b"]
    listed = [version async for version in history.list(notes.id, memory_id=held.id, limit=1)]
    await history.redact(listed[1].id, memory_store_id=notes.id)
    assert (await history.retrieve(listed[1].id, memory_store_id=notes.id)).redacted_at
    assert (await memories.delete(held.id, memory_store_id=notes.id)).id == held.id
    await stores.archive(notes.id)
    assert [one async for one in stores.list()] == []
    assert (await stores.delete(notes.id)).id == notes.id


def _assert_refused(call: Any, *args: str, status: int, type_: str, **kwargs: str) -> None:
    caught: Any = None
    try:
        call(*args, **kwargs)
    except anthropic.APIStatusError as error:
        caught = error
    assert caught is not None, "it was not refused"
    assert (caught.status_code, caught.body["error"]["type"]) == (status, type_)
    assert caught.body["request_id"] == caught.request_id


async def _in_a_loop(url: str, key: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key) as sdk:
        await walk_async(sdk)


def main(release: str, url: str, key: str) -> None:
    """Walk with each kind of client of this release."""
    assert anthropic.__version__ == release, anthropic.__version__
    for sdk in (
        anthropic.Anthropic(base_url=url, api_key=key),
        anthropic.Anthropic(base_url=url, auth_token=key),
    ):
        with sdk:
            walk(sdk)
    asyncio.run(_in_a_loop(url, key))


if __name__ == "__main__":
    main(*sys.argv[1:])
