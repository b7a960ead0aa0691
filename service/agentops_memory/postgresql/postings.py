"""Postings, where each stem is and how often, as rows; and areas of them in memory.

A reader gets an area as of its snapshot, or nothing. What this process commits is handed over;
a version that another process has made is not there, and postings answer.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate, chain
from math import inf
from typing import NamedTuple

from ..errors import TimedOut
from ..light import dataclass, field
from ..memory.memory import MemoryId
from ..memory.search import (
    NAMED,
    PRIOR_MEMORIES,
    PRIOR_WORDS,
    SAID,
    Field,
    Totals,
    frequency,
    weights_of,
)
from ..memory.space import GLOBAL_AREA, IndexGroup, group_of
from ..memory.table import Connection, Table
from ..recall.area import Area, Row, drafted
from ..recall.cache import IndexCache, InMemory
from ..recall.features import Feature, Features
from ..recall.group import CorpusStatistics, Weights
from ..recall.query import Term
from ..recall.search import FoundWords
from ..recall.stems import COUNT, MOST_CODES, Entry, Stems, Vocabulary
from ..recall.text import Columns
from ..recall.visibility import IndexQuery, memory_of
from .connection import POSTGRESQL

Counts = int
"""How often a stem stands in title, content, context and tags, each in its bits of a BIGINT."""

Stem = tuple[str, ...]
"""What a term is looked for by: its stem, or several that all have to be there."""

FIELDS = len(Field)
BITS = (14, 20, 14, 15)  # of each field: more than the longest one has words
SHIFTS = tuple(accumulate(BITS[:-1], initial=0))
MOST = tuple((1 << bits) - 1 for bits in BITS)
OWN = sum(
    most << shift
    for it, most, shift in zip(Field, MOST, SHIFTS, strict=True)
    if it is not Field.CONTEXT
)  # the bits of a memory's own words

LONGEST = 1_500  # bytes of a stem that a key of an index holds
SURE = LONGEST // 4  # characters that are never more bytes


def counted(fields: Sequence[Sequence[str]]) -> dict[str, Counts]:
    """How often each stem stands in each field, as it is stored; no field has more than MOST."""
    counts: dict[str, Counts] = {}
    for stems, most, shift in zip(fields, MOST, SHIFTS, strict=True):
        once = 1 << shift
        for stem in stems[:most]:
            counts[stem] = counts.get(stem, 0) + once
    for stem in [it for it in counts if len(it) > SURE]:
        counts[stored_term(stem)] = counts.pop(stem)
    return counts


@lru_cache(65_536)
def unpacked(counts: Counts) -> tuple[int, ...]:
    return tuple(counts >> shift & most for shift, most in zip(SHIFTS, MOST, strict=True))


def stored_term(stem: str) -> str:
    """The stem; of one that no key could hold, its beginning and a digest."""
    if len(stem) <= SURE or len(encoded := stem.encode()) <= LONGEST:
        return stem
    return f"{encoded[:1000].decode(errors='ignore')}\x02{sha256(encoded).hexdigest()}"


Having = Mapping[MemoryId, Counts]
"""How often a term stands in each memory that has it."""

AT_ONCE = 10_000  # rows between two looks at the clock
BEYOND = "\U0010ffff"  # what no stem begins with
AMONG = "term = ANY(CAST(:stems AS TEXT[]))"
BEGINNING = "term >= :start AND term < :beyond"
FEW = 2  # areas that are named one by one


class Postings(Table):
    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, POSTGRESQL)
        self.end = inf  # of the monotonic clock, for what is done with rows here

    def _require_time(self) -> None:
        if time.monotonic() > self.end:
            raise TimedOut("The search took too long.")

    def areas_of(self, number: int) -> list[int]:
        return self._scalars(
            f"SELECT DISTINCT area FROM spaces WHERE partition = :number AND area > {GLOBAL_AREA}",
            number=number,
        )

    def of(
        self, areas: Sequence[int], condition: str, **values: object
    ) -> tuple[dict[str, dict[MemoryId, Counts]], dict[MemoryId, int]]:
        """Of each stem for which a condition holds, its memories in areas; and their lengths."""
        postings: dict[str, dict[MemoryId, Counts]] = {}
        lengths: dict[MemoryId, int] = {}
        where, numbers = in_areas(areas)
        rows = self._execute(
            f"SELECT term, memory, length, counts FROM postings WHERE {where} AND {condition}",
            **values,
            **numbers,
        )
        for number, (term, memory, length, counts) in enumerate(rows.fetchall()):
            if not number % AT_ONCE:
                self._require_time()
            postings.setdefault(term, {})[memory] = counts
            lengths[memory] = length
        self._require_time()
        return postings, lengths

    def starting(
        self, areas: Sequence[int], starts: Sequence[str], *, letters: int | None = None
    ) -> list[str]:
        """The stems of areas that begin with any of some texts; and these texts themselves.

        With `letters` one stem for each so many that follow. The key is read from stem to stem:
        all postings are many more.
        """
        after = "next.term"
        if letters is not None:
            after = f"""CASE WHEN next.term = stems.start THEN next.term
                             ELSE left(next.term, length(stems.start) + {letters}) || :beyond END"""
        return self._scalars(
            f"""SELECT DISTINCT read.term
                  FROM unnest(CAST(:starts AS TEXT[])) AS stems (start)
                 CROSS JOIN unnest(CAST(:areas AS BIGINT[])) AS its (area)
                 CROSS JOIN LATERAL (
                       WITH RECURSIVE next (term) AS (
                           SELECT stems.start COLLATE "C"
                            UNION ALL
                           SELECT (SELECT min(p.term)
                                     FROM postings p
                                    WHERE p.area = its.area AND p.term > {after}
                                          AND p.term < stems.start || :beyond)
                             FROM next
                            WHERE next.term IS NOT NULL)
                       SELECT term FROM next) read
                 WHERE read.term IS NOT NULL""",
            starts=starts,
            areas=areas,
            beyond=BEYOND,
        )

    def areas(self, number: int) -> list[tuple[int, int, int, int]]:
        """The areas that count in a group: of each its version, memories and words."""
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

    def having(self, number: int, stems: Iterable[str], *, own: bool) -> dict[str, int]:
        """How many memories of a group have each stem, or among their own words."""
        rows = self._execute(
            f"""SELECT term, count(*)
                  FROM postings
                 WHERE {_in_group(number, own=own)} AND {AMONG}
              GROUP BY term""",
            number=number,
            stems=list(stems),
        )
        return dict(rows.fetchall())

    def having_some(
        self, number: int, condition: str, *, own: bool, least: int = 1, **values: object
    ) -> int:
        """How many memories of a group have so many of the stems for which a condition holds."""
        return self._number(
            f"""SELECT count(*)
                  FROM (SELECT memory
                          FROM postings
                         WHERE {_in_group(number, own=own)} AND {condition}
                      GROUP BY memory
                        HAVING count(*) >= :least) its""",
            number=number,
            least=least,
            **values,
        )


def in_areas(areas: Sequence[int]) -> tuple[str, dict[str, object]]:
    """The condition that the column `area` is one of these, and the values that it names.

    An array would be taken for one of ten: its plan would be made again for each that is shorter.
    """
    if not 1 <= len(areas) <= FEW:
        return "area = ANY(CAST(:areas AS BIGINT[]))", {"areas": list(areas)}
    values: dict[str, object] = {f"area_{at}": area for at, area in enumerate(areas)}
    return f"area IN ({', '.join(f':{it}' for it in values)})", values


def _in_group(number: int, *, own: bool = False) -> str:
    """The condition that an area counts in the group `:number`, and a posting among own words."""
    areas = f"SELECT area FROM spaces WHERE partition = :number AND area > {GLOBAL_AREA}"
    if group_of(number) is IndexGroup.PROJECTS:
        areas += f" UNION SELECT {GLOBAL_AREA}"
    return f"area IN ({areas})" + f" AND counts & {OWN} <> 0" * own


MOST_STEMS = 200_000  # stems of a tenant whose counts are remembered

KnownCounts = dict[tuple[int, bool], tuple[Mapping[int, int], dict[str, int]]]
"""By group, of all words or own ones: how many memories had each stem that a process has used.

