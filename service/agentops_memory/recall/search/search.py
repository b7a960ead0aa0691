"""Recall in one transaction: what the engines share, with corrections of misspelt words."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate, chain, islice

from ...engine.shared.stems import Stems
from ...memory.memories import MemoryLists
from ...memory.model.memory import Memory, MemoryId
from ...memory.model.ranking import KEYED_RANK, PLACES, SCORED, Scored, followers
from ...memory.model.search import Filter, Hit, Method, Parts, TermScore, Tier
from ...memory.model.space import GLOBAL_SCOPE
from ...steps import Attributes, step
from ..text.query import Corrections, Query, Sentence, Term
from ..text.spelling import MOST_TERMS, MOST_WORDS
from .query import IndexQuery
from .ranker import Ranker, Shown
from .rows import Row
from .visibility import Visibility, VisibleRows

EVERY = 1 << 62  # memories that are counted, however many they are


def _found(match: str | None = None) -> Callable[..., Attributes]:
    def found(hits: Sized, *_: object) -> Attributes:
        return {"memory.fts.match": match, "memory.search.result_count": len(hits)}

    return found


class Search(ABC):
    """Search over live memories; ranks of different projects are only roughly comparable."""

    def __init__(
        self,
        memories: MemoryLists,
        visibility: Visibility,
        ranker: Ranker,
        shown: Shown,
        stems: Stems,
    ) -> None:
        self._memories = memories
        self._visibility = visibility
        self._ranker = ranker
        self._shown = shown
        self._stems = stems

    @abstractmethod
    def within(self, timeout: timedelta) -> AbstractContextManager[None]:
        """A context whose reads raise TimedOut, or Damaged, and leave the transaction usable."""

    @abstractmethod
    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        """How many memories have each term among their own words, or that more than so many do."""

    @abstractmethod
    def _stems_near(self, forms: Collection[str], visible: VisibleRows) -> Iterable[str]:
        """All stems where visible memories are of which a form is one edit from any of some forms.

        And others: of hidden memories, of none, or not near.
        """

    @abstractmethod
    def _scores(
        self, query: IndexQuery, number: int, terms: Sequence[Term], rows: Mapping[MemoryId, Row]
    ) -> tuple[Sequence[Sequence[Scored]], Mapping[MemoryId, Mapping[Term, TermScore]]]:
        """The best of each sentence in a partition, and what the terms add to memories there."""

    @step("store.fts", _found("keyed"))
    def keyed(self, path: str, filter_: Filter, limit: int) -> list[Hit]:
        """Memories whose key contains the path literally, newest first."""
        found = self._memories.loaded(self._memories.at_keys(path, filter_, limit))
        return [Hit(memory=memory, rank=KEYED_RANK, method=Method.TOPIC_KEY) for memory in found]

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        """Corrections of words that are neither in the project or store nor in a global memory.

        The three most frequent words one edit away, with the same first letter. At most four
        words are corrected; none without a single project or store.
        """
        is_one = filter_.project or filter_.is_elsewhere
        if not is_one and filter_.scope != GLOBAL_SCOPE:
            return {}
        visible = self._visibility.of(filter_)
        if not visible.spans:  # nothing was ever there
            return {}
        forms = {word: it for word, it in self._stems.compared.of(words).items() if it}
        return self._corrections(forms, visible) if forms else {}

    def _corrections(self, forms: Mapping[str, str], visible: VisibleRows) -> Corrections:
        """As the stored index has it, in one look for all words."""
        known = self._having(forms.values(), visible)
        unknown = dict(islice((it for it in forms.items() if it[1] not in known), MOST_WORDS))
        if not unknown:
            return {}
        stems = list(self._stems_near(unknown.values(), visible))
        near = {word: self._stems.near(form, stems) for word, form in unknown.items()}
        there = self._having(set(chain.from_iterable(near.values())), visible)
        likely = {word: [it for it in terms if it in there] for word, terms in near.items()}
        return {word: self._frequent(it, visible) for word, it in likely.items() if it}

    def _having(self, forms: Collection[str], visible: VisibleRows) -> set[str]:
        """Those that any visible memory has among its own words."""
        counts = self._counts(list(map(Term, forms)), visible, 0)
        return {form for form, count in zip(forms, counts, strict=True) if count}

    def _frequent(self, terms: list[str], visible: VisibleRows) -> tuple[str, ...]:
        """The most frequent of the terms, ties in the order of the alphabet."""
        if len(terms) <= MOST_TERMS:
            return tuple(terms)
        counts = dict(zip(terms, self._counts(list(map(Term, terms)), visible, EVERY), strict=True))
        return tuple(sorted(terms, key=lambda term: (-counts[term], term))[:MOST_TERMS])

    @step("store.fts", _found("every"))
    def every(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """Memories in which all pieces of the query occur, best first, ties by id."""
        return self._ranker.best(self._index_query(Tier.EVERY, query, filter_, limit), limit)

    @step("store.fts", _found("best"))
    def best(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """Memories in which any term occurs, best first, ties by id.

        A score is that of the best sentence plus 0.4 times the sum of the others, each times
        the sentence's weight; each of several sentences contributes its best memories alone
        (`sentence_depth`). The best then gain by those that follow them (`with_gains`).
        """
        return self._ranker.best(self._index_query(Tier.ANY, query, filter_, limit), limit)

    @step("store.similar", _found())
    def similar(self, terms: Collection[Term], filter_: Filter, limit: int) -> list[Memory]:
        """Memories that have any of the rare terms among their own words, best first, ties by id.

        The rarest that several memories have, as many as bring SCORED rows; if there is none,
        every term counts.
        """
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
        """How alike a text and each of the others are (`similarity`), by stems without stop words.

        No statistics count, so that a score is the same in any project and in every engine.
        """
        return self._stems.similarities([text, *others])

    def ranking(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """The full ranking of a tier, at most PLACES long.

        Sentence depth is that of the limit; a single sentence contributes all.
        """
        if tier is Tier.KEY:
            keyed = self._memories.at_keys(query.path or "", filter_, PLACES)
            return [(KEYED_RANK, id_) for id_ in keyed]
        index_query = self._index_query(tier, query, filter_, limit)
        return self._ranker.best(index_query.without_limit, PLACES)

    def parts(
        self, tier: Tier, query: Query, filter_: Filter, limit: int, ids: Collection[MemoryId]
    ) -> Mapping[MemoryId, Parts]:
        """The score parts of these memories; those that are invisible are left out.

        One beyond the limit of the tier has its matched terms, too.
        """
        index_query = self._index_query(tier, query, filter_, limit)
        parts = self._parts(index_query, ids)
        if not index_query.gaining:
            return parts
        gained = followers(self._ranker.gaining(index_query))
        return {id_: replace(it, followers=gained.get(id_, ())) for id_, it in parts.items()}

    def _parts(self, query: IndexQuery, ids: Collection[MemoryId]) -> dict[MemoryId, Parts]:
        """The parts of these memories' scores; a memory that is not visible has none."""
        terms = list(dict.fromkeys(query.terms))
        parts: dict[MemoryId, Parts] = {}
        for number, rows in self._shown.places(ids, query.visible).items():
            sentences, added = self._scores(query, number, terms, rows)
            scores = [{id_: score for score, id_ in it} for it in sentences]
            for id_ in rows:
                counted = tuple(it.get(id_) for it in scores)
                parts[id_] = Parts(sentences=counted, terms=added.get(id_, {}))
        return parts

    @step("store.backfill", _found())
    def backfill(self, filter_: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        """The newest memories that are not among `but`."""
        memories = self._memories.newest(filter_, limit + len(but))
        found = [memory for memory in memories if memory.id not in but][:limit]
        return [Hit(memory=memory, rank=0.0, method=Method.RECENCY) for memory in found]

    def _index_query(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> IndexQuery:
        return IndexQuery.of(tier, query, self._visibility.of(filter_), limit)
