"""Copies all tenants of a service, or some, from its files into a PostgreSQL database, or back.

A tenant is copied completely or not at all: into a database in one transaction, into a file as a
draft that is renamed at the end. So an interrupted copy can be repeated: a tenant that the target
has with the same rows is skipped, and with other rows the copy is refused before it begins.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import reduce
from graphlib import TopologicalSorter
from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import IsolationLevel, errors

from ..engine.engine import noop
from ..engine.files import drafts, make_folder, os_errors_as, placed, private_file, sync
from ..errors import Refusal, Unavailable
from ..light import dataclass
from ..memory.access import By, KeyRegistry, KeyRing, TenantId
from ..memory.rows import micros
from ..postgresql import connection as pg
from ..postgresql.engine import SERVING_LOCK
from ..postgresql.index import Index
from ..postgresql.tenants import PostgresKeys
from ..postgresql.transaction import number_of
from ..recall.stems import Stems
from ..recall.text import clean
from ..settings import Settings
from ..sqlite.connection import CHANGING, Database as SqliteDatabase, connect, read_only, use_wal
from ..sqlite.dialect import refusing, translated
from ..sqlite.index import Index as SqliteIndex
from ..sqlite.migrate import make_schema, newest_format, planned, require_small_ids
from ..sqlite.open_files import require_one_name
from ..sqlite.tenants import tenant_file, tenants_of
from .backup import Advance, Progress, meter
from .files.keys import KeyFile, written_at
from .files.service_lock import service_lock

MODULUS = 1 << 128  # of sums of row digests, which do not depend on the order of rows

Row = tuple[Any, ...]
Tally = dict[str, tuple[int, str]]
"""By table: the number of rows, and a digest of them that does not depend on their order."""
TIMEOUT = timedelta(seconds=5)  # longest wait for another process that holds a lock


class CopyRefused(Refusal):
    """Nothing can be copied, or the copy was discarded; the message gives the reason."""

    code = "copy_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, with the same columns in the same order in both engines."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]  # of PostgreSQL

    @property
    def select(self) -> str:
        return f"SELECT {self.names} FROM {self.name} ORDER BY 1"

    @property
    def names(self) -> str:
        return ", ".join(f'"{it}"' for it in self.columns)


def counting(table: Table, rows: Iterable[Row], tally: Tally, advance: Advance) -> Iterator[Row]:
    """Yield the rows of a table; at the end the tally has them."""
    count = total = 0
    for row in rows:
        count += 1
        if not count % 1000:
            advance(1000)
        digest = blake2b(repr(row).encode(), digest_size=16).digest()
        total = (total + int.from_bytes(digest)) % MODULUS
        yield row
    tally[table.name] = count, f"{total:032x}"


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a database file, in a transaction."""

    database: SqliteDatabase
    tables: Sequence[Table] = ()  # empty: the database on the other side lists the tables

    def read(self, table: Table) -> Iterator[Row]:
        booleans = [number for number, it in enumerate(table.types) if it == "boolean"]
        try:
            for row in self.database.execute(table.select):
                values = list(row)
                for number in booleans:
                    values[number] = bool(values[number])
                yield tuple(values)
        except sqlite3.OperationalError as error:
            if hasattr(error, "sqlite_errorcode"):  # Python's own errors, of decoding, have none
                raise
            raise CopyRefused(  # without the cause, which quotes the text
                f"A text in the table {table.name} is not UTF-8; nothing of the tenant was copied. "
                "`agentops-memory doctor --fix` repairs the file."
            ) from None

    def count(self, table: Table) -> int:
        count: int = self.database.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]
        return count

    def last_ids(self) -> Mapping[str, int]:
        return dict(self.database.execute("SELECT name, seq FROM sqlite_sequence"))

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        values = ", ".join("?" for _ in table.columns)
        self.database.executemany(
            f"INSERT INTO {table.name} ({table.names}) VALUES ({values})", rows
        )

    def finish(self, last_ids: Mapping[str, int]) -> None:
        counting = self.database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '% AUTOINCREMENT%'"
        )
        for (table,) in counting.fetchall():
            if last := last_ids.get(table):
                self.database.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
                self.database.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, last))
        SqliteIndex(self.database).make_all()


