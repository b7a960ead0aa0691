"""Passes over a ref: compaction, distillation, consolidation, their undo, the index."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from ..engine.engine import Transaction, audited
from ..errors import Conflict, Refusal
from ..http.bodies import WRITTEN, fault_of
from ..http.protocol import Operation
from ..http.query import instant as parsed
from ..memory.access import Caller
from ..memory.idempotency import is_due, once
from ..memory.memory import MemoryId
from ..memory.rows import count, instant, micros, reads, texts_of
from ..memory.saves import Written
from ..memory.space import MemoryRef
from ..memory.table import Dialect, Sql
from ..recall.instants import whole_milliseconds
from ..recall.text import sha256_of
from ..record import CamelRecord, Milliseconds
from ..telemetry import Cut, annotate
from . import api, archives, consolidation
from .adapter import removed
from .api import BASE, Param, Query, Serving, op
from .commitments import time_to_come
from .consolidation import STEP, Begun, screened
from .entries import ENTRY, RefEntry, RefTable
from .runs import Run, RunEventType, RunId, RunTable

TRIES = 3  # of a pass whose sources change meanwhile
MOST_MERGES = 100
MOST_INDEXED = 200  # archives of an index
MOST_CHANGED = 200  # refs of one look for those that have changed

Build = Callable[[api.Screen], archives.ArchiveDraft]
"""Makes an archive of what was read; outside of any transaction."""


class CompactBody(BaseModel):
    """A ref whose oldest entries an archive takes the place of."""

    model_config = api.CAMEL
    memory_ref: api.MemoryRefText
    content: api.ContentText | None = None
    keep_sources: bool = False


class DistillBody(BaseModel):
    """A ref whose entries an archive tells of, within a budget of tokens."""

    model_config = api.CAMEL
    memory_ref: api.MemoryRefText
    token_budget: Annotated[int, Field(ge=1)] | None = None
    content: api.ContentText | None = None
    recursive: bool = False
    expires_at: api.Zoned | None = None


class ConsolidateBody(BaseModel):
    """A ref whose entries are to stand for what they say, too."""

    model_config = api.CAMEL
    memory_ref: api.MemoryRefText
    merges: Annotated[list[archives.MergeBody], Field(max_length=MOST_MERGES)] = []

    @model_validator(mode="after")
    def _together(self) -> "ConsolidateBody":
        ids = [it for merge in self.merges for it in merge.ids]
        if len(set(ids)) < len(ids):
            raise fault_of("merges", "must name each entry once")
        return self


class UndonePass(CamelRecord):
    """What an undo has brought back, and taken away."""

    run_id: str
    restored: int
    removed: int


class IndexedArchive(CamelRecord):
    """An archive: of how many entries it was made, and when these were put."""

    memory_ref: str
    memory_id: str
    archive_checksum: str
    entry_count: int
    from_: Milliseconds = Field(alias="from")
    to: Milliseconds
    created_at: Milliseconds


class MemoryIndex(CamelRecord):
    """`MEMORY-INDEX.json`: the live archives of a ref, newest first, without their content."""

    version: Literal[1]
    archive_checksum: str | None = None
    entry_count: int
    updated_at: Milliseconds | None = None
    archives: list[IndexedArchive]


class PassNotUndoable(Conflict):
    code = "pass_not_undoable"  # undone already, or something that it wrote or replaced is gone


def operations(serving: Serving) -> Sequence[Operation]:
    it = partial(op, serving)
    return (
        it("POST", f"{BASE}/compact", "compact",
           "Replace the oldest entries of a ref with an archive.", compact, body=CompactBody,
           answer=archives.PassObject, headers=WRITTEN, refusals=(409,)),
        it("POST", f"{BASE}/distill", "distill",
           "Write an archive of a ref's entries within a budget; the entries stay.", distill,
           body=DistillBody, answer=archives.DistilledObject, headers=WRITTEN,
           refusals=(409, 422)),
        it("POST", f"{BASE}/consolidate", "consolidate",
           "Consolidate near-duplicate entries of a ref; no word is lost.", consolidate,
           body=ConsolidateBody, answer=archives.PassObject, headers=WRITTEN, refusals=(409, 422)),
        it("POST", f"{BASE}/passes/{{runId}}/undo", "undo",
           "Undo a pass, completely or not at all.", undo, answer=UndonePass, refusals=(409,)),
        it("GET", f"{BASE}/index", "index",
           "List the live archives of a ref, newest first, without their content.", index,
           answer=MemoryIndex,
           query=(Param(name="memoryRef", help="The ref.", required=True, read=Query.ref),)),
    )  # fmt: skip


async def compact(
    serving: Serving, caller: Caller, body: CompactBody
) -> Written[archives.PassObject]:
    """Put an archive in the place of the oldest entries; NothingToCompact.

    Its text is the host's `content`, or chosen from what they say (`extract-1`).
    """
    ref, text, replaces = body.memory_ref, body.content, not body.keep_sources

    def read(tx: Transaction) -> Build:
        sources = archives.compaction_inputs(tx, ref)
        return partial(archives.archive_of, ref, sources, content=text, supersedes=replaces)

    done = await _archived(serving, caller, "compaction", ref, read, archives.REPLACEABLE)
    made = archives.PassObject(run_id=done.value.run_id, event=done.value.event)
    return Written(value=made, redacted=done.redacted)


async def distill(
    serving: Serving, caller: Caller, body: DistillBody
) -> Written[archives.DistilledObject]:
    """Put an archive of all entries, within a budget of tokens for both; these stay.

    The same sources and budget are the same archive. With `recursive` archives are read,
    too. NothingToDistill, BudgetExceeded.
    """
    ref, which = body.memory_ref, archives.VISIBLE if body.recursive else archives.NO_ARCHIVES
    most = min(body.token_budget or archives.MOST_TOKENS, archives.MOST_TOKENS)

    def read(tx: Transaction) -> Build:
        sources = archives.distillation_inputs(tx, ref, which, most)
        ends = None
        if body.expires_at is not None:
            at, problem = parsed(body.expires_at), "must be in the future"
            ends = time_to_come(at, tx.now, "expiresAt", problem).due_at
        elif serving.keep_archives:
            ends = whole_milliseconds(tx.now + serving.keep_archives)
        text = body.content
        return partial(archives.archive_of, ref, sources, content=text, budget=most, ends=ends)

    return await _archived(serving, caller, "distillation", ref, read, which)


async def index(serving: Serving, caller: Caller, memory_ref: MemoryRef) -> MemoryIndex:
    """The live archives of the ref."""
    ref = serving.readable(caller, memory_ref)
    document = await serving.engine.read(caller, memory_index, ref)
    annotate({"memory.result_count": len(document.archives)})
    return document


async def consolidate_changed(serving: Serving, caller: Caller) -> None:
    """Consolidate each ref to which something was put since; what is refused waits."""
    after, trigger = MemoryRef(""), archives.Trigger.HOST_MANAGED
    while changed := await serving.engine.read(caller, changed_refs, after):
        for after in changed:
            body = ConsolidateBody.model_construct(memory_ref=after)
            with suppress(Refusal):
                await consolidate(serving, caller, body, trigger=trigger)


async def consolidate(
    serving: Serving,
    caller: Caller,
    body: ConsolidateBody,
    *,
    trigger: archives.Trigger = archives.Trigger.ON_DEMAND,
) -> Written[archives.PassObject]:
    """Let entries stand for what they say, too: merges of a host, newer facts, larger texts.

    No word is lost but those of a stale key. It is done in steps, each of which holds;
    MemoryTooLarge for a ref that is more than one pass can look at.
    """
    finish = once(consolidation.finish_pass)
    async with _locked(serving, caller, body.memory_ref, "consolidation"):
        begun, redacted = None, 0
        if await serving.engine.read(caller, is_due):
            begun, redacted = await _consolidated(serving, caller, body)
        done = await serving.engine.write(caller, finish, begun, trigger)
        if begun is not None:
            serving.pass_ended("consolidation", "done" if begun.replaced else "unchanged")
        _measure(done)
        return Written(value=done, redacted=redacted)


async def undo(serving: Serving, caller: Caller, run_id: str) -> UndonePass:
    """Take back what a pass has done, wholly: PassNotUndoable if that cannot be."""
    run = RunId(run_id)
    async with serving.locks.of(caller, run):  # what is audited is what is done
        if await serving.engine.read(caller, is_undo_due, run):
            await audited(serving.audit, caller, "pass.undone", run=run)
        return await serving.engine.write(caller, once(undo_pass), run)


async def _consolidated(
    serving: Serving, caller: Caller, body: ConsolidateBody
) -> tuple[Begun, int]:
    """All that a consolidation does, and how many secrets it has kept out."""
    ref, merges = body.memory_ref, body.merges
    await serving.engine.read(caller, consolidation.corpus, ref)  # or MemoryTooLarge

    async def clean(screen: api.Screen) -> Sequence[object]:
        entries = await serving.engine.read(caller, consolidation.to_merge, ref, merges)
        gone = await asyncio.to_thread(
            lambda: {it.memory for it in entries if screened(it, screen) != it}
        )
        return ref, [screened(it, screen) for it in merges], gone, screen

    begun = await serving.written(caller, consolidation.begin_pass, clean)
    if begun.redacted:
        serving.on_erased(caller)
    if merges:
        serving.on_due(caller)
    try:
        done = await _steps(serving, caller, begun.value)
    except Refusal:  # changed too often; full, or too large by now
        await serving.engine.write(caller, consolidation.give_up, begun.value)
        raise
    return done, begun.redacted + done.renewed


async def _steps(serving: Serving, caller: Caller, begun: Begun) -> Begun:
    """Do what is planned for the ref, in steps; what has changed meanwhile is planned anew."""
    for _ in range(TRIES):
        screen = serving.screen(caller)
        listed, newest = await serving.engine.read(caller, consolidation.corpus, begun.ref)
        entries: list[RefEntry] = []
        for start in range(0, len(listed), STEP):
            some = listed[start : start + STEP]  # of which none ever changes
            known = await serving.engine.read(caller, lambda tx, it: tx[RefTable].some(it), some)
            entries += known
        plan = await asyncio.to_thread(consolidation.planned, entries, screen, archives.Throttle())
        replaced = len(begun.replaced) - begun.merges  # before
        begun = begun._replace(inputs=len(listed) + replaced, newest=newest)
        with suppress(api.ScreenOutdated, api.MemoryChanged):
            for step in plan:
                since = time.perf_counter()
                work = consolidation.take_step
                begun = await serving.write(caller, screen, work, begun, step)
                await asyncio.sleep(time.perf_counter() - since)  # puts continue meanwhile
                if step.renewed or step.erased:
                    serving.on_erased(caller)
            return begun
    raise api.MemoryChanged


async def _archived(
    serving: Serving,
    caller: Caller,
    kind: str,
    ref: MemoryRef,
    read: Callable[[Transaction], Build],
    which: archives.Inputs,
) -> Written[archives.DistilledObject]:
    """Put an archive, rebuilt while what it is made of changes."""
    work = once(archives.put_archive)
    async with _locked(serving, caller, ref, kind):
        for _ in range(TRIES):
            screen, draft = serving.screen(caller), None
            with suppress(api.ScreenOutdated, api.MemoryChanged):
                if await serving.engine.read(caller, is_due):
                    build = await serving.engine.read(caller, read)
                    draft = await asyncio.to_thread(build, screen)
                done = await serving.write(caller, screen, work, draft, which)
                if draft is not None:
                    serving.pass_ended(kind, "done" if done.created else "unchanged")
                _measure(done)
                return Written(value=done, redacted=screen.redactor.count)
        raise api.MemoryChanged


@asynccontextmanager
async def _locked(
    serving: Serving, caller: Caller, ref: MemoryRef, kind: str
) -> AsyncIterator[None]:
    """Inside, no other pass of the ref runs in this process; a refusal is counted."""
    api.require_ref(ref, caller.tenant, serving.screen(caller))
    try:
        async with serving.locks.of(caller, ref):
            yield
    except Refusal:
        serving.pass_ended(kind, "refused")
        raise


def _measure(done: archives.PassObject) -> None:
    """Give the span what the event tells of the size of a pass."""
    payload = done.event.payload
    distillation = payload.get("distillation")
    tokens = distillation.get("tokensUsed") if isinstance(distillation, dict) else None
    annotate({
        "openwop.run_id": Cut(done.run_id, api.LONGEST_IN_SPAN),
        "memory.pass.input_count": payload.get("inputCount", payload.get("sourceCount")),
        "memory.pass.output_count": payload.get("outputCount"),
        "memory.pass.output_bytes": payload.get("byteSize"),
        "memory.pass.tokens_used": tokens,
    })  # fmt: skip


def changed_refs(tx: Transaction, after: MemoryRef) -> Sequence[MemoryRef]:
    """Refs to which something was put since a pass has looked at all of each."""
    return tx[Sql].column(
        """SELECT ref
             FROM refs
            WHERE ref > :after AND newest > consolidated AND entries > 1
         ORDER BY ref
            LIMIT :limit""",
        after=after, limit=MOST_CHANGED,
    )  # fmt: skip


def memory_index(tx: Transaction, ref: MemoryRef) -> MemoryIndex:
    """The index of the live archives of a ref, of which it shows the newest."""
    sql, values = tx[Sql], {"ref": ref, "now": micros(tx.now)}
    live = f"""FROM refs f
              {sql.dialect.leads} archives a ON a.space_id = f.space_id
              {sql.dialect.leads} ref_entries e ON e.memory_id = a.memory_id
              WHERE f.ref = :ref AND {api.present(None)}"""
    rows = sql.run(
        f"""SELECT {ENTRY}, g.sources, g.first_at, g.last_at
              FROM (SELECT a.*
                      {live}
                  ORDER BY e.created_at DESC, e.memory_id DESC
                     LIMIT {MOST_INDEXED}) g
              JOIN ref_entries e ON e.memory_id = g.memory_id
              JOIN memories m ON m.id = e.memory_id
              LEFT JOIN lifecycles l ON l.memory_id = m.id
          ORDER BY e.created_at DESC, e.memory_id DESC""",
        **values,
    )

    def archive(row: Any) -> IndexedArchive:
        *columns, sources, first, last = row
        entry, span = ENTRY(tuple(columns)), _span((row[0], sources, first, last))
        return IndexedArchive(
            memory_ref=ref, memory_id=entry.id, archive_checksum=sha256_of(entry.content),
            entry_count=span[0], from_=span[1], to=span[2], created_at=entry.created_at,
        )  # fmt: skip

    listed = list(sql.intact(rows, archive))
    return MemoryIndex(
        version=1, entry_count=sql.number(f"SELECT count(*) {live}", **values), archives=listed,
        archive_checksum=listed[0].archive_checksum if listed else None,
        updated_at=listed[0].created_at if listed else None,
    )  # fmt: skip


@reads("archives")
def _span(_: int, sources: int, first: int, last: int) -> tuple[int, datetime, datetime]:
    return count(sources), instant(first), instant(last)


# The undo of a pass: all of it, or nothing.


def undo_pass(tx: Transaction, id_: RunId) -> UndonePass:
    """Bring back what a pass has replaced, and take away what it has written."""
    run, ref, written = undoable(tx, id_)
    for statement in _undoing(tx[Sql].dialect):
        tx[Sql].run(statement, **{"pass": run.number, "now": micros(tx.now)})
    for memory in written:
        removed(tx, memory)
    tx[RunTable].record(RunEventType.UNDONE, ({"runId": id_}, (ref,)))
    return UndonePass(
        run_id=id_, restored=_replaced(tx, run, archives.VISIBLE), removed=len(written)
    )


def is_undo_due(tx: Transaction, run: RunId) -> bool:
    """Whether it was not undone under the idempotency key; PassNotUndoable."""
    return is_due(tx) and bool(undoable(tx, run))


def undoable(tx: Transaction, id_: RunId) -> tuple[Run, MemoryRef, Sequence[MemoryId]]:
    """A pass, its ref, and what it has written.

    PassNotUndoable if it is undone, or what it wrote or replaced is gone.
    """
    run = tx[RunTable].known(id_)
    row = None if run.is_open else tx[Sql].first(
        _pass,
        """SELECT p.run, f.ref, p.written, p.replaced
             FROM passes p
             JOIN refs f ON f.space_id = p.space_id
            WHERE p.run = :run AND p.undone_at IS NULL""",
        run=run.number,
    )  # fmt: skip
    if row is not None:
        ref, written, number = row
        replaced = _replaced(tx, run, f"x.ended_after IS NULL AND {api.present(None)}")
        if replaced == number and archives.are_all(tx, written, api.present(None)):
            return run, ref, written
    raise PassNotUndoable("The pass was undone, or something that it wrote or replaced is gone.")


@reads("passes")
def _pass(_: int, ref: str, written: str, replaced: int) -> tuple[MemoryRef, list[MemoryId], int]:
    return MemoryRef(ref), [MemoryId(int(it)) for it in texts_of(written)], count(replaced)


def _replaced(tx: Transaction, run: Run, condition: str) -> int:
    """Of how many entries `e` that a pass has replaced, by links `x`, a condition holds."""
    return tx[Sql].number(
        f"""SELECT count(DISTINCT e.memory_id)
              FROM ref_supersessions x
              JOIN ref_entries e ON e.memory_id = x.older_id
             WHERE x.pass = :pass AND {condition}""",
        **{"pass": run.number, "now": micros(tx.now)},
    )


# A number that is damaged does not get beyond what can be added up.
_DEEPEST = 100  # passes over passes; a damaged link could go round forever
_MOST_COUNT, _MOST_COUNTED = 1 << 31, 1 << 53


def _undoing(dialect: Dialect) -> Sequence[str]:
    """The statements that end the links of a pass, and take off what these have counted.

    Off what has counted that since, too.
    """
    most, least = dialect.greatest, dialect.least

    def bounded(column: str) -> str:
        return f"{least}({most}({column}, 0), {_MOST_COUNT})"

    counted = f"""WITH RECURSIVE counted (id, seen, depth) AS (
                      SELECT newer_id, {bounded("seen")}, 0
                        FROM ref_supersessions
                       WHERE pass = :pass AND ended_after IS NULL AND seen > 0
                       UNION ALL
                      SELECT x.newer_id, counted.seen, counted.depth + 1
                        FROM counted
                        JOIN ref_supersessions x ON x.older_id = counted.id
                       WHERE x.ended_after IS NULL AND x.seen > 0 AND counted.depth < {_DEEPEST}),
                  sums (id, seen) AS (SELECT id, sum(seen) FROM counted GROUP BY id)"""
    return (
        f"""{counted}
            UPDATE memories
               SET duplicates = {most}({least}(memories.duplicates, {_MOST_COUNTED})
                                       - sums.seen, 1)
              FROM sums
             WHERE memories.id = sums.id""",
        f"""{counted}
            UPDATE ref_supersessions
               SET seen = {most}({bounded("ref_supersessions.seen")} - sums.seen, 1)
              FROM sums
             WHERE older_id = sums.id AND ended_after IS NULL AND ref_supersessions.seen > 0""",
        """UPDATE ref_supersessions
              SET ended_after = (SELECT coalesce(max(id), 0) FROM run_events)
            WHERE pass = :pass AND ended_after IS NULL""",
        f"""UPDATE memories
              SET last_seen_at = {most}(created_at, coalesce(
                  (SELECT max(o.last_seen_at)
                     FROM ref_supersessions x
                     JOIN memories o ON o.id = x.older_id
                    WHERE x.newer_id = memories.id AND x.ended_after IS NULL AND x.seen > 0),
                  0))
            WHERE id IN (SELECT newer_id FROM ref_supersessions WHERE pass = :pass AND seen > 0)""",
        "UPDATE passes SET undone_at = :now WHERE run = :pass",
    )
