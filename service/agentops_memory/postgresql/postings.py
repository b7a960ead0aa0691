"""Stored postings: the counts of each stem in each memory; and areas of them cached in memory.

A reader gets cached areas only at the versions of its snapshot. Commits of this process are
applied to them; after a commit of another process, readers use the stored postings.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate, chain
from math import inf
from typing import NamedTuple

from ..errors import TimedOut
from ..light import dataclass, field
from ..memory import search as bm25
from ..memory.memory import MemoryId
from ..memory.space import GLOBAL_AREA, IndexGroup, group_of
from ..memory.table import Connection, Table
from ..recall.area import Area, Row, drafted
from ..recall.cache import IndexCache, InMemory
from ..recall.group import CorpusStatistics
from ..recall.query import Term
from ..recall.search import FoundWords
from ..recall.stems import COUNT, Entry, Vocabulary, entry_with
from ..recall.visibility import IndexQuery
from .connection import POSTGRESQL

Counts = int
"""A stem's counts in title, content, context and tags, each in its own bits of a BIGINT."""

TermStems = tuple[str, ...]
"""The stems of a term; a memory that has the term has all of them."""

FIELDS = len(bm25.Field)
BITS = (14, 20, 14, 15)  # of each field, enough for its longest text
SHIFTS = tuple(accumulate(BITS[:-1], initial=0))
MAX_COUNTS = tuple((1 << bits) - 1 for bits in BITS)
OWN_BITS = sum(
    most << shift
    for it, most, shift in zip(bm25.Field, MAX_COUNTS, SHIFTS, strict=True)
    if it is not bm25.Field.CONTEXT
)  # the bits of a memory's own words, without its context

MAX_TERM_BYTES = 1_500  # longer stems are shortened, as index keys are limited
SAFE_LENGTH = MAX_TERM_BYTES // 4  # characters, each at most 4 bytes


def packed_counts(fields: Sequence[Sequence[str]]) -> dict[str, Counts]:
    """Return the stored counts of the stems of each field, at most MAX_COUNTS stems of a field."""
    counts: dict[str, Counts] = {}
    for stems, most, shift in zip(fields, MAX_COUNTS, SHIFTS, strict=True):
        one = 1 << shift
        for stem in stems[:most]:
            counts[stem] = counts.get(stem, 0) + one
    for stem in [it for it in counts if len(it) > SAFE_LENGTH]:
        counts[stored_term(stem)] = counts.pop(stem)
    return counts


@lru_cache(65_536)
def unpacked(counts: Counts) -> tuple[int, ...]:
    return tuple(counts >> shift & most for shift, most in zip(SHIFTS, MAX_COUNTS, strict=True))


def stored_term(stem: str) -> str:
    """Return the stem, or a beginning and a digest of one too long for an index key."""
    if len(stem) <= SAFE_LENGTH or len(encoded := stem.encode()) <= MAX_TERM_BYTES:
        return stem
    return f"{encoded[:1000].decode(errors='ignore')}\x02{sha256(encoded).hexdigest()}"


class WordCounts(NamedTuple):
    """A memory's length in words, and the counts of each stem."""

    length: int
    stems: dict[str, Counts]

    @property
    def entry(self) -> Entry:
        """The same in the form of cached areas."""
        return entry_with({stem: _repacked(counts) for stem, counts in self.stems.items()})


MemoryCounts = Mapping[MemoryId, Counts]
"""A term's counts in each memory that has it."""

DEADLINE_CHECK_ROWS = 10_000  # rows between two checks
LAST_CHARACTER = "\U0010ffff"  # sorts after all characters of stems
HAS_STEM = "term = ANY(CAST(:stems AS TEXT[]))"
HAS_PREFIX = "term >= :prefix AND term < :end"
MAX_LISTED = 2  # areas that are listed one by one in a statement


