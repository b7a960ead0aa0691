"""SQL for memories; whatever changes a row brings the full-text index along."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import Any

from ....domain.model.access import Patterns
from ....domain.model.memory import Memory, MemoryId, SessionId, Text
from ....domain.model.search import Filter
from ....domain.model.space import NO_PROJECT, Project, Space, StoreId
from ....domain.text.normalization import content_hash, fingerprint
from ..base.filters import GLOBAL, OF_A_PROJECT, acted_on, acting, clauses, parameters
from ..base.table import Table, count, instant, json_of, map_of, micros, tag_array, tag_tuple
from ..fts.index import Index

MAX_LIST = 4 * 1024 * 1024  # characters of content in one list, whatever its limit
MAX_PAGE = 1024 * 1024  # the same of a page of an export, which holds it twice more as JSON

COLUMNS = """m.id, m.uid, m.session_id, s.project, s.scope, m.key, m.type, m.title, m.content,
             m.tags, m.content_hash, m.revision, m.duplicates, m.last_seen_at, m.promoted_to,
             m.created_at, m.updated_at, m.deleted_at, m.extras"""

# A store's space has no project: hence IS.
IN_SPACE = "s.project IS :project AND s.scope = :scope"

# As `memories_by_second` counts seconds.
SECOND = "({} + 62135596800000000) / 1000000"


class Memories(Table):
    """The memories of one transaction."""

    def __init__(self, connection: sqlite3.Connection, index: Index, projects: Patterns) -> None:
        super().__init__(connection)
        self._projects = projects
        self._index = index
        self._spaces: dict[Space, tuple[int, int]] = {}

    def get(self, memory: MemoryId) -> Memory | None:
        return self._one(f"m.id = :id AND {self._readable}", id=memory, **acting(self._projects))

    def in_store(self, store: StoreId, uid: str) -> Memory | None:
        space = "(SELECT space_id FROM stores WHERE uid = :store)"
        return self._one(f"m.uid = :uid AND m.space_id = {space}", uid=uid, store=store)

    def at_key(self, space: Space, key: str) -> Memory | None:
        return self._one(
            f"{IN_SPACE} AND m.key = :key AND m.deleted_at IS NULL", key=key, **place_of(space)
        )

    def twin(self, space: Space, key: str | None, text: Text, since: datetime) -> Memory | None:
        rows = self._saying(
            space,
            key,
            text,
            "memories_by_hash",
            """m.deleted_at IS NULL AND m.created_at >= :since
               ORDER BY m.created_at DESC, m.id DESC""",
            since=micros(since),
        )
        return next(rows, None)

    def twins_of(self, memory: Memory) -> Iterator[Memory]:
        return self._saying(
            memory.space,
            memory.key,
            memory.text,
            "memories_by_second",
            f"""{SECOND.format("m.created_at")} = {SECOND.format(":created_at")}
                AND m.session_id = :session AND m.content = :content
                ORDER BY m.deleted_at IS NOT NULL, m.id""",
            session=memory.session,
            created_at=micros(memory.created_at),
            content=memory.text.content,
        )

    def by_uid(self, uid: str) -> Memory | None:
        return self._one("m.uid = :uid", uid=uid)

    def in_bulk(self) -> AbstractContextManager[None]:
        return self._index.in_bulk()

    def insert(self, memory: Memory) -> Memory:
        space, area = self._placed(memory.space)
        cursor = self._execute(
            """INSERT INTO memories (uid, space_id, session_id, key, type, title, content, tags,
                                     content_hash, fingerprint, revision, duplicates,
                                     last_seen_at, promoted_to, created_at, updated_at, deleted_at,
                                     extras)
               VALUES (:uid, :space_id, :session_id, :key, :type, :title, :content, :tags,
                       :content_hash, :fingerprint, :revision, :duplicates, :last_seen_at,
                       :promoted_to, :created_at, :updated_at, :deleted_at, :extras)""",
            space_id=space,
            **_row(memory),
        )
        stored = replace(memory, id=MemoryId(cursor.lastrowid or 0))
        self._index.add(stored.id, area, len(memory.text.content))
        return stored

    def replace(self, memory: Memory) -> None:
        with self._index.following(memory.id):
            self._execute(
                """UPDATE memories
                      SET key = :key, type = :type, title = :title, content = :content,
                          tags = :tags, content_hash = :content_hash,
                          fingerprint = :fingerprint, revision = :revision,
                          duplicates = :duplicates, last_seen_at = :last_seen_at,
                          promoted_to = :promoted_to, updated_at = :updated_at,
                          deleted_at = :deleted_at, extras = :extras
                    WHERE id = :id""",
                **_row(memory),
            )

    def count_duplicate(self, memory: Memory) -> None:
        self._execute(
            """UPDATE memories
                  SET duplicates = :duplicates, last_seen_at = :last_seen_at
                WHERE id = :id""",
            id=memory.id,
            duplicates=memory.duplicates,
            last_seen_at=micros(memory.last_seen_at),
        )

    def erase(self, memory: MemoryId) -> None:
        self._index.must_purge(memory)
        with self._index.following(memory):
            self._execute("DELETE FROM memories WHERE id = :id", id=memory)

    def must_scrub(self, memory: MemoryId) -> None:
        self._index.must_purge(memory)

    def erase_some(self, memories: Sequence[MemoryId]) -> int:
        ids = json.dumps(memories)
        self._index.forget(sorted(memories))
        ((revisions,),) = self._execute(
            """SELECT count(*)
                 FROM revisions
                WHERE memory_id IN (SELECT value FROM json_each(:ids))""",
            ids=ids,
        )
        self._execute(
            "DELETE FROM memories WHERE id IN (SELECT value FROM json_each(:ids))", ids=ids
        )
        return int(revisions)

    def newest(self, seen: Filter, limit: int, *, before: MemoryId | None = None) -> list[Memory]:
        where = clauses(seen, self._projects, memory="n")
        condition = f"n.deleted_at IS NULL {where.on_memories}"
        if before is not None:
            condition += """ AND (n.created_at, n.id)
                               < (SELECT created_at, id FROM memories WHERE id = :before)"""
        statement = (
            _newest_of_all(condition)
            if where.everywhere
            else _newest_of_each(where.on_spaces, condition)
        )
        rows = self._execute(
            statement, limit=limit, before=before, **parameters(seen, self._projects)
        )
        return self.loaded(id_ for (id_,) in rows)

    def loaded(self, ids: Iterable[MemoryId]) -> list[Memory]:
        """The memories with these ids, in their order, as far as one answer can hold them."""
        rows = self._execute(
            f"""SELECT {COLUMNS}
                  FROM json_each(:ids) found
                 CROSS JOIN memories m ON m.id = found.value
                  JOIN spaces s ON s.id = m.space_id
              ORDER BY found.key""",
            ids=json.dumps(list(ids)),
        )
        return listed(map(memory_of, rows))

    def around(self, memory: Memory, before: int, after: int) -> list[Memory]:
        def side(sign: str, order: str, count: int) -> list[Memory]:
            condition = f"n.deleted_at IS NULL AND (n.created_at, n.id) {sign} (:created_at, :id)"
            rows = self._execute(
                _newest_of_each(f"s.project = :project AND {self._readable}", condition, order),
                project=memory.space.project,
                created_at=micros(memory.created_at),
                id=memory.id,
                limit=count,
                **acting(self._projects),
            )
            return self.loaded(id_ for (id_,) in rows)

        return [*reversed(side("<", "DESC", before)), memory, *side(">", "ASC", after)]

    def page(self, project: Project | None, after: MemoryId, limit: int) -> list[Memory]:
        rows = self._execute(
            f"""SELECT {COLUMNS}
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE m.id > :after AND m.deleted_at IS NULL AND {OF_A_PROJECT}
                       AND (:project IS NULL OR s.project = :project)
                       AND {acted_on(self._projects, "s.project")}
              ORDER BY m.id
                 LIMIT :limit""",
            project=project,
            after=after,
            limit=limit,
            **acting(self._projects),
        )
        return _within(MAX_PAGE, map(memory_of, rows))

    def every(self, after: MemoryId, limit: int) -> list[Memory]:
        rows = self._execute(
            f"""SELECT {COLUMNS}
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE m.id > :after AND {acted_on(self._projects, "s.project")}
              ORDER BY m.id
                 LIMIT :limit""",
            after=after,
            limit=limit,
            **acting(self._projects),
        )
        return _within(MAX_PAGE, map(memory_of, rows))

    def total(self) -> int:
        return int(self._execute("SELECT count(*) FROM memories").fetchone()[0])

    def count(self, project: Project | None) -> int:
        seen = Filter(project=project)
        where = clauses(seen, self._projects, memory="n")
        row = self._execute(
            f"""SELECT count(*)
                  FROM memories INDEXED BY memories_by_time
                 WHERE deleted_at IS NULL AND space_id IN {where.spaces}""",
            **parameters(seen, self._projects),
        ).fetchone()
        return int(row[0])

    def projects(self) -> set[Project]:
        rows = self._execute(
            f"""SELECT DISTINCT project
                  FROM spaces s
                 WHERE {OF_A_PROJECT} AND {acted_on(self._projects, "project")}
                   AND EXISTS (SELECT 1
                                 FROM memories INDEXED BY memories_by_time
                                WHERE space_id = s.id AND deleted_at IS NULL)""",
            **acting(self._projects),
        )
        return {project for (project,) in rows}

    @property
    def _readable(self) -> str:
        """What a caller may know of: the projects that it acts on, and what is global."""
        return f"{OF_A_PROJECT} AND ({acted_on(self._projects, 's.project')} OR {GLOBAL})"

    def _one(self, condition: str, **values: object) -> Memory | None:
        row = self._execute(
            f"""SELECT {COLUMNS}
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE {condition}
                 LIMIT 1""",
            **values,
        ).fetchone()
        return None if row is None else memory_of(row)

    def _saying(
        self, space: Space, key: str | None, text: Text, index: str, which: str, **values: object
    ) -> Iterator[Memory]:
        """Memories of a space with this key, type, title and hash: which, in the index's order."""
        hash_ = content_hash(text.content)
        rows = self._execute(
            f"""SELECT {COLUMNS}
                  FROM memories m INDEXED BY {index}
                 CROSS JOIN spaces s ON s.id = m.space_id
                 WHERE m.space_id = (SELECT s.id FROM spaces s WHERE {IN_SPACE})
                       AND m.fingerprint = :fingerprint AND m.content_hash = :hash
                       AND m.key IS :key AND m.type = :type AND m.title = :title
                       AND {which}""",
            **place_of(space),
            fingerprint=fingerprint(key, text.type, text.title, hash_),
            hash=hash_,
            key=key,
            type=text.type,
            title=text.title,
            **values,
        )
        return map(memory_of, rows)

    def _placed(self, space: Space) -> tuple[int, int]:
        """The space's id, and its area of the index. A project's first one takes the next area."""
        if space not in self._spaces:
            id_, area = self._space(space) or self._new_space(space)
            self._index.prepare(area)
            self._spaces[space] = id_, area
        return self._spaces[space]

    def _new_space(self, space: Space) -> Any:
        area, partition = self._index.place(space)
        self._execute(
            """INSERT INTO spaces (project, scope, area, partition)
               VALUES (:project, :scope, :area, :partition)""",
            **place_of(space),
            area=area,
            partition=partition,
        )
        return self._space(space)

    def _space(self, space: Space) -> Any:
        of_store = "s.id = (SELECT space_id FROM stores WHERE uid = :scope)"
        condition = of_store if space.is_store else IN_SPACE
        return self._execute(
            f"SELECT s.id, s.area FROM spaces s WHERE {condition}", **place_of(space)
        ).fetchone()


