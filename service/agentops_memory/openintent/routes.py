"""OpenIntent as a protocol: operations on agents' memory, search, discovery and refusals.

Also the times when owners read their entries, for eviction.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, wraps
from threading import Lock
from typing import Any, Literal, TypeVar

from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ..engine.engine import Transaction, noop
from ..errors import AnswerErased, AtItem, BadFields, Invalid, Refusal, required
from ..http.bodies import JSON, Arguments, Bodies, Param, answered, bad_fields, row_limit, written
from ..http.protocol import REDACTED, Operation, Parameter, Protocol, Refusals
from ..http.query import ENTRY, public_id
from ..light import dataclass, field, replace
from ..memory import agent_memory
from ..memory.access import AgentId, Caller, Role, TenantId
from ..memory.agent_memory import SEALED, AgentEntryId, Tier, Viewer
from ..memory.memory import MemoryId
from ..memory.redactor import MAX_KEY, Redactor, aside
from ..memory.rows import micros
from ..memory.saves import Written
from ..memory.search import Filter, Method, SearchResult
from ..memory.space import Capacities
from ..memory.table import Sql
from ..recall import recall
from ..recall.query import Query, parse_query
from ..recall.recall import K
from ..record import shape
from ..telemetry import Cut, annotate, count, events as span_events
from ..telemetry.metrics import AGENT_EVICTIONS, CAPACITY_REFUSALS
from . import agents, api, changes, entries, events, intents, namespaces, tasks
from .agents import AgentSummary, Room
from .api import BODIES, PAGE, PREFIX, Ids, identify, identify_writer, op, redactor_for, route
from .changes import AgentBatchItem, AgentChangeBody, AgentEntryBody, AgentPutBody, Outcome
from .entries import CONDITIONS, FILTER, MEMORY, AgentEntry, AgentFilter, EntryKey, KeyLost
from .namespaces import readable

T = TypeVar("T")

BATCHES = Bodies(refusal=bad_fields)
MAX_DELETED = 1_000  # entries of one deletion

BATCH = f"{MEMORY}/batch"
OWN = f"{PREFIX}/agents/{{agent}}/memory"
OWN_NAMESPACE, OWN_KEY = f"{OWN}/{{namespace:path}}", f"{OWN}/{{namespace:path}}/{{key:path}}"
SEARCH = f"{MEMORY}/search"
SEARCHED = ("namespace", "memory_type", "tags", "tags_any")
DEFAULT_RESULTS, MAX_RESULTS = 10, 100  # entries of a search: default and maximum
QUERY_LENGTH = 200  # code points of a query that a span quotes
MAX_PLACES = 8  # namespaces that one search reads
MAX_CANDIDATES = 1_000  # hits in each namespace, or in own memory, before a filter
IN_NAMESPACE = *CONDITIONS[1:], *PAGE  # the namespace is in the path
TOTAL_HEADER = {api.TOTAL: "The number of entries on all pages."}


class EntryConvertor(StringConvertor):
    """An entry's id in a path: no word that has a route of its own."""

    regex = "(?!(?:batch|namespaces|search)$)[^/]+"


register_url_convertor("entry", EntryConvertor())
ONE = f"{MEMORY}/{{entry_id:entry}}"


AgentEntryList = shape(
    "AgentEntryList", "A page of entries, and the number of entries on all pages.",
    entries=[AgentEntry], total=int, limit=int, offset=int,
)  # fmt: skip
WrittenBatch = shape("WrittenBatch", "The entries of a batch, in its order.", entries=[AgentEntry])
DeletedAgentEntries = shape(
    "DeletedAgentEntries", "The number of deleted entries, and whether more match.",
    deleted=int, has_more=bool,
)  # fmt: skip
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


