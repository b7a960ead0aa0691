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
from ....domain.model.ranking import KEYED_RANK, PLACES, SCORED, Scored, followers, with_gains
from ....domain.model.search import Filter, Hit, Method, Parts, Tier
from ....domain.model.space import GLOBAL_SCOPE
from ....domain.text.query import Corrections, Query, Sentence, Term, is_one_edit
from ...sql.memory_lists import MemoryLists
from ..base.connection import READ_LIMIT, interrupt_at
from ..base.dialect import SqliteTable
from ..base.errors import is_damage, primary_code
from .explain import Explanations
from .partitions import OWN_COLUMNS, area_of, table
from .queries import IndexQuery, Scores, in_columns
from .visibility import Span, Visibility

MOST_WORDS = 4  # of a query that are corrected
MOST_TERMS = 3  # that one word may have meant
AFTERWARDS = timedelta(seconds=1)  # left of a read for what it does when words took too long


class Search:
    """Recall in one transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        memories: MemoryLists,
        visibility: Visibility,
        begun: float,
    ) -> None:
        self.met_damage = False  # where something else could stand in
        self._connection = connection
        self._end = begun + READ_LIMIT.total_seconds()
        self._memories = memories
        self._visibility = visibility
        self._scores = Scores(connection)

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
        return Spelling(self._connection, self._visibility).corrections(words, filter_)

    def every(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        return self._best(self._index_query(Tier.EVERY, query, filter_, limit), limit)

    def best(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        return self._best(self._index_query(Tier.ANY, query, filter_, limit), limit)

    def similar(self, terms: Collection[Term], filter_: Filter, limit: int) -> list[Memory]:
        visible = self._visibility.of(filter_)
        rare = self._scores.rare(terms, visible, SCORED)
        query = Query(sentences=(Sentence(rare or tuple(terms)),))
        index_query = IndexQuery.of(Tier.ANY, query, visible, limit).for_similar
        return self._memories.loaded(id_ for _, id_ in self._best(index_query, limit))

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
        return self._best(index_query.without_limit, PLACES)

    def parts(
        self, tier: Tier, query: Query, filter_: Filter, limit: int, ids: Collection[MemoryId]
    ) -> dict[MemoryId, Parts]:
        index_query = self._index_query(tier, query, filter_, limit)
        parts = Explanations(self._connection, self._scores).of(index_query, tier, query, ids)
        if not index_query.gaining:
            return parts
        gained = followers(self._scores.best(index_query, index_query.gaining))
        return {id_: replace(it, followers=gained.get(id_, ())) for id_, it in parts.items()}

    def backfill(self, filter_: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        memories = self._memories.newest(filter_, limit + len(but))
        found = [memory for memory in memories if memory.id not in but][:limit]
        return [Hit(memory=memory, rank=0.0, method=Method.RECENCY) for memory in found]

    def _best(self, query: IndexQuery, limit: int) -> list[Scored]:
        """The best; the first of them gain by those of them that follow them."""
        best = self._scores.best(query, max(limit, query.gaining))
        first, others = best[: query.gaining], best[query.gaining :]
        return [*with_gains(first), *((it.score, it.id) for it in others)][:limit]

    def _index_query(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> IndexQuery:
        return IndexQuery.of(tier, query, self._visibility.of(filter_), limit)


class Spelling(SqliteTable):
    """Corrections in one transaction, by the terms of a project and the global ones."""

    def __init__(self, connection: sqlite3.Connection, visibility: Visibility) -> None:
        super().__init__(connection)
        self._visibility = visibility

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        """What the unknown ones among the words may have meant."""
        if filter_.project is None and filter_.store is None and filter_.scope != GLOBAL_SCOPE:
            return {}
        ((number, spans),) = self._visibility.of(filter_).spans.items()
        likely: dict[str, list[str]] = {}
        for word, form, term in self._near(words, [area_of(first) for first, _ in spans]):
            if is_one_edit(form, term):
                likely.setdefault(word, []).append(term)
        return {word: self._frequent(terms, number, spans) for word, terms in likely.items()}

    def _near(self, words: Collection[str], areas: list[int]) -> list[tuple[str, str, str]]:
        """Words that none of the areas has, their forms, and terms that begin or end alike.

        One that is one edit away does: the edit lies in one of the halves. The rows
        come as one: row by row, searches side by side hold each other up more.
        """
        ((rows,),) = self._execute(
            f"""  WITH area AS MATERIALIZED (SELECT value FROM json_each(:areas)),
                       unknown AS MATERIALIZED
                       (SELECT key AS word, value AS form, length(value) AS length,
                               length(value) / 2 AS middle
                          FROM json_each(forms_of(:words)) word
                         WHERE value <> ''
                           AND NOT EXISTS (SELECT 1
                                             FROM terms
                                            WHERE area IN area AND length = length(word.value)
                                                  AND term = word.value)
                         LIMIT {MOST_WORDS})
                SELECT json_group_array(json_array(word, form, term))
                  FROM (SELECT DISTINCT word, form, term
                          FROM unknown
                          JOIN terms
                            ON terms.area IN area
                           AND terms.length IN (unknown.length - 1, unknown.length,
                                                unknown.length + 1)
                           AND term >= substr(form, 1, 1)
                           AND term < char(unicode(form) + 1)
                           AND (substr(term, 1, middle) = substr(form, 1, middle)
                                OR substr(term, middle + 1 - unknown.length)
                                   = substr(form, middle + 1 - unknown.length)))""",
            words=json.dumps(words),
            areas=json.dumps(areas),
        )
        near: list[tuple[str, str, str]] = json.loads(rows)
        return near

    def _frequent(self, terms: list[str], number: int, spans: list[Span]) -> tuple[str, ...]:
        """The most frequent of the terms, ties in the order of the alphabet."""
        if len(terms) <= MOST_TERMS:
            return tuple(sorted(terms))
        counts = {term: self._count(term, number, spans) for term in terms}
        return tuple(sorted(terms, key=lambda term: (-counts[term], term))[:MOST_TERMS])

    def _count(self, term: str, number: int, spans: list[Span]) -> int:
        """How many memories have the term."""
        name = table(number)
        counts = (
            self._execute(
                f"""SELECT count(*)
                      FROM {name}
                     WHERE {name} MATCH :match AND rowid BETWEEN :first AND :last""",
                match=in_columns(OWN_COLUMNS, f'"{term}"'),
                first=first,
                last=last,
            ).fetchone()
            for first, last in spans
        )
        return sum(count for (count,) in counts)
