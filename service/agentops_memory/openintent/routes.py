"""OpenIntent as a protocol: its operations, discovery, search and refusals."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ..engine.engine import Transaction
from ..errors import AnswerErased, AtItem, BadFields, Invalid, Refusal
from ..http.bodies import JSON, Param, answered, row_limit, written
from ..http.protocol import REDACTED, Operation, Parameter, Protocol, Refusals
from ..http.query import ENTRY, public_id
from ..light import replace
from ..memory.redactor import Redactor
from ..memory.search import Filter, Method, SearchResult
from ..memory.sight import Tier, Viewer
from ..recall import recall
from ..recall.query import Query, parse_query
from ..recall.recall import K
from ..record import shape
from ..telemetry import Cut, annotate
from ..telemetry import events as span_events
from ..telemetry.metrics import CAPACITY_REFUSALS, count
from . import api, events, intents, memory, namespaces, tasks
from .api import AGENT, PREFIX, TOTAL, identify, route
from .changes import MAX_BATCH, TierName
from .entries import CONDITIONS, MEMORY, AgentEntry, AgentFilter, some
from .memory import AgentEntries
from .namespaces import readable

SEARCH = f"{MEMORY}/search"
SEARCHED = ("namespace", "memory_type", "tags", "tags_any")
DEFAULT_RESULTS, MAX_RESULTS = 10, 100  # entries of a search: default and maximum
QUERY_LENGTH = 200  # code points of a query that a span quotes
MAX_PLACES = 8  # namespaces that one search reads
MAX_CANDIDATES = 1_000  # hits in each namespace, or in own memory, before a filter


FoundAgentEntry = shape(
    "FoundAgentEntry", "A search hit; a lower rank is better.", AgentEntry, rank=float
)
SearchedPlaces = shape(
    "SearchedPlaces", "The memory that was searched: own episodic memory, and namespaces.",
    own=bool, namespaces=list[str],
)  # fmt: skip
FoundAgentEntries = shape(
    "FoundAgentEntries", "The hits of a search, best first.",
    entries=[FoundAgentEntry], searched=SearchedPlaces,
)  # fmt: skip

Hit = tuple[float, AgentEntry]
"""The rank of an entry, and the entry."""


def _searching(entries: AgentEntries) -> Sequence[Operation]:
    async def handle(request: Request, q: str, limit: int, **conditions: Any) -> Response:
        filter_ = AgentFilter.of(**conditions)
        if filter_.tier is Tier.WORKING:
            sentence = "must be episodic or semantic; working memory is not searched"
            raise BadFields([("memory_type", sentence)])
        caller, viewer = identify(request)
        query = parse_query(q, entries.features, entries.timeout)
        clean = filter_.clean(Redactor(entries.rules(caller)))
        searched = await entries.engine.read(caller, _search, viewer, query, clean, limit)
        hits, own, names, is_degraded, at = searched
        entries.accesses.note(caller, viewer, at, (it for _, it in hits))
        annotate({
            "memory.search.query": Cut(q, QUERY_LENGTH),
            "memory.search.result_count": len(hits),
            "memory.search.degraded": is_degraded or None,
        })  # fmt: skip
        attributes: Iterator[dict[str, Any]] = (
            {
                "memory.entry.id": public_id(ENTRY, entry.id),
                "memory.injected.rank": rank,
                "memory.injected.method": Method.FULL_TEXT.value,
            }
            for rank, entry in hits
        )
        span_events("search.result", attributes)
        items = [it.json_bytes()[:-1] + b',"rank":%b}' % written(rank) for rank, it in hits]
        places = written({"own": own, "namespaces": names})
        content = b'{"entries":[%b],"searched":%b}' % (b",".join(items), places)
        return Response(content, media_type=JSON)

    most = row_limit(DEFAULT_RESULTS, MAX_RESULTS)
    words = Param(name="q", help="Any text.", kind="words", required=True)
    return (
        route("GET", SEARCH, "search_entries",
           "Search own episodic and shared semantic entries by words, best match first.",
           handle, FoundAgentEntries,
           query=(words, *(it for it in CONDITIONS if it.name in SEARCHED), most)),
    )  # fmt: skip


def _search(
    tx: Transaction, viewer: Viewer, query: Query, filter_: AgentFilter, limit: int
) -> tuple[Sequence[Hit], bool, Sequence[str], bool, datetime]:
    """Return hits; hits of several places, each ranked by itself, are fused by reciprocal rank.

    Also return if own memory and which namespaces were searched, if it was degraded, and when.
    """
    own = filter_.tier is not Tier.SEMANTIC
    which, namespaces = filter_.names("k.name"), list[str]()
    if filter_.tier is not Tier.EPISODIC:
        known = readable(tx, viewer, MAX_CANDIDATES, 0, which, namespace=filter_.namespace)
        namespaces = [it.namespace for it in known[:MAX_PLACES]]
    places = [Filter(agent=viewer.agent)] if own else []
    places += [Filter(namespace=name) for name in namespaces]
    is_narrow = replace(filter_, tier=None) != AgentFilter()
    most = MAX_CANDIDATES if is_narrow else limit
    lists = [recall.search(tx, query, space, most) if query else SearchResult() for space in places]
    hits = [_hits(tx, viewer, filter_, result) for result in lists]
    best = [hit for each in hits for hit in each]
    if len(hits) > 1:
        placed = ((-1 / (K + n), it) for each in hits for n, (_, it) in enumerate(each, start=1))
        best = sorted(placed, key=lambda hit: (hit[0], hit[1].memory))
    is_degraded = any(result.is_degraded for result in lists)
    return best[:limit], own, namespaces, is_degraded, tx.now


def _hits(tx: Transaction, viewer: Viewer, filter_: AgentFilter, result: SearchResult) -> list[Hit]:
    ranks = {hit.memory.id: hit.rank for hit in result.hits}
    return [(ranks[it.memory], it) for it in some(tx, viewer, list(ranks), filter_)]


# The protocol: its operations, its discovery and its refusals.

CAPABILITIES = [
    "agent-memory", "agent-memory-search", "tasks", "events", "coordinators", "access-control",
    "optimistic-concurrency",
]  # fmt: skip


class MemoryCapabilities(BaseModel):
    """The tiers, limits and features of agents' memory."""

    tiers: list[TierName] = ["working", "episodic", "semantic"]
    eviction_policy: Literal["lru"] = "lru"
    episodic_capacity: int
    max_value_bytes: int = api.MAX_VALUE
    max_batch: int = MAX_BATCH
    search: str = SEARCH
    encryption_at_rest: bool = True


