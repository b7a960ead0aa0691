"""SQL that keeps the full-text index in line with the memories."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple, TypeVar

from ..memory import space as spaces
from ..memory.memory import Memory, MemoryId, indexed
from ..memory.rows import tag_tuple
from ..memory.table import Connection, Cursor
from ..recall.stems import INDEX_RULES, Stems
from ..recall.text import NEIGHBORS, End, columns, words_of
from ..recall.visibility import Borrowing, Document, Groups
from .connection import POSTGRESQL
from .postings import FIELDS, MAX_APPLIED, WordCounts, Written, packed_counts

T = TypeVar("T")

BATCH_CHARS = 100_000  # characters of contents that are indexed in one batch


Posting = tuple[int, str, MemoryId]
"""An area, a stem, and a memory that has the stem."""

DocumentWords = tuple[tuple[MemoryId, Document], WordCounts]
"""A memory, its document and its words."""

ON_CONFLICT = """ON CONFLICT (area, term, memory)
    DO UPDATE SET length = excluded.length, counts = excluded.counts"""

BATCH = 200  # memories that are indexed together, unless their texts are long
MAX_ROWS = 10_000  # most postings of one statement
PORTION = 400  # memories that are reindexed in one transaction: about a second
AREA_TIMEOUT = timedelta(minutes=10)  # for a statement that reads a whole area
FIRST, LAST = MemoryId(0), MemoryId((1 << 63) - 1)  # below and above all ids

RANDOM = "CAST(random() * 1e15 AS BIGINT)"
# Our rules; NULL, which the table rejects, if the index belongs to other rules.
RULES = f"""(SELECT CASE WHEN count(*) = 0 THEN :rules END
               FROM areas
              WHERE area = {spaces.UNINDEXED_AREA} AND rules <> :rules)"""
DRIFTS = f"""
SELECT area, abs(coalesce(a.memories, 0) - coalesce(m.number, 0)) AS drift
  FROM areas a
  FULL JOIN (SELECT s.area, count(m.id) AS number
               FROM spaces s
               LEFT JOIN memories m ON m.space_id = s.id AND {indexed("m")}
           GROUP BY s.area) m USING (area)
 WHERE area >= {spaces.GLOBAL_AREA}"""


class Portion(NamedTuple):
    """The memories of an area with after < id <= last, and their stored postings."""

    area: int
    after: MemoryId
    last: MemoryId
    postings: Sequence[Posting]


class Index(Borrowing, Groups):
    def __init__(self, connection: Connection, stems: Stems) -> None:
        super().__init__(connection, POSTGRESQL)
        self._stems = stems
        self._waiting: list[MemoryId] = []
        self._waiting_size = 0  # characters of contents
        self._count_changes: dict[int, list[int]] = {}  # by area, changes of its memories and words
        self._counted: list[Cursor] = []  # per count, a cursor of (area, new version)
        self._added: dict[int, list[tuple[MemoryId, WordCounts]]] = {}
        self._added_stems = 0
        self._invalidated: set[int] = set()  # areas with changes that cached ones cannot apply

    def new_place(self, group: spaces.IndexGroup) -> tuple[int, int]:
        return self._number("SELECT nextval('area_numbers')"), self.number_for(group)

    def prepare(self, area: int) -> None:
        """Do nothing: an area is created with its first words."""

    def add_all(self, memories: Iterable[tuple[MemoryId, Memory, int, int]]) -> None:
        for id_, memory, _, area in memories:
            if area == spaces.UNINDEXED_AREA or memory.deleted_at:
                continue
            self._waiting.append(id_)
            self._waiting_size += len(memory.text.content)
            if len(self._waiting) >= BATCH or self._waiting_size >= BATCH_CHARS:
                self.index_waiting()

    def relieve(self, coming: int, *, is_brief: bool = True) -> bool:  # noqa: ARG002 - the port's
        """Do nothing: each commit indexes all of its memories."""
        return False

    def flush(self) -> None:
        """Index waiting memories, as the index is about to be read or committed."""
        self.index_waiting()
        self._update_counts()

    def index_waiting(self) -> None:
        waiting, self._waiting, self._waiting_size = self._waiting, [], 0
        self._add_documents(self._documents(waiting), are_new=True)

    @contextmanager
    def updating(self, memory: MemoryId) -> Iterator[None]:
        self.flush()
        ids = [memory, *self.borrowers(memory)]
        before = self._documents(ids)
        yield
        after = self._documents(ids)
        self._remove_documents({id_: it for id_, it in before.items() if after.get(id_) != it})
        self._add_documents({id_: it for id_, it in after.items() if before.get(id_) != it})

    @contextmanager
    def moving(self, memories: Sequence[MemoryId]) -> Iterator[None]:
        self.remove(memories)
        yield
        for some in _batches(memories):
            self._add_documents(self._documents(some))

    def merge_area(self, area: int, partition: int) -> None:  # noqa: ARG002
        self._invalidate(area)
        # An area stays until its rebuild ends, as it may have postings of unknown memories.
        self._execute("DELETE FROM areas WHERE area = :area AND rebuild IS NULL", area=area)

    def remove(self, memories: Sequence[MemoryId]) -> None:
        self.flush()
        for some in _batches(memories):
            self._remove_documents(self._documents(some))

    def mark_for_purge(self, memory: MemoryId) -> None:
        """Do nothing: the bytes leave with `VACUUM`."""

    def written(self) -> dict[int, Written | None]:
        """Return each committed change of an area, or None if a cached area cannot apply it."""
        writes: dict[int, Written | None] = {}
        counted = [row for cursor in self._counted for row in cursor.fetchall()]
        increments = Counter(area for area, _ in counted)
        for area, after in counted:  # the last version wins
            writes[area] = Written(after - increments[area], after, self._added.get(area, ()))
        return writes | dict.fromkeys(self._invalidated)

    def _documents(self, ids: Collection[MemoryId]) -> dict[MemoryId, Document]:
        if not ids:
            return {}
        # LATERAL, as the planner would scan the whole table for a few ids.
        listed = f"""{self._sql.ids("listed")}
               CROSS JOIN LATERAL (SELECT * FROM memories WHERE id = listed.value OFFSET 0) m"""
        return dict(self._read(listed, "TRUE", "ORDER BY m.id", ids=json.dumps(list(ids))))

    def _in_area(
        self, area: int, after: MemoryId = FIRST, last: MemoryId = LAST
    ) -> Iterator[dict[MemoryId, Document]]:
        """Yield the documents of an area with after < id <= last, in batches by id."""
        values, order = {"area": area, "last": last}, f"ORDER BY m.id LIMIT {BATCH}"
        condition = "s.area = :area AND m.id > :after AND m.id <= :last"
        while some := dict(self._read("memories m", condition, order, after=after, **values)):
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
                 WHERE {condition} AND s.area >= {spaces.GLOBAL_AREA} AND {indexed("m")}
                 {order}""",
            **values,
        )
        for id_, area, kind, project, title, content, tags, before in rows.fetchall():
            traits = spaces.kind_of(kind, project).traits
            text = words_of(content) if traits.is_json else content
            prepared = columns(title, text, tag_tuple(tags), map(End.of, before[::-1]))
            yield MemoryId(id_), Document(area, *prepared)

    def _with_words(self, documents: Mapping[MemoryId, Document]) -> Iterator[list[DocumentWords]]:
        """Yield documents with their words, in batches limited in characters."""
        some: list[tuple[MemoryId, Document]] = []
        size = 0
        for number, it in enumerate(documents.items(), start=1):
            some.append(it)
            size += len(it[1].content)
            if size >= BATCH_CHARS or number == len(documents):
                texts = [t for _, d in some for t in (d.title, d.content, d.context, d.tags)]
                stems = self._stems.of_texts(texts)
                fields = (stems[at : at + FIELDS] for at in range(0, len(stems), FIELDS))
                counts = (WordCounts(sum(map(len, each)), packed_counts(each)) for each in fields)
                yield list(zip(some, counts, strict=True))
                some, size = [], 0

    def _add_documents(
        self, documents: Mapping[MemoryId, Document], *, are_new: bool = False,
        are_counted: bool = False,
    ) -> None:  # fmt: skip
        """Add documents, but count later: counted areas stay locked until the commit."""
        for batch in self._with_words(documents):
            self._insert_postings(batch, are_new=are_new)
            if not are_counted:
                self._sum_counts(batch, sign=1)

    def _insert_postings(self, batch: Sequence[DocumentWords], *, are_new: bool) -> None:
        # A text that was changed without the index has left stale postings.
        on_conflict = "" if are_new else ON_CONFLICT
        rows = [
            (it.area, id_, words.length, some)
            for (id_, it), words in batch
            for some in _batches(list(words.stems.items()), MAX_ROWS)
        ]
        for few in _batches(rows):
            areas, ids, lengths, stems = zip(*few, strict=True)
            # The terms of a memory are sent as one text, which is far faster than an array. An
            # empty text splits into no elements, so `coalesce` restores the empty term.
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
                    {on_conflict}""",
                areas=list(areas), ids=list(ids), lengths=list(lengths),
                terms=[" ".join([term for term, _ in some]) for some in stems],
                counts=[" ".join([str(counts) for _, counts in some]) for some in stems],
            )  # fmt: skip

    def _remove_documents(self, documents: Mapping[MemoryId, Document]) -> None:
        """Remove documents, but count later, as they may be added again."""
        for batch in self._with_words(documents):
            self._sum_counts(batch, sign=-1)
            self._delete_postings(
                [(it.area, stem, id_) for (id_, it), words in batch for stem in words.stems]
            )

    def _delete_postings(self, postings: Sequence[Posting]) -> None:
        for gone in _batches(postings, MAX_ROWS):
            areas, terms, memories = map(list, zip(*gone, strict=True))
            self._execute(
                """DELETE FROM postings p
                    USING unnest(CAST(:areas AS BIGINT[]), CAST(:terms AS TEXT[]),
                                 CAST(:memories AS BIGINT[])) AS gone (area, term, memory)
                    WHERE p.area = gone.area AND p.term = gone.term AND p.memory = gone.memory""",
                areas=areas, terms=terms, memories=memories,
            )  # fmt: skip

    def _invalidate(self, area: int) -> None:
        """Have cached copies of an area dropped, as they cannot follow the change."""
        self.flush()
        self._invalidated.add(area)

    def _sum_counts(self, batch: Sequence[DocumentWords], *, sign: int) -> None:
        for (id_, it), words in batch:
            change = self._count_changes.setdefault(it.area, [0, 0])
            change[0] += sign
            change[1] += sign * words.length
            self._added_stems += len(words.stems)
            if sign < 0 or self._added_stems > MAX_APPLIED:
                self._invalidated.add(it.area)
            else:
                self._added.setdefault(it.area, []).append((id_, words))

    def _update_counts(self) -> None:
        """Update the areas' counts and versions; fail for an area built by other rules."""
        changes, self._count_changes = self._count_changes, {}
        # A new area starts at a random version, so that no process takes it for an area that it
        # has cached. Under other rules `rules` would be NULL, which the table rejects.
        if changes:
            areas = sorted(changes)
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
                rules=INDEX_RULES, areas=areas, memories=[changes[it][0] for it in areas],
                words=[changes[it][1] for it in areas],
            )  # fmt: skip
            self._counted.append(counted)

    def drifts(self) -> dict[int, int]:
        """Return by area the difference between its counted and its actual memories."""
        self._extend_timeout()
        return dict(self._execute(f"{DRIFTS} ORDER BY area").fetchall())

    def is_exact(self, area: int) -> bool:
        self.flush()
        self._extend_timeout()
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
            for (id_, _), own in chain.from_iterable(self._with_words(documents)):
                memories, words = memories + 1, words + own.length
                terms = {term: (own.length, counts) for term, counts in own.stems.items()}
                if terms and next(stored, None) != (id_, terms):
                    return False
        return next(stored, None) is None and tuple(totals) == (memories, words)

    @property
    def is_current(self) -> bool:
        """Whether the index is empty, or belongs to our rules without an unfinished rebuild."""
        return self._exists(
            f"""SELECT 1
                  FROM areas
                HAVING coalesce(bool_and(rules = :rules AND rebuild IS NULL)
                                AND bool_or(area = {spaces.UNINDEXED_AREA}), TRUE)""",
            rules=INDEX_RULES,
        )

    def take_over(self) -> list[int]:
        """Claim the index for our rules, and return the areas that must be rebuilt by them.

        From now on, writes of processes with other rules fail.
        """
        self._execute(
            f"""INSERT INTO areas (area, rules, version, memories, words)
                VALUES ({spaces.UNINDEXED_AREA}, :rules, 0, 0, 0)
                    ON CONFLICT (area) DO UPDATE SET rules = excluded.rules""",
            rules=INDEX_RULES,
        )
        claimed = self._scalars(
            f"""UPDATE areas
                   SET rules = :rules, version = version + 1, rebuild = {RANDOM}
                 WHERE rules <> :rules
             RETURNING area""",
            rules=INDEX_RULES,
        )
        for area in claimed:
            self._invalidate(area)
        return self._scalars("SELECT area FROM areas WHERE rebuild IS NOT NULL ORDER BY area")

    def begin_rebuild(self, area: int) -> int:
        """Start to rebuild an area by our rules, and return the number of this rebuild.

        An earlier rebuild ends. Fails if the index belongs to other rules.
        """
        self._invalidate(area)
        return self._number(
            f"""INSERT INTO areas (area, rules, version, memories, words, rebuild)
                VALUES (:area, {RULES}, {RANDOM}, 0, 0, {RANDOM})
                    ON CONFLICT (area) DO UPDATE
                   SET rules = excluded.rules,
                       version = areas.version + 1,
                       rebuild = excluded.rebuild
             RETURNING rebuild""",
            area=area, rules=INDEX_RULES,
        )  # fmt: skip

    def portion(self, area: int, after: MemoryId) -> Portion:
        """Return the next portion to reindex, after reading all postings of the area."""
        self._extend_timeout()
        ids = self._scalars(
            f"""SELECT m.id
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE s.area = :area AND m.id > :after AND {indexed("m")}
              ORDER BY m.id
                 LIMIT {PORTION}""",
            area=area, after=after,
        )  # fmt: skip
        last = MemoryId(ids[-1]) if len(ids) == PORTION else LAST
        postings = self._execute(
            """SELECT area, term, memory
                 FROM postings
                WHERE area = :area AND memory > :after AND memory <= :last""",
            area=area, after=after, last=last,
        )  # fmt: skip
        return Portion(area=area, after=after, last=last, postings=postings.fetchall())

    def rebuild(self, number: int, portion: Portion) -> bool:
        """Reindex a portion; return False when the rebuild has ended.

        At any time the index has a memory's old or new words. Memories that others have indexed
        since the portion was read follow our rules.
        """
        area, last = portion.area, portion.last
        self._invalidate(area)
        current = self._execute(
            """UPDATE areas
                  SET version = version + 1
                WHERE area = :area AND rebuild = :number""",
            area=area, number=number,
        )  # fmt: skip
        if not current.rowcount:
            return False  # a later rebuild has begun
        self._delete_postings(portion.postings)
        for documents in self._in_area(area, portion.after, last):
            self._add_documents(documents, are_counted=True)
        if last != LAST:
            return True
        self._extend_timeout()
        self._execute(
            f"""UPDATE areas
                   SET rebuild = NULL,
                       memories = (SELECT count(*)
                                     FROM spaces s
                                     JOIN memories m ON m.space_id = s.id
                                    WHERE s.area = :area AND {indexed("m")}),
                       words = (SELECT coalesce(sum(length), 0)
                                  FROM (SELECT DISTINCT memory, length
                                          FROM postings
                                         WHERE area = :area) its)
                 WHERE area = :area""",
            area=area,
        )
        return False

    def fill(self) -> None:
        """Index all memories; the index must be empty."""
        for area, _ in self._execute(DRIFTS).fetchall():
            for documents in self._in_area(area):
                self._add_documents(documents, are_new=True)
                self._update_counts()

    def rebalance(self) -> bool:
        """Move one project out of an oversized group; return False if none can be moved."""
        for area, number, others in self.oversized():
            target = self.number_for(spaces.group_of(number))
            if target != number and not self.holds(target, others):
                self._update("spaces", "area", {"area": area, "partition": target})
                return True
        return False

    def _extend_timeout(self) -> None:
        """Let the next statements of this transaction take as long as reading an area does."""
        self._execute(
            "SELECT set_config('statement_timeout', :longest, TRUE)",
            longest=str(AREA_TIMEOUT // timedelta(milliseconds=1)),
        )


def _batches(items: Sequence[T], size: int = BATCH) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
