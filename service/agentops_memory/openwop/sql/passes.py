"""SQL for passes over refs: what they read, the links that they make, archives."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from ...memory.model.memory import MemoryId
from ...memory.model.space import MemoryRef
from ...memory.sql.rows import count, instant, tag_array, tag_tuple
from ...memory.sql.table import Dialect
from ..entries import ENTRY, ListedRef, entry_of
from ..model.passes import Archive, ArchiveIndex, Inputs, Pass
from ..refs import superseded, there
from ..runs import RUN, Run, RunKind, run_of
from .links import Links

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
