"""Connections for the shared tables: named parameters, plain values, few round trips; and the
schemas of a database: the one that tenants share, and one for each tenant.

A database that cannot be used is refused with one sentence. No sentence has a part of the URL, and
no refusal has a cause: messages of the driver quote hosts, roles and names of databases.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, lru_cache
from hashlib import sha256
from importlib import resources
from itertools import count
from typing import Any, cast

import psycopg
from psycopg import adapt, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from ..engine.engine import noop
from ..errors import Busy, Conflict, Damaged, DamagedRow, Full, StartRefused, TimedOut, Unavailable
from ..memory.access import DEFAULT_TENANT, TenantId
from ..memory.table import Dialect

FETCH_SIZE = 200  # most rows of one FETCH
_NUMBERS = count()
_NAMED = re.compile(r"('(?:[^']|'')*')|(?<!:):([a-z_]\w*)|(%)")
_NUL = re.compile(r"\x00|(?<!\\)((?:\\\\)*)\\u0000")  # a NUL as such, or escaped in JSON

_MEMORY = "INSERT INTO memories ("

NUL_SUBSTITUTE = "\U0010ffff\U0010ffff"  # noncharacters, which no stored text has


class _NumericLoader(adapt.Loader):
    """Loads a numeric value, such as a sum, as an int if it has no decimal point."""

    def load(self, data: adapt.Buffer) -> int | float:
        text = bytes(data).decode()
        return float(text) if "." in text else int(text)


class PostgresConnection:
    """The Connection of the shared tables, on which a transaction has begun.

    Within `pipelined`, statements do not wait for each other until a result is read.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.raw = connection
        self.damaged: list[DamagedRow] = []  # damaged rows that the transaction has skipped
        self.has_written = False
        self.ids: list[int] = []  # reserved for new memories; the last is used next
        self.rows: list[Mapping[str, object]] = []  # new memories that are not inserted yet
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
        self.flush()
        cursor, text = self._cursor(), cast(Any, with_placeholders(statement))
        if not statement.startswith("SELECT"):
            self.has_written = True
        values = {n: _array(it) if type(it) is list else it for n, it in (parameters or {}).items()}
        try:
            cursor.execute(text, values if "texts" not in values else _storable(values))
        except psycopg.DataError as error:
            if error.sqlstate is not None:  # raised by the server
                raise
            cursor.execute(text, _storable(values))
        return cursor

    def _cursor(self) -> "PostgresCursor":
        cursor = PostgresCursor(self.raw)
        cursor.sync = self.sync
        return cursor

    def read(self, query: str, parameters: Mapping[str, object]) -> Iterator[Any]:
        """Yield the rows of a query, fetched in batches in this transaction."""
        self.flush()
        name = f"rows_{next(_NUMBERS)}"
        begin = f"DECLARE {name} NO SCROLL CURSOR FOR {with_placeholders(query)}"
        self.raw.execute(cast(Any, begin), parameters, prepare=False)
        while True:
            rows = self.raw.execute(f"FETCH {FETCH_SIZE} FROM {name}", prepare=False).fetchall()
            yield from rows
            if len(rows) < FETCH_SIZE:
                return

    def executemany(
        self, statement: str, rows: Iterable[Mapping[str, object]], /
    ) -> "PostgresCursor":
        self.flush()
        cursor = self._cursor()
        if parameters := list(rows):
            self.has_written = True
            cursor.executemany(cast(Any, with_placeholders(statement)), parameters)
        return cursor

    def inserted(self, statement: str, parameters: Mapping[str, object]) -> int:
        if not (self.ids and statement.startswith(_MEMORY)):
            ((id_,),) = self.execute(f"{statement} RETURNING id", parameters)
            return cast("int", id_)
        self.rows.append({"id": self.ids[-1], **parameters})  # inserted later, without a wait
        self.has_written = True
        return self.ids.pop()

    def inserted_all(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> Sequence[int]:
        values = ", ".join(["%s"] * len(columns))
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}) RETURNING id"
        self.has_written, cursor = True, self.raw.cursor()
        cursor.executemany(cast("Any", insert), rows, returning=True)
        return [it.fetchall()[0][0] for it in cursor.results()]

    def flush(self) -> None:
        """Insert the waiting memories in one statement."""
        if self.rows:
            rows, self.rows, has_written = self.rows, [], self.has_written
            listed = ", ".join(rows[0])
            self.execute(
                f"""INSERT INTO memories ({listed})
                    SELECT {listed}
                      FROM json_populate_recordset(CAST(NULL AS memories), :rows)""",
                {"rows": json.dumps(rows)},
            )
            self.has_written = has_written  # the next change has written nothing yet

    def sync(self) -> None:
        """Wait for the results of all statements; raise the first error."""
        if self._pipeline is not None:
            self._pipeline.sync()

    def roll_back_to(self, savepoint: str) -> None:
        """Undo all statements after a savepoint; the transaction continues."""
        with suppress(errors.QueryCanceled):
            self.sync()
        # Its text differs each time, so that psycopg looks at the result, and then forgets all
        # prepared statements: an error may have kept the server from preparing them.
        self.raw.execute(f"ROLLBACK TO SAVEPOINT {savepoint} -- {next(_NUMBERS)}")
        self.sync()


