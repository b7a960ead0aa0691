"""Passes over a ref: their inputs, links and undo, and the index of archives."""

import json
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypeVar

from pydantic import Field

from ..engine.engine import Transaction, audited
from ..errors import Conflict, Refusal
from ..http.bodies import Param
from ..http.protocol import Operation
from ..memory.access import Caller
from ..memory.idempotency import is_due, once
from ..memory.memory import MemoryId
from ..memory.rows import MOST, Column, RowMapper, reads, tag_array
from ..memory.space import MemoryRef
from ..memory.table import Dialect, Sql
from ..recall.text import sha256_of
from ..record import CamelRecord, Milliseconds
from ..telemetry import Cut, annotate
from . import api
from .api import BASE, Query, Serving, op, ref_entry_id
from .commitments import remove_entry
from .entries import ListedRef, sized
from .runs import Run, RunEventType, RunId, RunStatus, RunTable

TRIES = 3  # attempts of a pass whose sources change meanwhile
MOST_INDEXED = 200  # most archives that an index lists

T = TypeVar("T")


class Trigger(StrEnum):
    """Why a pass runs."""

    ON_DEMAND = "on-demand"
    HOST_MANAGED = "host-managed"


class Link(NamedTuple):
    """A superseding entry, and the entry that it supersedes; the first may be older by age."""

    newer: MemoryId
    older: MemoryId


class PassEvent(CamelRecord):
    """The event of a pass."""

    type: Literal["memory.compacted", "agent.memory.consolidated"]
    payload: dict[str, Any]


class PassObject(CamelRecord):
    """A finished pass: its run and its event."""

    run_id: str
    event: PassEvent


class UndonePass(CamelRecord):
    """The number of entries that an undo restored and removed."""

    run_id: str
    restored: int
    removed: int


class IndexedArchive(CamelRecord):
    """An archive: the number of its sources, and when they were put."""

    memory_ref: Annotated[str, Column("f.ref")]
    memory_id: Annotated[str, Column("m.uid", read=ref_entry_id, second="e.name")]
    archive_checksum: Annotated[str, Column("m.content", read=sha256_of)]
    entry_count: Annotated[int, Column("a.sources")]
    from_: Annotated[Milliseconds, Column("a.first_at"), Field(alias="from")]
    to: Annotated[Milliseconds, Column("a.last_at")]
    created_at: Annotated[Milliseconds, Column("m.created_at")]


_INDEXED = RowMapper(IndexedArchive, "archives", "m.id")


class MemoryIndex(CamelRecord):
    """`MEMORY-INDEX.json`: the live archives of a ref, newest first, without their content."""

    version: Literal[1]
    archive_checksum: str | None = None
    entry_count: int
    updated_at: Milliseconds | None = None
    archives: list[IndexedArchive]


class PassNotUndoable(Conflict):
    code = "pass_not_undoable"  # already undone, or an entry that it wrote or replaced is gone


def operations(serving: Serving) -> Sequence[Operation]:
    return (
        op(serving, "POST", f"{BASE}/passes/{{runId}}/undo", "undo",
           "Undo a pass, completely or not at all.", undo, answer=UndonePass, refusals=(409,)),
        op(serving, "GET", f"{BASE}/index", "index",
           "List the live archives of a ref, newest first, without their content.", index,
           answer=MemoryIndex,
           query=(Param(name="memoryRef", help="The ref.", required=True, read=Query.ref),)),
    )  # fmt: skip


async def undo(serving: Serving, caller: Caller, run_id: str) -> UndonePass:
    run = RunId(run_id)
    async with serving.locks.of(caller, "undo", run):  # so that the audit record matches the undo
        if await serving.engine.read(caller, lambda tx: is_due(tx) and undoable(tx, run)):
            await audited(serving.audit, caller, "pass.undone", run=run)
        return await serving.engine.write(caller, once(undo_pass), run)


async def index(serving: Serving, caller: Caller, memory_ref: MemoryRef) -> MemoryIndex:
    ref = serving.readable(caller, memory_ref)
    document = await serving.engine.read(caller, memory_index, ref)
    annotate({"memory.result_count": len(document.archives)})
    return document


# Conditions on `ref_entries e`: which entries of a ref a pass reads.
Inputs = NewType("Inputs", str)

