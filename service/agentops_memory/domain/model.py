"""The nouns of memory: frozen, and the same in every layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType

from .access import EVERYTHING, Patterns, Role
from .errors import Denied
from .recall.explain import Explanation, Tier
from .text.normalization import Project
from .text.query import Query

TenantId = NewType("TenantId", str)
MemoryId = NewType("MemoryId", int)
SessionId = NewType("SessionId", str)
KeyId = NewType("KeyId", str)
ErasureId = NewType("ErasureId", str)
StoreId = NewType("StoreId", str)

Ids = Mapping[str, int | str]
"""Ids and numbers by which an outcome is found again; never anything that was said."""

DEFAULT_TENANT = TenantId("default")
UNSAVED = MemoryId(0)

PROJECT_SCOPE = "project"
GLOBAL_SCOPE = "global"
UNKNOWN_PROJECT = Project("unknown")
NO_PROJECT = Project("")  # of the spaces that are stores

NOT_YOUR_STORES = "Memory stores are for keys that act on every project."
NOT_YOUR_PROJECT = "Your key does not act on this project, or not on this session's."


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Where memories live: a scope of a project, or a store, which belongs to no project."""

    project: Project
    scope: str = PROJECT_SCOPE

    @classmethod
    def of_store(cls, store: StoreId) -> "Space":
        """The space that is a store."""
        return cls(project=NO_PROJECT, scope=store)

    @property
    def is_store(self) -> bool:
        """Whether its memories lie at paths, have no session, and keep all their revisions."""
        return self.project == NO_PROJECT


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: of which tenant, with which rights, on which projects, by which key.

    Without a key it is one whom the operator trusts: the command line, or
    anybody while the service is open.
    """

    tenant: TenantId = DEFAULT_TENANT
    role: Role = Role.ADMIN
    projects: Patterns = EVERYTHING
    key: KeyId | None = None

    def require(self, role: Role) -> None:
        """Refuse with Denied what needs a higher role."""
        if not self.role.includes(role):
            raise Denied(f"This needs a key with the role {role}.")

    def require_project(self, project: Project) -> None:
        """Refuse with Denied a project that the key does not act on, whether it exists or not."""
        if not self.projects.match(project):
            raise Denied(NOT_YOUR_PROJECT)

    def require_stores(self) -> None:
        """Refuse with Denied a key that does not act on every project."""
        if not self.projects.are_everything:
            raise Denied(NOT_YOUR_STORES)

    def require_space(self, space: Space) -> None:
        """Refuse with Denied to change what the key does not act on."""
        self.require_project(space.project)
        if space.scope == GLOBAL_SCOPE and not self.projects.are_everything:
            raise Denied("A global memory is changed with a key for every project alone.")


OPERATOR = Caller()


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """What a memory says; the part of it that changes and that its revisions keep."""

    type: str
    title: str
    content: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory as its author hands it in."""

    session: SessionId
    space: Space
    text: Text
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A partial change: a part that is None stays as it is."""

    type: str | None = None
    title: str | None = None
    content: str | None = None
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One memory in its space, at its key if it has one. Instants are aware, in UTC.

    One of a store has no session. `extras` are an API's own: no rule reads them.
    """

    id: MemoryId = UNSAVED
    uid: str
    session: SessionId | None
    space: Space
    key: str | None
    text: Text
    content_hash: str = ""
    revision: int = 1
    duplicates: int = 1
    last_seen_at: datetime
    promoted_to: str | None = None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None
    extras: Mapping[str, str] = field(default_factory=dict)


class Action(StrEnum):
    """What a save did, in the order in which the tiers are tried."""

    UPDATED = "updated"
    DEDUPLICATED = "deduplicated"
    CREATED = "created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The outcome of a save: the memory that now holds the text, and how it came to."""

    memory: Memory
    action: Action
    redacted: int = 0  # secrets that were kept out


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """The outcome of a change: the memory as it is now."""

    memory: Memory
    redacted: int = 0  # secrets that were kept out


class Deed(StrEnum):
    """What a revision records."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One change of a memory. A deletion has no text."""

    number: int
    deed: Deed
    at: datetime
    text: Text | None


