"""Where the words of a query are found: in memory, or in stored postings."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ...engine.shared.stems import Stems
from ...memory.model.bm25 import Totals
from ...memory.model.ranking import Scored, combined
from ...memory.sql.kinds import GLOBAL_AREA
from ...memory.sql.table import Connection
from ...recall.index_cache.lookup import Lookup
from ...recall.index_cache.rows import area_of
from ...recall.search.query import IndexQuery
from ...recall.search.ranker import Found, Remembered, Shown, sentences
from ...recall.search.visibility import Span
from ...recall.text.features import Features
from .cached import CachedAreas
from .found import StoredWords
from .postings import Postings
from .terms import stored_term
from .weights import Weights


class Source:
    """The words of one transaction."""

    def __init__(
        self,
        connection: Connection,
        shown: Shown,
        features: Features,
        stems: Stems,
        cached: CachedAreas,
    ) -> None:
        self._postings = Postings(connection)
        self._shown = shown
        self._features = features
        self._stems = stems
        self._cached = cached
        self._weights: dict[int, Weights] = {}

    def end_at(self, end: float) -> None:
        """Look no longer than until that time of the monotonic clock; TimedOut then."""
        self._postings.end = end

    @contextmanager
    def found(self, query: IndexQuery) -> Iterator[tuple[Found, Remembered | None] | None]:
        """The words of a query in memory, if all of its areas are there as of this snapshot."""
        visible, terms = query.visible, query.terms
        if len(visible.spans) != 1 or visible.is_alone or any(term.starts for term in terms):
            yield None
            return
        stem_of = self._stems.of([term.text for term in terms])
        if not all(stem_of.values()):
            yield None
            return
        stem_of = {text: stored_term(stem) for text, stem in stem_of.items()}
        ((number, spans),) = visible.spans.items()
        weights = self._weights_of(number)

        def weigh(words: Mapping[str, str]) -> tuple[Totals, Mapping[str, int]]:
            return weights.totals, weights.having(words.values(), own=query.own)

        with self._cached.held(self._areas(number, spans), weights.versions) as areas:
            yield None if areas is None else (Lookup(areas, stem_of, weigh, own=query.own), None)

    def best(self, query: IndexQuery) -> list[Scored]:
        stored = [
            combined(
                sentences(query, self.stored(query, number), self._shown), query.sentence_weights
            )
            for number in query.visible.spans
        ]
        return stored[0] if len(stored) == 1 else sorted(it for each in stored for it in each)

    def stored(self, query: IndexQuery, number: int) -> StoredWords:
        """What is found of a query in a group."""
        areas = self._areas(number, query.visible.spans[number])
        terms = query.terms
        stems = self._stems.of_texts([term.text for term in terms])
        asked = {term: tuple(map(stored_term, it)) for term, it in zip(terms, stems, strict=True)}
        weights = None if query.visible.is_alone else self._weights_of(number)
        return StoredWords(self._postings, query, areas, asked, weights)

    def _weights_of(self, number: int) -> Weights:
        if number not in self._weights:
            known = self._cached.counts
            self._weights[number] = Weights(self._postings, number, self._features, known)
        return self._weights[number]

    def _areas(self, number: int, spans: Sequence[Span]) -> list[int]:
        areas: list[int] = []
        for first, last in spans:
            if area_of(first) == area_of(last):
                areas.append(area_of(first))
            else:  # all of the group's own
                areas += [it for it in self._postings.areas_of(number) if it > GLOBAL_AREA]
        return areas
