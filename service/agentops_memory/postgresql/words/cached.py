"""The full-text index in memory: areas, each as of one version of what is stored.

A reader is given an area as of its snapshot, or nothing. What this process commits is handed over;
a version that another process has made is not there, and postings answer.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache

from ...engine.shared.stems import Stems
from ...memory.model.memory import MemoryId
from ...memory.model.ranking import weights_of
from ...memory.sql.table import Connection
from ...recall.index_cache.area import Area, Entry, once
from ...recall.index_cache.cache import CachedGroups, IndexCache, Wanted
from ...recall.text.columns import Columns
from ...recall.text.features import ALL, Features
from .postings import KnownCounts
from .terms import Counts, stored_term, unpacked


class IndexMemory:
    """What a process remembers of a tenant's index. Any thread may use it."""

    def __init__(self, cache: IndexCache | None, features: Features = ALL) -> None:
        self.areas = CachedGroups(cache or IndexCache(0), weights_of(features))
        self.counts = KnownCounts()

    def forget(self) -> None:
        """Versions are of other words now, maybe: a standby that was promoted can lack commits."""
        self.areas.drop()
        self.counts = KnownCounts()


class CachedAreas:
    """The areas in memory for one transaction, which began at a time of the monotonic clock."""

    def __init__(self, memory: IndexMemory, begun: float, stems: Stems) -> None:
        self._areas = memory.areas
        self.counts = memory.counts
        self._begun = begun
        self._stems = stems
        self._wanted: set[int] = set()

    @contextmanager
    def held(
        self, areas: Sequence[int], versions: Mapping[int, int]
    ) -> Iterator[list[Area] | None]:
        """The areas that have words as of these versions, for one reader; None unless all are."""
        there = sorted(it for it in areas if it in versions)  # in one order: each has a lock
        if self._areas.hold_nothing:
            yield None
            return
        with ExitStack() as stack:
            found: list[Area] = []
            for area in there:
                reading = self._areas.reading(area, versions[area], self._begun, self._entry_of)
                group = stack.enter_context(reading)
                held = group and group.areas([area])
                if not held:
                    break
                found += held
            else:
                yield found
                return
        for area in there:
            if area not in self._wanted:  # however many rankings a search needs
                self._wanted.add(area)
                self._areas.want(area, [area])
        yield None

    def _entry_of(self, said: Columns) -> Entry:
        return entry_of(self._stems, said)


def entry_of(stems: Stems, said: Columns) -> Entry:
    texts = stems.of_texts(said)
    counts: dict[str, int] = {}
    for field, words in enumerate(texts):
        unit = once(field)
        for stem in words:
            term = stored_term(stem)
            counts[term] = counts.get(term, 0) + unit
    return Entry(sum(map(len, texts)), counts)


def load(connection: Connection, areas: CachedGroups, wanted: Wanted, stems: Stems) -> None:
    begun = time.monotonic()
    row = connection.execute(
        "SELECT version, memories FROM areas WHERE area = :area", {"area": wanted.area}
    ).fetchone()
    if row is not None and areas.admit(wanted, row[1]):
        areas.load(
            wanted, row[0], begun, _entries(connection, wanted.area), lambda it: entry_of(stems, it)
        )


def _entries(connection: Connection, area: int) -> Iterator[tuple[MemoryId, Entry]]:
    rows = connection.execute(
        """SELECT memory, min(length), array_agg(term), array_agg(counts)
             FROM postings
            WHERE area = :area
         GROUP BY memory""",
        {"area": area},
    )
    for memory, length, terms, counts in rows:
        yield MemoryId(memory), Entry(length, dict(zip(terms, map(_repacked, counts), strict=True)))


@lru_cache(65_536)
def _repacked(counts: Counts) -> int:
    return sum(count * once(field) for field, count in enumerate(unpacked(counts)))