VISIBLE = Inputs(f"{api.present(None)} AND NOT {api.superseded(None)}")  # what a list shows
NO_ARCHIVES = Inputs(
    f"{VISIBLE} AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.memory_id = e.memory_id)"
)
REPLACEABLE = Inputs(  # entries that another entry may supersede
    f"""{NO_ARCHIVES}
        AND NOT EXISTS (SELECT 1 FROM ref_tags t
                         WHERE t.memory_id = e.memory_id AND t.tag = 'pinned')
        AND NOT EXISTS (SELECT 1 FROM commitments c
                         WHERE c.memory_id = e.memory_id AND c.state = 'armed')"""
)


def inputs(tx: Transaction, ref: MemoryRef, which: Inputs) -> Iterator[ListedRef]:
    """Yield the entries that a pass reads, oldest first."""
    sql = tx[Sql]
    rows = sql.stream(
        f"""SELECT e.memory_id, e.size, e.length
              FROM refs f
             {sql.dialect.leads} ref_entries e {sql.dialect.hint("ref_entries_in_time")}
                   ON e.space_id = f.space_id
             WHERE f.ref = :ref AND {which}
          ORDER BY e.created_at, e.memory_id""",
        ref=ref,
    )
    return sql.intact(rows, sized)


def are_all(tx: Transaction, memories: Collection[MemoryId], condition: str) -> bool:
    """Return whether a condition on `e` is true of all these entries."""
    sql = tx[Sql]
    number = sql.number(
        f"""SELECT count(*)
              FROM {sql.dialect.ids("listed")}
             {sql.dialect.leads} ref_entries e ON e.memory_id = listed.value
             WHERE {condition}""",
        ids=json.dumps(list(memories)),
    )
    return number == len(memories)


def link(tx: Transaction, run: Run, links: Sequence[Link], *, counts: bool) -> None:
    """Supersede entries; with `counts`, add their duplicate counts to the superseding ones."""
    sql = tx[Sql]
    most, least = sql.dialect.greatest, sql.dialect.least
    times = f"(SELECT {most}(duplicates, 0) FROM memories WHERE id = :older)" if counts else "0"
    rows = [{"newer": it.newer, "older": it.older, "pass": run.number} for it in links]
    sql.run_all(
        f"""INSERT INTO ref_supersessions (newer_id, older_id, made_after, pass, seen)
            VALUES (:newer, :older, (SELECT coalesce(max(id), 0) FROM run_events), :pass,
                    {times})""",
        rows,
    )
    if counts:
        sql.run_all(
            f"""UPDATE memories
                  SET duplicates = {least}(memories.duplicates + o.duplicates, {MOST}),
                      last_seen_at = {most}(memories.last_seen_at, o.last_seen_at)
                 FROM (SELECT duplicates, last_seen_at FROM memories WHERE id = :older) o
                WHERE id = :newer""",
            rows,
        )
    derive(tx, links)


def derive(tx: Transaction, links: Sequence[Link]) -> None:
    """Store which entries were derived from which."""
    tx[Sql].run_all(
        """INSERT INTO derivations (memory_id, source_id)
           VALUES (:newer, :older)
               ON CONFLICT DO NOTHING""",
        [it._asdict() for it in links],
    )


def put_pass(
    tx: Transaction, run: Run, ref: MemoryRef, written: Collection[MemoryId], replaced: int
) -> None:
    """Store all that a pass has done so far, which an undo needs."""
    tx[Sql].run(
        """INSERT INTO passes (run, space_id, written, replaced)
           SELECT :run, space_id, :written, :replaced FROM refs WHERE ref = :ref
               ON CONFLICT (run) DO UPDATE SET written = :written, replaced = :replaced""",
        run=run.number, ref=ref, written=tag_array(map(str, written)), replaced=replaced,
    )  # fmt: skip


def finish(tx: Transaction, run: Run, type_: RunEventType, payload: dict[str, object]) -> PassEvent:
    """End the run of a pass with its event."""
    tx[RunTable].append_event(run, type_, payload)
    tx[RunTable].end(run, RunStatus.COMPLETED)
    return PassEvent.whole(type=type_.value, payload=payload)


WORK_TIME = 0.001  # seconds of work before a pause


def paced(items: Iterable[T]) -> Iterator[T]:
    """Yield the items, and sleep as long as they took, to yield the CPU to other requests."""
    since = time.perf_counter()
    for item in items:
        yield item
        worked = time.perf_counter() - since
        if worked >= WORK_TIME:
            time.sleep(worked)
            since = time.perf_counter()