def _newest_of_all(condition: str) -> str:
    # A memory of a project has a session; one of a store has none.
    return f"""SELECT n.id
                 FROM memories n INDEXED BY memories_in_time
                WHERE n.session_id IS NOT NULL AND {condition}
             ORDER BY n.created_at DESC, n.id DESC
                LIMIT :limit"""


def _newest_of_each(spaces: str, condition: str, order: str = "DESC") -> str:
    # Each space is read along its own index, and only its newest are sorted.
    return f"""SELECT m.id
                 FROM spaces s
                 JOIN memories m
                   ON m.id IN (SELECT n.id
                                 FROM memories n INDEXED BY memories_by_time
                                WHERE n.space_id = s.id AND {condition}
                             ORDER BY n.created_at {order}, n.id {order}
                                LIMIT :limit)
                WHERE {spaces}
             ORDER BY m.created_at {order}, m.id {order}
                LIMIT :limit"""


def place_of(space: Space) -> dict[str, object]:
    """The values that IN_SPACE names."""
    return {"project": space.project or None, "scope": space.scope}


def listed(memories: Iterable[Memory]) -> list[Memory]:
    """The first of the memories, as many as one answer can hold."""
    return _within(MAX_LIST, memories)


def _within(room: int, memories: Iterable[Memory]) -> list[Memory]:
    """The first of the memories, until their contents pass the room; always one, if there is."""
    fitting: list[Memory] = []
    for memory in memories:
        fitting.append(memory)
        room -= len(memory.text.content)
        if room < 0:
            break
    return fitting


