"""Each request in three moves: parse, call, render."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ...domain.memories.idempotency import IdempotentRequest
from ...domain.recall.recall import Recall
from ...domain.stores.entries import Entries
from ...domain.stores.stores import Stores
from ...domain.stores.versions import Versions
from ...telemetry import annotate, event
from ..kit.gate import current_caller
from ..kit.http import json_object
from ..kit.idempotency import idempotency_of
from ..kit.ids import ENTRY, STORE, VERSION
from . import answers, queries, spans, wire
from . import models as m
from .policy import MAX_BODY


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStores:
    """The handlers of the protocol over the domain."""

    stores: Stores
    entries: Entries
    versions: Versions
    recall: Recall

    async def create_store(self, request: Request) -> Response:
        draft = wire.store_draft(wire.body(m.StoreBody, await _json(request)))
        idempotency = await _once(request)
        made = await self.stores.create(current_caller(request), draft, idempotency=idempotency)
        annotate(spans.store(made.value))
        return answers.json(wire.store(made.value), 201, redacted=made.redacted)

    async def list_stores(self, request: Request) -> Response:
        seen, page = queries.stores_seen(request), queries.page(request, STORE)
        found = await self.stores.list(current_caller(request), seen, page)
        annotate(spans.page(found))
        return answers.json(wire.store_list(found))

    async def get_store(self, request: Request) -> Response:
        store = await self.stores.get(current_caller(request), queries.store_id(request))
        annotate(spans.store(store))
        return answers.json(wire.store(store))

    async def archive_store(self, request: Request) -> Response:
        idempotency = await _once(request)
        store = await self.stores.archive(
            current_caller(request), queries.store_id(request), idempotency=idempotency
        )
        annotate(spans.store(store))
        return answers.json(wire.store(store))

    async def delete_store(self, request: Request) -> Response:
        store = queries.store_id(request)
        annotate(spans.within(store))
        idempotency = await _once(request)
        await self.stores.delete(current_caller(request), store, idempotency=idempotency)
        return Response(status_code=204)

    async def create_entry(self, request: Request) -> Response:
        store = queries.store_id(request)
        draft = wire.entry_draft(wire.body(m.EntryBody, await _json(request)))
        idempotency = await _once(request)
        made = await self.entries.create(
            current_caller(request), store, draft, idempotency=idempotency
        )
        annotate(spans.entry(made.value))
        return answers.json(wire.entry(made.value), 201, redacted=made.redacted)

    async def list_entries(self, request: Request) -> Response:
        store = queries.store_id(request)
        seen, page = queries.entries_seen(request), queries.page(request, ENTRY)
        found = await self.entries.list(current_caller(request), store, seen, page)
        annotate(spans.within(store) | spans.page(found))
        return answers.json(wire.entry_list(found))

    async def get_entry(self, request: Request) -> Response:
        store, entry = queries.store_id(request), queries.entry_id(request)
        found = await self.entries.get(current_caller(request), store, entry)
        annotate(spans.entry(found))
        return answers.json(wire.entry(found))

    async def update_entry(self, request: Request) -> Response:
        store, entry = queries.store_id(request), queries.entry_id(request)
        given = wire.body(m.EntryChangeBody, await _json(request))
        change, expected = wire.entry_change(given), wire.expected(given)
        idempotency = await _once(request)
        amended = await self.entries.amend(
            current_caller(request), store, entry, change, expected, idempotency=idempotency
        )
        annotate(spans.entry(amended.value))
        return answers.json(wire.entry(amended.value), redacted=amended.redacted)

    async def delete_entry(self, request: Request) -> Response:
        store, entry = queries.store_id(request), queries.entry_id(request)
        annotate(spans.within(store, entry))
        idempotency = await _once(request)
        await self.entries.delete(current_caller(request), store, entry, idempotency=idempotency)
        return Response(status_code=204)

    async def search_store(self, request: Request) -> Response:
        store, text = queries.store_id(request), queries.words(request)
        found = await self.recall.search_store(
            current_caller(request), store, text, queries.limit(request)
        )
        annotate(spans.within(store) | spans.search(text, found))
        for attributes in spans.hits(found.hits):
            event("search.result", attributes)
        return answers.json(wire.entry_hits(store, found))

    async def list_versions(self, request: Request) -> Response:
        store = queries.store_id(request)
        seen, page = queries.versions_seen(request), queries.page(request, VERSION)
        found = await self.versions.list(current_caller(request), store, seen, page)
        annotate(spans.within(store) | spans.page(found))
        return answers.json(wire.version_list(found))

    async def get_version(self, request: Request) -> Response:
        store, version = queries.store_id(request), queries.version_id(request)
        found = await self.versions.get(current_caller(request), store, version)
        annotate(spans.version(found))
        return answers.json(wire.version(found))

    async def redact_version(self, request: Request) -> Response:
        store, version = queries.store_id(request), queries.version_id(request)
        idempotency = await _once(request)
        redacted = await self.versions.redact(
            current_caller(request), store, version, idempotency=idempotency
        )
        annotate(spans.version(redacted))
        return answers.json(wire.version(redacted))


async def _json(request: Request) -> dict[str, object]:
    return await json_object(request, limit=MAX_BODY, exact=True)


async def _once(request: Request) -> IdempotentRequest | None:
    return await idempotency_of(request, limit=MAX_BODY)