class Files:
    """The files of a service: an SQLite database for each tenant, the keys and the audit."""

    def __init__(self, settings: Settings) -> None:
        self.path = settings.db_path  # of the default tenant's database
        self.audit = settings.audit_file
        self.keys = KeyFile(settings.keys_file, settings.audit_file)

    @property
    def where(self) -> str:
        return f"at {self.path}"

    def tenants(self) -> Sequence[TenantId]:
        return tenants_of(self.path)

    def holds(self, tenant: TenantId) -> bool:
        return tenant_file(self.path, tenant).exists()

    @contextmanager
    def rows(self, tenant: TenantId) -> Iterator[FileRows]:
        """Yield a snapshot of a tenant's rows; other processes may change them meanwhile.

        StartRefused if the file cannot be read, CopyRefused if it has another format.
        """
        path = tenant_file(self.path, tenant)
        require_one_name(path)
        plan = planned(path)
        if plan.before != newest_format():
            raise CopyRefused(
                f"{path} has format {plan.before}, but only {newest_format()} can be copied: "
                "`agentops-memory migrate` upgrades it."
            )
        with (
            refusing(path),
            # Opened for writing, too; otherwise SQLite would leave its log next to the file.
            closing(connect(path, busy_timeout=TIMEOUT, mode=CHANGING, is_strict=True)) as database,
        ):
            read_only(database)
            database.execute("BEGIN")
            yield FileRows(database)

    @contextmanager
    def new_rows(self, tenant: TenantId) -> Iterator[FileRows]:
        """Yield a new database for rows; at the end it is synced and named, unless anything raises.

        Its triggers are created at the end, because they would count rows that are counted already.
        """
        path = tenant_file(self.path, tenant)
        with translated(), os_errors_as(Unavailable, f"The database {path} cannot be created"):
            make_folder(path.parent)
            with drafts(path.parent) as folder:
                draft = folder / path.name
                with private_file(draft, os.O_RDWR | os.O_EXCL, like=path.parent):
                    pass
                with closing(connect(draft)) as database:
                    database.execute("BEGIN")
                    make_schema(database)
                    triggers = database.execute(
                        "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
                    ).fetchall()
                    for name, _ in triggers:
                        database.execute(f"DROP TRIGGER {name}")
                    yield FileRows(database)
                    for _, sql in triggers:
                        database.execute(sql)
                    require_small_ids(database, path)
                    database.execute("COMMIT")
                    use_wal(database, TIMEOUT)
                sync(draft)
                placed(draft, path)

    def audit_lines(self) -> Iterator[str]:
        with suppress(FileNotFoundError), self.audit.open("rb") as lines:
            for line in lines:
                yield clean(line.rstrip(b"\n").decode("utf-8", "replace"))

    def put_audit(self, lines: Iterable[str]) -> None:
        with (
            os_errors_as(Unavailable, f"The audit file {self.audit} cannot be written"),
            private_file(self.audit, os.O_WRONLY | os.O_TRUNC, like=self.audit.parent) as made,
        ):
            with os.fdopen(os.dup(made), "wb") as file:
                file.writelines(f"{line}\n".encode() for line in lines)
            os.fsync(made)


END_TIMEOUT = timedelta(seconds=5)  # longest wait for the server to notice a killed process
WORDS = ["areas", "postings"]  # tables of the index, which is made from the texts
FIRST = datetime.fromtimestamp(0, UTC)  # the time of lines that are not ours, before the first line

# Copying rows and indexing may take long, and the database gets no statement meanwhile.
_SETTINGS = (
    "statement_timeout = 0",
    "idle_in_transaction_session_timeout = 0",
    "lock_timeout = '5s'",  # for locks of other writers
)
_CATALOG = """
SELECT c.relname, array_agg(CAST(a.attname AS TEXT) ORDER BY a.attnum),
       array_agg(format_type(a.atttypid, NULL) ORDER BY a.attnum),
       ARRAY(SELECT CAST(r.relname AS TEXT)
               FROM pg_constraint f
               JOIN pg_class r ON r.oid = f.confrelid
              WHERE f.conrelid = c.oid)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
       AND c.relname <> ALL (%s)
 GROUP BY c.oid, c.relname
 ORDER BY c.relname"""
