"""BM25 as SQLite's FTS5 computes it, operation by operation: equal scores to the last bit.

https://sqlite.org/fts5.html#the_bm25_function; a score is below zero, the lower the better.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from .memory import MemoryId
from .ranking import PRIOR_MEMORIES, PRIOR_WORDS, Scored

K1, B = 1.2, 0.75
MOST = K1 + 1.0  # of a stem's worth, which a row without end of it would have
LEAST_IDF = 1e-6  # of a word that more than half of the rows have

Counts = tuple[int, ...]
"""How often a stem stands in each field of a memory."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of a group of projects whose words are weighed together, with its prior."""

    rows: int
    words: int

    @classmethod
    def alone(cls, rows: int) -> "Totals":
        """Of rows whose words are weighed among themselves, whatever lengths others have."""
        rows += PRIOR_MEMORIES
        return cls(rows, rows * PRIOR_WORDS)

    @classmethod
    def of(cls, rows: int, words: int) -> "Totals":
        """Of so many rows of a group, with its prior."""
        return cls(rows + PRIOR_MEMORIES, words + PRIOR_MEMORIES * PRIOR_WORDS)

    def idf(self, having: int) -> float:
        """What a stem is worth that so many of the rows have."""
        idf = log((self.rows - having + 0.5) / (having + 0.5))
        return idf if idf > 0 else LEAST_IDF

    def norms(self, lengths: Iterable[int]) -> list[float]:
        """What each of some rows adds to a frequency below the line, by their lengths in words."""
        mean = self.words / self.rows if self.words else 1  # without words nothing is found
        return [K1 * (1 - B + B * length / mean) for length in lengths]


Place = int
"""Where a memory lies among those whose scores are added up."""


class Postings(NamedTuple):
    """What one stem is worth, the memories that have it, and how often it is in each."""

    idf: float
    places: Sequence[Place]
    often: Iterable[float]


NOTHING = Postings(0.0, (), ())

PiecePostings = tuple[Sequence[Postings], Sequence[Postings]]
"""Of a piece of a query: of its parts, and of its joined forms."""

Sums = tuple[Mapping[Place, float], Sequence[MemoryId]]
"""What stems add to the scores of memories, and which of them lies at each place."""


def frequency(counts: Counts, weights: Sequence[float]) -> float:
    """How often a stem stands in a memory, each time by the weight of its field."""
    total = 0.0
    for count, weight in zip(counts, weights, strict=True):
        for _ in range(count):  # a product could differ in the last bit
            total += weight
    return total


def scored(idf: float, often: float, norm: float) -> float:
    """What one stem adds to the score of a memory that has it so often."""
    return -1.0 * (idf * ((often * MOST) / (often + norm)))


def of_any(stems: Iterable[Postings], norms: Sequence[float]) -> dict[Place, float]:
    """The sums for memories that have any of the stems, in their order; `norms` are by place."""
    sums: dict[Place, float] = {}
    get = sums.get
    for idf, places, frequencies in stems:
        for place, often in zip(places, frequencies, strict=True):
            share = (often * MOST) / (often + norms[place])
            sums[place] = get(place, 0.0) + idf * share
    return sums


def of_every(pieces: Sequence[PiecePostings], norms: Sequence[float]) -> dict[Place, float]:
    """The sums for memories in which every piece is: all its parts, or one of its joined forms.

    Where not all parts of a piece are, none counts.
    """
    return of_pieces([
        ([of_any([it], norms) for it in parts], [of_any([it], norms) for it in joined])
        for parts, joined in pieces
    ])  # fmt: skip


def of_pieces(
    pieces: Sequence[tuple[Sequence[Mapping[Place, float]], Sequence[Mapping[Place, float]]]],
) -> dict[Place, float]:
    """The same, of what each part and each joined form adds, by place."""
    wholes = [_having_all(parts) for parts, _ in pieces]
    matched = [whole.union(*joined) for whole, (_, joined) in zip(wholes, pieces, strict=True)]
    sums: dict[Place, float] = {}
    for place in set.intersection(*matched) if matched else ():
        total = 0.0
        for whole, (parts, joined) in zip(wholes, pieces, strict=True):
            for stem in (*parts, *joined) if place in whole else joined:
                total += stem.get(place, 0.0)
        sums[place] = total
    return sums


def lowest(parts: Sequence[Sums], depth: int | None) -> list[Scored]:
    """The scores of these sums, best first, ties by id; the first `depth` of them."""
    least = 0.0
    if depth is not None:
        totals = sorted((it for sums, _ in parts for it in sums.values()), reverse=True)
        least = totals[depth - 1] if len(totals) > depth else least
    found = [
        (-1.0 * total, memories[place])
        for sums, memories in parts
        for place, total in sums.items()
        if total >= least
    ]
    return sorted(found)[:depth]


def _having_all(parts: Sequence[Mapping[Place, float]]) -> set[Place]:
    if not parts:
        return set()
    first, *others = sorted(parts, key=len)
    return set(first).intersection(*others)
