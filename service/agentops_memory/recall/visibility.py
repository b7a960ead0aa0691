"""Rows of the full-text index: visible rows, queries to them, and the groups of areas."""

from collections.abc import Callable, Iterable, Mapping

from ..errors import DamagedRow
from ..light import dataclass
from ..memory.access import Patterns
from ..memory.memory import MemoryId, expired, indexed
from ..memory.search import GAINING, SENTENCE_DEPTH, Filter, Tier, sentence_weights
from ..memory.space import (
    FIRST,
    GLOBAL_AREA,
    GLOBAL_SCOPE,
    MOST_MEMORIES,
    MOST_PROJECTS,
    MOVABLE,
    NUMBERS,
    OVERSIZED,
    UNINDEXED_AREA,
    IndexGroup,
    Project,
    require_place,
)
from ..memory.table import Connection, Dialect, FilteredTable, Moment, Table
from .query import Query, Term
from .text import NEIGHBORS

AREA = 40  # the area starts at this bit of a row number; the lower bits have the memory's id
MOST_IDS = 1 << AREA  # enough for a thousand saves a second over 34 years
ID = MOST_IDS - 1  # mask of the id in a row number

Row = int
"""A row number of the index: the area, which is the project's, and the memory's id."""


def row_number(area: int, memory: int) -> Row:
    return area << AREA | memory


def span_of(area: int) -> tuple[Row, Row]:
    return row_number(area, 0), row_number(area + 1, 0) - 1


def area_of(row: Row) -> int:
    return row >> AREA


def memory_of(row: Row) -> MemoryId:
    return MemoryId(row & ID)


Span = tuple[int, int]
"""The first and the last row number of a range."""

PRIOR = 1 << 62  # the first row number of the prior, after all areas
_GLOBALS = span_of(GLOBAL_AREA)
PROJECTS = (row_number(GLOBAL_AREA + 1, 0), PRIOR - 1)

Hides = Callable[[str], str]
"""Returns the SQL condition under which a memory is hidden, for an expression of its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleRows:
    """Ranges of row numbers by partition, with conditions on the memories in them."""

    spans: dict[int, list[Span]]
    condition: str  # on `memories m`
    hidden: tuple[Hides, ...]
    is_alone: bool  # whether word statistics come from these ranges only
    values: Mapping[str, object]  # the parameters of the conditions


class Visibility(FilteredTable):
    """The rows that are visible in one transaction.

    `of_projects` returns the partitions of projects, including FIRST; `is_made` whether a
    partition exists.
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
        """Return a filter's rows. A project is in one partition, as are all global memories."""
        if filter_ not in self._known:
            # Without memories to hide, queries get no conditions.
            hides = expired if self._moment.has.unswept else None, self._hides_superseded(filter_)
            self._known[filter_] = VisibleRows(
                spans=self._spans(filter_), condition=self._condition(filter_),
                hidden=tuple(filter(None, hides)), is_alone=filter_.is_of_agents,
                values=self._values(filter_),
            )  # fmt: skip
        return self._known[filter_]

    def _spans(self, filter_: Filter) -> dict[int, list[Span]]:
        if filter_.is_outside_projects:  # outside of projects, each space has its own area
            row = self._execute(
                f"""SELECT s.id, s.area, s.partition
                      FROM spaces s
                     WHERE {self._on_spaces(filter_)} AND s.area <> {UNINDEXED_AREA}
                     LIMIT 1""",
                **self._values(filter_),
            ).fetchone()
            if row is None:
                return {}
            self._require_partition(*row)
            return {row[2]: [span_of(row[1])]}
        if filter_.scope == GLOBAL_SCOPE:
            return {FIRST: [_GLOBALS]}
        if filter_.project is None:
            return {
                it: [PROJECTS, _GLOBALS] if it == FIRST else [PROJECTS]
                for it in self._of_projects()
            }
        location = self._location(filter_.project)
        if location is None:
            return {FIRST: [_GLOBALS]}
        area, number, has_globals = location
        # A range without memories is omitted, as each costs a search.
        globals_too = has_globals and filter_.scope is None
        return {number: [span_of(area), _GLOBALS] if globals_too else [span_of(area)]}

    def _location(self, project: Project) -> tuple[int, int, bool] | None:
        """Return the project's area and partition, and whether global memories exist.

        None if the project has never had a memory of its own, or if the caller may not act on
        it, so that not even the ranks of global memories reveal which.
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
        self._require_partition(space, area, number)
        return area, number, has_globals

    def _require_partition(self, space: int, area: int, number: int) -> None:
        """Raise DamagedRow for a space that is in no partition of the index."""
        require_place(space, area, number)
        if not self._is_made(number):
            raise DamagedRow("spaces", space, "partition")

    def _condition(self, filter_: Filter) -> str:
        """Return the conditions of a filter that the ranges do not imply."""
        on_memories = self._on_memories(filter_, "m")
        if filter_.is_outside_projects:
            return on_memories
        are_all = self._projects.are_everything if filter_.project is None else filter_.global_too
        if filter_.scope == GLOBAL_SCOPE or (filter_.scope is None and are_all):
            return on_memories
        spaces = f"SELECT s.id FROM spaces s WHERE {self._on_spaces(filter_)}"
        return f" AND m.space_id IN ({spaces}){on_memories}"


ALL = -1  # as a LIMIT, all rows


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A tier's query to each visible partition."""

    tier: Tier
    query: Query
    own: bool  # whether only the memories' own words match
    gaining: int  # how many of the best gain from their followers
    depth: int  # of each sentence; or ALL
    visible: VisibleRows

    @classmethod
    def of(cls, tier: Tier, query: Query, visible: VisibleRows, limit: int) -> "IndexQuery":
        """Return the query for the best `limit` memories of a tier."""
        is_any = tier is Tier.ANY
        gaining = GAINING if is_any else 0
        depth = max(limit, SENTENCE_DEPTH if is_any and len(query.sentences) > 1 else gaining)
        return cls(
            tier=tier, query=query, own=not is_any, gaining=gaining, depth=depth, visible=visible
        )

    @property
    def sentence_weights(self) -> tuple[float, ...]:
        return sentence_weights(self.tier, self.query)

    @property
    def terms(self) -> list[Term]:
        pieces = self.query.every if self.tier is Tier.EVERY else self.query.sentences
        return [term for it in pieces for term in it.terms]


