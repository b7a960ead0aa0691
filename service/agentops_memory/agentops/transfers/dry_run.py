"""The dry run of an import, in short reads: nothing is written, and no save waits.

A row may match what an earlier row of its document would have stored. To bound memory, the
document is read once to find out which match keys repeat, and a second time, with an overlay
of the rows that have them, only if any do.
"""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import islice
from typing import Protocol, TypeVar

from ...engine.engine import Engine, Transaction
from ...memory.model.access import Caller
from ...memory.model.memory import (
    UNSAVED,
    ChangeKind,
    Memory,
    MemoryId,
    Revision,
    Session,
    SessionId,
)
from ...memory.model.retention import Retentions
from ...memory.model.space import Project, Space
from ...memory.redactor import Redactor
from ...memory.sql.memories import MemoryTable
from ...memory.sql.revisions import RevisionTable
from ...memory.sql.sessions import SessionTable
from ...secrets.redaction import Rules
from .storing import (
    Decision,
    Lookups,
    RowOutcome,
    decision,
    earlier_revision,
    in_seconds,
    session_outcome,
)

BLOOM_BITS = 1 << 25  # 4 MiB; a million keys give one false positive in three hundred

MatchKey = Hashable
"""A key by which a row finds an earlier one: its uid, topic key, twin or session id."""

Order = tuple[bool, bool, int]


