"""What an import does with a row, also for its dry run, which changes nothing; and its storing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from ...engine.engine import Transaction
from ...errors import Conflict, NotFound
from ...memory.lifecycles import at_key, link, superseded
from ...memory.model.memory import (
    NO_LIFECYCLE,
    NO_LINKS,
    ChangeKind,
    Lifecycle,
    Memory,
    MemoryId,
    Revision,
    Session,
    SessionId,
    Supersession,
)
from ...memory.model.space import Space
from ...memory.sessions import admitted
from ...memory.sql.imports import Row
from ...memory.sql.memories import MemoryTable
from ...memory.sql.revisions import RevisionTable
from ...memory.sql.sessions import SessionTable
from ...memory.writes import created, revised


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


def import_row(tx: Transaction, row: Row, links: list[Supersession]) -> bool:
    """Whether something of the row was stored; what it supersedes is added to the links."""
    if isinstance(row, Session):
        return _import_session(tx, row)
    return isinstance(row, Memory) and _import_memory(tx, row, links)


def is_refused(tx: Transaction, links: Supersession) -> bool:
    """Whether a memory may not supersede what is named; what is not there is left out."""
    newer = tx[MemoryTable].get(links.newer)
    if newer is None:
        return False
    try:
        link(tx, newer.id, superseded(tx, newer.space, _there(tx, links.older)))
    except (Conflict, NotFound):
        return True
    return False


def merge_at_key(tx: Transaction, held: Memory, memory: Memory) -> None:
    """Merge a memory into the one that holds its key, which keeps its lifecycle and its links.

    The later text wins.
    """
    outcome = outcome_at_key(Lookups(tx), held, memory)
    text = replace(memory, lifecycle=NO_LIFECYCLE, links=NO_LINKS)
    _store(tx, Decision(outcome=outcome, memory=text, existing=held))


def _import_session(tx: Transaction, session: Session) -> bool:
    is_new = session_outcome(Lookups(tx), session) is RowOutcome.NEW
    if is_new:
        tx[SessionTable].add(session)
    return is_new


def _import_memory(tx: Transaction, memory: Memory, links: list[Supersession]) -> bool:
    decided = decision(Lookups(tx), memory)
    if decided.is_present:
        return False
    session = memory.session
    assert session is not None  # entries of stores are not imported
    admitted(tx, Session(id=session, project=memory.space.project, started_at=memory.created_at))
    now = _store(tx, decided)
    if now is not None and memory.links.uids:
        project = now.space.project
        links.append(Supersession(newer=now.id, project=project, older=memory.links.uids))
    return decided.outcome.is_stored


def _there(tx: Transaction, uids: Iterable[str]) -> list[MemoryId]:
    """The memories that are named, as far as the caller may read them and none is deleted."""
    named = [it.id for uid in uids if (it := tx[MemoryTable].by_uid(uid)) and not it.is_deleted]
    return [it for it in named if tx[MemoryTable].get(it) is not None]


def _store(tx: Transaction, decided: Decision) -> Memory | None:
    """Store what was decided; the memory that has the row's state now, if one does."""
    memory, existing = decided.memory, decided.existing
    target = existing or memory
    if target.key is not None:
        at_key(tx, target.space, target.key)  # an expired memory leaves it
    if existing is None:
        return created(tx, replace(memory, uid=memory.uid or tx.new_uid(memory.created_at)))
    if decided.outcome is RowOutcome.EARLIER:
        tx[RevisionTable].keep(
            replace(existing, revision=existing.revision - 1)
        )  # it may have no text
        tx[RevisionTable].absorb(existing.id, earlier_revision(existing, memory))
    elif decided.outcome.is_stored:
        return revised(tx, existing, decided.state)
    return None
