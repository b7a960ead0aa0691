"""Which rows of the full-text index a caller may see: ranges of numbers, and what narrows them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ...errors import DamagedRow
from ...memory.model.access import Patterns
from ...memory.model.liveness import Moment, expired, indexed
from ...memory.model.search import Filter
from ...memory.model.space import (
    FIRST,
    GLOBAL_AREA,
    GLOBAL_SCOPE,
    UNINDEXED_AREA,
    Project,
    project_or_this,
    require_place,
)
from ...memory.model.table import Connection, Dialect, FilteredTable
from .rows import row_number, span_of

Span = tuple[int, int]
"""The first and the last row number of a range."""

PRIOR = 1 << 62  # the row number at which the prior begins, behind all areas
_GLOBALS = span_of(GLOBAL_AREA)
PROJECTS = (row_number(GLOBAL_AREA + 1, 0), PRIOR - 1)

Hides = Callable[[str], str]
"""The condition under which the memory with an id is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleRows:
    """Ranges of row numbers in partitions, a condition on `memories m`, and what is hidden there.

    The conditions name some of the values.
    """

    spans: dict[int, list[Span]]
    condition: str
    hidden: tuple[Hides, ...]
    is_alone: bool  # whether words are weighed within the ranges alone
    values: Mapping[str, object]


class Visibility(FilteredTable):
    """Which rows are visible in one transaction.

    `of_projects` tells the partitions that hold projects, with the first; `is_made` whether there
    is a partition with a number.
    """

    def __init__(
        self,
        connection: Connection,
        sql: Dialect,
        projects: Patterns,
        moment: Moment,
        of_projects: Callable[[], Iterable[int]],
        is_made: Callable[[int], bool] = lambda _: True,
    ) -> None:
        super().__init__(connection, sql, projects, moment)
        self._is_made = is_made
        self._of_projects = of_projects
        self._known: dict[Filter, VisibleRows] = {}

    def of(self, filter_: Filter) -> VisibleRows:
        """The rows of a filter. A project lies in one partition, and so do all global memories."""
        if filter_ not in self._known:
            self._known[filter_] = VisibleRows(
                spans=self._spans(filter_),
                condition=self._condition(filter_),
                hidden=self._hidden(filter_),
                is_alone=filter_.is_of_agents,
                values=self._values(filter_),
            )
        return self._known[filter_]

    def _spans(self, filter_: Filter) -> dict[int, list[Span]]:
        if filter_.is_elsewhere:
            on_spaces, values = self._on_spaces(filter_), self._values(filter_)
            return self._spans_of(on_spaces, **values)
        if filter_.scope == GLOBAL_SCOPE:
            return {FIRST: [_GLOBALS]}
        if filter_.project is None:
            return {
                it: [PROJECTS, _GLOBALS] if it == FIRST else [PROJECTS]
                for it in self._of_projects()
            }
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
        row = self._execute(
            f"""SELECT id, area, partition,
                       EXISTS (SELECT 1
                                 FROM spaces s
                                WHERE s.area = {GLOBAL_AREA}
                                      AND (SELECT m.id
                                             FROM memories m {self._sql.hint("memories_in_space")}
                                            WHERE m.space_id = s.id AND {indexed("m")}
                                            LIMIT 1) IS NOT NULL)
                  FROM spaces
                 WHERE project = :project AND area <> {GLOBAL_AREA}
                 LIMIT 1""",
            project=project,
        ).fetchone()
        if row is None:
            return None
        space, area, number, has_globals = row
        self._require_place(space, area, number, project)
        return area, number, has_globals

    def _require_place(
        self, space: int, area: int, number: int, project: Project | None = None
    ) -> None:
        """DamagedRow for a space that is in no partition of the index."""
        require_place(space, area, number, project)
        if not self._is_made(number):
            raise DamagedRow("spaces", space, "partition", project_or_this(project))

    def _spans_of(self, on_spaces: str, **values: object) -> dict[int, list[Span]]:
        """The range of what has an area of its own."""
        statement = f"""SELECT s.id, s.area, s.partition
                          FROM spaces s
                         WHERE {on_spaces} AND s.area <> {UNINDEXED_AREA}
                         LIMIT 1"""
        row = self._execute(statement, **values).fetchone()
        if row is None:
            return {}
        space, area, number = row
        self._require_place(space, area, number)
        return {number: [span_of(area)]}

    def _hidden(self, filter_: Filter) -> tuple[Hides, ...]:
        """What leaves out rows of the ranges; nothing as long as there is nothing to leave out."""
        hides = expired if self._moment.has_unswept else None, self._hides_superseded(filter_)
        return tuple(filter(None, hides))

    def _condition(self, filter_: Filter) -> str:
        """What the ranges do not say already."""
        on_memories = self._on_memories(filter_, "m")
        if filter_.is_elsewhere:
            return on_memories
        are_all = self._projects.are_everything if filter_.project is None else filter_.global_too
        if filter_.scope == GLOBAL_SCOPE or (filter_.scope is None and are_all):
            return on_memories
        spaces = f"SELECT s.id FROM spaces s WHERE {self._on_spaces(filter_)}"
        return f" AND m.space_id IN ({spaces}){on_memories}"
