"""Carrying sessions and memories out of one service and into another, any number of times."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol, TypeVar

from .access import Role
from .memories import KEPT_REVISIONS, created, revised
from .model import (
    UNSAVED,
    Caller,
    Deed,
    Imported,
    Memory,
    MemoryId,
    Revision,
    Session,
    SessionId,
)
from .ports import Engine, Transaction
from .quota import require_room
from .redaction import Rules
from .screen import RulesOf, Screen, default_rules
from .sessions import entered
from .text import Project

Row = TypeVar("Row")

PAGE = 500  # rows read at a time, so that a slow reader holds no snapshot


class Document(Protocol):
    """An import that has been received and checked; it can be read more than once."""

    def sessions(self) -> Iterable[Session]:
        """The sessions in it."""

    def memories(self) -> Iterable[Memory]:
        """The memories in it, without ids; one with an empty uid brought none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Export and import of one service."""

    engine: Engine
    rules: RulesOf = default_rules

    async def sessions(
        self, caller: Caller, project: Project | None
    ) -> AsyncIterator[list[Session]]:
        """Every session, in pages."""
        caller.require(Role.ADMIN)
        after: SessionId | None = None
        while page := await self.engine.read(caller, session_page, project, after):
            yield page
            after = page[-1].id

    async def memories(
        self, caller: Caller, project: Project | None
    ) -> AsyncIterator[list[Memory]]:
        """Every live memory in id order, in pages."""
        caller.require(Role.ADMIN)
        after = UNSAVED
        while page := await self.engine.read(caller, memory_page, project, after):
            yield page
            after = page[-1].id

    async def import_all(self, caller: Caller, document: Document) -> Imported:
        """Store what is not there yet, whole or not at all; what matches is left alone."""
        caller.require(Role.ADMIN)
        return await self.engine.write(caller, import_all, document, self.rules(caller))


def session_page(
    tx: Transaction, project: Project | None, after: SessionId | None
) -> list[Session]:
    return tx.sessions.page(project, after, PAGE)


def memory_page(tx: Transaction, project: Project | None, after: MemoryId) -> list[Memory]:
    return tx.memories.page(project, after, PAGE)


def import_all(tx: Transaction, document: Document, rules: Rules) -> Imported:
    screen = Screen(rules)
    sessions = _count(import_session, tx, map(screen.session, document.sessions()))
    with tx.memories.in_bulk():
        memories = _count(import_memory, tx, map(screen.memory, document.memories()))
    return Imported(sessions=sessions, memories=memories, redacted=screen.count)


def import_session(tx: Transaction, session: Session) -> bool:
    """Whether the session was new."""
    tx.caller.require_project(session.project)
    is_new = tx.sessions.get(session.id) is None
    entered(tx, session)
    if not is_new:
        return False
    tx.sessions.close(session)
    return True


def import_memory(tx: Transaction, memory: Memory) -> bool:
    """Whether the memory was new, or came back."""
    session = memory.session
    assert session is not None  # none of a store is imported
    tx.caller.require_space(memory.space)
    require_room(tx)
    match = tx.memories.by_uid(memory.uid) if memory.uid else None
    if match is not None and tx.memories.get(match.id) is None:
        memory, match = replace(memory, uid=""), None  # that one is none to know of
    if not memory.uid:
        match = tx.memories.twin_of(memory)
    if match is not None and match.deleted_at is None:
        return False
    if match is not None:
        tx.caller.require_space(match.space)
    entered(tx, Session(id=session, project=memory.space.project, started_at=memory.created_at))
    place = match or memory  # a memory that comes back does so where it was
    held = tx.memories.at_key(place.space, place.key) if place.key else None
    if held is not None:
        return merged(tx, held, memory)
    if match is not None:
        revised(tx, match, replace(match, text=memory.text, deleted_at=None))
        return True
    created(tx, replace(memory, uid=memory.uid or tx.new_uid(memory.created_at)))
    return True


def merged(tx: Transaction, held: Memory, memory: Memory) -> bool:
    """Two memories at one key: the later stays the memory, the other is its revision.

    A full history takes no earlier state: it would go with the next change,
    and come back with the next import.
    """
    revisions = tx.revisions.newest(held)
    if any(_is_state(revision, memory) for revision in revisions):
        return False
    if memory.updated_at > held.updated_at:
        later = replace(held, text=memory.text, updated_at=memory.updated_at)
        revised(tx, held, replace(later, last_seen_at=memory.last_seen_at))
        return True
    if len(revisions) >= KEPT_REVISIONS:
        return False
    older = Revision(
        number=held.revision, deed=Deed.UPDATED, at=memory.updated_at, text=memory.text
    )
    tx.revisions.absorb(held.id, older)
    return True


def _is_state(revision: Revision, memory: Memory) -> bool:
    """Whether the revision is this state of the memory; an export has whole seconds."""
    same_second = _second(revision.at) == _second(memory.updated_at)
    return same_second and revision.text == memory.text


def _second(at: datetime) -> datetime:
    return at.replace(microsecond=0)


def _count(store: Callable[[Transaction, Row], bool], tx: Transaction, rows: Iterable[Row]) -> int:
    return sum(store(tx, row) for row in rows)
