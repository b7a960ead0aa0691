"""What a pass is: its kinds and records, its rows, and the links between entries that it makes."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, Field

from ..http.faults import fault
from ..memory.model.memory import MemoryId
from ..memory.model.space import MemoryRef
from ..memory.sql.rows import MOST, count, instant, micros, tag_array, tag_tuple
from ..memory.sql.table import Dialect, Table
from ..recall.text.normalization import sha256_of
from ..record import CamelRecord, Milliseconds
from .entries import ENTRY, ListedRef, Method, RefEntry, entry_of
from .fields import CAMEL, ContentText, EntryName, Tags
from .refs import RefEntryId, superseded, there
from .runs import RUN, Run, RunKind, run_of

MOST_MERGED = range(2, 101)  # entries that a host makes one


class PassKind(StrEnum):
    """What a pass does."""

    COMPACTION = "compaction"  # an archive takes the place of its sources
    DISTILLATION = "distillation"  # an archive within a budget; its sources stay
    CONSOLIDATION = "consolidation"  # entries take the place of what they say, too


class Trigger(StrEnum):
    """Why a pass runs."""

    ON_DEMAND = "on-demand"
    HOST_MANAGED = "host-managed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDraft:
    """An archive to be put. Its id is made of what it is made of, so it is the same again."""

    id: RefEntryId
    ref: MemoryRef
    kind: PassKind
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A pass that was made: what an undo has to know."""

    run: Run
    ref: MemoryRef
    written: Collection[MemoryId] = ()
    replaced: int = 0
    is_undone: bool = False


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


class Inputs(NamedTuple):
    """Which entries a pass reads, of those that a list shows."""

    archives: bool = False  # also these
    replaceable: bool = False  # those alone that another may stand for: no pinned or awaited ones


def memory_index(archives: list[IndexedArchive], total: int) -> MemoryIndex:
    """The index of these archives, of so many in all."""
    newest = archives[0] if archives else None
    return MemoryIndex(
        version=1,
        archive_checksum=newest.archive_checksum if newest else None,
        entry_count=total,
        updated_at=newest.created_at if newest else None,
        archives=archives,
    )


@dataclass(eq=False)
class Links(Table):
    """The links of one transaction."""

    _now: datetime

    def link(self, run: Run, links: Sequence[Link], *, counts: bool) -> None:
        most, least = self._sql.greatest, self._sql.least
        seen = f"(SELECT {most}(duplicates, 0) FROM memories WHERE id = :older)" if counts else "0"
        rows = [{"newer": it.newer, "older": it.older, "pass": run.number} for it in links]
        self._connection.executemany(
            f"""INSERT INTO ref_supersessions (newer_id, older_id, made_after, pass, seen)
                VALUES (:newer, :older, (SELECT coalesce(max(id), 0) FROM run_events), :pass,
                        {seen})""",
            rows,
        )
        if counts:
            self._connection.executemany(
                f"""UPDATE memories
                      SET duplicates = {least}(memories.duplicates + o.duplicates, {MOST}),
                          last_seen_at = {most}(memories.last_seen_at, o.last_seen_at)
                     FROM (SELECT duplicates, last_seen_at FROM memories WHERE id = :older) o
                    WHERE id = :newer""",
                rows,
            )
        self._derive([(it.newer, it.older) for it in links])

    def add_archive(self, memory: MemoryId, ref: MemoryRef, sources: Sequence[RefEntry]) -> None:
        self._execute(
            """INSERT INTO archives (memory_id, space_id, sources, first_at, last_at)
               SELECT :memory, space_id, :sources, :first, :last FROM refs WHERE ref = :ref""",
            memory=memory,
            ref=ref,
            sources=len(sources),
            first=micros(sources[0].created_at),
            last=micros(sources[-1].created_at),
        )
        self._derive([(memory, it.memory) for it in sources])

    def is_archive_of(self, memory: MemoryId, sources: Collection[MemoryId]) -> bool:
        known = self._scalars(
            "SELECT source_id FROM derivations WHERE memory_id = :memory", memory=memory
        )
        return set(known) == set(sources)

    def take_over(self, old: MemoryId, new: MemoryId) -> None:
        for statement in _TAKEN_OVER:
            self._execute(statement, old=old, new=new)

    def inherit(self, gone: Collection[MemoryId]) -> None:
        heirs = f"""{self._sql.ids("given")}
                   {self._sql.leads} ref_supersessions h
                         ON h.older_id = given.value AND h.ended_after IS NULL
                   JOIN ref_entries n
                         ON n.memory_id = h.newer_id AND {there(None, "n")}"""
        given: dict[str, object] = {"ids": json.dumps(list(gone)), **self._at}
        self._execute(
            f"""INSERT INTO ref_supersessions (newer_id, older_id, made_after)
                SELECT h.newer_id, x.older_id, (SELECT coalesce(max(id), 0) FROM run_events)
                  FROM {heirs}
                  JOIN ref_supersessions x ON x.newer_id = given.value AND x.ended_after IS NULL
                 WHERE x.older_id <> h.newer_id
                    ON CONFLICT DO NOTHING""",
            **given,
        )
        self._execute(
            f"""INSERT INTO derivations (memory_id, source_id)
                SELECT h.newer_id, d.source_id
                  FROM {heirs}
                  JOIN derivations d ON d.memory_id = given.value
                 WHERE d.source_id <> h.newer_id
                    ON CONFLICT DO NOTHING""",
            **given,
        )

    def _derive(self, pairs: Sequence[tuple[MemoryId, MemoryId]]) -> None:
        self._connection.executemany(
            """INSERT INTO derivations (memory_id, source_id)
               VALUES (:memory, :source)
                   ON CONFLICT DO NOTHING""",
            [{"memory": memory, "source": source} for memory, source in pairs],
        )

    @property
    def _at(self) -> dict[str, object]:
        return {"now": micros(self._now)}


