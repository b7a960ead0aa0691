"""What an import would do, found out in short reads: nothing is written, and no save waits.

A row may meet what an earlier row of its document would have made. So that a large
document is not held for it, it is read once as if none did, and once more only if
some may; then what these leave behind is held.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, TypeVar

from ..memories.redactor import Redactor
from ..model.access import Caller
from ..model.memory import UNSAVED, Memory, MemoryId, Session
from ..model.space import Project
from ..ports.engine import Engine, Transaction
from ..secrets.redaction import Rules
from .decisions import Fate, Verdict, session_fate, verdict
from .overlay import Ahead, Foreseen, Repeats

Row = TypeVar("Row")

PIECE = 50  # rows that one read decides about
MOST_CONFLICTS = 100  # that are told one by one
CONFLICTS = (Fate.CHANGED, Fate.LATER, Fate.EARLIER, Fate.TOO_EARLY)


class Document(Protocol):
    """An import that has been received and checked; it can be read more than once."""

    def sessions(self) -> Iterable[Session]:
        """The sessions in it."""

    def memories(self) -> Iterable[Memory]:
        """The memories in it, without ids; one with an empty uid brought none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A memory of a document that is not as the stored one.

    Its place counts from 0; it meets `UNSAVED` if that is an earlier one of the document.
    """

    place: int
    fate: Fate
    meets: MemoryId
    project: Project
    title: str


@dataclass(slots=True, kw_only=True)
class ImportPlan:
    """How many rows would have which fate, and the first conflicts."""

    sessions: Counter[Fate] = field(default_factory=Counter)
    memories: Counter[Fate] = field(default_factory=Counter)
    conflicts: list[Conflict] = field(default_factory=list)


async def planned(engine: Engine, caller: Caller, document: Document, rules: Rules) -> ImportPlan:
    """What an import of the document would do now, whatever others store meanwhile."""
    repeats = Repeats()
    plan = await _read_through(engine, caller, document, rules, Ahead(repeats))
    if not repeats:
        return plan
    return await _read_through(engine, caller, document, rules, Ahead(repeats, is_kept=True))


async def _read_through(
    engine: Engine, caller: Caller, document: Document, rules: Rules, ahead: Ahead
) -> ImportPlan:
    plan, redactor = ImportPlan(), Redactor(rules)
    sessions = enumerate(map(redactor.session, document.sessions()))
    while some_sessions := await _piece(sessions):
        await engine.read(caller, _judge_sessions, deque(some_sessions), ahead, plan)
    memories = enumerate(map(redactor.memory, document.memories()))
    while some := await _piece(memories):
        await engine.read(caller, _judge_memories, deque(some), ahead, plan)
    return plan


async def _piece(rows: Iterator[Row]) -> list[Row]:
    return await asyncio.to_thread(list, islice(rows, PIECE))


def _judge_sessions(
    tx: Transaction, sessions: deque[tuple[int, Session]], ahead: Ahead, plan: ImportPlan
) -> None:
    known = Foreseen(tx, ahead)
    while sessions:
        _, session = sessions[0]
        fate = session_fate(known, session)
        known.note_session(session, fate)
        plan.sessions[fate] += 1
        sessions.popleft()  # a read that is run again goes on from here


def _judge_memories(
    tx: Transaction, memories: deque[tuple[int, Memory]], ahead: Ahead, plan: ImportPlan
) -> None:
    known = Foreseen(tx, ahead)
    while memories:
        place, memory = memories[0]
        found = verdict(known, memory)
        if not found.is_left_alone:
            _require_session(tx, memory)
        known.note(found)
        plan.memories[found.fate] += 1
        if found.fate in CONFLICTS and len(plan.conflicts) < MOST_CONFLICTS:
            plan.conflicts.append(_conflict(place, found))
        memories.popleft()  # as above


def _require_session(tx: Transaction, memory: Memory) -> None:
    """Refuse with Denied a memory in a session of a project that the caller does not act on."""
    session = tx.sessions.get(memory.session) if memory.session else None
    if session is not None:
        tx.caller.require_project(session.project)


def _conflict(place: int, found: Verdict) -> Conflict:
    assert found.meets is not None  # each of CONFLICTS is with something
    return Conflict(
        place=place,
        fate=found.fate,
        meets=max(found.meets.id, UNSAVED),
        project=found.memory.space.project,
        title=found.memory.text.title,
    )
