"""Recall by FTS5 and its BM25, or by what is in memory of its index."""

import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta

from ...errors import Damaged, TimedOut
from ...memory.model.bm25 import lowest
from ...memory.model.memory import MemoryId
from ...memory.model.ranking import Scored, combined
from ...memory.model.search import Parts, Tier
from ...memory.sql.memories import MemoryLists
from ...recall.index_cache.cache import CachedGroups
from ...recall.index_cache.group import Group
from ...recall.index_cache.lookup import Lookup
from ...recall.search.query import ALL, IndexQuery
from ...recall.search.ranker import Ranker, Shown, without_hidden
from ...recall.search.search import Search
from ...recall.search.visibility import Visibility, VisibleRows
from ...recall.text.query import Query, Term
from ..base.connection import READ_LIMIT, interrupt_at, known_stems
from ..base.dialect import SQLITE
from ..base.errors import is_damage, primary_code
from .alone import AloneScores
from .cached_index import CachedIndex
from .explain import Explanations
from .queries import Scores
from .spelling import SqliteSpelling

AFTERWARDS = timedelta(seconds=1)  # left of a read for what it does when words took too long


class SqliteSearch(Search):
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
        self._scores = Scores(connection)
        cached, shown = CachedIndex(connection, groups, begun), Shown(connection, SQLITE)
        super().__init__(
            memories,
            visibility,
            Ranker(_Words(connection, self._scores, cached, shown), shown),
            SqliteSpelling(connection, visibility, cached),
            known_stems(connection),
        )

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

    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        return self._scores.counts(terms, visible, most)

    def _explained(
        self, index_query: IndexQuery, tier: Tier, query: Query, ids: Collection[MemoryId]
    ) -> dict[MemoryId, Parts]:
        return Explanations(self._connection, self._scores).of(index_query, tier, query, ids)


class _Words:
    """Where words are: in memory, or in FTS5's tables."""

    def __init__(
        self, connection: sqlite3.Connection, scores: Scores, cached: CachedIndex, shown: Shown
    ) -> None:
        self._stems = known_stems(connection)
        self._scores = scores
        self._alone = AloneScores(connection)
        self._cached = cached
        self._shown = shown

    @contextmanager
    def found(self, query: IndexQuery) -> Iterator[tuple[Lookup, Group] | None]:
        terms = query.terms
        if query.visible.is_alone or any(term.starts for term in terms):
            yield None
            return
        stem_of = self._stems.of([term.text for term in terms])
        with self._cached.of(query.visible, stem_of, own=query.own) as found:
            yield found

    def best(self, query: IndexQuery) -> list[Scored]:
        weights = query.sentence_weights
        if query.visible.is_alone:
            depth = None if query.depth == ALL else query.depth
            sums = without_hidden(self._alone.best(query), query.visible, self._shown)
            return combined([lowest(it, depth) for it in sums], weights)
        stored = [combined(self._scores.best(query, it), weights) for it in query.visible.spans]
        return stored[0] if len(stored) == 1 else sorted(it for each in stored for it in each)
