"""The areas of the index: as they are stored, and how they are loaded into memory."""

import json
import logging
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from operator import itemgetter

from ..errors import Damaged, Unreadable
from ..memory.memory import MemoryId, indexed, undeleted
from ..memory.rows import columns
from ..memory.search import Totals
from ..memory.space import GLOBAL_AREA, UNINDEXED_AREA
from ..recall.area import Area, Row, Segment, Statistics, StemCounts, drafted
from ..recall.cache import ROW_BYTES, DatabaseIndex, IndexCache, LoadPlan
from ..recall.stems import Entry, length_of
from .connection import Database, SqliteTable, in_snapshot, token_of
from .partitions import Partitions, entries_of

LOAD_TIMEOUT = timedelta(seconds=30)  # of reading a group into memory
LOCK_TIMEOUT = 0.05  # seconds that a reader waits for another that loads, before it uses SQL
NEVER = 1 << 62  # an expiry in microseconds
_EXPIRY = columns("lifecycles", MemoryId, datetime | None)
MOST_BEHIND = 128  # memories beside segments that a request reads itself, 0.1 ms each
FEW_BEHIND = 8  # the same while memory is full, so that they are not read again and again
MOST_AT_ONCE = 20_000  # memories of segments that a request reads itself, 1 us each
BEHIND_SHARE = 16  # a segment is replaced when a sixteenth of its memories has been added

_EXPIRY = columns("lifecycles", MemoryId, datetime | None)
UNREADABLE = (Damaged, Unreadable, TypeError, ValueError, OverflowError, sqlite3.Error)
log = logging.getLogger(__name__)


# The memories of the area `a.area` that its segment lacks.
_BEHIND = f"""SELECT 1
                FROM spaces s
               CROSS JOIN memories m INDEXED BY memories_in_space
                     ON m.space_id = s.id AND m.id > a.last_id
               WHERE s.area = a.area AND {indexed("m")}"""


def load_requested(database: Database, index: DatabaseIndex) -> None:
    """Load the next requested part of the index into memory, while no request waits for it."""
    with index.queue.next() as number:
        if number is not None:
            with _deferring(index, number), in_snapshot(database, LOAD_TIMEOUT):
                index.refresh(token_of(database))
                StoredAreas(database).load(index, index.plan(number))


def load_at_once(
    database: Database,
    index: DatabaseIndex,
    number: int,
    requested: Collection[int],
    *,
    timeout: float = LOCK_TIMEOUT,
) -> bool:
    """Load areas of a group in the snapshot of a request, if that is quick.

    Return whether they may be there now, with the statistics of the group's other areas. Another
    thread that loads is waited for until the timeout, in seconds.
    """
    with index.queue.loading(number, timeout) as may_load:
        if not may_load or index.has(number, requested):
            return may_load
        with _deferring(index, number):
            index.refresh(token_of(database))
            stored, plan = StoredAreas(database), index.plan(number, requested)
            if stored.are_quick(stored.of_plan(plan), index.cache):
                stored.load(index, plan)
                return True
    return False


@contextmanager
def _deferring(index: DatabaseIndex, number: int) -> Iterator[None]:
    """Within, a part is loaded; if it cannot be read, requests for it are deferred."""
    try:
        yield
    except BaseException as error:
        index.queue.defer(number)
        if not isinstance(error, UNREADABLE):
            raise
        log.debug("A part of the index was not loaded into memory: %s", error)


