"""Recall by postings that are stored."""

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from math import ceil

from psycopg import errors

from ...engine.shared.stems import Stems
from ...errors import Damaged, TimedOut
from ...memory.model.memory import MemoryId
from ...memory.model.search import Parts, Tier
from ...memory.sql.memories import MemoryLists
from ...recall.index_cache.rows import area_of
from ...recall.search.query import IndexQuery
from ...recall.search.ranker import Ranker, Shown
from ...recall.search.search import Search
from ...recall.search.visibility import Visibility, VisibleRows
from ...recall.text.features import Features
from ...recall.text.query import Query, Term
from ..base.connection import PostgresConnection
from ..base.dialect import POSTGRESQL
from .cached import CachedAreas
from .explain import Explanations
from .source import Source
from .spelling import PostgresSpelling
from .terms import OWN, stored_term

READ_LIMIT = timedelta(seconds=5)
TRIES = 9  # to undo what took too long
AFTERWARDS = timedelta(seconds=1)  # left of a read for what it does when words took too long


class PostgresSearch(Search):
    """Recall in one transaction, which began at a time of the monotonic clock."""

    def __init__(
        self,
        connection: PostgresConnection,
        *,
        memories: MemoryLists,
        visibility: Visibility,
        features: Features,
        stems: Stems,
        begun: float,
        cached: CachedAreas,
    ) -> None:
        self._connection = connection
        self._end = begun + READ_LIMIT.total_seconds()
        self._shown = Shown(connection, POSTGRESQL)
        self._source = Source(connection, self._shown, features, stems, cached)
        super().__init__(
            memories,
            visibility,
            Ranker(self._source, self._shown),
            PostgresSpelling(connection, visibility, stems),
            stems,
        )

    @contextmanager
    def within(self, timeout: timedelta) -> Iterator[None]:
        left = self._end - AFTERWARDS.total_seconds() - time.monotonic()
        within = max(min(timeout.total_seconds(), left), 0.001)
        self._connection.execute("SAVEPOINT words")
        self._limit(within)
        self._source.end_at(time.monotonic() + within)
        try:
            yield
            if within < AFTERWARDS.total_seconds():  # else what follows may have as long
                self._limit(max(self._end - time.monotonic(), 0.001))
                self._connection.sync()
        except errors.QueryCanceled as error:
            self._go_back()
            raise TimedOut("Looking for words took too long.") from error
        except TimedOut:
            self._go_back()
            raise
        except (errors.DataCorrupted, errors.IndexCorrupted) as error:
            self._go_back()
            raise Damaged("Words cannot be looked for.") from error
        finally:
            self._source.end_at(self._end)

    def _go_back(self) -> None:
        """Undo what was tried, and its limit, within which that has to be done, too."""
        for left in reversed(range(TRIES)):
            try:
                self._connection.go_back("words")
            except errors.QueryCanceled:
                if not left:
                    raise
            else:
                return

    def _limit(self, seconds: float) -> None:
        """Let each statement from now on end within that time."""
        milliseconds = str(ceil(seconds * 1000))
        self._connection.execute(
            "SELECT set_config('statement_timeout', :within, TRUE)", {"within": milliseconds}
        )

    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        stems = self._stems.of([term.text for term in terms])
        asked = [stored_term(stems[term.text]) for term in terms]
        areas = [area_of(first) for spans in visible.spans.values() for first, _ in spans]
        found = self._connection.execute(
            f"""SELECT asked.term, sum(counted.rows)
                  FROM unnest(CAST(:stems AS TEXT[])) AS asked (term)
                 CROSS JOIN unnest(CAST(:areas AS BIGINT[])) AS place (area)
                 CROSS JOIN LATERAL (SELECT count(*) AS rows
                                       FROM (SELECT 1
                                               FROM postings
                                              WHERE area = place.area AND term = asked.term
                                                    AND counts & {OWN} <> 0
                                              LIMIT :most) first) counted
              GROUP BY asked.term""",
            {"stems": sorted(set(asked)), "areas": areas, "most": most + 1},
        )
        counts: dict[str, int] = dict(found.fetchall())
        return [counts.get(stem, 0) for stem in asked]

    def _explained(
        self, index_query: IndexQuery, tier: Tier, query: Query, ids: Collection[MemoryId]
    ) -> Mapping[MemoryId, Parts]:
        terms = index_query.terms if tier is Tier.EVERY else query.terms
        return Explanations(self._connection, self._source, self._shown).of(index_query, terms, ids)
