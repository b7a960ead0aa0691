"""SQL that keeps the full-text index in line with the memories, row by row."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property

from ..errors import DamagedRow, Unavailable
from ..memory import space as spaces
from ..memory.erasure import MAX_STEP
from ..memory.memory import Memory, MemoryId, PreparedMemory, indexed, undeleted
from ..memory.rows import micros, optional_micros
from ..memory.table import Known, Waiting
from ..recall.area import Row as IndexedMemory, drafted
from ..recall.cache import Changes, NewMemory
from ..recall.stems import groups_of
from ..recall.text import NEIGHBORS, Columns, End, Prepared, context, prepared
from ..recall.visibility import AREA
from .areas import StoredAreas
from .connection import NO_GROUP, Database, SqliteTable
from .dialect import decoded
from .partitions import AREAS, AT_ONCE, IMPORTED_AT_ONCE, Partitions, entries_of, table

CHECKED_AT_ONCE = 2_000  # memories that one query checks for missing stems
STEMMED_AT_ONCE = 20  # memories whose stems one transaction computes, while other changes wait
MOVED = 200  # memories that are moved, or removed from the index, together


# FTS5 takes a third of a save: it writes the words of each partition with every commit. So new
# memories wait and are indexed together, by partition; their ids are beyond the last indexed one.
# Whatever reads or changes the index before then indexes them first.
MOST_WAITING = 4096  # memories; beyond, each transaction that adds some also indexes some
MOST_NEW = 256 * 1024  # characters of new memories that a transaction reports; imports write more

# A number beyond all memories is damage, and counts as 0.
LAST_INDEXED = """SELECT coalesce(max(CASE WHEN indexed_to <= seq THEN indexed_to END), 0)
                    FROM index_rules, sqlite_sequence
                   WHERE name = 'memories'"""


class Index(SqliteTable):
    """The index of a transaction, or of several that share a commit, as the record tables see it.

    It has their new memories, the memories that wait for the full-text index, and cached rows.
    """

    def __init__(
        self,
        connection: Database,
        *,
        is_alone: bool = True,
        most: int = 0,
        known: Known | None = None,
        is_awaited: Callable[[], bool] = bool,
    ) -> None:
        """Without `known`, from a connection that notes its changes, ends are cached until a flush.

        At the end at most `most` memories wait, or twice as many while others await the end.
        """
        super().__init__(connection)
        self.known = known or Known()
        self._notes_changes = known is not None
        self.is_alone = is_alone  # whether no other work shares the transaction
        self._most = most
        self._is_awaited = is_awaited
        self.areas = StoredAreas(connection)
        self._new: list[NewMemory] = []
        self._new_size = 0  # characters

    @cached_property
    def partitions(self) -> Partitions:
        return Partitions(self._connection, is_alone=self.is_alone, known=self.known)

    def new_place(self, group: spaces.IndexGroup) -> tuple[int, int]:
        self.partitions.forget()  # a new area may have the number of a removed one
        next_area = self._number(
            """SELECT coalesce(max(area), :none) + 1
                 FROM spaces
                WHERE area BETWEEN :none AND :last""",  # other numbers are damaged
            none=spaces.GLOBAL_AREA,
            last=spaces.LAST_AREA,
        )
        return next_area, self.partitions.number_for(group)

    def prepare(self, area: int) -> None:
        if area != spaces.UNINDEXED_AREA:
            self.require_own_rules()
            # A new partition is filled with all memories.
            self.partitions.of_area(area, before_making=self.flush)

    def add_all(self, memories: Iterable[tuple[MemoryId, Memory, int, int]]) -> None:
        """Prepare new memories for the index, in the order of ids; they are the newest of all."""
        self.require_own_rules()
        for id_, memory, space, area in memories:
            if memory.deleted_at or area == spaces.UNINDEXED_AREA:
                continue
            words = _words(memory)
            ends = self._ends_before(id_, memory, space, area)
            borrowed = context(ends) if words.borrows else ""
            columns = Columns(words.title, words.content, borrowed, words.tags)
            self.known.waiting[id_] = area, columns
            self.known.waiting_size += sum(map(len, columns))
            group = memory.space.kind.traits.index
            self.known.has_entries |= group is not spaces.IndexGroup.PROJECTS
            self._note_new(id_, memory, space, area, columns)
            if memory.session is not None and area in self.known.ends:
                # The next memories of its session may borrow from its end.
                known = self.known.ends[area].get((space, memory.session))
                if known is not None:
                    known[:] = [*known[1 - NEIGHBORS :], End(*words.end)]
        if self._most and len(self._waiting()) > self._most:
            self.relieve()

    def relieve(self, coming: int = 0, *, is_brief: bool = True) -> bool:
        """Merge some pages, or index some waiting memories if too many wait, counting `coming`."""
        if self.partitions.merge_some():
            return True
        waiting = len(self._waiting())
        is_crowded = waiting + coming > self._most or self.known.waiting_size > 7 * MAX_STEP
        most = AT_ONCE if is_brief or self._is_awaited() else IMPORTED_AT_ONCE
        return is_crowded and self.flush(most, may_stop=waiting < 2 * self._most)

    def end(self) -> None:
        if not self._most:
            self.flush()
            self.partitions.merge_some()
        while self.known.waiting_size >= 8 * MAX_STEP and self.flush(AT_ONCE):
            pass  # each flush may index only short memories

    def flush(self, most: int | None = None, *, may_stop: bool = False) -> bool:
        """Index all waiting memories, or at most `most` together; return False if none waits.

        Cached rows may be outdated afterwards. With `may_stop`, stop early when others wait.
        """
        waiting = self._waiting()
        if not self._notes_changes:
            self.known.ends.clear()
        if not waiting:
            return False
        left = len(waiting) if most is None else most
        while waiting and left > 0:
            numbers, some = self._oldest(min(left, most or AT_ONCE))
            self.partitions.insert_missing(numbers, some)
            for id_ in some:
                self.known.waiting_size -= sum(map(len, waiting.pop(id_)[1] or ()))
            left -= len(some)
            if may_stop and self._is_awaited():
                break
        if not waiting:
            self.known.waiting_size, self.known.has_entries = 0, False
        self._execute(
            """UPDATE index_rules
                  SET indexed_to = coalesce(:first - 1, (SELECT max(id) FROM memories), 0)""",
            first=next(iter(waiting), None),
        )
        return True

    def _waiting(self) -> dict[MemoryId, Waiting]:
        """Return the waiting memories by id; those of other connections have no columns yet."""
        if not self.known.has_all_waiting:
            rows = self._execute(
                f"""SELECT m.id, s.area
                      FROM memories m
                      JOIN spaces s ON s.id = m.space_id
                     WHERE m.id > ({LAST_INDEXED})
                  ORDER BY m.id"""
            )
            every: dict[MemoryId, Waiting] = {MemoryId(id_): (area, None) for id_, area in rows}
            self.known.waiting, self.known.has_all_waiting = every | self.known.waiting, True
        return self.known.waiting

    def _oldest(self, most: int) -> tuple[list[int], dict[MemoryId, Waiting]]:
        """Return the oldest waiting memory and others of its partition, for one segment."""
        some, size = dict[MemoryId, Waiting](), 0
        of_areas, first = dict[int, list[int]](), -1
        for id_, waiting in self.known.waiting.items():
            area, columns = waiting
            if area not in of_areas:
                of_areas[area] = self._usable_partitions(area)
                first = area if first < 0 else first
            if of_areas[area] == of_areas[first]:
                some[id_] = waiting
                size += sum(map(len, columns or ()))
                if len(some) == most or size > MAX_STEP:
                    break
        return of_areas[first], some

    def _usable_partitions(self, area: int) -> list[int]:
        """Return the partitions of an area; none if its space is damaged: the repair fills one."""
        with suppress(DamagedRow):
            return self.partitions.of_area(area)
        return []

    def changes(self) -> Changes:
        """Return what the transaction has changed; to be called at its end."""
        return self._connection.change_log.changes(self._new)

    def _note_new(
        self, id_: MemoryId, memory: Memory, space: int, area: int, columns: Columns
    ) -> None:
        number = NO_GROUP
        if area != spaces.GLOBAL_AREA:
            number, *_ = self.known.partitions.get(area) or self.partitions.of_area(area)
        changes = self._connection.change_log
        self._new_size += sum(map(len, columns))
        if self._new_size > MOST_NEW:  # caches read their projects again
            for key in ((number, area), *(it.key for it in self._new)):
                changes.note_new(key)
            self._new.clear()
            return
        expiry = optional_micros(memory.lifecycle.expires_at)
        pinned_at = optional_micros(memory.lifecycle.pinned_at)
        row = IndexedMemory(
            id_, space, memory.session, micros(memory.created_at), expiry, pinned_at
        )
        self._new.append(NewMemory((number, area), row, columns))

    def require_own_rules(self) -> None:
        """Raise Unavailable if the index has other rules.

        Words added by other rules could never be removed again.
        """
        if not self.known.has_own_rules:
            if not is_by_rules(self._connection):
                raise Unavailable(
                    "The index was rebuilt with other rules meanwhile; restart the service."
                )
            self.known.has_own_rules = True

    def _ends_before(
        self, before: MemoryId, memory: Memory, space: int, area: int
    ) -> Iterator[End]:
        """Yield the ends of the memories before this one in its session, read on demand."""
        if memory.session is None:
            return
        known, key = self.known.ends.setdefault(area, {}), (space, memory.session)
        if key not in known:
            rows = self._execute(
                f"""SELECT CAST(n.content AS BLOB)
                      FROM memories n INDEXED BY memories_in_session
                     WHERE n.session_id = :session AND n.space_id = :space AND n.id < :id
                           AND {indexed("n")}
                  ORDER BY n.id DESC
                     LIMIT {NEIGHBORS}""",
                session=memory.session,
                space=space,
                id=before,
            )
            known[key] = [End.of(decoded(content)) for (content,) in rows][::-1]
        yield from known[key]

    @contextmanager
    def updating(self, memory: MemoryId) -> Iterator[None]:
        """Update the index after changes to a memory that are made within.

        The memories that borrow from it, which follow it in the session, change with it.
        """
        self.require_own_rules()
        self.flush()
        ids = [memory, *self.partitions.borrowers(memory)]
        before = self.partitions.documents(ids)
        yield
        after = self.partitions.documents(ids)
        self.partitions.delete({id_: it for id_, it in before.items() if after.get(id_) != it})
        self.partitions.insert({id_: it for id_, it in after.items() if before.get(id_) != it})

    @contextmanager
    def moving(self, memories: Sequence[MemoryId]) -> Iterator[None]:
        """Update the index after changes within to many memories, but not to their words.

        Memories that borrow from them are updated only if they are among them.
        """
        self.require_own_rules()
        self.flush()
        for documents in self.partitions.in_portions(memories, MOVED):
            self.partitions.delete(documents)
        yield
        for documents in self.partitions.in_portions(memories, MOVED):
            self.partitions.insert(documents)

    def merge_area(self, area: int, partition: int) -> None:  # noqa: ARG002
        self.flush()
        self.partitions.mark_for_purge([partition])

    def remove(self, memories: Sequence[MemoryId]) -> None:
        """Remove memories from the index before they are deleted; no other may borrow from them."""
        self.require_own_rules()
        self.flush()
        self._mark_for_purge(memories)
        for documents in self.partitions.in_portions(memories, MOVED):
            self.partitions.delete(documents)

    def is_exact(self, partition: int) -> bool:
        """Whether the partition and the stored stems match the memories exactly.

        To be called in a write transaction.
        """
        self.flush()
        if not self.partitions.is_exact(partition):
            return False
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
        documents = self.partitions.documents(stored)
        entries = entries_of(self._connection.stems, documents)
        try:
            for area in self._scalars(AREAS, partition=partition):
                whole = self.areas.stored(area)
                its = [
                    (row, entries.get(row.id, stems))
                    for row, stems in (self.areas.rows(area, MemoryId(0)) if whole else ())
                    if whole and row.id <= whole[0].last
                ]
                if whole and whole != (its and drafted(area, its).segment()):
                    return False
            loaded = {id_: it.decode() for id_, it in stored.items()}
        except ValueError:
            return False
        counts, actual = (
            {id_: {(it, stem) for it, *stems in groups_of(entry) for stem in stems}
             for id_, entry in some.items()}
            for some in (loaded, entries)
        )  # fmt: skip
        return counts == actual

    def rebuild(self, partition: int) -> None:
        """Rebuild a partition from the memories; DamagedRow if a space's location is damaged."""
        self.require_own_rules()
        self.partitions.require_places()
        self.flush()
        self.partitions.rebuild(partition)
        self._forget_stems(partition)

    def missing_stems(self, after: int) -> tuple[list[MemoryId], int | None]:
        """Return the next memories without stored stems, and the id after which to continue."""
        rows = self._execute(
            f"""SELECT m.id, t.memory_id IS NULL AND {undeleted("m")}
                  FROM memories m
                  LEFT JOIN memory_stems t ON t.memory_id = m.id
                 WHERE m.id > :after
              ORDER BY m.id
                 LIMIT {CHECKED_AT_ONCE}""",
            after=after,
        ).fetchall()
        missing = [MemoryId(id_) for id_, is_missing in rows if is_missing]
        return missing, rows[-1][0] if rows else None

    def store_stems(self, memories: Sequence[MemoryId]) -> None:
        """Compute and store the stems of memories, in the form that is loaded into memory."""
        self.require_own_rules()
        documents = self.partitions.documents(memories)
        self.partitions.store_stems(entries_of(self._connection.stems, documents))

    def recreate(self, partition: int) -> None:
        """Replace a partition by one built from the memories, without reading the old one."""
        self.require_own_rules()
        self.partitions.recreate(partition)
        self._forget_stems(partition)

    def mark_for_purge(self, memory: MemoryId) -> None:
        self._mark_for_purge([memory])

    def _mark_for_purge(self, memories: Sequence[MemoryId]) -> None:
        areas = self._scalars(
            """SELECT DISTINCT s.area
                 FROM memories m
                 JOIN spaces s ON s.id = m.space_id
                WHERE m.id IN (SELECT value FROM json_each(:ids))""",
            ids=json.dumps(memories),
        )
        numbers = {it for area in areas for it in self.partitions.of_area(area)}
        self.partitions.mark_for_purge(numbers)

    def rebalance(self) -> bool:
        """Move one project out of an oversized partition; false if none can."""
        self.require_own_rules()
        self.flush()
        for area, number, others in self.partitions.oversized():
            target = self.partitions.number_for(spaces.group_of(number))
            # A project that made the target as large would be moved back and forth forever.
            if target != number and not self.partitions.holds(target, others):
                self._move(area, number, target)
                return True
        return False

    def recreate_all(self) -> None:
        """Replace the whole index by one built from the memories with this connection's rules."""
        self.partitions.drop_all()
        for stems in ("memory_stems", "area_stems"):
            self._execute(f"DELETE FROM {stems}")
        self._execute("UPDATE spaces SET partition = NULL")
        areas = self._execute(
            f"""SELECT DISTINCT area, kind, project
                  FROM spaces
                 WHERE area > {spaces.GLOBAL_AREA}
              ORDER BY area"""
        ).fetchall()
        for area, kind, project in areas:
            group = spaces.kind_of(kind, project).traits.index or spaces.IndexGroup.STORES
            self.partitions.assign(area, self.partitions.number_for(group))
        self.make_all()

    def make_all(self) -> None:
        """Create the index of a file that has none; areas keep their assigned partitions."""
        rows = self._execute(
            f"SELECT {spaces.FIRST} UNION SELECT partition FROM spaces WHERE partition IS NOT NULL"
        )
        for (number,) in rows.fetchall():
            self.partitions.make(number)
        self._execute(
            """REPLACE INTO index_rules (one, rules, indexed_to)
               SELECT 1, own_rules(), coalesce(max(id), 0) FROM memories"""
        )

    def _forget_stems(self, partition: int) -> None:
        """Delete the stored stems of a partition's memories: their words may have changed."""
        areas = self._execute(
            f"SELECT DISTINCT partition, area FROM spaces WHERE area IN ({AREAS})",
            partition=partition,
        ).fetchall()
        for number, area in areas:
            self._connection.change_log.note(number, area, 0)
        self._execute(
            f"""DELETE FROM memory_stems
                 WHERE memory_id IN (SELECT m.id
                                       FROM spaces s
                                       JOIN memories m ON m.space_id = s.id
                                      WHERE s.area IN ({AREAS}))""",
            partition=partition,
        )
        self._execute(f"DELETE FROM area_stems WHERE area IN ({AREAS})", partition=partition)

    def _move(self, area: int, source: int, target: int) -> None:
        self.partitions.make(target)
        rows = f"""area << {AREA} | id, title, content, context, tags
                   FROM memory_text
                  WHERE area = :area"""
        self._execute(
            f"""INSERT INTO {table(source)} ({table(source)}, rowid, title, content, context, tags)
                SELECT 'delete', {rows}""",
            area=area,
        )
        self.partitions.mark_for_purge([source])
        self.partitions.assign(area, target)
        self._execute(
            f"""INSERT INTO {table(target)} (rowid, title, content, context, tags)
                SELECT {rows}""",
            area=area,
        )


def _words(memory: Memory) -> Prepared:
    text = memory.text
    if isinstance(memory, PreparedMemory):
        words = Prepared(*memory.prepared)
        if words.source is text:
            return words
    is_json = memory.space.kind.traits.is_json
    return prepared(text, text.title, text.content, text.tags, is_json=is_json)


def is_by_rules(database: sqlite3.Connection) -> bool:
    """Whether the index was built by our rules."""
    row: tuple[int] | None = database.execute(
        "SELECT rules = own_rules() FROM index_rules"
    ).fetchone()
    return row == (1,)