class Accesses:
    """The times when owners last read their episodic entries, for eviction (§2.2).

    They are kept in memory until the next change writes them; a crash loses them. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.noted: dict[TenantId, dict[MemoryId, datetime]] = {}

    def note(
        self, caller: Caller, viewer: Viewer, at: datetime, entries: Iterable[AgentEntry]
    ) -> None:
        """Note that entries were read; only an owner's reads of episodic entries count."""
        episodic = (it for it in entries if it.memory_type is Tier.EPISODIC)
        own = (it.memory for it in episodic if it.agent_id == viewer.agent)
        self.put(caller.tenant, dict.fromkeys(own, at))

    def put(self, tenant: TenantId, accessed: Mapping[MemoryId, datetime]) -> None:
        """Note times when owners read memories; the latest time of each memory is kept."""
        with self._lock:
            noted = self.noted.setdefault(tenant, {})
            noted |= {it: max(at, noted.get(it, at)) for it, at in accessed.items()}

    def of(self, tenant: TenantId) -> dict[MemoryId, datetime]:
        with self._lock:
            return dict(self.noted.get(tenant, ()))

    def forget(self, tenant: TenantId, written: Mapping[MemoryId, datetime]) -> None:
        """Forget accesses that are on disk, unless a later one was noted meanwhile."""
        with self._lock:
            noted = self.noted.get(tenant, {}).items()
            self.noted[tenant] = {it: at for it, at in noted if written.get(it) != at}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEntries(api.Serving):
    """Agents' memory of one service; Stale and OverCapacity contain the state that conflicts."""

    capacities: Capacities = Capacities()
    timeout: timedelta  # of one search
    accesses: Accesses = field(default_factory=Accesses)

    async def create(
        self, caller: Caller, viewer: Viewer, body: AgentEntryBody,
        work: Callable[..., Outcome] = changes.CREATE,
    ) -> Written[AgentEntry]:  # fmt: skip
        """Create an entry at a free key; a full episodic memory evicts others."""
        body.entry_key(viewer)
        redactor = redactor_for(self.rules, caller, viewer.agent)
        clean = await aside(len(body.value), changes.cleaned, redactor, body)
        done = await self._write(caller, work, viewer, clean, Room(capacities=self.capacities))
        _count_evicted(caller, done)
        return Written(value=done.value[0], redacted=redactor.count, is_new=done.is_new)

    async def put(self, request: Request) -> Response:
        namespace, key = api.names_in_path(request, 2)
        api.require_names(namespace=namespace, key=key)
        body = await BODIES.read(request, AgentPutBody, nulls=True)
        caller, viewer = await identify_writer(request)
        api.require_own(api.agent_in_path(request), viewer)
        entry = body.at(viewer.agent, namespace, key)
        done = await self.create(caller, viewer, entry, changes.PUT)
        return api.answered(done, 201 if done.is_new else 200)

    async def get(self, caller: Caller, viewer: Viewer, entry: AgentEntryId) -> AgentEntry:
        return await self._read(caller, viewer, lambda tx: entries.known(tx, entry, viewer))

    async def get_keyed(self, request: Request) -> Response:
        # Routes match unescaped paths: this one may have an escaped slash in its namespace.
        if b"/" not in api.NAMES.split(request.scope["raw_path"], maxsplit=1)[-1]:
            return await self.list_namespace(request, **Arguments(request).parsed(IN_NAMESPACE))
        caller, viewer = api.identify_owner(request)
        redactor = Redactor(self.rules(caller))
        namespace, key = api.names_in_path(request, 2)
        named = redactor.text(namespace, api.MAX_NAME), redactor.text(key, MAX_KEY)
        at = EntryKey(Tier.EPISODIC, viewer.agent, *named)
        return api.answered(await self._read(
            caller, viewer, lambda tx: required(changes.live_entry_at(tx, at), api.NO_ENTRY)
        ))  # fmt: skip

    async def _read(
        self, caller: Caller, viewer: Viewer, read: Callable[[Transaction], AgentEntry]
    ) -> AgentEntry:
        def work(tx: Transaction) -> tuple[AgentEntry, datetime]:
            return read(tx), tx.now

        entry, now = await self.engine.read(caller, work)
        if entry.is_lost:
            raise KeyLost
        self.accesses.note(caller, viewer, now, [entry])
        return entry

    async def query(self, request: Request, limit: int, offset: int, **conditions: Any) -> Response:
        def frame(total: int) -> tuple[bytes, bytes, Mapping[str, str]]:
            after = written({"total": total, "limit": limit, "offset": offset})
            return b'{"entries":[', b"]," + after[1:], {}

        filter_ = AgentFilter.of(**conditions)
        return await self.page(lambda: identify(request), filter_, limit, offset, frame)

    async def list_own(
        self, request: Request, limit: int, offset: int, **conditions: Any
    ) -> Response:
        filter_ = AgentFilter.of(agent=api.agent_in_path(request), **conditions)
        return await self.page(
            lambda: identify(request), filter_, limit, offset,
            lambda total: (b"[", b"]", {api.TOTAL: str(total)}),
        )  # fmt: skip

    async def list_namespace(self, request: Request, **which: Any) -> Response:
        (namespace,) = api.names_in_path(request, 1)
        return await self.list_own(request, namespace=namespace, is_prefix=False, **which)

    async def page(
        self, identify: api.Identify, filter_: AgentFilter, limit: int, offset: int,
        frame: api.Frame | None = None,
    ) -> Response:  # fmt: skip
        """Return readable entries, newest first; access is checked before each portion."""
        caller, viewer = identify()
        clean = filter_.clean(Redactor(self.rules(caller)))

        def ids(tx: Transaction, viewer: Viewer) -> tuple[Ids, int]:
            visible = agent_memory.readable(tx, viewer)
            sized = entries.ids_of(tx, clean, visible, limit, offset)
            return sized, entries.total(tx, clean, visible)

        return await api.listed(
            self.engine, (caller, viewer), identify, ids, entries.some, self.accesses.note, frame
        )

    async def search(self, request: Request, q: str, limit: int, **conditions: Any) -> Response:
        filter_ = AgentFilter.of(**conditions)
        if filter_.tier is Tier.WORKING:
            sentence = "must be episodic or semantic; working memory is not searched"
            raise BadFields([("memory_type", sentence)])
        caller, viewer = identify(request)
        query = parse_query(q, self.timeout)
        clean = filter_.clean(Redactor(self.rules(caller)))
        searched = await self.engine.read(caller, _search, viewer, query, clean, limit)
        hits, own, names, is_degraded, at = searched
        self.accesses.note(caller, viewer, at, (it for _, it in hits))
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

    async def update(self, request: Request) -> Response:
        """Change an entry that is at this version; each change increases the version."""
        version = api.version(request, is_required=True)
        assert version is not None
        body = await BODIES.read(request, AgentChangeBody, nulls=True)
        body.require_version(version)
        caller, viewer = await identify_writer(request)
        entry = AgentEntryId(api.id_in_path(request, "entry_id"))
        redactor = redactor_for(self.rules, caller, viewer.agent)
        clean = await aside(len(body.value or ""), changes.cleaned, redactor, body)
        room = Room(capacities=self.capacities)
        done = await self._write(caller, changes.AMEND, viewer, entry, clean, version, room)
        self._scrub_soon(caller, body)
        return api.answered(Written(value=done.value[0], redacted=redactor.count))

    async def delete(
        self, caller: Caller, viewer: Viewer, entry: AgentEntryId, version: int | None = None
    ) -> api.DeletedEntry:
        public = public_id(ENTRY, entry)
        annotate({"memory.entry.id": public})
        redactor_for(self.rules, caller, viewer.agent)
        await self._write(caller, changes.DELETE, viewer, entry, version)
        self.on_erased(caller)
        return api.DeletedEntry.whole(entry_id=public)

    async def write_batch(self, request: Request) -> Response:
        """Create and change entries, all or none; AtItem names the one that is refused."""
        items = (await BATCHES.read(request, changes.AgentBatchBody)).entries
        caller, viewer = await identify_writer(request, BATCHES)
        for number, item in enumerate(items):
            try:
                item.entry_key(viewer)
            except Refusal as refusal:
                raise AtItem(number, refusal) from refusal
        redactor = redactor_for(self.rules, caller, viewer.agent)
        size = sum(len(it.value) for it in items)
        clean = await aside(size, lambda: [changes.cleaned(redactor, it) for it in items])
        room = Room(capacities=self.capacities)
        done = await self._write(caller, changes.WRITE_BATCH, viewer, clean, room)
        _count_evicted(caller, done)
        self._scrub_soon(caller, *(item for item in items if item.version is not None))
        annotate({"memory.result_count": len(done.value)})
        headers = {REDACTED: str(redactor.count)} if redactor.count else {}
        records = b",".join(it.json_bytes() for it in done.value)
        return Response(b'{"entries":[%b]}' % records, headers=headers, media_type=JSON)

    async def delete_batch(self, request: Request, limit: int, **conditions: Any) -> Response:
        """Delete the matching entries that the agent may write; Invalid without a condition."""
        filter_ = AgentFilter.of(**conditions)
        caller, viewer = await identify_writer(request)
        caller.require(Role.WRITER)
        if filter_ == AgentFilter():
            raise Invalid("Deleting entries in bulk needs a filter.")
        clean = filter_.clean(redactor_for(self.rules, caller, viewer.agent))
        deleted, has_more = await self._write(caller, changes.DELETE_BATCH, viewer, clean, limit)
        if deleted:
            self.on_erased(caller)
        annotate({"memory.result_count": deleted})
        return answered({"deleted": deleted, "has_more": has_more})

    async def flush(self) -> None:
        """Write the accesses that are not written yet."""
        for tenant in [tenant for tenant, noted in list(self.accesses.noted.items()) if noted]:
            await self._write(Caller(tenant=tenant), noop)

    async def _write(self, caller: Caller, work: Callable[..., T], *args: Any) -> T:
        """Run work in a transaction that also writes the accesses noted before it.

        They stay noted until it is committed: others may need them at the same time.
        """
        if caller.request is None:  # without an idempotency key, `once` only calls the work
            work = getattr(work, "__wrapped__", work)
        written: dict[MemoryId, datetime] = {}
        done: T = await self.engine.write(caller, _writing(work), self.accesses, written, *args)
        if written:
            self.accesses.forget(caller.tenant, written)
        return done

    def _scrub_soon(self, caller: Caller, *bodies: AgentChangeBody | AgentBatchItem) -> None:
        """Have the plain bytes of values that these changes sealed scrubbed within seconds."""
        if any(each.sensitivity in SEALED for each in bodies):
            self.on_erased(caller)