class PostgresCursor(psycopg.Cursor[Any]):
    """A cursor whose `rowcount` waits for the results of all statements."""

    sync: Callable[[], None]

    @property
    def rowcount(self) -> int:
        self.sync()
        return max(super().rowcount, 0)


def _array(values: Sequence[int | str]) -> str:
    """Return an array literal; the driver would take four times as long."""
    texts = [
        str(it)
        if isinstance(it, int)
        else '"{}"'.format(it.replace("\\", r"\\").replace('"', r"\""))
        for it in values
    ]
    return f"{{{','.join(texts)}}}"


def _storable(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """Replace each NUL, which no stored text or JSON can have, so that it matches nothing."""
    return {
        name: _NUL.sub(r"\1" + NUL_SUBSTITUTE, value) if isinstance(value, str) else value
        for name, value in parameters.items()
    }


@lru_cache(4096)
def with_placeholders(statement: str) -> str:
    def placeholder(match: re.Match[str]) -> str:
        quoted, name, _ = match.groups()
        if name:
            return f"%({name})s"
        return quoted.replace("%", "%%") if quoted else "%%"

    return _NAMED.sub(placeholder, statement)


def _gathered(*values: str) -> str:
    row = values[0] if len(values) == 1 else f"json_build_array({', '.join(values)})"
    return f"CAST(coalesce(json_agg({row}), '[]') AS TEXT)"


POSTGRESQL = Dialect(
    row="ctid",
    leads="JOIN",
    each="CROSS JOIN LATERAL ({}) picked JOIN memories m ON m.id = picked.id".format,
    reordered="ORDER BY {}".format,
    greatest="greatest",
    least="least",
    hint=lambda _: "",
    ids="""(SELECT CAST(value AS BIGINT) AS value, number - 1 AS key
              FROM json_array_elements_text(CAST(:ids AS json))
                   WITH ORDINALITY AS listed (value, number)) {}""".format,
    texts="""(SELECT value, number - 1 AS key
                FROM json_array_elements_text(CAST(:texts AS json))
                     WITH ORDINALITY AS listed (value, number)) {}""".format,
    gathered=_gathered,
    tags_of="agentops.texts({}.tags) value".format,
    element="agentops.element({}, {})".format,
    contains="strpos({}, {}) > 0".format,
    # A subquery, so that patterns are converted once per statement, not per row.
    acts_on="{} LIKE ANY (CAST((SELECT agentops.likes(:patterns)) AS TEXT[]))".format,
)


log = logging.getLogger(__name__)

BUSY = "Another writer has held the database for too long; try again."
UNREACHABLE_NOW = "The database cannot be reached now."
OTHER_RULES = (
    "The index was built with the rules of another release; try again: a service with "
    "the same rules accepts this, and so does this one once it leads."
)
GONE = "A schema of the service is gone from the database: restore it from a backup."
LACKS_RIGHTS = (
    "The role lacks rights: it must own the service's schemas, and may CREATE in the database."
)
COLLIDED = (errors.DeadlockDetected, errors.SerializationFailure)
"""Errors that undo a transaction, which may succeed when it runs again."""

_LOST = ("08", "57P", "25P03")  # codes of a lost connection
_EXHAUSTED = ("53", "58")  # codes of a server without sufficient resources

_REFUSALS = (
    (errors.LockNotAvailable, Busy, BUSY),
    (errors.QueryCanceled, TimedOut, "The database took too long to answer."),
    (errors.DiskFull, Full, "No space is left in the database; nothing was stored."),
    (errors.OutOfMemory, Unavailable, "The database is out of memory."),
    (errors.TooManyConnections, Busy, "The database has no free connection; try again."),
    (errors.ReadOnlySqlTransaction, Unavailable, "The database accepts no writes now."),
    ((errors.UndefinedTable, errors.InvalidSchemaName), Unavailable, GONE),
    (errors.InsufficientPrivilege, Unavailable, LACKS_RIGHTS),
    (errors.DataCorrupted, Damaged, "Part of the database cannot be read."),
    (errors.IndexCorrupted, Damaged, "An index of the database cannot be read."),
    (COLLIDED, Busy, "Too many writers were in conflict; try again."),
    (errors.IntegrityError, Conflict, "The stored state does not allow this."),
)


@contextmanager
def translated(level: int = logging.WARNING) -> Iterator[None]:
    """Translate database errors into refusals; a lost connection is Unavailable.

    Refusals are logged at a level: a caller can only retry, but the operator can help.
    """
    try:
        yield
    except psycopg.Error as error:
        if isinstance(error, errors.NotNullViolation) and error.diag.table_name == "areas":
            raise Unavailable(OTHER_RULES) from error
        for kinds, refusal, sentence in _REFUSALS:
            if isinstance(error, kinds):
                log.log(level, "the database refused", extra={"code": error.sqlstate})
                raise refusal(sentence) from error
        if is_lost(error) or (error.sqlstate or "").startswith(_EXHAUSTED):
            raise Unavailable(UNREACHABLE_NOW) from error
        raise


def is_lost(error: Exception) -> bool:
    """Whether the connection is lost, or the server is shutting down."""
    code = error.sqlstate if isinstance(error, psycopg.Error) else None
    if code is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return code.startswith(_LOST)


OLDEST = 15  # the oldest supported major version, with which everything is tested
CONTROL = 1  # the version of the schema `agentops` that this release creates
NEWEST = CONTROL + 1  # newest supported schema version: old pods work during an upgrade

# Defaults for parameters missing in the URL. A lost peer is detected in about ten seconds.
DEFAULTS: dict[str, Any] = {
    "fallback_application_name": "agentops-memory",
    "connect_timeout": 3,  # seconds, for each host of the URL
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

NO_URL = "MEMORY_DATABASE_URL is not a PostgreSQL URL, such as postgresql://user@host/database."
READ_ONLY = (
    "The database is read-only, as a standby is: MEMORY_DATABASE_URL must name the primary, and "
    "default_transaction_read_only must be off."
)
OTHER_SCHEMA = (
    "The database has a schema agentops that this program did not make; it was left as it is. "
    "MEMORY_DATABASE_URL must name another database."
)
UNREACHABLE = (
    "The database cannot be reached: check the host and the port in MEMORY_DATABASE_URL, and "
    "whether PostgreSQL is running there."
)

NOT_NOW = (
    "The database is starting or stopping, has no free connection (max_connections), or no host in "
    "MEMORY_DATABASE_URL accepts writes; try again in a moment."
)
REFUSED = (
    "The database refuses the connection: check the role, its password and rights, the name of the "
    "database, sslmode and target_session_attrs in MEMORY_DATABASE_URL. `psql` with the same URL "
    "says which is wrong."
)
# Parts of the driver's errors when connecting. A server may use another language.
_NOT_NOW = re.compile(
    "too many c|connection slots|starting up|shutting down|not yet accepting|in recovery mode"
    "|session is read-only|is in hot standby mode"
)
_REFUSED = re.compile(
    "authentication failed|password|pg_hba|permitted|permission|role |database |SSL|certificate"
    "|not in hot standby mode|session is not read-only"
)

_STATE = """
SELECT getdatabaseencoding(), pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on', s.oid IS NOT NULL,
       EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = s.oid AND c.relname = 'control')
  FROM (SELECT) AS one
  LEFT JOIN pg_namespace s ON s.nspname = 'agentops'"""
_GONE = """
SELECT tenant
  FROM agentops.tenants t
 WHERE NOT EXISTS (SELECT 1 FROM pg_namespace s WHERE s.nspname = t.schema)
 ORDER BY tenant"""


def connect(url: str) -> psycopg.Connection[Any]:
    """Return a new connection in autocommit mode. Raises StartRefused or Unavailable."""
    try:
        options = {**DEFAULTS, **conninfo_to_dict(url), "client_encoding": "UTF8"}
        connection = psycopg.connect(make_conninfo(**options), autocommit=True)
    except psycopg.ProgrammingError:
        raise StartRefused(NO_URL) from None
    except (psycopg.Error, OSError) as error:
        if not _NOT_NOW.search(str(error)) and _REFUSED.search(str(error)):
            raise StartRefused(REFUSED) from None
        raise Unavailable(NOT_NOW if _NOT_NOW.search(str(error)) else UNREACHABLE) from None
    # All integers are sent as one type, so that a statement is prepared once.
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.adapters.register_dumper(int, Int8Dumper)  # the default, as it is registered last
    connection.adapters.register_loader("numeric", _NumericLoader)
    return connection


def require_usable(connection: psycopg.Connection[Any]) -> None:
    """Raise StartRefused unless the database can be used. It is not changed."""
    version = connection.info.server_version // 10_000
    if version < OLDEST:
        raise StartRefused(
            f"The database is PostgreSQL {version}; the oldest supported is {OLDEST}."
        )
    with translated(logging.DEBUG):
        ((encoding, is_standby, is_read_only, exists, has_control),) = connection.execute(_STATE)
        encoded = f"The database has the encoding {encoding}; make one with CREATE DATABASE ... "
        for is_refused, sentence in (
            (encoding != "UTF8", f"{encoded}ENCODING 'UTF8' TEMPLATE template0."),
            (is_standby or is_read_only, READ_ONLY),
            (exists and not has_control, OTHER_SCHEMA),
        ):
            if is_refused:
                raise StartRefused(sentence)
        if not exists:
            return
        ((version,),) = connection.execute("SELECT max(version) FROM agentops.control").fetchall()
        if version is None or version > NEWEST:
            raise StartRefused("A newer version has upgraded the database; run that version.")
        if gone := [tenant for (tenant,) in connection.execute(_GONE)]:
            raise StartRefused(
                f"The schema of the tenant {gone[0]} is gone: restore it from a backup, or delete "
                "its row from agentops.tenants."
            )


@contextmanager
def opened(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection, even to a database that cannot be used."""
    with closing(connect(url)) as connection, translated(logging.DEBUG):
        yield connection


@contextmanager
def control(url: str, *, makes: bool = False) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection to a usable database; `makes` creates a missing schema `agentops`.

    It is not for requests, as the connection is not pooled.
    """
    with opened(url) as connection:
        require_usable(connection)
        if makes:
            prepare(connection)
        yield connection


LONGEST_NAME = 63  # most bytes of an identifier
LOCK = 0x414D_454D  # "AMEM": held during a migration
_LOCKED = f"SELECT pg_advisory_xact_lock({LOCK})"
MAX_ATTEMPTS = 10  # of a migration that collides with running services


def schema_of(tenant: TenantId) -> str:
    """Return the name of a tenant's schema; a long one is cut and ends with a digest."""
    name = f"t_{tenant}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = sha256(tenant.encode()).hexdigest()[:16]
    return f"{name[: LONGEST_NAME - len(digest) - 1]}_{digest}"


def newest() -> int:
    return _migrations()[-1][0]


def is_made(connection: psycopg.Connection[Any]) -> bool:
    return connection.execute("SELECT to_regclass('agentops.control')").fetchone() != (None,)


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Create or upgrade the schema that tenants share, one process at a time."""
    if _is_prepared(connection):
        return
    with connection.transaction():
        connection.execute(_LOCKED)
        if not _is_prepared(connection):  # another process may have done it
            connection.execute((resources.files(__package__) / "control.sql").read_bytes())
            connection.execute("UPDATE agentops.control SET version = %s", (CONTROL,))


def brought_up_to_date(
    connection: psycopg.Connection[Any], tenant: TenantId, upgrading: Callable[[], object] = noop
) -> str:
    """Create or migrate a tenant's schema in one transaction, and return its name.

    Raises StartRefused if a newer release has migrated it further than this release can read.
    """
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return _migrate(connection, tenant, upgrading)
        except errors.DeadlockDetected:  # services lock tables in another order
            log.info("deadlock during the migration; starting it again", extra={"tenant": tenant})
    return _migrate(connection, tenant, upgrading)


def is_current(tenant: TenantId, version: int) -> bool:
    """Whether a schema needs no migration; StartRefused if it is too new for this release."""
    if version > newest() + 1:
        raise StartRefused(
            f"The schema of the tenant {tenant} has version {version}, but this program reads only "
            f"{newest()} and the next: use a newer one."
        )
    return version >= newest()


def _migrate(
    connection: psycopg.Connection[Any], tenant: TenantId, upgrading: Callable[[], object]
) -> str:
    schema = schema_of(tenant)
    if is_current(tenant, version_of(connection, tenant)):
        return schema
    with connection.transaction():
        connection.execute(_LOCKED)
        version = version_of(connection, tenant)
        if is_current(tenant, version):  # another process has migrated it
            return schema
        if version > 0:
            upgrading()
        if version == 0:
            connection.execute(cast(Any, f'CREATE SCHEMA "{schema}"'))
        connection.execute(cast(Any, f'SET LOCAL search_path TO "{schema}"'))
        for number, statements in _migrations():
            if number > version:
                connection.execute(statements)
        connection.execute(
            """INSERT INTO agentops.tenants (tenant, schema, version) VALUES (%s, %s, %s)
                   ON CONFLICT (tenant) DO UPDATE SET version = excluded.version""",
            (tenant, schema, newest()),
        )
    return schema


def all_up_to_date(
    connection: psycopg.Connection[Any], upgrading: Callable[[], object] = noop
) -> list[TenantId]:
    """Migrate the schemas of all tenants as needed, and return the tenants.

    Raises StartRefused as `brought_up_to_date` does.
    """
    rows = connection.execute("SELECT tenant, version FROM agentops.tenants ORDER BY tenant")
    versions = {TenantId(tenant): version for tenant, version in rows.fetchall()}
    for tenant, version in versions.items():
        if not is_current(tenant, version):
            brought_up_to_date(connection, tenant, upgrading)
    return [*versions]


def tenants(connection: psycopg.Connection[Any]) -> list[TenantId]:
    """Return the tenants that have a schema, the default one first."""
    if not is_made(connection):
        return []
    names = [tenant for (tenant,) in connection.execute("SELECT tenant FROM agentops.tenants")]
    return sorted(names, key=lambda it: (it != DEFAULT_TENANT, it))


def _is_prepared(connection: psycopg.Connection[Any]) -> bool:
    current = "SELECT FROM agentops.control WHERE version >= %s"
    return is_made(connection) and connection.execute(current, (CONTROL,)).rowcount > 0


def version_of(connection: psycopg.Connection[Any], tenant: TenantId) -> int:
    """Return the version of a tenant's schema; 0 if it has none."""
    row = connection.execute(
        "SELECT version FROM agentops.tenants WHERE tenant = %s", (tenant,)
    ).fetchone()
    return int(row[0]) if row else 0


@cache
def _migrations() -> list[tuple[int, bytes]]:
    files = (resources.files(__package__) / "migrations").iterdir()
    return sorted((int(it.name[:4]), it.read_bytes()) for it in files if it.name.endswith(".sql"))
