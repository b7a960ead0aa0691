"""The best memories for a query: scored in memory where their group is there, else by FTS5."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from ....domain.model.bm25 import Sums, lowest
from ....domain.model.ranking import Candidate, Scored, combined, with_gains
from ....domain.model.search import Tier
from ...index_cache.lookup import Lookup
from ..base.dialect import Stems
from .alone import AloneScores
from .cached_index import CachedIndex
from .queries import ALL, IndexQuery, Scores
from .visibility import VisibleRows


class Ranker:
    """The rankings of one transaction."""

    def __init__(
        self, scores: Scores, alone: AloneScores, cached: CachedIndex, stems: Stems
    ) -> None:
        self._scores = scores
        self._alone = alone
        self._cached = cached
        self._stems = stems

    def best(self, query: IndexQuery, limit: int) -> list[Scored]:
        """The best of all partitions; the first of them gain by those that follow them."""
        first, others = self._candidates(query, limit)
        return [*with_gains(first), *others][:limit]

    def gaining(self, query: IndexQuery) -> list[Candidate]:
        """The best, as many as gain, without what they gain."""
        return self._candidates(query, query.gaining)[0]

    def _candidates(self, query: IndexQuery, limit: int) -> tuple[list[Candidate], list[Scored]]:
        """The first of the best, with what tells who follows whom, and the others."""
        with self._in_memory(query) as found:
            best = self._best(query, found)[: max(limit, query.gaining)]
            first, others = best[: query.gaining], best[query.gaining :]
            return self._placed(first, found), others

    def _placed(self, best: Sequence[Scored], found: Lookup | None) -> list[Candidate]:
        """Some of the best with their sessions, and the second after those that share theirs."""
        if not best:
            return []
        sessions_of, seconds_of = self._scores.sessions, self._scores.seconds
        ids = [id_ for _, id_ in best]
        sessions = found.group.sessions(ids, sessions_of) if found else sessions_of(ids)
        counts = Counter(sessions.values())
        shared = [id_ for id_, it in sessions.items() if it is not None and counts[it] > 1]
        second = found.group.seconds(shared, seconds_of) if found else seconds_of(shared)
        return [
            Candidate(score, id_, sessions[id_], second.get(id_))
            for score, id_ in best
            if id_ in sessions  # a damaged index may hold more than there is
        ]

    def _best(self, query: IndexQuery, found: Lookup | None) -> list[Scored]:
        weights = query.sentence_weights
        if query.visible.is_alone:
            depth = None if query.depth == ALL else query.depth
            sums = self._shown(self._alone.best(query), query.visible)
            return combined([lowest(it, depth) for it in sums], weights)
        if found:
            return combined(self._sentences(query, found), weights)
        stored = [combined(self._scores.best(query, it), weights) for it in query.visible.spans]
        return stored[0] if len(stored) == 1 else sorted(it for each in stored for it in each)

    @contextmanager
    def _in_memory(self, query: IndexQuery) -> Iterator[Lookup | None]:
        """What memory tells of the query's words; None where it cannot."""
        asked = query.query.every if query.tier is Tier.EVERY else query.query.sentences
        terms = [term for it in asked for term in it.terms]
        if query.visible.is_alone or any(term.starts for term in terms):
            yield None
            return
        stem_of = self._stems.of([term.text for term in terms])
        with self._cached.of(query.visible, stem_of, own=query.own) as found:
            yield found

    def _sentences(self, query: IndexQuery, found: Lookup) -> list[list[Scored]]:
        """The best of each sentence."""
        depth, visible = None if query.depth == ALL else query.depth, query.visible
        most = None if visible.condition or visible.hidden else depth
        if query.tier is Tier.EVERY:
            sums = [found.having_every(query.query.every)]
        else:
            sums = [found.having_any(it.terms, most) for it in query.query.sentences]
        return [lowest(it, depth) for it in self._shown(sums, visible)]

    def _shown(
        self, found: Sequence[Sequence[Sums]], visible: VisibleRows
    ) -> Sequence[Sequence[Sums]]:
        """What is found of each sentence, without what the conditions leave out."""
        if not (visible.condition or visible.hidden):
            return found
        every = chain.from_iterable(found)
        shown = self._scores.shown({ids[at] for sums, ids in every for at in sums}, visible)
        return [
            [({at: it for at, it in sums.items() if ids[at] in shown}, ids) for sums, ids in each]
            for each in found
        ]
