"""SQL that keeps the full-text index in line with the memories, row by row."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ....domain.errors import Unavailable
from ....domain.model.memory import MemoryId
from ....domain.model.space import GLOBAL_SCOPE, Space
from ....domain.text.neighbours import NEIGHBOURS
from ..base.table import Table
from .partitions import AREA, FIRST_OF_STORES, GLOBAL_AREA, Partitions, row_number, table
from .vocabulary import Entry, Terms

BULK = 200  # memories that an import indexes together
BULK_SIZE = 1024 * 1024  # characters of content after which it does not wait for more


class Index(Table):
    """The index of one transaction. Only live memories are in it."""

    def __init__(self, connection: sqlite3.Connection, partitions: Partitions) -> None:
        super().__init__(connection)
        self._partitions = partitions
        self._terms = Terms(connection, partitions)
        self._pending: dict[int, tuple[MemoryId, MemoryId]] = {}  # the first and the last, by area
        self._pending_count = self._pending_size = 0
        self._are_rules_own = False  # not known yet
        self._bulk = 1  # new memories that are indexed together

    def place(self, space: Space) -> tuple[int, int | None]:
        """The area and the partition for a new space: its project's, or new ones."""
        self.flush()  # a partition that is made holds all that is there
        if space.scope == GLOBAL_SCOPE:
            return GLOBAL_AREA, None
        if space.is_store:
            return self._next_area(), self._partitions.place(is_store=True)
        row = self._execute(
            f"""SELECT area, partition
                  FROM spaces
                 WHERE project = :project AND area <> {GLOBAL_AREA}
                 LIMIT 1""",
            project=space.project,
        ).fetchone()
        return row or (self._next_area(), self._partitions.place(is_store=False))

    def prepare(self, area: int) -> None:
        """See to it that the area has its partitions, before there is anything to put in."""
        self._require_own_rules()
        self._partitions.holding(area)

    def add(self, memory: MemoryId, area: int, size: int) -> None:
        """Index a memory that is new, the newest of all, and of so many characters."""
        first, _ = self._pending.get(area, (memory, memory))
        self._pending[area] = first, memory
        self._pending_count += 1
        self._pending_size += size
        if self._pending_count >= self._bulk or self._pending_size >= BULK_SIZE:
            self.flush()

    @contextmanager
    def in_bulk(self) -> Iterator[None]:
        """Inside, new memories are indexed many at a time."""
        self._bulk = BULK
        yield
        self._bulk = 1
        self.flush()

    def flush(self) -> None:
        """Index the new memories that are not indexed yet."""
        for area, (first, last) in self._pending.items():
            self._add_all(area, first, last)
        self._pending.clear()
        self._pending_count = self._pending_size = 0

    @contextmanager
    def following(self, memory: MemoryId) -> Iterator[None]:
        """Bring the index in line with what is done to a memory inside.

        Those that borrow from it change with it: its next ones in the session.
        """
        self._require_own_rules()
        self.flush()
        ids = [memory, *self._borrowers(memory)]
        before = self._entries(ids)
        yield
        after = self._entries(ids)
        for id_ in ids:
            old, new = before.get(id_), after.get(id_)
            if old == new:
                continue
            if old:
                self._take_out(old.area, {id_: old})
            if new:
                self._put_in(new.area, {id_: new})
        self._terms.follow(before.get(memory), after.get(memory))

    @contextmanager
    def moving(self, memories: Sequence[MemoryId]) -> Iterator[None]:
        """Bring the index in line with what is done to many memories inside, but not their words.

        Those that borrow from them follow only if they are among them; terms do not follow.
        """
        self._require_own_rules()
        self.flush()
        for area, entries in self._by_area(memories):
            self._take_out(area, entries)
        yield
        for area, entries in self._by_area(memories):
            self._put_in(area, entries)

    def leave(self, area: int, partition: int, into: int) -> None:
        """Let the terms of an area be another's, whose memories its own are by now."""
        self._terms.merge(area, into)
        self._partitions.must_purge([partition])

    def forget(self, memories: Sequence[MemoryId]) -> None:
        """Take memories out, with their terms, before they are removed; none that stays borrows."""
        self._require_own_rules()
        self.flush()
        self._partitions.must_purge(self._partitions_of(memories))
        for area, entries in self._by_area(memories):
            self._take_out(area, entries)
            self._terms.forget(area, entries.values())

    def is_exact(self, partition: int) -> bool:
        """Whether it holds just what the memories say, word for word. Asked in a write."""
        return self._partitions.is_exact(partition) and self._terms.are_exact(partition)

    def rebuild(self, partition: int) -> None:
        """Fill it afresh from the memories."""
        self._require_own_rules()
        self._partitions.rebuild(partition)
        self._terms.rebuild(partition)

    def refill(self, memories: Sequence[MemoryId]) -> None:
        """Fill the partitions of memories afresh, whose words are others than were put in."""
        for partition in self._partitions_of(memories):
            self.rebuild(partition)

    def make_anew(self, partition: int) -> None:
        """Put one that is made of the memories in its place, and read nothing of the old one."""
        self._require_own_rules()
        self._partitions.make_anew(partition)

    def must_purge(self, memory: MemoryId) -> None:
        """Note that words of a memory are to leave the storage of its partitions for good."""
        row = self._execute(
            "SELECT area FROM spaces WHERE id = (SELECT space_id FROM memories WHERE id = :id)",
            id=memory,
        ).fetchone()
        if row is not None:
            self._partitions.must_purge(self._partitions.holding(row[0]))

    def relieve(self) -> bool:
        """Move one project out of a crowded partition; false if none can."""
        self._require_own_rules()
        for area, number, others in self._partitions.crowded():
            target = self._partitions.place(is_store=number >= FIRST_OF_STORES)
            # A project that made the other as crowded would be moved to and fro for ever.
            if target != number and not self._partitions.holds(target, others):
                self._move(area, number, target)
                return True
        return False

    def make_all_anew(self) -> None:
        """Make every partition anew, and the terms."""
        self._partitions.drop_all()
        self._execute("UPDATE spaces SET partition = NULL")
        areas = self._execute(
            f"""SELECT DISTINCT area, project IS NULL
                  FROM spaces
                 WHERE area <> {GLOBAL_AREA}
              ORDER BY area"""
        ).fetchall()
        for area, is_store in areas:
            self._partitions.assign(area, self._partitions.place(is_store=bool(is_store)))
        self._partitions.make_all()
        self._terms.make_anew()

    def _move(self, area: int, source: int, target: int) -> None:
        """Take an area's rows out of one partition, and put them into another."""
        self._partitions.make(target)
        rows = f"""area << {AREA} | id, title, content, context, tags
                   FROM memory_text
                  WHERE area = :area"""
        self._execute(
            f"""INSERT INTO {table(source)} ({table(source)}, rowid, title, content, context, tags)
                SELECT 'delete', {rows}""",
            area=area,
        )
        self._partitions.must_purge([source])
        self._partitions.assign(area, target)
        self._execute(
            f"""INSERT INTO {table(target)} (rowid, title, content, context, tags)
                SELECT {rows}""",
            area=area,
        )

    def _next_area(self) -> int:
        ((area,),) = self._execute("SELECT coalesce(max(area), 0) + 1 FROM spaces")
        return int(area)

    def _require_own_rules(self) -> None:
        """Words by other rules than the index's would be put in, and never be taken out again."""
        if self._are_rules_own:
            return
        row = self._execute("SELECT rules = own_rules() FROM index_rules").fetchone()
        if row is None or not row[0]:
            raise Unavailable("The index was made by other rules meanwhile; restart the service.")
        self._are_rules_own = True

    def _add_all(self, area: int, first: MemoryId, last: MemoryId) -> None:
        """Index all live memories of an area between two, which are new."""
        rows = self._execute(
            """SELECT id, area, title, content, context, tags
                 FROM memory_text
                WHERE area = :area AND id BETWEEN :first AND :last
             ORDER BY id""",
            area=area,
            first=first,
            last=last,
        )
        entries = {id_: Entry(*entry) for id_, *entry in rows}
        self._put_in(area, entries)
        self._terms.note(area, entries.values())

    def _by_area(self, memories: Sequence[MemoryId]) -> Iterator[tuple[int, dict[MemoryId, Entry]]]:
        """What the index holds of memories, some of one area at a time."""
        for start in range(0, len(memories), BULK):
            areas: dict[int, dict[MemoryId, Entry]] = {}
            for id_, entry in self._entries(memories[start : start + BULK]).items():
                areas.setdefault(entry.area, {})[id_] = entry
            yield from areas.items()

    def _partitions_of(self, memories: Sequence[MemoryId]) -> set[int]:
        rows = self._execute(
            """SELECT DISTINCT s.area
                 FROM memories m
                 JOIN spaces s ON s.id = m.space_id
                WHERE m.id IN (SELECT value FROM json_each(:ids))""",
            ids=json.dumps(memories),
        )
        return {number for (area,) in rows.fetchall() for number in self._partitions.holding(area)}

    def _entries(self, ids: Collection[MemoryId]) -> dict[MemoryId, Entry]:
        entries = {}
        for id_ in ids:
            # By its space, too: the view reads along spaces, and would look into each of them.
            row = self._execute(
                """SELECT area, title, content, context, tags
                     FROM memory_text
                    WHERE id = :id AND space_id = (SELECT space_id FROM memories WHERE id = :id)""",
                id=id_,
            ).fetchone()
            if row is not None:
                entries[id_] = Entry(*row)
        return entries

    def _borrowers(self, memory: MemoryId) -> list[MemoryId]:
        rows = self._execute(
            f"""SELECT n.id
                  FROM memories m
                  JOIN memories n INDEXED BY memories_in_session
                    ON n.session_id = m.session_id AND n.space_id = m.space_id
                 WHERE m.id = :id AND n.id > m.id AND n.deleted_at IS NULL
              ORDER BY n.id
                 LIMIT {NEIGHBOURS}""",
            id=memory,
        )
        return [id_ for (id_,) in rows]

    def _put_in(self, area: int, entries: Mapping[MemoryId, Entry]) -> None:
        for number in self._partitions.holding(area):
            self._connection.executemany(
                f"""INSERT INTO {table(number)} (rowid, title, content, context, tags)
                    VALUES (:row, :title, :content, :context, :tags)""",
                [_row(id_, entry) for id_, entry in entries.items()],
            )

    def _take_out(self, area: int, entries: Mapping[MemoryId, Entry]) -> None:
        for number in self._partitions.holding(area):
            name = table(number)
            self._connection.executemany(
                f"""INSERT INTO {name} ({name}, rowid, title, content, context, tags)
                    VALUES ('delete', :row, :title, :content, :context, :tags)""",
                [_row(id_, entry) for id_, entry in entries.items()],
            )


def first_of(rows: Iterable[tuple[int, int]]) -> list[MemoryId]:
    """The first of memories, given with their sizes, until they are enough for one step."""
    some: list[MemoryId] = []
    room = BULK_SIZE
    for id_, size in rows:
        some.append(MemoryId(id_))
        room -= size
        if room < 0:
            break
    return some


def is_by_rules(database: sqlite3.Connection, rules: str) -> bool:
    """Whether the index was made by these rules."""
    row: tuple[str] | None = database.execute("SELECT rules FROM index_rules").fetchone()
    return row == (rules,)


def bring_to_rules(database: sqlite3.Connection, rules: str) -> None:
    """Make the index anew if it was made by other rules, within a transaction that is alone."""
    if is_by_rules(database, rules):
        return
    Index(database, Partitions(database, is_alone=True)).make_all_anew()
    database.execute("REPLACE INTO index_rules (one, rules) VALUES (1, ?)", (rules,))


def _row(memory: MemoryId, entry: Entry) -> dict[str, object]:
    return {
        "row": row_number(entry.area, memory),
        "title": entry.title,
        "content": entry.content,
        "context": entry.context,
        "tags": entry.tags,
    }
