"""What one dialect of memory stores makes, the other reads: they share one domain."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentops_memory.api.anthropic_stores.rules import POLICY
from agentops_memory.domain.entries import Branch, Entries
from agentops_memory.domain.errors import AlreadyDone, Invalid
from agentops_memory.domain.model import OPERATOR, Caller, StoreId
from agentops_memory.domain.ports import Engine
from agentops_memory.domain.store_model import (
    EntryDraft,
    EntryId,
    Page,
    StoreDraft,
    VersionId,
    VersionsSeen,
)
from agentops_memory.domain.store_rules import Policy
from agentops_memory.domain.stores import Stores
from agentops_memory.domain.versions import Versions
from agentops_memory.storage.sqlite import SqliteEngine

from .anthropic_sdk import STORES
from .requirements import requirement
from .service import Service

OTHERS = Policy(
    paths_nest=True,
    unchanged_is_change=True,
    done_is_done=False,
    repeats_are_refused=True,
    archived_keeps_entries=True,
    current_is_redacted=True,
    redaction_takes_all=False,
)
EVERY = Page(limit=100)


def unnoted(caller: Caller, action: str, **fields: object) -> None:
    """No audit is kept here."""


class Other:
    """The domain as the other dialect wants it, over the service's own file."""

    def __init__(self, engine: Engine) -> None:
        self.stores = Stores(engine=engine, policy=OTHERS, audit=unnoted)
        self.entries = Entries(engine=engine, policy=OTHERS)
        self.versions = Versions(engine=engine, policy=OTHERS, audit=unnoted)


def otherwise(service: Service, work: Callable[[Other], Awaitable[Any]]) -> Any:
    """What work answers that another process does in the other dialect."""

    async def run() -> Any:
        async with SqliteEngine.opened(service.path, clock=service.clock) as engine:
            return await work(Other(engine))

    return asyncio.run(run())


def public(kind: str, uid: str) -> str:
    return f"{kind}_{uid.replace('-', '')}"


@requirement("anthropic:both")
def test_a_store_of_the_other_dialect_is_read_as_one_of_this(service: Service) -> None:
    paths = ["a", "a/b", "a/b/c", "soft\u00adhyphen", "e\u0301", "x" * 1024]

    async def made(other: Other) -> str:
        draft = StoreDraft(name="n" * 64, description="d", metadata={"a": "b"})
        store = (await other.stores.create(OPERATOR, draft)).value
        for path in paths:
            entry = EntryDraft(path=path, content=f"of {path}", metadata={"k": "v"})
            await other.entries.create(OPERATOR, store.id, entry)
        return store.id

    id_ = public("memstore", otherwise(service, made))

    store = service.http.get(f"{STORES}/{id_}").json()
    listed = service.http.get(f"{STORES}/{id_}/memories?view=full&limit=20").json()["data"]
    assert (store["name"], store["metadata"]) == ("n" * 64, {"a": "b"})
    assert [(item["path"], item["content"]) for item in listed] == [
        (f"/{path}", f"of {path}") for path in sorted(paths)
    ]
    folders = service.http.get(f"{STORES}/{id_}/memories?depth=1").json()["data"]
    assert [item["path"] for item in folders][:2] == ["/a", "/a/"]
    changed = service.http.post(f"{STORES}/{id_}/memories/{listed[0]['id']}", json={"content": "x"})
    assert changed.status_code == 200


@requirement("anthropic:both")
def test_a_version_redacted_by_the_other_dialect_keeps_what_that_keeps(service: Service) -> None:
    async def made(other: Other) -> tuple[str, str, str]:
        store = (await other.stores.create(OPERATOR, StoreDraft(name="notes"))).value
        draft = EntryDraft(path="a", content="first")
        entry = (await other.entries.create(OPERATOR, store.id, draft)).value
        await other.versions.redact(OPERATOR, store.id, entry.version)
        return store.id, entry.id, entry.version

    store, entry, version = otherwise(service, made)
    url = f"{STORES}/{public('memstore', store)}"

    head = service.http.get(f"{url}/memory_versions/{public('memver', version)}").json()
    held = service.http.get(f"{url}/memories/{public('mem', entry)}").json()

    assert (head["content"], head["path"], head["content_size_bytes"]) == (None, "/a", 5)
    assert head["redacted_at"] == "2030-01-01T12:00:00.000000Z"
    assert (held["content"], held["memory_version_id"]) == ("first", head["id"])