@asynccontextmanager
async def locked(
    serving: Serving, caller: Caller, ref: MemoryRef, kind: str
) -> AsyncIterator[None]:
    """Hold the lock of a ref against other passes in this process; count a refusal."""
    api.require_ref(ref, caller.tenant, serving.screen(caller))
    try:
        async with serving.locks.of(caller, "pass", ref):
            yield
    except Refusal:
        serving.pass_ended(kind, "refused")
        raise


def annotate_pass(done: PassObject) -> None:
    """Annotate the span with the sizes in the event of a pass."""
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


def memory_index(tx: Transaction, ref: MemoryRef) -> MemoryIndex:
    """Return the index of the live archives of a ref; it lists only the newest."""
    sql = tx[Sql]
    live = f"""FROM refs f
              {sql.dialect.leads} archives a ON a.space_id = f.space_id
              {sql.dialect.leads} ref_entries e ON e.memory_id = a.memory_id
              {sql.dialect.leads} memories m ON m.id = a.memory_id
              WHERE f.ref = :ref AND {api.present(None)}"""
    newest = f"ORDER BY e.created_at DESC, e.memory_id DESC LIMIT {MOST_INDEXED}"
    listed = list(sql.intact(sql.run(f"SELECT {_INDEXED} {live} {newest}", ref=ref), _INDEXED))
    return MemoryIndex(
        version=1, entry_count=sql.number(f"SELECT count(*) {live}", ref=ref), archives=listed,
        archive_checksum=listed[0].archive_checksum if listed else None,
        updated_at=listed[0].created_at if listed else None,
    )  # fmt: skip


# The undo of a pass is complete, or refused.


def undo_pass(tx: Transaction, id_: RunId) -> UndonePass:
    """Restore the entries that a pass replaced, and remove those that it wrote."""
    run, ref, written = undoable(tx, id_)
    for statement in _undo_statements(tx[Sql].dialect):
        tx[Sql].run(statement, **{"pass": run.number})
    for memory in written:
        remove_entry(tx, memory)
    tx[RunTable].record(RunEventType.UNDONE, ({"runId": id_}, (ref,)))
    return UndonePass(run_id=id_, restored=_count_replaced(tx, run, VISIBLE), removed=len(written))


def undoable(tx: Transaction, id_: RunId) -> tuple[Run, MemoryRef, Sequence[MemoryId]]:
    """Return the run of a pass, its ref, and the memories that it wrote.

    Raises PassNotUndoable if it was undone, or an entry that it wrote or replaced is gone.
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
        replaced = _count_replaced(tx, run, f"x.ended_after IS NULL AND {api.present(None)}")
        if replaced == number and are_all(tx, written, api.present(None)):
            return run, ref, written
    raise PassNotUndoable("The pass was undone, or something that it wrote or replaced is gone.")


@reads("passes")
def _pass(
    _: int, ref: MemoryRef, written: tuple[str, ...], replaced: int
) -> tuple[MemoryRef, list[MemoryId], int]:
    return ref, [MemoryId(int(it)) for it in written], replaced


def _count_replaced(tx: Transaction, run: Run, condition: str) -> int:
    """Count the entries `e` that a pass has replaced by links `x` and that meet a condition."""
    return tx[Sql].number(
        f"""SELECT count(DISTINCT e.memory_id)
              FROM ref_supersessions x
              JOIN ref_entries e ON e.memory_id = x.older_id
             WHERE x.pass = :pass AND {condition}""",
        **{"pass": run.number},
    )


_DEEPEST = 100  # passes over passes; damaged links could form a cycle


def _undo_statements(dialect: Dialect) -> Sequence[str]:
    """Return the statements that end the links of a pass, and subtract their duplicate counts.

    The counts are also subtracted from entries that later passes added them to.
    """
    most = dialect.greatest
    counted = f"""WITH RECURSIVE counted (id, seen, depth) AS (
                      SELECT newer_id, seen, 0
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
               SET duplicates = {most}(memories.duplicates - sums.seen, 1)
              FROM sums
             WHERE memories.id = sums.id""",
        f"""{counted}
            UPDATE ref_supersessions
               SET seen = {most}(ref_supersessions.seen - sums.seen, 1)
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
