"""Carrying sessions and memories out of one service and into another, any number of times."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from .access import Role
from .memories import created, revised
from .model import UNSAVED, Caller, Imported, Memory, MemoryId, Session, SessionId
from .ports import Engine, Transaction
from .quota import require_room
from .redaction import Rules
from .screen import RulesOf, Screen, default_rules
from .sessions import entered
from .text import Project
from .transfer_plan import Document, ImportPlan, planned
from .verdicts import Fate, Verdict, at_one_key, earlier, session_fate, verdict

Row = TypeVar("Row")

PAGE = 500  # rows read at a time, so that a slow reader holds no snapshot


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

    async def plan_import(self, caller: Caller, document: Document) -> ImportPlan:
        """What an import would do by now; nothing is changed, and nobody waits for it.

        How much the tenant may still store is not looked at.
        """
        caller.require(Role.ADMIN)
        return await planned(self.engine, caller, document, self.rules(caller))


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
    is_new = session_fate(tx, session) is Fate.NEW
    entered(tx, session)
    if is_new:
        tx.sessions.close(session)
    return is_new


def import_memory(tx: Transaction, memory: Memory) -> bool:
    """Whether something of the memory was not there yet."""
    require_room(tx)
    found = verdict(tx, memory)
    if found.is_left_alone:
        return False
    session = memory.session
    assert session is not None  # none of a store is imported
    entered(tx, Session(id=session, project=memory.space.project, started_at=memory.created_at))
    return _stored(tx, found)


def merged(tx: Transaction, held: Memory, memory: Memory) -> bool:
    """Bring a memory into the one that holds its key; whether something of it was not there yet."""
    fate = at_one_key(tx, held, memory)
    return _stored(tx, Verdict(fate=fate, memory=memory, meets=held))


def _stored(tx: Transaction, found: Verdict) -> bool:
    """Do what was decided; whether that was anything."""
    memory, meets = found.memory, found.meets
    if meets is None:
        created(tx, replace(memory, uid=memory.uid or tx.new_uid(memory.created_at)))
    elif found.fate is Fate.EARLIER:
        tx.revisions.absorb(meets.id, earlier(meets, memory))
    elif found.fate.is_stored:
        revised(tx, meets, found.state)
    return found.fate.is_stored


def _count(store: Callable[[Transaction, Row], bool], tx: Transaction, rows: Iterable[Row]) -> int:
    return sum(store(tx, row) for row in rows)
