"""A connection as the shared tables use it: named parameters, plain values, few round trips."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Any, cast

import psycopg
from psycopg import adapt
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from ...errors import DamagedRow

FETCHED = 200  # rows at a time
_NUMBERS = count()
_NAMED = re.compile(r"('(?:[^']|'')*')|(CAST\(:[a-z_]\w* AS \w+\[\]\))|(?<!:):([a-z_]\w*)|(%)")
_NUL = re.compile(r"\x00|(?<!\\)((?:\\\\)*)\\u0000")  # as such, and in JSON

NOWHERE = "\U0010ffff\U0010ffff"  # noncharacters, in the place of a NUL


class _WholeNumbers(adapt.Loader):
    """Sums are whole numbers here, whatever type they have."""

    def load(self, data: adapt.Buffer) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text else int(text)


def adapted(connection: psycopg.Connection[Any]) -> None:
    """Let whole numbers have one type, so that a statement is prepared once."""
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.adapters.register_dumper(int, Int8Dumper)  # the later one is the usual one
    connection.adapters.register_loader("numeric", _WholeNumbers)


class PostgresConnection:
    """The Connection of the shared tables, on which a transaction has begun.

    Inside `pipelined` what is executed waits until an answer is asked for.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.raw = connection
        self.damaged: list[DamagedRow] = []  # what the transaction has left out
        self._pipeline: psycopg.Pipeline | None = None

    @contextmanager
    def pipelined(self) -> Iterator[None]:
        with self.raw.pipeline() as pipeline:
            self._pipeline = pipeline
            try:
                yield
            finally:
                self._pipeline = None

    def execute(
        self, statement: str, parameters: Mapping[str, object] | None = None, /
    ) -> "PostgresCursor":
        cursor, asked = self.raw.cursor(), cast(Any, translated(statement))
        given = parameters or {}
        try:
            cursor.execute(asked, given if "texts" not in given else _storable(given))
        except psycopg.DataError as error:
            if error.sqlstate is not None:  # the server's
                raise
            cursor.execute(asked, _storable(given))
        return PostgresCursor(self, cursor)

    def read(self, query: str, parameters: Mapping[str, object]) -> Iterator[Any]:
        """The rows of a query, fetched a few at a time in this transaction."""
        name = f"rows_{next(_NUMBERS)}"
        begin = f"DECLARE {name} NO SCROLL CURSOR FOR {translated(query)}"
        self.raw.execute(cast(Any, begin), parameters, prepare=False)
        there_is_more = True
        while there_is_more:
            rows = self.raw.execute(f"FETCH {FETCHED} FROM {name}", prepare=False).fetchall()
            there_is_more = len(rows) == FETCHED
            yield from rows

    def executemany(
        self, statement: str, rows: Iterable[Mapping[str, object]], /
    ) -> "PostgresCursor":
        cursor = self.raw.cursor()
        if there := list(rows):
            cursor.executemany(cast(Any, translated(statement)), there)
        return PostgresCursor(self, cursor)

    def sync(self) -> None:
        """Wait for the answers to all that was executed; raises the first that is an error."""
        if self._pipeline is not None:
            self._pipeline.sync()

    def go_back(self, savepoint: str) -> None:
        """Undo what came after a savepoint, and go on."""
        self.sync()
        # Each time in other words, which psycopg looks at: it forgets then what is prepared, of
        # which it does not know whether a refusal has kept it from being so.
        self.raw.execute(f"ROLLBACK TO SAVEPOINT {savepoint} -- {next(_NUMBERS)}")
        self.sync()


class PostgresCursor:
    def __init__(self, connection: PostgresConnection, cursor: psycopg.Cursor[Any]) -> None:
        self._connection = connection
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        self._connection.sync()
        return max(self._cursor.rowcount, 0)

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)


def _storable(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """Parameters that are looked for and never found: no text, or JSON, here can have a NUL."""
    return {
        name: _NUL.sub(r"\1" + NOWHERE, value) if isinstance(value, str) else value
        for name, value in parameters.items()
    }


@lru_cache(4096)
def translated(statement: str) -> str:
    return _NAMED.sub(_placeholder, statement)


def _placeholder(found: re.Match[str]) -> str:
    quoted, array, name, _ = found.groups()
    if array:  # in binary form, which takes less time
        return re.sub(r":([a-z_]\w*)", r"%(\1)b", array)
    if name:
        return f"%({name})s"
    return quoted.replace("%", "%%") if quoted else "%%"
