"""Search in one transaction: the parts that both engines share, and corrections of typos."""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate, chain, islice
from typing import Any, Protocol

from ..memory.memories import MemoryLists
from ..memory.memory import Memory, MemoryId, indexed
from ..memory.search import (
    KEYED_RANK,
    NOTHING,
    PLACES,
    SCORED,
    WEIGHTS,
    Candidate,
    Field,
    Filter,
    Hit,
    Method,
    Parts,
    PiecePostings,
    Postings,
    Scored,
    Sums,
    TermScore,
    Tier,
    Totals,
    combined,
    followers,
    lowest,
    of_any,
    of_every,
    with_gains,
)
from ..memory.space import GLOBAL_AREA, GLOBAL_SCOPE
from ..memory.table import Attributes, Table, step
from .query import MOST_TERMS, MOST_WORDS, Corrections, Piece, Query, Sentence, Term
from .stems import Stems
from .visibility import ALL, IndexQuery, Row, Visibility, VisibleRows, row_number


class RowLookup(Table):
    """Rows of memories in one transaction, as one JSON row each: many rows delay other readers."""

    def visible_among(self, ids: Collection[MemoryId], visible: VisibleRows) -> frozenset[MemoryId]:
        """Return the memories that meet the conditions."""
        hidden = "".join(f" AND NOT {hides('m.id')}" for hides in visible.hidden)
        ((visible_ids,),) = self._execute(
            f"""SELECT {self._sql.gathered("m.id")}
                  FROM {self._sql.ids("requested")}
                 {self._sql.leads} memories m ON m.id = requested.value
                 WHERE TRUE{visible.condition}{hidden}""",
            ids=json.dumps(list(ids)),
            **visible.values,
        )
        return frozenset(json.loads(visible_ids))

    def sessions(self, ids: Sequence[MemoryId]) -> dict[MemoryId, str | None]:
        """Return a key of each memory's session: its space and session id, or None."""
        return self._of_each("m.space_id || ' ' || m.session_id", ids)

    def seconds(self, ids: Sequence[MemoryId]) -> dict[MemoryId, MemoryId | None]:
        """Return the second memory after each one in its session, or None."""
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
        """Return the memories' row numbers by the partition in which they are visible."""
        memories = self._execute(
            f"""SELECT m.id, s.area, s.partition
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE m.id IN (SELECT value FROM {self._sql.ids("listed")}) AND {indexed("m")}""",
            ids=json.dumps(list(ids)),
        )
        rows: dict[int, dict[MemoryId, Row]] = {}
        for id_, area, partition in memories.fetchall():
            row = row_number(area, id_)
            for number in visible.spans if area == GLOBAL_AREA else (partition,):
                if any(first <= row <= last for first, last in visible.spans.get(number, ())):
                    rows.setdefault(number, {})[id_] = row
        return rows

    def _of_each(self, value: str, ids: Sequence[MemoryId]) -> dict[MemoryId, Any]:
        ((rows,),) = self._execute(
            f"""SELECT {self._sql.gathered("m.id", value)}
                  FROM {self._sql.ids("requested")}
                 {self._sql.leads} memories m ON m.id = requested.value""",
            ids=json.dumps(ids),
        )
        return dict(json.loads(rows))


class QueryWords(Protocol):
    """The scores of a query's words, for one reader."""

    def scores_of_any(self, terms: Sequence[Term]) -> Sequence[Sums]:
        """Return by area the scores of memories that have any of the terms."""

    def scores_of_every(self, pieces: Sequence[Piece]) -> Sequence[Sums]:
        """Return by area the scores of memories that have every piece."""


