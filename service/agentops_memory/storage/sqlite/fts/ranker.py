"""The best memories for a query: scored in memory where their group is there, else by FTS5."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ....domain.model.bm25 import Addends, lowest, of_any, of_every
from ....domain.model.memory import MemoryId
from ....domain.model.ranking import Candidate, Scored, combined, with_gains
from ....domain.model.search import Tier
from ....domain.text.query import Piece, Term
from ...index_cache.group import Sessions
from ..base.dialect import Stems
from .cached_index import CachedAreas, CachedIndex
from .queries import ALL, IndexQuery, Scores


class Ranker:
    """The rankings of one transaction."""

    def __init__(self, scores: Scores, cached: CachedIndex, stems: Stems) -> None:
        self._scores = scores
        self._cached = cached
        self._stems = stems

    def best(self, query: IndexQuery, limit: int) -> list[Scored]:
        """The best of all partitions; the first of them gain by those that follow them."""
        if not query.gaining:
            return self._best(query, limit)
        first, others = self._candidates(query, limit)
        return [*with_gains(first), *others][:limit]

    def gaining(self, query: IndexQuery) -> list[Candidate]:
        """The best, as many as gain, without what they gain."""
        return self._candidates(query, query.gaining)[0]

    def _candidates(self, query: IndexQuery, limit: int) -> tuple[list[Candidate], list[Scored]]:
        """The first of the best, with what tells who follows whom, and the others."""
        best = self._best(query, max(limit, query.gaining))
        first, others = best[: query.gaining], best[query.gaining :]
        sessions = self._sessions(query, [id_ for _, id_ in first])
        counts = Counter(sessions.values())
        shared = [id_ for id_, it in sessions.items() if it is not None and counts[it] > 1]
        second = self._scores.seconds(shared)
        found = [
            Candidate(score, id_, sessions[id_], second.get(id_))
            for score, id_ in first
            if id_ in sessions  # a damaged index may hold more than there is
        ]
        return found, others

    def _sessions(self, query: IndexQuery, ids: Sequence[MemoryId]) -> Sessions:
        with self._cached.of(query.visible, {}) as areas:
            if areas is not None:
                return areas.group.sessions(ids, self._scores.sessions)
        return self._scores.sessions(ids)

    def _best(self, query: IndexQuery, limit: int) -> list[Scored]:
        weights = query.sentence_weights
        sentences = self._in_memory(query)
        if sentences is not None:
            return combined(sentences, weights)[:limit]
        stored = [combined(self._scores.best(query, it), weights) for it in query.visible.spans]
        return sorted(it for found in stored for it in found)[:limit]

    def _in_memory(self, query: IndexQuery) -> list[list[Scored]] | None:
        """The best of each sentence; None where memory cannot tell."""
        asked, is_every = query.query, query.tier is Tier.EVERY
        terms = [term for it in (asked.every if is_every else asked.sentences) for term in it.terms]
        if any(term.starts for term in terms):
            return None
        stem_of = self._stems.of([term.text for term in terms])
        with self._cached.of(query.visible, stem_of, own=query.own) as areas:
            if areas is None:
                return None
            if is_every:
                sums = [_of_every(areas, asked.every, stem_of, own=query.own)]
            else:
                sums = [_of_any(areas, it.terms, stem_of, own=query.own) for it in asked.sentences]
        depth = None if query.depth == ALL else query.depth
        if query.visible.condition or query.visible.hidden:
            shown = self._scores.shown(set().union(*sums), query.visible)
            sums = [{id_: it for id_, it in each.items() if id_ in shown} for each in sums]
        return [lowest(each, depth) for each in sums]


def _of_any(
    areas: CachedAreas, terms: Sequence[Term], stem_of: Mapping[str, str], *, own: bool
) -> dict[MemoryId, float]:
    """The sums for memories that have any of the terms."""
    group, sums = areas.group, dict[MemoryId, float]()
    for area in areas.areas:
        sums |= of_any([group.addends(stem_of[it.text], area, own=own) for it in terms])
    return sums


def _of_every(
    areas: CachedAreas, pieces: Sequence[Piece], stem_of: Mapping[str, str], *, own: bool
) -> dict[MemoryId, float]:
    """The sums for memories that have every piece."""
    sums: dict[MemoryId, float] = {}
    for area in areas.areas:

        def addends(terms: Sequence[Term], area: int = area) -> list[Addends]:
            return [areas.group.addends(stem_of[it.text], area, own=own) for it in terms]

        sums |= of_every([(addends(it.parts), addends(it.joined)) for it in pieces])
    return sums
