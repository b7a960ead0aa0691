"""Export and import of sessions and memories; an import is idempotent.

A small import is one transaction. A larger one would block other writers, so it has two
phases of short transactions: its rows are staged, and once all are, the import is accepted
and they are applied. A crash before it is accepted stores nothing; after that, `resume`
completes it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain

from ...engine.callbacks import noop
from ...engine.engine import Engine, Transaction
from ...errors import Refusal, Unavailable
from ...memory.model.access import Caller, Role
from ...memory.model.imports import Import, ImportId, Row
from ...memory.model.memory import UNSAVED, Imported, Links, Memory, MemoryId, Session
from ...memory.model.space import Project
from ...memory.redactor import Redactor, RulesOf, default_rules
from ...memory.sql.memories import MemoryTable
from ...memory.sql.sessions import SessionTable
from ...memory.sql.supersessions import SupersessionTable
from .dry_run import DryRun, ImportDocument, dry_run
from .rows import (
    abandoned_imports,
    apply_rows,
    discard_rows,
    import_rows,
    is_any_staged,
    stage_rows,
    unfinished_imports,
)

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