@cache
def _writing(work: Callable[..., T]) -> Callable[..., T]:
    """Return the work after a write of noted accesses, which are added to `written`."""

    @wraps(work)
    def writing(
        tx: Transaction, /, accesses: Accesses, written: dict[MemoryId, datetime], *args: Any
    ) -> T:
        written |= accesses.of(tx.caller.tenant)
        if written:
            tx[Sql].run_all(
                """UPDATE agent_memories
                      SET accessed_at = :at
                    WHERE memory_id = :id AND accessed_at < :at""",
                [{"id": id_, "at": micros(at)} for id_, at in written.items()],
            )
        return work(tx, *args)

    return writing


def _count_evicted(caller: Caller, done: Outcome) -> None:
    annotate({"memory.evicted_count": done.evicted})
    if not caller.is_replay:
        count(AGENT_EVICTIONS, by=done.evicted)


Hit = tuple[float, AgentEntry]
"""The rank of an entry, and the entry."""


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
    return [(ranks[it.memory], it) for it in entries.some(tx, viewer, list(ranks), filter_)]


# The protocol: its operations, its discovery and its refusals.

CAPABILITIES = [
    "agent-memory", "agent-memory-search", "tasks", "events", "coordinators", "access-control",
    "optimistic-concurrency",
]  # fmt: skip


