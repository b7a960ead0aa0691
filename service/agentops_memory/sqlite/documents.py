"""SQL for what the full-text index holds of each memory: a document, and the stems of its words."""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from ..errors import DamagedRow
from ..memory.memory import MemoryId, indexed
from ..memory.space import FIRST, GLOBAL_AREA
from ..recall.stems import Entry, Stems
from ..recall.visibility import Borrowing, Document, row_number
from .dialect import SqliteTable
from .partitions import Partitions, table

SOME = 32  # documents between two looks at who waits: 3 ms
AT_ONCE = 128  # documents of one statement, and of one commit that no change waits for

# The areas of a partition; the first one answers for the global memories, too.
AREAS = f"""SELECT area FROM spaces WHERE partition = :partition
             UNION
            SELECT {GLOBAL_AREA} WHERE :partition = {FIRST}"""

GATHERED = "spaces s LEFT JOIN area_stems a ON a.area = s.area"
IS_BEHIND = f"""EXISTS (SELECT 1
                          FROM memories m INDEXED BY memories_in_space
                         WHERE m.space_id = s.id AND m.id > coalesce(a.last_id, 0)
                               AND {indexed("m")})"""

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
        self._forget_areas(documents)
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

    def insert_missing(
        self, documents: Mapping[MemoryId, Document], is_awaited: Callable[[], bool]
    ) -> bool:
        """Insert those that a partition has not: one that was made or refilled has them.

        A damaged space has none; its repair refills the partition. False if only some have got
        theirs, since others await the end: all of them can take 25 ms.
        """
        sound = set()
        for area in {it.area for it in documents.values()}:
            with suppress(DamagedRow):
                if self._partitions.of_area(area):
                    sound.add(area)
        documents = {id_: it for id_, it in documents.items() if it.area in sound}
        is_begun = False
        for number, rows in self._by_partition(documents):
            present = set(
                self._scalars(
                    f"""SELECT value
                          FROM json_each(:rows)
                         WHERE value IN (SELECT id FROM {table(number)}_docsize)""",
                    rows=json.dumps([row for row, *_ in rows]),
                )
            )
            missing = [it for it in rows if it[0] not in present]
            for start in range(0, len(missing), SOME):
                if is_begun and is_awaited():
                    return False
                self._insert_into(number, missing[start : start + SOME])
                is_begun = True
        return True

    def store(self, entries: Mapping[MemoryId, Entry]) -> None:
        self._connection.executemany(
            "REPLACE INTO memory_stems (memory_id, stems) VALUES (?, ?)",
            [(id_, it.stored) for id_, it in entries.items()],
        )

    def delete(self, documents: Mapping[MemoryId, Document]) -> None:
        self._forget_areas(documents)
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

    def _forget_areas(self, documents: Mapping[MemoryId, Document]) -> None:
        """Their words may be others now; no word that is erased stays among them."""
        areas = json.dumps(list({it.area for it in documents.values()}))
        listed = "SELECT value FROM json_each(:areas)"
        self._execute(f"DELETE FROM area_stems WHERE area IN ({listed})", areas=areas)

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
    fields = stems.of_texts(texts)
    return {id_: Entry.of_fields(fields[4 * at : 4 * at + 4]) for at, id_ in enumerate(documents)}
