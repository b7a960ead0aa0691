"""SQL for what the full-text index holds of each memory: a document, and the stems of its words."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from ...engine.shared.stems import Stems
from ...errors import Unavailable
from ...memory.model.erasure import MAX_STEP
from ...memory.model.kinds import FIRST
from ...memory.model.memory import Memory, MemoryId
from ...memory.sql.kinds import GLOBAL_AREA
from ...memory.sql.liveness import indexed
from ...memory.sql.rows import micros, optional_micros
from ...recall.inverted_index.area import Row as IndexedMemory
from ...recall.inverted_index.cache import Changes, NewMemory
from ...recall.inverted_index.entry import Entry
from ...recall.search.document import Borrowing, Document
from ...recall.search.rows import row_number
from ...recall.text.columns import Columns, columns
from ...recall.text.features import Feature, Features
from ...recall.text.json_words import words_of
from ...recall.text.normalization import NEIGHBOURS
from ..base.connection import NO_GROUP, known_stems, noted_by
from ..base.dialect import SqliteTable
from ..base.errors import decoded
from .partitions import Partitions, table

# The areas of a partition; the first one answers for the global memories, too.
AREAS = f"""SELECT area FROM spaces WHERE partition = :partition
             UNION
            SELECT {GLOBAL_AREA} WHERE :partition = {FIRST}"""
MOST_NEW = 256 * 1024  # characters of a transaction, which an import may write more in


Row = tuple[int, str, str, str, str]
"""What a full-text table holds of a document: its number, and its columns."""


class Documents(SqliteTable, Borrowing):
    def __init__(self, connection: sqlite3.Connection, partitions: Partitions) -> None:
        super().__init__(connection)
        self._partitions = partitions

    def of(self, ids: Collection[MemoryId]) -> dict[MemoryId, Document]:
        documents = {}
        for id_ in ids:
            # By its space, too: the view reads along spaces, and would look into each of them.
            row = self._execute(
                """SELECT area, title, content, context, tags
                     FROM memory_text
                    WHERE id = :id AND space_id = (SELECT space_id FROM memories WHERE id = :id)""",
                id=id_,
            ).fetchone()
            if row is not None:
                documents[id_] = Document(*row)
        return documents

    def in_portions(
        self, memories: Sequence[MemoryId], size: int
    ) -> Iterator[dict[MemoryId, Document]]:
        for start in range(0, len(memories), size):
            yield self.of(memories[start : start + size])

    def insert(self, documents: Mapping[MemoryId, Document]) -> None:
        for number, rows in self._by_partition(documents):
            self._connection.executemany(
                f"""INSERT INTO {table(number)} (rowid, title, content, context, tags)
                    VALUES (?, ?, ?, ?, ?)""",
                rows,
            )

    def store_stems(self, documents: Mapping[MemoryId, Document]) -> None:
        """Store the stems of documents, as they are loaded into memory."""
        self.store(entries_of(known_stems(self._connection), documents))

    def store(self, entries: Mapping[MemoryId, Entry]) -> None:
        self._connection.executemany(
            "REPLACE INTO memory_stems (memory_id, stems) VALUES (?, ?)",
            [(id_, it.stored) for id_, it in entries.items()],
        )

    def delete(self, documents: Mapping[MemoryId, Document]) -> None:
        for number, rows in self._by_partition(documents):
            name = table(number)
            self._connection.executemany(
                f"""INSERT INTO {name} ({name}, rowid, title, content, context, tags)
                    VALUES ('delete', ?, ?, ?, ?, ?)""",
                rows,
            )
        self._connection.executemany(
            "DELETE FROM memory_stems WHERE memory_id = ?", [(it,) for it in documents]
        )

    def _by_partition(
        self, documents: Mapping[MemoryId, Document]
    ) -> Iterator[tuple[int, list[Row]]]:
        """The rows of each partition in their order: FTS5 writes out all for a step back."""
        rows: dict[int, list[Row]] = {}
        for id_, it in documents.items():
            row = row_number(it.area, id_), it.title, it.content, it.context, it.tags
            for number in self._partitions.of_area(it.area):
                rows.setdefault(number, []).append(row)
        for number in sorted(rows):
            yield number, sorted(rows[number])


def entries_of(stems: Stems, documents: Mapping[MemoryId, Document]) -> dict[MemoryId, Entry]:
    """The stems of some documents, which are looked for together."""
    texts = [
        text for it in documents.values() for text in (it.title, it.content, it.context, it.tags)
    ]
    said = stems.of_texts(texts)
    return {id_: Entry.of_fields(said[4 * at : 4 * at + 4]) for at, id_ in enumerate(documents)}


# FTS5 writes out what it was given at each savepoint. So the changes of a batch share what waits,
# and it enters at the end, by partition; what reads the index before then puts it in first.
BULK = 1000  # memories that enter the index together

Waiting = dict[MemoryId, Document]
New = dict[MemoryId, NewMemory]
Mark = tuple[Waiting, New]


class Pending(SqliteTable):
    """What waits in one transaction, of all changes that share it, and what is known meanwhile."""

    def __init__(
        self, connection: sqlite3.Connection, partitions: Partitions, most: int = 1
    ) -> None:
        super().__init__(connection)
        self.partitions = partitions
        self.most = most  # that wait for each other
        self.documents = Documents(connection, partitions)
        self._waiting: Waiting = {}
        self._new: New = {}  # memories of the transaction
        self._new_size = 0  # characters of them
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
        self._note_new(memory, space, area, prepared)
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
        return bool(waiting)

    def changes(self) -> Changes:
        """What the transaction changed, once nothing waits."""
        return noted_by(self._connection).changes(self._new.values())

    def _note_new(self, memory: Memory, space: int, area: int, said: Columns) -> None:
        self._new_size += sum(map(len, said))
        if self._new_size > MOST_NEW:  # whose projects are read again
            noted = noted_by(self._connection)
            for (partition, of_area), row, _ in self._new.values():
                noted.note(partition, of_area, row.id)
            self._new.clear()
            return
        noted_by(self._connection).is_new(memory.id)
        number = NO_GROUP if area == GLOBAL_AREA else self.partitions.of_area(area)[0]
        ends = optional_micros(memory.lifecycle.expires_at)
        pinned_at = optional_micros(memory.lifecycle.pinned_at)
        row = IndexedMemory(
            memory.id, space, memory.session, micros(memory.created_at), ends, pinned_at
        )
        self._new[memory.id] = NewMemory((number, area), row, said)

    def mark(self) -> Mark:
        """What waits and is new by now, to go back to."""
        return dict(self._waiting), dict(self._new)

    def go_back(self, mark: Mark) -> None:
        """Forget what a change did that is undone; what it put in of others waits again."""
        waiting, self._new = mark
        self._waiting = waiting
        self._size = sum(len(it.content) for it in waiting.values())
        self._contents.clear()
        self._features = None
        self.partitions.forget()

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
