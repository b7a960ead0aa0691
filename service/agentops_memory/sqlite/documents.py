"""SQL for what the full-text index holds of each memory: a document, and the stems of its words."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain

from ..errors import DamagedRow, Unavailable
from ..memory.erasure import MAX_STEP
from ..memory.memory import Memory, MemoryId, indexed
from ..memory.rows import micros, optional_micros
from ..memory.space import FIRST, GLOBAL_AREA, UNINDEXED_AREA, IndexGroup
from ..memory.table import Known
from ..recall.area import Row as IndexedMemory
from ..recall.cache import Changes, NewMemory
from ..recall.features import Feature, Features
from ..recall.stems import Entry, Stems
from ..recall.text import (
    NEIGHBOURS,
    Columns,
    End,
    borrows,
    content_with_end,
    context,
    tags_column,
    words_of,
)
from ..recall.text import indexed as prepared_text
from ..recall.visibility import Borrowing, Document, row_number
from .connection import NO_GROUP, known_stems, noted_by
from .dialect import SqliteTable, decoded
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
            self._insert_into(number, rows)

    def _insert_into(self, number: int, rows: Sequence[Row]) -> None:
        """Many by one statement: other threads run meanwhile, and between two they must wait.

        They have few sizes, as each that is cached holds the texts that it was last given.
        """
        while rows:
            size = min(AT_ONCE, 1 << len(rows).bit_length() - 1)
            some, rows = rows[:size], rows[size:]
            self._connection.execute(
                f"""INSERT INTO {table(number)} (rowid, title, content, context, tags)
                    VALUES {", ".join(["(?, ?, ?, ?, ?)"] * size)}""",
                tuple(chain.from_iterable(some)),
            )

    def insert_missing(self, documents: Mapping[MemoryId, Document]) -> None:
        """Insert those that a partition has not: one that was made or refilled has them.

        A damaged space has none; its repair refills the partition.
        """
        sound = set()
        for area in {it.area for it in documents.values()}:
            with suppress(DamagedRow):
                if self._partitions.of_area(area):
                    sound.add(area)
        documents = {id_: it for id_, it in documents.items() if it.area in sound}
        for number, rows in self._by_partition(documents):
            there = set(
                self._scalars(
                    f"""SELECT value
                          FROM json_each(:rows)
                         WHERE value IN (SELECT id FROM {table(number)}_docsize)""",
                    rows=json.dumps([row for row, *_ in rows]),
                )
            )
            self._insert_into(number, [it for it in rows if it[0] not in there])

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


# A third of a save is FTS5's: it writes out the words of each partition with every commit. So new
# memories wait for the index, as those after the last one that it has, and enter together, by
# partition. What reads or changes the index before then puts them in first.
MOST_WAITING = 4096  # memories; a transaction that makes more puts in the first of them
FEW = 16  # more than a transaction made, so that less and less waits
AT_ONCE = 256  # put in by a transaction of its own, when so many wait and no change does

# A number beyond all memories, as of a damaged row, is none.
LAST_INDEXED = """SELECT coalesce(max(CASE WHEN indexed_to <= seq THEN indexed_to END), 0)
                    FROM index_rules, sqlite_sequence
                   WHERE name = 'memories'"""

New = dict[MemoryId, NewMemory]


class Pending(SqliteTable):
    """The new memories of one transaction, those that wait for the index, and what is known."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        is_alone: bool,
        most: int = 0,
        known: Known | None = None,
    ) -> None:
        """`known` is that of a connection that notes its changes: else it holds until a flush.

        At the end so many memories at most wait.
        """
        super().__init__(connection)
        self.known = known or Known()
        self._notes_changes = known is not None
        self.partitions = partitions = Partitions(
            connection, is_alone=is_alone, by_area=self.known.partitions
        )
        self._most = most
        self.documents = Documents(connection, partitions)
        self._made, self._last_new = 0, MemoryId(0)  # of the transaction
        self._new: New = {}
        self._new_size = 0  # characters of them

    def add_all(self, memories: Iterable[tuple[MemoryId, Memory, int, int]]) -> None:
        """Prepare memories that are the newest of all, in the order of ids.

        Each with its id, its space and its area.
        """
        features = self.require_own_rules()
        for id_, memory, space, area in memories:
            self._made, self._last_new = self._made + 1, id_
            if memory.space.traits.index is not IndexGroup.PROJECTS:
                self._most = 0  # as memory does not have it, who asks for it would wait
            if memory.is_deleted or area == UNINDEXED_AREA:
                continue
            text = memory.text
            if memory.space.traits.is_json:
                content, end = prepared_text(words_of(text.content), features), End(text.content)
            else:
                content, end = content_with_end(text.content, features)
            before = self._before(id_, memory, space, area)
            borrowed = context(before, features) if borrows(text.content, features) else ""
            title = prepared_text(text.title, features)
            prepared = Columns(title, content, borrowed, tags_column(text.tags, features))
            self.known.waiting[id_] = area, prepared
            self.known.waiting_size += sum(map(len, prepared))
            self._note_new(id_, memory, space, area, prepared)
            self._follow(memory, space, area, end)

    def _last_indexed(self) -> MemoryId:
        if self.known.last_indexed is None:
            self.known.last_indexed = MemoryId(self._number(LAST_INDEXED))
        return self.known.last_indexed

    def _follow(self, memory: Memory, space: int, area: int, end: End) -> None:
        """The next memories of its session may borrow its end."""
        if memory.session is not None and area in self.known.ends:
            ends = self.known.ends[area].get((space, memory.session))
            if ends is not None:
                ends[:] = [*ends[1 - NEIGHBOURS :], end]

    def end(self) -> None:
        """Put in the first of what waits, if it is much: more than is new, so that it gets less."""
        if not self._made:
            return
        if not self._most:
            self.flush()
        elif self._last_new - self._last_indexed() > self._most:
            self.flush(self._made + FEW)
        while self.known.waiting_size >= 8 * MAX_STEP and self.flush(self._made + FEW):
            pass  # the first ones may be short

    def flush(self, most: int = -1) -> bool:
        """Put in what waits, or the first of it; what follows may change what is known."""
        waiting = self.known.waiting
        if not self._notes_changes:
            self.known.ends.clear()
        ids: list[MemoryId] = self._scalars(
            "SELECT id FROM memories WHERE id > :last ORDER BY id LIMIT :most",
            last=self._last_indexed(),
            most=most,
        )
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            # Those of a transaction that was not ours, or whose knowledge was dropped, are read.
            found = self.documents.of([it for it in some if it not in waiting])
            for it in filter(waiting.__contains__, some):
                area, said = waiting.pop(it)
                self.known.waiting_size -= sum(map(len, said))
                found[it] = Document(area, *said)
            self.documents.insert_missing(found)
        if len(ids) != most:  # so none is left
            waiting.clear()
            self.known.waiting_size = 0
        if ids:
            self._execute("UPDATE index_rules SET indexed_to = :last", last=ids[-1])
            self.known.last_indexed = ids[-1]
        return bool(ids)

    def changes(self) -> Changes:
        """What the transaction changed, once nothing waits."""
        return noted_by(self._connection).changes(self._new.values())

    def _note_new(
        self, id_: MemoryId, memory: Memory, space: int, area: int, said: Columns
    ) -> None:
        self._new_size += sum(map(len, said))
        if self._new_size > MOST_NEW:  # whose projects are read again
            noted = noted_by(self._connection)
            for (partition, of_area), row, _ in self._new.values():
                noted.note(partition, of_area, row.id)
            self._new.clear()
            return
        number = NO_GROUP if area == GLOBAL_AREA else self.partitions.of_area(area)[0]
        ends = optional_micros(memory.lifecycle.expires_at)
        pinned_at = optional_micros(memory.lifecycle.pinned_at)
        row = IndexedMemory(id_, space, memory.session, micros(memory.created_at), ends, pinned_at)
        self._new[id_] = NewMemory((number, area), row, said)

    def require_own_rules(self) -> Features:
        """The features by which words are prepared; Unavailable if the index was made by others.

        Words by other rules than the index's would be put in, and never be taken out again.
        """
        if self.known.features is None:
            row = self._execute("SELECT rules = own_rules(), own_features() FROM index_rules")
            is_same, features = row.fetchone() or (False, "[]")
            if not is_same:
                raise Unavailable(
                    "The index was rebuilt with other rules meanwhile; restart the service."
                )
            self.known.features = _features(features)
        return self.known.features

    def _before(self, before: MemoryId, memory: Memory, space: int, area: int) -> Iterator[End]:
        """The ends of the memories before it in the session; read on demand."""
        if memory.session is None:
            return
        known = self.known.ends.setdefault(area, {})
        place = space, memory.session
        if place not in known:
            known[place] = self._newest(before, memory.session, space)
        yield from known[place]

    def _newest(self, before: MemoryId, session: str, space: int) -> list[End]:
        rows = self._execute(
            f"""SELECT CAST(n.content AS BLOB)
                  FROM memories n INDEXED BY memories_in_session
                 WHERE n.session_id = :session AND n.space_id = :space AND n.id < :id
                       AND {indexed("n")}
              ORDER BY n.id DESC
                 LIMIT {NEIGHBOURS}""",
            session=session,
            space=space,
            id=before,
        )
        return [End(decoded(content)) for (content,) in rows][::-1]


@lru_cache(16)
def _features(names: str) -> Features:
    return frozenset(map(Feature, json.loads(names)))
