"""Scores taken apart: what each term adds, and where in a memory it stands."""

from collections.abc import Collection, Iterable, Mapping

from ...memory.model.bm25 import frequency, scored
from ...memory.model.memory import MemoryId
from ...memory.model.search import Field, Parts, TermScore
from ...memory.sql.table import Connection
from ...recall.search.query import IndexQuery
from ...recall.search.ranker import ENDLESS, FIELDS, Places, Shown, sentences, term_score
from ...recall.text.query import Term
from ..base.dialect import POSTGRESQL
from .found import StoredWords
from .source import Source
from .terms import unpacked


class Explanations:
    """The parts of scores in one transaction."""

    def __init__(self, connection: Connection, source: Source, shown: Shown) -> None:
        self._connection = connection
        self._source = source
        self._shown = shown

    def of(
        self, index_query: IndexQuery, terms: Iterable[Term], ids: Collection[MemoryId]
    ) -> dict[MemoryId, Parts]:
        """The parts of these memories' scores; a memory that is not visible has none."""
        asked = list(dict.fromkeys(terms))
        parts: dict[MemoryId, Parts] = {}
        for number, memories in (
            Places(self._connection, POSTGRESQL).of(ids, index_query.visible).items()
        ):
            found = self._source.stored(index_query, number)
            scores: dict[MemoryId, dict[int, float]] = {}
            for at, sentence in enumerate(sentences(index_query, found, self._shown)):
                for score, id_ in sentence:
                    scores.setdefault(id_, {})[at] = score
            for id_ in memories:
                of_id = scores.get(id_, {})
                parts[id_] = Parts(
                    sentences=tuple(map(of_id.get, range(len(index_query.sentence_weights)))),
                    terms=_added(found, index_query, asked, id_),
                )
        return parts


def _added(
    found: StoredWords, query: IndexQuery, terms: Iterable[Term], memory: MemoryId
) -> Mapping[Term, TermScore]:
    """What each term adds to the score of a memory."""
    added: dict[Term, TermScore] = {}
    places = range(len(FIELDS))
    for term in terms:
        counts = unpacked(found.counts.get(term, {}).get(memory, 0))
        if query.own:
            counts = tuple(
                0 if it is Field.CONTEXT else count
                for it, count in zip(FIELDS, counts, strict=True)
            )
        if not any(counts):
            continue
        idf, norm = found.idf(term), found.norm(memory)

        def score(
            weights: tuple[float, ...],
            counts: tuple[int, ...] = counts,
            idf: float = idf,
            norm: float = norm,
        ) -> float:
            return scored(idf, frequency(counts, weights), norm)

        alone = [
            score(tuple(query.weights[it] if it == at else 0.0 for it in places)) for at in places
        ]
        limit = score((ENDLESS,) * len(FIELDS))
        added[term] = term_score(score(query.weights), limit, alone)
    return added
