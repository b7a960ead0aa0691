"""The routes and handlers of OpenIntent, and what its refusals look like."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from ..errors import Refusal
from ..http.bodies import JSON, WRITTEN, answered, written
from ..http.endpoint import current_caller
from ..http.ids import ENTRY, known_uid, public_id
from ..http.protocol import REDACTED, Operation, Parameter, Protocol
from ..http.refusals import Refusals
from ..http.spans import Attributes
from ..memory.model.access import Caller, Role
from ..memory.model.agent_memory import AgentEntry, AgentEntryId, Eyes, Namespace
from ..memory.model.search import Method
from ..telemetry import Cut, annotate, count
from ..telemetry import events as span_events
from ..telemetry.measures import AGENT_EVICTIONS, CAPACITY_REFUSALS
from . import bodies as b
from . import intent_routes, queries, wire
from . import wire as m
from .queries import (
    AGENT,
    BATCHES,
    BODIES,
    EVENTS,
    LIMIT,
    MATCH,
    MUST_MATCH,
    PAGE,
    PREFIX,
    TAG,
    asked,
    require_agent,
)
from .rules.binding import OverCapacity
from .rules.entries import AgentEntries
from .rules.events import Events
from .rules.namespaces import Namespaces
from .rules.rules import NO_ENTRY, AtItem
from .rules.search import AgentHit, AgentSearch
from .rules.values import MAX_VALUE
from .wire import listed_entries, listed_events, tag

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
            "max_batch": b.MAX_BATCH,
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
        given = await BODIES.read(request, b.AgentEntryBody)
        caller, eyes = await asked(request)
        draft = queries.draft(given, eyes)
        made = await self.entries.create(caller, eyes, draft)
        _evicted(caller, made.evicted)
        return _entry(made.value, 201, redacted=made.redacted)

    async def get_entry(self, request: Request) -> Response:
        caller = current_caller(request)
        found = await self.entries.get(caller, queries.eyes(request, caller), _id(request))
        return _entry(found)

    async def put_entry(self, request: Request) -> Response:
        place = queries.own_place(request, queries.eyes(request))
        queries.require_names(namespace=place.space.namespace, key=place.key)
        given = await BODIES.read(request, b.AgentPutBody, nulls=True)
        caller, _ = await asked(request)
        eyes = _own(request, caller)
        draft = queries.kept(given, place)
        done = await self.entries.put(caller, eyes, draft)
        _evicted(caller, done.evicted)
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
        given = await BODIES.read(request, b.AgentChangeBody, nulls=True)
        change = queries.change(given, version)
        caller, eyes = await asked(request)
        after = await self.entries.amend(caller, eyes, _id(request), change, version)
        return _entry(after.value, redacted=after.redacted)

    async def delete_entry(self, request: Request) -> Response:
        version = queries.version_if_any(request)
        caller, eyes = await asked(request)
        id_ = _id(request)
        annotate({"memory.entry.id": public_id(ENTRY, id_)})
        await self.entries.delete(caller, eyes, id_, version)
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
        given = await BATCHES.read(request, b.AgentBatchBody)
        caller, eyes = await asked(request, BATCHES)
        items = queries.items(given, eyes)
        done = await self.entries.write_batch(caller, eyes, items)
        annotate({"memory.result_count": len(done.value)})
        _evicted(caller, done.evicted)
        content = {"entries": [wire.entry(each) for each in done.value]}
        return answered(content, redacted=done.redacted)

    async def delete_batch(self, request: Request) -> Response:
        filter_, most = queries.filter_(request), queries.most(request)
        caller, eyes = await asked(request)
        done = await self.entries.delete_batch(caller, eyes, filter_, most)
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
        given = await BODIES.read(request, b.NamespaceChangeBody)
        caller, eyes = await asked(request)
        done = await self.namespaces.permit(caller, eyes, name, queries.permissions(given), version)
        return _namespace(done.value, redacted=done.redacted)


def _own(request: Request, caller: Caller) -> Eyes:
    """The eyes of the agent in the path, who must be the one that asks."""
    eyes = queries.eyes(request, caller)
    queries.require_own(queries.agent_in_path(request), eyes)
    return eyes


def _evicted(caller: Caller, entries: int) -> None:
    annotate({"memory.evicted_count": entries})
    if not caller.is_replay:
        count(AGENT_EVICTIONS, by=entries)


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


REFUSALS = Refusals()


class EntryConvertor(StringConvertor):
    """An id in a path, which is none of the words that have a route of their own."""

    regex = "(?!(?:batch|namespaces|search)$)[^/]+"


register_url_convertor("entry", EntryConvertor())

MEMORY = f"{PREFIX}/memory"
ENTRY_PATH, BATCH = f"{MEMORY}/{{entry_id:entry}}", f"{MEMORY}/batch"
NAMESPACES = f"{MEMORY}/namespaces"
NAMESPACE = f"{NAMESPACES}/{{namespace:path}}"
AGENT_PATH = f"{PREFIX}/agents/{{agent}}"
OWN = f"{AGENT_PATH}/memory"
OWN_NAMESPACE, OWN_KEY = f"{OWN}/{{namespace:path}}", f"{OWN}/{{namespace:path}}/{{key:path}}"

CONDITIONS = (
    Parameter(name="namespace", help="Its name; or how it begins, with `*` at the end."),
    Parameter(name="key", help="The key."),
    Parameter(name="memory_type", help="The tier.", choices=("working", "episodic", "semantic")),
    Parameter(name="pinned", kind="boolean", help="Whether it is pinned."),
    Parameter(name="tags", help="All of these, with commas."),
    Parameter(name="tags_any", help="Any of these, with commas."),
    Parameter(name="scope.task_id", help="The task that it names."),
    Parameter(name="scope.intent_id", help="The intent that it names."),
    Parameter(name="updated_after", kind="instant", help="Changed later than this."),
    Parameter(name="updated_before", kind="instant", help="Changed earlier than this."),
)
SEARCHED = ("namespace", "memory_type", "tags", "tags_any")
FILTER = (
    Parameter(name="agent_id", help="Of this agent; of semantic entries: made by it."),
    *CONDITIONS,
)


def operations(api: OpenIntent, intents: intent_routes.IntentHandlers) -> tuple[Operation, ...]:
    """Every operation of the protocol."""
    return (
        Operation(
            method="GET", path="/.well-known/openintent.json", name="openintent_discover",
            summary="What this service speaks of OpenIntent.",
            handler=api.discover, answer=m.Discovery,
        ),
        Operation(
            method="POST", path=MEMORY, name="openintent_create_entry", status=201,
            role=Role.WRITER, takes_key=True,
            summary="Make an entry at a free key; episodic memory makes room for it.",
            handler=api.create_entry, body=b.AgentEntryBody, answer=m.AgentEntryObject,
            headers={**WRITTEN, **TAG}, refusals=(409,),
        ),
        Operation(
            method="GET", path=MEMORY, name="openintent_query_entries", role=Role.READER,
            summary="Entries that the agent may read, newest first.",
            handler=api.query_entries, answer=m.AgentEntryList, query=(*FILTER, *PAGE),
        ),
        Operation(
            method="POST", path=BATCH, name="openintent_write_batch", role=Role.WRITER,
            summary="Make entries, and change those with a version; all of them or none.",
            handler=api.write_batch, body=b.AgentBatchBody, answer=m.WrittenBatch,
            takes_key=True, headers=WRITTEN, refusals=(404, 409),
        ),
        Operation(
            method="DELETE", path=BATCH, name="openintent_delete_batch", role=Role.WRITER,
            summary="Delete what matches and may be changed, at most 1,000 at once.",
            handler=api.delete_batch, answer=m.DeletedAgentEntries,
            query=(*FILTER, LIMIT), takes_key=True,
        ),
        Operation(
            method="GET", path=SEARCH, name="openintent_search_entries", role=Role.READER,
            summary="Own episodic and shared semantic entries by their words, best first.",
            handler=api.search_entries, answer=m.FoundAgentEntries,
            query=(Parameter(name="q", help="Any text.", kind="words", required=True),
                   *(each for each in CONDITIONS if each.name in SEARCHED),
                   Parameter(name="limit", kind="count", is_row_count=True,
                             help="How many, 10 unless told; at most 100.")),
        ),
        Operation(
            method="GET", path=NAMESPACES, name="openintent_list_namespaces", role=Role.READER,
            summary="Semantic namespaces that the agent may read, by name.",
            handler=api.list_namespaces, answer=m.NamespaceList, query=PAGE,
        ),
        Operation(
            method="PATCH", path=NAMESPACE, name="openintent_update_namespace", role=Role.WRITER,
            summary="Say who may do what in a semantic namespace.",
            handler=api.update_namespace, body=b.NamespaceChangeBody, answer=m.NamespaceObject,
            sends=(MATCH,),
            takes_key=True, headers={**WRITTEN, **TAG}, refusals=(404, 409),
        ),
        Operation(
            method="GET", path=NAMESPACE, name="openintent_get_namespace", role=Role.READER,
            summary="A semantic namespace, with who may do what in it.",
            handler=api.get_namespace, answer=m.NamespaceObject, headers=TAG, refusals=(404,),
        ),
        Operation(
            method="GET", path=ENTRY_PATH, name="openintent_get_entry", role=Role.READER,
            summary="One entry.",
            handler=api.get_entry, answer=m.AgentEntryObject, headers=TAG, refusals=(404,),
        ),
        Operation(
            method="PATCH", path=ENTRY_PATH, name="openintent_update_entry", role=Role.WRITER,
            summary="Change parts of an entry that is at the version of If-Match.",
            handler=api.update_entry, body=b.AgentChangeBody, answer=m.AgentEntryObject,
            sends=(MUST_MATCH,),
            takes_key=True, headers={**WRITTEN, **TAG}, refusals=(404, 409, 428),
        ),
        Operation(
            method="DELETE", path=ENTRY_PATH, name="openintent_delete_entry", role=Role.WRITER,
            summary="Delete an entry for good.",
            handler=api.delete_entry, answer=m.DeletedAgentEntry, takes_key=True, sends=(MATCH,),
            refusals=(404, 409),
        ),
        Operation(
            method="GET", path=OWN, name="openintent_list_entries", role=Role.READER,
            summary="Entries of an agent that the asking one may read, newest first.",
            handler=api.list_entries, answer=m.AgentEntryObject, is_list=True,
            query=(*CONDITIONS, *PAGE), headers={TOTAL: "How many there are in all."},
        ),
        Operation(
            method="GET", path=f"{OWN}/summary", name="openintent_get_summary", role=Role.READER,
            summary="What the agent has in each tier.",
            handler=api.get_summary, answer=m.AgentSummaryObject,
        ),
        Operation(
            method="PUT", path=OWN_KEY, name="openintent_put_entry", role=Role.WRITER,
            status_if_new=201, takes_key=True,
            summary="Let the agent's episodic entry at a key have a value, also a new one.",
            handler=api.put_entry, body=b.AgentPutBody, answer=m.AgentEntryObject,
            headers={**WRITTEN, **TAG},
        ),
        Operation(
            method="GET", path=OWN_KEY, name="openintent_get_keyed_entry", role=Role.READER,
            summary="The agent's episodic entry at a key.",
            handler=api.get_keyed_entry, answer=m.AgentEntryObject, headers=TAG, refusals=(404,),
        ),
        Operation(
            method="GET", path=OWN_NAMESPACE, name="openintent_list_namespace_entries",
            role=Role.READER,
            summary="Entries of an agent in one namespace that the asking one may read.",
            handler=api.list_namespace_entries, answer=m.AgentEntryObject, is_list=True,
            query=(*CONDITIONS[1:], *PAGE), headers={TOTAL: "How many there are in all."},
        ),
        Operation(
            method="GET", path=f"{AGENT_PATH}/events", name="openintent_list_agent_events",
            role=Role.READER,
            summary="What happened to the agent's memory, newest first.",
            handler=api.list_events, answer=m.AgentEventObject, is_list=True,
            query=EVENTS,
        ),
        *intent_routes.operations(intents),
    )  # fmt: skip


def require(request: Request, caller: Caller) -> None:
    """Refuse whom this is not for; the span of whom it is for tells the agent that asks."""
    annotate({"memory.agent.id": require_agent(request, caller)})


def refused(refusal: Refusal) -> Response:
    """The answer to a refused request; of a batch, by what is wrong with its item."""
    cause = refusal.refusal if isinstance(refusal, AtItem) else refusal
    if isinstance(cause, OverCapacity):
        count(CAPACITY_REFUSALS, "episodic" if "episodic" in cause.limit else "working")
    return Response(
        written(wire.problem(refusal)),
        REFUSALS.status(cause.code),
        REFUSALS.headers_of(cause),
        media_type=JSON,
    )


PROTOCOL = Protocol(
    title="OpenIntent RFC-0015",
    summary="Agents' own memory in three tiers, and namespaces that they share.",
    prefix=PREFIX,
    refusals=REFUSALS,
    refused=refused,
    problem=m.AgentMemoryProblem,
    require=require,
    sends=(
        Parameter(name=AGENT, help="The agent that asks; needed unless the key has one alone."),
    ),
    sent=(AGENT, "If-Match"),
    read=(REDACTED, "ETag", TOTAL),
)
