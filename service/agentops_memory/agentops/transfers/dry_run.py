"""The dry run of an import, in short reads: nothing is written, and no save waits.

A row may match what an earlier row of its document would have stored. To bound memory, the
document is read once to find out which match keys repeat, and a second time, with an overlay
of the rows that have them, only if any do.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, TypeVar

from ...engine.engine import Engine, Transaction
from ...memory.model.access import Caller
from ...memory.model.memory import UNSAVED, Memory, MemoryId, Session
from ...memory.model.space import Project
from ...memory.redactor import Redactor
from ...memory.sql.sessions import SessionTable
from ...secrets.redaction import Rules
from .decisions import Decision, RowOutcome, decision, session_outcome
from .overlay import BloomFilter, OverlaidLookups, Overlay

Row = TypeVar("Row")

BATCH = 50  # rows decided in one read
MAX_CONFLICTS = 100  # listed one by one
CONFLICTS = (RowOutcome.CHANGED, RowOutcome.LATER, RowOutcome.EARLIER, RowOutcome.TOO_EARLY)


class ImportDocument(Protocol):
    """An import that was received and validated; it can be read more than once."""

    def sessions(self) -> Iterable[Session]:
        """Its sessions."""

    def memories(self) -> Iterable[Memory]:
        """Its memories, without ids; the uid is empty where none was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowConflict:
    """A memory of a document that differs from the stored one.

    `place` is its index in the document, from 0; `existing` is `UNSAVED` if it
    conflicts with an earlier memory of the same document.
    """

    place: int
    outcome: RowOutcome
    existing: MemoryId
    project: Project
    title: str


@dataclass(slots=True, kw_only=True)
class DryRun:
    """How many rows have which outcome, and the first conflicts."""

    sessions: Counter[RowOutcome] = field(default_factory=Counter)
    memories: Counter[RowOutcome] = field(default_factory=Counter)
    conflicts: list[RowConflict] = field(default_factory=list)


async def dry_run(engine: Engine, caller: Caller, document: ImportDocument, rules: Rules) -> DryRun:
    """What an import of the document would do now; changes by others meanwhile may show or not."""
    repeats = BloomFilter()
    result = await _pass(engine, caller, document, rules, Overlay(repeats))
    if not repeats:
        return result
    return await _pass(engine, caller, document, rules, Overlay(repeats, is_recording=True))


async def _pass(
    engine: Engine, caller: Caller, document: ImportDocument, rules: Rules, overlay: Overlay
) -> DryRun:
    result, redactor = DryRun(), Redactor(rules)
    sessions = map(redactor.session, document.sessions())
    while some_sessions := await _batch(sessions):
        await engine.read(caller, _decide_sessions, deque(some_sessions), overlay, result)
    memories = enumerate(map(redactor.memory, document.memories()))
    while some := await _batch(memories):
        await engine.read(caller, _decide_memories, deque(some), overlay, result)
    return result


async def _batch(rows: Iterator[Row]) -> list[Row]:
    return await asyncio.to_thread(list, islice(rows, BATCH))


def _decide_sessions(
    tx: Transaction, sessions: deque[Session], overlay: Overlay, result: DryRun
) -> None:
    overlaid = OverlaidLookups(tx, overlay)
    while sessions:
        outcome = session_outcome(overlaid, sessions[0])
        overlaid.apply_session(sessions[0], outcome)
        result.sessions[outcome] += 1
        sessions.popleft()  # only now: a retried read resumes here


def _decide_memories(
    tx: Transaction, memories: deque[tuple[int, Memory]], overlay: Overlay, result: DryRun
) -> None:
    overlaid = OverlaidLookups(tx, overlay)
    while memories:
        place, memory = memories[0]
        decided = decision(overlaid, memory)
        if not decided.is_present:
            _require_session(tx, memory)
        overlaid.apply(decided)
        result.memories[decided.outcome] += 1
        if decided.outcome in CONFLICTS and len(result.conflicts) < MAX_CONFLICTS:
            result.conflicts.append(_conflict(place, decided))
        memories.popleft()  # as above


def _require_session(tx: Transaction, memory: Memory) -> None:
    """Raise Denied for a memory in a stored session of a project that is not the caller's."""
    session = tx[SessionTable].get(memory.session) if memory.session else None
    if session is not None:
        tx.caller.require_project(session.project)


def _conflict(place: int, decided: Decision) -> RowConflict:
    assert decided.existing is not None  # each of CONFLICTS has one
    return RowConflict(
        place=place,
        outcome=decided.outcome,
        existing=max(decided.existing.id, UNSAVED),
        project=decided.memory.space.project,
        title=decided.memory.text.title,
    )
