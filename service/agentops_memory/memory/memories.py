"""The tables of memories, their lists and spaces; each change of a row updates the index."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any, TypeVar

from ..light import dataclass, field, replace
from ..recall.text import content_hash, fingerprint
from . import memory as records
from .memory import ENDED, LIFECYCLE, MEMORY, SHOWN_MEMORY, Memory, MemoryId, Shown, live, undeleted
from .rows import EARLIEST, MAX_LIST, RowMapper, Uids, columns, micros, portion, whole_seconds
from .search import Filter
from .space import (
    GLOBAL_AREA,
    OF_A_PROJECT,
    UNINDEXED_AREA,
    Project,
    Space,
    SpaceKind,
    StoreId,
    condition_of,
    in_a_session,
    names_of,
    place_of,
    require_place,
)
from .table import GLOBAL, Attributes, Dialect, FilteredTable, Index, Known, Table, step

M = TypeVar("M")
AT_ONCE = 20  # memories per statement, which sorts their texts: those of 1,000 can take 200 MB

PUT_LIFECYCLE = f"""
    INSERT INTO lifecycles (memory_id, space_id, held_key, {", ".join(records.LIFECYCLE_FIELDS)})
    SELECT id, space_id, CASE WHEN key IS NULL THEN :key END,
           {", ".join(f":{it}" for it in records.LIFECYCLE_FIELDS)}
      FROM memories
     WHERE id = :id
        ON CONFLICT (memory_id) DO UPDATE
       SET held_key = excluded.held_key,
           {", ".join(f"{it} = :{it}" for it in records.LIFECYCLE_FIELDS)},
           is_swept = lifecycles.is_swept AND coalesce(:expires_at <= :now, FALSE)"""

# A key held in `lifecycles` returns to the row, as the clock may have gone back, unless another
# memory has the key now.
KEY_IN_ROW = f"""CASE WHEN CAST(:key AS TEXT) IS NOT NULL
                           AND (key IS NOT NULL
                                OR NOT EXISTS (SELECT 1
                                                 FROM memories other
                                                WHERE other.space_id = memories.space_id
                                                      AND other.key = :key
                                                      AND {undeleted("other")}))
                      THEN :key END"""


class MemoryLists(FilteredTable):
    def newest(
        self, filter_: Filter, limit: int, *, before: MemoryId | None = None
    ) -> list[Memory]:
        return self.loaded(self.newest_ids(filter_, limit, before=before))

    def newest_ids(
        self, filter_: Filter, limit: int, *, before: MemoryId | None = None
    ) -> list[MemoryId]:
        spaces = self._on_spaces(filter_)
        condition = f"{live('n')} {self._on_memories(filter_, 'n')}"
        if before is not None:
            condition += """ AND (n.created_at, n.id)
                               < (SELECT created_at, id FROM memories WHERE id = :before)"""
        statement = _newest_of_each(self._sql, spaces, condition)
        if spaces == OF_A_PROJECT:  # the spaces of all projects
            statement = f"""SELECT n.id
                              FROM memories n {self._sql.hint("memories_in_time")}
                             WHERE {in_a_session("n")} AND {condition}
                          ORDER BY n.created_at DESC, n.id DESC
                             LIMIT :limit"""
        return self._scalars(statement, limit=limit, before=before, **self._values(filter_))

    def at_keys(self, path: str, filter_: Filter, limit: int) -> Iterator[MemoryId]:
        # Only the index of keys is read: few memories have a key, and fewer have this one.
        rows = self._execute(
            f"""SELECT m.id
                  FROM spaces s
                  JOIN memories m {self._sql.hint("memories_at_key")} ON m.space_id = s.id
                 WHERE {self._on_spaces(filter_)} AND m.key IS NOT NULL AND {live("m")}
                       AND {self._sql.contains("m.key", ":path")} {self._on_memories(filter_, "m")}
              ORDER BY m.created_at DESC, m.id DESC
                 LIMIT :limit""",
            path=path, limit=limit, **self._values(filter_),
        )  # fmt: skip
        return (id_ for (id_,) in rows)

    @step("store.pins", lambda pins, *_: {"memory.search.result_count": len(pins)})
    def pinned(self, filter_: Filter, limit: int) -> list[Memory]:
        if not self._moment.has.pins:
            return []
        ids = self._scalars(
            f"""SELECT m.id {_pinned(self._sql)}
                       AND {self._on_spaces(filter_)} {self._on_memories(filter_, "m")}
              ORDER BY l.pinned_at, m.id
                 LIMIT :limit""",
            limit=limit,
            **self._values(filter_),
        )
        return self.loaded(ids)

    def pins(self, space: Space) -> int:
        """Count the live pinned memories of the space's project, or all global ones."""
        of_project = f"s.project = :project AND NOT ({GLOBAL})"
        which = GLOBAL if space.is_global else of_project
        counted = f"SELECT count(*) {_pinned(self._sql)} AND {which}"
        return self._number(counted, project=space.project)

    def loaded(self, ids: Iterable[MemoryId]) -> list[Memory]:
        """Return the memories with these ids, in their order, up to the size limit of a list."""
        return portion(self._by_ids(MEMORY, ids), MAX_LIST, _size)

    def texts(self, ids: Iterable[MemoryId]) -> list[Shown]:
        """Return the same as `loaded`, without the fields that most answers omit."""
        return portion(self._by_ids(SHOWN_MEMORY, ids), MAX_LIST, _size)

    def _by_ids(self, record: RowMapper[M], ids: Iterable[MemoryId]) -> Iterator[M]:
        """Yield the memories with these ids, in their order; they are read lazily, in batches."""
        statement, every = _by_ids(self._sql, record), list(ids)
        for start in range(0, len(every), AT_ONCE):
            some = json.dumps(every[start : start + AT_ONCE])
            yield from self._intact(self._execute(statement, ids=some).fetchall(), record)

    def around(self, memory: Memory, before: int, after: int) -> list[Memory]:
        spaces = f"s.project = :project AND {self._readable}"

        def side(sign: str, order: str, count: int) -> list[Memory]:
            condition = f"{live('n')} AND (n.created_at, n.id) {sign} (:created_at, :id)"
            ids = self._scalars(
                _newest_of_each(self._sql, spaces, condition, order), project=memory.space.project,
                created_at=micros(memory.created_at), id=memory.id, limit=count,
            )  # fmt: skip
            return self.loaded(ids)

        return [*reversed(side("<", "DESC", before)), memory, *side(">", "ASC", after)]

    def page(self, project: Project | None, after: MemoryId, limit: int) -> list[Memory]:
        """Return live memories of projects, in the order of ids."""
        of_project = "(CAST(:project AS TEXT) IS NULL OR s.project = :project)"
        which = f"{live('m')} AND {OF_A_PROJECT} AND {of_project}"
        return self._after(after, limit, which, project=project)

    def every(self, after: MemoryId, limit: int) -> list[Memory]:
        return self._after(after, limit, "TRUE")

    def _after(self, after: MemoryId, limit: int, which: str, **values: object) -> list[Memory]:
        return self._page(
            MEMORY,
            _size,
            f"""{MEMORY.selecting()} m.id > :after AND {which} AND {self._acts_on("s.project")}
              ORDER BY m.id
                 LIMIT :limit""",
            after=after, limit=limit, **values,
        )  # fmt: skip