class Discovery(BaseModel):
    """GET /.well-known/openintent.json."""

    protocol: Literal["OpenIntent"] = "OpenIntent"
    version: str = "0.1"
    rfcs: list[str] = ["RFC-0015"]
    capabilities: list[str] = CAPABILITIES
    memory: MemoryCapabilities
    openApiUrl: str = "/openapi.json"  # noqa: N815 - as the protocol writes it


FieldFault = shape("FieldFault", "The error in a field.", field=str, message=str)
ErrorCode = shape("ErrorCode", "The code of a refusal.", code=str)
AgentMemoryProblem = shape(
    "AgentMemoryProblem",
    "A refusal; for a conflict with the stored state, for a capacity with its numbers.",
    optional={
        "errors": [FieldFault], "current_version": int, "current_value": api.JsonObject,
        "current": AgentEntry, "limit": str, "current_count": int, "max_capacity": int,
    },
    message=str, error=ErrorCode,
)  # fmt: skip


def operations(entries: AgentEntries) -> tuple[Operation, ...]:
    async def discover(_: Request) -> Response:
        capacity = entries.capacities.episodic
        discovery = Discovery(memory=MemoryCapabilities(episodic_capacity=capacity))
        return answered(discovery.model_dump())

    return (
        Operation(
            method="GET", path="/.well-known/openintent.json", name="openintent_discover",
            summary="What this service supports of OpenIntent.", handler=discover, answer=Discovery,
        ),
        *_searching(entries),
        *namespaces.operations(entries),
        *memory.operations(entries),
        *intents.operations(entries),
        *tasks.operations(entries),
        *events.operations(entries),
    )  # fmt: skip


REFUSALS = Refusals()
UNAVAILABLE = "UNAVAILABLE"
CODES: Mapping[str, str] = {
    "invalid_input": "INVALID_REQUEST", "validation_error": "INVALID_REQUEST",
    "unauthenticated": "UNAUTHENTICATED", "denied": "ACCESS_DENIED", "not_found": "NOT_FOUND",
    "no_path": "NOT_FOUND", "no_method": "METHOD_NOT_ALLOWED", "too_slow": "TIMEOUT",
    "constraint_violation": "IDEMPOTENCY_KEY_REUSED", "stale": "VERSION_MISMATCH",
    "task_finished": "TASK_FINISHED", "already_exists": "ALREADY_EXISTS",
    "too_large": "TOO_LARGE", "version_required": "VERSION_REQUIRED",
    "over_capacity": "CAPACITY_EXCEEDED", "too_many": "RATE_LIMITED", "failed": "INTERNAL",
    "over_quota": "QUOTA_EXCEEDED",
}  # fmt: skip


def refused(refusal: Refusal, _: Scope) -> Response:
    """Return the response to a refused request; for a batch, with the error of its item."""
    cause = refusal.refusal if isinstance(refusal, AtItem) else refusal
    if isinstance(cause, api.OverCapacity):
        count(CAPACITY_REFUSALS, "episodic" if "episodic" in cause.limit else "working")
    return REFUSALS.response(cause, written(_problem(refusal, cause)))


def _problem(refusal: Refusal, cause: Refusal) -> api.JsonObject:
    is_gone = str(cause) == api.NO_ENTRY or isinstance(cause, AnswerErased)
    code = "ENTRY_NOT_FOUND" if is_gone else CODES.get(cause.code, UNAVAILABLE)
    fields: api.JsonObject = {"message": str(refusal), "error": {"code": code}}
    item = f"entries[{refusal.number}]." if isinstance(refusal, AtItem) else ""
    if isinstance(cause, BadFields):
        fields["errors"] = [{"field": item + name, "message": it} for name, it in cause.faults]
    elif isinstance(cause, Invalid):
        fields["errors"] = []
    if isinstance(cause, api.Stale):
        fields["current_version"] = cause.current.version
        if hasattr(cause.current, "value"):
            current = json.loads(cause.current.json_bytes())
            fields |= {"current_value": current["value"], "current": current}
    if isinstance(cause, api.OverCapacity):
        fields |= {"limit": cause.limit, "current_count": cause.count, "max_capacity": cause.most}
    return fields


PROTOCOL = Protocol(
    title="OpenIntent RFC-0015",
    summary="Agents' own memory in three tiers, and namespaces that they share.", prefix=PREFIX,
    refusals=REFUSALS, refused=refused, problem=AgentMemoryProblem, require=api.require,
    sends=(Parameter(name=AGENT, help="The calling agent; optional if the key has exactly one."),),
    sent=(AGENT, "If-Match"), read=(REDACTED, "ETag", TOTAL),
)  # fmt: skip
