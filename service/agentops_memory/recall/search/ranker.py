"""The best memories for a query: by the words that are found, else by what the engine scores."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Protocol

from ...memory.model.bm25 import Sums, lowest
from ...memory.model.memory import MemoryId
from ...memory.model.ranking import Candidate, Scored, combined, with_gains
from ...memory.model.search import Tier
from ..text.query import Piece, Term
from .query import ALL, IndexQuery
from .shown import Shown
from .visibility import VisibleRows


class Found(Protocol):
    """What is found of the words of a query, for its reader alone."""

    def having_any(self, terms: Sequence[Term], most: int | None) -> Sequence[Sums]:
        """What the terms add, by area; enough for so many of the best."""

    def having_every(self, pieces: Sequence[Piece]) -> Sequence[Sums]:
        """What the pieces add where every one is, by area."""


class Remembered(Protocol):
    """What is known of memories from one request to the next."""

    def sessions(
        self, ids: Sequence[MemoryId], find: Callable[..., Mapping[MemoryId, str | None]]
    ) -> Mapping[MemoryId, str | None]: ...
    def seconds(
        self, ids: Sequence[MemoryId], find: Callable[..., Mapping[MemoryId, MemoryId | None]]
    ) -> Mapping[MemoryId, MemoryId | None]: ...


class Source(Protocol):
    """Where the words of an engine are."""

    def found(
        self, query: IndexQuery
    ) -> AbstractContextManager[tuple[Found, Remembered | None] | None]:
        """The words of a query in memory; None where they cannot be told."""

    def best(self, query: IndexQuery) -> list[Scored]:
        """The best of a query, best first, by what is stored."""


class Ranker:
    """The rankings of one transaction."""

    def __init__(self, source: Source, shown: Shown) -> None:
        self._source = source
        self._shown = shown

    def best(self, query: IndexQuery, limit: int) -> list[Scored]:
        """The best of all partitions; the first of them gain by those that follow them."""
        first, others = self._candidates(query, limit)
        return [*with_gains(first), *others][:limit]

    def gaining(self, query: IndexQuery) -> list[Candidate]:
        """The best, as many as gain, without what they gain."""
        return self._candidates(query, query.gaining)[0]

    def _candidates(self, query: IndexQuery, limit: int) -> tuple[list[Candidate], list[Scored]]:
        """The first of the best, with what tells who follows whom, and the others."""
        with self._source.found(query) as here:
            if here is None:
                best, remembered = self._source.best(query), None
            else:
                found, remembered = here
                best = combined(sentences(query, found, self._shown), query.sentence_weights)
            best = best[: max(limit, query.gaining)]
            first, others = best[: query.gaining], best[query.gaining :]
            return self._placed(first, remembered), others

    def _placed(self, best: Sequence[Scored], known: Remembered | None) -> list[Candidate]:
        """Some of the best with their sessions, and the second after those that share theirs."""
        if not best:
            return []
        sessions_of, seconds_of = self._shown.sessions, self._shown.seconds
        ids = [id_ for _, id_ in best]
        sessions = known.sessions(ids, sessions_of) if known else sessions_of(ids)
        counts = Counter(sessions.values())
        shared = [id_ for id_, it in sessions.items() if it is not None and counts[it] > 1]
        second = known.seconds(shared, seconds_of) if known else seconds_of(shared)
        return [
            Candidate(score, id_, sessions[id_], second.get(id_))
            for score, id_ in best
            if id_ in sessions  # a damaged index may hold more than there is
        ]


def sentences(query: IndexQuery, found: Found, shown: Shown) -> list[list[Scored]]:
    """The best of each sentence."""
    depth, visible = None if query.depth == ALL else query.depth, query.visible
    most = None if visible.condition or visible.hidden else depth
    if query.tier is Tier.EVERY:
        sums = [found.having_every(query.query.every)]
    else:
        sums = [found.having_any(it.terms, most) for it in query.query.sentences]
    return [lowest(it, depth) for it in without_hidden(sums, visible, shown)]


def without_hidden(
    found: Sequence[Sequence[Sums]], visible: VisibleRows, shown: Shown
) -> Sequence[Sequence[Sums]]:
    """What is found of each sentence, without what the conditions leave out."""
    if not (visible.condition or visible.hidden):
        return found
    kept = shown.among(set(_memories(chain.from_iterable(found))), visible)
    return [
        [({at: it for at, it in sums.items() if ids[at] in kept}, ids) for sums, ids in each]
        for each in found
    ]


def _memories(found: "chain[Sums]") -> Iterator[MemoryId]:
    return (ids[at] for sums, ids in found for at in sums)
