"""Memories, their revisions and sessions: frozen, and the same in every layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A memory to be saved."""

    session: SessionId
    space: Space
    text: Text
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A partial change; None leaves a part unchanged."""

    type: str | None = None
    title: str | None = None
    content: str | None = None
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One memory in its space, at its key if it has one. Instants are aware, in UTC.

    An entry of a store has no session. `extras` belong to an API: no rule reads them.
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
    """What a save did, in the order of the dedup tiers."""

    UPDATED = "updated"
    DEDUPLICATED = "deduplicated"
    CREATED = "created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The outcome of a save: the memory that now holds the text, and the tier that decided."""

    memory: Memory
    action: Action
    redacted: int = 0  # secrets removed


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
class Entered:
    """The outcome of opening or closing a session: the session as it is stored."""

    session: Session
    redacted: int = 0  # secrets removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import added."""

    sessions: int
    memories: int
    redacted: int = 0  # secrets removed
    goes_on: bool = False  # accepted; the rest is applied in the background
