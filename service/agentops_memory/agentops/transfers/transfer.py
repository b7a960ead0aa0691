"""Export and import of sessions and memories; an import is idempotent.

A small import is one transaction. A larger one would block other writers, so it has two
phases of short transactions: its rows are staged, and once all are, the import is accepted
and they are applied. A crash before it is accepted stores nothing; after that, `resume`
completes it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain, islice

from ...engine.callbacks import noop
from ...engine.engine import Engine, Transaction
from ...errors import Denied, NotFound, Refusal, Unavailable
from ...memory.limits import require_margin, require_room
from ...memory.model.access import Caller, Role
from ...memory.model.memory import (
    UNSAVED,
    Imported,
    Links,
    Memory,
    MemoryId,
    Session,
    SessionId,
    Supersession,
)
from ...memory.model.space import Project
from ...memory.redactor import Redactor, RulesOf, default_rules
from ...memory.sessions import admitted
from ...memory.sql.imports import Import, ImportId, ImportTable, Row
from ...memory.sql.lifecycles import SupersessionTable
from ...memory.sql.memories import MemoryTable
from ...memory.sql.sessions import SessionTable
from ...memory.writes import all_created
from .dry_run import DryRun, ImportDocument, dry_run, match_keys
from .storing import import_row, is_refused


@dataclass(slots=True)
class Batches:
    """The rows that one transaction imports, in their order; None is a corrupt one.

    A row is skipped if its caller may not store it, and that is to be `skipped`.
    What memories supersede is added to the links.
    """

    tx: Transaction
    skipped: tuple[type[Exception], ...] = ()
    size: int = 0  # rows
    counts: Counter[type[Row]] = field(default_factory=Counter)  # of what was stored
    links: list[Supersession] = field(default_factory=list)
    refused: int = 0  # supersessions
    _unmatched: set[int] = field(default_factory=set)  # places in a batch
    _sessions: dict[SessionId, Project] = field(default_factory=dict)
    _waiting: list[Memory] = field(default_factory=list)

    @property
    def imported(self) -> Imported:
        """What of them was stored."""
        counts = self.counts
        return Imported(sessions=counts[Session], memories=counts[Memory], refused=self.refused)

    def add(self, rows: Sequence[Row | None]) -> None:
        """Import the next rows."""
        memories = {place: it for place, it in enumerate(rows) if isinstance(it, Memory)}
        self._unmatched = _unmatched(self.tx, memories)
        named = {it.session for it in memories.values() if it.session} - self._sessions.keys()
        self._sessions |= self.tx[SessionTable].projects_of(named)
        for place, row in enumerate(rows):
            with suppress(*self.skipped):
                self._add(place, row)
        self._store()
        self.size += len(rows)

    def _add(self, place: int, row: Row | None) -> None:
        if isinstance(row, Memory) and place in self._unmatched:
            self._admit(row)
            self._waiting.append(row)
            return
        self._store()
        if isinstance(row, Supersession):
            self.refused += is_refused(self.tx, row)
        elif row is not None and import_row(self.tx, row, self.links):
            self.counts[type(row)] += 1
            if isinstance(row, Memory):
                self._unmatched.clear()  # the others may match what it has become

    def _admit(self, memory: Memory) -> None:
        """Make sure of the session of a memory that is new; Denied as for any other."""
        caller, session = self.tx.caller, memory.session
        assert session is not None  # entries of stores are not imported
        caller.require_space(memory.space)
        project = memory.space.project
        if session not in self._sessions:
            new = Session(id=session, project=project, started_at=memory.created_at)
            self._sessions[session] = admitted(self.tx, new).project
        caller.require_project(self._sessions[session])

    def _store(self) -> None:
        """Store what waits."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        ids = all_created(self.tx, waiting)
        self.counts[Memory] += len(waiting)
        self.links += [
            Supersession(newer=id_, project=it.space.project, older=it.links.uids)
            for id_, it in zip(ids, waiting, strict=True)
            if it.links.uids
        ]


def _unmatched(tx: Transaction, memories: Mapping[int, Memory]) -> set[int]:
    """The places of memories that match nothing stored, nor each other: each is a new one."""
    keys = {place: set(match_keys(it)) for place, it in memories.items()}
    rows = Counter(key for each in keys.values() for key in each)
    alone = [
        place
        for place, it in memories.items()
        if tx.retention.oldest(it.revision) <= 1 and all(rows[key] == 1 for key in keys[place])
    ]
    matched = tx[ImportTable].matched([memories[place] for place in alone])
    return {place for number, place in enumerate(alone) if number not in matched}


BATCH = 50  # rows that are applied between two looks at the clock, and at who waits
MAX_APPLIED = 1000  # rows applied in one transaction, within its time limit
MAX_APPLIED_CONTENDED = 4  # while other writers wait
MAX_DISCARDED = 1000  # staged rows removed in one transaction
STAGING_TIMEOUT = timedelta(minutes=1)  # without a row, after which an import is abandoned


