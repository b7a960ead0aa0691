"""The best memories for a query, which of them are shown, and what a term adds to a score."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, Protocol

from ...memory.model.bm25 import (
    NOTHING,
    PiecePostings,
    Postings,
    Sums,
    Totals,
    lowest,
    of_any,
    of_every,
)
from ...memory.model.liveness import indexed
from ...memory.model.memory import MemoryId
from ...memory.model.ranking import Candidate, Scored, combined, with_gains
from ...memory.model.search import Field, TermScore, Tier
from ...memory.model.space import GLOBAL_AREA
from ...memory.model.table import Table
from ..text.query import Piece, Term
from .query import ALL, IndexQuery
from .rows import Row, row_number
from .visibility import VisibleRows


class Shown(Table):
    """What one transaction sees. Rows come as one: many would hold up other readers more."""

    def among(self, ids: Collection[MemoryId], visible: VisibleRows) -> frozenset[MemoryId]:
        """Those of the memories that the conditions leave in."""
        hidden = "".join(f" AND NOT {hides('m.id')}" for hides in visible.hidden)
        ((shown,),) = self._execute(
            f"""SELECT {self._sql.gathered("m.id")}
                  FROM {self._sql.ids("wanted")}
                 {self._sql.leads} memories m ON m.id = wanted.value
                 WHERE TRUE{visible.condition}{hidden}""",
            ids=json.dumps(list(ids)),
            **visible.values,
        )
        return frozenset(json.loads(shown))

    def sessions(self, ids: Sequence[MemoryId]) -> dict[MemoryId, str | None]:
        """The session of each memory; in each space it is another."""
        return self._of_each("m.space_id || ' ' || m.session_id", ids)

    def seconds(self, ids: Sequence[MemoryId]) -> dict[MemoryId, MemoryId | None]:
        """The second memory after each in its session, if there is one."""
        second = f"""(SELECT n.id
                        FROM memories n {self._sql.hint("memories_in_session")}
                       WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                             AND {indexed("n")} AND n.id > m.id
                    ORDER BY n.id
                       LIMIT 1 OFFSET 1)"""
        return self._of_each(second, ids) if ids else {}

    def places(
        self, ids: Collection[MemoryId], visible: VisibleRows
    ) -> dict[int, dict[MemoryId, Row]]:
        """The memories' row numbers, by the partition in which they are seen."""
        found = self._execute(
            f"""SELECT m.id, s.area, s.partition
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE m.id IN (SELECT value FROM {self._sql.ids("given")}) AND {indexed("m")}""",
            ids=json.dumps(list(ids)),
        )
        rows: dict[int, dict[MemoryId, Row]] = {}
        for id_, area, partition in found.fetchall():
            row = row_number(area, id_)
            for number in visible.spans if area == GLOBAL_AREA else (partition,):
                if any(first <= row <= last for first, last in visible.spans.get(number, ())):
                    rows.setdefault(number, {})[id_] = row
        return rows

    def _of_each(self, value: str, ids: Sequence[MemoryId]) -> dict[MemoryId, Any]:
        ((rows,),) = self._execute(
            f"""SELECT {self._sql.gathered("m.id", value)}
                  FROM {self._sql.ids("wanted")}
                 {self._sql.leads} memories m ON m.id = wanted.value""",
            ids=json.dumps(ids),
        )
        return dict(json.loads(rows))


class Found(Protocol):
    """What is found of the words of a query, for its reader alone."""

    def having_any(self, terms: Sequence[Term]) -> Sequence[Sums]:
        """What the terms add, by area."""

    def having_every(self, pieces: Sequence[Piece]) -> Sequence[Sums]:
        """What the pieces add where every one is, by area."""


