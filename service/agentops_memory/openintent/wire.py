"""What OpenIntent answers: the models, their JSON, and lists in one piece or in several."""

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from ..errors import AnswerErased, BadFields, Invalid, Refusal
from ..http.bodies import JSON, NONE, Instant, written
from ..http.ids import ENTRY, EVENT, public_id
from ..http.large_answers import paced
from ..memory.model.agent_events import AgentEvent
from ..memory.model.agent_memory import Access, AgentEntry, AgentSummary, Namespace
from ..memory.model.agents import AgentId
from ..recall.text.json_words import object_of
from ..telemetry import annotate
from .bodies import AccessName, AllowedAgent, PriorityName, TierName
from .rules.binding import BadField, OverCapacity
from .rules.entries import Listing
from .rules.namespaces import OutdatedNamespace
from .rules.rules import NO_ENTRY, AtItem, Outdated, Taken
from .rules.search import AgentFound
from .rules.tasks import OutdatedTask


class AgentEntryObject(BaseModel):
    """An entry; every member is always there."""

    id: str
    agent_id: str
    namespace: str
    key: str
    value: dict[str, Any]
    memory_type: TierName
    scope: dict[str, str]
    tags: list[str]
    ttl: str | None
    pinned: bool
    priority: PriorityName
    sensitivity: Literal["public", "internal", "confidential", "restricted"] | None
    curated_by: str | None
    created_by: str
    version: int
    created_at: Instant
    updated_at: Instant
    expires_at: Instant | None
    unreadable: Literal[True] = Field(default=True, description="There if its key is lost.")


class FoundAgentEntry(AgentEntryObject):
    """An entry that was found; a lower rank is better."""

    rank: float


class SearchedPlaces(BaseModel):
    """Where was looked: the agent's own episodic memory, and namespaces."""

    own: bool
    namespaces: list[str]


class FoundAgentEntries(BaseModel):
    """Entries by their words, best first."""

    entries: list[FoundAgentEntry]
    searched: SearchedPlaces


class AgentEntryList(BaseModel):
    """A page of entries, and how many there are in all."""

    entries: list[AgentEntryObject]
    total: int
    limit: int
    offset: int


class WrittenBatch(BaseModel):
    """The entries of a batch, in its order."""

    entries: list[AgentEntryObject]


class DeletedAgentEntry(BaseModel):
    """That an entry is gone."""

    status: Literal["deleted"] = "deleted"
    entry_id: str


class DeletedAgentEntries(BaseModel):
    """How many entries are gone, and whether more match."""

    deleted: int
    has_more: bool


class NamespacePermissions(BaseModel):
    """Who may do what in a namespace."""

    default: AccessName
    allow: list[AllowedAgent]


class NamespaceObject(BaseModel):
    """A semantic namespace."""

    namespace: str
    permissions: NamespacePermissions
    access: AccessName
    version: int
    entry_count: int
    total_size_kb: int
    created_at: Instant
    updated_at: Instant


class ListedNamespace(BaseModel):
    """A namespace in a list."""

    namespace: str
    access: AccessName
    entry_count: int
    updated_at: Instant


class NamespaceList(BaseModel):
    """The namespaces that the agent may read."""

    namespaces: list[ListedNamespace]
    total: int
    limit: int
    offset: int


class WorkingSummary(BaseModel):
    """What an agent has in working memory."""

    entry_count: int
    total_size_kb: int
    tasks_with_memory: list[str]


class EpisodicSummary(BaseModel):
    """What an agent has in episodic memory."""

    entry_count: int
    capacity: int
    pinned_count: int
    total_size_kb: int
    oldest_entry: Instant | None
    newest_entry: Instant | None
    eviction_policy: Literal["lru"] = "lru"


class AgentSummaryObject(BaseModel):
    """What an agent has in each tier."""

    agent_id: str
    working: WorkingSummary
    episodic: EpisodicSummary
    semantic_namespaces_accessible: list[str]


class AgentEventObject(BaseModel):
    """What happened to an entry, a task or an intent, under both names of everything."""

    id: str
    sequence: int
    intent_id: str | None
    task_id: str | None
    agent_id: str | None
    actor: str | None
    event_type: str
    type: str
    payload: dict[str, Any]
    data: dict[str, Any]
    created_at: Instant
    timestamp: Instant


