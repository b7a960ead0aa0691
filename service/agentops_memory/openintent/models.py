"""What answers of OpenIntent hold."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from ..http.bodies import Instant
from .bodies import Access, AllowedAgent, Priority, Tier


class AgentEntryObject(BaseModel):
    """An entry; every member is always there."""

    id: str
    agent_id: str
    namespace: str
    key: str
    value: dict[str, Any]
    memory_type: Tier
    scope: dict[str, str]
    tags: list[str]
    ttl: str | None
    pinned: bool
    priority: Priority
    sensitivity: Literal["public", "internal", "confidential", "restricted"] | None
    curated_by: str | None
    created_by: str
    version: int
    created_at: Instant
    updated_at: Instant
    expires_at: Instant | None
    unreadable: Literal[True] = Field(default=True, description="There if the value is damaged.")


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

    default: Access
    allow: list[AllowedAgent]


class NamespaceObject(BaseModel):
    """A semantic namespace."""

    namespace: str
    permissions: NamespacePermissions
    access: Access
    version: int
    entry_count: int
    total_size_kb: int
    created_at: Instant
    updated_at: Instant


class ListedNamespace(BaseModel):
    """A namespace in a list."""

    namespace: str
    access: Access
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

    tiers: list[Tier]
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
