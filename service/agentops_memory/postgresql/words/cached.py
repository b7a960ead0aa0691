"""The full-text index in memory: areas, each as of one version of what is stored.

A reader is given an area as of its snapshot, or nothing. What this process commits is handed over;
a version that another process has made is not there, and postings answer.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from ...engine.shared.stems import Stems
from ...memory.model.memory import MemoryId
from ...memory.model.ranking import Totals, weights_of
from ...memory.model.table import Connection
from ...recall.inverted_index.area import Area, Draft, Row
from ...recall.inverted_index.cache import IndexCache, InMemory
from ...recall.inverted_index.group import Weights, Worth
from ...recall.inverted_index.vocabulary import COUNT, Entry, Vocabulary
from ...recall.search.visibility import memory_of
from ...recall.text.features import ALL, Features
from ...recall.text.normalization import Columns
from .postings import Counts, KnownCounts, stored_term, unpacked
from .postings import Weights as StoredWeights

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
class _Held:
    area: Area
    version: int
    used_at: float = field(default_factory=time.monotonic)


class IndexMemory(InMemory):
    """What a process remembers of a tenant's index. Any thread may use it."""

    def __init__(self, cache: IndexCache | None, features: Features = ALL) -> None:
        super().__init__(cache or IndexCache(0))
        self.counts = KnownCounts()
        self.vocabulary = Vocabulary(lambda _: {}, weights_of(features))  # typos are looked up
        self._areas: dict[int, _Held] = {}

    @property
    def size(self) -> int:
        areas = list(self._areas.values())
        return sum(it.area.size for it in areas) + self.vocabulary.size

    def used_at(self) -> dict[int, float]:
        return {number: it.used_at for number, it in list(self._areas.items())}

    def size_of(self, number: int) -> int:
        held = self._areas.get(number)
        return held.area.size if held else 0

    def is_begun(self, number: int) -> bool:
        return number in self._areas

    def forget(self) -> None:
        """Versions are of other words now, maybe: a standby that was promoted can lack commits."""
        with self.lock:
            for number in list(self._areas):
                self._drop(number)
        self.counts = KnownCounts()

    @contextmanager
    def held(
        self, areas: Sequence[int], versions: Mapping[int, int]
    ) -> Iterator[list[Area] | None]:
        """The areas that have words as of these versions, for one reader; None unless all are."""
        wanted = [it for it in areas if it in versions]
        if self.holds_nothing:
            yield None
            return
        with self.lock:
            found = [self._areas.get(it) for it in wanted]
            current = [
                it for number, it in zip(wanted, found, strict=True)
                if it is not None and it.version == versions[number]
            ]  # fmt: skip
            if len(current) == len(wanted):
                for it in current:
                    it.used_at = time.monotonic()
                yield [it.area for it in current]
                return
            for number, held in zip(wanted, found, strict=True):
                if held is None or held.version < versions[number]:
                    self.queue.want(number)
        yield None

    def hand_over(self, writes: Mapping[int, Written | None], stems: Stems) -> None:
        """Bring in line what is in memory with what was committed; None is anything else."""
        with self.lock:
            for number, written in writes.items():
                held = self._areas.get(number)
                if held is None:
                    continue
                if written is None or not written.is_new or written.before != held.version:
                    self._drop(number)
                    continue
                for row, columns, _ in written.entries:
                    self._add(held.area, memory_of(row), entry_of(stems, columns))
                held.version = written.after

    def load(self, connection: Connection, number: int) -> None:
        """Hold an area as it is stored."""
        row = connection.execute(
            "SELECT version FROM areas WHERE area = :area", {"area": number}
        ).fetchone()
        if row is None:
            return
        draft = Draft(number, _rows(connection, number), self.vocabulary)
        with self.lock:
            self._drop(number)
            area = draft.numbered(self.vocabulary.add(draft.postings))
            self._areas[number] = _Held(area, row[0])
        self.cache.make_room()

    def _add(self, area: Area, memory: MemoryId, entry: Entry) -> None:
        vocabulary = self.vocabulary
        vocabulary.add(it for it in entry.all_stems() if not area.has_stem(vocabulary, it))
        area.add(_row(memory, entry), vocabulary.pairs(entry))

    def _drop(self, number: int) -> int:
        held = self._areas.pop(number, None)
        if held is None:
            return 0
        self.vocabulary.remove(held.area.numbers())
        return held.area.size


class StoredWorth(Worth):
    """What stems are worth in a group, as is stored, by their numbers."""

    def __init__(self, weights: StoredWeights, stem_of: Mapping[int, str], memory: IndexMemory):
        self.totals: Totals = weights.totals
        self.vocabulary = memory.vocabulary
        self._weights = weights
        self._stem_of = stem_of

    def idf(self, stem: int, *, own: bool) -> float:
        text = self._stem_of[stem]
        return self.totals.idf(self._weights.having([text], own=own)[text])

    def weights_of(self, areas: Sequence[Area], *, own: bool) -> list[Weights]:
        """What postings of the areas add, of stems that were asked for together."""
        self._weights.having(self._stem_of.values(), own=own)  # in one statement
        return [Weights(self, it) for it in areas]


def entry_of(stems: Stems, said: Columns) -> Entry:
    texts = stems.of_texts(said)
    return Entry.of_fields([[stored_term(stem) for stem in words] for words in texts])


def _rows(connection: Connection, area: int) -> Iterator[Row]:
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
        yield _row(MemoryId(memory), Entry.of_counts(length, dict(zip(terms, packed, strict=True))))


def _row(memory: MemoryId, entry: Entry) -> Row:
    """Sessions and ends are asked of the tables."""
    return Row(memory, 0, None, 0, None, None, entry)


@lru_cache(65_536)
def _repacked(counts: Counts) -> int:
    return sum(count << COUNT * field for field, count in enumerate(unpacked(counts)))
