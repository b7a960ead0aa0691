"""Memory of hosts (OpenWOP): entries under references of theirs, and what their runs have done."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType
from uuid import UUID

from .memory import NO_CHANGE, LifecycleChange, MemoryId

RunId = NewType("RunId", str)
"""A host's name for a run, or `run_` and the digits of a stable id."""

Offset = NewType("Offset", int)
"""An event's offset in the log of all runs: the order of commits, whatever clocks say."""

JsonObject = Mapping[str, object]


class RunKind(StrEnum):
    """Whose run it is, and of what."""

    HOST = "host"
    REPLAY = "replay"  # a copy of another one's log
    BRANCH = "branch"  # begun where another one was


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunEventType(StrEnum):
    """What a run's log tells; no payload holds content."""

    STARTED = "run.started"
    COMPLETED = "run.completed"
    FAILED = "run.failed"
    CANCELLED = "run.cancelled"
    WRITTEN = "memory.written"
    DELETED = "agentops-memory.memory.deleted"


ENDS: Mapping[RunStatus, RunEventType] = {
    RunStatus.COMPLETED: RunEventType.COMPLETED,
    RunStatus.FAILED: RunEventType.FAILED,
    RunStatus.CANCELLED: RunEventType.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Memory as it was just after an event.

    It holds what was put up to the memory `high`, but what was deleted before the event:
    a deletion is marked with the last event before it.
    """

    offset: Offset
    high: MemoryId
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDraft:
    """A run to be opened; the refs are those that it is going to use."""

    id: RunId | None = None
    agent: str | None = None
    workflow: str | None = None
    refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run. `heard_at` is when something was last done in it."""

    number: int
    id: RunId
    kind: RunKind
    status: RunStatus
    agent: str | None = None
    workflow: str | None = None
    refs: tuple[str, ...] = ()
    source: RunId | None = None
    from_sequence: int = 0  # of the source, at which a fork begins
    snapshot: Snapshot
    secrets: Mapping[str, int] = field(default_factory=dict)  # how many values each id has
    wrote: tuple[str, ...] = ()  # the refs that it has written to
    started_at: datetime
    heard_at: datetime
    ended_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.status is RunStatus.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that happened in a run. A copy keeps the snapshot of what it is copied from."""

    offset: Offset
    uid: str
    run: RunId
    sequence: int  # from 0, without gaps
    type: RunEventType
    payload: JsonObject
    node: str | None
    at: datetime
    snapshot: Snapshot  # memory just after it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """Some events of a run, and whether these are all up to its end."""

    events: Sequence[RunEvent]
    is_complete: bool


MemoryRef = NewType("MemoryRef", str)
"""How a host names a place; it is compared code point by code point."""

RefEntryId = NewType("RefEntryId", str)
"""The id that the host gave, or `mem_` and the digits of the stable id."""

MADE = re.compile(r"(?:mem|archive)_[0-9a-f]{32}", re.ASCII)
"""The forms of the ids that the service gives."""

_STABLE = "mem_"


class Method(StrEnum):
    """How the text of an entry came to be."""

    PUT = "put"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who wrote an entry, and how."""

    run: RunId | None = None
    node: str | None = None
    agent: str | None = None
    method: Method = Method.PUT


@dataclass(frozen=True, slots=True, kw_only=True)
class RefDraft:
    """An entry to be put."""

    ref: MemoryRef
    content: str
    tags: tuple[str, ...] = ()
    id: RefEntryId | None = None
    lifecycle: LifecycleChange = NO_CHANGE
    supersedes: tuple[RefEntryId, ...] = ()
    origin: Origin = Origin()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefEntry:
    """An entry as it is shown. It never changes."""

    id: RefEntryId
    memory: MemoryId
    uid: str
    content: str
    tags: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None

    @property
    def cursor(self) -> RefEntryId:
        """An id that no other entry ever has: a name may be given again."""
        return ref_entry_id(self.uid, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefRank:
    """An entry that was found by its words; a lower rank is better."""

    entry: RefEntry
    rank: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where an entry comes from, and what came of it."""

    id: RefEntryId
    origin: Origin
    derived_from: Sequence[RefEntryId]
    superseded_by: Sequence[RefEntryId]
    seen: int
    last_seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefQuery:
    """Which entries of a ref are listed, newest first.

    `before` is the id of an entry, or its cursor, also of a deleted one: those older than it. The
    budget bounds the code points of all contents; an entry that alone exceeds it is
    left out.
    """

    tag: str | None = None
    before: RefEntryId | None = None
    limit: int
    budget: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefPage:
    """Entries of a ref, and whether there are more to go on with."""

    entries: Sequence[RefEntry] = ()
    has_more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RefExtent:
    """How much a ref holds: undeleted entries, and the bytes of their contents."""

    ref: MemoryRef
    entries: int
    size: int


def ref_entry_id(uid: str, name: str | None) -> RefEntryId:
    """The public id of an entry, by its stable id and the name that its host gave."""
    return RefEntryId(name or _STABLE + uid.replace("-", ""))


def stable_id(entry: RefEntryId) -> str | None:
    """The stable id in a public one; None for a name that a host gave."""
    is_one = entry.startswith(_STABLE) and MADE.fullmatch(entry)
    return str(UUID(entry.removeprefix(_STABLE))) if is_one else None
