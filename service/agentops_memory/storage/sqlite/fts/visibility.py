"""Which rows of the full-text index a caller may see."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from ....domain.model.access import Patterns
from ....domain.model.search import Filter
from ....domain.model.space import GLOBAL_SCOPE, Project, StoreId
from ...sql.index import GLOBAL_AREA
from ...sql.table import OF_A_STORE, FilteredTable
from ..base.dialect import SQLITE
from .partitions import FIRST, Partitions, row_number, span_of

Span = tuple[int, int]
"""The first and the last row number of a range."""

_GLOBALS = span_of(GLOBAL_AREA)
_PROJECTS = (row_number(GLOBAL_AREA + 1, 0), (1 << 63) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleRows:
    """Ranges of row numbers in partitions, and a condition on `memories m`.

    The condition names some of the values.
    """

    spans: dict[int, list[Span]]
    condition: str
    values: Mapping[str, object]


class Visibility(FilteredTable):
    """Which rows are visible in one transaction."""

    def __init__(
        self, connection: sqlite3.Connection, partitions: Partitions, projects: Patterns
    ) -> None:
        super().__init__(connection, SQLITE, projects)
        self._partitions = partitions
        self._known: dict[Filter, VisibleRows] = {}

    def of(self, filter_: Filter) -> VisibleRows:
        """The rows of a filter. A project lies in one partition, and so do all global memories."""
        if filter_ not in self._known:
            self._known[filter_] = VisibleRows(
                spans=self._spans(filter_),
                condition=self._condition(filter_),
                values=self._values(filter_),
            )
        return self._known[filter_]

    def _spans(self, filter_: Filter) -> dict[int, list[Span]]:
        if filter_.store is not None:
            return self._store(filter_.store)
        if filter_.scope == GLOBAL_SCOPE:
            return {FIRST: [_GLOBALS]}
        if filter_.project is None:
            return self._everything()
        place = self._place(filter_.project)
        if place is None:
            return {FIRST: [_GLOBALS]}
        area, number, has_globals = place
        # A range without memories is left out: each costs a search.
        globals_too = has_globals and filter_.scope is None
        return {number: [span_of(area), _GLOBALS] if globals_too else [span_of(area)]}

    def _place(self, project: Project) -> tuple[int, int, bool] | None:
        """The project's area and partition, and whether there are global memories.

        None if the project never had a memory of its own, or the caller does not
        act on it: not even the ranks of global memories tell the two apart.
        """
        if not self._projects.match(project):
            return None
        place: tuple[int, int, bool] | None = self._execute(
            f"""SELECT area, partition,
                       EXISTS (SELECT 1
                                 FROM spaces s
                                 JOIN memories m INDEXED BY memories_in_space
                                   ON m.space_id = s.id
                                WHERE s.area = {GLOBAL_AREA} AND m.deleted_at IS NULL)
                  FROM spaces
                 WHERE project = :project AND area <> {GLOBAL_AREA}
                 LIMIT 1""",
            project=project,
        ).fetchone()
        return place

    def _store(self, store: StoreId) -> dict[int, list[Span]]:
        row = self._execute(
            f"SELECT s.area, s.partition FROM spaces s WHERE {OF_A_STORE}", store=store
        ).fetchone()
        return {} if row is None else {row[1]: [span_of(row[0])]}

    def _everything(self) -> dict[int, list[Span]]:
        return {
            number: [_PROJECTS, _GLOBALS] if number == FIRST else [_PROJECTS]
            for number in self._partitions.of_projects()
        }

    def _condition(self, filter_: Filter) -> str:
        """What the ranges do not say already."""
        where = self._clauses(filter_, memory="m")
        if filter_.store is not None:
            return where.on_memories
        are_all = self._projects.are_everything if filter_.project is None else filter_.global_too
        if filter_.scope == GLOBAL_SCOPE or (filter_.scope is None and are_all):
            return where.on_memories
        return f" AND m.space_id IN {where.spaces}{where.on_memories}"
