"""Memories, their revisions and sessions: frozen, and the same in every layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Literal, NewType

from ...recall.text.normalization import sha256_of
from .space import Project, Space

MemoryId = NewType("MemoryId", int)
SessionId = NewType("SessionId", str)
UNSAVED = MemoryId(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The text of a memory: what changes, and what revisions keep."""

    type: str
    title: str
    content: str
    tags: tuple[str, ...] = ()


Reference = MemoryId | str
"""A memory as a caller names it: by its id, or by its stable id."""

MAX_PINNED = 20  # live memories of a project, and as many global ones
MAX_TTL = 315_360_000  # seconds: ten years
MAX_SUPERSEDED = 20  # memories that one request names


class Unset(Enum):
    """The value of a field that a request does not name; None takes the field's value away."""

    UNSET = "unset"


UNSET = Unset.UNSET
Given = datetime | Literal[Unset.UNSET] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """What a memory was given beside its text. At `expires_at`, and after it, it is expired."""

    expires_at: datetime | None = None
    pinned_at: datetime | None = None
    review_at: datetime | None = None
    confirmed_at: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleChange:
    """What a save or a change sets; what is not given stays. `ttl` counts from the transaction."""

    expires_at: Given = UNSET
    ttl: timedelta | None = None
    pinned: bool | None = None
    supersedes: tuple[Reference, ...] | None = None
    review_at: Given = UNSET

    def end(self, now: datetime) -> Given:
        """The end that is given, as an instant."""
        return self.expires_at if self.ttl is None else now + self.ttl


NO_LIFECYCLE = Lifecycle()
NO_CHANGE = LifecycleChange()


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What a memory supersedes, and the live ones that supersede it; each in the order of ids.

    `uids` name what it supersedes in an export and an import, which know no ids.
    """

    supersedes: tuple[MemoryId, ...] = ()
    superseded_by: tuple[MemoryId, ...] = ()
    uids: tuple[str, ...] = ()


NO_LINKS = Links()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory to be saved."""

    session: SessionId
    space: Space
    text: Text
    key: str | None = None
    lifecycle: LifecycleChange = NO_CHANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A partial change; None leaves a part unchanged."""

    type: str | None = None
    title: str | None = None
    content: str | None = None
    tags: tuple[str, ...] | None = None
    lifecycle: LifecycleChange = NO_CHANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of a memory that is found, at its key if it has one.

    `links` are known to reads that show them alone.
    """

    id: MemoryId = UNSAVED
    key: str | None
    text: Text
    links: Links = NO_LINKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Shown):
    """One memory in its space. Instants are aware, in UTC.

    An entry of a store has no session. `extras` belong to an API: no rule reads them.
    The instant `as_of` which `links` hold is known where they are.
    """

    uid: str
    session: SessionId | None
    space: Space
    content_hash: str = ""
    revision: int = 1
    duplicates: int = 1
    last_seen_at: datetime
    promoted_to: str | None = None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None
    extras: Mapping[str, str] = field(default_factory=dict)
    lifecycle: Lifecycle = NO_LIFECYCLE
    as_of: datetime | None = None

    @property
    def is_expired(self) -> bool:
        """Whether it was expired when it was read."""
        return self.as_of is not None and self.lifecycle.is_expired(self.as_of)

    @property
    def age(self) -> timedelta:
        """How long ago it was changed, seen or confirmed when it was read; not negative."""
        known = self.updated_at, self.last_seen_at, self.lifecycle.confirmed_at
        latest = max(filter(None, known))
        return max((self.as_of or latest) - latest, timedelta())

    @property
    def is_deleted(self) -> bool:
        return self.deleted_at is not None

    def is_live(self, now: datetime) -> bool:
        """Whether it is neither deleted nor expired at the instant."""
        return not self.is_deleted and not self.lifecycle.is_expired(now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A precondition on a memory: its revision, the SHA-256 of its content, or both."""

    revision: int | None = None
    sha256: str | None = None

    def met_by(self, memory: Memory) -> bool:
        is_revision = self.revision in (None, memory.revision)
        return is_revision and self.sha256 in (None, sha256_of(memory.text.content))


ANY_STATE = Expected()


class Action(StrEnum):
    """What a save did, in the order of the dedup tiers."""

    UPDATED = "updated"
    DEDUPLICATED = "deduplicated"
    CREATED = "created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookalike:
    """A memory that says nearly the same as another; 1.0 is the same."""

    memory: Memory
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The outcome of a save: the memory that now holds the text, and the tier that decided.

    `similar` is None where look-alikes were not asked for, or not found in time.
    """

    memory: Memory
    action: Action
    redacted: int = 0  # secrets removed
    superseded: int = 0  # links that are new
    warning: str | None = None  # the session belongs to another project
    similar: tuple[Lookalike, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """The outcome of a change: the memory as it is now."""

    memory: Memory
    redacted: int = 0  # secrets removed


class ChangeKind(StrEnum):
    """What kind of change a revision records."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One change of a memory. A deletion has no text."""

    number: int
    deed: ChangeKind
    at: datetime
    text: Text | None


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
class Supersession:
    """What a memory that was imported supersedes: linked when all rows of the import are in."""

    newer: MemoryId
    older: tuple[str, ...]  # stable ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """The outcome of opening or closing a session: the session as it is stored."""

    session: Session
    redacted: int = 0  # secrets removed
    warning: str | None = None  # it belongs to another project than the caller named


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import added."""

    sessions: int
    memories: int
    refused: int = 0  # memories that were stored without what they supersede
    redacted: int = 0  # secrets removed


MAX_LIST = 4 * 1024 * 1024  # characters of content in one list, whatever its limit
MAX_PAGE = 256 * 1024  # the same of a page of an export, which is kept while nobody reads it