def import_rows(tx: Transaction, rows: Sequence[Row]) -> Imported:
    """Store rows at once; OverQuota when the tenant has no room for them."""
    batches, size = Batches(tx), 1 if tx.room is not None else BATCH
    with tx[MemoryTable].in_bulk():
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            for row in some:
                (require_room if isinstance(row, Memory) else require_margin)(tx)
            batches.add(some)
    batches.refused += sum(is_refused(tx, it) for it in batches.links)
    return batches.imported


def stage_rows(
    tx: Transaction, import_: ImportId | None, rows: Sequence[Row], *, is_last: bool
) -> ImportId:
    """Stage the next rows of an import, a new one for None; accept it with the last.

    Unavailable if it was discarded after `STAGING_TIMEOUT`.
    """
    require_room(tx)
    if import_ is None:
        import_ = tx[ImportTable].begin(tx.caller.projects)
    elif (found := tx[ImportTable].get(import_)) is None or found.is_finished:
        raise Unavailable("The import has paused for too long; nothing was stored.")
    tx[ImportTable].stage(import_, rows)
    if is_last:
        require_room(tx, tx[ImportTable].size(import_))  # as much again, in tables and index
        tx[ImportTable].accept(import_)
    return import_


def apply_rows(
    tx: Transaction, import_: ImportId, elapsed: Callable[[], float], limit: timedelta
) -> Import:
    """Apply the next rows of an accepted import within the time limit; its progress.

    What a row supersedes is staged anew behind all rows, which may be what it names.
    Indexing is not counted in the limit. A row is skipped if it is corrupt, or if its caller
    may not store it any more. If a project was renamed meanwhile nothing is applied: the
    caller has to come again with the import's current patterns.
    """
    before = tx[ImportTable].get(import_)
    if before is None:
        raise NotFound("There is no such import.")
    if before.projects != tx.caller.projects:
        return before
    end, last, is_end = elapsed() + limit.total_seconds(), 0, False
    batches, staged = Batches(tx, skipped=(Denied,)), tx[ImportTable].rows(import_)
    with tx[MemoryTable].in_bulk():
        while some := list(islice(staged, min(BATCH, _left(tx, batches)))):
            batches.add([row for _, row in some])
            last, _ = some[-1]
            if _left(tx, batches) <= 0 or elapsed() > end:
                break
        else:
            is_end = not batches.links
    if batches.links:
        tx[ImportTable].stage(import_, batches.links)
    if is_end:
        tx[ImportTable].finish(import_)
    if last:
        tx[ImportTable].applied(import_, last, batches.imported)
    found = tx[ImportTable].get(import_)
    assert found is not None  # it was there
    return found


def discard_rows(tx: Transaction, import_: ImportId) -> bool:
    return tx[ImportTable].discard(import_, MAX_DISCARDED)


def abandoned_imports(tx: Transaction) -> list[ImportId]:
    return tx[ImportTable].silent(tx.now - STAGING_TIMEOUT, tx.now + STAGING_TIMEOUT)


def unfinished_imports(tx: Transaction) -> list[Import]:
    return tx[ImportTable].unfinished()


def is_any_staged(tx: Transaction) -> bool:
    return tx[ImportTable].is_any_staged()


def _left(tx: Transaction, batches: Batches) -> int:
    """How many rows more this transaction may apply."""
    return (MAX_APPLIED_CONTENDED if tx.is_awaited else MAX_APPLIED) - batches.size


Progress = Callable[[int, int], None]