_IDENTITIES = """
SELECT c.relname, a.attname, its.sequence, pg_sequence_last_value(its.sequence::regclass)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attidentity <> '',
       pg_get_serial_sequence(quote_ident(c.relname), a.attname) AS its (sequence)
 WHERE c.relnamespace = current_schema()::regnamespace"""


class DatabaseRows:
    """The rows in a tenant's schema, on a connection with an open transaction."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        for setting in (*_SETTINGS, f'search_path TO "{schema}"'):
            self._execute(f"SET LOCAL {setting}")
        catalog = {name: its for name, *its in self._execute(_CATALOG, WORDS).fetchall()}
        order = TopologicalSorter({name: its[-1] for name, its in catalog.items()}).static_order()
        self.tables = [
            Table(name=it, columns=tuple(catalog[it][0]), types=tuple(catalog[it][1]))
            for it in order
        ]
        names = (*(table.name for table in self.tables), *WORDS)
        self.names = ", ".join(f'"{schema}".{it}' for it in names)

    def read(self, table: Table) -> Iterator[Row]:
        statement = f"COPY ({table.select}) TO STDOUT (FORMAT BINARY)"
        with self._connection.cursor().copy(statement.encode()) as copy:
            copy.set_types(table.types)
            yield from copy.rows()

    def count(self, table: Table) -> int:
        row = self._execute(f"SELECT count(*) FROM {table.name}").fetchone()
        return row[0] if row else 0

    def last_ids(self) -> Mapping[str, int]:
        """Return the last id that each table has used; its row may have been deleted."""
        identities = self._execute(_IDENTITIES).fetchall()
        return {table: last for table, _, _, last in identities if last is not None}

    def is_empty(self) -> bool:
        has_rows = " OR ".join(f"EXISTS (SELECT FROM {it.name})" for it in self.tables)
        return self._execute(f"SELECT {has_rows}").fetchone() == (False,)

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        # The table's triggers would count rows that are counted already.
        self._execute(f"ALTER TABLE {table.name} DISABLE TRIGGER USER")
        statement = f"COPY {table.name} ({table.names}) FROM STDIN (FORMAT BINARY)"
        with self._connection.cursor().copy(statement.encode()) as copy:
            copy.set_types(table.types)
            for row in rows:
                copy.write_row(row)
        self._execute(f"ALTER TABLE {table.name} ENABLE TRIGGER USER")

    def finish(self, last_ids: Mapping[str, int]) -> None:
        """Continue the sequences after the last ids, and index the memories."""
        for table, column, sequence, _ in self._execute(_IDENTITIES).fetchall():
            self._continue(sequence, column, table, last_ids.get(table, 0))
        self._continue("area_numbers", "area", "spaces", 0)
        self._execute(f"ANALYZE {self.names}")
        with closing(Stems()) as stems:
            Index(pg.PostgresConnection(self._connection), stems).fill()

    def _continue(self, sequence: str, column: str, table: str, last: int) -> None:
        """Continue a sequence after the largest number of a column, or after `last` if larger."""
        self._execute(
            f"""SELECT setval(%s, greatest(last, 1), last > 0)
                  FROM (SELECT greatest(max({column}), %s) AS last FROM {table}) AS its""",
            sequence,
            last,
        )

    def _execute(self, statement: str, *parameters: object) -> psycopg.Cursor[Any]:
        return self._connection.execute(statement.encode(), parameters or None)


@dataclass(frozen=True, slots=True)
class Database:
    connection: psycopg.Connection[Any]
    keys: PostgresKeys
    where = "in the database"

    @classmethod
    @contextmanager
    def opened(cls, url: str, *, is_source: bool) -> Iterator["Database"]:
        """Yield a database on which no service can start within.

        A source is read as one snapshot, and nobody can write to it. CopyRefused while a service
        runs on it; StartRefused or Unavailable if it cannot be used. No message quotes the URL.
        """
        with pg.control(url) as connection, _refusing():
            connection.prepare_threshold = None  # there may be a pool in front of the server
            try:
                _lock(connection, [SERVING_LOCK])
            except errors.LockNotAvailable:
                raise CopyRefused(
                    "A service or another copy is using the database: stop it first."
                ) from None
            database = cls(connection, PostgresKeys(url))
            if not is_source:
                pg.prepare(connection)
                yield database
                return
            # Waits for the writes of commands; later writes wait for the end of the copy.
            _lock(connection, [number_of(pg.schema_of(it)) for it in database.tenants()])
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.transaction():
                yield database

    def tenants(self) -> Sequence[TenantId]:
        return sorted(pg.tenants(self.connection))

    def holds(self, tenant: TenantId) -> bool:
        with self.rows(tenant) as rows:
            return not rows.is_empty()

    @contextmanager
    def rows(self, tenant: TenantId) -> Iterator[DatabaseRows]:
        """Yield the rows of a tenant; CopyRefused if its schema has another version."""
        with self.connection.transaction():
            version = pg.version_of(self.connection, tenant)
            if version != pg.newest():
                raise CopyRefused(
                    f"The schema of the tenant {tenant} has version {version}, but only "
                    f"{pg.newest()} can be copied: start this version of the service to upgrade it."
                )
            yield DatabaseRows(self.connection, pg.schema_of(tenant))

    @contextmanager
    def new_rows(self, tenant: TenantId) -> Iterator[DatabaseRows]:
        """Yield a tenant's schema, created if missing, for new rows.

        The rows are committed at the end, unless anything raises; nobody sees them before.
        """
        with self.connection.transaction():
            rows = DatabaseRows(self.connection, pg.brought_up_to_date(self.connection, tenant))
            # Nobody else stores a row until the transaction ends.
            self.connection.execute(f"LOCK TABLE {rows.names} IN EXCLUSIVE MODE".encode())
            if not rows.is_empty():
                raise CopyRefused(f"Something was stored for the tenant {tenant} meanwhile.")
            yield rows
        with suppress(psycopg.Error):  # if it fails, autovacuum does it later; the rows are kept
            self.connection.execute(f"VACUUM (ANALYZE) {rows.names}".encode())

    def audit_lines(self) -> Iterator[str]:
        lines = self.connection.cursor().stream("SELECT line FROM agentops.audit ORDER BY number")
        return (line for (line,) in lines)

    def put_audit(self, lines: Iterable[str]) -> None:
        with self.connection.cursor().copy("COPY agentops.audit (at, line) FROM STDIN") as copy:
            at = FIRST
            for line in lines:
                at = written_at(line.encode()) or at
                copy.write_row((micros(at), line))


def _lock(connection: psycopg.Connection[Any], locks: Sequence[int]) -> None:
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {END_TIMEOUT // timedelta(milliseconds=1)}")
        connection.execute("SELECT pg_advisory_lock(it) FROM unnest(%s::bigint[]) it", (locks,))


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (psycopg.OperationalError, errors.InsufficientPrivilege):
        raise  # the database cannot be used: its caller translates this error
    except psycopg.Error as error:
        # Without the cause, which quotes the row.
        raise CopyRefused(
            f"The database refuses a row (SQLSTATE {error.sqlstate or 'none'}); nothing of the "
            "tenant was stored. `agentops-memory doctor` shows which values are damaged."
        ) from None


Side = Files | Database
Rows = FileRows | DatabaseRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A tenant that is in the source and the target."""

    tenant: TenantId
    tally: Tally
    was_there: bool