That holds while each area of the group has this version. Any thread may use them.
"""


class GroupWeights:
    def __init__(
        self, postings: Postings, number: int, features: Features, known: KnownCounts
    ) -> None:
        self._postings = postings
        self._number = number
        self._known = known
        rows = postings.areas(number)
        self.versions = {area: version for area, version, _, _ in rows}
        prior = PRIOR_MEMORIES if Feature.PRIOR in features else 0
        memories = sum(memories for _, _, memories, _ in rows) + prior
        words = sum(words for _, _, _, words in rows) + prior * PRIOR_WORDS
        self.totals = Totals(memories, words)

    def having(self, stems: Iterable[str], *, own: bool) -> Mapping[str, int]:
        """How many memories of the group have each stem, or among their own words."""
        versions, known = self._known.get((self._number, own), (None, {}))
        if versions != self.versions:
            known = {}
        required = set(stems)
        if missing := required - known.keys():
            read = self._postings.having(self._number, missing, own=own)
            known.update({stem: read.get(stem, 0) for stem in missing})
            if sum(len(it) for _, it in list(self._known.values())) > MOST_STEMS:
                self._known.clear()
            self._known[self._number, own] = self.versions, known
        return {stem: known[stem] for stem in required}

    def of_terms(self, stems_of: Mapping[Term, Stem], *, own: bool) -> dict[Term, int]:
        """How many memories of the group have each term: all its stems, or one that so begins."""
        single = {term: it[0] for term, it in stems_of.items() if len(it) == 1 and not term.starts}
        known = self.having(single.values(), own=own)
        counts, some = {term: known[it] for term, it in single.items()}, self._postings.having_some
        for term, stems in stems_of.items():
            if term.starts and len(stems) == 1:
                start, beyond = stems[0], f"{stems[0]}{BEYOND}"
                counts[term] = some(self._number, BEGINNING, own=own, start=start, beyond=beyond)
            elif term not in single:
                every = list(set(stems))
                counts[term] = some(self._number, AMONG, own=own, least=len(every), stems=every)
        return counts


class StoredWords(FoundWords):
    """What was found of a query in areas of a group, for its reader alone.

    `stems_of` are the stems of each term. Without `weights` words are weighed among these areas.
    """

    def __init__(
        self,
        postings: Postings,
        query: IndexQuery,
        areas: Sequence[int],
        stems_of: Mapping[Term, Stem],
        weights: GroupWeights | None,
    ) -> None:
        stems = {stem for term, it in stems_of.items() if not term.starts for stem in it}
        of_stems, lengths = postings.of(areas, AMONG, stems=list(stems))
        self.counts: dict[Term, Having] = {}
        for term, it in stems_of.items():
            if term.starts and len(it) == 1:
                of_each, more = postings.of(
                    areas, BEGINNING, start=it[0], beyond=f"{it[0]}{BEYOND}"
                )
                self.counts[term] = _sums(of_each.values())
                lengths |= more
            else:
                self.counts[term] = _having_all([of_stems.get(stem, {}) for stem in it])
        often = {term: _often(it, query, weights) for term, it in self.counts.items()}
        if weights is None:
            having: Mapping[Term, int] = {term: len(it) for term, it in often.items()}
            totals = Totals.alone(postings.memories(areas))
        else:
            stored = {term: stems_of[term] for term, it in often.items() if it}
            having, totals = weights.of_terms(stored, own=query.own), weights.totals
        super().__init__(totals, often, having, lengths)


def of_fields(counts: Counts, *, own: bool) -> tuple[int, ...]:
    """How often a stem stands in each field, or in those of a memory's own words."""
    return unpacked(counts & OWN if own else counts)


