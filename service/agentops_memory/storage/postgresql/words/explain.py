"""Scores taken apart: what each term adds, and where in a memory it stands."""

import json
from collections.abc import Collection, Iterable, Mapping

from ....domain.model.bm25 import MOST, frequency
from ....domain.model.memory import MemoryId
from ....domain.model.search import Field, Parts, TermScore
from ....domain.text.query import Term
from ...index_cache.rows import row_number
from ...search.explanation import ENDLESS, FIELDS, term_score
from ...search.query import IndexQuery
from ...search.ranker import sentences
from ...search.shown import Shown
from ...search.visibility import VisibleRows
from ...sql.liveness import indexed
from ...sql.table import GLOBAL_AREA, Connection, Table
from ..base.dialect import POSTGRESQL
from .found import StoredWords
from .source import Source
from .terms import unpacked


class Explanations(Table):
    """The parts of scores in one transaction."""

    def __init__(self, connection: Connection, source: Source, shown: Shown) -> None:
        super().__init__(connection, POSTGRESQL)
        self._source = source
        self._shown = shown

    def of(
        self, index_query: IndexQuery, terms: Iterable[Term], ids: Collection[MemoryId]
    ) -> dict[MemoryId, Parts]:
        """The parts of these memories' scores; a memory that is not visible has none."""
        asked = list(dict.fromkeys(terms))
        parts: dict[MemoryId, Parts] = {}
        for number, memories in self._memories(ids, index_query.visible).items():
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

    def _memories(
        self, ids: Collection[MemoryId], visible: VisibleRows
    ) -> dict[int, list[MemoryId]]:
        """The memories, by the group in which they are seen."""
        found = self._execute(
            f"""SELECT m.id, s.area, s.partition
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE m.id IN (SELECT value FROM {self._sql.ids("given")}) AND {indexed("m")}
              ORDER BY m.id""",
            ids=json.dumps(list(ids)),
        )
        memories: dict[int, list[MemoryId]] = {}
        for id_, area, partition in found.fetchall():
            row = row_number(area, id_)
            for number in visible.spans if area == GLOBAL_AREA else (partition,):
                if any(first <= row <= last for first, last in visible.spans.get(number, ())):
                    memories.setdefault(number, []).append(id_)
        return memories


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
            often = frequency(counts, weights)
            return -1.0 * (idf * ((often * MOST) / (often + norm)))

        alone = [
            score(tuple(query.weights[it] if it == at else 0.0 for it in places)) for at in places
        ]
        limit = score((ENDLESS,) * len(FIELDS))
        added[term] = term_score(score(query.weights), limit, alone)
    return added