# What stood for an old entry, and what it stood for, is the new one's; snapshots have that one.
_TAKEN_OVER = (
    "UPDATE ref_supersessions SET newer_id = :new WHERE newer_id = :old",
    "UPDATE ref_supersessions SET older_id = :new WHERE older_id = :old",
    "UPDATE derivations SET memory_id = :new WHERE memory_id = :old",
    "UPDATE derivations SET source_id = :new WHERE source_id = :old",
    """UPDATE ref_entries
          SET renews = (SELECT coalesce(renews, memory_id)
                          FROM ref_entries
                         WHERE memory_id = :old)
        WHERE memory_id = :new""",
)


PINNED = "pinned"  # a tag
_CURRENT = f"{there(None)} AND NOT {superseded(None)}"


@dataclass(eq=False)
class PassTable(Links):
    """Passes, what they made, and of what."""

    def inputs(self, ref: MemoryRef, which: Inputs) -> Iterator[ListedRef]:
        """The entries that a pass reads, oldest first."""
        rows = self._stream(
            f"""SELECT e.memory_id, e.size, e.length
                  FROM refs f
                 {self._sql.leads} ref_entries e {self._sql.hint("ref_entries_in_time")}
                       ON e.space_id = f.space_id
                 WHERE f.ref = :ref AND {_read(which)}
              ORDER BY e.created_at, e.memory_id""",
            ref=ref,
            **self._at,
        )
        return (ListedRef(MemoryId(id_), count(size), count(length)) for id_, size, length in rows)

    def are_inputs(self, memories: Collection[MemoryId], which: Inputs) -> bool:
        """Whether these entries are still what such a pass reads."""
        found = self._number(
            f"""SELECT count(*)
                  FROM {self._sql.ids("given")}
                 {self._sql.leads} ref_entries e ON e.memory_id = given.value
                 WHERE {_read(which)}""",
            ids=json.dumps(list(memories)),
            **self._at,
        )
        return found == len(memories)

    def put(self, done: Pass) -> None:
        """Store a pass, or what has come to it since."""
        self._execute(
            """INSERT INTO passes (run, space_id, written, replaced)
               SELECT :run, space_id, :written, :replaced FROM refs WHERE ref = :ref
                   ON CONFLICT (run) DO UPDATE SET written = :written, replaced = :replaced""",
            run=done.run.number,
            ref=done.ref,
            written=tag_array(map(str, done.written)),
            replaced=done.replaced,
        )

    def get(self, run: Run) -> Pass | None:
        """The pass that the run is; None for another run."""
        return self._first(
            lambda row: Pass(
                run=run,
                ref=MemoryRef(row[0]),
                written=tuple(MemoryId(int(it)) for it in tag_tuple(row[1]) if it.isdecimal()),
                replaced=count(row[2]),
                is_undone=row[3] is not None,
            ),
            """SELECT f.ref, p.written, p.replaced, p.undone_at
                 FROM passes p
                 JOIN refs f ON f.space_id = p.space_id
                WHERE p.run = :run""",
            run=run.number,
        )

    def unfinished(self, ref: MemoryRef) -> Sequence[Run]:
        """Passes over the ref that were broken off."""
        rows = self._execute(
            f"""SELECT {RUN}
                  FROM runs
                 WHERE ended_at IS NULL AND kind = :kind
                       AND id IN (SELECT p.run
                                    FROM refs f
                                    JOIN passes p ON p.space_id = f.space_id
                                   WHERE f.ref = :ref)
              ORDER BY id""",
            kind=RunKind.PASS.value,
            ref=ref,
        )
        return list(map(run_of, rows))

    def is_whole(self, done: Pass) -> bool:
        """Whether all that a pass has written and replaced is there."""
        of_pass: dict[str, object] = {"pass": done.run.number, **self._at}
        older = self._number(
            f"""SELECT count(DISTINCT e.memory_id)
                  FROM ref_supersessions x
                  JOIN ref_entries e ON e.memory_id = x.older_id
                 WHERE x.pass = :pass AND x.ended_after IS NULL AND {there(None)}""",
            **of_pass,
        )
        written = self._number(
            f"""SELECT count(*)
                  FROM {self._sql.ids("given")}
                  JOIN ref_entries e ON e.memory_id = given.value
                 WHERE {there(None)}""",
            ids=json.dumps(list(done.written)),
            **self._at,
        )
        return (older, written) == (done.replaced, len(done.written))

    def undo(self, done: Pass) -> None:
        """End the links of a pass, with what they have counted."""
        of_pass: dict[str, object] = {"pass": done.run.number, **self._at}
        for statement in _uncounted(self._sql):
            self._execute(statement, **of_pass)
        self._execute(
            """UPDATE ref_supersessions
                  SET ended_after = (SELECT coalesce(max(id), 0) FROM run_events)
                WHERE pass = :pass AND ended_after IS NULL""",
            **of_pass,
        )
        self._execute(
            f"""UPDATE memories
                  SET last_seen_at = {self._sql.greatest}(created_at, coalesce(
                      (SELECT max(o.last_seen_at)
                         FROM ref_supersessions x
                         JOIN memories o ON o.id = x.older_id
                        WHERE x.newer_id = memories.id AND x.ended_after IS NULL AND x.seen > 0),
                      0))
                WHERE id IN (SELECT newer_id
                               FROM ref_supersessions
                              WHERE pass = :pass AND seen > 0)""",
            **of_pass,
        )
        self._execute("UPDATE passes SET undone_at = :now WHERE run = :pass", **of_pass)

    def restored(self, done: Pass) -> int:
        """How many of those that a pass has replaced stand for themselves again."""
        return self._number(
            f"""SELECT count(DISTINCT e.memory_id)
                  FROM ref_supersessions x
                  JOIN ref_entries e ON e.memory_id = x.older_id
                 WHERE x.pass = :pass AND {_CURRENT}""",
            **{"pass": done.run.number, **self._at},
        )

    def index(self, ref: MemoryRef, limit: int) -> MemoryIndex:
        """The live archives of the ref."""
        live = f"""FROM refs f
                  {self._sql.leads} archives a ON a.space_id = f.space_id
                  {self._sql.leads} ref_entries e ON e.memory_id = a.memory_id
                  WHERE f.ref = :ref AND {there(None)}"""
        given: dict[str, object] = {"ref": ref, **self._at}
        rows = self._execute(
            f"""SELECT {ENTRY}, g.sources, g.first_at, g.last_at
                  FROM (SELECT a.*
                          {live}
                      ORDER BY e.created_at DESC, e.memory_id DESC
                         LIMIT :limit) g
                  JOIN ref_entries e ON e.memory_id = g.memory_id
                  JOIN memories m ON m.id = e.memory_id
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
              ORDER BY e.created_at DESC, e.memory_id DESC""",
            limit=limit,
            **given,
        )
        archives = [
            IndexedArchive(
                memory_ref=ref,
                memory_id=entry.id,
                archive_checksum=sha256_of(entry.content),
                entry_count=count(sources),
                from_=instant(first),
                to=instant(last),
                created_at=entry.created_at,
            )
            for *row, sources, first, last in rows
            for entry in [entry_of(row)]
        ]
        return memory_index(archives, self._number(f"SELECT count(*) {live}", **given))

    def changed(self, after: MemoryRef, limit: int) -> Sequence[MemoryRef]:
        """Refs to which something was put since a pass has looked at all of each."""
        return self._scalars(
            """SELECT ref
                 FROM refs
                WHERE ref > :after AND newest > consolidated AND entries > 1
             ORDER BY ref
                LIMIT :limit""",
            after=after,
            limit=limit,
        )

    def looked_at(self, ref: MemoryRef, newest: MemoryId) -> None:
        """Note that a pass has looked at all of a ref, up to an entry."""
        self._execute(
            "UPDATE refs SET consolidated = :newest WHERE ref = :ref", ref=ref, newest=newest
        )


def _read(which: Inputs) -> str:
    """Which entries `e` a pass reads."""
    condition = _CURRENT
    if not which.archives:
        condition += """ AND NOT EXISTS (SELECT 1
                                           FROM archives a
                                          WHERE a.memory_id = e.memory_id)"""
    if which.replaceable:
        condition += f""" AND NOT EXISTS (SELECT 1
                                            FROM ref_tags t
                                           WHERE t.memory_id = e.memory_id
                                                 AND t.tag = '{PINNED}')
                          AND NOT EXISTS (SELECT 1
                                            FROM commitments c
                                           WHERE c.memory_id = e.memory_id
                                                 AND c.state = 'armed')"""
    return condition


# A number that is damaged does not get beyond what can be added up.
_DEEPEST = 100  # passes over passes; a damaged link could go round for ever
_MOST_SEEN, _MOST_COUNTED = 1 << 31, 1 << 53


@cache
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