def _often(
    having: Having, query: IndexQuery, weights: GroupWeights | None
) -> dict[MemoryId, float]:
    """How often a term stands in memories, by the weights of the fields, if at all."""

    def weighed(counts: Counts) -> float:
        fields = of_fields(counts, own=query.own)
        if weights is not None:
            return frequency(fields, query.weights)
        title, content, _, tags = fields
        return NAMED * bool(title or tags) + SAID * bool(content)

    often = {counts: weighed(counts) for counts in set(having.values())}
    return {memory: it for memory, counts in having.items() if (it := often[counts])}


def _sums(of_each: Iterable[Having]) -> Having:
    sums: dict[MemoryId, Counts] = {}
    for memory, counts in chain.from_iterable(it.items() for it in of_each):
        sums[memory] = sums.get(memory, 0) + counts
    return sums


def _having_all(of_stems: Sequence[Having]) -> Having:
    if len(of_stems) == 1:
        return of_stems[0]
    first, *others = of_stems or [{}]
    return {it: counts for it, counts in first.items() if all(it in other for other in others)}


MOST_WRITTEN = 256 * 1024  # characters of one transaction, which an import may write more in


class Written(NamedTuple):
    """What a transaction put into an area, and, with a sign below zero, took out."""

    before: int  # version
    after: int
    entries: Sequence[tuple[int, Columns, int]]

    @property
    def is_new(self) -> bool:
        """Whether it is nothing but new memories, and not too many."""
        size = sum(len(text) for _, columns, _ in self.entries for text in columns)
        return size <= MOST_WRITTEN and all(sign > 0 for *_, sign in self.entries)


