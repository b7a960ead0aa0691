"""Recall in one transaction: what the engines share."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate

from ...engine.shared.stems import Stems
from ...memory.model.memory import Memory, MemoryId
from ...memory.model.ranking import KEYED_RANK, PLACES, SCORED, Scored, followers
from ...memory.model.search import Filter, Hit, Method, Parts, Tier
from ...memory.sql.memory_lists import MemoryLists
from ..text.query import Corrections, Query, Sentence, Term
from .query import IndexQuery
from .ranker import Ranker
from .spelling import Spelling
from .visibility import Visibility, VisibleRows


class Search(ABC):
    """The SearchTable of one transaction."""

    def __init__(
        self,
        memories: MemoryLists,
        visibility: Visibility,
        ranker: Ranker,
        spelling: Spelling,
        stems: Stems,
    ) -> None:
        self._memories = memories
        self._visibility = visibility
        self._ranker = ranker
        self._spelling = spelling
        self._stems = stems

    @abstractmethod
    def within(self, timeout: timedelta) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        """How many memories have each term among their own words, or that more than so many do."""

    @abstractmethod
    def _explained(
        self, index_query: IndexQuery, tier: Tier, query: Query, ids: Collection[MemoryId]
    ) -> Mapping[MemoryId, Parts]:
        """The parts of these memories' scores; a memory that is not visible has none."""

    def keyed(self, path: str, filter_: Filter, limit: int) -> list[Hit]:
        found = self._memories.loaded(self._memories.at_keys(path, filter_, limit))
        return [Hit(memory=memory, rank=KEYED_RANK, method=Method.TOPIC_KEY) for memory in found]

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        return self._spelling.corrections(words, filter_)

    def every(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        return self._ranker.best(self._index_query(Tier.EVERY, query, filter_, limit), limit)

    def best(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        return self._ranker.best(self._index_query(Tier.ANY, query, filter_, limit), limit)

    def similar(self, terms: Collection[Term], filter_: Filter, limit: int) -> list[Memory]:
        visible = self._visibility.of(filter_)
        rare = self._rare(terms, visible, SCORED)
        query = Query(sentences=(Sentence(rare or tuple(terms)),))
        index_query = IndexQuery.of(Tier.ANY, query, visible, limit).for_similar
        return self._memories.loaded(id_ for _, id_ in self._ranker.best(index_query, limit))

    def _rare(self, terms: Collection[Term], visible: VisibleRows, most: int) -> tuple[Term, ...]:
        """The rarest of a memory's terms that others have, as many as bring at most so many rows.

        The memory itself is in the index.
        """
        counts = self._counts(terms, visible, most)
        shared = sorted((count, place) for place, count in enumerate(counts) if count > 1)
        sums = accumulate(count for count, _ in shared)
        places = [place for (_, place), total in zip(shared, sums, strict=True) if total <= most]
        every = tuple(terms)
        return tuple(every[place] for place in sorted(places))

    def similarities(self, text: str, others: Sequence[str]) -> list[float]:
        return self._stems.similarities([text, *others])

    def ranking(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        if tier is Tier.KEY:
            keyed = self._memories.at_keys(query.path or "", filter_, PLACES)
            return [(KEYED_RANK, id_) for id_ in keyed]
        index_query = self._index_query(tier, query, filter_, limit)
        return self._ranker.best(index_query.without_limit, PLACES)

    def parts(
        self, tier: Tier, query: Query, filter_: Filter, limit: int, ids: Collection[MemoryId]
    ) -> Mapping[MemoryId, Parts]:
        index_query = self._index_query(tier, query, filter_, limit)
        parts = self._explained(index_query, tier, query, ids)
        if not index_query.gaining:
            return parts
        gained = followers(self._ranker.gaining(index_query))
        return {id_: replace(it, followers=gained.get(id_, ())) for id_, it in parts.items()}

    def backfill(self, filter_: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        memories = self._memories.newest(filter_, limit + len(but))
        found = [memory for memory in memories if memory.id not in but][:limit]
        return [Hit(memory=memory, rank=0.0, method=Method.RECENCY) for memory in found]

    def _index_query(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> IndexQuery:
        return IndexQuery.of(tier, query, self._visibility.of(filter_), limit)
