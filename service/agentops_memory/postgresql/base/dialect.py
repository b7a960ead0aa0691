"""What PostgreSQL says in its own way."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ...errors import DamagedRow
from ...memory.model.table import Connection, Dialect
from .connection import PostgresConnection


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