def _pinned(sql: Dialect) -> str:
    return f"""FROM spaces s
              {sql.leads} lifecycles l {sql.hint("lifecycles_by_pin")} ON l.space_id = s.id
              {sql.leads} memories m ON m.id = l.memory_id
              WHERE l.pinned_at IS NOT NULL AND {live("m")}"""


@cache
def _by_ids(sql: Dialect, record: RowMapper[Any]) -> str:
    return f"""SELECT {record}
                 FROM {sql.ids("listed")}
                {sql.leads} memories m ON m.id = listed.value
                      {record.joins}
             ORDER BY listed.key"""


def _newest_of_each(sql: Dialect, spaces: str, condition: str, order: str = "DESC") -> str:
    # Each space is read along its own index, and only its newest memories are sorted.
    newest = f"""SELECT n.id
                   FROM memories n {sql.hint("memories_by_time")}
                  WHERE n.space_id = s.id AND {condition}
               ORDER BY n.created_at {order}, n.id {order}
                  LIMIT :limit"""
    return f"""SELECT m.id
                 FROM spaces s
                      {sql.each(newest)}
                WHERE {spaces}
             ORDER BY m.created_at {order}, m.id {order}
                LIMIT :limit"""


def _size(memory: Shown) -> int:
    return len(memory.text.content)