@dataclass(frozen=True, slots=True)
class Document:
    """The prepared text of one live memory in the index, by column."""

    area: int
    title: str
    content: str
    context: str
    tags: str

    @property
    def own(self) -> str:
        """The memory's own words, without its context."""
        return "\n".join((self.title, self.content, self.tags))


class Borrowing(Table):
    """Finds memories that borrow from each other, in one transaction."""

    def borrowers(self, memory: MemoryId) -> list[MemoryId]:
        """Return the memories that borrow from a memory: the next ones in its session."""
        return self._scalars(
            f"""SELECT n.id
                  FROM memories m
                  JOIN memories n {self._sql.hint("memories_in_session")}
                    ON n.session_id = m.session_id AND n.space_id = m.space_id
                 WHERE m.id = :id AND n.id > m.id AND {indexed("n")}
              ORDER BY n.id
                 LIMIT {NEIGHBORS}""",
            id=memory,
        )


class Groups(Table):
    """Groups of areas in one transaction, by number, which spaces have as `partition`."""

    def number_for(self, group: IndexGroup) -> int:
        """Return the group number for a new area.

        Areas share a number until it has enough areas or memories: more memories give better
        word statistics, but make a search cost more.
        """
        first, last = NUMBERS[group][0], NUMBERS[group][-1]
        row = self._execute(
            """SELECT partition, count(DISTINCT area)
                 FROM spaces
                WHERE partition = (SELECT max(partition)
                                     FROM spaces
                                    WHERE partition BETWEEN :first AND :last)
             GROUP BY partition""",
            first=first,
            last=last,
        ).fetchone()
        if row is None:
            return first
        newest, areas = row
        if areas < MOST_PROJECTS and not self.holds(newest, MOST_MEMORIES):
            return int(newest)
        if newest < last:
            return int(newest) + 1
        rows = self._execute(
            """SELECT partition, count(DISTINCT area)
                 FROM spaces
                WHERE partition BETWEEN :first AND :last
             GROUP BY partition""",
            first=first, last=last,
        )  # fmt: skip
        used: dict[int, int] = dict(rows.fetchall())
        return min(range(first, last + 1), key=lambda number: (used.get(number, 0), number))

    def holds(self, number: int, count: int) -> bool:
        """Whether a group has at least `count` live memories."""
        return self._exists(
            f"""SELECT 1
                  FROM spaces s
                  JOIN memories m {self._sql.hint("memories_in_space")} ON m.space_id = s.id
                 WHERE s.partition = :number AND {indexed("m")}
                 LIMIT 1 OFFSET :count - 1""",
            number=number,
            count=count,
        )

    def oversized(self) -> list[tuple[int, int, int]]:
        """Return (area, group, memories of the others) of each oversized group's smallest area.

        Areas that would take long to move are left out.
        """
        rows = self._execute(
            f"""SELECT area, partition, total - memories
                  FROM (SELECT s.area, s.partition, count(*) AS memories,
                               sum(count(*)) OVER (PARTITION BY s.partition) AS total,
                               count(*) OVER (PARTITION BY s.partition) AS areas,
                               row_number() OVER (PARTITION BY s.partition
                                                  ORDER BY count(*), s.area) AS size_rank
                          FROM spaces s
                          JOIN memories m {self._sql.hint("memories_in_space")}
                            ON m.space_id = s.id
                         WHERE s.partition IS NOT NULL AND {indexed("m")}
                      GROUP BY s.area, s.partition) sizes
                 WHERE areas > 1 AND total > {OVERSIZED} AND size_rank = 1 AND memories <= {MOVABLE}
              ORDER BY memories, area"""
        )
        return rows.fetchall()
