"""What a pass is: its records and rows, and the links between entries that it makes."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, Field

from ..engine.engine import Transaction
from ..http.faults import fault
from ..memory.model.memory import MemoryId
from ..memory.model.space import MemoryRef
from ..memory.sql.rows import MOST, count, micros, tag_array, tag_tuple
from ..memory.sql.table import Dialect, Sql
from ..record import CamelRecord
from .entries import ListedRef, Method, RefEntry
from .fields import CAMEL, ContentText, EntryName, Tags
from .refs import RefEntryId, superseded, there
from .runs import Run

MOST_MERGED = range(2, 101)  # entries that a host makes one


class Trigger(StrEnum):
    """Why a pass runs."""

    ON_DEMAND = "on-demand"
    HOST_MANAGED = "host-managed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDraft:
    """An archive to be put. Its id is made of what it is made of, so it is the same again."""

    id: RefEntryId
    ref: MemoryRef
    method: Method
    content: str
    subjects: tuple[str, ...]  # tags
    sources: Sequence[RefEntry]
    ends: datetime | None
    budget: int | None = None  # of a distillation, in tokens
    supersedes: bool

    @property
    def size(self) -> int:
        return len(self.content.encode())


def _each_once(ids: list[str]) -> list[str]:
    if len(set(ids)) < len(ids):
        raise fault("must name each entry once")
    return ids


class MergeBody(BaseModel):
    """Entries that become one, and what it says."""

    model_config = CAMEL
    ids: Annotated[
        list[EntryName],
        Field(min_length=MOST_MERGED.start, max_length=MOST_MERGED.stop - 1),
        AfterValidator(_each_once),
    ]
    content: ContentText
    tags: Tags = []


class Link(NamedTuple):
    """The entry that stays, and one that it supersedes; by age it may be the older of the two."""

    newer: MemoryId
    older: MemoryId


class Pass(NamedTuple):
    """A pass that was made: what an undo has to know."""

    run: Run
    ref: MemoryRef
    written: Collection[MemoryId] = ()
    replaced: int = 0  # how many entries


class PassEvent(CamelRecord):
    """The event that tells of a pass."""

    type: Literal["memory.compacted", "agent.memory.consolidated"]
    payload: dict[str, Any]


class PassObject(CamelRecord):
    """A pass that was made: its run, and the event that tells of it."""

    run_id: str
    event: PassEvent


class DistilledObject(PassObject):
    """The same of a distillation; `created` is false where the archive was there."""

    archive_checksum: str
    created: bool


class UndonePass(CamelRecord):
    """What an undo has brought back, and taken away."""

    run_id: str
    restored: int
    removed: int


class Inputs(StrEnum):
    """Which entries of a ref a pass reads: conditions on `ref_entries e`."""

    VISIBLE = f"{there(None)} AND NOT {superseded(None)}"  # all that a list shows
    NO_ARCHIVES = f"""{VISIBLE}
        AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.memory_id = e.memory_id)"""
    REPLACEABLE = f"""{NO_ARCHIVES}
        AND NOT EXISTS (SELECT 1
                          FROM ref_tags t
                         WHERE t.memory_id = e.memory_id AND t.tag = 'pinned')
        AND NOT EXISTS (SELECT 1
                          FROM commitments c
                         WHERE c.memory_id = e.memory_id AND c.state = 'armed')"""


def inputs(tx: Transaction, ref: MemoryRef, which: Inputs) -> Iterator[ListedRef]:
    """The entries that a pass reads, oldest first."""
    sql = tx[Sql]
    rows = sql.stream(
        f"""SELECT e.memory_id, e.size, e.length
              FROM refs f
             {sql.dialect.leads} ref_entries e {sql.dialect.hint("ref_entries_in_time")}
                   ON e.space_id = f.space_id
             WHERE f.ref = :ref AND {which}
          ORDER BY e.created_at, e.memory_id""",
        ref=ref, now=micros(tx.now),
    )  # fmt: skip
    return (ListedRef(MemoryId(id_), count(size), count(length)) for id_, size, length in rows)


def are_all(tx: Transaction, memories: Collection[MemoryId], condition: str) -> bool:
    """Whether a condition on `e` holds of each of these entries."""
    sql = tx[Sql]
    found = sql.number(
        f"""SELECT count(*)
              FROM {sql.dialect.ids("given")}
             {sql.dialect.leads} ref_entries e ON e.memory_id = given.value
             WHERE {condition}""",
        ids=json.dumps(list(memories)), now=micros(tx.now),
    )  # fmt: skip
    return found == len(memories)


def link(tx: Transaction, run: Run, links: Sequence[Link], *, counts: bool) -> None:
    """Let entries take the place of others; with `counts` each is then seen as often as both."""
    sql = tx[Sql]
    most, least = sql.dialect.greatest, sql.dialect.least
    seen = f"(SELECT {most}(duplicates, 0) FROM memories WHERE id = :older)" if counts else "0"
    rows = [{"newer": it.newer, "older": it.older, "pass": run.number} for it in links]
    sql.run_all(
        f"""INSERT INTO ref_supersessions (newer_id, older_id, made_after, pass, seen)
            VALUES (:newer, :older, (SELECT coalesce(max(id), 0) FROM run_events), :pass,
                    {seen})""",
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
    """Note which entries were made of which."""
    tx[Sql].run_all(
        """INSERT INTO derivations (memory_id, source_id)
           VALUES (:newer, :older)
               ON CONFLICT DO NOTHING""",
        [it._asdict() for it in links],
    )


def add_archive(
    tx: Transaction, memory: MemoryId, ref: MemoryRef, sources: Sequence[RefEntry]
) -> None:
    tx[Sql].run(
        """INSERT INTO archives (memory_id, space_id, sources, first_at, last_at)
           SELECT :memory, space_id, :sources, :first, :last FROM refs WHERE ref = :ref""",
        memory=memory, ref=ref, sources=len(sources),
        first=micros(sources[0].created_at), last=micros(sources[-1].created_at),
    )  # fmt: skip
    derive(tx, [Link(memory, it.memory) for it in sources])


def is_archive_of(tx: Transaction, memory: MemoryId, sources: Collection[MemoryId]) -> bool:
    known = tx[Sql].column(
        "SELECT source_id FROM derivations WHERE memory_id = :memory", memory=memory
    )
    return set(known) == set(sources)


# A pass, and its undo.


def put_pass(tx: Transaction, done: Pass) -> None:
    """Store a pass, or what has come to it since."""
    tx[Sql].run(
        """INSERT INTO passes (run, space_id, written, replaced)
           SELECT :run, space_id, :written, :replaced FROM refs WHERE ref = :ref
               ON CONFLICT (run) DO UPDATE SET written = :written, replaced = :replaced""",
        run=done.run.number, ref=done.ref,
        written=tag_array(map(str, done.written)), replaced=done.replaced,
    )  # fmt: skip


def undoable(tx: Transaction, run: Run) -> Pass | None:
    """The pass that the run is, unless it is undone, or something of it is gone."""
    row = tx[Sql].first(
        tuple,
        """SELECT f.ref, p.written, p.replaced
             FROM passes p
             JOIN refs f ON f.space_id = p.space_id
            WHERE p.run = :run AND p.undone_at IS NULL""",
        run=run.number,
    )
    if row is None:
        return None
    ref, ids, replaced = row
    written = [MemoryId(int(it)) for it in tag_tuple(ids) if it.isdecimal()]
    done = Pass(run, MemoryRef(ref), written, count(replaced))
    older = replaced_by(tx, done, f"x.ended_after IS NULL AND {there(None)}")
    return done if older == done.replaced and are_all(tx, written, there(None)) else None


def replaced_by(tx: Transaction, done: Pass, condition: str) -> int:
    """Of how many entries `e` that a pass has replaced, by links `x`, a condition holds."""
    return tx[Sql].number(
        f"""SELECT count(DISTINCT e.memory_id)
              FROM ref_supersessions x
              JOIN ref_entries e ON e.memory_id = x.older_id
             WHERE x.pass = :pass AND {condition}""",
        **{"pass": done.run.number, "now": micros(tx.now)},
    )


# A number that is damaged does not get beyond what can be added up.
_DEEPEST = 100  # passes over passes; a damaged link could go round for ever
_MOST_SEEN, _MOST_COUNTED = 1 << 31, 1 << 53


def unlink(tx: Transaction, done: Pass) -> None:
    """End the links of a pass, with what they have counted."""
    sql = tx[Sql]
    for statement in (
        *_uncounted(sql.dialect),
        """UPDATE ref_supersessions
              SET ended_after = (SELECT coalesce(max(id), 0) FROM run_events)
            WHERE pass = :pass AND ended_after IS NULL""",
        f"""UPDATE memories
              SET last_seen_at = {sql.dialect.greatest}(created_at, coalesce(
                  (SELECT max(o.last_seen_at)
                     FROM ref_supersessions x
                     JOIN memories o ON o.id = x.older_id
                    WHERE x.newer_id = memories.id AND x.ended_after IS NULL AND x.seen > 0),
                  0))
            WHERE id IN (SELECT newer_id
                           FROM ref_supersessions
                          WHERE pass = :pass AND seen > 0)""",
        "UPDATE passes SET undone_at = :now WHERE run = :pass",
    ):
        sql.run(statement, **{"pass": done.run.number, "now": micros(tx.now)})


def _uncounted(sql: Dialect) -> tuple[str, str]:
    """The statements that take off what a pass has counted, and what has counted that since."""
    most, least = sql.greatest, sql.least

    def seen(column: str) -> str:
        return f"{least}({most}({column}, 0), {_MOST_SEEN})"

    counted = f"""WITH RECURSIVE counted (id, seen, depth) AS (
                      SELECT newer_id, {seen("seen")}, 0
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
               SET seen = {most}({seen("ref_supersessions.seen")} - sums.seen, 1)
              FROM sums
             WHERE older_id = sums.id AND ended_after IS NULL AND ref_supersessions.seen > 0""",
    )