@dataclass(slots=True)
class BloomFilter:
    """A Bloom filter over match keys that remembers which were added more than once.

    Its size is fixed. A false positive is possible, a false negative is not.
    """

    _bits: bytearray = field(default_factory=lambda: bytearray(BLOOM_BITS // 8))
    _repeated: set[int] = field(default_factory=set)

    def add(self, keys: set[MatchKey]) -> None:
        """Add the match keys of one row."""
        for key in map(hash, keys):
            if all([self._set(key % BLOOM_BITS), self._set(key // BLOOM_BITS % BLOOM_BITS)]):
                self._repeated.add(key)

    def has_repeated(self, keys: set[MatchKey]) -> bool:
        """Whether any of the keys was added by more than one row."""
        return not self._repeated.isdisjoint(map(hash, keys))

    def __bool__(self) -> bool:
        return bool(self._repeated)

    def _set(self, bit: int) -> bool:
        """Set a bit; whether it was set before."""
        byte, mask = bit >> 3, 1 << (bit & 7)
        was_set = bool(self._bits[byte] & mask)
        self._bits[byte] |= mask
        return was_set


@dataclass(slots=True)
class Overlay:
    """What the rows so far would have stored, as far as a later row may match it.

    The first pass only fills the Bloom filter; the second, with `is_recording`, stores
    the rows whose keys repeat. A memory without an id has a negative one here.
    """

    repeats: BloomFilter
    is_recording: bool = False
    sessions: dict[SessionId, Session] = field(default_factory=dict)
    memories: dict[MemoryId, Memory] = field(default_factory=dict)
    revisions: dict[MemoryId, list[Revision]] = field(default_factory=dict)
    _heaps: defaultdict[MatchKey, list[tuple[Order, MemoryId]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def find(self, key: MatchKey) -> Memory | None:
        """The memory that has the match key now; the first in order if several have."""
        heap = self._heaps.get(key, [])
        while heap:
            order, id_ = heap[0]
            memory = self.memories[id_]
            if in_order(memory) == order and key in match_keys(memory):
                return memory
            heappop(heap)  # stale: the memory has changed since
        return None

    def put(self, memory: Memory, revisions: list[Revision]) -> None:
        """Store the memory's new state with its revisions, newest first."""
        if memory.id == UNSAVED:
            memory = replace(memory, id=MemoryId(-1 - len(self.memories)))
        self.memories[memory.id], self.revisions[memory.id] = memory, revisions
        for key in match_keys(memory):
            heappush(self._heaps[key], (in_order(memory), memory.id))


@dataclass(frozen=True, slots=True)
class OverlaidLookups(Lookups):
    """The lookups of a transaction, seen through an overlay."""

    overlay: Overlay

    def memory(self, memory: MemoryId) -> Memory | None:
        return self.overlay.memories.get(memory) or self.tx[MemoryTable].get(memory)

    def by_uid(self, uid: str) -> Memory | None:
        return self.overlay.find(("uid", uid)) or self.tx[MemoryTable].by_uid(uid)

    def twin_of(self, memory: Memory) -> Memory | None:
        twins = self.tx[MemoryTable].twins_of(memory)
        unchanged = next((it for it in twins if it.id not in self.overlay.memories), None)
        found = [it for it in (unchanged, self.overlay.find(_twin_key(memory))) if it is not None]
        return min(found, key=in_order, default=None)

    def at_key(self, space: Space, key: str) -> Memory | None:
        return self.overlay.find(("key", space, key)) or Lookups.at_key(self, space, key)

    def holds(self, memory: Memory, state: Memory) -> bool:
        overlaid = self.overlay.revisions.get(memory.id)
        if overlaid is None:
            return self.tx[RevisionTable].holds(memory, state)
        then = in_seconds(state.updated_at)
        return any(in_seconds(it.at) == then and it.text == state.text for it in overlaid)

    def revisions_of(self, memory: Memory) -> int:
        overlaid = self.overlay.revisions.get(memory.id)
        return self.tx[RevisionTable].count(memory) if overlaid is None else len(overlaid)

    def session(self, session: SessionId) -> Session | None:
        return self.overlay.sessions.get(session) or self.tx[SessionTable].get(session)

    def apply_session(self, session: Session, outcome: RowOutcome) -> None:
        """Apply a session's outcome to the overlay."""
        overlay = self.overlay
        keys: set[MatchKey] = {("session", session.id)}
        if not overlay.is_recording:
            overlay.repeats.add(keys)
        elif outcome is RowOutcome.NEW and overlay.repeats.has_repeated(keys):
            overlay.sessions[session.id] = session

    def apply(self, decided: Decision) -> None:
        """Apply a decision about a memory to the overlay."""
        overlay, existing = self.overlay, decided.existing
        involved = [decided.memory, decided.state, *([existing] if existing else [])]
        keys = {key for memory in involved for key in match_keys(memory)}
        if not overlay.is_recording:
            overlay.repeats.add(keys)
        elif decided.outcome.is_stored and overlay.repeats.has_repeated(keys):
            history = self._newest(existing) if existing else []
            state, revisions = _applied(decided, history, self.tx.retention)
            overlay.put(replace(state, as_of=self.tx.now), revisions)

    def _newest(self, memory: Memory) -> list[Revision]:
        overlaid = self.overlay.revisions.get(memory.id)
        return self.tx[RevisionTable].newest(memory) if overlaid is None else overlaid


def in_order(memory: Memory) -> Order:
    """The sort key of several matches: live before deleted, stored before new, then by id."""
    return memory.is_deleted, memory.id < 0, abs(memory.id)


def match_keys(memory: Memory) -> Iterator[MatchKey]:
    """Every key by which a row may match the memory."""
    if memory.uid:
        yield "uid", memory.uid
    if memory.key and not memory.is_expired:
        yield "key", memory.space, memory.key
    yield _twin_key(memory)


def _applied(
    decided: Decision, history: list[Revision], kept: Retentions
) -> tuple[Memory, list[Revision]]:
    """A memory as an import would leave it, with its retained revisions, newest first."""
    state, kind = decided.state, ChangeKind.UPDATED
    if decided.outcome is RowOutcome.EARLIER:
        newest, *older = history
        newest = replace(newest, number=newest.number + 1)
        absorbed = [newest, earlier_revision(state, decided.memory), *older]
        return replace(state, revision=state.revision + 1), absorbed
    if decided.existing is None:
        kind = ChangeKind.CREATED
    else:
        state = replace(state, revision=state.revision + 1)
    newest = Revision(number=state.revision, deed=kind, at=state.updated_at, text=state.text)
    oldest = kept.oldest(state.revision)
    return state, [newest, *(it for it in history if it.number >= oldest)]


def _twin_key(memory: Memory) -> MatchKey:
    text, created_at = memory.text, in_seconds(memory.created_at)
    what = (text.type, text.title, text.content)
    return "twin", memory.space, memory.session, memory.key, what, created_at


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
