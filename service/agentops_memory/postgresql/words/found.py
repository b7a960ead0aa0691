"""The words of a query in stored postings, and what they add to scores there."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from ...memory.model.bm25 import NOTHING, PiecePostings, Sums, Totals, frequency, of_any, of_every
from ...memory.model.bm25 import Postings as Weighted
from ...memory.model.memory import MemoryId
from ...memory.model.ranking import NAMED, SAID
from ...memory.model.search import Field
from ...recall.search.query import IndexQuery
from ...recall.text.query import Piece, Term
from .postings import Having, Postings
from .terms import Counts, Stem, unpacked
from .weights import Weights

MOST_KNOWN = 65_536  # counts of which is remembered how often they are


class StoredWords:
    """What was found of a query in areas of a group, for its reader alone.

    `asked` are the stems of each term. Without `weights` words are weighed among these areas.
    """

    def __init__(
        self,
        postings: Postings,
        query: IndexQuery,
        areas: Sequence[int],
        asked: Mapping[Term, Stem],
        weights: Weights | None,
    ) -> None:
        self._own = query.own
        self._weighed = ALONE if weights is None else often_by(query.weights, own=query.own)
        stems = {stem for term, it in asked.items() if not term.starts for stem in it}
        found, lengths = postings.of(areas, stems)
        self.counts: dict[Term, Having] = {}
        for term, it in asked.items():
            if term.starts and len(it) == 1:
                self.counts[term], more = postings.beginning(areas, it[0])
                lengths |= more
            else:
                self.counts[term] = _having_all([found.get(stem, {}) for stem in it])
        often = {term: self._often(it) for term, it in self.counts.items()}
        there = {term: asked[term] for term, it in often.items() if it}
        if weights is None:
            having: Mapping[Term, int] = {term: len(often[term]) for term in there}
            totals = Totals.alone(postings.memories(areas))
        else:
            having, totals = weights.of_terms(there, own=query.own), weights.totals
        self._memories = sorted(lengths)
        place_of = {memory: place for place, memory in enumerate(self._memories)}
        self._norms = totals.norms(lengths[it] for it in self._memories)
        self._postings = {
            term: Weighted(
                totals.idf(having[term]),
                [place_of[memory] for memory in often[term]],
                list(often[term].values()),
            )
            for term in there
        }

    def having_any(self, terms: Sequence[Term], most: int | None) -> list[Sums]:  # noqa: ARG002
        return [(of_any(map(self._of, terms), self._norms), self._memories)]

    def having_every(self, pieces: Sequence[Piece]) -> list[Sums]:
        asked: list[PiecePostings] = [
            ([self._of(term) for term in it.parts], [self._of(term) for term in it.joined])
            for it in pieces
        ]
        return [(of_every(asked, self._norms), self._memories)]

    def idf(self, term: Term) -> float:
        return self._of(term).idf

    def norm(self, memory: MemoryId) -> float:
        return self._norms[self._memories.index(memory)]

    def _of(self, term: Term) -> Weighted:
        return self._postings.get(term, NOTHING)

    def _often(self, having: Having) -> dict[MemoryId, float]:
        """How often a term stands in each memory, by the weights of the fields, if it counts."""
        weighed = self._weighed
        return {memory: often for memory, counts in having.items() if (often := weighed[counts])}


class Weighed(dict[Counts, float]):
    """How often a stem stands in a memory, by the weights of the fields; found once for counts."""

    def __init__(self, weigh: Callable[[tuple[int, ...]], float]) -> None:
        self._weigh = weigh

    def __missing__(self, counts: Counts) -> float:
        often = self._weigh(unpacked(counts))
        if len(self) < MOST_KNOWN:
            self[counts] = often
        return often


@cache
def often_by(weights: tuple[float, ...], *, own: bool) -> Weighed:
    of_field = tuple(it is not Field.CONTEXT or not own for it in Field)

    def weigh(counts: tuple[int, ...]) -> float:
        return frequency(tuple(it * on for it, on in zip(counts, of_field, strict=True)), weights)

    return Weighed(weigh)


def _alone(counts: tuple[int, ...]) -> float:
    title, content, _, tags = counts
    return NAMED * bool(title or tags) + SAID * bool(content)


ALONE = Weighed(_alone)


def _having_all(of_stems: Sequence[Having]) -> Having:
    """What has all the stems, as often as the first of them."""
    if len(of_stems) == 1:
        return of_stems[0]
    if not of_stems:
        return {}
    first, *others = of_stems
    return {
        memory: counts for memory, counts in first.items() if all(memory in it for it in others)
    }
