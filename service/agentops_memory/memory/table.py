"""What a table of a transaction builds on: connection, dialect, full-text index, filters, pages."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache, cached_property, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from ..errors import DamagedRow
from ..light import dataclass, field
from ..recall.features import Features
from ..recall.text import Columns, End
from .access import Patterns
from .memory import Memory, MemoryId, Moment, SessionId, superseded, superseded_in_ref
from .rows import MAX_PAGE, RowMapper, portion
from .search import Filter
from .space import GLOBAL_SCOPE, OF_A_PROJECT, Project, Space, place_of

if TYPE_CHECKING:
    import sqlite3

    import psycopg

P = ParamSpec("P")
T = TypeVar("T")

Attributes = Mapping[str, str | int | None]
Tracing = Callable[[str], AbstractContextManager[Callable[[Attributes], None]]]
"""A span of that name for a while; what it yields gives it attributes."""


class PastStep(NamedTuple):
    """What a span tells of a step that is over."""

    name: str
    began: int  # nanoseconds since 1970, as is its end
    ended: int
    attributes: Attributes


TRACING: ContextVar[Tracing | None] = ContextVar("tracing", default=None)
"""How the steps of the transaction that runs leave spans; None where nothing is traced."""


def step(
    name: str, decided: Callable[..., Attributes]
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a method leave a span; `decided` makes its attributes of the answer and the arguments."""

    def traced(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            tracing = TRACING.get()
            if tracing is None:
                return method(*args, **kwargs)
            with tracing(name) as annotate:
                answer = method(*args, **kwargs)
                annotate(decided(answer, *args[1:], **kwargs))
                return answer

        return run

    return traced


OF_A_STORE = "s.id = (SELECT space_id FROM stores WHERE uid = :store AND erasure_id IS NULL)"
OF_A_REF = "s.id = (SELECT space_id FROM refs WHERE ref = :ref)"
OF_AN_AGENT = """s.id IN (SELECT space_id FROM agent_spaces
                           WHERE tier = 'episodic' AND agent = :agent)"""
OF_A_NAMESPACE = """s.id IN (SELECT space_id
                               FROM agent_spaces
                              WHERE agent = '' AND namespace = :namespace)"""
GLOBAL = f"s.scope = '{GLOBAL_SCOPE}'"


Cursor: TypeAlias = "sqlite3.Cursor | psycopg.Cursor[Any]"
"""What a statement answers: its rows, or how many it has changed."""


class Connection(Protocol):
    """A connection on which a transaction has begun. Parameters are named, as in `:id`."""

    def execute(self, statement: str, parameters: Mapping[str, object], /) -> Cursor:
        """Run a statement."""

    def executemany(self, statement: str, rows: Iterable[Mapping[str, object]], /) -> Cursor:
        """Run a statement for each row of parameters."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dialect:
    """How one engine says what the engines say differently; everything else they share."""

    inserted: Callable[[Connection, str, Mapping[str, object]], int]
    """Runs an INSERT, and answers the `id` of its row."""

    inserted_all: Callable[
        [Connection, str, Sequence[str], Sequence[Sequence[object]]], Sequence[int]
    ]
    """Inserts rows of these columns into a table, of which there is one; the `id` of each."""

    row: str
    """The column that names a row whose key is a name of the user's."""

    read: Callable[[Connection, str, Mapping[str, object]], Iterable[Any]]
    """The rows of a query, fetched in small batches as they are used."""

    leads: str
    """A join after which the table on its left is read first."""

    hint: Callable[[str], str]
    """What follows a table that is to be read along an index."""

    each: Callable[[str], str]
    """A join of the memories `m` whose ids a query answers for each row on the left."""

    reordered: Callable[[str], str]
    """What keeps the rows of a query in the order in which what it reads has them."""

    greatest: str
    """The function of the greatest of some values, none of which is NULL."""

    least: str
    """The function of the least of some values, none of which is NULL."""

    ids: Callable[[str], str]
    """A table of the JSON array `:ids`, by its alias: each id is a `value`, `key` its place."""

    texts: Callable[[str], str]
    """The same of the JSON array of texts `:texts`."""

    gathered: Callable[..., str]
    """The JSON array of the values of all rows; of several values, each row an array."""

    tags_of: Callable[[str], str]
    """A table of a memory's tags, each a `value`; empty if what is stored is no JSON."""

    element: Callable[[str, int], str]
    """An element of a JSON array, as text; NULL if what is stored is no JSON."""

    bytes_of: Callable[[str], str]
    """How many bytes a text takes."""

    contains: Callable[[str, str], str]
    """Whether a column holds a text literally."""

    acts_on: Callable[[str], str]
    """Whether the JSON array of patterns `:patterns` matches the project in a column."""


class Index(Protocol):
    """The full-text index of one transaction, as the tables see it: live memories alone.

    A project, and a store, has an area of its own in it. Areas lie in partitions.
    """

    def place(self, space: Space) -> tuple[int, int | None]:
        """The area and the partition for a new space: its project's, or new ones."""

    def prepare(self, area: int) -> None:
        """Make sure that an area can be written to, before there is anything to write."""

    def add(self, memory: Memory, space: int, area: int) -> None:
        """Index a memory that is new, the newest of all, with its space's id and area."""

    def add_all(self, memories: Iterable[tuple[MemoryId, Memory, int, int]]) -> None:
        """The same of many, each with its id, its space's id and its area, in the order of ids."""

    def updating(self, memory: MemoryId) -> AbstractContextManager[None]:
        """Bring the index in line with what is done to a memory inside."""

    def moving(self, memories: Sequence[MemoryId]) -> AbstractContextManager[None]:
        """Bring the index in line with memories that move inside, and keep their words."""

    def merge_area(self, area: int, partition: int) -> None:
        """Drop what is left of an area whose memories another has by now."""

    def remove(self, memories: Sequence[MemoryId]) -> None:
        """Take out memories that are about to be erased, and that no other borrows from."""

    def mark_for_purge(self, memory: MemoryId) -> None:
        """Note that words of a memory are to leave the storage of the index for good."""

    def relieve(self, coming: int) -> bool:
        """Do some overdue work of the index before so many memories come; false if none is due."""


MOST_KNOWN = 4096  # of each kind; then all of it is forgotten

Waiting = tuple[int, Columns | None]
"""The area of a memory that waits for the full-text index, and what that is to hold, if known."""


@dataclass(slots=True, eq=False)
class Known:
    """What a writer need not ask, while nobody else can have changed it.

    Forgotten when a transaction is rolled back, or when a row may have changed otherwise.
    """

    spaces: dict[Space, tuple[int, int]] = field(default_factory=dict)  # id and area
    named: dict[tuple[str, ...], Space] = field(default_factory=dict)  # others, by another name
    sessions: dict[SessionId, Project] = field(default_factory=dict)
    new: set[int] = field(default_factory=set)  # fingerprints that no memory has
    partitions: dict[int, list[int]] = field(default_factory=dict)  # by area of the index
    # By area of the index, and by space and session: of the newest contents, oldest first.
    ends: dict[int, dict[tuple[int, SessionId], list[End]]] = field(default_factory=dict)
    features: Features | None = None
    # For the full-text index, in the order of ids; and so many characters.
    waiting: dict[MemoryId, Waiting] = field(default_factory=dict)
    has_all_waiting: bool = False  # what others made, too
    waiting_size: int = 0
    has_entries: bool = False  # whether some of it is of stores, agents or refs
    # Segments that partitions of the full-text index have got since they were last looked at.
    segments: Counter[int] = field(default_factory=Counter)

    def forget(self) -> None:
        for known in (self.spaces, self.named, self.sessions, self.partitions, self.ends):
            known.clear()
        self.new.clear()
        self.segments.clear()
        self.waiting.clear()
        self.features, self.has_all_waiting, self.waiting_size = None, False, 0

    def keep_small(self) -> None:
        for known in (self.spaces, self.named, self.sessions, self.partitions, self.ends):
            if len(known) > MOST_KNOWN:
                known.clear()


@dataclass(eq=False)
class Table:
    _connection: Connection
    _sql: Dialect

    def _named(self, parameters: dict[str, object]) -> dict[str, object]:
        """The parameters of a statement, with those that it may name without being given them."""
        return parameters

    def _execute(self, statement: str, **parameters: object) -> Cursor:
        return self._connection.execute(statement, self._named(parameters))

    def _first(self, read: Callable[[Any], T], statement: str, /, **parameters: object) -> T | None:
        row = self._connection.execute(statement, self._named(parameters)).fetchone()
        return None if row is None else read(row)

    def _fetch(self, of: RowMapper[T], which: str, /, **parameters: object) -> T | None:
        """The first row of a record's own table that a condition holds of."""
        return self._first(of, of.selecting(self._sql.row) + which, **parameters)

    def _fetch_all(self, of: RowMapper[T], which: str, /, **parameters: object) -> list[T]:
        """All such rows, but for damaged ones."""
        rows = self._execute(of.selecting(self._sql.row) + which, **parameters)
        return list(self._intact(rows, of))

    def _exists(self, statement: str, **parameters: object) -> bool:
        return self._connection.execute(statement, self._named(parameters)).fetchone() is not None

    def _number(self, statement: str, **parameters: object) -> int:
        ((number,),) = self._connection.execute(statement, self._named(parameters))
        return int(number)

    def _scalars(self, statement: str, **parameters: object) -> list[Any]:
        return [row[0] for row in self._connection.execute(statement, self._named(parameters))]

    def _texts(self, statement: str, **parameters: object) -> list[Any]:
        """The first column of every row in which it is a text, as it is of all but damaged ones."""
        first = (tuple.__getitem__(row, 0) for row in self._execute(statement, **parameters))
        return [text for text in first if type(text) is str]

    def _intact(self, rows: Iterable[Any], made: Callable[[Any], T]) -> Iterator[T]:
        """What `made` makes of each row; one that is damaged is noted, and left out."""
        for row in rows:
            try:
                yield made(row)
            except DamagedRow as damage:
                cast("Any", self._connection).damaged.append(damage)

    def _filled(
        self, limit: int, rows: Callable[[int], Iterable[Any]], made: Callable[[Any], T]
    ) -> list[T]:
        """The first that `made` makes of rows, of which `rows` reads so many.

        The next stand in for damaged ones: fewer than the limit are all that there are.
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
        """What `read` makes of the rows after one, the first column of each, as far as they fit.

        None only at the end, however many are damaged: a page without any would look like it.
        """
        last = after

        def passed(rows: Iterable[Any]) -> Iterator[Any]:
            nonlocal last
            for row in rows:
                last = row[0]
                yield row

        while True:
            rows = self._stream(statement, after=last, **parameters)
            after = last
            page = portion(self._intact(passed(rows), read), MAX_PAGE, size)
            if page or last == after:
                return page

    def _stream(self, statement: str, **parameters: object) -> Iterable[Any]:
        return self._sql.read(self._connection, statement, self._named(parameters))

    def _insert(self, table: str, /, **row: object) -> None:
        self._connection.execute(inserting(table, tuple(row)), row)

    def _update(self, table: str, key: str, row: Mapping[str, object]) -> None:
        """Update the columns of the row that has this one as its key."""
        self._connection.execute(_updating(table, key, tuple(row)), row)

    def _inserted(self, table: str, /, **row: object) -> int:
        """Insert into a table whose key is `id`; the id of the new row."""
        return self._sql.inserted(self._connection, inserting(table, tuple(row)), row)

    def _inserted_all(self, table: str, rows: Sequence[Mapping[str, object]]) -> Sequence[int]:
        """Insert rows of the same columns into a table whose key is `id`; their ids."""
        if not rows:
            return ()
        values = [tuple(row.values()) for row in rows]
        return self._sql.inserted_all(self._connection, table, tuple(rows[0]), values)


@cache
def inserting(table: str, columns: tuple[str, ...]) -> str:
    values = ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"


@cache
def _updating(table: str, key: str, columns: tuple[str, ...]) -> str:
    values = ", ".join(f"{column} = :{column}" for column in columns if column != key)
    return f"UPDATE {table} SET {values} WHERE {key} = :{key}"


@dataclass(eq=False)
class FilteredTable(Table):
    """A table of which a caller sees the rows of some projects, as of an instant.

    Every statement may name that instant, as `:now`.
    """

    _projects: Patterns
    _moment: Moment

    @cached_property
    def _visible(self) -> dict[str, object]:
        """The values that `_acts_on` and liveness name."""
        if self._projects.are_everything:
            return self._moment.values
        return {**self._moment.values, "patterns": json.dumps(self._projects.names)}

    def _named(self, parameters: dict[str, object]) -> dict[str, object]:
        return self._visible | parameters

    def _on_spaces(self, filter_: Filter) -> str:
        """The condition of a filter on the table `spaces s`."""
        if filter_.store is not None:
            return OF_A_STORE
        if filter_.ref is not None:
            return OF_A_REF
        if filter_.is_of_agents:
            return OF_AN_AGENT if filter_.namespace is None else OF_A_NAMESPACE
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
        """The conditions of a filter on the table of memories under an alias, each with its AND."""
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
        """What of a memory's id says that it is left out; None if nothing is superseded."""
        if filter_.is_current and filter_.ref is not None:
            return superseded_in_ref
        return superseded if filter_.is_current and self._moment.has.superseded else None

    def _values(self, filter_: Filter) -> dict[str, object]:
        names = ("project", "scope", "store", "ref", "agent", "namespace", "type", "tag")
        texts = {"texts": json.dumps(filter_.excluded_types)} if filter_.excluded_types else {}
        return {**{name: getattr(filter_, name) for name in names}, **texts, **self._visible}

    @property
    def _readable(self) -> str:
        """What a caller may know of: the projects that it acts on, and what is global."""
        return f"{OF_A_PROJECT} AND ({self._acts_on('s.project')} OR {GLOBAL})"

    def _acts_on(self, column: str) -> str:
        """The condition that the caller acts on the project in a column."""
        return "TRUE" if self._projects.are_everything else self._sql.acts_on(column)


class Sql(FilteredTable):
    """The SQL of plain functions of a transaction, as in `tx[Sql].exists(...)`."""

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
