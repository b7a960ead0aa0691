"""Import decisions: what an import does with a row, for the import itself and for its dry run.

Nothing is changed by deciding.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from ...engine.engine import Transaction
from ...memory.model.memory import (
    ChangeKind,
    Lifecycle,
    Memory,
    MemoryId,
    Revision,
    Session,
    SessionId,
)
from ...memory.model.space import Space
from ...memory.sql.memories import MemoryTable
from ...memory.sql.revisions import RevisionTable
from ...memory.sql.sessions import SessionTable


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
            restored = replace(existing, text=memory.text, deleted_at=None)
            return replace(restored, lifecycle=memory.lifecycle)
        if self.outcome is RowOutcome.LATER:
            later = replace(existing, text=memory.text, updated_at=memory.updated_at)
            lifecycle = _merged(existing.lifecycle, memory.lifecycle)
            return replace(later, last_seen_at=memory.last_seen_at, lifecycle=lifecycle)
        return existing


@dataclass(frozen=True, slots=True)
class Lookups:
    """What a decision looks up in a transaction; a dry run overlays its own rows."""

    tx: Transaction

    def memory(self, memory: MemoryId) -> Memory | None:
        return self.tx[MemoryTable].get(memory)

    def by_uid(self, uid: str) -> Memory | None:
        return self.tx[MemoryTable].by_uid(uid)

    def twin_of(self, memory: Memory) -> Memory | None:
        return next(self.tx[MemoryTable].twins_of(memory), None)

    def at_key(self, space: Space, key: str) -> Memory | None:
        """The live memory at the key."""
        held = self.tx[MemoryTable].at_key(space, key)
        return held if held is not None and held.is_live(self.tx.now) else None

    def holds(self, memory: Memory, state: Memory) -> bool:
        """Whether a revision of the memory has the text and the second of this state."""
        return self.tx[RevisionTable].holds(memory, state)

    def revisions_of(self, memory: Memory) -> int:
        return self.tx[RevisionTable].count(memory)

    def session(self, session: SessionId) -> Session | None:
        return self.tx[SessionTable].get(session)


def decision(stored: Lookups, memory: Memory) -> Decision:
    """What an import does with a memory.

    Denied if the caller may not act on its project, or on that of the deleted memory it restores.
    """
    caller = stored.tx.caller
    caller.require_space(memory.space)
    match = stored.by_uid(memory.uid) if memory.uid else None
    if match is not None and stored.memory(match.id) is None:
        memory, match = replace(memory, uid=""), None  # not visible to the caller
    if not memory.uid:
        match = stored.twin_of(memory)
    if match is not None and not match.is_deleted:
        outcome = RowOutcome.SAME if _is_same(match, memory) else RowOutcome.CHANGED
        return Decision(outcome=outcome, memory=memory, existing=match)
    if match is not None:
        caller.require_space(match.space)
    target = match or memory  # a memory is restored where it was
    is_expired = memory.lifecycle.is_expired(stored.tx.now)  # it holds no key
    held = stored.at_key(target.space, target.key) if target.key and not is_expired else None
    if held is not None:
        return Decision(outcome=outcome_at_key(stored, held, memory), memory=memory, existing=held)
    outcome = RowOutcome.NEW if match is None else RowOutcome.RESTORED
    return Decision(outcome=outcome, memory=memory, existing=match)


def session_outcome(stored: Lookups, session: Session) -> RowOutcome:
    """NEW for an unknown session, else SAME or CHANGED; Denied outside the caller's projects."""
    stored.tx.caller.require_project(session.project)
    there = stored.session(session.id)
    if there is None:
        return RowOutcome.NEW
    stored.tx.caller.require_project(there.project)
    return RowOutcome.SAME if _in_seconds(there) == _in_seconds(session) else RowOutcome.CHANGED


def outcome_at_key(stored: Lookups, held: Memory, memory: Memory) -> RowOutcome:
    """Resolve two memories at one key: the later stays the memory, the other is its revision.

    A full history takes no earlier state: retention would trim it with the next
    change, and the next import would bring it back.
    """
    if in_seconds(memory.updated_at) > in_seconds(held.updated_at):  # so no revision is of then
        return RowOutcome.LATER
    if stored.holds(held, memory):
        return RowOutcome.RECORDED
    if memory.updated_at > held.updated_at:
        return RowOutcome.LATER
    retention = stored.tx.retention
    is_full = retention.revisions and retention.is_full(stored.revisions_of(held))
    return RowOutcome.TOO_EARLY if is_full else RowOutcome.EARLIER


def earlier_revision(held: Memory, memory: Memory) -> Revision:
    """The memory as an earlier revision of the one that holds its key."""
    return Revision(
        number=held.revision, deed=ChangeKind.UPDATED, at=memory.updated_at, text=memory.text
    )


def _merged(lifecycle: Lifecycle, later: Lifecycle) -> Lifecycle:
    """What the later state has is set, the rest stays."""
    return Lifecycle(
        expires_at=later.expires_at or lifecycle.expires_at,
        pinned_at=lifecycle.pinned_at or later.pinned_at,
        review_at=later.review_at or lifecycle.review_at,
        confirmed_at=later.confirmed_at or lifecycle.confirmed_at,
    )


def in_seconds(at: datetime) -> datetime:
    """The instant in whole seconds, as an export has it."""
    return at.replace(microsecond=0)


def _is_same(stored: Memory, memory: Memory) -> bool:
    there, here = ((it.text, it.space, it.key) for it in (stored, memory))
    return there == here


def _in_seconds(session: Session) -> Session:
    ended_at = session.ended_at and in_seconds(session.ended_at)
    return replace(session, started_at=in_seconds(session.started_at), ended_at=ended_at)
