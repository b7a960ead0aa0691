"""Refs of hosts, and their entries."""
# ruff: noqa: PLC0414

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from ...memory.model.memory import NO_CHANGE, LifecycleChange, MemoryId
from ...memory.model.space import MemoryRef
from ..refs import MADE as MADE
from ..refs import JsonObject as JsonObject
from ..refs import RefEntryId as RefEntryId
from ..refs import ref_entry_id as ref_entry_id
from ..refs import stable_id as stable_id
from ..runs import Recorded as Recorded
from ..runs import RunId


class Method(StrEnum):
    """How the text of an entry came to be."""

    PUT = "put"
    EXTRACT = "extract-1"  # a rule has chosen from what others say
    HOST = "host"  # a host has written it in place of others


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


class ListedRef(NamedTuple):
    """What is known of a listed entry before its content is read."""

    memory: MemoryId
    size: int  # bytes of its content
    length: int  # code points
