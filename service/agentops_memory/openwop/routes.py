"""The route table of OpenWOP's agent memory, its discovery document, and its error format.

Also the memory adapter: puts, reads, lists, searches and deletes entries of a ref.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, partial
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from .. import errors
from ..engine.engine import Transaction
from ..errors import AnswerErased, AnswerLost, BadFields, Conflict, Denied, Refusal, required
from ..http import bodies
from ..http.bodies import JSON, WRITTEN, Param, answered, fault_of, parsing, whole_number, written
from ..http.openapi import Description, document
from ..http.protocol import REDACTED, Operation, Protocol, Refusals
from ..http.query import instant
from ..memory.access import Caller
from ..memory.idempotency import once
from ..memory.memory import MAX_SUPERSEDED, MAX_TTL
from ..memory.redactor import aside, require_room
from ..memory.rows import Column, RowMapper, whole_milliseconds
from ..memory.saves import Written
from ..memory.search import Filter
from ..memory.space import MemoryRef
from ..memory.table import Sql
from ..recall import recall
from ..recall.query import Query as Words, parse_query
from ..record import CamelRecord, shape
from ..secrets.redaction import hide_too
from ..telemetry import Cut, annotate
from . import api, archives, commitments, consolidation, entries, host_runs, passes, proposals, runs
from .api import BASE, LONGEST_BODY, MAX_CONTENT, Page, Query, Serving, limit, op
from .archives import MOST_COMPACTED, MOST_TOKENS, BudgetExceeded
from .commitments import ConditionKind, arm, cancel_of, conditions_of, fire_matched, remove_entry
from .entries import Origin, Provenance, RefEntry, RefTable, add_entry
from .passes import Trigger
from .proposals import ACTIVATION, ArtifactKind
from .runs import RunEventType, RunTable, SecretsLost, SnapshotLost, require_open, snapshot_of

TENANT_MEMORY = "tenant-memory"
MOST_ENTRIES = 500  # most entries of one page
RESULTS, MOST_RESULTS = 10, 100  # results of a search: default and maximum
MOST_RANKED = 1000  # hits of a search, from which the token budget chooses


class RefExtent(CamelRecord):
    """A ref, and the number and size of its entries."""

    memory_ref: Annotated[MemoryRef, Column("ref")]
    entries: int  # entries that are not deleted
    bytes: Annotated[int, Column("size")]  # size of their contents, as UTF-8


_EXTENT = RowMapper(RefExtent, "refs", "space_id")


class RefEntryBody(api.CamelBody):
    """A new entry, and the run that puts it, if any."""

    memory_ref: api.MemoryRefText
    content: api.ContentText
    tags: api.Tags = Field(default=[])
    expires_at: api.Zoned | None = None
    ttl_seconds: Annotated[int, Field(ge=1, le=MAX_TTL)] | None = None
    supersedes: list[api.EntryName] = Field(default=[], max_length=MAX_SUPERSEDED)
    id: api.OwnName | None = None
    run_id: api.RunName | None = None
    node_id: api.Node | None = None
    agent_id: api.AgentName | None = None

    @model_validator(mode="after")
    def _check_combinations(self) -> "RefEntryBody":
        if self.expires_at is not None and self.ttl_seconds is not None:
            raise fault_of("ttlSeconds", "and expiresAt must not be used together")
        for name, value in {"nodeId": self.node_id, "agentId": self.agent_id}.items():
            if value is not None and self.run_id is None:
                raise fault_of(name, "needs a runId")
        return self

    def expiry(self, since: datetime) -> datetime | None:
        """Return when the entry expires, in whole milliseconds, as on the wire."""
        if self.ttl_seconds is not None:
            return whole_milliseconds(since + timedelta(seconds=self.ttl_seconds))
        at = None if self.expires_at is None else instant(self.expires_at)
        return None if at is None else whole_milliseconds(at)


class OneRefEntry(CamelRecord):
    """An entry and its ref."""

    memory_ref: MemoryRef
    entry: RefEntry


class DeletedRefEntry(CamelRecord):
    """The entry that was deleted."""

    memory_ref: MemoryRef
    memory_id: str
    removed: Literal[True]


ListedRefEntries = shape(
    "ListedRefEntries", "Entries of a ref; `next` is the `before` of the next page.", CamelRecord,
    {"next": str}, memory_ref=str, entries=[RefEntry],
)  # fmt: skip
FoundRefEntries = shape(
    "FoundRefEntries",
    "Entries that match a search, and the rank of each; a lower rank is better.", CamelRecord,
    memory_ref=str, entries=[RefEntry], ranks=list[float],
)  # fmt: skip


class IdTaken(Conflict):
    code = "memory_id_conflict"  # a live entry with this id has other content, tags or expiry


def _rank(query: Query, name: str) -> None:
    if query.text(name) not in (None, "recency"):
        query.fault(name, "must be recency")
    if query.text("query") is not None:
        query.fault("query", "is for semantic ranking, which is not supported")


_REF = Param(name="memoryRef", help="The ref (default `tenant-memory`).",
             read=lambda query, name: query.ref(name) or TENANT_MEMORY)  # fmt: skip
_IN_RUN = Param(name="runId", help="The run whose snapshot is read.")
_TAG = Param(
    name="tag", help="Only entries with this tag.",
    read=parsing(lambda tag: tag if len(tag) <= api.LONGEST_TAG else None,
                 f"must have at most {api.LONGEST_TAG} characters"),
)  # fmt: skip
_BUDGET = Param(
    name="tokenBudget", kind="count", help="Maximum number of code points of all contents "
    "together.",
    read=whole_number(1),
)  # fmt: skip
LISTED = (
    Param(name="rank", help="The order.", choices=("recency",), read=_rank),
    Param(name="before", help="An entry's id; returns the entries older than it."),
    _TAG, limit(most=MOST_ENTRIES), _BUDGET,
)  # fmt: skip


def _of_memory(serving: Serving) -> Sequence[Operation]:
    every, one = f"{BASE}/memory", f"{BASE}/memory/{{memoryId:path}}"
    it = partial(op, serving)
    return (
        it("GET", every, "list",
           "Live entries of a ref that no live one supersedes, newest first.", list_entries,
           answer=ListedRefEntries, query=(_REF, _IN_RUN, *LISTED), refusals=(404, 422)),
        it("POST", every, "put",
           "Store an entry; repeating it under the same host id returns the first one.", put,
           body=RefEntryBody, answer=OneRefEntry, status=200, status_if_new=201, headers=WRITTEN,
           refusals=(404, 409)),
        it("GET", one, "get", "One entry, even if another supersedes it.", get,
           answer=OneRefEntry, query=(_REF, _IN_RUN), refusals=(422,)),
        it("DELETE", one, "delete", "Delete an entry.", delete,
           answer=DeletedRefEntry, refusals=(409,),
           query=(
               Param(name="memoryRef", help=_REF.help,
                     read=lambda query, name: query.text(name) or TENANT_MEMORY),
               Param(name="runId", help="The run whose log records the deletion."),
           )),
        it("GET", f"{BASE}/search", "search",
           "Search the live entries of a ref by words, best match first.", search,
           answer=FoundRefEntries,
           query=(
               _REF,
               Param(name="q", help="Any text.", kind="words", required=True),
               _TAG, limit(default=RESULTS, most=MOST_RESULTS), _BUDGET,
           )),
        it("GET", f"{BASE}/provenance/{{memoryId:path}}", "provenance",
           "Who put an entry, and what replaces it.", provenance, answer=Provenance,
           query=(_REF,)),
        it("GET", f"{BASE}/refs", "refs", "Refs that have entries, in code point order.",
           list_refs, query=(limit(), Param(name="after", help="A ref; returns those after it.")),
           answer=api.listed(RefExtent, "refs", "Refs; `next` is the `after` of the next page.")),
    )  # fmt: skip


async def list_entries(
    serving: Serving, caller: Caller, *, memory_ref: str, limit: int, rank: None = None,
    **which: Any,
) -> Page:  # fmt: skip
    """List live entries that no live entry supersedes, newest first; with a run, in its snapshot.

    Raises NotFound for an unknown run, BadFields for an unknown `before`, or SnapshotLost.
    """
    ref = serving.readable(caller, memory_ref)
    entries, has_more = await serving.engine.read(caller, _listed, ref, limit, **which)
    more = {"memoryRef": serving.redaction.echo(caller, memory_ref)}
    return Page("entries", entries, lambda it: it.cursor, has_more, lambda _: more)


async def get(
    serving: Serving, caller: Caller, *, memory_id: str, memory_ref: MemoryRef,
    run_id: str | None = None,
) -> OneRefEntry:  # fmt: skip
    """Return the entry, even if it is superseded; raises NotFound or SnapshotLost."""
    ref = serving.readable(caller, memory_ref)
    entry = await serving.engine.read(caller, _entry, ref, api.RefEntryId(memory_id), run_id)
    return OneRefEntry(memory_ref=memory_ref, entry=entry)


async def provenance(
    serving: Serving, caller: Caller, *, memory_id: api.RefEntryId, memory_ref: str
) -> Provenance:
    ref = serving.readable(caller, memory_ref)
    return await serving.engine.read(caller, lambda tx: tx[RefTable].provenance(ref, memory_id))


async def put(serving: Serving, caller: Caller, body: RefEntryBody) -> Written[OneRefEntry]:
    """Create an entry; an identical put under a host-chosen id returns the first entry.

    Raises Denied for a foreign ref; IdTaken, MemoryChanged, RunEnded, SecretsLost, TooManyArmed.
    """

    def without_secrets(screen: api.Screen) -> RefEntryBody:
        content, tags = screen.content(body.content), list(screen.tags(body.tags))
        return body.model_copy(update={"content": content, "tags": tags})

    def registered(run: runs.RunId) -> Mapping[str, int]:
        return serving.redaction.count(caller.tenant, run)

    async def clean(screen: api.Screen) -> Sequence[object]:
        api.require_ref(body.memory_ref, caller.tenant, screen)
        api.require_plain(screen, id=body.id, nodeId=body.node_id, agentId=body.agent_id)
        return await aside(len(body.content), without_secrets, screen), registered

    done = await serving.written(caller, _PUT, clean)
    made = done.value
    if made.fired:
        serving.on_due(caller)
    annotate({"memory.entry.id": Cut(made.value.id, api.LONGEST_IN_SPAN)})
    one = OneRefEntry(memory_ref=body.memory_ref, entry=made.value)
    return Written(value=one, redacted=done.redacted, fired=made.fired, is_new=made.is_new)


async def delete(
    serving: Serving, caller: Caller, *, memory_id: api.RefEntryId, memory_ref: MemoryRef,
    run_id: str | None = None,
) -> DeletedRefEntry:  # fmt: skip
    """Delete an entry: only open runs still see it; raises NotFound or RunEnded."""
    if (ref := serving.readable(caller, memory_ref)) == api.NOWHERE:
        await serving.engine.read(caller, _entry, ref, memory_id, run_id)  # raises NotFound
    await serving.engine.write(caller, once(delete_entry), ref, memory_id, run_id)
    id_ = serving.redaction.echo(caller, memory_id)
    return DeletedRefEntry(memory_ref=memory_ref, memory_id=id_, removed=True)


async def search(
    serving: Serving, caller: Caller, *, memory_ref: str, q: str, limit: int, **which: Any
) -> Page:
    """Search the entries that a list would show; return the best match first."""
    entries: Sequence[RefEntry] = ()
    ranks: Sequence[float] = ()
    ref = serving.readable(caller, memory_ref)
    if ref != api.NOWHERE and (words := parse_query(q, serving.timeout)):
        entries, ranks = await serving.engine.read(caller, _search, ref, words, limit, **which)
    echoed = serving.redaction.echo(caller, memory_ref)
    return Page("entries", entries, more=lambda n: {"memoryRef": echoed, "ranks": ranks[:n]})


def _refs(tx: Transaction, limit: int, after: str | None = None) -> Sequence[RefExtent]:
    statement = _EXTENT.selecting() + "ref > :after AND entries > 0 ORDER BY ref LIMIT :limit"
    return tx[Sql].filled(
        limit, lambda most: tx[Sql].run(statement, after=after or "", limit=most), _EXTENT
    )


list_refs = api.first_page("refs", _refs, lambda it: it.memory_ref)
"""Refs that have entries, in code point order."""


def _listed(
    tx: Transaction, ref: MemoryRef, limit: int, *, run_id: str | None = None,
    tag: str | None = None, before: api.RefEntryId | None = None, token_budget: int | None = None,
) -> tuple[Sequence[RefEntry], bool]:  # fmt: skip
    """Return a page, and whether more entries follow; the budget bounds the total length."""
    listed = tx[RefTable].listed(ref, snapshot_of(tx, run_id, ref), tag=tag, before=before)
    chosen, has_more = api.first_fitting(listed, limit, token_budget)
    return tx[RefTable].some(chosen), has_more


def _entry(tx: Transaction, ref: MemoryRef, entry: api.RefEntryId, run: str | None) -> RefEntry:
    return required(tx[RefTable].get(ref, entry, snapshot_of(tx, run, ref)), api.NO_ENTRY)


def _search(
    tx: Transaction, ref: MemoryRef, q: Words, limit: int, tag: str | None, token_budget: int | None
) -> tuple[Sequence[RefEntry], Sequence[float]]:
    within = Filter(ref=ref, tag=tag, is_current=True)
    result = recall.search(tx, q, within, limit if token_budget is None else MOST_RANKED)
    ranks = {hit.memory.id: hit.rank for hit in result.hits}
    sized = ((it, it.size, len(it.content)) for it in tx[RefTable].some(list(ranks)))
    chosen, _ = api.first_fitting(sized, limit, token_budget)
    return chosen, [ranks[entry.memory] for entry in chosen]


def put_entry(
    tx: Transaction, body: RefEntryBody, registered: Callable[[runs.RunId], Mapping[str, int]]
) -> Written[RefEntry]:
    """Create an entry; `registered` returns how many values of each secret this process holds."""
    ref, tags, node = body.memory_ref, tuple(body.tags), body.node_id
    run = None if body.run_id is None else require_open(tx, body.run_id)
    if run is not None:
        counts = registered(run.id)
        if any(counts.get(id_, 0) < number for id_, number in run.secrets.items()):
            raise SecretsLost("The values registered by the run are lost; register them again.")
    known = None if body.id is None else tx[RefTable].get(ref, body.id)
    if known is not None:
        is_same = known.content == body.content and known.tags == tags
        if not is_same or known.expires_at != body.expiry(known.created_at):
            raise IdTaken("Another live entry has this id.")
        return Written(value=known, is_new=False)
    require_room(tx)
    older = [tx[RefTable].get(ref, it) for it in dict.fromkeys(body.supersedes)]
    replaced = [it.memory for it in older if it is not None]
    if len(replaced) < len(older):
        raise api.MemoryChanged
    expiry, conditions = body.expiry(tx.now), conditions_of(tags, tx.now)
    if expiry is not None and expiry <= tx.now:
        raise BadFields([("expiresAt", "must be in the future")])
    origin = Origin.whole(run=run.id if run else None, node=node, agent=body.agent_id)
    entry = add_entry(tx, ref, body.content, tags, name=body.id, origin=origin, expires_at=expiry)
    if replaced:
        last = tx[RunTable].newest()
        for it in replaced:
            tx[Sql].insert("ref_supersessions", newer_id=entry.memory, older_id=it, made_after=last)
        cancel_of(tx, replaced)
    if run is not None:
        names = {"nodeId": node, "agentId": body.agent_id}
        payload = {"memoryRef": ref, "memoryId": entry.id, **names, "tags": body.tags}  # RFC 0057
        fields = {name: it for name, it in payload.items() if it is not None}
        tx[RunTable].append_event(run, RunEventType.WRITTEN, fields, node)
        tx[RunTable].touch(run, ref)
    fired = fire_matched(tx, ref, entry)
    arm(tx, entry.memory, conditions)
    return Written(value=entry, is_new=True, fired=fired)


def _still_live(
    tx: Transaction, put: Written[RefEntry], body: RefEntryBody, *_: object
) -> Written[RefEntry]:
    """Return what was put; raises AnswerErased if the entry is deleted, changed or expired."""
    if tx[RefTable].get(body.memory_ref, put.value.id) != put.value:
        raise AnswerErased
    return put


_PUT = once(
    put_entry, about=lambda it: [it.value.memory], on_repeat=_still_live,
    status=lambda it: 201 if it.is_new else 200,
)  # fmt: skip


def delete_entry(tx: Transaction, ref: MemoryRef, entry: api.RefEntryId, run: str | None) -> None:
    within = None if run is None else require_open(tx, run)
    stored = _entry(tx, ref, entry, None)
    remove_entry(tx, stored.memory)
    if within is not None:
        payload = {"memoryRef": ref, "memoryId": stored.id}
        tx[RunTable].append_event(within, RunEventType.DELETED, payload)
        tx[RunTable].touch(within)


JsonObject = dict[str, Any]

PREFIX = "/v1"
REPLAYED = "openwop-Idempotent-Replay"
REFUSALS = Refusals()

CODES = {  # by the code of a refusal; a code that is not listed is sent as it is
    "invalid_input": "validation_error", "denied": "forbidden", "no_path": "not_found",
    "no_method": "method_not_allowed", "too_slow": "request_timeout",
    "too_large": "payload_too_large", "constraint_violation": "memory_changed",
    "too_many": "rate_limited", "over_quota": "quota_exceeded", "failed": "internal_error",
    **dict.fromkeys(
        ("db_locked", "storage_full", "timed_out", "unavailable"), "service_unavailable"
    ),
}  # fmt: skip
PATH = "/.well-known/openwop"

# The discovery document, without the parts that depend on settings.
MEMORY: JsonObject = {
    "supported": True, "writable": True, "maxEntrySizeBytes": MAX_CONTENT, "ttlSupported": True,
    "search": {"supported": True, "modes": ["filter"]},
    "retention": {"ttl": True, "forget": True},
    "attribution": {"supported": True, "emitsWriteEvents": True},
    "compaction": {
        "supported": True, "trigger": Trigger.HOST_MANAGED.value,
        "maxInputEntries": MOST_COMPACTED, "maxOutputBytes": MAX_CONTENT,
    },
    "distillation": {
        "supported": True, "maxTokenBudget": MOST_TOKENS, "scheduled": False,
        "indexEmitted": False, "tokenizerName": "utf8-bytes-div-4",
    },
    "injectionBudget": {"supported": True, "tokenCounter": "chars"},
}  # fmt: skip
AGENTS: JsonObject = {
    "memoryBackends": ["long-term"],
    "memoryConsolidation": {"supported": True},
    "commitments": {"supported": True, "fireConditions": [*ConditionKind]},
    "proposals": {
        "artifactKinds": [*ArtifactKind], "duplicationDetection": True,
        "activation": "direct-rbac",
    },
}  # fmt: skip
LIMITS = {
    "clarificationRounds": 0, "schemaRounds": 0, "envelopesPerTurn": 0,
    "maxRequestBodyBytes": LONGEST_BODY,
}  # fmt: skip


def discovery(serving: Serving) -> JsonObject:
    """Return the discovery document, which is the same for all callers."""
    memory, schedule = MEMORY, Trigger.ON_DEMAND
    if serving.keep_archives:
        kept = TypeAdapter(timedelta).dump_python(serving.keep_archives, mode="json")
        memory = MEMORY | {"distillation": MEMORY["distillation"] | {"archiveRetention": kept}}
    if serving.is_consolidating:
        schedule = Trigger.HOST_MANAGED
    consolidation = AGENTS["memoryConsolidation"] | {"schedule": schedule}
    families = {"memory": memory, "agents": AGENTS | {"memoryConsolidation": consolidation}}
    return {
        "protocolVersion": "1.0", "supportedEnvelopes": [], "schemaVersions": {}, "limits": LIMITS,
        "implementation": {"name": "agentops-memory"}, "supportedTransports": ["rest"],
        **families, "capabilities": families,
        "agentops-memory": {
            "scope": "x-host-agentops-memory-query", "base": BASE, "activationScope": ACTIVATION,
        },
    }  # fmt: skip


Fault = shape("Fault", "An invalid field, and the problem with it.", field=str, problem=str)
ProblemDetails = shape(
    "ProblemDetails", "Details of an error; which fields it has depends on its code.", CamelRecord,
    {
        "correlation_id": str, "scope_required": str, "retry_after_ms": int, "scope": str,
        "from_seq": int, "source_run_id": str, "reason": str, "budget": int,
        "minimum_required": int,
    },
    fields=([Fault], []),
)  # fmt: skip
OpenWopProblem = shape(
    "OpenWopProblem", "An error response.",
    optional={"details": ProblemDetails}, error=str, message=str,
)  # fmt: skip
HostDiscovery = shape(
    "HostDiscovery", "The parts of OpenWOP that are served.", CamelRecord,
    {"fixtures": list[str]}, protocol_version=str, supported_envelopes=list[str],
    schema_versions=dict[str, int], limits=dict[str, int], implementation=dict[str, str],
    supported_transports=list[str], memory=JsonObject, agents=JsonObject, capabilities=JsonObject,
)  # fmt: skip


DETAILS: Mapping[type[Refusal], Callable[[Any], JsonObject]] = {
    BadFields: lambda it: {
        "fields": [{"field": name, "problem": problem} for name, problem in it.faults]
    },
    Denied: lambda it: {} if it.scope is None else {"scopeRequired": it.scope},
    errors.TooMany: lambda it: {"retryAfterMs": it.retry_after * 1000, "scope": it.scope},
    BudgetExceeded: lambda it: {"budget": it.budget, "minimumRequired": it.required},
    SnapshotLost: lambda it: {
        "fromSeq": it.from_sequence, "sourceRunId": it.source, "reason": it.reason
    },
}  # fmt: skip


def refused(refusal: Refusal, scope: Scope) -> Response:
    """Return the response to a refused request; its message has no sent or stored text."""
    # The protocol has no code for an answer that is lost or erased.
    known = api.MemoryChanged() if isinstance(refusal, AnswerLost | AnswerErased) else refusal
    is_reused, id_ = isinstance(refusal, errors.KeyReused), bodies.request_id(scope)
    problem: JsonObject = {
        "error": "idempotency_key_mismatch" if is_reused else CODES.get(known.code, known.code),
        "message": "The request is not valid." if isinstance(known, BadFields) else str(known),
    }
    details = next((of(known) for kind, of in DETAILS.items() if isinstance(known, kind)), {})
    if REFUSALS.status(known.code) >= 500:
        details["correlationId"] = id_
    content = written(problem | {"details": details} if details else problem)
    return REFUSALS.response(known, content, {bodies.REQUEST_ID: id_})


NOUNS = host_runs, archives, consolidation, passes, entries, commitments, proposals
OpenWopOperations = Callable[[Serving], Sequence[Operation]]


def operations(
    serving: Serving,
    more: Sequence[Operation] = (),
    served: Callable[[Serving], JsonObject] = discovery,
) -> Sequence[Operation]:
    """Return all operations of the protocol, and `more`, which are described with them."""
    described = list[Operation]()

    @cache
    def description() -> JsonObject:
        return document([(PROTOCOL, described)], title=PROTOCOL.title, version="1.0")

    async def discover(request: Request) -> Response:
        content, known = written(served(serving)), request.headers.get("if-none-match", "")
        tag = f'"{sha256(content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "public, max-age=300"}
        if known.strip() == "*" or tag in known:  # a list of tags, each perhaps weak
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=JSON)

    async def describe(_: Request) -> Response:
        return answered(await asyncio.to_thread(description))

    described += [
        Operation(
            method="GET", path=PATH, name="openwop_discover",
            summary="The parts of OpenWOP that are served.",
            handler=discover, answer=HostDiscovery,
            headers={"ETag": "The document's version."},
        ),
        *_of_memory(serving),
        *(operation for noun in NOUNS for operation in noun.operations(serving)),
        *more,
        Operation(
            method="GET", path=f"{PREFIX}/openapi.json", name="openwop_openapi",
            summary="The OpenAPI 3.1 description of this protocol.",
            handler=describe, answer=Description,
        ),
    ]  # fmt: skip
    return described


def require(_: Request, caller: Caller) -> None:
    """Require access to refs; from then on, telemetry of the request hides OpenWOP's secrets."""
    hide_too(lambda text: api.mark_secrets(text)[0])
    caller.require_refs()


PROTOCOL = Protocol(
    title="OpenWOP agent memory",
    summary="Memory of hosts that run workflows of agents: refs, runs, events.", prefix=PREFIX,
    refusals=REFUSALS, refused=refused, problem=OpenWopProblem, replayed=REPLAYED,
    sent=("If-None-Match", "OpenWOP-Version"), read=(REDACTED, "ETag", REPLAYED),
    require=require, is_closed=True,
)  # fmt: skip
