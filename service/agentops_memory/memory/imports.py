"""The rows of an import: matched with stored ones and stored, many at a time; its transactions."""

import json
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from ..engine.engine import Transaction, durable_later
from ..errors import Conflict, NotFound
from ..light import dataclass, field, replace
from ..recall.text import content_hash, fingerprint
from . import memory as records
from .lifecycles import SupersessionTable, at_key, superseded
from .memories import MemoryTable
from .memory import UNSAVED, Memory, MemoryId, Session, SessionId, undeleted
from .redactor import require_margin, require_room
from .rows import whole_seconds
from .saves import RevisionTable, created, revised
from .sessions import SessionTable
from .space import Project
from .table import Dialect, Sql

Supersession = tuple[MemoryId, tuple[str, ...]]
"""An imported memory, and the stable ids of those it supersedes; linked after all are stored."""


Row = Session | Memory
MAX_CONFLICTS = 100  # most conflicts that a report lists
CHUNK = 1000  # most rows of one transaction
SLICE = 25  # rows between two checks for waiting writers
SLICE_CONTENDED = 10  # the same while others wait
BRIEF = 6  # rows of one transaction for a while after others waited: 3 ms with its commit
SLICE_IN_QUOTA = 10  # rows between two checks for a tenant with a quota


class RowOutcome(StrEnum):
    NEW = "new"
    RESTORED = "restored"  # a soft-deleted memory is live again
    SAME = "same"
    CHANGED = "changed"  # already stored in another state, which wins
    REVISION = "revision"  # already a revision of the memory at its key
    LATER = "later"  # becomes the next state of the memory at its key
    EARLIER = "earlier"  # becomes a revision of the memory at its key
    TOO_EARLY = "too early"  # older than the full history of the memory at its key


