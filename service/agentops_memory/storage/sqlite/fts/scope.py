"""Which rows of the full-text index a read may see."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from ....domain.model.access import Patterns
from ....domain.model.search import Filter
from ....domain.model.space import GLOBAL_SCOPE, Project, StoreId
from ..base.filters import OF_A_STORE, clauses, parameters
from ..base.table import Table
from .partitions import FIRST, GLOBAL_AREA, Partitions, row_number, span_of

Span = tuple[int, int]
"""The first and the last row number of a range."""

_GLOBALS = span_of(GLOBAL_AREA)
_PROJECTS = (row_number(GLOBAL_AREA + 1, 0), (1 << 63) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is seen: ranges of row numbers in partitions, and a condition on `memories m`.

    The condition names some of the values.
    """

    spans: dict[int, list[Span]]
    condition: str
    values: Mapping[str, object]


class Sights(Table):
    """Sights in one transaction."""

    def __init__(
        self, connection: sqlite3.Connection, partitions: Partitions, projects: Patterns
    ) -> None:
        super().__init__(connection)
        self._partitions = partitions
        self._projects = projects
        self._known: dict[Filter, Sight] = {}

    def of(self, seen: Filter) -> Sight:
        """What a filter sees. A project lies in one partition, and so do all global memories."""
        if seen not in self._known:
            self._known[seen] = Sight(
                spans=self._spans(seen),
                condition=_condition(seen, self._projects),
                values=parameters(seen, self._projects),
            )
        return self._known[seen]

    def _spans(self, seen: Filter) -> dict[int, list[Span]]:
        if seen.store is not None:
            return self._store(seen.store)
        if seen.scope == GLOBAL_SCOPE:
            return {FIRST: [_GLOBALS]}
        if seen.project is None:
            return self._everything()
        place = self._place(seen.project)
        if place is None:
            return {FIRST: [_GLOBALS]}
        area, number, has_globals = place
        # A range without memories is left out: each costs a search.
        globals_too = has_globals and seen.scope is None
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


def _condition(seen: Filter, projects: Patterns) -> str:
    """What the ranges do not say already."""
    where = clauses(seen, projects, memory="m")
    if seen.store is not None:
        return where.on_memories
    is_whole = projects.are_everything if seen.project is None else seen.global_too
    if seen.scope == GLOBAL_SCOPE or (seen.scope is None and is_whole):
        return where.on_memories
    return f" AND m.space_id IN {where.spaces}{where.on_memories}"
