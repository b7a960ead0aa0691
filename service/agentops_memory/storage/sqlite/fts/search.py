"""SQL for recall: FTS5 and its BM25, and the newest where words find too little."""

import json
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from ....domain.errors import Damaged, TimedOut
from ....domain.model.memory import Memory, MemoryId
from ....domain.model.ranking import KEYED_RANK, PLACES, SCORED, Scored, followers
from ....domain.model.search import Filter, Hit, Method, Parts, Tier
from ....domain.text.query import Corrections, Query, Sentence, Term
from ...index_cache.cache import CachedGroups
from ...sql.memory_lists import MemoryLists
from ..base.connection import READ_LIMIT, interrupt_at, known_stems
from ..base.errors import is_damage, primary_code
from .alone import AloneScores
from .cached_index import CachedIndex
from .explain import Explanations
from .queries import IndexQuery, Scores
from .ranker import Ranker
from .spelling import Spelling
from .visibility import Visibility

AFTERWARDS = timedelta(seconds=1)  # left of a read for what it does when words took too long


class Search:
    """Recall in one transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        memories: MemoryLists,
        visibility: Visibility,
        groups: CachedGroups | None,
        begun: float,
    ) -> None:
        self.met_damage = False  # where something else could stand in
        self._connection = connection
        self._end = begun + READ_LIMIT.total_seconds()
        self._memories = memories
        self._visibility = visibility
        self._scores = Scores(connection)
        self._cached = CachedIndex(connection, groups, begun)
        self._stems = known_stems(connection)
        self._ranker = Ranker(self._scores, AloneScores(connection), self._cached, self._stems)

    @contextmanager
    def within(self, timeout: timedelta) -> Iterator[None]:
        latest = self._end - AFTERWARDS.total_seconds()
        end = min(time.monotonic() + timeout.total_seconds(), latest)
        interrupt_at(self._connection, end)
        try:
            yield
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                self.met_damage = True
                raise Damaged("Words cannot be looked for.") from error
            if primary_code(error) != sqlite3.SQLITE_INTERRUPT:
                raise
            raise TimedOut("Looking for words took too long.") from error
        finally:
            interrupt_at(self._connection, self._end)

    def keyed(self, path: str, filter_: Filter, limit: int) -> list[Hit]:
        found = self._memories.loaded(self._memories.at_keys(path, filter_, limit))
        return [Hit(memory=memory, rank=KEYED_RANK, method=Method.TOPIC_KEY) for memory in found]

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        return Spelling(self._connection, self._visibility, self._cached).corrections(
            words, filter_
        )

    def every(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        return self._ranker.best(self._index_query(Tier.EVERY, query, filter_, limit), limit)

    def best(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        return self._ranker.best(self._index_query(Tier.ANY, query, filter_, limit), limit)

    def similar(self, terms: Collection[Term], filter_: Filter, limit: int) -> list[Memory]:
        visible = self._visibility.of(filter_)
        rare = self._scores.rare(terms, visible, SCORED)
        query = Query(sentences=(Sentence(rare or tuple(terms)),))
        index_query = IndexQuery.of(Tier.ANY, query, visible, limit).for_similar
        return self._memories.loaded(id_ for _, id_ in self._ranker.best(index_query, limit))

    def similarities(self, text: str, others: Sequence[str]) -> list[float]:
        ((scores,),) = self._connection.execute(
            "SELECT similarities(:texts)", {"texts": json.dumps([text, *others])}
        )
        found: list[float] = json.loads(scores)
        return found

    def ranking(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        if tier is Tier.KEY:
            keyed = self._memories.at_keys(query.path or "", filter_, PLACES)
            return [(KEYED_RANK, id_) for id_ in keyed]
        index_query = self._index_query(tier, query, filter_, limit)
        return self._ranker.best(index_query.without_limit, PLACES)

    def parts(
        self, tier: Tier, query: Query, filter_: Filter, limit: int, ids: Collection[MemoryId]
    ) -> dict[MemoryId, Parts]:
        index_query = self._index_query(tier, query, filter_, limit)
        parts = Explanations(self._connection, self._scores).of(index_query, tier, query, ids)
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
