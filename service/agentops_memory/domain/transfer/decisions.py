"""Import decisions: what an import does with a row, for the import itself and for its dry run.

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


class RowOutcome(StrEnum):
    """What an import does with a row."""

    NEW = "new"
    RESTORED = "restored"  # a soft-deleted memory is live again
    SAME = "same"
    CHANGED = "changed"  # stored, and changed since: the stored state wins
    RECORDED = "recorded"  # already a revision of the memory at its key
    LATER = "later"  # becomes the next state of the memory at its key
    EARLIER = "earlier"  # becomes a revision of the memory at its key
    TOO_EARLY = "too early"  # for the full history of the memory at its key

    @property
    def is_stored(self) -> bool:
        """Whether an import stores something of the row, and counts it."""
        return self in (RowOutcome.NEW, RowOutcome.RESTORED, RowOutcome.LATER, RowOutcome.EARLIER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of one memory; `existing` is the stored memory that it is, or that has its key.

    The uid is empty if it belongs to a memory that the caller may not see.
    """

    outcome: RowOutcome
    memory: Memory
    existing: Memory | None = None

    @property
    def is_present(self) -> bool:
        """Whether it is stored and live, so that not even its session is looked up."""
        return self.outcome in (RowOutcome.SAME, RowOutcome.CHANGED)

    @property
    def state(self) -> Memory:
        """The stored state after the import, without the new revision's number."""
        memory, existing = self.memory, self.existing
        if existing is None:
            return memory
        if self.outcome is RowOutcome.RESTORED:
            return replace(existing, text=memory.text, deleted_at=None)
        if self.outcome is RowOutcome.LATER:
            later = replace(existing, text=memory.text, updated_at=memory.updated_at)
            return replace(later, last_seen_at=memory.last_seen_at)
        return existing


class MemoryLookup(Protocol):
    """The lookups of `MemoryTable` that a decision needs."""

    def get(self, memory: MemoryId) -> Memory | None: ...

    def by_uid(self, uid: str) -> Memory | None: ...

    def twins_of(self, memory: Memory) -> Iterator[Memory]: ...

    def at_key(self, space: Space, key: str) -> Memory | None: ...


class RevisionLookup(Protocol):
    """The lookups of `RevisionTable` that a decision needs."""

    def holds(self, memory: Memory, state: Memory) -> bool: ...

    def count(self, memory: Memory) -> int: ...


class SessionLookup(Protocol):
    """The lookups of `SessionTable` that a decision needs."""

    def get(self, session: SessionId) -> Session | None: ...


class Lookups(Protocol):
    """The part of a transaction that decisions read; a dry run overlays its own rows."""

    @property
    def caller(self) -> Caller: ...

    @property
    def retention(self) -> Retentions: ...

    @property
    def memories(self) -> MemoryLookup: ...

    @property
    def revisions(self) -> RevisionLookup: ...

    @property
    def sessions(self) -> SessionLookup: ...


def decision(tx: Lookups, memory: Memory) -> Decision:
    """What an import does with a memory.

    Denied if the caller may not act on its project, or on that of the deleted memory it restores.
    """
    tx.caller.require_space(memory.space)
    match = tx.memories.by_uid(memory.uid) if memory.uid else None
    if match is not None and tx.memories.get(match.id) is None:
        memory, match = replace(memory, uid=""), None  # not visible to the caller
    if not memory.uid:
        match = next(tx.memories.twins_of(memory), None)
    if match is not None and match.deleted_at is None:
        outcome = RowOutcome.SAME if _is_same(match, memory) else RowOutcome.CHANGED
        return Decision(outcome=outcome, memory=memory, existing=match)
    if match is not None:
        tx.caller.require_space(match.space)
    target = match or memory  # a memory is restored where it was
    held = tx.memories.at_key(target.space, target.key) if target.key else None
    if held is not None:
        return Decision(outcome=outcome_at_key(tx, held, memory), memory=memory, existing=held)
    outcome = RowOutcome.NEW if match is None else RowOutcome.RESTORED
    return Decision(outcome=outcome, memory=memory, existing=match)


def session_outcome(tx: Lookups, session: Session) -> RowOutcome:
    """NEW for an unknown session, else SAME or CHANGED; Denied outside the caller's projects."""
    tx.caller.require_project(session.project)
    stored = tx.sessions.get(session.id)
    if stored is None:
        return RowOutcome.NEW
    tx.caller.require_project(stored.project)
    return RowOutcome.SAME if _in_seconds(stored) == _in_seconds(session) else RowOutcome.CHANGED


def outcome_at_key(tx: Lookups, held: Memory, memory: Memory) -> RowOutcome:
    """Resolve two memories at one key: the later stays the memory, the other is its revision.

    A full history takes no earlier state: retention would trim it with the next
    change, and the next import would bring it back.
    """
    if in_seconds(memory.updated_at) > in_seconds(held.updated_at):  # so no revision is of then
        return RowOutcome.LATER
    if tx.revisions.holds(held, memory):
        return RowOutcome.RECORDED
    if memory.updated_at > held.updated_at:
        return RowOutcome.LATER
    is_full = tx.retention.revisions and tx.retention.is_full(tx.revisions.count(held))
    return RowOutcome.TOO_EARLY if is_full else RowOutcome.EARLIER


def earlier_revision(held: Memory, memory: Memory) -> Revision:
    """The memory as an earlier revision of the one that holds its key."""
    return Revision(
        number=held.revision, deed=ChangeKind.UPDATED, at=memory.updated_at, text=memory.text
    )


def is_same_state(revision: Revision, memory: Memory) -> bool:
    """Whether the revision has the memory's text and second; exports have whole seconds."""
    same_second = in_seconds(revision.at) == in_seconds(memory.updated_at)
    return same_second and revision.text == memory.text


def in_seconds(at: datetime) -> datetime:
    """The instant truncated to whole seconds, as an export has it."""
    return at.replace(microsecond=0)


def _is_same(stored: Memory, memory: Memory) -> bool:
    there, here = ((it.text, it.space, it.key) for it in (stored, memory))
    return there == here


def _in_seconds(session: Session) -> Session:
    ended_at = session.ended_at and in_seconds(session.ended_at)
    return replace(session, started_at=in_seconds(session.started_at), ended_at=ended_at)
