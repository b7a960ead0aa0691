"""Each request in three moves: parse, call, render."""

from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ...http import spans
from ...http.bodies import json
from ...http.endpoint import current_caller
from ...http.ids import ENTRY, STORE, VERSION, entry_id, public_id, store_id, version_id
from ...http.request_ids import REQUEST_ID, request_id
from ...http.spans import Attributes
from ...memory.model.search import Found, Hit
from ...memory.model.space import StoreId
from ...memory.model.stores import Entry, EntryId, Slice, Store, Version, VersionId
from ...recall.recall import Recall
from ...recall.whole import whole_memory
from ...telemetry import Cut, annotate, events
from ..rules.entries import Entries
from ..rules.stores import Stores
from ..rules.versions import Versions
from . import models as m
from . import queries, wire
from .wire import BODIES

T = TypeVar("T")

SHOWN_QUERY = 200  # code points of a search
SHOWN_PATH = 100  # code points of the path of a memory that was found


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStores:
    """The handlers of the protocol over the domain."""

    stores: Stores
    entries: Entries
    versions: Versions
    recall: Recall

    async def create_store(self, request: Request) -> Response:
        draft = wire.store_draft(await BODIES.read(request, m.StoreBody))
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        made = await self.stores.create(caller, draft, idempotency=idempotency)
        annotate(_store_span(made.value))
        return _answered(request, wire.store(made.value), 201, redacted=made.redacted)

    async def list_stores(self, request: Request) -> Response:
        filter_, page = queries.store_filter(request), queries.page(request, STORE)
        found = await self.stores.list(current_caller(request), filter_, page)
        annotate(_page_span(found))
        return _answered(request, wire.listed(m.StoreList, wire.store, found))

    async def get_store(self, request: Request) -> Response:
        store = await self.stores.get(current_caller(request), _store(request))
        annotate(_store_span(store))
        return _answered(request, wire.store(store))

    async def archive_store(self, request: Request) -> Response:
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        store = await self.stores.archive(caller, _store(request), idempotency=idempotency)
        annotate(_store_span(store))
        return _answered(request, wire.store(store))

    async def delete_store(self, request: Request) -> Response:
        store = _store(request)
        annotate(spans.within(store))
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        await self.stores.delete(caller, store, idempotency=idempotency)
        return _nothing(request)

    async def create_entry(self, request: Request) -> Response:
        store = _store(request)
        draft = wire.entry_draft(await BODIES.read(request, m.EntryBody))
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        made = await self.entries.create(caller, store, draft, idempotency=idempotency)
        annotate(_entry_span(made.value))
        return _answered(request, wire.entry(made.value), 201, redacted=made.redacted)

    async def list_entries(self, request: Request) -> Response:
        store = _store(request)
        filter_, page = queries.entry_filter(request), queries.page(request, ENTRY)
        found = await self.entries.list(current_caller(request), store, filter_, page)
        annotate(spans.within(store) | _page_span(found))
        return _answered(request, wire.listed(m.EntryList, wire.entry, found))

    async def get_entry(self, request: Request) -> Response:
        store, entry = _store(request), _entry(request)
        found = await self.entries.get(current_caller(request), store, entry)
        annotate(_entry_span(found))
        return _answered(request, wire.entry(found))

    async def update_entry(self, request: Request) -> Response:
        store, entry = _store(request), _entry(request)
        given = await BODIES.read(request, m.EntryChangeBody)
        change, expected = wire.entry_change(given), wire.expected(given)
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        amended = await self.entries.amend(
            caller, store, entry, change, expected, idempotency=idempotency
        )
        annotate(_entry_span(amended.value))
        return _answered(request, wire.entry(amended.value), redacted=amended.redacted)

    async def delete_entry(self, request: Request) -> Response:
        store, entry = _store(request), _entry(request)
        annotate(spans.within(store, entry))
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        await self.entries.delete(caller, store, entry, idempotency=idempotency)
        return _nothing(request)

    async def search_store(self, request: Request) -> Response:
        store, text = _store(request), queries.words(request)
        found = await self.recall.search_store(
            current_caller(request), store, text, queries.limit(request)
        )
        annotate(spans.within(store) | _search_span(text, found))
        events("search.result", map(_hit_span, found.hits))
        return _answered(request, await wire.entry_hits(store, found))

    async def list_versions(self, request: Request) -> Response:
        store = _store(request)
        filter_, page = queries.version_filter(request), queries.page(request, VERSION)
        found = await self.versions.list(current_caller(request), store, filter_, page)
        annotate(spans.within(store) | _page_span(found))
        return _answered(request, wire.listed(m.VersionList, wire.version, found))

    async def get_version(self, request: Request) -> Response:
        store, version = _store(request), _version(request)
        found = await self.versions.get(current_caller(request), store, version)
        annotate(_version_span(found))
        return _answered(request, wire.version(found))

    async def redact_version(self, request: Request) -> Response:
        store, version = _store(request), _version(request)
        caller, idempotency = await BODIES.caller_and_idempotency(request)
        redacted = await self.versions.redact(caller, store, version, idempotency=idempotency)
        annotate(_version_span(redacted))
        return _answered(request, wire.version(redacted))


def _answered(
    request: Request, model: BaseModel, status: int = 200, *, redacted: int = 0
) -> Response:
    answer = json(model, status, redacted=redacted)
    answer.headers[REQUEST_ID] = request_id(request.headers)
    return answer


def _nothing(request: Request) -> Response:
    return Response(status_code=204, headers={REQUEST_ID: request_id(request.headers)})


def _store(request: Request) -> StoreId:
    return store_id(request.path_params["store_id"])


def _entry(request: Request) -> EntryId:
    return entry_id(request.path_params["entry_id"])


def _version(request: Request) -> VersionId:
    return version_id(request.path_params["version_id"])


def _store_span(of: Store) -> Attributes:
    return {**spans.within(of.id), "memory.store.entry_count": of.entries}


def _entry_span(of: Entry) -> Attributes:
    return {**spans.entry(of), "memory.entry.version": of.number}


def _version_span(of: Version) -> Attributes:
    return {**spans.version(of), "memory.version.action": of.deed.value}


def _page_span(found: Slice[T]) -> Attributes:
    return {"memory.page.result_count": len(found.items)}


def _search_span(text: str, found: Found) -> Attributes:
    return {
        "memory.search.query": Cut(text, SHOWN_QUERY),
        "memory.search.result_count": len(found.hits),
        "memory.search.degraded": found.is_degraded or None,
    }


def _hit_span(hit: Hit) -> Attributes:
    return {
        "memory.entry.id": public_id(ENTRY, whole_memory(hit).uid),
        "memory.entry.path": Cut(hit.memory.key or "", SHOWN_PATH),
        "memory.injected.rank": hit.rank,
        "memory.injected.method": hit.method.value,
    }
