"""Recall in one transaction: what the engines share, with corrections of misspelt words."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate

from ...engine.shared.stems import Stems, compared
from ...engine.steps import Attributes, step
from ...memory.model.memory import Memory, MemoryId
from ...memory.model.ranking import KEYED_RANK, PLACES, SCORED, Scored, followers
from ...memory.model.search import Filter, Hit, Method, Parts, Tier
from ...memory.model.space import GLOBAL_SCOPE
from ...memory.sql.memories import MemoryLists
from ..text.query import Corrections, Query, Sentence, Term
from ..text.spelling import MOST_TERMS, is_one_edit
from .query import IndexQuery
from .ranker import Ranker
from .rows import area_of
from .visibility import Visibility, VisibleRows


class Spelling(ABC):
    """Corrections in one transaction."""

    def __init__(self, visibility: Visibility, stems: Stems) -> None:
        self._visibility = visibility
        self._stems = stems

    @abstractmethod
    def _near(
        self, forms: Mapping[str, str], areas: Sequence[int], visible: VisibleRows
    ) -> Iterable[tuple[str, str, str]]:
        """Words that no visible memory has among its own, their forms, and terms of the areas.

        Of the first such words, as many as are looked for, the terms that begin or end alike.
        One that is one edit away does: the edit lies in one of the halves.
        """

    @abstractmethod
    def _count(self, term: str, visible: VisibleRows) -> int:
        """How many visible memories have the term among their own words."""

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        """What the unknown ones among the words may have meant."""
        is_one = filter_.project or filter_.is_elsewhere
        if not is_one and filter_.scope != GLOBAL_SCOPE:
            return {}
        visible = self._visibility.of(filter_)
        if not visible.spans:  # nothing was ever there
            return {}
        ((_, spans),) = visible.spans.items()
        areas = [area_of(first) for first, _ in spans]
        forms = {word: it for word, it in compared(self._stems, words).items() if it}
        return self._likely(forms, areas, visible) if forms else {}

    def _likely(
        self, forms: Mapping[str, str], areas: Sequence[int], visible: VisibleRows
    ) -> Corrections:
        likely: dict[str, list[str]] = {}
        for word, form, term in self._near(forms, areas, visible):
            if is_one_edit(form, term):
                likely.setdefault(word, []).append(term)
        return {word: self._frequent(likely[word], visible) for word in forms if word in likely}

    def _frequent(self, terms: list[str], visible: VisibleRows) -> tuple[str, ...]:
        """The most frequent of the terms, ties in the order of the alphabet."""
        if len(terms) <= MOST_TERMS:
            return tuple(sorted(terms))
        counts = {term: self._count(term, visible) for term in terms}
        return tuple(sorted(terms, key=lambda term: (-counts[term], term))[:MOST_TERMS])


def _found(match: str | None = None) -> Callable[..., Attributes]:
    def found(hits: Sized, *_: object) -> Attributes:
        return {"memory.fts.match": match, "memory.search.result_count": len(hits)}

    return found


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

    @step("store.fts", _found("keyed"))
    def keyed(self, path: str, filter_: Filter, limit: int) -> list[Hit]:
        found = self._memories.loaded(self._memories.at_keys(path, filter_, limit))
        return [Hit(memory=memory, rank=KEYED_RANK, method=Method.TOPIC_KEY) for memory in found]

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        return self._spelling.corrections(words, filter_)

    @step("store.fts", _found("every"))
    def every(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        return self._ranker.best(self._index_query(Tier.EVERY, query, filter_, limit), limit)

    @step("store.fts", _found("best"))
    def best(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        return self._ranker.best(self._index_query(Tier.ANY, query, filter_, limit), limit)

    @step("store.similar", _found())
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

    @step("store.backfill", _found())
    def backfill(self, filter_: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        memories = self._memories.newest(filter_, limit + len(but))
        found = [memory for memory in memories if memory.id not in but][:limit]
        return [Hit(memory=memory, rank=0.0, method=Method.RECENCY) for memory in found]

    def _index_query(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> IndexQuery:
        return IndexQuery.of(tier, query, self._visibility.of(filter_), limit)
