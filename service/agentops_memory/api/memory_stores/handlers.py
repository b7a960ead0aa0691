"""Each request in three moves: parse, call, render."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ...domain.memories.idempotency import Once
from ...domain.recall.recall import Recall
from ...domain.stores.entries import Entries
from ...domain.stores.stores import Stores
from ...domain.stores.versions import Versions
from ...telemetry import annotate, event
from ..kit.gate import caller_of
from ..kit.http import json_object
from ..kit.idempotency import once_of
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
        once = await _once(request)
        made = await self.stores.create(caller_of(request), draft, once=once)
        annotate(spans.store(made.value))
        return answers.json(wire.store(made.value), 201, redacted=made.redacted)

    async def list_stores(self, request: Request) -> Response:
        seen, page = queries.stores_seen(request), queries.page(request, STORE)
        found = await self.stores.list(caller_of(request), seen, page)
        annotate(spans.page(found))
        return answers.json(wire.store_list(found))

    async def get_store(self, request: Request) -> Response:
        store = await self.stores.get(caller_of(request), queries.store_id(request))
        annotate(spans.store(store))
        return answers.json(wire.store(store))

    async def archive_store(self, request: Request) -> Response:
        once = await _once(request)
        store = await self.stores.archive(caller_of(request), queries.store_id(request), once=once)
        annotate(spans.store(store))
        return answers.json(wire.store(store))

    async def delete_store(self, request: Request) -> Response:
        store = queries.store_id(request)
        annotate(spans.within(store))
        once = await _once(request)
        await self.stores.delete(caller_of(request), store, once=once)
        return Response(status_code=204)

    async def create_entry(self, request: Request) -> Response:
        store = queries.store_id(request)
        draft = wire.entry_draft(wire.body(m.EntryBody, await _json(request)))
        once = await _once(request)
        made = await self.entries.create(caller_of(request), store, draft, once=once)
        annotate(spans.entry(made.value))
        return answers.json(wire.entry(made.value), 201, redacted=made.redacted)

    async def list_entries(self, request: Request) -> Response:
        store = queries.store_id(request)
        seen, page = queries.entries_seen(request), queries.page(request, ENTRY)
        found = await self.entries.list(caller_of(request), store, seen, page)
        annotate(spans.within(store) | spans.page(found))
        return answers.json(wire.entry_list(found))

    async def get_entry(self, request: Request) -> Response:
        store, entry = queries.store_id(request), queries.entry_id(request)
        found = await self.entries.get(caller_of(request), store, entry)
        annotate(spans.entry(found))
        return answers.json(wire.entry(found))

    async def update_entry(self, request: Request) -> Response:
        store, entry = queries.store_id(request), queries.entry_id(request)
        given = wire.body(m.EntryChangeBody, await _json(request))
        change, expected = wire.entry_change(given), wire.expected(given)
        once = await _once(request)
        amended = await self.entries.amend(
            caller_of(request), store, entry, change, expected, once=once
        )
        annotate(spans.entry(amended.value))
        return answers.json(wire.entry(amended.value), redacted=amended.redacted)

    async def delete_entry(self, request: Request) -> Response:
        store, entry = queries.store_id(request), queries.entry_id(request)
        annotate(spans.within(store, entry))
        once = await _once(request)
        await self.entries.delete(caller_of(request), store, entry, once=once)
        return Response(status_code=204)

    async def search_store(self, request: Request) -> Response:
        store, text = queries.store_id(request), queries.words(request)
        found = await self.recall.search_store(
            caller_of(request), store, text, queries.limit(request)
        )
        annotate(spans.within(store) | spans.search(text, found))
        for attributes in spans.hits(found.hits):
            event("search.result", attributes)
        return answers.json(wire.entry_hits(store, found))

    async def list_versions(self, request: Request) -> Response:
        store = queries.store_id(request)
        seen, page = queries.versions_seen(request), queries.page(request, VERSION)
        found = await self.versions.list(caller_of(request), store, seen, page)
        annotate(spans.within(store) | spans.page(found))
        return answers.json(wire.version_list(found))

    async def get_version(self, request: Request) -> Response:
        store, version = queries.store_id(request), queries.version_id(request)
        found = await self.versions.get(caller_of(request), store, version)
        annotate(spans.version(found))
        return answers.json(wire.version(found))

    async def redact_version(self, request: Request) -> Response:
        store, version = queries.store_id(request), queries.version_id(request)
        once = await _once(request)
        redacted = await self.versions.redact(caller_of(request), store, version, once=once)
        annotate(spans.version(redacted))
        return answers.json(wire.version(redacted))


async def _json(request: Request) -> dict[str, object]:
    return await json_object(request, limit=MAX_BODY, exact=True)


async def _once(request: Request) -> Once | None:
    return await once_of(request, limit=MAX_BODY)