class MemoryCapabilities(BaseModel):
    """The tiers, limits and features of agents' memory."""

    tiers: list[Tier] = [*Tier]
    eviction_policy: Literal["lru"] = "lru"
    episodic_capacity: int
    max_value_bytes: int = api.MAX_VALUE
    max_batch: int = changes.MAX_BATCH
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


def operations(service: AgentEntries) -> Sequence[Operation]:
    async def discover(_: Request) -> Response:
        capacity = service.capacities.episodic
        discovery = Discovery(memory=MemoryCapabilities(episodic_capacity=capacity))
        return answered(discovery.model_dump())

    async def summary(caller: Caller, viewer: Viewer, agent: AgentId) -> Response:
        most = service.capacities
        return answered(await service.engine.read(caller, agents.summary, viewer, agent, most))

    searched = (it for it in CONDITIONS if it.name in SEARCHED)
    return (
        Operation(
            method="GET", path="/.well-known/openintent.json", name="openintent_discover",
            summary="What this service supports of OpenIntent.", handler=discover, answer=Discovery,
        ),
        route("GET", SEARCH, "search_entries",
           "Search own episodic and shared semantic entries by words, best match first.",
           service.search, FoundAgentEntries,
           query=(Param(name="q", help="Any text.", kind="words", required=True), *searched,
                  row_limit(DEFAULT_RESULTS, MAX_RESULTS))),
        *namespaces.operations(service),
        op("POST", MEMORY, "create_entry",
           "Create an entry at a free key; a full episodic memory evicts others.",
           service.create, AgentEntry, status=201, body=AgentEntryBody, refusals=(409,)),
        route("GET", MEMORY, "query_entries", "Entries that the agent may read, newest first.",
           service.query, AgentEntryList, query=(*FILTER, *PAGE)),
        route("POST", BATCH, "write_batch",
           "Create entries, and change those sent with a version; all of them or none.",
           service.write_batch, WrittenBatch, body=changes.AgentBatchBody,
           refusals=(404, 409)),
        route("DELETE", BATCH, "delete_batch",
           "Delete the matching entries that the agent may change, at most 1,000 at once.",
           service.delete_batch, DeletedAgentEntries,
           query=(*FILTER, row_limit(MAX_DELETED, MAX_DELETED))),
        op("GET", ONE, "get_entry", "One entry.", service.get, AgentEntry, refusals=(404,)),
        route("PATCH", ONE, "update_entry",
           "Change fields of an entry that is at the version in If-Match.",
           service.update, AgentEntry, body=AgentChangeBody, sends=(api.MUST_MATCH,),
           refusals=(404, 409, 428)),
        op("DELETE", ONE, "delete_entry", "Delete an entry permanently.",
           service.delete, api.DeletedEntry, sends=(api.MATCH,), refusals=(404, 409)),
        route("GET", OWN, "list_entries",
           "Entries of an agent that the caller may read, newest first.",
           service.list_own, AgentEntry, is_list=True, query=(*CONDITIONS, *PAGE),
           headers=TOTAL_HEADER),
        op("GET", f"{OWN}/summary", "get_summary", "How much the agent stores in each tier.",
           summary, AgentSummary),
        route("PUT", OWN_KEY, "put_entry",
           "Store a value at a key of the agent's episodic memory.",
           service.put, AgentEntry, status_if_new=201, body=AgentPutBody),
        route("GET", OWN_KEY, "get_keyed_entry", "The agent's episodic entry at a key.",
           service.get_keyed, AgentEntry, refusals=(404,)),
        route("GET", OWN_NAMESPACE, "list_namespace_entries",
           "Entries of an agent in one namespace that the caller may read.",
           service.list_namespace, AgentEntry, is_list=True, query=IN_NAMESPACE,
           headers=TOTAL_HEADER),
        *intents.operations(service),
        *tasks.operations(service),
        *events.operations(service),
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


CALLING_AGENT = Parameter(
    name=api.AGENT, help="The calling agent; optional if the key has exactly one."
)
PROTOCOL = Protocol(
    title="OpenIntent RFC-0015",
    summary="Agents' own memory in three tiers, and namespaces that they share.", prefix=PREFIX,
    refusals=REFUSALS, refused=refused, problem=AgentMemoryProblem, require=api.require,
    sends=(CALLING_AGENT,), sent=(api.AGENT, "If-Match"), read=(REDACTED, "ETag", api.TOTAL),
)  # fmt: skip
