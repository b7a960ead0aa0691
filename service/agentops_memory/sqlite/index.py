"""SQL that keeps the full-text index in line with the memories, row by row."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ..memory.memory import Memory, MemoryId, undeleted
from ..memory.space import (
    GLOBAL_AREA,
    GLOBAL_SCOPE,
    LAST_AREA,
    TRAITS,
    UNINDEXED_AREA,
    IndexGroup,
    Space,
    group_of,
    kind_of,
    place_of,
)
from ..recall.cache import Token
from ..recall.stems import Entry
from ..recall.visibility import AREA
from .connection import known_stems, noted_by, token_of
from .dialect import SqliteTable
from .documents import AREAS, Documents, Pending, entries_of
from .partitions import Partitions, table

LOOKED = 2_000  # memories whose stems are looked for together
STEMMED = 20  # memories whose stems are found while other changes wait
MOVED = 200  # memories that are moved, or taken out, together


class Index(SqliteTable):
    """The index of one transaction, as the record tables know it, and its maintenance."""

    def __init__(self, connection: sqlite3.Connection, pending: Pending | None = None) -> None:
        super().__init__(connection)
        self._of_batch = pending

    @property
    def _pending(self) -> Pending:
        """Made by what changes the index: a read has no use for it."""
        if self._of_batch is None:
            self._of_batch = Pending(self._connection, is_alone=True)
        return self._of_batch

    @property
    def _partitions(self) -> Partitions:
        return self._pending.partitions

    @property
    def _documents(self) -> Documents:
        return self._pending.documents

    def place(self, space: Space) -> tuple[int, int | None]:
        if space.scope == GLOBAL_SCOPE:
            return GLOBAL_AREA, None
        if space.traits.index is None:
            return UNINDEXED_AREA, None
        self._partitions.forget()  # a new area may have the number of one that is gone
        row = place_of(self._connection, space.project) if space.traits.has_project else None
        return row or (self._next_area(), self._partitions.place(space.traits.index))

    def prepare(self, area: int) -> None:
        if area == UNINDEXED_AREA:
            return
        self._pending.require_own_rules()
        if not self._partitions.has(area):
            self.flush()  # a partition that is made holds all that is there
        self._partitions.of_area(area)

    def add(self, memory: Memory, space: int, area: int) -> None:
        self.add_all([(memory.id, memory, space, area)])

    def add_all(self, memories: Iterable[tuple[MemoryId, Memory, int, int]]) -> None:
        self._pending.add_all(memories)

    def flush(self) -> None:
        """Index the new memories that are not indexed yet."""
        self._pending.flush()

    @contextmanager
    def updating(self, memory: MemoryId) -> Iterator[None]:
        """Bring the index in line with what is done to a memory inside.

        Those that borrow from it change with it: its next ones in the session.
        """
        self._pending.require_own_rules()
        self.flush()
        ids = [memory, *self._documents.borrowers(memory)]
        before = self._documents.of(ids)
        yield
        after = self._documents.of(ids)
        for id_ in ids:
            old, new = before.get(id_), after.get(id_)
            if old == new:
                continue
            if old:
                self._documents.delete({id_: old})
            if new:
                self._documents.insert({id_: new})

    @contextmanager
    def moving(self, memories: Sequence[MemoryId]) -> Iterator[None]:
        """Bring the index in line with what is done to many memories inside, but not their words.

        Those that borrow from them follow only if they are among them.
        """
        self._pending.require_own_rules()
        self.flush()
        for documents in self._documents.in_portions(memories, MOVED):
            self._documents.delete(documents)
        yield
        for documents in self._documents.in_portions(memories, MOVED):
            self._documents.insert(documents)

    def merge_area(self, area: int, partition: int) -> None:  # noqa: ARG002
        self.flush()
        self._partitions.mark_for_purge([partition])

    def remove(self, memories: Sequence[MemoryId]) -> None:
        """Take memories out before they are removed; none that stays borrows."""
        self._pending.require_own_rules()
        self.flush()
        self._partitions.mark_for_purge(self._partitions_of(memories))
        for documents in self._documents.in_portions(memories, MOVED):
            self._documents.delete(documents)

    def is_exact(self, partition: int) -> bool:
        """Whether it holds just what the memories say, word for word. Asked in a write."""
        self.flush()
        return self._partitions.is_exact(partition) and self._are_stems_exact(partition)

    def _are_stems_exact(self, partition: int) -> bool:
        """Whether the stems that are stored are those of the texts."""
        stored: dict[MemoryId, bytes] = dict(
            self._execute(
                f"""SELECT m.id, CAST(t.stems AS BLOB)
                      FROM spaces s
                      JOIN memories m ON m.space_id = s.id
                      JOIN memory_stems t ON t.memory_id = m.id
                     WHERE s.area IN ({AREAS})""",
                partition=partition,
            ).fetchall()
        )
        entries = entries_of(known_stems(self._connection), self._documents.of(stored))
        try:
            found = {id_: Entry.loaded(it.decode()) for id_, it in stored.items()}
        except ValueError:
            return False
        return [(id_, it.length, it.counts) for id_, it in sorted(found.items())] == [
            (id_, it.length, it.counts) for id_, it in sorted(entries.items())
        ]

    def rebuild(self, partition: int) -> None:
        """Fill a partition again from the memories; DamagedRow if it is not known from which."""
        self._pending.require_own_rules()
        self._partitions.require_places()
        self.flush()
        self._partitions.rebuild(partition)
        self._forget_stems(partition)

    def missing_stems(self, after: int) -> tuple[list[MemoryId], int | None]:
        """Memories without stored stems among some after an id, and after which to continue."""
        rows = self._execute(
            f"""SELECT m.id, t.memory_id IS NULL AND {undeleted("m")}
                  FROM memories m
                  LEFT JOIN memory_stems t ON t.memory_id = m.id
                 WHERE m.id > :after
              ORDER BY m.id
                 LIMIT {LOOKED}""",
            after=after,
        ).fetchall()
        missing = [MemoryId(id_) for id_, is_missing in rows if is_missing]
        return missing, rows[-1][0] if rows else None

    def store_entries(self, token: Token, entries: Mapping[MemoryId, Entry]) -> None:
        """Store the stems of memories, unless anything has changed since a token."""
        if token_of(self._connection) == token:
            self._documents.store(entries)

    def store_stems(self, memories: Sequence[MemoryId]) -> None:
        """Store the stems of memories, as they are loaded into memory."""
        self._pending.require_own_rules()
        self._documents.store_stems(self._documents.of(memories))

    def recreate(self, partition: int) -> None:
        """Put one that is made of the memories in its place, and read nothing of the old one."""
        self._pending.require_own_rules()
        self._partitions.recreate(partition)
        self._forget_stems(partition)

    def mark_for_purge(self, memory: MemoryId) -> None:
        row = self._execute(
            "SELECT area FROM spaces WHERE id = (SELECT space_id FROM memories WHERE id = :id)",
            id=memory,
        ).fetchone()
        if row is not None:
            self._partitions.mark_for_purge(self._partitions.of_area(row[0]))

    def rebalance(self) -> bool:
        """Move one project out of an oversized partition; false if none can."""
        self._pending.require_own_rules()
        self.flush()
        for area, number, others in self._partitions.oversized():
            target = self._partitions.place(group_of(number))
            # A project that made the other as large would be moved to and fro forever.
            if target != number and not self._partitions.holds(target, others):
                self._move(area, number, target)
                return True
        return False

    def recreate_all(self) -> None:
        self._partitions.drop_all()
        self._execute("DELETE FROM memory_stems")  # which are by the rules of before
        self._execute("UPDATE spaces SET partition = NULL")
        self._place_all()
        self._partitions.make_all()

    def settle(self) -> None:
        """Give each area without a partition one, and let each hold what the memories say.

        For spaces whose places in the index were damaged, and are known again.
        """
        self._pending.require_own_rules()
        self._place_all()
        used = self._scalars(
            "SELECT DISTINCT partition FROM spaces WHERE partition IS NOT NULL ORDER BY partition"
        )
        for number in {*self._partitions.all(), *used}:
            if self._partitions.is_made(number):
                self._partitions.rebuild(number)
            else:  # its table may be there, as a damaged file leaves it
                self._partitions.recreate(number)
            self._forget_stems(number)

    def _forget_stems(self, partition: int) -> None:
        """Let stems be stored anew of what a partition holds: its words may be others now."""
        areas = self._execute(
            f"SELECT DISTINCT partition, area FROM spaces WHERE area IN ({AREAS})",
            partition=partition,
        ).fetchall()
        for number, area in areas:
            noted_by(self._connection).note(number, area, 0)
        self._execute(
            f"""DELETE FROM memory_stems
                 WHERE memory_id IN (SELECT m.id
                                       FROM spaces s
                                       JOIN memories m ON m.space_id = s.id
                                      WHERE s.area IN ({AREAS}))""",
            partition=partition,
        )

    def _place_all(self) -> None:
        areas = self._execute(
            f"""SELECT DISTINCT area, kind, project
                  FROM spaces
                 WHERE area > {GLOBAL_AREA} AND partition IS NULL
              ORDER BY area"""
        ).fetchall()
        for area, kind, project in areas:
            group = TRAITS[kind_of(kind, project)].index or IndexGroup.STORES
            self._partitions.assign(area, self._partitions.place(group))

    def _move(self, area: int, source: int, target: int) -> None:
        self._partitions.make(target)
        rows = f"""area << {AREA} | id, title, content, context, tags
                   FROM memory_text
                  WHERE area = :area"""
        self._execute(
            f"""INSERT INTO {table(source)} ({table(source)}, rowid, title, content, context, tags)
                SELECT 'delete', {rows}""",
            area=area,
        )
        self._partitions.mark_for_purge([source])
        self._partitions.assign(area, target)
        self._execute(
            f"""INSERT INTO {table(target)} (rowid, title, content, context, tags)
                SELECT {rows}""",
            area=area,
        )

    def _next_area(self) -> int:
        return self._number(
            """SELECT coalesce(max(area), :none) + 1
                 FROM spaces
                WHERE area BETWEEN :none AND :last""",  # others are damaged, and no place for more
            none=GLOBAL_AREA,
            last=LAST_AREA,
        )

    def _partitions_of(self, memories: Sequence[MemoryId]) -> set[int]:
        rows = self._execute(
            """SELECT DISTINCT s.area
                 FROM memories m
                 JOIN spaces s ON s.id = m.space_id
                WHERE m.id IN (SELECT value FROM json_each(:ids))""",
            ids=json.dumps(memories),
        )
        return {number for (area,) in rows.fetchall() for number in self._partitions.of_area(area)}


_ALL_INDEXED = """REPLACE INTO index_rules (one, rules, indexed_to)
                  SELECT 1, ?, coalesce(max(id), 0) FROM memories"""


def is_by_rules(database: sqlite3.Connection, rules: str) -> bool:
    row: tuple[str] | None = database.execute("SELECT rules FROM index_rules").fetchone()
    return row == (rules,)


def make_index(database: sqlite3.Connection, rules: str) -> None:
    """Make the index of a file that has memories and none yet; areas lie where they are said to."""
    Partitions(database, is_alone=True).make_all()
    database.execute(_ALL_INDEXED, (rules,))


def bring_to_rules(database: sqlite3.Connection, rules: str) -> None:
    """Make the index again if it was made by other rules, within a transaction that is alone."""
    if is_by_rules(database, rules):
        return
    Index(database).recreate_all()
    database.execute(_ALL_INDEXED, (rules,))
