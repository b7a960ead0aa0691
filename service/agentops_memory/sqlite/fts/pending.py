"""New memories on their way into the index: prepared at once, put in together.

FTS5 writes out what it was given at each savepoint. So the changes of a batch share what waits,
and it enters at the end, by partition; what reads the index before then puts it in first.
"""

import json
import sqlite3
from collections.abc import Iterator
from functools import lru_cache

from ...errors import Unavailable
from ...memory.model.erasure import MAX_STEP
from ...memory.model.memory import Memory, MemoryId
from ...memory.sql.liveness import indexed
from ...recall.index_cache.writes import IndexWrites
from ...recall.search.document import Document
from ...recall.text.columns import columns
from ...recall.text.features import Feature, Features
from ...recall.text.json_words import words_of
from ...recall.text.normalization import NEIGHBOURS
from ..base.dialect import SqliteTable
from ..base.errors import decoded
from .documents import Documents, Terms
from .partitions import Partitions

BULK = 1000  # memories that enter the index together

Waiting = dict[MemoryId, Document]
Mark = tuple[Waiting, IndexWrites]


class Pending(SqliteTable):
    """What waits in one transaction, of all changes that share it, and what is known meanwhile."""

    def __init__(
        self, connection: sqlite3.Connection, partitions: Partitions, most: int = 1
    ) -> None:
        super().__init__(connection)
        self.partitions = partitions
        self.most = most  # that wait for each other
        self.documents = Documents(connection, partitions)
        self.terms = Terms(connection, partitions)
        self._waiting: Waiting = {}
        self._size = 0
        self._contents: dict[tuple[int, str | None], list[str]] = {}  # the newest of a session
        self._features: Features | None = None  # not known yet

    def add(self, memory: Memory, space: int, area: int) -> None:
        """Prepare a memory that is new, the newest of all."""
        if memory.is_deleted:
            return
        text, before, features = memory.text, self._before(memory, space), self.require_own_rules()
        content = words_of(text.content) if memory.space.traits.is_json else text.content
        prepared = columns(text.title, content, text.tags, before, features)
        self._waiting[memory.id] = Document(area, *prepared)
        self._size += len(text.content)
        if (known := self._contents.get((space, memory.session))) is not None:
            known[:] = [*known[1 - NEIGHBOURS :], text.content]
        if len(self._waiting) >= self.most or self._size >= MAX_STEP:
            self.flush()

    def flush(self) -> bool:
        """Put in what waits, if anything does; what follows may change what is known."""
        waiting, self._waiting, self._size = self._waiting, {}, 0
        self._contents.clear()
        if waiting:
            self.documents.insert(waiting)
            self.terms.add(waiting.values())
        return bool(waiting)

    @property
    def writes(self) -> IndexWrites:
        """What was written into the index."""
        return self.documents.writes

    def mark(self) -> Mark:
        """What waits and was written by now, to go back to."""
        return dict(self._waiting), self.writes.copy()

    def go_back(self, mark: Mark) -> None:
        """Forget what a change did that is undone; what it put in of others waits again."""
        waiting, self.documents.writes = mark
        self._waiting = waiting
        self._size = sum(len(it.content) for it in waiting.values())
        self._contents.clear()
        self._features = None
        self.partitions.forget()
        self.terms.forget()

    def require_own_rules(self) -> Features:
        """The features by which words are prepared; Unavailable if the index was made by others.

        Words by other rules than the index's would be put in, and never be taken out again.
        """
        if self._features is None:
            row = self._execute("SELECT rules = own_rules(), own_features() FROM index_rules")
            is_same, features = row.fetchone() or (False, "[]")
            if not is_same:
                raise Unavailable(
                    "The index was made by other rules meanwhile; restart the service."
                )
            self._features = _features(features)
        return self._features

    def _before(self, memory: Memory, space: int) -> Iterator[str]:
        """The contents of the memories before it in the session; read when they are asked for."""
        if memory.session is None:
            return
        place = space, memory.session
        if place not in self._contents:
            self._contents[place] = self._newest(memory, space)
        yield from self._contents[place]

    def _newest(self, memory: Memory, space: int) -> list[str]:
        rows = self._execute(
            f"""SELECT CAST(n.content AS BLOB)
                  FROM memories n INDEXED BY memories_in_session
                 WHERE n.session_id = :session AND n.space_id = :space AND n.id < :id
                       AND {indexed("n")}
              ORDER BY n.id DESC
                 LIMIT {NEIGHBOURS}""",
            session=memory.session,
            space=space,
            id=memory.id,
        )
        return [decoded(content) for (content,) in rows][::-1]


@lru_cache(16)
def _features(names: str) -> Features:
    return frozenset(map(Feature, json.loads(names)))
