"""BM25 as SQLite's FTS5 computes it, operation by operation: equal scores to the last bit.

https://sqlite.org/fts5.html#the_bm25_function; a score is below zero, the lower the better.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from .memory import MemoryId
from .ranking import Scored

K1, B = 1.2, 0.75
LEAST_IDF = 1e-6  # of a word that more than half of the rows have

Counts = tuple[int, ...]
"""How often a stem stands in each field of a memory."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of a group of projects whose words are weighed together, with its prior."""

    rows: int
    words: int

    def idf(self, having: int) -> float:
        """What a stem is worth that so many of the rows have."""
        idf = log((self.rows - having + 0.5) / (having + 0.5))
        return idf if idf > 0 else LEAST_IDF

    def norms(self, lengths: Iterable[int]) -> dict[int, float]:
        """What a row of each length, in words, adds to a frequency below the line."""
        mean = self.words / self.rows if self.rows else 0
        return {length: K1 * (1 - B + B * length / mean) for length in set(lengths)}

    def addends(
        self, having: int, frequencies: Iterable[float], lengths: Collection[int]
    ) -> list[float]:
        """What a stem that so many rows have adds to the scores of some of them."""
        idf, norms = self.idf(having), self.norms(lengths)
        return [
            idf * ((often * (K1 + 1.0)) / (often + norms[length]))
            for often, length in zip(frequencies, lengths, strict=True)
        ]


class Addends(NamedTuple):
    """What one stem adds to the scores of the memories that have it."""

    memories: Sequence[MemoryId] = ()
    values: Sequence[float] = ()


NOTHING = Addends()

PieceAddends = tuple[Sequence[Addends], Sequence[Addends]]
"""Of a piece of a query: of its parts, and of its joined forms."""


def frequency(counts: Counts, weights: Sequence[float]) -> float:
    """How often a stem stands in a memory, each time by the weight of its field."""
    total = 0.0
    for count, weight in zip(counts, weights, strict=True):
        for _ in range(count):  # a product could differ in the last bit
            total += weight
    return total


def of_any(stems: Iterable[Addends]) -> dict[MemoryId, float]:
    """The sums for memories that have any of the stems, added up in their order."""
    sums: dict[MemoryId, float] = {}
    get = sums.get
    for memories, values in stems:
        if not sums:
            sums.update(zip(memories, values, strict=True))
            continue
        for id_, value in zip(memories, values, strict=True):
            sums[id_] = get(id_, 0.0) + value
    return sums


def of_every(pieces: Sequence[PieceAddends]) -> dict[MemoryId, float]:
    """The sums for memories in which every piece is: all its parts, or one of its joined forms.

    Where not all parts of a piece are, none counts.
    """
    found = [([_by_memory(it) for it in parts], list(map(_by_memory, joined)))
             for parts, joined in pieces]  # fmt: skip
    wholes = [_having_all(parts) for parts, _ in found]
    matched = [whole.union(*joined) for whole, (_, joined) in zip(wholes, found, strict=True)]
    sums: dict[MemoryId, float] = {}
    for id_ in set.intersection(*matched) if matched else ():
        total = 0.0
        for whole, (parts, joined) in zip(wholes, found, strict=True):
            for stem in (*parts, *joined) if id_ in whole else joined:
                total += stem.get(id_, 0.0)
        sums[id_] = total
    return sums


def lowest(sums: Mapping[MemoryId, float], depth: int | None) -> list[Scored]:
    """The scores of these sums, best first, ties by id; the first `depth` of them."""
    if depth is None or len(sums) <= depth:
        return sorted((-1.0 * total, id_) for id_, total in sums.items())
    least = sorted(sums.values(), reverse=True)[depth - 1]
    found = [(-1.0 * total, id_) for id_, total in sums.items() if total >= least]
    return sorted(found)[:depth]


def _by_memory(stem: Addends) -> dict[MemoryId, float]:
    return dict(zip(*stem, strict=True))


def _having_all(parts: Sequence[Mapping[MemoryId, float]]) -> set[MemoryId]:
    if not parts:
        return set()
    first, *others = sorted(parts, key=len)
    return set(first).intersection(*others)