PAGE = 500  # rows of one read, so that a slow client holds no snapshot
CHUNK = 200  # rows stored or staged in one transaction
CHUNK_SIZE = 1024 * 1024  # characters of content that end a chunk early
STEP = timedelta(milliseconds=250)  # of applying; shorter while writers of this process wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Export and import of one service.

    `on_left` is called with the caller of an import that `resume` may have to complete.
    `elapsed` is a monotonic clock, in seconds.
    """

    engine: Engine
    rules: RulesOf = default_rules
    on_left: Callable[[Caller], None] = noop
    elapsed: Callable[[], float] = time.monotonic
    step: timedelta = STEP
    rest: timedelta = timedelta()  # between two steps, for the writers of other processes

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
        self, caller: Caller, document: ImportDocument, progress: Progress = noop
    ) -> Imported:
        """Store what is not stored yet, atomically; what matches a stored row is left unchanged.

        A large import becomes visible step by step once it is accepted; if it is interrupted
        then, the answer has `goes_on`, and `resume` completes it. `progress` is called with
        the rows of a large import that are applied, and all of them.
        """
        caller.require(Role.ADMIN)
        rules = self.rules(caller)
        redactor = Redactor(rules)
        chunks: Iterator[Sequence[Row]] = chunks_of(redactor, document)
        first, second = await _next(chunks), await _next(chunks)
        if not second:
            counts = await self.engine.write(caller, import_rows, first)
            return replace(counts, redacted=redactor.count)
        chunks = chain([first, second], chunks)
        if not caller.projects.are_everything:
            await dry_run(self.engine, caller, document, rules)  # Denied before it is accepted
            redactor = Redactor(rules)
            chunks = chunks_of(redactor, document)  # the dry run has exhausted the first
        import_ = await self._staged(caller, chunks)
        counts = await self._applied(caller, import_, progress)
        return replace(counts, redacted=redactor.count)

    async def plan_import(self, caller: Caller, document: ImportDocument) -> DryRun:
        """What an import would do now, without changing anything; quotas are not checked."""
        caller.require(Role.ADMIN)
        return await dry_run(self.engine, caller, document, self.rules(caller))

    async def resume(self, caller: Caller) -> bool:
        """Complete accepted imports, and discard abandoned ones.

        False if an import is still being staged: call again after `STAGING_TIMEOUT`.
        """
        for import_ in await self.engine.read(caller, abandoned_imports):
            await self._discard(caller, import_)
        for left in await self.engine.read(caller, unfinished_imports):
            async for _ in self._steps(replace(caller, projects=left.projects), left.id):
                pass
        return not await self.engine.read(caller, is_any_staged)

    async def _staged(self, caller: Caller, chunks: Iterator[Sequence[Row]]) -> ImportId:
        """Stage all rows and accept the import; if anything fails, discard it."""
        import_: ImportId | None = None
        rows = await _next(chunks)
        try:
            while rows:
                following = await _next(chunks)
                writing = asyncio.ensure_future(
                    self.engine.write(caller, stage_rows, import_, rows, is_last=not following)
                )
                try:
                    import_ = await asyncio.shield(writing)
                except asyncio.CancelledError:
                    import_ = await writing  # a write cannot be cancelled, and is discarded below
                    raise
                rows = following
        except BaseException:
            if import_ is not None:
                await self._discard(caller, import_)
            self.on_left(caller)  # it may be accepted
            raise
        assert import_ is not None  # there were two chunks
        return import_

    async def _applied(self, caller: Caller, import_: ImportId, progress: Progress) -> Imported:
        counts = Imported(sessions=0, memories=0, goes_on=True)
        try:
            async for it in self._steps(caller, import_):
                counts = Imported(
                    sessions=it.sessions,
                    memories=it.memories,
                    refused=it.refused,
                    goes_on=not it.is_finished,
                )
                progress(it.applied, it.staged)
        except Unavailable:
            return counts
        finally:
            if counts.goes_on:
                self.on_left(caller)
        return counts

    async def _steps(self, caller: Caller, import_: ImportId) -> AsyncIterator[Import]:
        """Apply an import step by step, with its progress; others may save in between."""
        while True:
            state = await self.engine.write(caller, apply_rows, import_, self.elapsed, self.step)
            yield state
            if state.is_finished:
                return
            caller = replace(caller, projects=state.projects)  # a renamed project changes them
            await asyncio.sleep(self.rest.total_seconds())

    async def _discard(self, caller: Caller, import_: ImportId) -> None:
        """Remove the staged rows of an import that was not accepted."""
        with suppress(Refusal):  # `resume` removes what is left
            while await self.engine.write(caller, discard_rows, import_):
                pass


def session_page(tx: Transaction, project: Project | None, after: int) -> list[tuple[int, Session]]:
    return tx[SessionTable].page(project, after, PAGE)


def memory_page(tx: Transaction, project: Project | None, after: MemoryId) -> list[Memory]:
    page = tx[MemoryTable].page(project, after, PAGE)
    uids = tx[SupersessionTable].uids([it.id for it in page])
    return [replace(it, links=Links(uids=uids.get(it.id, ()))) for it in page]


def chunks_of(redactor: Redactor, document: ImportDocument) -> Iterator[list[Row]]:
    """The redacted rows of a document in chunks, sessions first."""
    sessions: Iterator[Session | Memory] = map(redactor.session, document.sessions())
    memories: Iterator[Session | Memory] = map(redactor.memory, document.memories())
    chunk: list[Row] = []
    size = 0
    for row in chain(sessions, memories):
        chunk.append(row)
        size += len(row.text.content if isinstance(row, Memory) else row.summary)
        if len(chunk) == CHUNK or size >= CHUNK_SIZE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


async def _next(chunks: Iterator[Sequence[Row]]) -> Sequence[Row]:
    """The next chunk, empty at the end; parsing it would block the event loop."""
    return await asyncio.to_thread(next, chunks, ())
