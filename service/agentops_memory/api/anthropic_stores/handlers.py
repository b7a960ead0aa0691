"""Each request in three moves: parse, call, render."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

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
from ...domain.stores.stores import Stores
from ...domain.stores.versions import Versions
from ...telemetry import annotate
from ..kit import spans
from ..kit.bodies import json
from ..kit.endpoint import current_caller
from ..kit.ids import ENTRY, entry_id, store_id, uid_of, version_id
from ..kit.spans import Attributes
from . import models as m
from . import parameters, wire
from .parameters import View
from .wire import BODIES, REQUEST_ID

NOBODY = EntryId("")  # an id of no memory
FOREIGN_AUTHORS = ("session_id", "service_account_id")  # who writes nothing here


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicStores:
    """The handlers of the protocol over the domain."""

    stores: Stores
    entries: Entries
    versions: Versions

    async def create_store(self, request: Request) -> Response:
        given = await BODIES.read(request, m.AnthropicStoreBody)
        idempotency = await BODIES.idempotency(request)
        made = await self.stores.create(
            current_caller(request), wire.store_draft(given), idempotency=idempotency
        )
        annotate(spans.within(made.value.id))
        return _answered(wire.store(made.value), redacted=made.redacted)

    async def get_store(self, request: Request) -> Response:
        store = await self.stores.get(current_caller(request), _store(request))
        annotate(spans.within(store.id))
        return _answered(wire.store(store))

    async def update_store(self, request: Request) -> Response:
        id_ = _store(request)
        given = await BODIES.read(request, m.AnthropicStoreChange, empty=True)
        idempotency = await BODIES.idempotency(request)
        amended = await self.stores.amend(
            current_caller(request), id_, wire.store_change(given), idempotency=idempotency
        )
        annotate(spans.within(amended.value.id))
        return _answered(wire.store(amended.value), redacted=amended.redacted)

    async def list_stores(self, request: Request) -> Response:
        seen = StoresSeen(
            with_archived=parameters.with_archived(request),
            created=parameters.created(request),
        )
        page = Page(limit=parameters.limit(request), after=parameters.after(request))
        found = await self.stores.list(current_caller(request), seen, page)
        annotate(_listed(found.items))
        next_page = parameters.next_page(request, found.items[-1].id) if found.has_more else None
        data = [wire.store(store) for store in found.items]
        return _answered(m.AnthropicStoreList(data=data, next_page=next_page))

    async def archive_store(self, request: Request) -> Response:
        id_, idempotency = _store(request), await BODIES.idempotency(request)
        store = await self.stores.archive(current_caller(request), id_, idempotency=idempotency)
        annotate(spans.within(store.id))
        return _answered(wire.store(store))

    async def delete_store(self, request: Request) -> Response:
        store = _store(request)
        annotate(spans.within(store))
        idempotency = await BODIES.idempotency(request)
        await self.stores.delete(current_caller(request), store, idempotency=idempotency)
        return _answered(m.AnthropicStoreDeleted(id=wire.store_id(store)))

    async def create_memory(self, request: Request) -> Response:
        store, full = _store(request), parameters.is_full(request)
        given = await BODIES.read(request, m.AnthropicMemoryBody)
        idempotency = await BODIES.idempotency(request)
        made = await self.entries.create(
            current_caller(request), store, wire.entry_draft(given), idempotency=idempotency
        )
        annotate(spans.entry(made.value, made.value.version))
        return _answered(wire.memory(made.value, full=full), redacted=made.redacted)

    async def get_memory(self, request: Request) -> Response:
        full = parameters.is_full(request, View.FULL)
        entry = await self.entries.get(current_caller(request), _store(request), _memory(request))
        annotate(spans.entry(entry, entry.version))
        return _answered(wire.memory(entry, full=full))

    async def update_memory(self, request: Request) -> Response:
        store, entry, full = _store(request), _memory(request), parameters.is_full(request)
        given = await BODIES.read(request, m.AnthropicMemoryChange, empty=True)
        change, expected = wire.entry_change(given), wire.expected(given)
        idempotency = await BODIES.idempotency(request)
        amended = await self.entries.amend(
            current_caller(request), store, entry, change, expected, idempotency=idempotency
        )
        annotate(spans.entry(amended.value, amended.value.version))
        return _answered(wire.memory(amended.value, full=full), redacted=amended.redacted)

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
        annotate(spans.within(store) | _listed(found.items))
        last = found.items[-1] if found.has_more else None
        after = last if last is None or isinstance(last, str) else last.path
        next_page = None if after is None else parameters.next_page(request, after)
        data = [wire.item(item, full=full) for item in found.items]
        return _answered(m.AnthropicMemoryList(data=data, next_page=next_page))

    async def delete_memory(self, request: Request) -> Response:
        store, entry = _store(request), _memory(request)
        sha256 = parameters.given(request, "expected_content_sha256")
        expected = ANY_STATE if sha256 is None else Expected(sha256=sha256)
        idempotency = await BODIES.idempotency(request)
        await self.entries.delete(
            current_caller(request), store, entry, expected, idempotency=idempotency
        )
        annotate(spans.within(store, entry))
        return _answered(m.AnthropicMemoryDeleted(id=wire.memory_id(entry)))

    async def list_versions(self, request: Request) -> Response:
        store, full = _store(request), parameters.is_full(request)
        page = Page(limit=parameters.limit(request, full=full), after=parameters.after(request))
        found = await self.versions.list(
            current_caller(request), store, _versions_seen(request, full=full), page
        )
        annotate(spans.within(store) | _listed(found.items))
        next_page = parameters.next_page(request, found.items[-1].id) if found.has_more else None
        data = [wire.version(version, full=full) for version in found.items]
        return _answered(m.AnthropicVersionList(data=data, next_page=next_page))

    async def get_version(self, request: Request) -> Response:
        full = parameters.is_full(request, View.FULL)
        version = await self.versions.get(
            current_caller(request), _store(request), _version(request)
        )
        annotate(spans.version(version))
        return _answered(wire.version(version, full=full))

    async def redact_version(self, request: Request) -> Response:
        store, id_ = _store(request), _version(request)
        idempotency = await BODIES.idempotency(request)
        version = await self.versions.redact(
            current_caller(request), store, id_, idempotency=idempotency
        )
        annotate(spans.version(version))
        return _answered(wire.version(version, full=False))


def _answered(model: BaseModel, *, redacted: int = 0) -> Response:
    return json(model, redacted=redacted, headers={REQUEST_ID: wire.new_request_id()})


def _listed(items: Sequence[object]) -> Attributes:
    return {"memory.result_count": len(items)}


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
    return store_id(request.path_params["memory_store_id"])


def _memory(request: Request) -> EntryId:
    return entry_id(request.path_params["memory_id"])


def _version(request: Request) -> VersionId:
    return version_id(request.path_params["memory_version_id"])
