"""Export and import of sessions and memories; an import is idempotent.

A short import is one transaction. A longer one would block other writers, so it is one after
another, each of which stores the next rows. One that is cut off has stored its first rows, and
is completed when it is repeated.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain

from ...engine.callbacks import noop
from ...engine.engine import Engine, Transaction
from ...errors import Refusal
from ...memory.limits import require_margin, require_room
from ...memory.model.access import Caller, Role
from ...memory.model.memory import (
    UNSAVED,
    Imported,
    Links,
    Memory,
    MemoryId,
    Session,
    Supersession,
)
from ...memory.model.space import Project
from ...memory.redactor import Redactor, RulesOf, default_rules
from ...memory.sql.imports import ImportTable
from ...memory.sql.lifecycles import SupersessionTable
from ...memory.sql.memories import MemoryTable
from ...memory.sql.sessions import SessionTable
from .storing import Importing, Row, RowOutcome, Tally, decision, link_all, unmatched

Progress = Callable[[int], None]
"""Told how many rows of an import are stored."""

PAGE = 500  # rows of one read, so that a slow client holds no snapshot
CHUNK = 1000  # rows that are stored in one transaction
CHUNK_SIZE = 1024 * 1024  # characters of content that end a chunk early
SLICE = 100  # rows between two looks at who waits
SLICE_CONTENDED = 25  # the same while others wait
SLICE_IN_QUOTA = 10  # the same of a tenant whose room is measured


class Planned(Exception):
    """Rolls back the transaction of a dry run; with what became of its rows."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self.tally = tally


def import_whole(tx: Transaction, rows: Sequence[Row]) -> Tally:
    """Store rows, all or none; OverQuota when the tenant has no room for them."""
    tally = _imported(tx, rows, SLICE)
    link_all(tx, tally, is_end=True)
    return tally


def import_some(tx: Transaction, rows: Sequence[Row], before: Tally) -> Tally:
    """Store the first of the rows that come after others, fewer while writers wait."""
    size = SLICE_CONTENDED if tx.is_awaited else SLICE
    tally = _imported(tx, rows, size, before.memories.total(), is_whole=False)
    uids = {it.uid for it in rows if isinstance(it, Memory)}
    waiting = [it for it in before.links if uids.isdisjoint(it.older)]
    if links := [*(it for it in before.links if it not in waiting), *tally.links]:
        tally.made |= before.made
        tally.links = links
        link_all(tx, tally, is_end=False)
    tally.links = [*waiting, *tally.links]
    return tally


def plan_rows(tx: Transaction, rows: Sequence[Row], place: int) -> None:
    """Store rows, and roll back; raises Planned. Quotas are not checked."""
    importing = Importing(tx, place)
    for start in range(0, len(rows), SLICE):
        importing.add(rows[start : start + SLICE])
    raise Planned(importing.tally)


def link_rows(tx: Transaction, links: list[Supersession], made: set[MemoryId]) -> int:
    """Let memories supersede what they name, of all rows; how many may not."""
    tally = Tally(links=links, made=made)
    link_all(tx, tally, is_end=True)
    return tally.refused


def _imported(
    tx: Transaction, rows: Sequence[Row], size: int, place: int = 0, *, is_whole: bool = True
) -> Tally:
    importing, size = Importing(tx, place), SLICE_IN_QUOTA if tx.room is not None else size
    for start in range(0, len(rows), size):
        if start and not is_whole and tx.is_awaited:
            break
        some = rows[start : start + size]
        (require_room if isinstance(some[-1], Memory) else require_margin)(tx)
        importing.add(some)
    return importing.tally


def has_quota(tx: Transaction) -> bool:
    return tx.room is not None


