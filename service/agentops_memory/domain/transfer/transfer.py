"""Carrying sessions and memories out of one service and into another, any number of times.

A small import is one transaction. A larger one would keep the saves of others waiting:
its rows are staged, in short transactions; once all are, the import is accepted; and then
they are applied, in short transactions again. Whoever dies before it was accepted has stored
nothing, and whoever dies later leaves it to be completed.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain

from ..errors import Refusal, Unavailable
from ..memories.redactor import Redactor, RulesOf, default_rules
from ..model.access import Caller, Role
from ..model.memory import UNSAVED, Imported, Memory, MemoryId, Session
from ..model.space import Project
from ..ports.audit import noop
from ..ports.engine import Engine, Transaction
from ..ports.imports import Import, ImportId, Row
from .dry_run import Document, ImportPlan, planned
from .rows import (
    apply_rows,
    discard_rows,
    import_rows,
    is_any_staged,
    silent_imports,
    stage_rows,
    unfinished_imports,
)

Progress = Callable[[int, int], None]

PAGE = 500  # rows read at a time, so that a slow reader holds no snapshot
CHUNK = 200  # rows that are stored or staged together
STEP = timedelta(milliseconds=250)  # it ends early when others of the same process wait
CHUNK_SIZE = 1024 * 1024  # characters of content after which they are not more


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Export and import of one service.

    `on_left` is told of a caller whose accepted import has to be completed by `resume`.
    `elapsed` tells seconds, however the clock is put.
    """

    engine: Engine
    rules: RulesOf = default_rules
    on_left: Callable[[Caller], None] = noop
    elapsed: Callable[[], float] = time.monotonic
    step: timedelta = STEP  # of an import that is applied
    rest: timedelta = timedelta()  # between two of them, for the writers of other processes

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
        """Every live memory in id order, in pages."""
        caller.require(Role.ADMIN)
        after = UNSAVED
        while page := await self.engine.read(caller, memory_page, project, after):
            yield page
            after = page[-1].id

    async def import_all(
        self, caller: Caller, document: Document, progress: Progress = noop
    ) -> Imported:
        """Store what is not there yet, whole or not at all; what matches is left alone.

        A large import becomes visible piece by piece once it is accepted. When it cannot
        go on then, the answer says so, and `resume` completes it. `progress` is told how many
        rows of a large import are stored, and of how many.
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
            await planned(self.engine, caller, document, rules)  # refused before it is accepted
            redactor = Redactor(rules)
            chunks = chunks_of(redactor, document)  # which the plan has read to its end
        import_ = await self._staged(caller, chunks)
        counts = await self._applied(caller, import_, progress)
        return replace(counts, redacted=redactor.count)

    async def plan_import(self, caller: Caller, document: Document) -> ImportPlan:
        """What an import would do by now; nothing is changed, and nobody waits for it.

        How much the tenant may still store is not looked at.
        """
        caller.require(Role.ADMIN)
        return await planned(self.engine, caller, document, self.rules(caller))

    async def resume(self, caller: Caller) -> bool:
        """Complete what was accepted, and remove what was staged by those who died.

        Whether nothing is left; else there is something to look at again after `SILENCE`.
        """
        for import_ in await self.engine.read(caller, silent_imports):
            await self._discard(caller, import_)
        for left in await self.engine.read(caller, unfinished_imports):
            async for _ in self._steps(replace(caller, projects=left.projects), left.id):
                pass
        return not await self.engine.read(caller, is_any_staged)

    async def _staged(self, caller: Caller, chunks: Iterator[Sequence[Row]]) -> ImportId:
        """An import that is accepted, with all rows; if anything fails, nothing is left of it."""
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
                    import_ = await writing  # which cannot be stopped, and must be undone
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
                goes_on = not it.is_finished
                counts = Imported(sessions=it.sessions, memories=it.memories, goes_on=goes_on)
                progress(it.applied, it.staged)
        except Unavailable:
            return counts
        finally:
            if counts.goes_on:
                self.on_left(caller)
        return counts

    async def _steps(self, caller: Caller, import_: ImportId) -> AsyncIterator[Import]:
        """Apply an import step by step; others save in between."""
        while True:
            state = await self.engine.write(caller, apply_rows, import_, self.elapsed, self.step)
            yield state
            if state.is_finished:
                return
            caller = replace(caller, projects=state.projects)  # they follow a project's new name
            await asyncio.sleep(self.rest.total_seconds())

    async def _discard(self, caller: Caller, import_: ImportId) -> None:
        """Remove what was staged of an import; one that was accepted is left alone."""
        with suppress(Refusal):  # what is left goes when it has been silent
            while await self.engine.write(caller, discard_rows, import_):
                pass


def session_page(tx: Transaction, project: Project | None, after: int) -> list[tuple[int, Session]]:
    return tx.sessions.page(project, after, PAGE)


def memory_page(tx: Transaction, project: Project | None, after: MemoryId) -> list[Memory]:
    return tx.memories.page(project, after, PAGE)


def chunks_of(redactor: Redactor, document: Document) -> Iterator[list[Row]]:
    """The rows of a document without secrets, sessions first, some at a time."""
    sessions: Iterator[Row] = map(redactor.session, document.sessions())
    memories: Iterator[Row] = map(redactor.memory, document.memories())
    chunk: list[Row] = []
    size = 0
    for row in chain(sessions, memories):
        chunk.append(row)
        size += len(row.summary if isinstance(row, Session) else row.text.content)
        if len(chunk) == CHUNK or size >= CHUNK_SIZE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


async def _next(chunks: Iterator[Sequence[Row]]) -> Sequence[Row]:
    """The next chunk; none at the end. To read one takes too long for the loop."""
    return await asyncio.to_thread(next, chunks, ())