def copied(
    settings: Settings, named: Sequence[TenantId], *, to_files: bool, at: datetime, by: By,
    progress: Progress = noop,
) -> Iterator[Copied]:  # fmt: skip
    """Copy the tenants of a service with their keys: the named tenants, or all if none is named.

    The rows go from the files to the database, or back if `to_files`. A copy of all tenants
    includes the audit. Each tenant is compared and kept before the next. CopyRefused if the target
    holds anything else, StartRefused or Unavailable if a side cannot be used. Also refused while a
    service runs on either side. `progress` is called with the rows of a tenant that are done, and
    all rows; each row counts once when copied, and once when compared.
    """
    assert settings.database_url  # else there is nothing to copy from, or to
    files = Files(settings)
    if to_files:
        make_folder(files.path.parent)
    with (
        service_lock(files.path),
        Database.opened(settings.database_url, is_source=to_files) as database,
    ):
        source, target = (database, files) if to_files else (files, database)
        yield from _all_copied(source, target, named, progress, at, by)


def _all_copied(
    source: Side, target: Side, named: Sequence[TenantId], progress: Progress, at: datetime, by: By
) -> Iterator[Copied]:
    tenants = source.tenants()
    if missing := [it for it in named if it not in tenants]:
        raise CopyRefused(f"There is no tenant {missing[0]} {source.where}.")
    if not tenants:
        raise CopyRefused(f"There is no tenant {source.where}.")
    chosen = list(dict.fromkeys(named)) or tenants
    candidates = [it for it in target.tenants() if it in chosen or not named]
    present = [it for it in candidates if target.holds(it)]
    if others := [it for it in present if it not in chosen]:
        raise CopyRefused(
            f"The target has the tenant {others[0]}, which the source does not have; choose "
            "another target, or select the tenants to copy with --tenant."
        )
    done = {it: _compared(source, target, it) for it in present}
    if not named:
        ours, theirs = list(source.audit_lines()), list(target.audit_lines())
        if theirs and theirs[: len(ours)] != ours:
            raise CopyRefused("The target already has a different audit; nothing was copied.")
        if not theirs:
            target.put_audit(ours)
    _copy_keys(source.keys, target.keys, named, at, by)
    for tenant in chosen:
        tally = done.get(tenant)
        if tally is None:
            with source.rows(tenant) as rows, target.new_rows(tenant) as new:
                tally = _copied(rows, new, progress)
        yield Copied(tenant=tenant, tally=tally, was_there=tenant in done)