class MemoryCapabilities(BaseModel):
    """What agents' memory is like here."""

    tiers: list[TierName]
    eviction_policy: Literal["lru"] = "lru"
    episodic_capacity: int
    max_value_bytes: int
    max_batch: int
    search: str
    encryption_at_rest: bool


class Discovery(BaseModel):
    """GET /.well-known/openintent.json."""

    protocol: Literal["OpenIntent"] = "OpenIntent"
    version: str
    rfcs: list[str]
    capabilities: list[str]
    memory: MemoryCapabilities
    openApiUrl: str  # noqa: N815 - as the protocol writes it


class FieldFault(BaseModel):
    """What is wrong with a field."""

    field: str
    message: str


class ErrorCode(BaseModel):
    """Which refusal it is."""

    code: str


class AgentMemoryProblem(BaseModel):
    """A refusal; of a conflict also the state that refuses, of a capacity its figures."""

    message: str
    error: ErrorCode
    errors: list[FieldFault] | None = None
    current_version: int | None = None
    current_value: dict[str, Any] | None = None
    current: AgentEntryObject | None = None
    limit: str | None = None
    current_count: int | None = None
    max_capacity: int | None = None


JsonObject = dict[str, Any]

CODES: Mapping[str, str] = {
    "invalid_input": "INVALID_REQUEST",
    "validation_error": "INVALID_REQUEST",
    "unauthenticated": "UNAUTHENTICATED",
    "denied": "ACCESS_DENIED",
    "not_found": "NOT_FOUND",
    "no_path": "NOT_FOUND",
    "no_method": "METHOD_NOT_ALLOWED",
    "too_slow": "TIMEOUT",
    "constraint_violation": "IDEMPOTENCY_KEY_REUSED",
    "stale": "VERSION_MISMATCH",
    "task_finished": "TASK_FINISHED",
    "already_exists": "ALREADY_EXISTS",
    "too_large": "TOO_LARGE",
    "version_required": "VERSION_REQUIRED",
    "over_capacity": "CAPACITY_EXCEEDED",
    "too_many": "RATE_LIMITED",
    "failed": "INTERNAL",
    "over_quota": "QUOTA_EXCEEDED",
}
UNAVAILABLE = "UNAVAILABLE"


def entry(of: AgentEntry) -> JsonObject:
    """The entry; if its key is lost, without its value, so that clients can read the others."""
    space, handling, labels = of.place.space, of.handling, of.labels
    scope = {"task_id": labels.task, "intent_id": labels.intent}
    shown: JsonObject = {
        "id": public_id(ENTRY, of.id),
        "agent_id": space.agent or of.created_by,
        "namespace": space.namespace,
        "key": of.place.key,
        "value": {} if of.is_lost else object_of(of.value),
        "memory_type": space.tier.value,
        "scope": {name: label for name, label in scope.items() if label is not None},
        "tags": list(handling.tags),
        "ttl": handling.ttl,
        "pinned": handling.is_pinned,
        "priority": handling.priority.name.lower(),
        "sensitivity": handling.sensitivity,
        "curated_by": handling.curated_by,
        "created_by": of.created_by,
        "version": of.version,
        "created_at": rendered(of.created_at),
        "updated_at": rendered(of.updated_at),
        "expires_at": _rendered_if_any(handling.expires_at),
    }
    return {**shown, "unreadable": True} if of.is_lost else shown


def found(of: AgentFound) -> JsonObject:
    """What a search found, with the places where it looked."""
    return {
        "entries": [{**entry(hit.entry), "rank": hit.rank} for hit in of.hits],
        "searched": {"own": of.own, "namespaces": list(of.namespaces)},
    }


def deleted(entry_id: str) -> JsonObject:
    return {"status": "deleted", "entry_id": entry_id}


def event(of: AgentEvent) -> JsonObject:
    """An event under the names of the package, and under those of the RFC."""
    type_, payload, at = of.type, dict(of.payload), rendered(of.at)
    if "entry_id" in payload:
        payload["entry_id"] = public_id(ENTRY, str(payload["entry_id"]))
    return {
        "id": public_id(EVENT, of.id),
        "sequence": of.sequence,
        "intent_id": of.labels.intent,
        "task_id": of.labels.task,
        "agent_id": of.agent,
        "actor": of.actor,
        "event_type": type_,
        "type": type_,
        "payload": payload,
        "data": payload,
        "created_at": at,
        "timestamp": at,
    }


