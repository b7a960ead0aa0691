"""SQL that looks after the full-text index: areas made again, groups that are too large."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from operator import itemgetter

from ...memory.model.liveness import indexed
from ...memory.model.memory import MemoryId
from ...memory.model.space import GLOBAL_AREA, UNINDEXED_AREA, group_of
from ...memory.model.table import Connection, Table
from ...recall.search.document import Document, Groups
from ..base.dialect import POSTGRESQL
from .index import BULK, RANDOM, RULES, Index

PORTION = 400  # memories whose words are made again while others wait: about a second
LONGEST = timedelta(minutes=10)  # of a statement that reads a whole area
FIRST, LAST = MemoryId(0), MemoryId((1 << 63) - 1)  # beyond all ids

_MEMORIES = f"""SELECT count(*)
                  FROM spaces s
                  JOIN memories m ON m.space_id = s.id
                 WHERE s.area = :area AND {indexed("m")}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Memories of an area, by their ids, and the words that the index has of them."""

    area: int
    after: MemoryId
    last: MemoryId
    postings: Sequence[tuple[str, MemoryId]]


class Upkeep(Table):
    def __init__(self, connection: Connection, index: Index) -> None:
        super().__init__(connection, POSTGRESQL)
        self._index = index

    def areas(self) -> list[int]:
        return self._scalars(
            f"""SELECT area FROM areas
                 WHERE area >= {GLOBAL_AREA}
                 UNION
                SELECT area FROM spaces WHERE area >= {GLOBAL_AREA}
                 ORDER BY area"""
        )

    def drift(self, area: int) -> int:
        """By how many an area has more or fewer memories than there are."""
        return self._number(
            f"""SELECT abs(coalesce((SELECT memories FROM areas WHERE area = :area), 0)
                         - ({_MEMORIES}))""",
            area=area,
        )

    def unfinished(self) -> list[int]:
        """The areas whose words are being made again by our rules, or were to be."""
        return self._scalars(
            """SELECT area
                 FROM areas
                WHERE rebuild IS NOT NULL AND rules = :rules
             ORDER BY area""",
            rules=self._index.rules,
        )

    def is_exact(self, area: int) -> bool:
        self._index.flush()
        self._take_time()
        stored = _by_memory(
            self._sql.read(
                self._connection,
                """SELECT memory, term, length, counts
                     FROM postings
                    WHERE area = :area
                 ORDER BY memory""",
                {"area": area},
            )
        )
        totals = self._execute(
            "SELECT memories, words FROM areas WHERE area = :area", area=area
        ).fetchone() or (0, 0)
        memories = words = 0
        for documents in self._in_portions(area):
            entries = self._index.documents.entries(list(documents.values()))
            for id_, entry in zip(documents, entries, strict=True):
                memories, words = memories + 1, words + entry.length
                said = {term: (entry.length, counts) for term, counts in entry.stems.items()}
                if said and next(stored, None) != (id_, said):
                    return False
        return next(stored, None) is None and tuple(totals) == (memories, words)

    @property
    def is_ours(self) -> bool:
        """Whether all areas are by our rules, and any new one has to be; or there are none."""
        return self._exists(
            f"""SELECT 1
                  FROM areas
                HAVING coalesce(bool_and(rules = :rules), TRUE)
                       AND coalesce(bool_or(area = {UNINDEXED_AREA}), TRUE)""",
            rules=self._index.rules,
        )

    def take_over(self) -> None:
        """Let all areas be ours: what others' rules have made of them is to be made again.

        From now on who has other rules is refused what it writes.
        """
        self._execute(
            f"""INSERT INTO areas (area, rules, version, memories, words)
                VALUES ({UNINDEXED_AREA}, :rules, 0, 0, 0)
                    ON CONFLICT (area) DO UPDATE SET rules = excluded.rules""",
            rules=self._index.rules,
        )
        taken = self._scalars(
            f"""UPDATE areas
                   SET rules = :rules, version = version + 1, rebuild = {RANDOM}
                 WHERE rules <> :rules
             RETURNING area""",
            rules=self._index.rules,
        )
        for area in taken:
            self._index.forget(area)

    def begin_rebuild(self, area: int) -> int:
        """Let the words of an area be made again by our rules; the number of this rebuild.

        One that has begun before ends. Refused where areas must have others.
        """
        self._index.flush()
        self._index.forget(area)
        return self._number(
            f"""INSERT INTO areas (area, rules, version, memories, words, rebuild)
                VALUES (:area, {RULES}, {RANDOM}, 0, 0, {RANDOM})
                    ON CONFLICT (area) DO UPDATE
                   SET rules = excluded.rules,
                       version = areas.version + 1,
                       rebuild = excluded.rebuild
             RETURNING rebuild""",
            area=area,
            rules=self._index.rules,
        )

    def portion(self, area: int, after: MemoryId) -> Portion:
        """The next memories of an area whose words are to be made again, and those they have.

        It reads all postings of the area.
        """
        self._take_time()
        ids = self._scalars(
            f"""SELECT m.id
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE s.area = :area AND m.id > :after AND {indexed("m")}
              ORDER BY m.id
                 LIMIT {PORTION}""",
            area=area,
            after=after,
        )
        last = MemoryId(ids[-1]) if len(ids) == PORTION else LAST
        postings = self._execute(
            """SELECT term, memory
                 FROM postings
                WHERE area = :area AND memory > :after AND memory <= :last""",
            area=area,
            after=after,
            last=last,
        )
        return Portion(area=area, after=after, last=last, postings=postings.fetchall())

    def rebuild(self, number: int, portion: Portion) -> bool:
        """Make the words of a portion again; false when the rebuild has ended.

        A memory has at any time the words that it had, or has now; what others have written since
        the portion was read is by our rules.
        """
        area, last = portion.area, portion.last
        self._index.forget(area)
        stands = self._execute(
            """UPDATE areas
                  SET version = version + 1
                WHERE area = :area AND rebuild = :number""",
            area=area,
            number=number,
        )
        if not stands.rowcount:
            return False  # another has begun
        self._index.take_postings(area, portion.postings)
        for documents in self._in_portions(area, portion.after, last):
            self._index.put_in(documents, are_counted=True)
        if last != LAST:
            return True
        self._take_time()
        self._execute(
            f"""UPDATE areas
                   SET rebuild = NULL,
                       memories = ({_MEMORIES}),
                       words = (SELECT coalesce(sum(length), 0)
                                  FROM (SELECT DISTINCT memory, length
                                          FROM postings
                                         WHERE area = :area) its)
                 WHERE area = :area""",
            area=area,
        )
        return False

    def fill(self, area: int) -> None:
        for documents in self._in_portions(area):
            self._index.put_in(documents, are_new=True)

    def rebalance(self) -> bool:
        """Let one project of an oversized group have another; false if none can."""
        groups = Groups(self._connection, self._sql)
        for area, number, others in groups.oversized():
            target = groups.place(group_of(number))
            if target != number and not groups.holds(target, others):
                self._execute(
                    "UPDATE spaces SET partition = :target WHERE area = :area",
                    target=target,
                    area=area,
                )
                return True
        return False

    def _in_portions(
        self, area: int, after: MemoryId = FIRST, last: MemoryId = LAST
    ) -> Iterator[dict[MemoryId, Document]]:
        while some := self._index.documents.in_area(area, after, last, BULK):
            yield dict(some)
            after = some[-1][0]

    def _take_time(self) -> None:
        """Statements of this transaction may read a whole area from now on."""
        self._execute(
            "SELECT set_config('statement_timeout', :longest, TRUE)",
            longest=str(LONGEST // timedelta(milliseconds=1)),
        )


def _by_memory(
    rows: Iterable[tuple[MemoryId, str, int, int]],
) -> Iterator[tuple[MemoryId, dict[str, tuple[int, int]]]]:
    for memory, postings in groupby(rows, itemgetter(0)):
        yield memory, {term: (length, counts) for _, term, length, counts in postings}