class Postings(Table):
    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, POSTGRESQL)
        self.deadline = inf  # on the monotonic clock, for processing rows

    def _check_deadline(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimedOut("The search took too long.")

    def of(
        self, areas: Sequence[int], condition: str, **values: object
    ) -> tuple[dict[str, dict[MemoryId, Counts]], dict[MemoryId, int]]:
        """Return the counts by stem and memory under a condition, and the lengths of memories."""
        postings: dict[str, dict[MemoryId, Counts]] = {}
        lengths: dict[MemoryId, int] = {}
        where, numbers = in_areas(areas)
        rows = self._execute(
            f"SELECT term, memory, length, counts FROM postings WHERE {where} AND {condition}",
            **values, **numbers,
        )  # fmt: skip
        for number, (term, memory, length, counts) in enumerate(rows.fetchall()):
            if not number % DEADLINE_CHECK_ROWS:
                self._check_deadline()
            postings.setdefault(term, {})[memory] = counts
            lengths[memory] = length
        self._check_deadline()
        return postings, lengths

    def starting(
        self, areas: Sequence[int], prefixes: Sequence[str], *, letters: int | None = None
    ) -> list[str]:
        """Return the prefixes, and the stems of the areas that begin with any of them.

        With `letters`, return only one stem for each sequence of that many letters after a prefix.
        The index is read from stem to stem, as it has many more postings than stems.
        """
        after = "next.term"
        if letters is not None:
            after = f"""CASE WHEN next.term = its.prefix THEN next.term
                             ELSE left(next.term, length(its.prefix) + {letters}) || :last END"""
        return self._scalars(
            f"""SELECT DISTINCT read.term
                  FROM unnest(CAST(:prefixes AS TEXT[])) AS its (prefix)
                 CROSS JOIN unnest(CAST(:areas AS BIGINT[])) AS searched (area)
                 CROSS JOIN LATERAL (
                       WITH RECURSIVE next (term) AS (
                           SELECT its.prefix COLLATE "C"
                            UNION ALL
                           SELECT (SELECT min(p.term)
                                     FROM postings p
                                    WHERE p.area = searched.area AND p.term > {after}
                                          AND p.term < its.prefix || :last)
                             FROM next
                            WHERE next.term IS NOT NULL)
                       SELECT term FROM next) read
                 WHERE read.term IS NOT NULL""",
            prefixes=prefixes, areas=areas, last=LAST_CHARACTER,
        )  # fmt: skip

    def areas(self, number: int) -> list[tuple[int, int, int, int]]:
        """Return (area, version, memories, words) of each area in the statistics of a group."""
        rows = self._execute(
            f"""SELECT area, version, memories, words
                  FROM areas
                 WHERE {_in_group(number)}""",
            number=number,
        )
        return rows.fetchall()

    def memories(self, areas: Sequence[int]) -> int:
        where, values = in_areas(areas)
        return self._number(f"SELECT coalesce(sum(memories), 0) FROM areas WHERE {where}", **values)

    def document_counts(self, number: int, stems: Iterable[str], *, own: bool) -> dict[str, int]:
        """Count the memories of a group with each stem, if `own` only in their own words."""
        rows = self._execute(
            f"""SELECT term, count(*)
                  FROM postings
                 WHERE {_in_group(number, own=own)} AND {HAS_STEM}
              GROUP BY term""",
            number=number, stems=list(stems),
        )  # fmt: skip
        return dict(rows.fetchall())

    def count(
        self, number: int, condition: str, *, own: bool, least: int = 1, **values: object
    ) -> int:
        """Count the memories of a group with at least `least` stems that meet a condition."""
        return self._number(
            f"""SELECT count(*)
                  FROM (SELECT memory
                          FROM postings
                         WHERE {_in_group(number, own=own)} AND {condition}
                      GROUP BY memory
                        HAVING count(*) >= :least) its""",
            number=number, least=least, **values,
        )  # fmt: skip


def in_areas(areas: Sequence[int]) -> tuple[str, dict[str, object]]:
    """Return a condition that the column `area` is one of these, and its parameters.

    The planner assumes ten elements of an array, and plans a statement again for each shorter one.
    """
    if not 1 <= len(areas) <= MAX_LISTED:
        return "area = ANY(CAST(:areas AS BIGINT[]))", {"areas": list(areas)}
    values: dict[str, object] = {f"area_{at}": area for at, area in enumerate(areas)}
    return f"area IN ({', '.join(f':{it}' for it in values)})", values


def _in_group(number: int, *, own: bool = False) -> str:
    """Return a condition on the areas of the group `:number`, if `own` also on own words."""
    areas = f"SELECT area FROM spaces WHERE partition = :number AND area > {GLOBAL_AREA}"
    if group_of(number) is IndexGroup.PROJECTS:
        areas += f" UNION SELECT {GLOBAL_AREA}"
    return f"area IN ({areas})" + f" AND counts & {OWN_BITS} <> 0" * own


MAX_KNOWN_STEMS = 200_000  # of a tenant, whose counts are cached

KnownCounts = dict[tuple[int, bool], tuple[Mapping[int, int], dict[str, int]]]
"""By group, for all words or own words: area versions, and how many memories have each stem.

The counts are valid while the areas of the group have these versions. Any thread may use them.
"""


class GroupStatistics(CorpusStatistics):
    """Statistics of a group from the stored index; stems have the numbers of `cached`."""

    def __init__(self, postings: Postings, number: int, cached: "IndexMemory") -> None:
        self._postings = postings
        self._number = number
        self._known = cached.counts
        self._vocabulary = cached.vocabulary
        rows = postings.areas(number)
        self.versions = {area: version for area, version, _, _ in rows}
        self.totals = bm25.Totals.of(
            sum(memories for _, _, memories, _ in rows), sum(words for _, _, _, words in rows)
        )

    def idf(self, stem: int, *, own: bool) -> float:
        text = self._vocabulary.text_of(stem)
        return self.totals.idf(self.document_counts([text], own=own)[text])

    def prepare(self, stems: Collection[int]) -> None:
        self.document_counts(map(self._vocabulary.text_of, stems), own=False)

    def document_counts(self, stems: Iterable[str], *, own: bool) -> Mapping[str, int]:
        """Count the memories of the group with each stem, if `own` only in their own words."""
        versions, known = self._known.get((self._number, own), (None, {}))
        if versions != self.versions:
            known = {}
        required = set(stems)
        if missing := required - known.keys():
            read = self._postings.document_counts(self._number, missing, own=own)
            known.update({stem: read.get(stem, 0) for stem in missing})
            if sum(len(it) for _, it in list(self._known.values())) > MAX_KNOWN_STEMS:
                self._known.clear()
            self._known[self._number, own] = self.versions, known
        return {stem: known[stem] for stem in required}

    def of_terms(self, stems_of: Mapping[Term, TermStems], *, own: bool) -> dict[Term, int]:
        """Count the memories of the group with each term: with all its stems, or its prefix."""
        single = {term: it[0] for term, it in stems_of.items() if len(it) == 1 and not term.starts}
        known = self.document_counts(single.values(), own=own)
        counts, count = {term: known[it] for term, it in single.items()}, self._postings.count
        for term, stems in stems_of.items():
            if term.starts and len(stems) == 1:
                prefix, end = stems[0], f"{stems[0]}{LAST_CHARACTER}"
                counts[term] = count(self._number, HAS_PREFIX, own=own, prefix=prefix, end=end)
            elif term not in single:
                every = list(set(stems))
                counts[term] = count(self._number, HAS_STEM, own=own, least=len(every), stems=every)
        return counts


class StoredWords(FoundWords):
    """The postings of a query's terms in areas of a group, for one reader.

    `stems_of` has the stems of each term. Without `statistics`, those of these areas are used.
    """

    def __init__(
        self, postings: Postings, query: IndexQuery, areas: Sequence[int],
        stems_of: Mapping[Term, TermStems], statistics: GroupStatistics | None,
    ) -> None:  # fmt: skip
        stems = {stem for term, it in stems_of.items() if not term.starts for stem in it}
        of_stems, lengths = postings.of(areas, HAS_STEM, stems=list(stems))
        self.counts: dict[Term, MemoryCounts] = {}
        for term, it in stems_of.items():
            if term.starts and len(it) == 1:
                of_each, more = postings.of(
                    areas, HAS_PREFIX, prefix=it[0], end=f"{it[0]}{LAST_CHARACTER}"
                )
                self.counts[term] = _sums(of_each.values())
                lengths |= more
            else:
                self.counts[term] = _of_every_stem([of_stems.get(stem, {}) for stem in it])
        frequencies = {term: _frequencies(it, query) for term, it in self.counts.items()}
        if statistics is None:
            document_counts = {term: len(it) for term, it in frequencies.items()}
            totals = bm25.Totals.alone(postings.memories(areas))
        else:
            stored = {term: stems_of[term] for term, it in frequencies.items() if it}
            document_counts, totals = statistics.of_terms(stored, own=query.own), statistics.totals
        super().__init__(totals, frequencies, document_counts, lengths)


def of_fields(counts: Counts, *, own: bool) -> tuple[int, ...]:
    """Return a stem's count in each field, with `own` without the context."""
    return unpacked(counts & OWN_BITS if own else counts)


def _frequencies(memories: MemoryCounts, query: IndexQuery) -> dict[MemoryId, float]:
    """Return a term's weighted frequency in each memory, leaving out zeros."""

    def weighed(counts: Counts) -> float:
        fields = of_fields(counts, own=query.own)
        if not query.visible.is_alone:
            return bm25.frequency(fields, bm25.WEIGHTS)
        title, content, _, tags = fields
        return bm25.NAMED * bool(title or tags) + bm25.SAID * bool(content)

    by_counts = {counts: weighed(counts) for counts in set(memories.values())}
    return {memory: it for memory, counts in memories.items() if (it := by_counts[counts])}


def _sums(of_each: Iterable[MemoryCounts]) -> MemoryCounts:
    sums: dict[MemoryId, Counts] = {}
    for memory, counts in chain.from_iterable(it.items() for it in of_each):
        sums[memory] = sums.get(memory, 0) + counts
    return sums


def _of_every_stem(of_stems: Sequence[MemoryCounts]) -> MemoryCounts:
    if len(of_stems) == 1:
        return of_stems[0]
    first, *others = of_stems or [{}]
    return {it: counts for it, counts in first.items() if all(it in other for other in others)}


MAX_APPLIED = 20_000  # stems of a transaction, to cached areas; imports write more


class Written(NamedTuple):
    """The memories that a transaction added to an area."""

    before: int  # the area's version
    after: int
    added: Sequence[tuple[MemoryId, WordCounts]]


@dataclass(slots=True)
class _CachedArea:
    area: Area
    version: int
    used_at: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        return self.area.size


class IndexMemory(InMemory[_CachedArea]):
    """The areas of a tenant that this process has cached. Any thread may use it."""

    def __init__(self, cache: IndexCache | None) -> None:
        # The vocabulary has no forms: corrections are looked up by SQL.
        super().__init__(cache or IndexCache(0), Vocabulary())
        self.counts: KnownCounts = {}

    def forget(self) -> None:
        """Drop everything: a promoted standby can lack commits, and reuse their versions."""
        with self.lock:
            for number in list(self.parts):
                self._drop(number)
        self.counts = {}

    @contextmanager
    def of(self, areas: Sequence[int], versions: Mapping[int, int]) -> Iterator[list[Area] | None]:
        """Yield the areas that have words, at these versions, or None unless all are cached."""
        if self.is_disabled:
            yield None
            return
        with self.lock:
            loaded = {it: self.parts.get(it) for it in areas if it in versions}
            current = [it for n, it in loaded.items() if it and it.version == versions[n]]
            if len(current) == len(loaded):
                for it in current:
                    it.used_at = time.monotonic()
                yield [it.area for it in current]
                return
            for number, area in loaded.items():
                if area is None or area.version < versions[number]:
                    self.queue.request(number)
        yield None

    def apply(self, writes: Mapping[int, Written | None]) -> None:
        """Apply a commit to the cached areas; drop those that cannot follow it, such as None."""
        with self.lock:
            for number, written in writes.items():
                loaded = self.parts.get(number)
                if loaded is None:
                    continue
                if written is None or written.before != loaded.version:
                    self._drop(number)
                    continue
                for memory, words in written.added:
                    loaded.area.add(_row(memory), words.entry, self.vocabulary)
                loaded.version = written.after

    def load(self, connection: Connection, number: int) -> None:
        """Cache an area as it is stored."""
        row = connection.execute(
            "SELECT version FROM areas WHERE area = :area", {"area": number}
        ).fetchone()
        if row is None:
            return
        area = drafted(number, _rows(connection, number))
        with self.lock:
            self._drop(number)
            area.number_all(self.vocabulary)
            self.parts[number] = _CachedArea(area, row[0])
        self.cache.make_room()

    def _drop(self, number: int) -> int:
        loaded = self.parts.pop(number, None)
        if loaded is None:
            return 0
        self.vocabulary.remove(loaded.area.stem_numbers())
        return loaded.area.size


def _rows(connection: Connection, area: int) -> Iterator[tuple[Row, Entry]]:
    rows = connection.execute(
        """SELECT memory, array_agg(term), array_agg(counts)
             FROM postings
            WHERE area = :area
         GROUP BY memory
         ORDER BY memory""",
        {"area": area},
    )
    for memory, terms, counts in rows:
        packed = map(_repacked, counts)
        yield _row(MemoryId(memory)), entry_with(dict(zip(terms, packed, strict=True)))


def _row(memory: MemoryId) -> Row:
    """Return a row with only its id, as sessions and expiries are read from the tables."""
    return Row(memory, 0, None, 0)


@lru_cache(65_536)
def _repacked(counts: Counts) -> int:
    return sum(count << COUNT * field for field, count in enumerate(unpacked(counts)))