def new_size(tx: Transaction, rows: Sequence[Row]) -> int:
    """The characters of the memories that are new; Denied if a row may not be stored."""
    memories = [it for it in rows if isinstance(it, Memory)]
    new = unmatched(tx, memories)
    known = tx[ImportTable].projects_of({it.session for it in memories if it.session})
    for place, it in enumerate(memories):
        if place in new or not decision(tx, it).is_present:
            tx.caller.require_space(it.space)
            assert it.session is not None  # entries of stores are not imported
            tx.caller.require_project(known.get(it.session, it.space.project))
    for session in rows:
        if isinstance(session, Session):
            tx.caller.require_project(session.project)
    return sum(len(memories[place].text.content) for place in new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Export and import of one service.

    A transaction of a longer import stores `most` rows. A `rest` between two of them is for the
    writers of other processes.
    """

    engine: Engine
    rules: RulesOf = default_rules
    most: int = CHUNK
    rest: timedelta = timedelta()

    async def sessions(
        self, caller: Caller, project: Project | None
    ) -> AsyncIterator[list[Session]]:
        """Every session, in pages."""
        caller.require(Role.ADMIN)
        after = 0
        while page := await self.engine.read(caller, session_page, project, after):
            yield [session for _, session in page]
            after, _ = page[-1]

    async def memories(
        self, caller: Caller, project: Project | None
    ) -> AsyncIterator[list[Memory]]:
        """Every live memory in id order, in pages, with the `uids` of what it supersedes."""
        caller.require(Role.ADMIN)
        after = UNSAVED
        while page := await self.engine.read(caller, memory_page, project, after):
            yield page
            after = page[-1].id

    async def import_all(
        self, caller: Caller, document: Iterable[Row], progress: Progress = noop
    ) -> Imported:
        """Store the rows of a document that was checked and that are not stored yet.

        What matches a stored row is left unchanged. A document of at most `CHUNK` rows is stored
        whole or not at all; a refusal of a longer one tells how many rows were stored before.
        """
        caller.require(Role.ADMIN)
        rules = self.rules(caller)
        redactor = Redactor(rules)
        chunks: Iterator[Sequence[Row]] = chunks_of(redactor, document)
        first, second = await _next(chunks), await _next(chunks)
        if second:
            chunks = chain([first, second], chunks)
            if not caller.projects.are_everything or await self.engine.read(caller, has_quota):
                await self._require_storable(caller, chunks_of(Redactor(rules), document))
                redactor = Redactor(rules)
                chunks = chunks_of(redactor, document)  # both read the same file
            tally = await self._in_chunks(caller, chunks, progress)
        else:
            tally = await self.engine.write(caller, import_whole, first)
        return Imported(
            sessions=tally.sessions[RowOutcome.NEW],
            memories=tally.stored,
            refused=tally.refused,
            redacted=redactor.count,
        )

    async def plan_import(self, caller: Caller, document: Iterable[Row]) -> Tally:
        """What an import would do now, without changing anything; quotas are not checked.

        Each chunk is planned alone, as if those before it were not stored.
        """
        caller.require(Role.ADMIN)
        tally, chunks = Tally(), chunks_of(Redactor(self.rules(caller)), document)
        while rows := await _next(chunks):
            try:
                await self.engine.write(caller, plan_rows, rows, tally.memories.total())
            except Planned as planned:
                tally.add(planned.tally)
        return tally

    async def _require_storable(self, caller: Caller, chunks: Iterator[Sequence[Row]]) -> None:
        """Refuse a document before its first row is stored, as far as that can be known.

        Denied if a row may not be stored, OverQuota without room for what is new.
        """
        size = 0
        while rows := await _next(chunks):
            size += await self.engine.read(caller, new_size, rows)
        await self.engine.read(caller, require_room, size)

    async def _in_chunks(
        self, caller: Caller, chunks: Iterator[Sequence[Row]], progress: Progress
    ) -> Tally:
        tally = Tally()
        try:
            while rows := await _next(chunks):
                while rows:
                    some = rows[: self.most]
                    done = await self.engine.write(caller, import_some, some, tally)
                    tally.links.clear()
                    tally.add(done)
                    rows = rows[done.rows :]
                    progress(tally.rows)
                    await asyncio.sleep(self.rest.total_seconds())
            for start in range(0, len(tally.links), SLICE):
                links = tally.links[start : start + SLICE]
                tally.refused += await self.engine.write(caller, link_rows, links, tally.made)
        except Refusal as refusal:
            if tally.rows:
                stored = f"The first {tally.rows:,} rows of the document were stored before"
                refusal.args = (f"{refusal} {stored}; repeat the import to store the rest.",)
            raise
        return tally


def session_page(tx: Transaction, project: Project | None, after: int) -> list[tuple[int, Session]]:
    return tx[SessionTable].page(project, after, PAGE)


def memory_page(tx: Transaction, project: Project | None, after: MemoryId) -> list[Memory]:
    page = tx[MemoryTable].page(project, after, PAGE)
    uids = tx[SupersessionTable].uids([it.id for it in page])
    return [replace(it, links=Links(uids=uids.get(it.id, ()))) for it in page]


def chunks_of(redactor: Redactor, document: Iterable[Row]) -> Iterator[list[Row]]:
    """The redacted rows of a document in chunks."""
    sessions: list[Row] = []
    memories: list[Memory] = []
    size = 0
    for row in document:
        if isinstance(row, Memory):
            memories.append(row)
            size += len(row.text.content)
        else:
            sessions.append(redactor.session(row))
            size += len(row.summary)
        if len(sessions) + len(memories) == CHUNK or size >= CHUNK_SIZE:
            yield [*sessions, *redactor.memories(memories)]
            sessions, memories, size = [], [], 0
    if sessions or memories:
        yield [*sessions, *redactor.memories(memories)]


async def _next(chunks: Iterator[Sequence[Row]]) -> Sequence[Row]:
    """The next chunk, empty at the end; parsing it would block the event loop."""
    return await asyncio.to_thread(next, chunks, ())