STORED = (RowOutcome.NEW, RowOutcome.RESTORED, RowOutcome.LATER, RowOutcome.EARLIER)
PRESENT = (RowOutcome.SAME, RowOutcome.CHANGED)  # stored before and live: nothing to do
CONFLICTS = (RowOutcome.CHANGED, RowOutcome.LATER, RowOutcome.EARLIER, RowOutcome.TOO_EARLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of one memory; `existing` is the stored memory with its identity or its key.

    The uid of `memory` is cleared if it belongs to a memory that the caller may not see.
    """

    outcome: RowOutcome
    memory: Memory
    existing: Memory | None = None


class RowConflict(NamedTuple):
    """An imported memory that differs from the stored one."""

    position: int  # its index in the imported document, from 0
    existing: MemoryId  # `UNSAVED` if it conflicts with an earlier one of the same document
    decided: Decision


@dataclass(slots=True, kw_only=True)
class Tally:
    """The result of an import: the number of rows by outcome, and the first conflicts.

    `made` has the memories that were stored or changed; `links` may need rows that follow.
    """

    sessions: Counter[RowOutcome] = field(default_factory=Counter)
    memories: Counter[RowOutcome] = field(default_factory=Counter)
    conflicts: list[RowConflict] = field(default_factory=list)
    made: set[MemoryId] = field(default_factory=set)
    links: list[Supersession] = field(default_factory=list)
    refused: int = 0  # memories that must not supersede those that they name

    @property
    def rows(self) -> int:
        return self.sessions.total() + self.memories.total()

    @property
    def stored(self) -> int:
        return sum(self.memories[it] for it in STORED)

    def add(self, more: "Tally") -> None:
        self.sessions += more.sessions
        self.memories += more.memories
        self.conflicts += more.conflicts[: MAX_CONFLICTS - len(self.conflicts)]
        self.made |= more.made
        self.links += more.links
        self.refused += more.refused


class Importer:
    """Stores rows in one transaction, in their order; `position` is that of the first memory."""

    def __init__(self, tx: Transaction, position: int = 0) -> None:
        tx.require_alone()  # others in a group commit would have to wait for many rows
        self.tx = tx
        self.tally = Tally()
        self._position = position
        self._sessions: dict[SessionId, Project] = {}
        self._new_sessions: list[Session] = []  # those that are not stored yet
        self._new: set[MemoryId] = set()

    def add(self, rows: Sequence[Row]) -> None:
        """Store sessions, and the memories after them."""
        named = {it.session if isinstance(it, Memory) else it.id for it in rows}
        if unknown := {it for it in named if it is not None} - self._sessions.keys():
            self._sessions |= self.tx[SessionTable].projects_of(unknown)
        for row in rows:
            if isinstance(row, Session):
                self._add_session(row)
        memories = [it for it in rows if isinstance(it, Memory)]
        if memories and are_new(self.tx, memories):
            self._insert(memories)
        else:
            for position, it in enumerate(memories, self._position):
                self._merge(it, position)
        self._store_sessions()
        self._position += len(memories)

    def _add_session(self, session: Session) -> None:
        self.tx.caller.require_project(session.project)
        if session.id not in self._sessions:
            self._sessions[session.id] = session.project
            self._new_sessions.append(session)
            self.tally.sessions[RowOutcome.NEW] += 1
            return
        self._store_sessions()
        stored = self.tx[SessionTable].get(session.id)
        assert stored is not None
        self.tx.caller.require_project(stored.project)
        is_same = _as_exported(stored) == _as_exported(session)
        self.tally.sessions[RowOutcome.SAME if is_same else RowOutcome.CHANGED] += 1

    def _add_session_of(self, memory: Memory) -> None:
        """Add the session of a memory if it is unknown; Denied outside the caller's projects."""
        caller, session, project = self.tx.caller, memory.session, memory.space.project
        assert session is not None  # entries of stores are not imported
        caller.require_space(memory.space)
        if session not in self._sessions:
            self._sessions[session] = project
            new = Session(id=session, project=project, started_at=memory.created_at)
            self._new_sessions.append(new)
        caller.require_project(self._sessions[session])

    def _store_sessions(self) -> None:
        if self._new_sessions:
            self.tx[SessionTable].add(self._new_sessions)
            self._new_sessions = []

    def _merge(self, memory: Memory, position: int) -> None:
        """Store a memory that may match a stored one."""
        decided, tally = decision(self.tx, memory), self.tally
        outcome, existing = decided.outcome, decided.existing
        tally.memories[outcome] += 1
        if outcome in CONFLICTS and len(tally.conflicts) < MAX_CONFLICTS:
            assert existing is not None  # each of CONFLICTS has one
            stored = UNSAVED if existing.id in self._new else existing.id
            tally.conflicts.append(RowConflict(position, stored, decided))
        result = existing
        if outcome not in PRESENT:
            self._add_session_of(memory)
            self._store_sessions()
            result = _apply(self.tx, decided)
            if result is not None:
                tally.made.add(result.id)
                if existing is None:
                    self._new.add(result.id)
        if result is not None and memory.links.uids:
            tally.links.append((result.id, memory.links.uids))

    def _insert(self, memories: Sequence[Memory]) -> None:
        """Store new memories, all at once."""
        for it in memories:
            self._add_session_of(it)
        self._store_sessions()
        new_uid = self.tx.new_uid
        new = [it if it.uid else replace(it, uid=new_uid(it.created_at)) for it in memories]
        ids = self.tx[MemoryTable].insert_all(new)
        self.tally.made.update(ids)
        self._new.update(ids)
        self.tally.memories[RowOutcome.NEW] += len(new)
        for id_, it in zip(ids, new, strict=True):
            if it.links.uids:
                self.tally.links.append((id_, it.links.uids))


def are_new(tx: Transaction, memories: Sequence[Memory]) -> bool:
    """Whether memories match no stored memory and not each other; may be False for new ones."""
    uids = [it.uid for it in memories if it.uid]
    at_keys = [(it.space.project, it.space.scope, it.key) for it in memories if it.key]
    texts = [] if len(uids) == len(memories) else list(map(_text_of, memories))
    rows = uids, at_keys, texts
    are_distinct = all(len(set(it)) == len(it) for it in rows)
    if not are_distinct or any(0 < tx.retention.revisions < it.revision for it in memories):
        return False
    lookups = zip(rows, _lookups(tx[Sql].dialect), strict=True)
    return not any(it and tx[Sql].exists(query, texts=json.dumps(it)) for it, query in lookups)


def _text_of(memory: Memory) -> tuple[Project, str, int]:
    text, space = memory.text, memory.space
    hash_ = fingerprint(memory.key, text.type, text.title, content_hash(text.content))
    return space.project, space.scope, hash_


@cache
def _lookups(sql: Dialect) -> tuple[str, str, str]:
    """Return queries for a stored memory with a listed uid, with a topic key, or with a text."""
    project, scope, its = (sql.element("listed.value", position) for position in range(3))
    listed = f"""SELECT 1
              FROM {sql.texts("listed")}
             {sql.leads} spaces s ON s.project = {project} AND s.scope = {scope}
             {sql.leads} memories m"""
    return (
        f"""SELECT 1
              FROM {sql.texts("listed")} {sql.leads} memories m ON m.uid = listed.value
             LIMIT 1""",
        f"""{listed} ON m.space_id = s.id AND m.key = {its} AND {undeleted("m")}
             LIMIT 1""",
        f"""{listed} {sql.hint("memories_by_hash")}
                ON m.space_id = s.id AND m.fingerprint = CAST({its} AS BIGINT)
             LIMIT 1""",
    )


def decision(tx: Transaction, memory: Memory) -> Decision:
    """Decide what an import does with a memory.

    Denied if the caller may not access its project, or the project of the memory it restores.
    """
    caller = tx.caller
    caller.require_space(memory.space)
    match = tx[MemoryTable].by_uid(memory.uid) if memory.uid else None
    if match is not None and tx[MemoryTable].get(match.id) is None:
        memory, match = replace(memory, uid=""), None  # not visible to the caller
    if not memory.uid:
        match = tx[MemoryTable].imported_duplicate(memory)
    if match is not None and not match.deleted_at:
        stored, imported = ((it.text, it.space, it.key) for it in (match, memory))
        outcome = RowOutcome.SAME if stored == imported else RowOutcome.CHANGED
        return Decision(outcome=outcome, memory=memory, existing=match)
    if match is not None:
        caller.require_space(match.space)
    target, holder = match or memory, None  # a memory is restored in its old space
    if target.key and not memory.lifecycle.is_expired(tx.now):  # an expired memory holds no key
        holder = tx[MemoryTable].at_key(target.space, target.key)
    if holder is not None and holder.is_live(tx.now):
        outcome = outcome_at_key(tx, holder, memory)
        return Decision(outcome=outcome, memory=memory, existing=holder)
    outcome = RowOutcome.NEW if match is None else RowOutcome.RESTORED
    return Decision(outcome=outcome, memory=memory, existing=match)


def outcome_at_key(tx: Transaction, holder: Memory, memory: Memory) -> RowOutcome:
    """Resolve two memories at one key: the later state wins; the other becomes a revision.

    A full history takes no earlier state: retention would trim it at the next
    change, and the next import would add it again.
    """
    # Later than all revisions.
    if whole_seconds(memory.updated_at) > whole_seconds(holder.updated_at):
        return RowOutcome.LATER
    if tx[RevisionTable].holds(holder, memory):
        return RowOutcome.REVISION
    if memory.updated_at > holder.updated_at:
        return RowOutcome.LATER
    most = tx.retention.revisions
    is_full = most and tx[RevisionTable].count(holder) >= most
    return RowOutcome.TOO_EARLY if is_full else RowOutcome.EARLIER


def _as_exported(session: Session) -> Session:
    ended_at = session.ended_at and whole_seconds(session.ended_at)
    return replace(session, started_at=whole_seconds(session.started_at), ended_at=ended_at)


def link_all(
    tx: Transaction, links: Sequence[Supersession], made: set[MemoryId], *, is_end: bool = True
) -> tuple[list[Supersession], int]:
    """Create the links; return those whose targets may be in a later part, and count refused ones.

    No link is created between two memories stored before: a user may have removed it.
    """
    waiting, refused = [], 0
    for id_, uids in links:
        memories = filter(None, map(tx[MemoryTable].get, uids))
        older = [memory.id for memory in memories if not memory.deleted_at]
        is_new = id_ in made
        if not is_end and (not is_new or len(older) < len(uids)):
            waiting.append((id_, uids))
        elif newer := tx[MemoryTable].get(id_):
            older = older if is_new else [it for it in older if it in made]
            try:
                tx[SupersessionTable].link(newer.id, superseded(tx, newer.space, older))
            except (Conflict, NotFound):
                refused += 1
    return waiting, refused


def merge_at_key(tx: Transaction, holder: Memory, memory: Memory) -> None:
    """Merge a memory into the one at its key, which keeps lifecycle and links; later text wins."""
    outcome = outcome_at_key(tx, holder, memory)
    text = replace(memory, lifecycle=records.NO_LIFECYCLE, links=records.NO_LINKS)
    _apply(tx, Decision(outcome=outcome, memory=text, existing=holder))


def _apply(tx: Transaction, decided: Decision) -> Memory | None:
    memory, existing = decided.memory, decided.existing
    target = existing or memory
    if target.key is not None:
        at_key(tx, target.space, target.key)  # frees the key if its holder has expired
    if existing is None:
        return created(tx, replace(memory, uid=memory.uid or tx.new_uid(memory.created_at)))
    if decided.outcome is RowOutcome.EARLIER:
        tx[RevisionTable].absorb(existing, memory)
    elif decided.outcome is RowOutcome.RESTORED:
        restored = replace(existing, text=memory.text, deleted_at=None, lifecycle=memory.lifecycle)
        return revised(tx, existing, restored)
    elif decided.outcome is RowOutcome.LATER:
        old, new = existing.lifecycle, memory.lifecycle
        lifecycle = records.Lifecycle(
            expires_at=new.expires_at or old.expires_at, pinned_at=old.pinned_at or new.pinned_at,
            review_at=new.review_at or old.review_at,
            confirmed_at=new.confirmed_at or old.confirmed_at,
        )  # fmt: skip
        later = replace(
            existing, text=memory.text, updated_at=memory.updated_at,
            last_seen_at=memory.last_seen_at, lifecycle=lifecycle,
        )  # fmt: skip
        return revised(tx, existing, later)
    return None


class Planned(Exception):
    """Raised to roll back a dry run; its argument is the tally of the rows."""


def import_whole(tx: Transaction, rows: Sequence[Row]) -> Tally:
    """Store all rows or none; raise OverQuota if the tenant has no room for them."""
    tally = _imported(tx, rows, SLICE)
    tally.links, tally.refused = link_all(tx, tally.links, tally.made)
    return tally


@durable_later
def import_some(tx: Transaction, rows: Sequence[Row], before: Tally) -> Tally:
    """Store the first of the next rows: few while other writers wait, or none if due work of the
    index was done first.
    """
    tx.require_alone()
    is_brief = tx.is_awaited or len(rows) <= BRIEF
    while tx.index.relieve(CHUNK, is_brief=is_brief):  # otherwise the next saves would do it
        if is_brief or tx.is_awaited:
            return Tally(links=[*before.links])
    size = SLICE_CONTENDED if is_brief else SLICE
    tally = _imported(tx, rows, size, before.memories.total(), is_whole=False)
    uids = {it.uid for it in rows if isinstance(it, Memory)}
    waiting = [it for it in before.links if uids.isdisjoint(it[1])]
    if links := [*(it for it in before.links if it not in waiting), *tally.links]:
        left, tally.refused = link_all(tx, links, before.made | tally.made, is_end=False)
        waiting += left
    tally.links = waiting
    return tally


def plan_rows(tx: Transaction, rows: Sequence[Row], position: int) -> None:
    """Store rows, and roll back; raises Planned. Quotas are not checked."""
    importer = Importer(tx, position)
    for start in range(0, len(rows), SLICE):
        importer.add(rows[start : start + SLICE])
    raise Planned(importer.tally)


def _imported(
    tx: Transaction, rows: Sequence[Row], size: int, position: int = 0, *, is_whole: bool = True
) -> Tally:
    importer, size = Importer(tx, position), SLICE_IN_QUOTA if tx.room is not None else size
    for start in range(0, len(rows), size):
        if start and not is_whole and tx.is_awaited:
            break
        some = rows[start : start + size]
        (require_room if isinstance(some[-1], Memory) else require_margin)(tx)
        importer.add(some)
    return importer.tally


def new_size(tx: Transaction, rows: Sequence[Row]) -> int:
    """Return the characters to be stored; raise Denied if a row may not be stored."""
    memories, size = [it for it in rows if isinstance(it, Memory)], 0
    all_new = are_new(tx, memories)
    known = tx[SessionTable].projects_of({it.session for it in memories if it.session})
    for it in memories:
        outcome = RowOutcome.NEW if all_new else decision(tx, it).outcome
        if outcome in PRESENT:
            continue
        tx.caller.require_space(it.space)
        assert it.session is not None  # entries of stores are not imported
        tx.caller.require_project(known.get(it.session, it.space.project))
        size += len(it.text.content) if outcome in STORED else 0
    for row in rows:
        if isinstance(row, Session):
            tx.caller.require_project(row.project)
    return size