def _copied(source: Rows, target: Rows, progress: Progress) -> Tally:
    """Copy all rows, index them, and compare the copy; CopyRefused if it differs."""
    tables = source.tables or target.tables
    advance = meter(2 * sum(map(source.count, tables)), progress)
    tally = _tally(source, tables, advance, target)
    target.finish(source.last_ids())
    copy = _tally(target, tables, advance)
    if differing := sorted(name for name in tally if tally[name] != copy[name]):
        raise CopyRefused(
            f"The copy differs in the tables {', '.join(differing)}; it was discarded."
        )
    return tally


def _compared(source: Side, target: Side, tenant: TenantId) -> Tally:
    with source.rows(tenant) as ours, target.rows(tenant) as theirs:
        tables = ours.tables or theirs.tables
        tally = _tally(ours, tables)
        if _tally(theirs, tables) != tally:
            raise CopyRefused(
                f"The tenant {tenant} is already in the target, with other rows. Nothing was "
                "copied; erase it there, or choose another target."
            )
    return tally


def _tally(
    rows: Rows, tables: Iterable[Table], advance: Advance = noop, target: Rows | None = None
) -> Tally:
    """Count all rows, and copy them if there is a target."""
    tally: Tally = {}
    for table in tables:
        counted = counting(table, rows.read(table), tally, advance)
        if target is None:
            deque(counted, maxlen=0)
        else:
            target.put(table, counted)
    return tally


def _copy_keys(
    source: KeyRegistry, target: KeyRegistry, named: Sequence[TenantId], at: datetime, by: By
) -> None:
    """Copy the keys of some tenants, or all; the target's audit records the new keys.

    CopyRefused if the target has other keys, or the same keys with other fields.
    """
    ring = source.ring()
    source.require_kept(ring)
    keys = {it.id: it for it in ring.keys.values() if not named or it.tenant in named}
    present = target.ring().keys
    if any(keys.get(id_) != key for id_, key in present.items() if id_ in keys or not named):
        raise CopyRefused("The target already has different keys; nothing was copied.")
    if new := [it for it in keys.values() if it.id not in present]:
        with target.changing() as (before, put):
            ring = reduce(KeyRing.with_key, new, before)
            put(ring, at, "keys.copied", by, keys=[key.id for key in new])
