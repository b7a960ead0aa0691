"""The rows of a tenant's schema in PostgreSQL."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import IsolationLevel, errors

from ...engine.shared.stems import Stems
from ...errors import Busy, Full, Unavailable
from ...memory.model.access import TenantId
from ...postgresql.base.connecting import control
from ...postgresql.base.connection import PostgresConnection
from ...postgresql.engine.claims import number_of
from ...postgresql.engine.leader import SERVES
from ...postgresql.schema.migrate import (
    brought_up_to_date,
    is_made,
    newest,
    prepare,
    schema_of,
    tenants,
)
from ...postgresql.words.index import Index, Placed
from ...postgresql.words.upkeep import Upkeep
from ...recall.text.features import Features
from .tables import TABLES, WORDS, CopyRefused, Row, Table

PATIENCE = timedelta(seconds=5)  # with what was killed, whose end the server has yet to see

# Rows and words take their time, in which nothing may be asked of the database.
_SETTINGS = (
    "statement_timeout = 0",
    "idle_in_transaction_session_timeout = 0",
    "lock_timeout = '5s'",  # with whoever writes there
)
_CATALOG = """
SELECT c.relname, a.attname, format_type(a.atttypid, NULL), array_position(i.indkey, a.attnum)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
 WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
 ORDER BY a.attnum"""
_IDENTITIES = """
SELECT c.relname, a.attname, pg_get_serial_sequence(quote_ident(c.relname), a.attname)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attidentity <> ''
 WHERE c.relnamespace = current_schema()::regnamespace"""
_KEY_OF_POSTINGS = """
SELECT conname, pg_get_constraintdef(oid)
  FROM pg_constraint
 WHERE conrelid = 'postings'::regclass AND contype = 'p'"""
_WITH_TRIGGERS = """
SELECT c.relname
  FROM pg_trigger t
  JOIN pg_class c ON c.oid = t.tgrelid
 WHERE c.relnamespace = current_schema()::regnamespace AND NOT t.tgisinternal"""


class PostgresRows:
    """Rows on a connection on which a transaction has begun, in the schema of a tenant."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        for setting in _SETTINGS:
            self._execute(f"SET LOCAL {setting}")
        self._execute(f'SET LOCAL search_path TO "{schema}"')
        self.tables = tables_of(connection)
        self._names = ", ".join(
            f'"{schema}".{it}' for it in [*(table.name for table in self.tables), *WORDS]
        )

    def rows(self, table: Table) -> Iterator[Row]:
        statement = f"COPY ({table.select}) TO STDOUT (FORMAT BINARY)"
        with self._connection.cursor().copy(statement.encode()) as copy:
            copy.set_types([*table.types, "text"])
            yield from copy.rows()

    def last_ids(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for table, _, sequence in self._execute(_IDENTITIES).fetchall():
            if row := self._execute(
                f"SELECT last_value FROM {sequence} WHERE is_called"
            ).fetchone():
                found[table] = row[0]
        return found

    def is_empty(self) -> bool:
        held = " OR ".join(f"EXISTS (SELECT FROM {it.name})" for it in self.tables)
        ((is_held,),) = self._execute(f"SELECT {held}").fetchall()
        return not is_held

    def lock(self) -> None:
        """Let nobody else store a row until the transaction ends."""
        self._execute(f"LOCK TABLE {self._names} IN EXCLUSIVE MODE")

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        columns = ", ".join(f'"{it}"' for it in table.columns)
        statement = f"COPY {table.name} ({columns}) FROM STDIN (FORMAT BINARY)"
        has_triggers = (table.name,) in self._execute(_WITH_TRIGGERS).fetchall()
        if has_triggers:  # which would count what is counted already
            self._execute(f"ALTER TABLE {table.name} DISABLE TRIGGER USER")
        with self._connection.cursor().copy(statement.encode()) as copy:
            copy.set_types(table.types)
            for row in rows:
                copy.write_row(row)
        if has_triggers:
            self._execute(f"ALTER TABLE {table.name} ENABLE TRIGGER USER")

    def finish(self, last_ids: Mapping[str, int], features: Features) -> None:
        for table, column, sequence in self._execute(_IDENTITIES).fetchall():
            self._go_on(sequence, column, table, last_ids.get(table, 0))
        self._go_on("area_numbers", "area", "spaces", 0)
        self._execute(f"ANALYZE {self._names}")
        self._make_words(features)

    def vacuum(self) -> None:
        """Let indexes alone answer from the first request on. Outside of any transaction.

        What fails is left to autovacuum: the rows are kept.
        """
        with suppress(psycopg.Error):
            self._execute(f"VACUUM (ANALYZE) {self._names}")

    def _make_words(self, features: Features) -> None:
        ((name, key),) = self._execute(_KEY_OF_POSTINGS).fetchall()
        self._execute(f"ALTER TABLE postings DROP CONSTRAINT {name}")
        with closing(Stems()) as stems:
            connection = PostgresConnection(self._connection)
            upkeep = Upkeep(connection, _FilledIndex(connection, features, stems))
            for area in upkeep.areas():
                upkeep.fill(area)
        self._execute(f"ALTER TABLE postings ADD CONSTRAINT {name} {key}")

    def _go_on(self, sequence: str, column: str, table: str, last: int) -> None:
        """Let a sequence go on after the greatest number of a column, or after a later one."""
        self._execute(
            f"""SELECT setval(%s, greatest(last, 1), last > 0)
                  FROM (SELECT greatest(max({column}), %s) AS last FROM {table}) AS its""",
            sequence,
            last,
        )

    def _execute(self, statement: str, *parameters: object) -> psycopg.Cursor[Any]:
        return self._connection.execute(statement.encode(), parameters or None)


class _FilledIndex(Index):
    _connection: PostgresConnection

    def _post(self, placed: Sequence[Placed], *, are_new: bool) -> None:  # noqa: ARG002
        statement = b"COPY postings FROM STDIN (FORMAT BINARY)"
        with self._connection.raw.cursor().copy(statement) as copy:
            copy.set_types(["int8", "text", "int8", "int4", "int8"])
            for (memory, it), entry in placed:
                for term, counts in entry.stems.items():
                    copy.write_row((it.area, term, memory, entry.length, counts))


def tables_of(connection: psycopg.Connection[Any]) -> list[Table]:
    found: dict[str, list[tuple[str, str, int | None]]] = {}
    for table, *column in connection.execute(_CATALOG).fetchall():
        found.setdefault(table, []).append((column[0], column[1], column[2]))
    return [_table(name, found[name]) for name in TABLES]


@contextmanager
def opened_database(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that reads one state of the database, to which nobody adds until the end.

    CopyRefused while a service runs on it; StartRefused or Unavailable where it cannot be used. No
    sentence has a part of the URL.
    """
    with _connected(url) as connection:
        if is_made(connection):  # what commands write has its end before, or comes after
            _lock(connection, [number_of(schema_of(it)) for it in tenants(connection)])
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            yield connection


@contextmanager
def prepared_database(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database that tenants can be copied to; refused as above."""
    with _connected(url) as connection:
        prepare(connection)
        yield connection


@contextmanager
def filled(connection: psycopg.Connection[Any], tenant: TenantId) -> Iterator[PostgresRows]:
    """A tenant's schema, made if it is missing, where rows are kept unless anything raises.

    Until then nobody sees it, or it is as empty as it was.
    """
    with connection.transaction():
        rows = PostgresRows(connection, brought_up_to_date(connection, tenant))
        rows.lock()
        if not rows.is_empty():
            raise CopyRefused(f"Something was stored for the tenant {tenant} meanwhile.")
        yield rows


def stored(connection: psycopg.Connection[Any], tenant: TenantId) -> PostgresRows:
    """A tenant's rows, in a transaction; CopyRefused if its schema has another version."""
    rows = connection.execute(
        "SELECT version FROM agentops.tenants WHERE tenant = %s", (tenant,)
    ).fetchall()
    if rows != [(newest(),)]:
        raise CopyRefused(
            f"The schema of the tenant {tenant} has version {rows[0][0]}, and {newest()} is "
            "copied: start this version of the service on the database, which upgrades it."
        )
    return PostgresRows(connection, schema_of(tenant))


@contextmanager
def _connected(url: str) -> Iterator[psycopg.Connection[Any]]:
    with control(url) as connection, _refusing():
        connection.prepare_threshold = None  # between us and the server a pool may stand
        try:
            _lock(connection, [SERVES])
        except errors.LockNotAvailable:
            raise CopyRefused(
                "A service runs on the database, or another copy: end it first."
            ) from None
        yield connection


def _lock(connection: psycopg.Connection[Any], locks: Sequence[int]) -> None:
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {PATIENCE // timedelta(milliseconds=1)}")
        connection.execute("SELECT pg_advisory_lock(it) FROM unnest(%s::bigint[]) it", (locks,))


@contextmanager
def _refusing() -> Iterator[None]:
    """Inside, what the driver says is refused in our words: it quotes rows, hosts and roles."""
    try:
        yield
    except errors.LockNotAvailable:
        raise Busy("A service is at work on the tenant in the database; end it first.") from None
    except errors.DiskFull:
        raise Full("The disk of the database is full; nothing of the tenant was stored.") from None
    except errors.InsufficientPrivilege:
        raise CopyRefused("The role may not change the tenant's schema: it is another's.") from None
    except psycopg.OperationalError:
        raise Unavailable(
            "The database ended the connection; nothing of the tenant was stored. Try again."
        ) from None
    except psycopg.Error as error:
        raise CopyRefused(
            f"The database refuses a row (SQLSTATE {error.sqlstate or 'none'}); nothing of the "
            "tenant was stored. `agentops-memory doctor` tells which values are damaged."
        ) from None


def _table(name: str, columns: list[tuple[str, str, int | None]]) -> Table:
    key = sorted((place, column) for column, _, place in columns if place is not None)
    return Table(
        name=name,
        columns=tuple(column for column, _, _ in columns),
        types=tuple(type_ for _, type_, _ in columns),
        key=tuple(column for _, column in key),
    )