def _row(memory: Memory) -> dict[str, object]:
    return {
        "id": memory.id,
        "uid": memory.uid,
        "session_id": memory.session,
        "key": memory.key,
        "type": memory.text.type,
        "title": memory.text.title,
        "content": memory.text.content,
        "tags": tag_array(memory.text.tags),
        "content_hash": memory.content_hash,
        "fingerprint": fingerprint(
            memory.key, memory.text.type, memory.text.title, memory.content_hash
        ),
        "revision": memory.revision,
        "duplicates": memory.duplicates,
        "last_seen_at": micros(memory.last_seen_at),
        "promoted_to": memory.promoted_to,
        "created_at": micros(memory.created_at),
        "updated_at": micros(memory.updated_at),
        "deleted_at": None if memory.deleted_at is None else micros(memory.deleted_at),
        "extras": json_of(memory.extras),
    }


def memory_of(row: Any) -> Memory:
    """The memory in a row of COLUMNS."""
    (id_, uid, session, project, scope, key, type_, title, content, tags, hash_, revision,
     duplicates, last_seen_at, promoted_to, created_at, updated_at, deleted_at,
     extras) = row  # fmt: skip
    return Memory(
        id=MemoryId(id_),
        uid=uid,
        session=None if session is None else SessionId(session),
        space=Space(project=project or NO_PROJECT, scope=scope),
        key=key,
        text=Text(type=type_, title=title, content=content, tags=tag_tuple(tags)),
        content_hash=hash_,
        revision=count(revision),
        duplicates=count(duplicates),
        last_seen_at=instant(last_seen_at),
        promoted_to=promoted_to,
        created_at=instant(created_at),
        updated_at=instant(updated_at),
        deleted_at=None if deleted_at is None else instant(deleted_at),
        extras=map_of(extras),
    )