class FoundWords:
    """Scores of a query's words from the stored index.

    `frequencies` are weighted by field, `document_counts` count memories of the whole group,
    and `lengths` are in words.
    """

    def __init__(
        self,
        totals: Totals,
        frequencies: Mapping[Term, Mapping[MemoryId, float]],
        document_counts: Mapping[Term, int],
        lengths: Mapping[MemoryId, int],
    ) -> None:
        self._memories = sorted(lengths)
        position_of = {memory: position for position, memory in enumerate(self._memories)}
        self._norms = list(totals.norms([lengths[it] for it in self._memories]))
        self._postings = {
            term: Postings(
                totals.idf(document_counts[term]), [position_of[it] for it in tf], tf.values()
            )
            for term, tf in frequencies.items()
            if tf
        }

    def scores_of_any(self, terms: Sequence[Term]) -> list[Sums]:
        return [(of_any(map(self._of, terms), self._norms), self._memories)]

    def scores_of_every(self, pieces: Sequence[Piece]) -> list[Sums]:
        postings: list[PiecePostings] = [
            ([self._of(term) for term in it.parts], [self._of(term) for term in it.joined])
            for it in pieces
        ]
        return [(of_every(postings, self._norms), self._memories)]

    def idf(self, term: Term) -> float:
        return self._of(term).idf

    def norm(self, memory: MemoryId) -> float:
        return self._norms[self._memories.index(memory)]

    def _of(self, term: Term) -> Postings:
        return self._postings.get(term, NOTHING)


Gains = Callable[[Sequence[Scored]], list[Scored]]
"""Re-ranks the best memories, each with its gain from its followers among them."""


def sentences(query: IndexQuery, words: QueryWords, lookup: RowLookup) -> list[list[Scored]]:
    """Return the best visible memories of each sentence."""
    depth, visible = None if query.depth == ALL else query.depth, query.visible
    sums: Sequence[Sequence[Sums]]
    if query.tier is Tier.EVERY:
        sums = [words.scores_of_every(query.query.every)]
    else:
        sums = [words.scores_of_any(it.terms) for it in query.query.sentences]
    if visible.condition or visible.hidden:
        matches = {ids[at] for part, ids in chain.from_iterable(sums) for at in part}
        kept = lookup.visible_among(matches, visible)
        sums = [
            [({at: it for at, it in part.items() if ids[at] in kept}, ids) for part, ids in parts]
            for parts in sums
        ]
    return [lowest(it, depth) for it in sums]


HUGE = 1e18  # a field weight that takes BM25 practically to its limit
FIELDS = tuple(Field)  # in the order of the columns


WEIGHTINGS = [
    WEIGHTS,
    (HUGE,) * len(FIELDS),
    *(
        tuple(it if FIELDS[at] is field else 0.0 for at, it in enumerate(WEIGHTS))
        for field in Field
    ),
]
"""The field weights of the scores that `term_score` takes, in its order."""


def term_score(score: float, limit: float, by_field: Sequence[float]) -> TermScore:
    """Return a term's score with the share of each field.

    For a term whose weighted count is f, BM25 is L * f / (f + K). The fields' counts
    sum to f, and each is known, in units of K, from the score with this field alone
    and from L, the score with huge weights.
    """
    counts = [field / (limit - field) for field in by_field]
    shares = {name: count / sum(counts) for name, count in zip(FIELDS, counts, strict=True)}
    return TermScore(score=score, fields=shares)


NO_LIMIT = 1 << 62  # for counts


def _attributes(match: str | None = None) -> Callable[..., Attributes]:
    def attributes(hits: Sized, *_: object) -> Attributes:
        return {"memory.fts.match": match, "memory.search.result_count": len(hits)}

    return attributes