# Undeleted, and deleted as a range, so that an index serves either condition.
STATES = undeleted("m"), f"m.deleted_at >= {EARLIEST}"


_PLACED = columns("spaces", int, str, Any, Any)


@dataclass(eq=False)
class SpaceTable(Table):
    index: Index
    _known: Known
    _now: datetime
    _uids: Uids
    _found: dict[Space, tuple[int, int]] = field(default_factory=dict, init=False)

    def find(self, space: Space) -> tuple[int, int] | None:
        """Return the space's id and its area of the index, or None if there is no such space."""
        known = self._known.spaces.get(space) or self._found.get(space)
        if known is not None:
            return known
        of_store = "s.id = (SELECT space_id FROM stores WHERE uid = :scope)"
        condition = of_store if space.kind.traits.has_entries else condition_of(space)
        row: tuple[int, int, int] | None = self._execute(
            f"SELECT s.id, s.area, s.partition FROM spaces s WHERE {condition}", **names_of(space)
        ).fetchone()
        if row is None:
            return None
        require_place(*row, is_global=space.is_global)
        self._found[space] = row[:2]
        return row[:2]

    def placed(self, space: Space) -> tuple[int, int]:
        """Return the space's id and its area of the index; create a missing space."""
        row = self._known.spaces.get(space)
        if row is None:
            row = self._found[space] = self.find(space) or self.add(space)
            self.index.prepare(row[1])
            if space.kind.traits.has_project:
                self._known.spaces[space] = row
        return row

    def is_new(self, fingerprint: int) -> bool:
        """Whether it is known that no memory has this fingerprint."""
        return fingerprint in self._known.new

    def named(
        self, kind: SpaceKind, table: str, names: Mapping[str, str], shared: Sequence[str] = ()
    ) -> Space:
        """Return the space of the row of a table with these names; create both if missing.

        A new space shares the area of spaces that have the same names in the columns `shared`.
        """
        name = kind, *names.values()
        if (known := self._known.named.get(name)) is not None:
            return known
        row = self._first(
            _PLACED,
            f"""SELECT s.id, s.scope, s.area, s.partition
                  FROM {table} o
                  JOIN spaces s ON s.id = o.space_id
                 WHERE {_equal(names)}""",
            **names,
        )
        if row is None:
            space = Space(scope=self._uids.make(self._now), kind=kind)
            other = f"SELECT space_id FROM {table} WHERE {_equal(shared)} LIMIT 1"
            id_, _ = self.add(space, *(self._scalars(other, **names) if shared else ()))
            self._insert(table, space_id=id_, **names)
            return space
        id_, scope, area, partition = row
        require_place(id_, area, partition)
        self.index.prepare(area)
        space = self._known.named[name] = Space(scope=scope, kind=kind)
        self._known.spaces[space] = id_, area
        return space

    def add(self, space: Space, other: int | None = None) -> tuple[int, int]:
        """Create a space, in the area of another space if named; return its id and area."""
        shared = self._execute("SELECT area, partition FROM spaces WHERE id = :id", id=other)
        area, partition = shared.fetchone() or self._new_place(space)
        if other is not None:
            require_place(other, area, partition)
        row = {"kind": space.kind, "area": area, "partition": partition, **names_of(space)}
        return self._inserted("spaces", **row), area

    def _new_place(self, space: Space) -> tuple[int, int | None]:
        """Return the area and partition of a new space: those of its project, or new ones."""
        if space.is_global:
            return GLOBAL_AREA, None
        if (group := space.kind.traits.index) is None:
            return UNINDEXED_AREA, None
        known = place_of(self._connection, space.project) if space.kind.traits.has_project else None
        return known or self.index.new_place(group)


