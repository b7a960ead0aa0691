"""What rows of an import would leave behind, for the rows after them: a plan writes nothing."""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from ..model.access import Caller
from ..model.memory import UNSAVED, ChangeKind, Memory, MemoryId, Revision, Session, SessionId
from ..model.retention import Retentions
from ..model.space import Space
from ..ports.engine import Transaction
from .decisions import Fate, Verdict, earlier, is_state, second

BITS = 1 << 25  # 4 MiB: with a million marks one in three hundred is taken for a repeated one

Mark = Hashable
Order = tuple[bool, bool, int]
Place = tuple[Order, MemoryId]


@dataclass(slots=True)
class Repeats:
    """By what rows may meet, as far as it occurs in more than one row.

    Its size does not follow the document's. Sometimes it is wrong to say that a
    mark is repeated, and never that it is not.
    """

    _seen: bytearray = field(default_factory=lambda: bytearray(BITS // 8))
    _again: set[int] = field(default_factory=set)

    def note(self, marks: set[Mark]) -> None:
        """Note the marks of one row."""
        for mark in map(hash, marks):
            if all([self._was_set(mark % BITS), self._was_set(mark // BITS % BITS)]):
                self._again.add(mark)

    def has_any(self, marks: set[Mark]) -> bool:
        return not self._again.isdisjoint(map(hash, marks))

    def __bool__(self) -> bool:
        return bool(self._again)

    def _was_set(self, bit: int) -> bool:
        byte, mask = bit >> 3, 1 << (bit & 7)
        was_set = bool(self._seen[byte] & mask)
        self._seen[byte] |= mask
        return was_set


@dataclass(slots=True)
class Ahead:
    """What the rows so far would have left behind; kept is only what a later row may meet.

    The first reading finds out what that is, and keeps nothing. A memory that has
    no id yet has a negative one here.
    """

    repeats: Repeats
    is_kept: bool = False
    sessions: dict[SessionId, Session] = field(default_factory=dict)
    memories: dict[MemoryId, Memory] = field(default_factory=dict)
    revisions: dict[MemoryId, list[Revision]] = field(default_factory=dict)
    _places: defaultdict[Mark, list["Place"]] = field(default_factory=lambda: defaultdict(list))

    def with_mark(self, mark: Mark) -> Memory | None:
        """The memory that has the mark by now; of several the first by id."""
        places = self._places.get(mark, [])
        while places:
            order, id_ = places[0]
            memory = self.memories[id_]
            if in_order(memory) == order and mark in _marks(memory):
                return memory
            heappop(places)  # it was so, and has changed since
        return None

    def keep(self, memory: Memory, revisions: list[Revision]) -> None:
        """Keep a memory as it is by now, with its revisions, newest first."""
        if memory.id == UNSAVED:
            memory = replace(memory, id=MemoryId(-1 - len(self.memories)))
        self.memories[memory.id], self.revisions[memory.id] = memory, revisions
        for mark in _marks(memory):
            heappush(self._places[mark], (in_order(memory), memory.id))


class Foreseen:
    """What is stored, as the rows so far would have changed it; the tables are its own."""

    def __init__(self, tx: Transaction, ahead: Ahead) -> None:
        self.caller: Caller = tx.caller
        self.retention: Retentions = tx.retention
        self.memories = ForeseenMemories(tx, ahead)
        self.revisions = ForeseenRevisions(tx, ahead)
        self.sessions = ForeseenSessions(tx, ahead)
        self._ahead = ahead

    def note_session(self, session: Session, fate: Fate) -> None:
        """Note what becomes of a session."""
        marks: set[Mark] = {("session", session.id)}
        if not self._ahead.is_kept:
            self._ahead.repeats.note(marks)
        elif fate is Fate.NEW and self._ahead.repeats.has_any(marks):
            self._ahead.sessions[session.id] = session

    def note(self, found: Verdict) -> None:
        """Note what becomes of a memory."""
        met = [found.memory, found.state, *([found.meets] if found.meets else [])]
        marks = {mark for memory in met for mark in _marks(memory)}
        if not self._ahead.is_kept:
            self._ahead.repeats.note(marks)
        elif found.fate.is_stored and self._ahead.repeats.has_any(marks):
            history = self.revisions.newest(found.meets) if found.meets else []
            self._ahead.keep(*_after(found, history, self.retention))


@dataclass(frozen=True, slots=True)
class ForeseenMemories:
    """Memories, live or deleted."""

    tx: Transaction
    ahead: Ahead

    def get(self, memory: MemoryId) -> Memory | None:
        return self.ahead.memories.get(memory) or self.tx.memories.get(memory)

    def by_uid(self, uid: str) -> Memory | None:
        return self.ahead.with_mark(("uid", uid)) or self.tx.memories.by_uid(uid)

    def twins_of(self, memory: Memory) -> Iterator[Memory]:
        stored = self.tx.memories.twins_of(memory)
        as_stored = next((it for it in stored if it.id not in self.ahead.memories), None)
        twins = (as_stored, self.ahead.with_mark(_twin(memory)))
        return iter(sorted((it for it in twins if it is not None), key=in_order))

    def at_key(self, space: Space, key: str) -> Memory | None:
        return self.ahead.with_mark(("key", space, key)) or self.tx.memories.at_key(space, key)


@dataclass(frozen=True, slots=True)
class ForeseenRevisions:
    """The record of each memory's changes."""

    tx: Transaction
    ahead: Ahead

    def holds(self, memory: Memory, state: Memory) -> bool:
        kept = self.ahead.revisions.get(memory.id)
        if kept is None:
            return self.tx.revisions.holds(memory, state)
        return any(is_state(revision, state) for revision in kept)

    def count(self, memory: Memory) -> int:
        kept = self.ahead.revisions.get(memory.id)
        return self.tx.revisions.count(memory) if kept is None else len(kept)

    def newest(self, memory: Memory) -> list[Revision]:
        kept = self.ahead.revisions.get(memory.id)
        return self.tx.revisions.newest(memory) if kept is None else kept


@dataclass(frozen=True, slots=True)
class ForeseenSessions:
    """Sessions, known by their id alone."""

    tx: Transaction
    ahead: Ahead

    def get(self, session: SessionId) -> Session | None:
        return self.ahead.sessions.get(session) or self.tx.sessions.get(session)


def in_order(memory: Memory) -> Order:
    """Of several the first: live ones, then those that have an id, each as they were made."""
    return memory.deleted_at is not None, memory.id < 0, abs(memory.id)


def _after(
    found: Verdict, history: list[Revision], kept: Retentions
) -> tuple[Memory, list[Revision]]:
    """What an import leaves of a memory that it stores, with its revisions, newest first."""
    state, deed = found.state, ChangeKind.UPDATED
    if found.fate is Fate.EARLIER:
        newest, *older = history
        newest = replace(newest, number=newest.number + 1)
        absorbed = [newest, earlier(state, found.memory), *older]
        return replace(state, revision=state.revision + 1), absorbed
    if found.meets is None:
        deed = ChangeKind.CREATED
    else:
        state = replace(state, revision=state.revision + 1)
    newest = Revision(number=state.revision, deed=deed, at=state.updated_at, text=state.text)
    oldest = kept.oldest(state.revision)
    return state, [newest, *(it for it in history if it.number >= oldest)]


def _marks(memory: Memory) -> Iterator[Mark]:
    """By what a row may meet a memory."""
    if memory.uid:
        yield "uid", memory.uid
    if memory.key:
        yield "key", memory.space, memory.key
    yield _twin(memory)


def _twin(memory: Memory) -> Mark:
    text, created_at = memory.text, second(memory.created_at)
    what = (text.type, text.title, text.content)
    return "twin", memory.space, memory.session, memory.key, what, created_at
