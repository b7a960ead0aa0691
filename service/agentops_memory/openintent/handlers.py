"""Each request in three moves: parse, call, render."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..http.bodies import answered, written
from ..http.endpoint import current_caller
from ..http.ids import ENTRY, known_uid, public_id
from ..http.spans import Attributes
from ..memory.model.access import Caller
from ..memory.model.agent_memory import AgentEntry, AgentEntryId, Eyes, Namespace
from ..memory.model.search import Method
from ..telemetry import Cut, annotate
from ..telemetry import events as span_events
from . import bodies as m
from . import drafts, queries, wire
from .answers import listed_entries, listed_events, tag
from .drafts import BATCHES, BODIES
from .queries import asked
from .rules.entries import AgentEntries
from .rules.events import Events
from .rules.namespaces import Namespaces
from .rules.rules import NO_ENTRY
from .rules.search import AgentHit, AgentSearch
from .rules.values import MAX_VALUE

TOTAL = "X-Total-Count"
SEARCH = "/api/v1/memory/search"
CAPABILITIES = [
    "agent-memory", "agent-memory-search", "tasks", "events", "coordinators", "access-control",
    "optimistic-concurrency",
]  # fmt: skip
SHOWN_QUERY = 200  # code points of a search


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIntent:
    """The handlers of the protocol over the domain."""

    entries: AgentEntries
    namespaces: Namespaces
    agent_search: AgentSearch
    events: Events

    async def discover(self, _: Request) -> Response:
        memory = {
            "tiers": ["working", "episodic", "semantic"],
            "eviction_policy": "lru",
            "episodic_capacity": self.entries.capacities.episodic,
            "max_value_bytes": MAX_VALUE,
            "max_batch": m.MAX_BATCH,
            "search": SEARCH,
            "encryption_at_rest": True,
        }
        content = {
            "protocol": "OpenIntent",
            "version": "0.1",
            "rfcs": ["RFC-0015"],
            "capabilities": CAPABILITIES,
            "memory": memory,
            "openApiUrl": "/openapi.json",
        }
        return answered(content)

    async def create_entry(self, request: Request) -> Response:
        given = await BODIES.read(request, m.AgentEntryBody)
        caller, eyes, idempotency = await asked(request)
        draft = drafts.draft(given, eyes)
        made = await self.entries.create(caller, eyes, draft, idempotency=idempotency)
        annotate({"memory.evicted_count": made.evicted})
        return _entry(made.value, 201, redacted=made.redacted)

    async def get_entry(self, request: Request) -> Response:
        caller = current_caller(request)
        found = await self.entries.get(caller, queries.eyes(request, caller), _id(request))
        return _entry(found)

    async def put_entry(self, request: Request) -> Response:
        place = queries.own_place(request, queries.eyes(request))
        queries.require_names(namespace=place.space.namespace, key=place.key)
        given = await BODIES.read(request, m.AgentPutBody, nulls=True)
        caller, _, idempotency = await asked(request)
        eyes = _own(request, caller)
        draft = drafts.kept(given, place)
        done = await self.entries.put(caller, eyes, draft, idempotency=idempotency)
        annotate({"memory.evicted_count": done.evicted})
        return _entry(done.value, 201 if done.is_new else 200, redacted=done.redacted)

    async def get_keyed_entry(self, request: Request) -> Response:
        if not queries.has_key(request):
            return await self.list_namespace_entries(request)
        caller = current_caller(request)
        eyes = _own(request, caller)
        return _entry(await self.entries.at(caller, eyes, queries.own_place(request, eyes)))

    async def list_namespace_entries(self, request: Request) -> Response:
        (namespace,) = queries.names_in_path(request, 1)
        return await self._list_of_agent(request, namespace=namespace, is_prefix=False)

    async def update_entry(self, request: Request) -> Response:
        version = queries.version(request)
        given = await BODIES.read(request, m.AgentChangeBody, nulls=True)
        change = drafts.change(given, version)
        caller, eyes, idempotency = await asked(request)
        after = await self.entries.amend(
            caller, eyes, _id(request), change, version, idempotency=idempotency
        )
        return _entry(after.value, redacted=after.redacted)

    async def delete_entry(self, request: Request) -> Response:
        version = queries.version_if_any(request)
        caller, eyes, idempotency = await asked(request)
        id_ = _id(request)
        annotate({"memory.entry.id": public_id(ENTRY, id_)})
        await self.entries.delete(caller, eyes, id_, version, idempotency=idempotency)
        return answered(wire.deleted(public_id(ENTRY, id_)))

    async def query_entries(self, request: Request) -> Response:
        limit, offset = queries.page(request)
        asking = partial(queries.asking, request)
        found = await self.entries.page(asking, queries.filter_(request), limit, offset)
        after = written({"total": found.total, "limit": limit, "offset": offset})
        return await listed_entries(found, b'{"entries":[', b"]," + after[1:])

    async def list_entries(self, request: Request) -> Response:
        return await self._list_of_agent(request)

    async def _list_of_agent(self, request: Request, **asked: Any) -> Response:
        limit, offset = queries.page(request)
        filter_ = replace(queries.filter_(request, queries.agent_in_path(request)), **asked)
        asking = partial(queries.asking, request)
        found = await self.entries.page(asking, filter_, limit, offset)
        return await listed_entries(found, b"[", b"]", {TOTAL: str(found.total)})

    async def search_entries(self, request: Request) -> Response:
        text, filter_ = queries.words(request), queries.search_filter(request)
        caller, limit = current_caller(request), queries.hits(request)
        eyes = queries.eyes(request, caller)
        found = await self.agent_search.search(caller, eyes, text, filter_, limit)
        annotate(
            {
                "memory.search.query": Cut(text, SHOWN_QUERY),
                "memory.search.result_count": len(found.hits),
                "memory.search.degraded": found.is_degraded or None,
            }
        )
        span_events("search.result", map(_hit_span, found.hits))
        return answered(wire.found(found))

    async def write_batch(self, request: Request) -> Response:
        given = await BATCHES.read(request, m.AgentBatchBody)
        caller, eyes, idempotency = await asked(request, BATCHES)
        items = drafts.items(given, eyes)
        done = await self.entries.write_batch(caller, eyes, items, idempotency=idempotency)
        annotate({"memory.result_count": len(done.value), "memory.evicted_count": done.evicted})
        content = {"entries": [wire.entry(each) for each in done.value]}
        return answered(content, redacted=done.redacted)

    async def delete_batch(self, request: Request) -> Response:
        filter_, most = queries.filter_(request), queries.most(request)
        caller, eyes, idempotency = await asked(request)
        done = await self.entries.delete_batch(caller, eyes, filter_, most, idempotency=idempotency)
        annotate({"memory.result_count": done.count})
        return answered({"deleted": done.count, "has_more": done.has_more})

    async def get_summary(self, request: Request) -> Response:
        caller = current_caller(request)
        eyes, agent = queries.eyes(request, caller), queries.agent_in_path(request)
        found = await self.entries.summary(caller, eyes, agent)
        return answered(wire.summary(agent, found))

    async def list_events(self, request: Request) -> Response:
        limit, _ = queries.page(request)
        filter_ = queries.events(request, agent=_own(request, current_caller(request)).agent)
        return await listed_events(
            await self.events.page(partial(queries.asking, request), filter_, limit)
        )

    async def list_namespaces(self, request: Request) -> Response:
        caller, (limit, offset) = current_caller(request), queries.page(request)
        total, found = await self.namespaces.page(
            caller, queries.eyes(request, caller), limit, offset
        )
        annotate({"memory.result_count": len(found)})
        shown = [wire.listed_namespace(each) for each in found]
        return answered({"namespaces": shown, "total": total, "limit": limit, "offset": offset})

    async def get_namespace(self, request: Request) -> Response:
        name, caller = queries.namespace_in_path(request), current_caller(request)
        found = await self.namespaces.get(caller, queries.eyes(request, caller), name)
        return _namespace(found)

    async def update_namespace(self, request: Request) -> Response:
        name, version = queries.new_namespace(request), queries.version_if_any(request)
        given = await BODIES.read(request, m.NamespaceChangeBody)
        caller, eyes, idempotency = await asked(request)
        done = await self.namespaces.permit(
            caller, eyes, name, drafts.permissions(given), version, idempotency=idempotency
        )
        return _namespace(done.value, redacted=done.redacted)


def _own(request: Request, caller: Caller) -> Eyes:
    """The eyes of the agent in the path, who must be the one that asks."""
    eyes = queries.eyes(request, caller)
    queries.require_own(queries.agent_in_path(request), eyes)
    return eyes


def _id(request: Request) -> AgentEntryId:
    return AgentEntryId(known_uid(ENTRY, request.path_params["entry_id"], NO_ENTRY))


def _entry(of: AgentEntry, status: int = 200, *, redacted: int = 0) -> Response:
    annotate(_span(of))
    return answered(wire.entry(of), status, redacted=redacted, headers=tag(of.version))


def _namespace(of: Namespace, *, redacted: int = 0) -> Response:
    annotate({"memory.namespace": of.name})
    return answered(wire.namespace(of), redacted=redacted, headers=tag(of.version))


def _hit_span(hit: AgentHit) -> Attributes:
    return {
        "memory.entry.id": public_id(ENTRY, hit.entry.id),
        "memory.injected.rank": hit.rank,
        "memory.injected.method": Method.FULL_TEXT.value,
    }


def _span(of: AgentEntry) -> Attributes:
    space = of.place.space
    return {
        "memory.tier": space.tier.value,
        "memory.namespace": space.namespace,
        "memory.entry.id": public_id(ENTRY, of.id),
        "memory.entry.version": of.version,
        "memory.entry.size": of.size,
    }