def _equal(names: Iterable[str]) -> str:
    return " AND ".join(f"{it} = :{it}" for it in names)


def _match(memory: Memory | None, *_: object) -> Attributes:
    return {
        "memory.dedup.matched": memory is not None,
        "memory.observation.id": memory.id if memory else None,
    }


@dataclass(eq=False)
class MemoryTable(MemoryLists):
    """Memories; methods include soft-deleted and expired ones unless they say "live".

    Entries of stores are visible only to methods that take a store or its space, and to `every`.
    """

    index: Index
    _spaces: SpaceTable

    def get(self, memory: records.Reference) -> Memory | None:
        """Return the memory with this id or stable id, if the caller may read it."""
        column = "m.uid" if isinstance(memory, str) else "m.id"
        return self._fetch(MEMORY, f"{column} = :id AND {self._readable}", id=memory)

    def in_store(self, store: StoreId, uid: str) -> Memory | None:
        space = "(SELECT space_id FROM stores WHERE uid = :store)"
        return self._fetch(MEMORY, f"m.uid = :uid AND m.space_id = {space}", uid=uid, store=store)

    @step(f"store.dedup.{records.TOPIC_KEY}", _match)
    def at_key(self, space: Space, key: str) -> Memory | None:
        """Return the undeleted memory at the key; a space has at most one."""
        which = f"{condition_of(space)} AND m.key = :key AND {undeleted('m')}"
        return self._fetch(MEMORY, which, key=key, **names_of(space))

    @step("store.dedup.hash", _match)
    def recent_duplicate(self, memory: Memory, since: datetime) -> Memory | None:
        return next(self._duplicates(memory, _NEWEST, since=micros(since)), None)

    def imported_duplicate(self, memory: Memory) -> Memory | None:
        """Return the memory that an imported one without a uid duplicates, a live one first.

        The two are equal in space, session, type, key, title, content and second of creation.
        """
        hashed = replace(memory, content_hash=content_hash(memory.text.content))
        at, second = map(micros, (memory.created_at, whole_seconds(memory.created_at)))
        within = "m.created_at >= :second AND m.created_at < :second + 1000000"
        # For a single instant, the index also finds the session.
        lookups = (undeleted("m"), "m.created_at = :at"), *((state, within) for state in STATES)
        duplicates = (
            self._duplicates(
                hashed,
                f"""{state} AND {when} AND m.session_id = :session AND m.content = :content
                    ORDER BY m.deleted_at, m.created_at""",
                session=memory.session, at=at, second=second, content=memory.text.content,
            )
            for state, when in lookups
        )  # fmt: skip
        return next(chain.from_iterable(duplicates), None)

    def by_uid(self, uid: str) -> Memory | None:
        return self._fetch(MEMORY, "m.uid = :uid", uid=uid)

    @step("store.insert", lambda stored, _: {"memory.observation.id": stored.id})
    def insert(self, memory: Memory) -> Memory:
        space, area = self._spaces.placed(memory.space)
        id_ = self._inserted("memories", space_id=space, key=self._key(memory), **self._row(memory))
        stored = replace(memory, id=MemoryId(id_))
        if memory.lifecycle != records.NO_LIFECYCLE:
            self._put_lifecycle(stored)
        self.index.add_all([(stored.id, stored, space, area)])
        return stored

    def insert_all(self, memories: Sequence[Memory]) -> list[MemoryId]:
        """Insert many memories with few statements; return their ids."""
        placed = [(it, *self._spaces.placed(it.space)) for it in memories]
        rows = [{"space_id": at, "key": self._key(it), **self._row(it)} for it, at, _ in placed]
        ids = [MemoryId(it) for it in self._inserted_all("memories", rows)]
        for id_, it in zip(ids, memories, strict=True):
            if it.lifecycle != records.NO_LIFECYCLE:
                self._put_lifecycle(replace(it, id=id_))
        self.index.add_all((id_, *it) for id_, it in zip(ids, placed, strict=True))
        return ids

    def replace(self, before: Memory, memory: Memory) -> None:
        """Update all fields of the memory and its index entry."""
        # An UPDATE rewrites the index of each column that it sets, even to the same value. So an
        # unchanged key is not set, unless the row of `lifecycles` may hold it.
        stays = before.lifecycle == memory.lifecycle == records.NO_LIFECYCLE and (
            (before.key, before.deleted_at) == (memory.key, memory.deleted_at)
        )
        with self.index.updating(memory.id) if memory.space.kind.traits.index else nullcontext():
            row, key = self._row(memory), None if stays else self._key(memory)
            self._execute(_updating(tuple(row), stays=stays), id=memory.id, key=key, **row)
            if not stays:
                self._put_lifecycle(memory)

    def set_lifecycle(self, memory: Memory) -> None:
        with self.index.updating(memory.id):
            statement = f"UPDATE memories SET key = {KEY_IN_ROW} WHERE id = :id"
            self._execute(statement, id=memory.id, key=self._key(memory))
            self._put_lifecycle(memory)

    def release_key(self, memory: Memory) -> None:
        """Free the key of an expired memory for others; the memory itself still shows it."""
        keeping = "UPDATE lifecycles SET held_key = :key WHERE memory_id = :id"
        self._execute(keeping, id=memory.id, key=memory.key)
        self._execute("UPDATE memories SET key = NULL WHERE id = :id", id=memory.id)

    def count_duplicate(self, memory: Memory) -> None:
        changes = {"duplicates": memory.duplicates, "last_seen_at": micros(memory.last_seen_at)}
        self._update("memories", "id", {"id": memory.id, **changes})

    def erase(self, memory: MemoryId) -> None:
        self.index.mark_for_purge(memory)
        with self.index.updating(memory):
            self._execute("DELETE FROM memories WHERE id = :id", id=memory)

    def must_scrub(self, memory: MemoryId) -> None:
        """Schedule a scrub of text that this memory no longer has; `erase` schedules its own.

        The stored answers to repeated requests lose the text, too.
        """
        self.index.mark_for_purge(memory)
        self._execute(
            """UPDATE done
                  SET answer = ''
                WHERE key IN (SELECT key FROM done_memories WHERE memory_id = :id)""",
            id=memory,
        )

    def erase_some(self, memories: Sequence[MemoryId]) -> int:
        """Remove memories from which no other borrows context; return the number of revisions."""
        ids, listed = json.dumps(memories), self._sql.ids("listed")
        self.index.remove(sorted(memories))
        revisions_of = records.REVISIONS_OF.format(self._sql.greatest, "listed.value")
        total = f"SELECT coalesce(sum({revisions_of}), 0) FROM {listed}"
        revisions = self._number(total, ids=ids)
        self._execute(f"DELETE FROM memories WHERE id IN (SELECT value FROM {listed})", ids=ids)
        return revisions

    def total(self) -> int:
        return self._number("SELECT count(*) FROM memories")

    def count(self, project: Project | None) -> int:
        of_project = Filter(project=project)
        within = f"space_id IN (SELECT s.id FROM spaces s WHERE {self._on_spaces(of_project)})"
        return self._number(  # counts along an index, and subtracts the few expired memories
            f"""SELECT (SELECT count(*)
                          FROM memories {self._sql.hint("memories_by_time")}
                         WHERE {undeleted("memories")} AND {within})
                     - (SELECT count(*)
                          FROM lifecycles l {self._sql.leads} memories m ON m.id = l.memory_id
                         WHERE l.{ENDED} AND {undeleted("m")} AND m.{within})""",
            **self._values(of_project),
        )

    def _row(self, memory: Memory) -> dict[str, object]:
        """Return the columns of a memory, except its id, space and key."""
        row = MEMORY.values(memory, "m.")
        del row["id"]
        row["content_hash"] = hash_ = memory.content_hash or content_hash(memory.text.content)
        if memory.space.kind.traits.has_project:  # others have no duplicates
            words = memory.text
            row["fingerprint"] = fingerprint(memory.key, words.type, words.title, hash_)
        return row

    def _key(self, memory: Memory) -> str | None:
        """Return the key for the memory's row; the key of an expired one is in `lifecycles`."""
        if memory.key is None or memory.lifecycle.is_expired(self._moment.now):
            return None
        return memory.key

    def _put_lifecycle(self, memory: Memory) -> None:
        if memory.lifecycle == records.NO_LIFECYCLE:
            self._execute("DELETE FROM lifecycles WHERE memory_id = :id", id=memory.id)
            return
        instants = MEMORY.values(memory, "l.")
        self._execute(PUT_LIFECYCLE, id=memory.id, key=memory.key, **instants)

    def _duplicates(self, memory: Memory, which: str, **values: object) -> Iterator[Memory]:
        """Yield memories of its space with its key, type, title and hash that meet `which`."""
        space = self._spaces.find(memory.space)
        key, text, hash_ = memory.key, memory.text, memory.content_hash
        searched = fingerprint(key, text.type, text.title, hash_)
        if space is None or self._spaces.is_new(searched):
            return iter(())
        # Most texts are new, and the other statement costs each save a twentieth of its time.
        if not self._exists(_fingerprints(self._sql), space=space[0], fingerprint=searched):
            return iter(())
        rows = self._execute(
            _duplicates(self._sql, which, has_key=key is not None), space=space[0],
            fingerprint=searched, hash=hash_, key=key, type=text.type, title=text.title,
            **values,
        )  # fmt: skip
        return self._intact(rows, MEMORY)


