"""The same reads without the service: through the domain's functions, and as bare SQL."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.search import Filter
from agentops_memory.memory.space import project_name
from agentops_memory.recall.query import Query, parse_query
from agentops_memory.recall.recall import context, search
from agentops_memory.sqlite.connection import Database, connect
from agentops_memory.sqlite.transaction import SqliteTransaction

from .seeding import START

READS: Mapping[str, Callable[[SqliteTransaction, Query, Filter, int], object]] = {
    "/context": context,
    "/search": search,
}
LIMITS = {"/context": 5, "/search": 10}  # as the service has them

Values = Mapping[str, object] | Sequence[object]
Statement = tuple[str, Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One read of one project."""

    path: str
    text: str
    project: str


def through_the_domain(database: Database, read: Read) -> object:
    """What the service computes, without HTTP, threads and JSON."""
    seen = Filter(project=project_name(read.project), global_too=True)
    with _snapshot(database):
        transaction = SqliteTransaction(database, START, OPERATOR)
        return READS[read.path](transaction, parse_query(read.text), seen, LIMITS[read.path])


def statements(database: Database, read: Read) -> list[Statement]:
    """The statements of a read, with their values, to be run again bare."""
    recorder = Recorder(database)
    through_the_domain(recorder.connection, read)
    found = [(text, values) for text, values in recorder.statements if is_read(text)]
    if not found:
        raise SystemExit("No statement was seen: the service reads in a way that is not recorded.")
    return found


def bare(database: sqlite3.Connection, recorded: Iterable[Statement]) -> None:
    """The statements alone, on one snapshot, every row fetched."""
    with _snapshot(database):
        for statement, values in recorded:
            database.execute(statement, values).fetchall()


def is_read(statement: str) -> bool:
    """Whether a statement changes nothing."""
    return statement.lstrip()[:6].upper().startswith(("SELECT", "WITH"))


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """A connection as the service has it."""
    with closing(connect(path)) as database:
        yield database


class Recorder:
    """A connection that remembers its statements; many at once are remembered as a list."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.statements: list[Statement] = []

    @property
    def connection(self) -> Database:
        """Itself, for those who ask for a connection: it does all that one does."""
        return cast(Database, self)

    def execute(self, statement: str, values: Values = ()) -> sqlite3.Cursor:
        kept = values if isinstance(values, Mapping) else tuple(values)
        self.statements.append((statement, kept))
        return self._database.execute(statement, kept)

    def executemany(self, statement: str, rows: Iterable[Values]) -> sqlite3.Cursor:
        kept = list(rows)
        self.statements.append((statement, kept))
        return self._database.executemany(statement, kept)

    read, inserted, inserted_all = execute, Database.inserted, Database.inserted_all

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@contextmanager
def _snapshot(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN")
    try:
        yield
    finally:
        database.set_progress_handler(None, 0)  # what the domain limits in time, it does not free
        database.execute("ROLLBACK")
