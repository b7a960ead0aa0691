"""Exports and imports, row by row: neither is held in memory as a whole.

A short import is one transaction. A longer one would block other writers, so it is a series of
transactions, each of which stores the next rows. An interrupted import has stored its first rows;
repeating it stores the rest.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace  # as in the client, one of whose nouns is extended
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import UUID

from agentops_memory_client.contract import models as c

from ..engine.engine import Engine, Transaction, noop
from ..errors import Invalid, InvalidFields, Refusal
from ..http.query import entries, members
from ..light import Lazy
from ..memory import imports, memory as records
from ..memory.access import Caller, Role
from ..memory.imports import BRIEF, CHUNK, SLICE, Row, RowOutcome, Tally
from ..memory.lifecycles import SupersessionTable
from ..memory.memories import MemoryTable
from ..memory.memory import Lifecycle, Links, Memory, MemoryId, Session, SessionId
from ..memory.redactor import Redactor, RulesOf, require_room
from ..memory.rows import parsed, rendered
from ..memory.sessions import SessionTable
from ..memory.space import Project
from ..secrets.redaction import DEFAULT_RULES, hidden
from .wire import memory_as, session

if TYPE_CHECKING:
    from . import models as m
else:
    m = Lazy(__package__, ".models")

log = logging.getLogger(__name__)

NAMED_MEMBERS = 5  # most members that a refusal names
_UID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Only what looks like a field of a format: another name may be data, which a refusal never quotes.
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")

_EXPECTED = (
    "an object with sessions and observations is expected, as `agentops-memory export` writes"
)
_BY_MEMBER = {
    "prompts": " It looks like an export of Engram: `agentops-memory import` reads one.",
    "results": " It looks like a list of memories from mem0, which no importer reads.",
}


def require_export(file: BinaryIO, lists: Collection[str]) -> None:
    """Raise Invalid for an object that has members, but none of the lists of an export.

    An object without members is an empty export, as in the original service.
    """
    names, hint, is_empty = list[str](), "", True
    for name, position, _ in members(file):
        if name in lists:
            return
        is_empty = False
        # A refusal may name what looks like a field, and holds no secret.
        is_field = position is None and _FIELD.fullmatch(name)
        if is_field and len(names) < NAMED_MEMBERS and hidden(name) == name:
            names.append(name)
        hint = hint or _BY_MEMBER.get(name, "")
    if not is_empty:
        has = ", ".join(names) or "others"
        raise Invalid(f"validation failed: {_EXPECTED}; this one has {has}.{hint}")


KEPT, ROW = 4 * 1024 * 1024, 1024  # characters of a document that is kept, and of a row's overhead
MOST_REVISIONS = 1 << 52  # of an imported row: its memory can be changed as often once more
NAMED_ROWS = 20  # whose faults a refusal names
FAULTY = "validation failed: "
_ROWS = "sessions", "observations"  # the lists of a document


class ExportedObservation(c.Observation):
    """A memory with the stable ids by which an import recognizes it and what it supersedes."""

    supersedes: tuple[str, ...] = ()  # type: ignore[assignment]
    uid: str
    pinned_at: datetime | None = None


class Document:
    """An import in a file: its rows, sessions first. A long one is read again each time.

    A `reader.Reader`, if given, reads it if it can; such a document must be closed.
    """

    def __init__(self, file: BinaryIO, now: datetime, reader: Any = None) -> None:
        self._file = file
        self._now = now
        self._reader = reader
        self.is_read = False  # by the reader's process
        self._kept: list[Row] | None = None  # the checked rows, if they are few
        self.counts = dict.fromkeys(_ROWS, 0)  # rows by list, once checked

    def __len__(self) -> int:
        return sum(self.counts.values())

    def check(self) -> None:
        """Read the whole document; Invalid names the faults of the first wrong rows."""
        if self._reader is not None and (counts := self._reader.opened(self._file, self._now)):
            self.counts, self.is_read = counts, True
        else:
            self._check()

    def _check(self) -> None:
        faults: list[str] = []
        kept: dict[str, list[Row]] = {name: [] for name in _ROWS}
        room = KEPT
        self.counts = dict.fromkeys(_ROWS, 0)
        for name, position, item in entries(self._file, _ROWS):
            self.counts[name] += 1
            try:
                make = self._row(name, position, item)
            except InvalidFields as error:
                faults.append(str(error).removeprefix(FAULTY))
                if len(faults) == NAMED_ROWS:
                    break
                continue
            if room > 0:
                kept[name].append(row := make())
                room -= ROW + len(row.text.content if isinstance(row, Memory) else row.summary)
        if faults:
            raise InvalidFields(FAULTY + "; ".join(faults))
        if not len(self):
            require_export(self._file, _ROWS)
        if room > 0:
            self._kept = [*kept["sessions"], *kept["observations"]]

    def chunks(self, redactor: Redactor, piece: int | None = None) -> Iterator[Sequence[Row]]:
        """Yield redacted rows, in the chunks that are to be stored together.

        If the reader reads a long document, chunks have `piece` rows, or a tenth of the document.
        """
        most, done = CHUNK, 0
        if self.is_read and self._reader is not None:
            try:
                if piece and len(self) > CHUNK:  # long documents need few commits
                    most = min(max(piece, len(self) // 10), CHUNK)
                for rows, kinds in self._reader.rows(self._file, redactor.rules, most):
                    redactor.kinds.update(kinds)
                    done += len(rows)
                    yield rows
            except (OSError, EOFError):
                log.warning("the process that read an import has ended; a thread continues")
                self.is_read = False
            else:
                return
        yield from chunks_of(redactor, islice(self, done, None))

    def close(self) -> None:
        if self._reader is not None:
            self._reader.end(self._file)

    def __iter__(self) -> Iterator[Row]:
        if self._kept is not None:
            yield from self._kept
            return
        for name, count in self.counts.items():
            # Stop at the last row: the next reading parses what follows.
            for _, position, item in islice(entries(self._file, (name,)), count):
                yield self._row(name, position, item)()

    def _row(self, name: str, position: int, item: object) -> Callable[[], Row]:
        """Check an item; return a function that makes its row, as a first reading needs few."""
        path, now = f"{name}[{position}]", self._now
        if name == "observations":
            return self._memory(m.body(m.ImportedObservation, item, path), path)
        row = m.body(m.ImportedSession, item, path)
        started_at, ended_at = (_instant(row, path, it) for it in ("started_at", "ended_at"))
        return lambda: Session(
            id=SessionId(row.id), project=row.project, started_at=started_at or now,
            ended_at=ended_at, summary=row.summary or "", message_count=row.message_count or 0,
        )  # fmt: skip

    def _memory(self, row: "m.ImportedObservation", path: str) -> Callable[[], Memory]:
        created = _instant(row, path, "created_at") or self._now
        updated = _instant(row, path, "updated_at") or created
        older = tuple(_uid(it, f"{path}.supersedes") for it in row.supersedes or ())
        uid, last_seen_at = _uid(row.uid, f"{path}.uid"), _instant(row, path, "last_seen_at")
        lifecycle = records.NO_LIFECYCLE
        if row.pinned or row.pinned_at or row.expires_at or row.review_at or row.confirmed_at:
            pinned_at = _instant(row, path, "pinned_at") or (self._now if row.pinned else None)
            lifecycle = Lifecycle(
                expires_at=_instant(row, path, "expires_at"),
                pinned_at=None if row.pinned is False else pinned_at,
                review_at=_instant(row, path, "review_at"),
                confirmed_at=_instant(row, path, "confirmed_at"),
            )
        return lambda: Memory(
            uid=uid, **row.memory,
            revision=min(row.revision_count or 1, MOST_REVISIONS),
            duplicates=row.duplicate_count or 1, last_seen_at=last_seen_at or updated,
            promoted_to=row.promoted_to or None, created_at=created, updated_at=updated,
            lifecycle=lifecycle, links=Links(uids=older) if older else records.NO_LINKS,
        )  # fmt: skip


def _instant(row: object, path: str, field: str) -> datetime | None:
    if not (text := getattr(row, field)):
        return None
    if (at := parsed(text)) is None:
        raise InvalidFields(f"{FAULTY}{path}.{field} is not an RFC 3339 time")
    return at


def _uid(text: str | None, name: str) -> str:
    if text and _UID.fullmatch(text):
        return text
    try:
        return str(UUID(text)) if text else ""
    except ValueError as error:
        raise InvalidFields(f"validation failed: {name} is not a UUID") from error


def import_plan(plan: Tally) -> c.ImportPlan:
    sessions, memories = plan.sessions, plan.memories
    return c.ImportPlan(
        new_sessions=sessions[RowOutcome.NEW], same_sessions=sessions[RowOutcome.SAME],
        conflicting_sessions=sessions[RowOutcome.CHANGED],
        new_observations=memories[RowOutcome.NEW],
        restored_observations=memories[RowOutcome.RESTORED],
        same_observations=memories[RowOutcome.SAME] + memories[RowOutcome.REVISION],
        conflicting_observations=sum(memories[outcome] for outcome in imports.CONFLICTS),
        conflicts=tuple(
            c.ImportConflict(
                place=position, id=id_, project=it.memory.space.project, title=it.memory.text.title,
                reason="changed" if it.outcome is RowOutcome.CHANGED else records.TOPIC_KEY,
                kept="imported" if it.outcome is RowOutcome.LATER else "stored",
            )
            for position, id_, it in plan.conflicts
        ),
    )  # fmt: skip


Progress = Callable[[int], None]
"""Called with the number of rows of an import that are stored or planned."""

PAGE = 500  # rows of one read, so that a slow client holds no snapshot
PIECE = 300  # rows of one transaction while another process reads the next ones
CHUNK_SIZE = 1024 * 1024  # characters of content that end a chunk early
CALM = 200  # transactions: about a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Export and import of one service.

    A transaction of a longer import stores `most` rows; then other processes can write during
    `pause`.
    """

    engine: Engine
    rules: RulesOf = lambda _: DEFAULT_RULES
    most: int = CHUNK
    pause: timedelta = timedelta()

    async def export(
        self, caller: Caller, project: Project | None, now: datetime
    ) -> AsyncIterator[bytes]:
        """Yield the document in pieces: all sessions, then all live memories, in order of ids."""
        caller.require(Role.ADMIN)
        piece = f'{{"exported_at":"{rendered(now)}","sessions":['.encode()
        comma, number = b"", 0
        while sessions := await self.engine.read(caller, session_page, project, number):
            number, _ = sessions[-1]
            yield piece + comma + m.json_bytes([session(it) for _, it in sessions])[1:-1]
            piece, comma = b"", b","
        piece, comma, last = piece + b'],"observations":[', b"", records.UNSAVED
        while memories := await self.engine.read(caller, memory_page, project, last):
            last = memories[-1].id
            rows = [
                memory_as(
                    ExportedObservation, it, supersedes=it.links.uids, uid=it.uid,
                    pinned_at=it.lifecycle.pinned_at,
                )
                for it in memories
            ]  # fmt: skip
            yield piece + comma + m.json_bytes(rows)[1:-1]
            piece, comma = b"", b","
        yield piece + b"]}"

    async def import_all(
        self, caller: Caller, document: Document, progress: Progress = noop
    ) -> c.Imported:
        """Store those rows of a checked document that are not stored yet.

        Rows that match a stored row do not change it. A document of at most `CHUNK` rows is stored
        whole or not at all; a refusal of a longer one says how many rows were stored before.
        """
        caller.require(Role.ADMIN)
        rules = self.rules(caller)
        redactor = Redactor(rules)
        chunks = document.chunks(redactor, PIECE)
        first = await _next(chunks)
        if len(first) < len(document):
            chunks = chain([first], chunks)
            if not caller.projects.are_everything or await self.engine.read(
                caller, lambda tx: tx.room is not None
            ):
                # Refuse the document before its first row is stored, as far as that can be known.
                size, all_chunks = 0, document.chunks(Redactor(rules))
                while rows := await _next(all_chunks):
                    size += await self.engine.read(caller, imports.new_size, rows)
                await self.engine.read(caller, require_room, size)
                redactor = Redactor(rules)
                chunks = document.chunks(redactor, PIECE)  # both read the same file
            tally = await self._in_chunks(caller, chunks, progress)
        else:
            tally = await self.engine.write(caller, imports.import_whole, first)
        return c.Imported(
            imported_sessions=tally.sessions[RowOutcome.NEW], imported_observations=tally.stored,
            refused_supersessions=tally.refused or None, redacted=redactor.count,
        )  # fmt: skip

    async def plan_import(
        self, caller: Caller, document: Document, progress: Progress = noop
    ) -> Tally:
        """Return what an import would do now. Chunks are planned separately, quotas not checked."""
        caller.require(Role.ADMIN)
        tally, chunks = Tally(), document.chunks(Redactor(self.rules(caller)))
        while rows := await _next(chunks):
            try:
                await self.engine.write(caller, imports.plan_rows, rows, tally.memories.total())
            except imports.Planned as planned:
                tally.add(*planned.args)
                progress(tally.rows)
        return tally

    async def _in_chunks(
        self, caller: Caller, chunks: Iterator[Sequence[Row]], progress: Progress
    ) -> Tally:
        tally, brief = Tally(), 0
        taken = asyncio.ensure_future(_next(chunks))
        try:
            while rows := await taken:
                taken = asyncio.ensure_future(_next(chunks))  # while these are stored
                while rows:
                    some = rows[: min(self.most, BRIEF) if brief else self.most]
                    done = await self.engine.write(caller, imports.import_some, some, tally)
                    brief = CALM if done.rows < len(some) else max(brief - 1, 0)
                    tally.links.clear()
                    tally.add(done)
                    rows = rows[done.rows :]
                    progress(tally.rows)
                    await asyncio.sleep(self.pause.total_seconds())
            for start in range(0, max(len(tally.links), 1), SLICE):  # at least one makes it durable
                links = tally.links[start : start + SLICE]
                _, refused = await self.engine.write(caller, imports.link_all, links, tally.made)
                tally.refused += refused
        except Refusal as refusal:
            if tally.rows:
                with suppress(Refusal):
                    await self.engine.write(caller, imports.link_all, [], tally.made)  # as above
                stored = f"The first {tally.rows:,} rows of the document were stored before"
                refusal.args = (f"{refusal} {stored}; repeat the import to store the rest.",)
            raise
        finally:
            taken.cancel()
        return tally


