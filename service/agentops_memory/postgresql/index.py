"""SQL that keeps the words of memories in line with their rows."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple, TypeVar

from ..memory.memory import Memory, MemoryId, indexed
from ..memory.rows import tag_tuple
from ..memory.space import (
    GLOBAL_AREA,
    GLOBAL_SCOPE,
    TRAITS,
    UNINDEXED_AREA,
    Space,
    group_of,
    kind_of,
    place_of,
)
from ..memory.table import Connection, Cursor
from ..recall.features import Features
from ..recall.stems import Stems, rules
from ..recall.text import NEIGHBORS, Columns, End, columns, words_of
from ..recall.visibility import Borrowing, Document, Groups, Row, row_number
from .connection import POSTGRESQL
from .postings import FIELDS, Counts, Written, counted

T = TypeVar("T")

MOST_TEXT = 100_000  # characters of contents whose words are put in together


class Entry(NamedTuple):
    """The words of a document: how many, and how often each stem stands in each field."""

    length: int
    stems: dict[str, Counts]


Posting = tuple[int, str, MemoryId]
"""An area, a stem, and a memory that has it."""

Placed = tuple[tuple[MemoryId, Document], Entry]
"""A memory, what the index holds of it, and its words."""

OTHERWISE = """ON CONFLICT (area, term, memory)
    DO UPDATE SET length = excluded.length, counts = excluded.counts"""

BULK = 200  # memories whose words are put in together, unless their texts are long
ROWS = 10_000  # of a statement
PORTION = 400  # memories whose words are made again while others wait: about a second
LONGEST = timedelta(minutes=10)  # of a statement that reads a whole area
FIRST, LAST = MemoryId(0), MemoryId((1 << 63) - 1)  # beyond all ids

RANDOM = "CAST(random() * 1e15 AS BIGINT)"
# Our rules, or NULL where areas must have others.
RULES = f"""(SELECT CASE WHEN count(*) = 0 THEN :rules END
               FROM areas
              WHERE area = {UNINDEXED_AREA} AND rules <> :rules)"""
_MEMORIES = f"""SELECT count(*)
                  FROM spaces s
                  JOIN memories m ON m.space_id = s.id
                 WHERE s.area = :area AND {indexed("m")}"""
DRIFTS = f"""
SELECT area, abs(coalesce(a.memories, 0) - coalesce(m.number, 0)) AS drift
  FROM areas a
  FULL JOIN (SELECT s.area, count(m.id) AS number
               FROM spaces s
               LEFT JOIN memories m ON m.space_id = s.id AND {indexed("m")}
           GROUP BY s.area) m USING (area)
 WHERE area >= {GLOBAL_AREA}"""


class Portion(NamedTuple):
    """Memories of an area, by their ids, and the words that the index has of them."""

    area: int
    after: MemoryId
    last: MemoryId
    postings: Sequence[Posting]


class Index(Borrowing):
    def __init__(self, connection: Connection, features: Features, stems: Stems) -> None:
        super().__init__(connection, POSTGRESQL)
        self._features = features
        self._stems = stems
        self._waiting: list[MemoryId] = []
        self._size = 0
        self._sums: dict[int, list[int]] = {}  # by area, the memories and words to be counted
        self._counted: list[Cursor] = []  # of each count, the areas and their versions
        self._changes: dict[int, list[tuple[Row, Columns, int]]] = {}
        self._erased: set[int] = set()

    def place(self, space: Space) -> tuple[int, int | None]:
        if space.scope == GLOBAL_SCOPE:
            return GLOBAL_AREA, None
        if space.traits.index is None:
            return UNINDEXED_AREA, None
        row = place_of(self._connection, space.project) if space.traits.has_project else None
        return row or (
            self._number("SELECT nextval('area_numbers')"),
            Groups(self._connection, self._sql).number_for(space.traits.index),
        )

    def prepare(self, area: int) -> None:
        """An area is made with its first words."""

    def add(self, memory: Memory, space: int, area: int) -> None:  # noqa: ARG002 - the port's
        if area == UNINDEXED_AREA or memory.is_deleted:
            return
        self._waiting.append(memory.id)
        self._size += len(memory.text.content)
        if len(self._waiting) >= BULK or self._size >= MOST_TEXT:
            self._put_in_waiting()

    def add_all(self, memories: Iterable[tuple[MemoryId, Memory, int, int]]) -> None:
        for id_, memory, space, area in memories:
            self.add(replace(memory, id=id_), space, area)

    def relieve(self, coming: int) -> bool:  # noqa: ARG002 - the port's
        """A commit has all that is due."""
        return False

    def flush(self) -> None:
        """Put in what waits: words are about to be read, or committed."""
        self._put_in_waiting()
        self._count()

    def _put_in_waiting(self) -> None:
        """All but the count, which is for the end: until the commit others wait for its rows."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        for placed in self._with_words(self._of(waiting)):
            self._post(placed, are_new=True)
            self._add_up(placed, sign=1)

    @contextmanager
    def updating(self, memory: MemoryId) -> Iterator[None]:
        self.flush()
        ids = [memory, *self.borrowers(memory)]
        before = self._of(ids)
        yield
        after = self._of(ids)
        self._take_out({id_: it for id_, it in before.items() if after.get(id_) != it})
        self._put_in({id_: it for id_, it in after.items() if before.get(id_) != it})

    @contextmanager
    def moving(self, memories: Sequence[MemoryId]) -> Iterator[None]:
        self.remove(memories)
        yield
        for some in _portions(memories):
            self._put_in(self._of(some))

    def merge_area(self, area: int, partition: int) -> None:  # noqa: ARG002
        self._forget(area)
        # One that is rebuilt stays until that has ended: it may have words that nobody knows.
        self._execute("DELETE FROM areas WHERE area = :area AND rebuild IS NULL", area=area)

    def remove(self, memories: Sequence[MemoryId]) -> None:
        self.flush()
        for some in _portions(memories):
            self._take_out(self._of(some))
        self._count()

    def mark_for_purge(self, memory: MemoryId) -> None:
        """Bytes leave when the database makes room (`VACUUM`), not when we say so."""

    def written(self) -> dict[int, Written | None]:
        """What was written into each area, once it is committed; None for anything else."""
        writes: dict[int, Written | None] = {}
        counted = [row for cursor in self._counted for row in cursor.fetchall()]
        times = Counter(area for area, _ in counted)
        for area, after in counted:  # the last is what stands
            writes[area] = Written(after - times[area], after, self._changes.get(area, ()))
        return writes | dict.fromkeys(self._erased)

    @cached_property
    def rules(self) -> str:
        return rules(self._features)

    def _of(self, ids: Collection[MemoryId]) -> dict[MemoryId, Document]:
        if not ids:
            return {}
        # Each by itself: of few memories the planner would rather read all.
        listed = f"""{self._sql.ids("listed")}
               CROSS JOIN LATERAL (SELECT * FROM memories WHERE id = listed.value OFFSET 0) m"""
        return dict(self._read(listed, "TRUE", "ORDER BY m.id", ids=json.dumps(list(ids))))

    def _in_area(
        self, area: int, after: MemoryId = FIRST, last: MemoryId = LAST
    ) -> Iterator[dict[MemoryId, Document]]:
        """Those of an area's memories with ids up to the last, in the order of ids."""
        condition = "s.area = :area AND m.id > :after AND m.id <= :last"
        while some := dict(
            self._read(
                "memories m",
                condition,
                f"ORDER BY m.id LIMIT {BULK}",
                area=area,
                after=after,
                last=last,
            )
        ):
            yield some
            after = max(some)

    def _read(
        self, memories: str, condition: str, order: str, **values: object
    ) -> Iterator[tuple[MemoryId, Document]]:
        rows = self._execute(
            f"""SELECT m.id, s.area, s.kind, s.project, m.title, m.content, m.tags,
                       ARRAY(SELECT n.content
                               FROM memories n
                              WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                                    AND n.id < m.id AND {indexed("n")}
                           ORDER BY n.id DESC
                              LIMIT {NEIGHBORS})
                  FROM {memories}
                  JOIN spaces s ON s.id = m.space_id
                 WHERE {condition} AND s.area >= {GLOBAL_AREA} AND {indexed("m")}
                 {order}""",
            **values,
        )
        for id_, area, kind, project, title, content, tags, before in rows.fetchall():
            text = words_of(content) if TRAITS[kind_of(kind, project)].is_json else content
            prepared = columns(title, text, tag_tuple(tags), map(End, before[::-1]), self._features)
            yield MemoryId(id_), Document(area, *prepared)

    def _with_words(self, documents: Mapping[MemoryId, Document]) -> Iterator[list[Placed]]:
        """In portions, each of so much text that its words fit into memory."""
        some: list[tuple[MemoryId, Document]] = []
        size = 0
        for number, it in enumerate(documents.items(), start=1):
            some.append(it)
            size += len(it[1].content)
            if size >= MOST_TEXT or number == len(documents):
                texts = [t for _, d in some for t in (d.title, d.content, d.context, d.tags)]
                stems = self._stems.of_texts(texts)
                fields = (stems[at : at + FIELDS] for at in range(0, len(stems), FIELDS))
                entries = (Entry(sum(map(len, each)), counted(each)) for each in fields)
                yield list(zip(some, entries, strict=True))
                some, size = [], 0

    def _put_in(
        self,
        documents: Mapping[MemoryId, Document],
        *,
        are_new: bool = False,
        are_counted: bool = False,
    ) -> None:
        for placed in self._with_words(documents):
            self._post(placed, are_new=are_new)
            if not are_counted:
                self._add_up(placed, sign=1)
        self._count()

    def _post(self, placed: Sequence[Placed], *, are_new: bool) -> None:
        # Of a text that was changed behind the index there are words that nothing took out.
        otherwise = "" if are_new else OTHERWISE
        rows = [
            (it.area, id_, entry.length, some)
            for (id_, it), entry in placed
            for some in _portions(list(entry.stems.items()), ROWS)
        ]
        for few in _portions(rows):
            areas, ids, lengths, stems = zip(*few, strict=True)
            # Each memory's words are one text: to send an array of them takes far longer. The
            # array of a text without any letters has no element, and that is the empty word.
            self._execute(
                f"""INSERT INTO postings (area, term, memory, length, counts)
                    SELECT its.area, coalesce(word.term, ''), its.memory, its.length, word.counts
                      FROM unnest(CAST(:areas AS BIGINT[]), CAST(:ids AS BIGINT[]),
                                  CAST(:lengths AS BIGINT[]), CAST(:terms AS TEXT[]),
                                  CAST(:counts AS TEXT[]))
                           AS its (area, memory, length, terms, counts)
                     CROSS JOIN LATERAL unnest(
                           string_to_array(its.terms, ' '),
                           CAST(string_to_array(its.counts, ' ') AS BIGINT[]))
                           AS word (term, counts)
                    {otherwise}""",
                areas=list(areas),
                ids=list(ids),
                lengths=list(lengths),
                terms=[" ".join([term for term, _ in some]) for some in stems],
                counts=[" ".join([str(counts) for _, counts in some]) for some in stems],
            )

    def _take_out(self, documents: Mapping[MemoryId, Document]) -> None:
        """All but the count, as what was changed is put in again."""
        for placed in self._with_words(documents):
            self._add_up(placed, sign=-1)
            self._take_postings(
                [(it.area, stem, id_) for (id_, it), entry in placed for stem in entry.stems]
            )

    def _take_postings(self, postings: Sequence[Posting]) -> None:
        for gone in _portions(postings, ROWS):
            areas, terms, memories = map(list, zip(*gone, strict=True))
            self._execute(
                """DELETE FROM postings p
                    USING unnest(CAST(:areas AS BIGINT[]), CAST(:terms AS TEXT[]),
                                 CAST(:memories AS BIGINT[])) AS gone (area, term, memory)
                    WHERE p.area = gone.area AND p.term = gone.term AND p.memory = gone.memory""",
                areas=areas,
                terms=terms,
                memories=memories,
            )

    def _forget(self, area: int) -> None:
        """Something else is done to an area: nobody can follow that."""
        self.flush()
        self._erased.add(area)

    def _add_up(self, placed: Sequence[Placed], *, sign: int) -> None:
        for (id_, it), entry in placed:
            sum_ = self._sums.setdefault(it.area, [0, 0])
            sum_[0] += sign
            sum_[1] += sign * entry.length
            texts = Columns(it.title, it.content, it.context, it.tags)
            self._changes.setdefault(it.area, []).append((row_number(it.area, id_), texts, sign))

    def _count(self) -> None:
        """Count memories and words of areas; refused for one that was made by other rules."""
        sums, self._sums = self._sums, {}
        # An area begins with another version than any before, which another process may know. Of
        # other rules it would be NULL, which is refused: nothing has to be read back.
        if sums:
            areas = sorted(sums)
            counted = self._execute(
                f"""INSERT INTO areas (area, rules, version, memories, words)
                   SELECT area, {RULES}, {RANDOM}, memories, words
                     FROM unnest(CAST(:areas AS BIGINT[]), CAST(:memories AS BIGINT[]),
                                 CAST(:words AS BIGINT[])) AS its (area, memories, words)
                       ON CONFLICT (area) DO UPDATE
                      SET version = areas.version + 1,
                          memories = areas.memories + excluded.memories,
                          words = areas.words + excluded.words,
                          rules = CASE WHEN areas.rules = excluded.rules THEN areas.rules END
                RETURNING area, version""",
                rules=self.rules,
                areas=areas,
                memories=[sums[it][0] for it in areas],
                words=[sums[it][1] for it in areas],
            )
            self._counted.append(counted)

    def drifts(self) -> dict[int, int]:
        """By how many each area has more or fewer memories than there are."""
        self._take_time()
        return dict(self._execute(f"{DRIFTS} ORDER BY area").fetchall())

    def unfinished(self) -> list[int]:
        """The areas whose words are being made again by our rules, or were to be."""
        return self._scalars(
            """SELECT area
                 FROM areas
                WHERE rebuild IS NOT NULL AND rules = :rules
             ORDER BY area""",
            rules=self.rules,
        )

    def is_exact(self, area: int) -> bool:
        self.flush()
        self._take_time()
        rows = self._stream(
            """SELECT memory, term, length, counts
                 FROM postings
                WHERE area = :area
             ORDER BY memory""",
            area=area,
        )
        stored = (
            (memory, {term: (length, counts) for _, term, length, counts in postings})
            for memory, postings in groupby(rows, itemgetter(0))
        )
        totals = self._execute(
            "SELECT memories, words FROM areas WHERE area = :area", area=area
        ).fetchone() or (0, 0)
        memories = words = 0
        for documents in self._in_area(area):
            for (id_, _), entry in chain.from_iterable(self._with_words(documents)):
                memories, words = memories + 1, words + entry.length
                terms = {term: (entry.length, counts) for term, counts in entry.stems.items()}
                if terms and next(stored, None) != (id_, terms):
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
            rules=self.rules,
        )

    def take_over(self) -> None:
        """Let all areas be ours: what others' rules have made of them is to be made again.

        From now on who has other rules is refused what it writes.
        """
        self._execute(
            f"""INSERT INTO areas (area, rules, version, memories, words)
                VALUES ({UNINDEXED_AREA}, :rules, 0, 0, 0)
                    ON CONFLICT (area) DO UPDATE SET rules = excluded.rules""",
            rules=self.rules,
        )
        taken = self._scalars(
            f"""UPDATE areas
                   SET rules = :rules, version = version + 1, rebuild = {RANDOM}
                 WHERE rules <> :rules
             RETURNING area""",
            rules=self.rules,
        )
        for area in taken:
            self._forget(area)

    def begin_rebuild(self, area: int) -> int:
        """Let the words of an area be made again by our rules; the number of this rebuild.

        One that has begun before ends. Refused where areas must have others.
        """
        self._forget(area)
        return self._number(
            f"""INSERT INTO areas (area, rules, version, memories, words, rebuild)
                VALUES (:area, {RULES}, {RANDOM}, 0, 0, {RANDOM})
                    ON CONFLICT (area) DO UPDATE
                   SET rules = excluded.rules,
                       version = areas.version + 1,
                       rebuild = excluded.rebuild
             RETURNING rebuild""",
            area=area,
            rules=self.rules,
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
            """SELECT area, term, memory
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
        self._forget(area)
        stands = self._execute(
            """UPDATE areas
                  SET version = version + 1
                WHERE area = :area AND rebuild = :number""",
            area=area,
            number=number,
        )
        if not stands.rowcount:
            return False  # another has begun
        self._take_postings(portion.postings)
        for documents in self._in_area(area, portion.after, last):
            self._put_in(documents, are_counted=True)
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

    def fill(self) -> None:
        """Make the words of all memories, of which there are none yet."""
        for area, _ in self._execute(DRIFTS).fetchall():
            for documents in self._in_area(area):
                self._put_in(documents, are_new=True)

    def rebalance(self) -> bool:
        """Let one project of an oversized group have another; false if none can."""
        groups = Groups(self._connection, self._sql)
        for area, number, others in groups.oversized():
            target = groups.number_for(group_of(number))
            if target != number and not groups.holds(target, others):
                self._execute(
                    "UPDATE spaces SET partition = :target WHERE area = :area",
                    target=target,
                    area=area,
                )
                return True
        return False

    def _take_time(self) -> None:
        """Statements of this transaction may read a whole area from now on."""
        self._execute(
            "SELECT set_config('statement_timeout', :longest, TRUE)",
            longest=str(LONGEST // timedelta(milliseconds=1)),
        )


def _portions(of: Sequence[T], size: int = BULK) -> Iterator[Sequence[T]]:
    for start in range(0, len(of), size):
        yield of[start : start + size]
