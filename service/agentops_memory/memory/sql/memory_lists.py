"""SQL for lists of memories, each as long as one answer can be."""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from typing import Any

from ..model.memory import MAX_LIST, MAX_PAGE, Memory, MemoryId, Shown
from ..model.search import Filter
from ..model.space import Project
from .kinds import OF_A_PROJECT, in_a_session
from .liveness import live
from .rows import EARLIEST, LAST, LIFECYCLE, MEMORY, SHOWN, memory_of, micros, portion, shown_of
from .table import Dialect, FilteredTable

AT_ONCE = 20  # memories of one statement, which sorts their texts: of 1,000 they can be 200 MB
# In SQL, and not row by row: a page without a row would look like the last one.
HAS_END = f"(l.expires_at IS NULL OR l.expires_at BETWEEN {EARLIEST} AND {LAST})"


class MemoryLists(FilteredTable):
    """The lists of memories of one transaction."""

    def newest(
        self, filter_: Filter, limit: int, *, before: MemoryId | None = None
    ) -> list[Memory]:
        spaces = self._on_spaces(filter_)
        condition = f"{live('n')} {self._on_memories(filter_, 'n')}"
        if before is not None:
            condition += """ AND (n.created_at, n.id)
                               < (SELECT created_at, id FROM memories WHERE id = :before)"""
        statement = (
            _newest_of_all(self._sql, condition)
            if spaces == OF_A_PROJECT
            else _newest_of_each(self._sql, spaces, condition)
        )
        return self.loaded(
            self._scalars(statement, limit=limit, before=before, **self._values(filter_))
        )

    def at_keys(self, path: str, filter_: Filter, limit: int) -> Iterator[MemoryId]:
        """The memories whose key contains the path, newest first."""
        # The index of keys is read alone; few memories have one, and fewer this one.
        rows = self._execute(
            f"""SELECT m.id
                  FROM spaces s
                  JOIN memories m {self._sql.hint("memories_at_key")} ON m.space_id = s.id
                 WHERE {self._on_spaces(filter_)} AND m.key IS NOT NULL AND {live("m")}
                       AND {self._sql.contains("m.key", ":path")} {self._on_memories(filter_, "m")}
              ORDER BY m.created_at DESC, m.id DESC
                 LIMIT :limit""",
            path=path,
            limit=limit,
            **self._values(filter_),
        )
        return (id_ for (id_,) in rows)

    def pinned(self, filter_: Filter, limit: int) -> list[Memory]:
        if not self._moment.has_pins:
            return []
        ids = self._scalars(
            f"""SELECT m.id
                  FROM spaces s
                 {self._sql.leads} lifecycles l {self._sql.hint("lifecycles_by_pin")}
                       ON l.space_id = s.id
                 {self._sql.leads} memories m ON m.id = l.memory_id
                 WHERE {self._on_spaces(filter_)} AND l.pinned_at IS NOT NULL
                       AND {live("m")} {self._on_memories(filter_, "m")}
              ORDER BY l.pinned_at, m.id
                 LIMIT :limit""",
            limit=limit,
            **self._values(filter_),
        )
        return self.loaded(ids)

    def loaded(self, ids: Iterable[MemoryId]) -> list[Memory]:
        """The memories with these ids, in their order, as far as one answer can hold them."""
        return listed(self._intact(self._by_ids(_loading(self._sql), ids), memory_of))

    def shown(self, ids: Iterable[MemoryId]) -> list[Shown]:
        """As `loaded`, without what most answers do not tell."""
        return portion(
            self._intact(self._by_ids(_showing(self._sql), ids), shown_of), MAX_LIST, _size
        )

    def _by_ids(self, statement: str, ids: Iterable[MemoryId]) -> Iterable[Any]:
        """The rows of a query by ids; those of many ids are read as they are taken."""
        every = list(ids)
        if len(every) <= AT_ONCE:
            return self._execute(statement, ids=json.dumps(every)).fetchall()
        parts = (every[start : start + AT_ONCE] for start in range(0, len(every), AT_ONCE))
        return chain.from_iterable(self._execute(statement, ids=json.dumps(it)) for it in parts)

    def around(self, memory: Memory, before: int, after: int) -> list[Memory]:
        # The SQL of the timeline.
        spaces = f"s.project = :project AND {self._readable}"

        def side(sign: str, order: str, count: int) -> list[Memory]:
            condition = f"{live('n')} AND (n.created_at, n.id) {sign} (:created_at, :id)"
            ids = self._scalars(
                _newest_of_each(self._sql, spaces, condition, order),
                project=memory.space.project,
                created_at=micros(memory.created_at),
                id=memory.id,
                limit=count,
                **self._patterns(),
            )
            return self.loaded(ids)

        return [*reversed(side("<", "DESC", before)), memory, *side(">", "ASC", after)]

    def page(self, project: Project | None, after: MemoryId, limit: int) -> list[Memory]:
        rows = self._stream(
            f"""SELECT {MEMORY}
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                       {LIFECYCLE}
                 WHERE m.id > :after AND {live("m")} AND {HAS_END} AND {OF_A_PROJECT}
                       AND (CAST(:project AS TEXT) IS NULL OR s.project = :project)
                       AND {self._acts_on("s.project")}
              ORDER BY m.id
                 LIMIT :limit""",
            project=project,
            after=after,
            limit=limit,
            **self._patterns(),
        )
        return portion(map(memory_of, rows), MAX_PAGE, _size)

    def every(self, after: MemoryId, limit: int) -> list[Memory]:
        rows = self._stream(
            f"""SELECT {MEMORY}
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                       {LIFECYCLE}
                 WHERE m.id > :after AND {HAS_END} AND {self._acts_on("s.project")}
              ORDER BY m.id
                 LIMIT :limit""",
            after=after,
            limit=limit,
            **self._patterns(),
        )
        return portion(map(memory_of, rows), MAX_PAGE, _size)


@cache
def _showing(sql: Dialect) -> str:
    return f"""SELECT {SHOWN}
                 FROM {sql.ids("found")}
                {sql.leads} memories m ON m.id = found.value
                      {LIFECYCLE}
             ORDER BY found.key"""


@cache
def _loading(sql: Dialect) -> str:
    return f"""SELECT {MEMORY}
                 FROM {sql.ids("found")}
                {sql.leads} memories m ON m.id = found.value
                 JOIN spaces s ON s.id = m.space_id
                      {LIFECYCLE}
             ORDER BY found.key"""


def _newest_of_all(sql: Dialect, condition: str) -> str:
    return f"""SELECT n.id
                 FROM memories n {sql.hint("memories_in_time")}
                WHERE {in_a_session("n")} AND {condition}
             ORDER BY n.created_at DESC, n.id DESC
                LIMIT :limit"""


def _newest_of_each(sql: Dialect, spaces: str, condition: str, order: str = "DESC") -> str:
    # Each space is read along its own index, and only its newest are sorted.
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


def listed(memories: Iterable[Memory]) -> list[Memory]:
    """The first of the memories, as many as one answer can hold."""
    return portion(memories, MAX_LIST, _size)


def _size(memory: Shown) -> int:
    return len(memory.text.content)