class FoundWords:
    """The words of a query that were found in what is stored.

    Of each term how often it stands in the memories that have it, how many have it where words
    are weighed together, and the lengths of all these memories.
    """

    def __init__(
        self,
        totals: Totals,
        often: Mapping[Term, Mapping[MemoryId, float]],
        having: Mapping[Term, int],
        lengths: Mapping[MemoryId, int],
    ) -> None:
        self._memories = sorted(lengths)
        place_of = {memory: place for place, memory in enumerate(self._memories)}
        self._norms = totals.norms(lengths[it] for it in self._memories)
        self._postings = {
            term: Postings(
                totals.idf(having[term]), [place_of[it] for it in counts], counts.values()
            )
            for term, counts in often.items()
            if counts
        }

    def having_any(self, terms: Sequence[Term]) -> list[Sums]:
        return [(of_any(map(self._of, terms), self._norms), self._memories)]

    def having_every(self, pieces: Sequence[Piece]) -> list[Sums]:
        found: list[PiecePostings] = [
            ([self._of(term) for term in it.parts], [self._of(term) for term in it.joined])
            for it in pieces
        ]
        return [(of_every(found, self._norms), self._memories)]

    def idf(self, term: Term) -> float:
        return self._of(term).idf

    def norm(self, memory: MemoryId) -> float:
        return self._norms[self._memories.index(memory)]

    def _of(self, term: Term) -> Postings:
        return self._postings.get(term, NOTHING)


class Sessions(Protocol):
    """The sessions of memories, and the second memory after each in its session."""

    def sessions(self, ids: Sequence[MemoryId], /) -> Mapping[MemoryId, object]: ...
    def seconds(self, ids: Sequence[MemoryId], /) -> Mapping[MemoryId, MemoryId | None]: ...


class Source(Protocol):
    """Where the words of an engine are."""

    def found(
        self, query: IndexQuery
    ) -> AbstractContextManager[tuple[Found, Sessions | None] | None]:
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
                best, sessions = self._source.best(query), None
            else:
                found, sessions = here
                best = combined(sentences(query, found, self._shown), query.sentence_weights)
            best = best[: max(limit, query.gaining)]
            first, others = best[: query.gaining], best[query.gaining :]
            return self._placed(first, sessions or self._shown), others

    def _placed(self, best: Sequence[Scored], known: Sessions) -> list[Candidate]:
        """Some of the best with their sessions, and the second after those that share theirs."""
        if not best:
            return []
        sessions = known.sessions([id_ for _, id_ in best])
        counts = Counter(sessions.values())
        shared = [id_ for id_, it in sessions.items() if it is not None and counts[it] > 1]
        second = known.seconds(shared)
        return [
            Candidate(score, id_, sessions[id_], second.get(id_))
            for score, id_ in best
            if id_ in sessions  # a damaged index may hold more than there is
        ]


def sentences(query: IndexQuery, found: Found, shown: Shown) -> list[list[Scored]]:
    """The best of each sentence."""
    depth, visible = None if query.depth == ALL else query.depth, query.visible
    if query.tier is Tier.EVERY:
        sums = [found.having_every(query.query.every)]
    else:
        sums = [found.having_any(it.terms) for it in query.query.sentences]
    return [lowest(it, depth) for it in _without_hidden(sums, visible, shown)]


def _without_hidden(
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


ENDLESS = 1e18  # a weight under which BM25 is as good as at its limit
FIELDS = tuple(Field)  # in the order of the columns


def weightings(weights: tuple[float, ...]) -> list[tuple[float, ...]]:
    """The weights whose scores are what `term_score` is given, in its order."""
    places = range(len(FIELDS))
    alone = (tuple(weights[it] if it == at else 0.0 for it in places) for at in places)
    return [weights, (ENDLESS,) * len(FIELDS), *alone]


def term_score(score: float, limit: float, alone: Sequence[float]) -> TermScore:
    """What a term adds, shared out among the fields.

    For a term whose weighted count is f, BM25 is L * f / (f + K). The counts of
    the fields add up to f, so each is known, in units of K, from the score that
    the field alone would have and from L, the score of endless weights.
    """
    counts = [field / (limit - field) for field in alone]
    shares = {name: count / sum(counts) for name, count in zip(FIELDS, counts, strict=True)}
    return TermScore(score=score, fields=shares)
