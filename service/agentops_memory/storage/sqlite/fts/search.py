"""SQL for recall: FTS5 and its BM25, and the newest where words find too little."""

import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from heapq import nsmallest

from ....domain.errors import Damaged, TimedOut
from ....domain.model.access import Patterns
from ....domain.model.memory import Memory, MemoryId
from ....domain.model.search import PLACES, Filter, Hit, Method, Parts, Tier
from ....domain.text.query import Corrections, Query
from ..base.connection import READ_LIMIT, interrupt_at
from ..base.errors import is_damage, primary_code
from ..base.filters import clauses, parameters
from ..base.table import Table
from ..tables.memories import Memories
from .explain import Explanations
from .partitions import Partitions
from .scope import Sights
from .scores import Asked, Scores, asked
from .spelling import Lookalikes

KEYED_RANK = -1000.0
AFTERWARDS = timedelta(seconds=1)  # left of a read for what it does when words took too long


class Search(Table):
    """Recall in one transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        memories: Memories,
        partitions: Partitions,
        projects: Patterns,
    ) -> None:
        super().__init__(connection)
        self.met_damage = False  # where something else could stand in
        self._projects = projects
        self._end = time.monotonic() + READ_LIMIT.total_seconds()
        self._memories = memories
        self._sights = Sights(connection, partitions, projects)
        self._scores = Scores(connection)
        self._explanations = Explanations(connection, self._scores)
        self._lookalikes = Lookalikes(connection, self._sights)

    @contextmanager
    def within(self, patience: timedelta) -> Iterator[None]:
        latest = self._end - AFTERWARDS.total_seconds()
        end = min(time.monotonic() + patience.total_seconds(), latest)
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

    def keyed(self, path: str, seen: Filter, limit: int) -> list[Hit]:
        found = self._memories.loaded(self._at_keys(path, seen, limit))
        return [Hit(memory=memory, rank=KEYED_RANK, method=Method.TOPIC_KEY) for memory in found]

    def lookalikes(self, words: Collection[str], seen: Filter) -> Corrections:
        return self._lookalikes.of(words, seen)

    def every(self, query: Query, seen: Filter, limit: int) -> list[Hit]:
        return self._matching(Tier.EVERY, query, seen, limit)

    def best(self, query: Query, seen: Filter, limit: int) -> list[Hit]:
        return self._matching(Tier.ANY, query, seen, limit)

    def ranking(
        self, tier: Tier, query: Query, seen: Filter, limit: int
    ) -> list[tuple[MemoryId, float]]:
        if tier is Tier.KEY:
            return [(id_, KEYED_RANK) for id_ in self._at_keys(query.path or "", seen, PLACES)]
        asked = self._asked(tier, query, seen, limit)
        best = nsmallest(PLACES, self._scored(asked.without_limit, PLACES))
        return [(id_, score) for score, id_ in best]

    def parts(
        self, tier: Tier, query: Query, seen: Filter, limit: int, ids: Collection[MemoryId]
    ) -> dict[MemoryId, Parts]:
        return self._explanations.of(self._asked(tier, query, seen, limit), tier, query, ids)

    def backfill(self, seen: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        memories = self._memories.newest(seen, limit + len(but))
        found = [memory for memory in memories if memory.id not in but][:limit]
        return [Hit(memory=memory, rank=0.0, method=Method.RECENCY) for memory in found]

    def _at_keys(self, path: str, seen: Filter, limit: int) -> Iterator[MemoryId]:
        where = clauses(seen, self._projects, memory="m")
        # The index of keys is read alone; few memories have one, and fewer this one.
        rows = self._execute(
            f"""SELECT m.id
                  FROM spaces s
                  JOIN memories m INDEXED BY memories_at_key ON m.space_id = s.id
                 WHERE {where.on_spaces} AND m.key IS NOT NULL AND m.deleted_at IS NULL
                       AND instr(m.key, :path) > 0 {where.on_memories}
              ORDER BY m.created_at DESC, m.id DESC
                 LIMIT :limit""",
            path=path,
            limit=limit,
            **parameters(seen, self._projects),
        )
        return (id_ for (id_,) in rows)

    def _matching(self, tier: Tier, query: Query, seen: Filter, limit: int) -> list[Hit]:
        asked = self._asked(tier, query, seen, limit)
        return [
            Hit(memory=memory, rank=score, method=Method.FULL_TEXT, tier=tier)
            for memory, score in self._best(asked, limit)
        ]

    def _best(self, asked: Asked, limit: int) -> Iterable[tuple[Memory, float]]:
        if len(asked.sight.spans) == 1:
            (number,) = asked.sight.spans
            return self._scores.best_memories(asked, number, limit)
        scores = {id_: score for score, id_ in nsmallest(limit, self._scored(asked, limit))}
        return ((memory, scores[memory.id]) for memory in self._memories.loaded(scores))

    def _asked(self, tier: Tier, query: Query, seen: Filter, limit: int) -> Asked:
        return asked(tier, query, self._sights.of(seen), limit)

    def _scored(self, asked: Asked, limit: int) -> Iterator[tuple[float, MemoryId]]:
        """The best of every partition."""
        return (
            (score, id_)
            for number in asked.sight.spans
            for id_, score in self._scores.best(asked, number, limit)
        )
