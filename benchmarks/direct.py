"""The same reads without the service: through the domain's functions, and as bare SQL."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentops_memory.domain.model import Filter
from agentops_memory.domain.query import Query, understood
from agentops_memory.domain.recall import context, search
from agentops_memory.domain.text import project_name
from agentops_memory.storage.sqlite.connection import connect
from agentops_memory.storage.sqlite.transaction import SqliteTransaction

from .seeding import START

READS: Mapping[str, Callable[[SqliteTransaction, Query, Filter, int], object]] = {
    "/context": context,
    "/search": search,
}
LIMITS = {"/context": 5, "/search": 10}

Statement = tuple[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One read of one project."""

    path: str
    text: str
    project: str


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection as the service has it."""
    with closing(connect(path)) as database:
        yield database


def through_the_domain(database: sqlite3.Connection, read: Read) -> object:
    """What the service computes, without HTTP, threads and JSON."""
    database.execute("BEGIN")
    try:
        seen = Filter(project=project_name(read.project), global_too=True)
        transaction = SqliteTransaction(database, START)
        return READS[read.path](transaction, understood(read.text), seen, LIMITS[read.path])
    finally:
        database.execute("ROLLBACK")


def statements(database: sqlite3.Connection, read: Read) -> list[Statement]:
    """The statements of a read, with their values, to be run again bare."""
    recorder = _Recorder(database)
    through_the_domain(recorder, read)  # type: ignore[arg-type]  # it executes, and no more
    return recorder.statements[1:-1]


def bare(database: sqlite3.Connection, recorded: list[Statement]) -> None:
    """The statements alone, every row fetched."""
    for statement, values in recorded:
        database.execute(statement, values).fetchall()


class _Recorder:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.statements: list[Statement] = []

    def execute(self, statement: str, values: Mapping[str, object] | None = None) -> sqlite3.Cursor:
        self.statements.append((statement, values or {}))
        return self._database.execute(statement, values or {})