class Search(ABC):
    """Search in live memories; ranks of different projects are only roughly comparable."""

    def __init__(
        self, memories: MemoryLists, visibility: Visibility, lookup: RowLookup, stems: Stems
    ) -> None:
        self._memories = memories
        self._visibility = visibility
        self._lookup = lookup
        self._stems = stems

    @abstractmethod
    def within(self, timeout: timedelta) -> AbstractContextManager[None]:
        """Within, reads may raise TimedOut or Damaged; the transaction stays usable."""

    @abstractmethod
    def _in_memory(
        self, query: IndexQuery
    ) -> AbstractContextManager[tuple[QueryWords, Gains | None] | None]:
        """Yield the query's words and gains from the in-memory index, or None if it cannot."""

    @abstractmethod
    def _stored(self, query: IndexQuery) -> Iterable[Sequence[Sequence[Scored]]]:
        """Return the best of each sentence from the stored index, by partition."""

    @abstractmethod
    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        """Count the memories with each term in their own words; counting may stop above `most`."""

    @abstractmethod
    def _stems_near(self, forms: Collection[str], visible: VisibleRows) -> Collection[str]:
        """Return all stems of visible memories that are one edit from any of the forms.

        Others may be included: stems of hidden memories, of no memory, or not near.
        """

    @abstractmethod
    def _scores(
        self, query: IndexQuery, number: int, terms: Sequence[Term], rows: Mapping[MemoryId, Row]
    ) -> tuple[Sequence[Sequence[Scored]], Mapping[MemoryId, Mapping[Term, TermScore]]]:
        """Return the best of each sentence in a partition, and the term scores of its memories."""

    @step("store.fts", _attributes("keyed"))
    def keyed(self, path: str, filter_: Filter, limit: int) -> list[Hit]:
        """Return memories whose key contains the path literally, newest first."""
        memories = self._memories.loaded(self._memories.at_keys(path, filter_, limit))
        return [Hit(memory=memory, rank=KEYED_RANK, method=Method.TOPIC_KEY) for memory in memories]

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        """Return corrections of words that no memory of the project or store and no global one has.

        They are the three most frequent words one edit away with the same first letter. At most
        four words are corrected; none without a single project or store.
        """
        is_single = filter_.project or filter_.is_outside_projects
        if not is_single and filter_.scope != GLOBAL_SCOPE:
            return {}
        visible = self._visibility.of(filter_)
        if not visible.spans:  # the space has never had a memory
            return {}
        return self._corrections(words, visible)

    def _corrections(self, words: Collection[str], visible: VisibleRows) -> Corrections:
        """Return corrections from the stored index, looked up for all words at once."""
        known = self._existing(words, visible)
        forms = self._stems.compared.get_all([it for it in words if it not in known])
        unknown = dict(islice((it for it in forms.items() if it[1]), MOST_WORDS))
        if not unknown:
            return {}
        stems = self._stems_near(unknown.values(), visible)
        near = self._stems.near(dict.fromkeys(unknown.values(), stems))
        visible_forms = self._existing(set(chain.from_iterable(near.values())), visible)
        candidates = {
            word: [it for it in near[form] if it in visible_forms] for word, form in unknown.items()
        }
        return {word: self._frequent(it, visible) for word, it in candidates.items() if it}

    def _existing(self, words: Collection[str], visible: VisibleRows) -> set[str]:
        """Return the words that any visible memory has in its own words."""
        counts = self._counts(list(map(Term, words)), visible, 0)
        return {word for word, count in zip(words, counts, strict=True) if count}

    def _frequent(self, terms: list[str], visible: VisibleRows) -> tuple[str, ...]:
        """Return the most frequent terms, ties in alphabetical order."""
        if len(terms) <= MOST_TERMS:
            return tuple(terms)
        counted = self._counts(list(map(Term, terms)), visible, NO_LIMIT)
        counts = dict(zip(terms, counted, strict=True))
        return tuple(sorted(terms, key=lambda term: (-counts[term], term))[:MOST_TERMS])

    @step("store.fts", _attributes("every"))
    def every(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """Return memories in which all pieces of the query occur, best first, ties by id."""
        return self._best(self._index_query(Tier.EVERY, query, filter_, limit), limit)

    @step("store.fts", _attributes("best"))
    def best(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """Return memories in which any term occurs, best first, ties by id.

        A score is that of the best sentence plus 0.4 times the sum of the others, each times
        the sentence's weight. Each of several sentences scores only its best memories
        (SENTENCE_DEPTH). The best memories then gain from their followers (`with_gains`).
        """
        return self._best(self._index_query(Tier.ANY, query, filter_, limit), limit)

    @step("store.similar", _attributes())
    def similar(self, terms: Collection[Term], filter_: Filter, limit: int) -> list[Memory]:
        """Return memories with any of the rare terms in their own words, best first, ties by id.

        Rare terms are the rarest that several memories have, with at most SCORED rows in all;
        if there is none, every term counts.
        """
        visible = self._visibility.of(filter_)
        rare = self._rare(terms, visible, SCORED)
        query = Query(sentences=(Sentence(rare or tuple(terms)),))
        index_query = IndexQuery.of(Tier.ANY, query, visible, limit)
        index_query = replace(index_query, own=True, gaining=0)  # without gains
        return self._memories.loaded(id_ for _, id_ in self._best(index_query, limit))

    def _rare(self, terms: Collection[Term], visible: VisibleRows, most: int) -> tuple[Term, ...]:
        """Return a memory's rarest terms that others have, with at most `most` rows in all.

        The memory itself is in the index, so a term of others has a count above one.
        """
        counts = self._counts(terms, visible, most)
        shared = sorted((count, at) for at, count in enumerate(counts) if count > 1)
        sums = accumulate(count for count, _ in shared)
        rarest = {at for (_, at), total in zip(shared, sums, strict=True) if total <= most}
        return tuple(term for at, term in enumerate(terms) if at in rarest)

    def similarities(self, text: str, others: Sequence[str]) -> list[float]:
        """Return the `similarity` of a text to each of the others, by stems without stop words.

        It uses no statistics, so a score is the same in every project and engine.
        """
        return self._stems.similarities([text, *others])

    def ranking(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """Return the full ranking of a tier, at most PLACES memories.

        The limit sets the sentence depth; a single sentence has no depth.
        """
        if tier is Tier.KEY:
            keyed = self._memories.at_keys(query.path or "", filter_, PLACES)
            return [(KEYED_RANK, id_) for id_ in keyed]
        index_query = self._index_query(tier, query, filter_, limit)
        if len(index_query.sentence_weights) == 1:
            index_query = replace(index_query, depth=PLACES)
        return self._best(index_query, PLACES)

    def parts(
        self, tier: Tier, query: Query, filter_: Filter, limit: int, ids: Collection[MemoryId]
    ) -> Mapping[MemoryId, Parts]:
        """Return the score parts of these memories, leaving out invisible ones.

        A memory beyond the limit of the tier has its matched terms, too.
        """
        index_query = self._index_query(tier, query, filter_, limit)
        terms = list(dict.fromkeys(index_query.terms))
        parts: dict[MemoryId, Parts] = {}
        for number, rows in self._lookup.places(ids, index_query.visible).items():
            sentences, added = self._scores(index_query, number, terms, rows)
            scores = [{id_: score for score, id_ in it} for it in sentences]
            for id_ in rows:
                counted = tuple(it.get(id_) for it in scores)
                parts[id_] = Parts(sentences=counted, terms=added.get(id_, {}))
        if not index_query.gaining:
            return parts
        with self._in_memory(index_query) as cached:
            best = self._ranked(index_query, cached and cached[0])[: index_query.gaining]
        gained = followers(self._candidates(best))
        return {id_: replace(it, followers=gained.get(id_, ())) for id_, it in parts.items()}

    def _best(self, query: IndexQuery, limit: int) -> list[Scored]:
        """Return the best of all partitions, the first of them with gains from their followers."""
        with self._in_memory(query) as cached:
            words, gains = cached or (None, None)
            best = self._ranked(query, words)[: max(limit, query.gaining)]
            first, others = best[: query.gaining], best[query.gaining :]
            gained = gains(first) if gains else with_gains(self._candidates(first))
        return [*gained, *others][:limit]

    def _ranked(self, query: IndexQuery, words: QueryWords | None) -> list[Scored]:
        """Return the matches, best first, by the stored index without words from memory."""
        weights = query.sentence_weights
        if words is not None:
            return combined(sentences(query, words, self._lookup), weights)
        parts = [combined(it, weights) for it in self._stored(query)]
        return parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts))

    def _candidates(self, best: Sequence[Scored]) -> list[Candidate]:
        if not best:
            return []
        sessions = self._lookup.sessions([id_ for _, id_ in best])
        counts = Counter(sessions.values())
        shared = [id_ for id_, it in sessions.items() if it is not None and counts[it] > 1]
        second = self._lookup.seconds(shared)
        return [
            Candidate(score, id_, sessions[id_], second.get(id_))
            for score, id_ in best
            if id_ in sessions  # a damaged index may have ids of no memory
        ]

    @step("store.backfill", _attributes())
    def backfill(self, filter_: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        """Return the newest memories that are not in `but`."""
        memories = self._memories.newest(filter_, limit + len(but))
        newest = [memory for memory in memories if memory.id not in but][:limit]
        return [Hit(memory=memory, rank=0.0, method=Method.RECENCY) for memory in newest]

    def _index_query(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> IndexQuery:
        return IndexQuery.of(tier, query, self._visibility.of(filter_), limit)