class ErasureKind(StrEnum):
    """What was to go."""

    OBSERVATION = "observation"
    PROJECT = "project"
    REDACTION = "redaction"
    STORE = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The receipt of an erasure; the bytes have left the file once `bytes_gone_at` is known.

    It names the memories, at most a thousand, and counts what went. It holds nothing
    of what they said. The erasure of a project goes on until all of it is gone.
    """

    id: ErasureId
    kind: ErasureKind
    project: Project
    memories: tuple[MemoryId, ...]
    observations: int
    revisions: int
    sessions: int = 0
    erased_at: datetime
    bytes_gone_at: datetime | None = None
    goes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a request with an idempotency key has done. Of key and request digests are kept."""

    key: bytes
    request: bytes
    status: int  # of the answer
    ids: Ids
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """How far a partition of the index has been rid of what it no longer holds.

    What is to go lies at this level of its storage; `is_last` tells that nothing older
    lies above, so that no trace has to be kept for it.
    """

    level: int
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A conversation of an agent; `summary` is empty until one is written."""

    id: SessionId
    project: Project
    started_at: datetime
    ended_at: datetime | None = None
    summary: str = ""
    message_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """The outcome of opening or closing a session: the session as it is stored."""

    session: Session
    redacted: int = 0  # secrets that were kept out


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which memories a read may see.

    With `global_too`, the global memories of every project join those of the
    project. The scope `global` means the global memories of every project,
    whatever the project; any other scope means the project's own. A store means its
    memories alone; without one, those of stores are not seen.
    """

    project: Project | None = None
    scope: str | None = None
    store: StoreId | None = None
    type: str | None = None
    tag: str | None = None
    global_too: bool = False


class Method(StrEnum):
    """How a memory was found."""

    TOPIC_KEY = "topic_key"
    FULL_TEXT = "fts5_bm25"
    RECENCY = "recency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A memory that was found; the lower its rank, the better.

    `place` is the one that it had in the list of its project or store, before
    several lists were merged.
    """

    memory: Memory
    rank: float
    method: Method
    tier: Tier | None = None
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What was found in one of several places, and for which query, misspelt words corrected."""

    seen: Filter
    query: Query
    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a caller wants to know beside what was found: why, and why not one of the others."""

    explain: bool = False
    why_not: MemoryId | None = None

    def __bool__(self) -> bool:
        return self.explain or self.why_not is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a text was answered with, best first, and what it was understood to ask.

    Degraded: words took too long, and the newest memories stand in. `sources` are
    those of a list that was merged.
    """

    hits: tuple[Hit, ...] = ()
    sources: tuple[Source, ...] = ()
    query: Query = field(default_factory=Query)
    is_degraded: bool = False
    explanation: Explanation | None = None

    @property
    def method(self) -> Method:
        """Full text if any memory was found by its words, else recency."""
        by_words = any(hit.method is not Method.RECENCY for hit in self.hits)
        return Method.FULL_TEXT if by_words else Method.RECENCY


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A memory that a budget had no room for; its place counts from one."""

    memory: MemoryId
    place: int
    tokens: int
    chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What a context takes of a prompt, and what had no room.

    `places` are those that its memories had among all candidates.
    """

    tokens: int
    chars: int
    places: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    summaries_left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What an agent is reminded of before a turn."""

    summaries: tuple[str, ...] = ()
    found: Found = Found()
    packed: Packed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How many rows a database has; deleted memories count."""

    memories: int
    revisions: int
    sessions: int
    sessions_open: int  # of the sessions, those that have not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How much is stored."""

    sessions: int
    memories: int
    projects: tuple[Project, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A project in the list of all; `memories` are the live ones."""

    project: Project
    memories: int
    sessions: int
    changed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """All that a project holds. Deleted memories are counted among the memories, too.

    Its shared sessions are those of its own in which memories of other projects lie.
    """

    memories: int
    deleted: int
    revisions: int
    sessions: int
    shared_sessions: int
    imported: int  # rows of accepted imports that are not stored yet

    def __bool__(self) -> bool:
        return bool(self.memories or self.sessions or self.imported)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import added."""

    sessions: int
    memories: int
    redacted: int = 0  # secrets that were kept out
    goes_on: bool = False  # it is accepted, and the rest follows by itself
