"""What the service makes of the entries of a ref: archives, merges, and the passes that do."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from ...memory.model.erasure import ErasureId
from ...memory.model.memory import MemoryId
from ...memory.model.space import MemoryRef
from ..entries import Method, RefEntry
from ..refs import JsonObject, RefEntryId
from ..runs import Run, RunEventType, RunId


class PassKind(StrEnum):
    """What a pass does."""

    COMPACTION = "compaction"  # an archive takes the place of its sources
    DISTILLATION = "distillation"  # an archive within a budget; its sources stay
    CONSOLIDATION = "consolidation"  # entries take the place of what they say, too


class Trigger(StrEnum):
    """Why a pass runs."""

    ON_DEMAND = "on-demand"
    HOST_MANAGED = "host-managed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDraft:
    """An archive to be put. Its id is made of what it is made of, so it is the same again."""

    id: RefEntryId
    ref: MemoryRef
    kind: PassKind
    method: Method
    content: str
    subjects: tuple[str, ...]  # tags
    sources: Sequence[RefEntry]
    ends: datetime | None
    budget: int | None = None  # of a distillation, in tokens
    supersedes: bool

    @property
    def size(self) -> int:
        return len(self.content.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Entries that a host wants to be one, and what it says."""

    ids: tuple[RefEntryId, ...]
    content: str
    tags: tuple[str, ...] = ()


class Link(NamedTuple):
    """The entry that stays, and one that it supersedes; by age it may be the older of the two."""

    newer: MemoryId
    older: MemoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pass that was made: what an undo has to know."""

    run: Run
    ref: MemoryRef
    written: Collection[MemoryId] = ()
    replaced: int = 0
    is_undone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PassDone:
    """The run of a pass, and the event that tells of it."""

    run: RunId
    type: RunEventType
    payload: JsonObject
    redacted: int = 0  # secrets removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Distilled(PassDone):
    """The outcome of a distillation: the SHA-256 of the archive, and whether it is new."""

    checksum: str
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What an undo did: entries that stand for themselves again, and entries that are gone."""

    run: RunId
    restored: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive as the index of a ref tells of it."""

    entry: RefEntry
    sources: int
    first_at: datetime  # when the first source was put
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveIndex:
    """The live archives of a ref, newest first, and how many there are."""

    archives: Sequence[Archive]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What was erased of a subject; no receipt where there was nothing, or nothing was done."""

    entries: int = 0
    archives: int = 0
    restored: int = 0  # entries of others that stand for themselves again
    commitments: int = 0
    erasure: ErasureId | None = None


class Inputs(NamedTuple):
    """Which entries a pass reads, of those that a list shows."""

    archives: bool = False  # also these
    replaceable: bool = False  # those alone that another may stand for: no pinned or awaited ones


class Found(NamedTuple):
    """What is to be erased of a subject, and what comes of that."""

    entries: Sequence[MemoryId]  # what was made of others before these
    archives: int  # how many of them are archives
    restored: int  # entries of others that stand for themselves then
    commitments: int
