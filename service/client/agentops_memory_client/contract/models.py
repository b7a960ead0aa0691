"""The results of calls, as frozen dataclasses, with the names of AgentOps REST.

Their fields stand in the order of the JSON; `redacted`, `omitted` and `warning` are headers there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Action = Literal["created", "updated", "deduplicated"]
Explanation = Mapping[str, Any]  # as docs/api.md describes it

Progress = Callable[[int, int | None], None]
"""Called after each chunk of a transfer: bytes done, and bytes in total if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a session's transcript."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A stored session; it has a summary once it has ended with messages."""

    id: str
    project: str
    started_at: datetime
    message_count: int
    ended_at: datetime | None = None
    summary: str | None = None
    redacted: int = 0  # secrets removed before it was stored
    warning: str | None = None  # the session belongs to another project


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The outcome of adding messages to a session's transcript."""

    redacted: int = 0  # secrets removed before it was stored
    warning: str | None = None  # the session belongs to another project


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """The outcome of ending a session."""

    session_id: str
    summary: str
    message_count: int
    redacted: int = 0  # secrets removed before it was stored
    warning: str | None = None  # the session belongs to another project


@dataclass(frozen=True, slots=True, kw_only=True)
class Similar:
    """A near duplicate; a score of 1 means the same words."""

    id: int
    title: str
    type: str
    score: float
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The outcome of a save: a new memory, a new revision, or a duplicate."""

    id: int
    action: Action
    revision_count: int
    duplicate_count: int
    expires_at: datetime | None = None
    similar: tuple[Similar, ...] | None = None  # None: not requested, or not found in time
    redacted: int = 0  # secrets removed before it was stored
    warning: str | None = None  # the session belongs to another project


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A memory in full. Only live memories supersede it; lists leave out expired ones."""

    id: int
    session_id: str
    type: str
    title: str
    content: str
    tags: tuple[str, ...] = ()
    project: str
    scope: str
    topic_key: str | None = None
    normalized_hash: str
    revision_count: int
    duplicate_count: int
    last_seen_at: datetime
    promoted_to: str | None = None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    expired: bool = False
    pinned: bool = False
    supersedes: tuple[int, ...] = ()
    superseded_by: tuple[int, ...] = ()
    review_at: datetime | None = None
    confirmed_at: datetime | None = None
    redacted: int = 0  # secrets removed before it was stored


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """A memory that needs a review, why and since when; near duplicates come in pairs."""

    reason: str  # review_due, expires_soon or similar
    at: datetime
    observation: Observation
    other: Observation | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewList:
    """Memories that need a review, newest reason first."""

    items: tuple[ReviewItem, ...]
    next: str | None = None  # pass it as `before` to get the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One change of a memory; a deletion has no text."""

    revision: int
    action: str  # created, updated or deleted
    created_at: datetime
    type: str | None = None
    title: str | None = None
    content: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A memory that was found; a lower rank is better."""

    id: int
    type: str
    title: str
    content: str
    rank: float
    topic_key: str | None = None
    superseded_by: tuple[int, ...] = ()
    explain: Explanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The hits of a search, best first."""

    hits: tuple[Hit, ...] = ()
    omitted: int = 0  # hits that did not fit into the response
    explanation: Explanation | None = None

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A memory in a context, its content cut; its age is in seconds."""

    type: str
    title: str
    content: str
    age: int | None = None
    superseded: int | None = None  # how many it supersedes
    explain: Explanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context for an agent's turn: summaries of sessions, then memories."""

    summaries: tuple[str, ...] = ()
    observations: tuple[Line, ...] = ()
    omitted: int = 0  # memories that did not fit into the response
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """A memory in a timeline."""

    id: int
    type: str
    title: str
    content: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """How much is stored; `projects` always lists every project that the key may read."""

    total_sessions: int
    total_observations: int
    projects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import added."""

    imported_sessions: int
    imported_observations: int
    refused_supersessions: int | None = None  # observations stored without their `supersedes`
    redacted: int = 0  # secrets removed before it was stored


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportConflict:
    """An observation that differs from the stored one, and which of the two is kept."""

    place: int  # in the document's observations, from 0
    id: int  # of the stored one
    reason: Literal["topic_key", "changed"]  # it has the same key, or was changed since the export
    kept: Literal["stored", "imported"]  # the other becomes a revision, or is left out
    project: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What an import would do."""

    new_sessions: int
    same_sessions: int
    conflicting_sessions: int
    new_observations: int
    restored_observations: int  # deleted ones that would come back
    same_observations: int
    conflicting_observations: int
    conflicts: tuple[ImportConflict, ...] = ()  # the first hundred
