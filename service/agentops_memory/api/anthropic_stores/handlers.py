"""Each request in three moves: parse, call, render."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ...domain.memories.idempotency import IdempotentRequest
from ...domain.model.access import KeyId
from ...domain.model.space import StoreId
from ...domain.model.stores import (
    ANY_STATE,
    EntryId,
    Expected,
    Page,
    StoresSeen,
    VersionId,
    VersionsSeen,
)
from ...domain.stores.entries import Entries
from ...domain.stores.listing import Branch
from ...domain.stores.rules import NO_ENTRY, NO_STORE, NO_VERSION
from ...domain.stores.stores import Stores
from ...domain.stores.versions import Versions
from ...telemetry import annotate
from ..kit.gate import current_caller
from ..kit.http import json_object
from ..kit.idempotency import idempotency_of
from ..kit.ids import ENTRY, STORE, VERSION, known_uid, uid_of
from . import answers, parameters, spans, wire
from . import models as m
from .parameters import View

MAX_BODY = 4 * 1024 * 1024  # bytes
NOBODY = EntryId("")  # an id of no memory
FOREIGN_AUTHORS = ("session_id", "service_account_id")  # who writes nothing here


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicStores:
    """The handlers of the protocol over the domain."""

    stores: Stores
    entries: Entries
    versions: Versions

    async def create_store(self, request: Request) -> Response:
        given = wire.body(m.AnthropicStoreBody, await _body(request))
        idempotency = await _once(request)
        made = await self.stores.create(
            current_caller(request), wire.store_draft(given), idempotency=idempotency
        )
        annotate(spans.store(made.value))
        return answers.json(wire.store(made.value), redacted=made.redacted)

    async def get_store(self, request: Request) -> Response:
        store = await self.stores.get(current_caller(request), _store(request))
        annotate(spans.store(store))
        return answers.json(wire.store(store))

    async def update_store(self, request: Request) -> Response:
        id_ = _store(request)
        given = wire.body(m.AnthropicStoreChange, await _body(request, empty=True))
        idempotency = await _once(request)
        amended = await self.stores.amend(
            current_caller(request), id_, wire.store_change(given), idempotency=idempotency
        )
        annotate(spans.store(amended.value))
        return answers.json(wire.store(amended.value), redacted=amended.redacted)

    async def list_stores(self, request: Request) -> Response:
        seen = StoresSeen(
            with_archived=parameters.with_archived(request),
            created=parameters.created(request),
        )
        page = Page(limit=parameters.limit(request), after=parameters.after(request))
        found = await self.stores.list(current_caller(request), seen, page)
        annotate(spans.listed(len(found.items)))
        next_page = parameters.next_page(request, found.items[-1].id) if found.has_more else None
        data = [wire.store(store) for store in found.items]
        return answers.json(m.AnthropicStoreList(data=data, next_page=next_page))

    async def archive_store(self, request: Request) -> Response:
        id_, idempotency = _store(request), await _once(request)
        store = await self.stores.archive(current_caller(request), id_, idempotency=idempotency)
        annotate(spans.store(store))
        return answers.json(wire.store(store))

    async def delete_store(self, request: Request) -> Response:
        store = _store(request)
        annotate(spans.in_store(store))
        idempotency = await _once(request)
        await self.stores.delete(current_caller(request), store, idempotency=idempotency)
        return answers.json(m.AnthropicStoreDeleted(id=wire.store_id(store)))

    async def create_memory(self, request: Request) -> Response:
        store, full = _store(request), parameters.is_full(request)
        given = wire.body(m.AnthropicMemoryBody, await _body(request))
        idempotency = await _once(request)
        made = await self.entries.create(
            current_caller(request), store, wire.entry_draft(given), idempotency=idempotency
        )
        annotate(spans.entry(made.value))
        return answers.json(wire.memory(made.value, full=full), redacted=made.redacted)

    async def get_memory(self, request: Request) -> Response:
        full = parameters.is_full(request, View.FULL)
        entry = await self.entries.get(current_caller(request), _store(request), _memory(request))
        annotate(spans.entry(entry))
        return answers.json(wire.memory(entry, full=full))

    async def update_memory(self, request: Request) -> Response:
        store, entry, full = _store(request), _memory(request), parameters.is_full(request)
        given = wire.body(m.AnthropicMemoryChange, await _body(request, empty=True))
        change, expected = wire.entry_change(given), wire.expected(given)
        idempotency = await _once(request)
        amended = await self.entries.amend(
            current_caller(request), store, entry, change, expected, idempotency=idempotency
        )
        annotate(spans.entry(amended.value))
        return answers.json(wire.memory(amended.value, full=full), redacted=amended.redacted)

    async def list_memories(self, request: Request) -> Response:
        store, full = _store(request), parameters.is_full(request)
        branch = Branch(
            prefix=parameters.prefix(request),
            is_shallow=parameters.is_shallow(request),
            after=parameters.after(request),
            limit=parameters.limit(request, full=full),
            with_content=full,
        )
        found = await self.entries.tree(current_caller(request), store, branch)
        annotate(spans.in_store(store) | spans.listed(len(found.items)))
        last = found.items[-1] if found.has_more else None
        place = last if last is None or isinstance(last, str) else last.path
        next_page = None if place is None else parameters.next_page(request, place)
        data = [wire.item(item, full=full) for item in found.items]
        return answers.json(m.AnthropicMemoryList(data=data, next_page=next_page))

    async def delete_memory(self, request: Request) -> Response:
        store, entry = _store(request), _memory(request)
        sha256 = parameters.given(request, "expected_content_sha256")
        expected = ANY_STATE if sha256 is None else Expected(sha256=sha256)
        idempotency = await _once(request)
        await self.entries.delete(
            current_caller(request), store, entry, expected, idempotency=idempotency
        )
        id_ = wire.memory_id(entry)
        annotate(spans.in_store(store) | {"memory.entry.id": id_})
        return answers.json(m.AnthropicMemoryDeleted(id=id_))

    async def list_versions(self, request: Request) -> Response:
        store, full = _store(request), parameters.is_full(request)
        page = Page(limit=parameters.limit(request, full=full), after=parameters.after(request))
        found = await self.versions.list(
            current_caller(request), store, _versions_seen(request, full=full), page
        )
        annotate(spans.in_store(store) | spans.listed(len(found.items)))
        next_page = parameters.next_page(request, found.items[-1].id) if found.has_more else None
        data = [wire.version(version, full=full) for version in found.items]
        return answers.json(m.AnthropicVersionList(data=data, next_page=next_page))

    async def get_version(self, request: Request) -> Response:
        full = parameters.is_full(request, View.FULL)
        version = await self.versions.get(
            current_caller(request), _store(request), _version(request)
        )
        annotate(spans.version(version))
        return answers.json(wire.version(version, full=full))

    async def redact_version(self, request: Request) -> Response:
        store, id_ = _store(request), _version(request)
        idempotency = await _once(request)
        version = await self.versions.redact(
            current_caller(request), store, id_, idempotency=idempotency
        )
        annotate(spans.version(version))
        return answers.json(wire.version(version, full=False))


async def _body(request: Request, *, empty: bool = False) -> dict[str, object]:
    return await json_object(request, limit=MAX_BODY, empty=empty, exact=True)


async def _once(request: Request) -> IdempotentRequest | None:
    return await idempotency_of(request, limit=MAX_BODY)


def _versions_seen(request: Request, *, full: bool) -> VersionsSeen:
    memory, key = (parameters.given(request, name) for name in ("memory_id", "api_key_id"))
    entry = None if memory is None else EntryId(uid_of(ENTRY, memory) or NOBODY)
    if any(parameters.given(request, name) is not None for name in FOREIGN_AUTHORS):
        entry = NOBODY
    return VersionsSeen(
        entry=entry,
        deed=parameters.operation(request),
        author=None if key is None else KeyId(key),
        created=parameters.created(request),
        with_content=full,
    )


def _store(request: Request) -> StoreId:
    return StoreId(known_uid(STORE, request.path_params["memory_store_id"], NO_STORE))


def _memory(request: Request) -> EntryId:
    return EntryId(known_uid(ENTRY, request.path_params["memory_id"], NO_ENTRY))


def _version(request: Request) -> VersionId:
    return VersionId(known_uid(VERSION, request.path_params["memory_version_id"], NO_VERSION))
