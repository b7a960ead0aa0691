"""The base of a transaction's tables: connection, dialect, full-text index, filters, pages."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime
from functools import cache, cached_property, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from ..errors import DamagedRow
from ..light import dataclass, field
from ..recall.text import Columns, End
from .access import Patterns
from .memory import UNSWEPT, Memory, MemoryId, SessionId, superseded, superseded_in_ref
from .rows import MAX_PAGE, RowMapper, micros, portion
from .search import Filter
from .space import GLOBAL_SCOPE, OF_A_PROJECT, IndexGroup, Project, Space, place_of

if TYPE_CHECKING:
    import sqlite3

    import psycopg

P = ParamSpec("P")
T = TypeVar("T")

Attributes = Mapping[str, str | int | None]
Tracing = Callable[[str], AbstractContextManager[Callable[[Attributes], None]]]
"""Opens a span of this name, and yields a function that sets its attributes."""


class PastStep(NamedTuple):
    """A completed step, for a span."""

    name: str
    began: int  # nanoseconds since 1970
    ended: int  # the same
    attributes: Attributes


TRACING: ContextVar[Tracing | None] = ContextVar("tracing", default=None)
"""Creates the spans of the current transaction's steps; None if nothing is traced."""


def step(
    name: str, decided: Callable[..., Attributes]
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Trace a method as a span, whose attributes `decided` makes of result and arguments."""

    def traced(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            tracing = TRACING.get()
            if tracing is None:
                return method(*args, **kwargs)
            with tracing(name) as annotate:
                result = method(*args, **kwargs)
                annotate(decided(result, *args[1:], **kwargs))
                return result

        return run

    return traced


# Conditions on spaces outside of projects, by the attribute of the filter that selects them.
_OUTSIDE_PROJECTS = {
    "store": "s.id = (SELECT space_id FROM stores WHERE uid = :store AND erasure_id IS NULL)",
    "ref": "s.id = (SELECT space_id FROM refs WHERE ref = :ref)",
    "namespace": """s.id IN (SELECT space_id FROM agent_spaces
                              WHERE agent = '' AND namespace = :namespace)""",
    "agent": """s.id IN (SELECT space_id FROM agent_spaces
                          WHERE tier = 'episodic' AND agent = :agent)""",
}
GLOBAL = f"s.scope = '{GLOBAL_SCOPE}'"


Cursor: TypeAlias = "sqlite3.Cursor | psycopg.Cursor[Any]"
"""The result of a statement: its rows, or the number of changed rows."""


class Connection(Protocol):
    """A connection with an open transaction; parameters are named, as in `:id`."""

    def execute(self, statement: str, parameters: Mapping[str, object], /) -> Cursor:
        """Run a statement."""

    def executemany(self, statement: str, rows: Iterable[Mapping[str, object]], /) -> Cursor:
        """Run a statement for each row of parameters."""

    def read(self, query: str, parameters: Mapping[str, object], /) -> Iterable[Any]:
        """Run a query, whose rows are fetched in small batches as they are used."""

    def inserted(self, statement: str, parameters: Mapping[str, object], /) -> int:
        """Run an INSERT, and return the `id` of its row."""

    def inserted_all(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], /
    ) -> Sequence[int]:
        """Insert at least one row of these columns into a table, and return the `id` of each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dialect:
    """The SQL in which the engines differ, for one of them; they share everything else."""

    row: str
    """The column that identifies a row whose key is chosen by a user."""

    leads: str
    """A join after which the table on its left is read first."""

    hint: Callable[[str], str]
    """What follows the name of a table to make a query read it by an index."""

    each: Callable[[str], str]
    """A join with the memories `m` whose ids a subquery returns for each row on the left."""

    reordered: Callable[[str], str]
    """What makes a query return its rows in the order of this column, if it needs a clause."""

    greatest: str
    """The function for the greatest of several values, none of them NULL."""

    least: str
    """The function for the least of several values, none of them NULL."""

    ids: Callable[[str], str]
    """The JSON array `:ids` as a table with this alias: `value` is an id, `key` its position."""

    texts: Callable[[str], str]
    """The JSON array of texts `:texts` as such a table."""

    gathered: Callable[..., str]
    """An aggregate: the JSON array of a value of all rows, or of an array of several values."""

    tags_of: Callable[[str], str]
    """The tags of a memory as a table, each a `value`; empty if the column is not JSON."""

    element: Callable[[str, int], str]
    """An element of a JSON array, as text; NULL if the column is not JSON."""

    contains: Callable[[str, str], str]
    """A condition: the column contains a text literally."""

    acts_on: Callable[[str], str]
    """A condition: the JSON array of patterns `:patterns` matches the project in a column."""


class Index(Protocol):
    """The full-text index in one transaction, as tables use it; it has only live memories.

    Each project and each store has its own area of the index; partitions contain areas.
    """

    def new_place(self, group: IndexGroup) -> tuple[int, int]:
        """Return a new area, and the partition for it, of a group of spaces."""

    def prepare(self, area: int) -> None:
        """Make sure that an area can be written to, before anything is written."""

    def add_all(self, memories: Iterable[tuple[MemoryId, Memory, int, int]]) -> None:
        """Index new memories, each with its id, and its space's id and area, in the order of ids.

        Their ids are the greatest so far.
        """

    def updating(self, memory: MemoryId) -> AbstractContextManager[None]:
        """Apply to the index what the body changes in a memory."""

    def moving(self, memories: Sequence[MemoryId]) -> AbstractContextManager[None]:
        """Apply to the index that the body moves memories, whose words stay indexed."""

    def merge_area(self, area: int, partition: int) -> None:
        """Drop the remains of an area whose memories were moved to another area."""

    def remove(self, memories: Sequence[MemoryId]) -> None:
        """Remove memories that are about to be erased, from which no other borrows context."""

    def mark_for_purge(self, memory: MemoryId) -> None:
        """Schedule the permanent removal of a memory's words from the index's storage."""

    def relieve(self, coming: int, *, is_brief: bool = True) -> bool:
        """Do some overdue index work before `coming` memories arrive; return whether it was due.

        Unless `is_brief`, it may take 10 ms.
        """


MAX_CACHED = 4096  # most entries of a cache, which is cleared beyond that

Waiting = tuple[int, Columns | None]
"""The area of a memory to be indexed, and the columns of its index entry, if known."""


@dataclass(slots=True, eq=False)
class Known:
    """Rows that a writer caches, as long as no other writer can have changed them.

    Cleared when a transaction is rolled back, or when a row may have changed otherwise.
    """

    spaces: dict[Space, tuple[int, int]] = field(default_factory=dict)  # id and area
    named: dict[tuple[str, ...], Space] = field(default_factory=dict)  # by names in other tables
    sessions: dict[SessionId, Project] = field(default_factory=dict)
    new: set[int] = field(default_factory=set)  # fingerprints that no memory has
    partitions: dict[int, list[int]] = field(default_factory=dict)  # by area of the index
    # The ends of the newest contents, oldest first, by index area, and by space and session.
    ends: dict[int, dict[tuple[int, SessionId], list[End]]] = field(default_factory=dict)
    has_own_rules: bool = False  # whether the index is known to have our rules
    # The memories to be indexed, in the order of ids, and the number of their characters.
    waiting: dict[MemoryId, Waiting] = field(default_factory=dict)
    has_all_waiting: bool = False  # whether `waiting` includes those of other writers
    waiting_size: int = 0
    has_entries: bool = False  # whether some of them belong to stores, agents or refs
    # New segments of partitions of the full-text index since the last look at each.
    segments: Counter[int] = field(default_factory=Counter)

    def forget(self) -> None:
        self.keep_small(0)
        self.new.clear()
        self.segments.clear()
        self.waiting.clear()
        self.has_own_rules, self.has_all_waiting, self.waiting_size = False, False, 0

    def keep_small(self, most: int = MAX_CACHED) -> None:
        for known in (self.spaces, self.named, self.sessions, self.partitions, self.ends):
            if len(known) > most:
                known.clear()


@dataclass(eq=False)
class Table:
    _connection: Connection
    _sql: Dialect

    def _named(self, parameters: dict[str, object]) -> dict[str, object]:
        """Return the parameters of a statement, including those that every statement may name."""
        return parameters

    def _execute(self, statement: str, **parameters: object) -> Cursor:
        return self._connection.execute(statement, self._named(parameters))

    def _first(self, read: Callable[[Any], T], statement: str, /, **parameters: object) -> T | None:
        row = self._connection.execute(statement, self._named(parameters)).fetchone()
        return None if row is None else read(row)

    def _fetch(self, record: RowMapper[T], condition: str, /, **parameters: object) -> T | None:
        """Return the first row of a record's own table that meets the condition, or None."""
        return self._first(record, record.selecting(self._sql.row) + condition, **parameters)

    def _fetch_all(self, record: RowMapper[T], condition: str, /, **parameters: object) -> list[T]:
        """Return all rows of a record's own table that meet the condition, but no damaged ones."""
        rows = self._execute(record.selecting(self._sql.row) + condition, **parameters)
        return list(self._intact(rows, record))

    def _exists(self, statement: str, **parameters: object) -> bool:
        return self._connection.execute(statement, self._named(parameters)).fetchone() is not None

    def _number(self, statement: str, **parameters: object) -> int:
        ((number,),) = self._connection.execute(statement, self._named(parameters))
        return int(number)

    def _scalars(self, statement: str, **parameters: object) -> list[Any]:
        return [row[0] for row in self._connection.execute(statement, self._named(parameters))]

    def _texts(self, statement: str, **parameters: object) -> list[Any]:
        """Return the first column of each row, if it is a text, as in all undamaged rows."""
        first = (tuple.__getitem__(row, 0) for row in self._execute(statement, **parameters))
        return [text for text in first if type(text) is str]

    def _intact(self, rows: Iterable[Any], made: Callable[[Any], T]) -> Iterator[T]:
        """Yield `made(row)` for each row; damaged rows are recorded and skipped."""
        for row in rows:
            try:
                yield made(row)
            except DamagedRow as damage:
                cast("Any", self._connection).damaged.append(damage)

    def _filled(
        self, limit: int, rows: Callable[[int], Iterable[Any]], made: Callable[[Any], T]
    ) -> list[T]:
        """Return the first intact `made(row)` of `rows(count)`, which reads `count` rows.

        Later rows replace damaged ones, so a result below the limit has all rows.
        """
        lost = 0
        while True:
            read = list(rows(limit + lost))
            intact = list(self._intact(read, made))
            if len(intact) >= limit or len(read) < limit + lost:
                return intact[:limit]
            lost = len(read) - len(intact)

    def _page(
        self, read: Callable[[Any], T], size: Callable[[T], int], statement: str, after: int,
        **parameters: object,
    ) -> list[T]:  # fmt: skip
        """Return `read(row)` of the rows after `after`, by first column, up to a page's size.

        Empty only at the end: a page whose rows are all damaged is skipped.
        """
        last = after

        def passed(row: Any) -> T:
            nonlocal last
            last = row[0]
            return read(row)

        while True:
            after = last
            rows = self._stream(statement, after=after, **parameters)
            page = portion(self._intact(rows, passed), MAX_PAGE, size)
            if page or last == after:
                return page

    def _stream(self, statement: str, **parameters: object) -> Iterable[Any]:
        return self._connection.read(statement, self._named(parameters))

    def _insert(self, table: str, /, **row: object) -> None:
        self._connection.execute(inserting(table, tuple(row)), row)

    def _update(self, table: str, key: str, row: Mapping[str, object]) -> None:
        """Update the row whose column `key` has the value in `row`."""
        self._connection.execute(_updating(table, key, tuple(row)), row)

    def _inserted(self, table: str, /, **row: object) -> int:
        """Insert into a table whose key is `id`; return the id of the new row."""
        return self._connection.inserted(inserting(table, tuple(row)), row)

    def _inserted_all(self, table: str, rows: Sequence[Mapping[str, object]]) -> Sequence[int]:
        """Insert rows of the same columns into a table whose key is `id`; return their ids."""
        if not rows:
            return ()
        values = [tuple(row.values()) for row in rows]
        return self._connection.inserted_all(table, tuple(rows[0]), values)


@cache
def inserting(table: str, columns: tuple[str, ...]) -> str:
    values = ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"


@cache
def _updating(table: str, key: str, columns: tuple[str, ...]) -> str:
    values = ", ".join(f"{column} = :{column}" for column in columns if column != key)
    return f"UPDATE {table} SET {values} WHERE {key} = :{key}"


class Facts(NamedTuple):
    """Whether there are any such rows: if there are none, a reader can skip the query."""

    pins: bool
    unswept: bool  # expired memories that are still in the index
    superseded: bool


class Moment:
    """The instant of a transaction, and which queries a reader needs at that instant."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self.now = now
        self.values: dict[str, object] = {"now": micros(now)}
        self._connection = connection

    @cached_property
    def has(self) -> Facts:
        (row,) = self._connection.execute(_FACTS, self.values)
        return Facts(*map(bool, row))


_FACTS = f"""
    SELECT EXISTS (SELECT 1 FROM lifecycles WHERE pinned_at IS NOT NULL),
           EXISTS (SELECT 1 FROM lifecycles WHERE {UNSWEPT}),
           EXISTS (SELECT 1 FROM supersessions)"""


@dataclass(eq=False)
class FilteredTable(Table):
    """A table of which a caller sees the rows of some projects, at an instant.

    Every statement may use that instant as `:now`.
    """

    _projects: Patterns
    _moment: Moment

    @cached_property
    def _visible(self) -> dict[str, object]:
        """The parameters of `_acts_on` and of the conditions of live memories."""
        if self._projects.are_everything:
            return self._moment.values
        return {**self._moment.values, "patterns": json.dumps(self._projects.names)}

    def _named(self, parameters: dict[str, object]) -> dict[str, object]:
        return self._visible | parameters

    def _on_spaces(self, filter_: Filter) -> str:
        """Return the condition of a filter on the table `spaces s`."""
        for name, condition in _OUTSIDE_PROJECTS.items():
            if getattr(filter_, name) is not None:
                return condition
        if filter_.scope == GLOBAL_SCOPE:
            return GLOBAL
        conditions = []
        if filter_.project is not None:
            conditions.append("s.project = :project")
        if not self._projects.are_everything:
            conditions.append(self._acts_on("s.project"))
        own = " AND ".join(conditions) or OF_A_PROJECT
        if filter_.scope is not None:
            return f"s.scope = :scope AND {own}"
        return f"({own} OR {GLOBAL})" if filter_.global_too and conditions else own

    def _on_memories(self, filter_: Filter, alias: str) -> str:
        """Return the conditions of a filter on memories under an alias, each after an AND."""
        conditions = "" if filter_.type is None else f" AND {alias}.type = :type"
        if filter_.excluded_types:
            conditions += f" AND {alias}.type NOT IN (SELECT value FROM {self._sql.texts('it')})"
        if filter_.tag is not None:
            tags = self._sql.tags_of(alias)
            conditions += f" AND EXISTS (SELECT 1 FROM {tags} WHERE value = :tag)"
        if hides := self._hides_superseded(filter_):
            conditions += f" AND NOT {hides(f'{alias}.id')}"
        return conditions

    def _hides_superseded(self, filter_: Filter) -> Callable[[str], str] | None:
        """Return a function from an id column to the condition to exclude; None if none is."""
        if filter_.is_current and filter_.ref is not None:
            return superseded_in_ref
        return superseded if filter_.is_current and self._moment.has.superseded else None

    def _values(self, filter_: Filter) -> dict[str, object]:
        names = ("project", "scope", "store", "ref", "agent", "namespace", "type", "tag")
        texts = {"texts": json.dumps(filter_.excluded_types)} if filter_.excluded_types else {}
        return {**{name: getattr(filter_, name) for name in names}, **texts, **self._visible}

    @property
    def _readable(self) -> str:
        """The condition on spaces the caller may read: those of its projects, and global ones."""
        return f"{OF_A_PROJECT} AND ({self._acts_on('s.project')} OR {GLOBAL})"

    def _acts_on(self, column: str) -> str:
        """Return the condition that the caller may access the project in a column."""
        return "TRUE" if self._projects.are_everything else self._sql.acts_on(column)


class Sql(FilteredTable):
    """SQL for plain functions of a transaction, as in `tx[Sql].exists(...)`."""

    run, first, exists = Table._execute, Table._first, Table._exists  # noqa: SLF001 - its own
    fetch, fetch_all = Table._fetch, Table._fetch_all  # noqa: SLF001
    number, column, intact = Table._number, Table._scalars, Table._intact  # noqa: SLF001
    insert, inserted, stream = Table._insert, Table._inserted, Table._stream  # noqa: SLF001
    texts, filled, update = Table._texts, Table._filled, Table._update  # noqa: SLF001
    on_spaces, values = FilteredTable._on_spaces, FilteredTable._values  # noqa: SLF001
    acts_on, readable = FilteredTable._acts_on, FilteredTable._readable  # noqa: SLF001

    @property
    def dialect(self) -> Dialect:
        return self._sql

    def place_of(self, project: Project) -> tuple[int, int] | None:
        return place_of(self._connection, project)

    def run_all(self, statement: str, rows: Sequence[Mapping[str, object]]) -> None:
        self._connection.executemany(statement, rows)
