"""What becomes of a row of an import: decided here alone, for those that do it and those that ask.

Nothing is changed by deciding.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from ..model.access import Caller
from ..model.memory import ChangeKind, Memory, MemoryId, Revision, Session, SessionId
from ..model.retention import Retentions
from ..model.space import Space


class Fate(StrEnum):
    """What becomes of a row."""

    NEW = "new"
    RESTORED = "restored"  # a deleted memory comes back
    SAME = "same"
    CHANGED = "changed"  # it is stored, and says something else by now: that stays
    RECORDED = "recorded"  # what holds its key has its state among the revisions
    LATER = "later"  # than what holds its key, of which it is the next state
    EARLIER = "earlier"  # and so a revision of what holds its key
    TOO_EARLY = "too early"  # for the full history of what holds its key

    @property
    def is_stored(self) -> bool:
        """Whether an import stores something of the row, and counts it."""
        return self in (Fate.NEW, Fate.RESTORED, Fate.LATER, Fate.EARLIER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a memory; `meets` is the stored one that it is, or that holds its key.

    A memory whose stable id belongs to another that nobody may know of has lost it.
    """

    fate: Fate
    memory: Memory
    meets: Memory | None = None

    @property
    def is_left_alone(self) -> bool:
        """Whether it is there already, so that not even its session is looked at."""
        return self.fate in (Fate.SAME, Fate.CHANGED)

    @property
    def state(self) -> Memory:
        """What is stored in its place by now, but for the number of its revision."""
        memory, meets = self.memory, self.meets
        if meets is None:
            return memory
        if self.fate is Fate.RESTORED:
            return replace(meets, text=memory.text, deleted_at=None)
        if self.fate is Fate.LATER:
            later = replace(meets, text=memory.text, updated_at=memory.updated_at)
            return replace(later, last_seen_at=memory.last_seen_at)
        return meets


class KnownMemories(Protocol):
    """Memories, as tables promise them."""

    def get(self, memory: MemoryId) -> Memory | None: ...

    def by_uid(self, uid: str) -> Memory | None: ...

    def twins_of(self, memory: Memory) -> Iterator[Memory]: ...

    def at_key(self, space: Space, key: str) -> Memory | None: ...


class KnownRevisions(Protocol):
    """Revisions, as tables promise them."""

    def holds(self, memory: Memory, state: Memory) -> bool: ...

    def count(self, memory: Memory) -> int: ...


class KnownSessions(Protocol):
    """Sessions, as tables promise them."""

    def get(self, session: SessionId) -> Session | None: ...


class Known(Protocol):
    """What an import has to know: what is stored, or will be when a row has its turn."""

    @property
    def caller(self) -> Caller: ...

    @property
    def retention(self) -> Retentions: ...

    @property
    def memories(self) -> KnownMemories: ...

    @property
    def revisions(self) -> KnownRevisions: ...

    @property
    def sessions(self) -> KnownSessions: ...


def verdict(known: Known, memory: Memory) -> Verdict:
    """What becomes of a memory; Denied if the caller does not act on where it is or comes back."""
    known.caller.require_space(memory.space)
    match = known.memories.by_uid(memory.uid) if memory.uid else None
    if match is not None and known.memories.get(match.id) is None:
        memory, match = replace(memory, uid=""), None  # that one is none to know of
    if not memory.uid:
        match = next(known.memories.twins_of(memory), None)
    if match is not None and match.deleted_at is None:
        fate = Fate.SAME if _says_the_same(match, memory) else Fate.CHANGED
        return Verdict(fate=fate, memory=memory, meets=match)
    if match is not None:
        known.caller.require_space(match.space)
    place = match or memory  # a memory that comes back does so where it was
    held = known.memories.at_key(place.space, place.key) if place.key else None
    if held is not None:
        return Verdict(fate=at_one_key(known, held, memory), memory=memory, meets=held)
    fate = Fate.NEW if match is None else Fate.RESTORED
    return Verdict(fate=fate, memory=memory, meets=match)


def session_fate(known: Known, session: Session) -> Fate:
    """What becomes of a session: a known one is left alone. Denied if it is of others' projects."""
    known.caller.require_project(session.project)
    stored = known.sessions.get(session.id)
    if stored is None:
        return Fate.NEW
    known.caller.require_project(stored.project)
    return Fate.SAME if _by_the_second(stored) == _by_the_second(session) else Fate.CHANGED


def _says_the_same(match: Memory, memory: Memory) -> bool:
    there, here = ((it.text, it.space, it.key) for it in (match, memory))
    return there == here


def at_one_key(known: Known, held: Memory, memory: Memory) -> Fate:
    """Two memories at one key: the later stays the memory, the other is its revision.

    A full history takes no earlier state: it would go with the next change,
    and come back with the next import.
    """
    if second(memory.updated_at) > second(held.updated_at):  # so no revision is of then
        return Fate.LATER
    if known.revisions.holds(held, memory):
        return Fate.RECORDED
    if memory.updated_at > held.updated_at:
        return Fate.LATER
    is_full = known.retention.revisions and known.retention.is_full(known.revisions.count(held))
    return Fate.TOO_EARLY if is_full else Fate.EARLIER


def earlier(held: Memory, memory: Memory) -> Revision:
    """A memory as a revision of the one that holds its key."""
    return Revision(
        number=held.revision, deed=ChangeKind.UPDATED, at=memory.updated_at, text=memory.text
    )


def is_state(revision: Revision, memory: Memory) -> bool:
    """Whether the revision is this state of the memory; an export has whole seconds."""
    same_second = second(revision.at) == second(memory.updated_at)
    return same_second and revision.text == memory.text


def _by_the_second(session: Session) -> Session:
    ended_at = session.ended_at and second(session.ended_at)
    return replace(session, started_at=second(session.started_at), ended_at=ended_at)


def second(at: datetime) -> datetime:
    """The instant as an export has it."""
    return at.replace(microsecond=0)