@requirement("anthropic:both")
def test_what_this_dialect_made_is_read_by_the_other(service: Service) -> None:
    made = service.http.post(STORES, json={"name": " n" * 127, "metadata": {"a": "b"}}).json()
    url = f"{STORES}/{made['id']}"
    held = service.http.post(f"{url}/memories", json={"path": "/a/..b", "content": ""}).json()
    service.http.post(f"{url}/memories/{held['id']}", json={"path": "/c"})
    service.http.post(f"{url}/memory_versions/{held['memory_version_id']}/redact")
    service.http.post(f"{url}/archive")

    async def read(other: Other) -> None:
        store = StoreId(_uid(made["id"]))
        entry = await other.entries.get(OPERATOR, store, EntryId(_uid(held["id"])))
        assert (entry.path, entry.content, entry.number) == ("c", "", 2)
        found = await other.stores.get(OPERATOR, store)
        assert (found.name, found.entries, found.size) == (" n" * 127, 1, 0)
        tree = await other.entries.tree(OPERATOR, store, Branch(limit=10))
        assert [item if isinstance(item, str) else item.id for item in tree.items] == [entry.id]
        versions = await other.versions.list(OPERATOR, store, VersionsSeen(), EVERY)
        assert [(v.path, v.size, v.sha256 is None) for v in versions.items] == [
            ("c", 0, False),
            (None, None, True),
        ]
        with pytest.raises(AlreadyDone):
            await other.stores.archive(OPERATOR, store)
        redacted = VersionId(_uid(held["memory_version_id"]))
        with pytest.raises(AlreadyDone):
            await other.versions.redact(OPERATOR, store, redacted)

    otherwise(service, read)


def test_the_dialects_differ_in_every_rule_that_a_policy_has() -> None:
    ours, theirs = (
        {rule: getattr(policy, rule) for rule in Policy.__slots__ if rule != "longest_name"}
        for policy in (POLICY, OTHERS)
    )

    assert {rule: not is_so for rule, is_so in ours.items()} == theirs


def test_a_path_is_refused_in_the_domain_whatever_the_dialect(service: Service) -> None:
    async def refused(other: Other) -> None:
        store = (await other.stores.create(OPERATOR, StoreDraft(name="notes"))).value
        for path in ("", "a//b", "a/../b", "./a", "a/", "a\0", "/".join("a" * 21), "x" * 1025):
            draft = EntryDraft(path=path, content="x")
            with pytest.raises(Invalid):
                await other.entries.create(OPERATOR, store.id, draft)

    otherwise(service, refused)


def test_a_path_that_its_placeholders_make_too_long_is_refused_and_never_cut(
    service: Service,
) -> None:
    notes = service.http.post(STORES, json={"name": "notes"}).json()["id"]
    secrets = [f"AKIA{number:016}" for number in range(48)]
    path = "/" + ".".join(secrets[:24]) + "/" + ".".join(secrets[24:])
    assert len(path) <= 1024

    answers = [
        service.http.post(f"{STORES}/{notes}/memories", json={"path": given, "content": "x"})
        for given in (path, path[:-42])
    ]

    assert [answer.status_code for answer in answers] == [400, 200]
    assert answers[0].json()["error"]["message"] == "path has at most 1,024 bytes."
    assert answers[1].json()["path"].endswith("]")


def _uid(shown: str) -> str:
    digits = shown.partition("_")[2]
    return "-".join(
        digits[start:end] for start, end in [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)]
    )
