"""The words of a query in areas that are in memory, and what they add to scores there."""

from array import array
from collections.abc import Callable, Mapping, Sequence

from ...memory.model.bm25 import NOTHING, Place, Postings, Sums, Totals, of_any, of_every
from ..text.query import Piece, Term
from . import vectors
from .area import Area

Weigh = Callable[[Mapping[str, str]], tuple[Totals, Mapping[str, int]]]
"""The rows of the group, and how many of them have each of the stems of some words, by stem."""


class Lookup:
    """What was found of a query, for its reader alone; with `own` in memories' own words.

    `stem_of` knows the stem of each word, `weigh` what those that were found are worth.
    """

    def __init__(
        self, areas: Sequence[Area], stem_of: Mapping[str, str], weigh: Weigh, *, own: bool
    ) -> None:
        self._stem_of = stem_of
        self._own = own
        self._found = [(it, it.found(stem_of.values())) for it in areas]
        there = set().union(*(found for _, found in self._found))
        words = {word: stem for word, stem in stem_of.items() if stem in there}
        self._totals, having = weigh(words)
        self._idf = {stem: self._totals.idf(having[stem]) for stem in there}

    def having_any(self, terms: Sequence[Term], most: int | None) -> list[Sums]:
        """What the terms add, by area; enough for so many of the best."""
        return [(self._any(area, found, terms, most), area.memories) for area, found in self._found]

    def having_every(self, pieces: Sequence[Piece]) -> list[Sums]:
        """What the pieces add where every one is, by area."""
        sums: list[Sums] = []
        for area, found in self._found:
            of_pieces = [
                (self._postings(area, found, it.parts), self._postings(area, found, it.joined))
                for it in pieces
            ]
            sums.append((of_every(of_pieces, area.norms(self._totals)), area.memories))
        return sums

    def _any(
        self, area: Area, found: Mapping[str, "array[int]"], terms: Sequence[Term], most: int | None
    ) -> Mapping[Place, float]:
        norms = area.norms(self._totals)
        numpy = vectors.numpy() if len(area.memories) >= vectors.LARGE else None
        if self._own or numpy is None:
            return of_any(self._postings(area, found, terms), norms)
        stems = [stem for it in terms if (stem := self._stem_of[it.text]) in found]
        known = ((self._idf[it], found[it]) for it in stems)
        return vectors.of_any(numpy, known, area.codes.often[False], norms, most)

    def _postings(
        self, area: Area, found: Mapping[str, "array[int]"], terms: Sequence[Term]
    ) -> list[Postings]:
        stems = (self._stem_of[it.text] for it in terms)
        return [
            area.postings(found[it], self._idf[it], own=self._own) if it in found else NOTHING
            for it in stems
        ]