@dataclass(slots=True)
class _Loaded:
    area: Area
    version: int
    used_at: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        return self.area.size


class IndexMemory(InMemory[_Loaded]):
    """What a process remembers of a tenant's index. Any thread may use it."""

    def __init__(self, cache: IndexCache | None, features: Features) -> None:
        vocabulary = Vocabulary(weights_of(features))  # typos are looked up
        super().__init__(cache or IndexCache(0), vocabulary)
        self.counts: KnownCounts = {}

    def forget(self) -> None:
        """Versions are of other words now, maybe: a standby that was promoted can lack commits."""
        with self.lock:
            self._drop_all()
        self.counts = {}

    @contextmanager
    def of(self, areas: Sequence[int], versions: Mapping[int, int]) -> Iterator[list[Area] | None]:
        """The areas that have words as of these versions, for one reader; None unless all are."""
        if self.is_disabled:
            yield None
            return
        with self.lock:
            if len(self.vocabulary.codes) > MOST_CODES:  # of texts that are made for it
                self._drop_all()
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

    def hand_over(self, writes: Mapping[int, Written | None], stems: Stems) -> None:
        """Bring in line what is in memory with what was committed; None is anything else."""
        with self.lock:
            for number, written in writes.items():
                loaded = self.parts.get(number)
                if loaded is None:
                    continue
                if written is None or not written.is_new or written.before != loaded.version:
                    self._drop(number)
                    continue
                for row, columns, _ in written.entries:
                    entry = entry_of(stems, columns)
                    loaded.area.add(_row(memory_of(row)), entry, self.vocabulary)
                loaded.version = written.after

    def load(self, connection: Connection, number: int) -> None:
        """Hold an area as it is stored."""
        row = connection.execute(
            "SELECT version FROM areas WHERE area = :area", {"area": number}
        ).fetchone()
        if row is None:
            return
        generation = self.vocabulary.code_generation
        area, postings = drafted(number, _rows(connection, number), self.vocabulary)
        with self.lock:
            self._drop(number)
            if generation != self.vocabulary.code_generation:
                return
            area.set_postings(self.vocabulary.add(postings), postings.values())
            self.parts[number] = _Loaded(area, row[0])
        self.cache.make_room()

    def _drop_all(self) -> None:
        for number in list(self.parts):
            self._drop(number)
        self.vocabulary.forget_codes()

    def _drop(self, number: int) -> int:
        loaded = self.parts.pop(number, None)
        if loaded is None:
            return 0
        self.vocabulary.remove(loaded.area.stem_numbers())
        return loaded.area.size


class StoredStatistics(CorpusStatistics):
    """What stems are worth in a group, as is stored, by their numbers."""

    def __init__(self, weights: GroupWeights, stem_of: Mapping[int, str], memory: IndexMemory):
        self.totals: Totals = weights.totals
        self.vocabulary = memory.vocabulary
        self._weights = weights
        self._stem_of = stem_of

    def idf(self, stem: int, *, own: bool) -> float:
        text = self._stem_of[stem]
        return self.totals.idf(self._weights.having([text], own=own)[text])

    def weights_of(self, areas: Sequence[Area], *, own: bool) -> list[Weights]:
        """What postings of the areas add, of stems that were read together."""
        self._weights.having(self._stem_of.values(), own=own)  # in one statement
        return [Weights(self, it) for it in areas]


def entry_of(stems: Stems, said: Columns) -> Entry:
    texts = stems.of_texts(said)
    return Entry.of_fields([[stored_term(stem) for stem in words] for words in texts])


def _rows(connection: Connection, area: int) -> Iterator[tuple[Row, str]]:
    rows = connection.execute(
        """SELECT memory, min(length), array_agg(term), array_agg(counts)
             FROM postings
            WHERE area = :area
         GROUP BY memory
         ORDER BY memory""",
        {"area": area},
    )
    for memory, length, terms, counts in rows:
        packed = map(_repacked, counts)
        entry = Entry.of_counts(length, dict(zip(terms, packed, strict=True)))
        yield _row(MemoryId(memory)), entry.stored


def _row(memory: MemoryId) -> Row:
    """Sessions and ends are read from the tables."""
    return Row(memory, 0, None, 0, None, None)


@lru_cache(65_536)
def _repacked(counts: Counts) -> int:
    return sum(count << COUNT * field for field, count in enumerate(unpacked(counts)))