def summary(agent: AgentId, of: AgentSummary) -> JsonObject:
    working, episodic = of.working, of.episodic
    return {
        "agent_id": agent,
        "working": {
            "entry_count": working.entries,
            "total_size_kb": _kilobytes(working.size),
            "tasks_with_memory": list(of.tasks),
        },
        "episodic": {
            "entry_count": episodic.entries,
            "capacity": of.capacity,
            "pinned_count": episodic.pinned,
            "total_size_kb": _kilobytes(episodic.size),
            "oldest_entry": _rendered_if_any(episodic.oldest),
            "newest_entry": _rendered_if_any(episodic.newest),
            "eviction_policy": "lru",
        },
        "semantic_namespaces_accessible": list(of.namespaces),
    }


def namespace(of: Namespace) -> JsonObject:
    allow = of.permissions.allow.items()
    return {
        "namespace": of.name,
        "permissions": {
            "default": _access(of.permissions.default),
            "allow": [{"agent": agent, "access": _access(level)} for agent, level in allow],
        },
        "access": _access(of.access),
        "version": of.version,
        "entry_count": of.entries,
        "total_size_kb": _kilobytes(of.size),
        "created_at": rendered(of.created_at),
        "updated_at": rendered(of.updated_at),
    }


def listed_namespace(of: Namespace) -> JsonObject:
    return {
        "namespace": of.name,
        "access": _access(of.access),
        "entry_count": of.entries,
        "updated_at": rendered(of.updated_at),
    }


def problem(refusal: Refusal) -> JsonObject:
    """A refusal, with the state that refuses if there is one."""
    cause = refusal.refusal if isinstance(refusal, AtItem) else refusal
    code = CODES.get(cause.code, UNAVAILABLE)
    is_gone = str(cause) == NO_ENTRY or isinstance(cause, AnswerErased)
    shown: JsonObject = {
        "message": str(refusal),
        "error": {"code": "ENTRY_NOT_FOUND" if is_gone else code},
    }
    item = f"entries[{refusal.number}]." if isinstance(refusal, AtItem) else ""
    if isinstance(cause, BadFields):
        shown["errors"] = [{"field": item + name, "message": said} for name, said in cause.faults]
    elif isinstance(cause, BadField):
        shown["errors"] = [{"field": item + cause.field, "message": cause.said}]
    elif isinstance(cause, Invalid):
        shown["errors"] = []
    if isinstance(cause, Taken | Outdated):
        current = entry(cause.current)
        shown |= {"current_version": cause.current.version, "current_value": current["value"]}
        shown["current"] = current
    if isinstance(cause, OutdatedNamespace | OutdatedTask):
        shown["current_version"] = cause.current.version
    if isinstance(cause, OverCapacity):
        shown |= {"limit": cause.limit, "current_count": cause.count, "max_capacity": cause.most}
    return shown


def rendered(at: datetime) -> str:
    """The instant as every version of Python reads it: with six digits and `+00:00`."""
    return at.isoformat(timespec="microseconds")


def _rendered_if_any(at: datetime | None) -> str | None:
    return None if at is None else rendered(at)


def _access(level: Access) -> str:
    return level.name.lower()


def _kilobytes(size: int) -> int:
    return -(-size // 1024)


T = TypeVar("T")


def tag(version: int) -> dict[str, str]:
    return {"ETag": f'"{version}"'}


async def listed_entries(
    found: Listing[AgentEntry], before: bytes, after: bytes, headers: Mapping[str, str] = NONE
) -> Response:
    return await listed(found, entry, before, after, headers)


async def listed_events(found: Listing[AgentEvent]) -> Response:
    return await listed(found, event)


async def listed(
    found: Listing[T],
    shown: Callable[[T], JsonObject],
    before: bytes = b"[",
    after: bytes = b"]",
    headers: Mapping[str, str] = NONE,
) -> Response:
    """A list in one piece, or in several if its values are large."""
    annotate({"memory.result_count": found.count})

    async def pieces() -> AsyncIterator[bytes]:
        yield before
        separator = b""
        async for portion in found.portions:
            async for each in paced((written(shown(it)) for it in portion), len):
                yield separator + each
                separator = b","
        yield after

    if found.is_whole:
        content = b"".join([piece async for piece in pieces()])
        return Response(content, headers=headers, media_type=JSON)
    return StreamingResponse(pieces(), headers=headers, media_type=JSON)
