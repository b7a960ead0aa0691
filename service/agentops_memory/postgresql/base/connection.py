"""A connection as the shared tables use it: named parameters, plain values, few round trips."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count, groupby, islice
from typing import Any, cast

import psycopg
from psycopg import adapt
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from ...engine.shared.damage import BY_PLACE, DERIVED, MOST_TOLD, Column, RowDamage, TableCheck
from ...errors import DamagedRow
from ...memory.model.table import Connection, Dialect

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


_TYPES = {"text": "TEXT", "bytea": "BLOB", "double precision": "REAL", "boolean": "BOOLEAN"}
_COLUMNS = """SELECT c.table_name, c.column_name, c.data_type, c.is_nullable = 'YES'
                FROM information_schema.columns c
                JOIN information_schema.tables t USING (table_schema, table_name)
               WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE'
            ORDER BY c.table_name, c.ordinal_position"""


def damaged(connection: PostgresConnection) -> list[RowDamage]:
    """The first of them, table by table; the connection is in a transaction of the tenant."""
    return list(islice(_every(connection), MOST_TOLD))


def _every(connection: PostgresConnection) -> Iterator[RowDamage]:
    for table, rows in groupby(connection.execute(_COLUMNS).fetchall(), lambda row: row[0]):
        if table not in DERIVED:
            columns = [
                Column(name=name, type=_TYPES.get(type_, "INTEGER"), may_be_null=may_be_null)
                for _, name, type_, may_be_null in rows
            ]
            check = TableCheck(table, columns)
            key = "ctid" if table in BY_PLACE else f'"{check.names[0]}"'
            yield from check.found(
                connection.read(f'SELECT {key}, {", ".join(check.selected)} FROM "{table}"', {})
            )


def _read(connection: Connection, query: str, parameters: Mapping[str, object]) -> Iterable[Any]:
    return cast(PostgresConnection, connection).read(query, parameters)


def _inserted(connection: Connection, statement: str, parameters: Mapping[str, object]) -> int:
    ((id_,),) = connection.execute(f"{statement} RETURNING id", parameters)
    return int(id_)


def _inserted_all(
    connection: Connection, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> Sequence[int]:
    values = ", ".join(["%s"] * len(columns))
    insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}) RETURNING id"
    cursor = cast("PostgresConnection", connection).raw.cursor()
    cursor.executemany(cast("Any", insert), rows, returning=True)
    return [int(it.fetchall()[0][0]) for it in cursor.results()]


def _gathered(*values: str) -> str:
    row = values[0] if len(values) == 1 else f"json_build_array({', '.join(values)})"
    return f"CAST(coalesce(json_agg({row}), '[]') AS TEXT)"


def _note(connection: Connection, damage: DamagedRow) -> None:
    cast(PostgresConnection, connection).damaged.append(damage)


POSTGRESQL = Dialect(
    note=_note,
    row="ctid",
    read=_read,
    inserted=_inserted,
    inserted_all=_inserted_all,
    leads="JOIN",
    each="CROSS JOIN LATERAL ({}) picked JOIN memories m ON m.id = picked.id".format,
    reordered="ORDER BY {}".format,
    greatest="greatest",
    least="least",
    hint=lambda _: "",
    ids="""(SELECT CAST(value AS BIGINT) AS value, number - 1 AS key
              FROM json_array_elements_text(CAST(:ids AS json))
                   WITH ORDINALITY AS given (value, number)) {}""".format,
    texts="""(SELECT value, number - 1 AS key
                FROM json_array_elements_text(CAST(:texts AS json))
                     WITH ORDINALITY AS given (value, number)) {}""".format,
    gathered=_gathered,
    tags_of="agentops.texts({}.tags) value".format,
    element="agentops.element({}, {})".format,
    bytes_of="octet_length({})".format,
    contains="strpos({}, {}) > 0".format,
    # The patterns are made out once a statement, not for each row.
    acts_on="{} LIKE ANY (CAST((SELECT agentops.likes(:patterns)) AS TEXT[]))".format,
)