@cache
def _updating(columns: tuple[str, ...], *, stays: bool) -> str:
    """Return the UPDATE of all columns that can change; `stays` leaves key and deletion as is."""
    kept = {"uid", "session_id", "created_at"} | ({"deleted_at"} if stays else set())
    values = [f"{it} = :{it}" for it in columns if it not in kept]
    changes = values if stays else [f"key = {KEY_IN_ROW}", *values]
    return f"UPDATE memories SET {', '.join(changes)} WHERE id = :id"


_NEWEST = f"{live('m')} AND m.created_at >= :since ORDER BY m.created_at DESC, m.id DESC"


@cache
def _fingerprints(sql: Dialect) -> str:
    return f"""SELECT 1 FROM memories {sql.hint("memories_by_hash")}
                WHERE space_id = :space AND fingerprint = :fingerprint LIMIT 1"""


@cache
def _duplicates(sql: Dialect, which: str, *, has_key: bool) -> str:
    return f"""SELECT {MEMORY}
                 FROM memories m {sql.hint("memories_by_hash")}
                {sql.leads} spaces s ON s.id = m.space_id
                      {LIFECYCLE}
                WHERE m.space_id = :space
                      AND m.fingerprint = :fingerprint AND m.content_hash = :hash
                      AND {records.KEY + (" = :key" if has_key else " IS NULL")}
                      AND m.type = :type AND m.title = :title
                      AND {which}"""
