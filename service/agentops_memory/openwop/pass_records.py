"""What a pass is: its kinds and records, its rows, and the links between entries that it makes."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from ..memory.model.erasure import ErasureId
from ..memory.model.memory import MemoryId
from ..memory.model.space import MemoryRef
from ..memory.sql.rows import MOST, count, instant, micros, tag_array, tag_tuple
from ..memory.sql.table import Dialect, Table
from .entries import ENTRY, ListedRef, Method, RefEntry, entry_of
from .refs import JsonObject, RefEntryId, superseded, there
from .runs import RUN, Run, RunEventType, RunId, RunKind, run_of


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Entries that a host wants to be one, and what it says."""

    ids: tuple[RefEntryId, ...]
    content: str
    tags: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PassDone:
    """The run of a pass, and the event that tells of it."""

    run: RunId
    type: RunEventType
    payload: JsonObject
    redacted: int = 0  # secrets removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Distilled(PassDone):
    """The outcome of a distillation: the SHA-256 of the archive, and whether it is new."""

    checksum: str
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What an undo did: entries that stand for themselves again, and entries that are gone."""

    run: RunId
    restored: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive as the index of a ref tells of it."""

    entry: RefEntry
    sources: int
    first_at: datetime  # when the first source was put
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveIndex:
    """The live archives of a ref, newest first, and how many there are."""

    archives: Sequence[Archive]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What was erased of a subject; no receipt where there was nothing, or nothing was done."""

    entries: int = 0
    archives: int = 0
    restored: int = 0  # entries of others that stand for themselves again
    commitments: int = 0
    erasure: ErasureId | None = None


class Inputs(NamedTuple):
    """Which entries a pass reads, of those that a list shows."""

    archives: bool = False  # also these
    replaceable: bool = False  # those alone that another may stand for: no pinned or awaited ones


class Found(NamedTuple):
    """What is to be erased of a subject, and what comes of that."""

    entries: Sequence[MemoryId]  # what was made of others before these
    archives: int  # how many of them are archives
    restored: int  # entries of others that stand for themselves then
    commitments: int


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

    def index(self, ref: MemoryRef, limit: int) -> ArchiveIndex:
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
            Archive(
                entry=entry_of(row),
                sources=count(sources),
                first_at=instant(first),
                last_at=instant(last),
            )
            for *row, sources, first, last in rows
        ]
        total = self._number(f"SELECT count(*) {live}", **given)
        return ArchiveIndex(archives=archives, total=total)

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