def session_page(tx: Transaction, project: Project | None, after: int) -> list[tuple[int, Session]]:
    return tx[SessionTable].page(project, after, PAGE)


def memory_page(tx: Transaction, project: Project | None, after: MemoryId) -> list[Memory]:
    page = tx[MemoryTable].page(project, after, PAGE)
    uids = tx[SupersessionTable].uids([it.id for it in page])
    return [replace(it, links=Links(uids=uids.get(it.id, ()))) for it in page]


def chunks_of(redactor: Redactor, document: Iterable[Row], most: int = 0) -> Iterator[list[Row]]:
    most, rows, size = most or CHUNK, list[Row](), 0
    for row in document:
        rows.append(row)
        size += len(row.text.content if isinstance(row, Memory) else row.summary)
        if len(rows) == most or size >= CHUNK_SIZE:
            yield _sessions_first(redactor, rows)
            rows, size = [], 0
    if rows:
        yield _sessions_first(redactor, rows)


def _sessions_first(redactor: Redactor, rows: Sequence[Row]) -> list[Row]:
    sessions = [it for it in rows if isinstance(it, Session)]
    return [*redactor.records(sessions + [it for it in rows if isinstance(it, Memory)])]


async def _next(chunks: Iterator[Sequence[Row]]) -> Sequence[Row]:
    """Return the next chunk, empty at the end; it is parsed on a thread."""
    return await asyncio.to_thread(next, chunks, ())