class StoredAreas(SqliteTable):
    """The memories of areas with their stems, row by row and in segments, in one snapshot."""

    def load(self, index: DatabaseIndex, plan: LoadPlan) -> None:
        """Load a part into memory; raises one of UNREADABLE if it cannot be read."""
        token = token_of(self._connection)
        if not self._number("SELECT rules = own_rules() FROM index_rules"):
            raise Damaged("The index was built with other rules.")
        areas, others = dict[int, Area](), list[StemCounts]()
        group = index.parts.get(plan.number)
        known = group.others if group else {}
        for it in self.of_plan(plan):
            is_requested = plan.requested is None or it in plan.requested or it == GLOBAL_AREA
            counts = known.get(it)
            with suppress(ValueError):  # damaged statistics
                if not is_requested and (counts := self._counts(it, if_complete=True)):
                    others.append(counts)
                    continue
            areas[it] = self.area(it, counts)
        self._add_lifecycles(areas)
        totals = self._totals(plan.number)
        if not index.install(token, plan, [*areas.values()], others, totals):
            raise Damaged("The index differs from the memories.")

    def of_plan(self, plan: LoadPlan) -> list[int]:
        areas: Collection[int] | None = plan.areas
        if areas is None:
            areas = self._scalars("SELECT area FROM spaces WHERE partition = :it", it=plan.number)
        return sorted({*areas, *([GLOBAL_AREA] if plan.globals_too else ())})

    def area(self, number: int, counts: StemCounts | None = None) -> Area:
        """Return an area without lifecycles.

        Its statistics are not read again if `counts` are those of its stored state.
        """
        with suppress(ValueError):  # a damaged segment
            if stored := self._segment(number, counts):
                return drafted(number, self.rows(number, stored[0].last), stored)
        return drafted(number, self.rows(number, MemoryId(0)))

    def stored(self, area: int) -> tuple[Statistics, Segment] | None:
        """Return an area as it is stored, or None; raises ValueError if that is damaged."""
        statistics, segment = self._statistics(area), self._segment(area)
        return statistics and segment and (statistics[0], segment[1])

    def _segment(
        self, area: int, counts: StemCounts | None = None
    ) -> tuple[StemCounts, Segment] | None:
        row = self._execute(
            """SELECT state, CAST(head AS BLOB), arrays, checksum
                 FROM area_stems
                WHERE area = :area AND last_id > 0""",
            area=area,
        ).fetchone()
        if row is None:
            return None
        state, head, arrays, checksum = row
        if counts is None or counts.state != state:
            counts = self._counts(area)
        segment = Segment(head.decode(), arrays)
        if segment.checksum != checksum or counts is None:
            raise ValueError("A segment is damaged.")
        return counts, segment

    def _counts(self, area: int, *, if_complete: bool = False) -> StemCounts | None:
        """Return the stored statistics of an area; with `if_complete`, only of all its memories."""
        stored = self._statistics(area, f"AND NOT EXISTS ({_BEHIND})" * if_complete)
        return StemCounts(area, *stored) if stored else None

    def _statistics(self, area: int, condition: str = "") -> tuple[Statistics, int] | None:
        row = self._execute(
            f"""SELECT last_id, memories, words, stems, counts, counts_checksum, state
                  FROM area_stems a
                 WHERE area = :area AND last_id > 0 {condition}""",
            area=area,
        ).fetchone()
        if row is None:
            return None
        last, memories, words, stems, counts, checksum, state = row
        statistics = Statistics(last, memories, words, stems, counts)
        if statistics.checksum != checksum:
            raise ValueError("The statistics of an area are damaged.")
        return statistics, state

    def rows(self, area: int, after: MemoryId) -> Iterator[tuple[Row, Entry]]:
        """Yield an area's memories after one, by id, with their stems."""
        memories = self._execute(
            f"""SELECT m.id, m.space_id, m.session_id, m.created_at, t.stems
                  FROM spaces s
                 CROSS JOIN memories m {self._sql.hint("memories_in_space")}
                       ON m.space_id = s.id AND m.id > :after
                  LEFT JOIN memory_stems t ON t.memory_id = m.id
                 WHERE s.area = :area AND {indexed("m")}""",
            area=area,
            after=after,
        ).fetchall()
        memories.sort(key=itemgetter(0))
        missing = [row[0] for row in memories if row[-1] is None]
        entries = self._entries(missing) if missing else {}
        for *row, stems in memories:
            yield Row(*row), entries[row[0]] if stems is None else stems

    def behind(self) -> list[tuple[int, int]]:
        """Return the areas whose segments lack many memories, each with its segment's state.

        To be called in a write transaction. A change of the segment's memories removes the state.
        """
        self._execute(
            f"""INSERT INTO area_stems
                SELECT area, random(), 0, 0, 0, X'', X'', 0, '', X'', 0
                  FROM spaces
                 WHERE area <> {UNINDEXED_AREA} AND area NOT IN (SELECT area FROM area_stems)
              GROUP BY area"""
        )
        return self._execute(
            f"""SELECT area, state
                  FROM area_stems a
                 WHERE (SELECT count(*) FROM ({_BEHIND})) > memories / {BEHIND_SHARE}"""
        ).fetchall()

    def store(self, area: Area, state: int) -> None:
        """Store an area as its segment, unless the state has changed since `behind`."""
        statistics, segment = area.segment()
        self._execute(
            """UPDATE area_stems
                  SET state = random(), last_id = :last, memories = :memories, words = :words,
                      stems = :stems, counts = :counts, counts_checksum = :counts_checksum,
                      head = :head, arrays = :arrays, checksum = :checksum
                WHERE area = :area AND state = :state""",
            area=area.number, state=state, **statistics._asdict(), **segment._asdict(),
            checksum=segment.checksum, counts_checksum=statistics.checksum,
        )  # fmt: skip

    def are_quick(self, areas: Collection[int], cache: IndexCache) -> bool:
        """Whether a request can read these areas itself, although others may have to leave."""
        ((of_segments, behind),) = self._execute(
            f"""SELECT (SELECT coalesce(sum(memories), 0)
                         FROM area_stems
                        WHERE area IN (SELECT value FROM json_each(:areas))),
                      (SELECT count(*)
                         FROM (SELECT 1
                                 FROM spaces s
                                 LEFT JOIN area_stems a USING (area)
                                CROSS JOIN memories m INDEXED BY memories_in_space
                                      ON m.space_id = s.id AND m.id > coalesce(a.last_id, 0)
                                WHERE s.area IN (SELECT value FROM json_each(:areas))
                                      AND {indexed("m")}
                                LIMIT {MOST_BEHIND} + 1))""",
            areas=json.dumps(list(areas)),
        )
        if of_segments > min(cache.max_bytes // ROW_BYTES, MOST_AT_ONCE):
            return False
        has_room = cache.has_room((of_segments + MOST_BEHIND) * ROW_BYTES)
        return bool(behind <= (MOST_BEHIND if has_room else FEW_BEHIND))

    def _add_lifecycles(self, areas: Mapping[int, Area]) -> None:
        """Add expiries, pins and supersessions; Damaged if an expiry is unreadable."""
        listed = json.dumps(list(areas))
        lifecycles = self._execute(
            """SELECT s.area, l.memory_id, l.expires_at, l.pinned_at
                 FROM spaces s
                CROSS JOIN lifecycles l INDEXED BY lifecycles_in_space ON l.space_id = s.id
                WHERE s.area IN (SELECT value FROM json_each(:areas))
                      AND (l.expires_at IS NOT NULL OR l.pinned_at IS NOT NULL)""",
            areas=listed,
        )
        for area, memory, expires_at, pinned_at in lifecycles:
            _EXPIRY((memory, expires_at))
            if (at := areas[area].index_of(memory)) is not None:
                if expires_at is not None:
                    areas[area].expires_at[at] = expires_at
                if pinned_at is not None:
                    areas[area].pinned_at[at] = pinned_at
        superseded = self._execute(
            f"""SELECT s.area, x.older_id, coalesce(l.expires_at, {NEVER})
                  FROM supersessions x
                  JOIN memories newer ON newer.id = x.newer_id
                  JOIN memories older ON older.id = x.older_id
                  JOIN spaces s ON s.id = older.space_id
                  LEFT JOIN lifecycles l ON l.memory_id = newer.id
                 WHERE EXISTS (SELECT 1 FROM supersessions)  -- most databases have none
                       AND s.area IN (SELECT value FROM json_each(:areas))
                       AND {undeleted("newer")}""",
            areas=listed,
        )
        for area, memory, expiry in superseded:
            if (at := areas[area].index_of(memory)) is not None:
                others = areas[area].superseded_by.get(at, ())
                areas[area].superseded_by[at] = *others, expiry

    def _totals(self, partition: int) -> Totals:
        """Count the rows and the words of a partition, including pending memories."""
        partitions = Partitions(self._connection)
        count, *words = partitions.totals(partition)
        pending = self._entries(partitions.waiting(partition))
        more = sum(map(length_of, pending.values()))
        return Totals(count + len(pending), sum(words) + more)

    def _entries(self, memories: Sequence[MemoryId]) -> dict[MemoryId, Entry]:
        """Compute the entries of memories without stored stems, as in an older format."""
        documents = Partitions(self._connection).documents(memories)
        return entries_of(self._connection.stems, documents)
