"""What a table of a transaction builds on: a connection, its engine's words, and filters."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ...domain.model.access import Patterns
from ...domain.model.search import Filter
from ...domain.model.space import GLOBAL_SCOPE

EVERYWHERE = "TRUE"
OF_A_PROJECT = "s.project IS NOT NULL"
OF_A_STORE = "s.id = (SELECT space_id FROM stores WHERE uid = :store AND erasure_id IS NULL)"
GLOBAL = f"s.scope = '{GLOBAL_SCOPE}'"


class Cursor(Protocol):
    """What a statement answers."""

    @property
    def rowcount(self) -> int:
        """How many rows it has changed."""

    def fetchone(self) -> Any:
        """The next row, or None."""

    def fetchall(self) -> list[Any]:
        """The rows that are left."""

    def __iter__(self) -> Iterator[Any]:
        """The rows that are left, one by one."""


class Connection(Protocol):
    """A connection on which a transaction has begun. Parameters are named, as in `:id`."""

    def execute(self, statement: str, parameters: Mapping[str, object], /) -> Cursor:
        """Run a statement."""

    def executemany(self, statement: str, rows: Iterable[Mapping[str, object]], /) -> Cursor:
        """Run a statement for each row of parameters."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dialect:
    """How one engine says what the engines say differently; everything else they share.

    `inserted` runs an INSERT and answers the `id` of its row; `leads` is a join after which the
    table on its left is read first. The other fields are templates of what the methods answer.
    """

    inserted: Callable[[Connection, str, Mapping[str, object]], int]
    leads: str
    index: str
    array: str
    tags: str
    json_element: str
    holds: str
    patterns_match: str

    def hint(self, index: str) -> str:
        """What follows a table that is to be read along an index."""
        return self.index.format(index)

    def ids(self, alias: str) -> str:
        """A table of the JSON array `:ids`: each id is a `value`, and `key` is its place."""
        return self.array.format(alias)

    def tags_of(self, memory: str) -> str:
        """A table of a memory's tags, each a `value`; empty if what is stored is no JSON."""
        return self.tags.format(memory)

    def element(self, array: str, at: int) -> str:
        """An element of a JSON array, as text; NULL if what is stored is no JSON."""
        return self.json_element.format(array, at)

    def contains(self, column: str, text: str) -> str:
        """Whether a column holds the text literally."""
        return self.holds.format(column, text)

    def acts_on(self, column: str) -> str:
        """Whether the JSON array of patterns `:patterns` matches the project in a column."""
        return self.patterns_match.format(column)


class Table:
    """A table of a transaction."""

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        self._connection = connection
        self._sql = dialect

    def _execute(self, statement: str, **parameters: object) -> Cursor:
        return self._connection.execute(statement, parameters)

    def _inserted(self, statement: str, **parameters: object) -> int:
        """Run an INSERT into a table whose key is `id`; the id of the new row."""
        return self._sql.inserted(self._connection, statement, parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses:
    """Conditions on the table `spaces s`, and further ones, each with its AND, on memories."""

    on_spaces: str
    on_memories: str

    @property
    def everywhere(self) -> bool:
        """Whether every project's spaces are visible."""
        return self.on_spaces == OF_A_PROJECT

    @property
    def spaces(self) -> str:
        """The ids of the spaces, as a subquery."""
        return f"(SELECT s.id FROM spaces s WHERE {self.on_spaces})"


class FilteredTable(Table):
    """A table of which a caller sees the rows of some projects."""

    def __init__(self, connection: Connection, dialect: Dialect, projects: Patterns) -> None:
        self._connection = connection
        self._sql = dialect
        self._projects = projects

    def _clauses(self, filter_: Filter, *, memory: str) -> Clauses:
        """The conditions of a filter, for an alias of the table of memories."""
        on_memories = ""
        if filter_.type is not None:
            on_memories += f" AND {memory}.type = :type"
        if filter_.tag is not None:
            tags = self._sql.tags_of(memory)
            on_memories += f" AND EXISTS (SELECT 1 FROM {tags} WHERE value = :tag)"
        return Clauses(on_spaces=self._on_spaces(filter_), on_memories=on_memories)

    def _values(self, filter_: Filter) -> dict[str, object]:
        """The values that the conditions of a filter name."""
        return {
            "project": filter_.project,
            "scope": filter_.scope,
            "store": filter_.store,
            "type": filter_.type,
            "tag": filter_.tag,
            **self._patterns(),
        }

    def _acts_on(self, column: str) -> str:
        """The condition that the caller acts on the project in a column."""
        return EVERYWHERE if self._projects.are_everything else self._sql.acts_on(column)

    def _patterns(self) -> dict[str, object]:
        """The value that `_acts_on` names."""
        if self._projects.are_everything:
            return {}
        return {"patterns": json.dumps(self._projects.names)}

    def _on_spaces(self, filter_: Filter) -> str:
        if filter_.store is not None:
            return OF_A_STORE
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
