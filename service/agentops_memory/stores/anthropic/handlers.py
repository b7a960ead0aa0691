"""Each request in three moves: parse, call, render."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ...http import spans
from ...http.bodies import json
from ...http.endpoint import current_caller
from ...http.ids import ENTRY, STORE, entry_id, public_id, store_id, version_id
from ...http.spans import Attributes
from ...memory.model.space import StoreId
from ...memory.model.stores import EntryId, VersionId
from ...telemetry import annotate
from ..rules.entries import Entries
from ..rules.stores import Stores
from ..rules.versions import Versions
from . import models as m
from . import queries, wire
from .wire import BODIES, REQUEST_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicStores:
    """The handlers of the protocol over the domain."""

    stores: Stores
    entries: Entries
    versions: Versions

    async def create_store(self, request: Request) -> Response:
        given = await BODIES.read(request, m.AnthropicStoreBody)
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        made = await self.stores.create(caller, wire.store_draft(given), idempotency=idempotency)
        annotate(spans.within(made.value.id))
        return _answered(wire.store(made.value), redacted=made.redacted)

    async def get_store(self, request: Request) -> Response:
        store = await self.stores.get(current_caller(request), _store(request))
        annotate(spans.within(store.id))
        return _answered(wire.store(store))

    async def update_store(self, request: Request) -> Response:
        id_ = _store(request)
        given = await BODIES.read(request, m.AnthropicStoreChange, empty=True)
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        amended = await self.stores.amend(
            caller, id_, wire.store_change(given), idempotency=idempotency
        )
        annotate(spans.within(amended.value.id))
        return _answered(wire.store(amended.value), redacted=amended.redacted)

    async def list_stores(self, request: Request) -> Response:
        filter_, page = queries.store_filter(request), queries.page(request)
        found = await self.stores.list(current_caller(request), filter_, page)
        annotate(_listed(found.items))
        data = [wire.store(store) for store in found.items]
        return _answered(
            m.AnthropicStoreList(data=data, next_page=queries.next_page(request, found))
        )

    async def archive_store(self, request: Request) -> Response:
        id_ = _store(request)
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        store = await self.stores.archive(caller, id_, idempotency=idempotency)
        annotate(spans.within(store.id))
        return _answered(wire.store(store))

    async def delete_store(self, request: Request) -> Response:
        store = _store(request)
        annotate(spans.within(store))
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        await self.stores.delete(caller, store, idempotency=idempotency)
        return _answered(m.AnthropicStoreDeleted(id=public_id(STORE, store)))

    async def create_memory(self, request: Request) -> Response:
        store, full = _store(request), queries.is_full(request)
        given = await BODIES.read(request, m.AnthropicMemoryBody)
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        made = await self.entries.create(
            caller, store, wire.entry_draft(given), idempotency=idempotency
        )
        annotate(spans.entry(made.value, made.value.version))
        return _answered(wire.memory(made.value, full=full), redacted=made.redacted)

    async def get_memory(self, request: Request) -> Response:
        full = queries.is_full(request, unless_told=True)
        entry = await self.entries.get(current_caller(request), _store(request), _memory(request))
        annotate(spans.entry(entry, entry.version))
        return _answered(wire.memory(entry, full=full))

    async def update_memory(self, request: Request) -> Response:
        store, entry, full = _store(request), _memory(request), queries.is_full(request)
        given = await BODIES.read(request, m.AnthropicMemoryChange, empty=True)
        change, expected = wire.entry_change(given), wire.expected(given)
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        amended = await self.entries.amend(
            caller, store, entry, change, expected, idempotency=idempotency
        )
        annotate(spans.entry(amended.value, amended.value.version))
        return _answered(wire.memory(amended.value, full=full), redacted=amended.redacted)

    async def list_memories(self, request: Request) -> Response:
        store, full = _store(request), queries.is_full(request)
        branch = queries.branch(request, full=full)
        found = await self.entries.tree(current_caller(request), store, branch)
        annotate(spans.within(store) | _listed(found.items))
        data = [wire.item(item, full=full) for item in found.items]
        return _answered(
            m.AnthropicMemoryList(data=data, next_page=queries.next_page(request, found))
        )

    async def delete_memory(self, request: Request) -> Response:
        store, entry = _store(request), _memory(request)
        expected = queries.expected(request)
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        await self.entries.delete(caller, store, entry, expected, idempotency=idempotency)
        annotate(spans.within(store, entry))
        return _answered(m.AnthropicMemoryDeleted(id=public_id(ENTRY, entry)))

    async def list_versions(self, request: Request) -> Response:
        store, full = _store(request), queries.is_full(request)
        page = queries.page(request, full=full)
        filter_ = queries.version_filter(request, full=full)
        found = await self.versions.list(current_caller(request), store, filter_, page)
        annotate(spans.within(store) | _listed(found.items))
        data = [wire.version(version, full=full) for version in found.items]
        return _answered(
            m.AnthropicVersionList(data=data, next_page=queries.next_page(request, found))
        )

    async def get_version(self, request: Request) -> Response:
        full = queries.is_full(request, unless_told=True)
        version = await self.versions.get(
            current_caller(request), _store(request), _version(request)
        )
        annotate(spans.version(version))
        return _answered(wire.version(version, full=full))

    async def redact_version(self, request: Request) -> Response:
        store, id_ = _store(request), _version(request)
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        version = await self.versions.redact(caller, store, id_, idempotency=idempotency)
        annotate(spans.version(version))
        return _answered(wire.version(version, full=False))


def _answered(model: BaseModel, *, redacted: int = 0) -> Response:
    return json(model, redacted=redacted, headers={REQUEST_ID: wire.new_request_id()})


def _listed(items: Sequence[object]) -> Attributes:
    return {"memory.result_count": len(items)}


def _store(request: Request) -> StoreId:
    return store_id(request.path_params["memory_store_id"])


def _memory(request: Request) -> EntryId:
    return entry_id(request.path_params["memory_id"])


def _version(request: Request) -> VersionId:
    return version_id(request.path_params["memory_version_id"])
