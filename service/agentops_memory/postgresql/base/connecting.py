"""A database is connected to, and refused with one sentence where it cannot be used.

No sentence has a part of the URL, and no refusal has a cause: what the driver says quotes hosts,
roles and names of databases.
"""

import logging
import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ...errors import Busy, Conflict, Damaged, Full, Refusal, StartRefused, TimedOut, Unavailable
from ..schema.migrate import CONTROL, prepare
from .connection import adapted

log = logging.getLogger(__name__)

UNREACHABLE_NOW = "The database cannot be reached now."
OTHER_RULES = (
    "The index is by other rules, of another release or setting; try again: a service with the "
    "same rules takes this, or this one when it leads."
)
COLLIDED = (errors.DeadlockDetected, errors.SerializationFailure)
"""A transaction that met one of these did nothing, and may do it when it is run again."""

_LOST = ("08", "57P", "25P03")  # codes of a connection that ends
_SPENT = ("53", "58")  # of a server that has not what it needs

_REFUSALS = (
    (errors.LockNotAvailable, Busy, "Another writer holds the database for too long; try again."),
    (errors.QueryCanceled, TimedOut, "The database took too long to answer."),
    (errors.DiskFull, Full, "No space is left in the database; nothing was stored."),
    (errors.OutOfMemory, Unavailable, "The database has no memory left for this."),
    (errors.TooManyConnections, Busy, "The database has no connection left; try again."),
    (errors.ReadOnlySqlTransaction, Unavailable, "The database takes no writes now."),
    (errors.UndefinedTable, Unavailable, "The tenant's schema is gone from the database."),
    (errors.InsufficientPrivilege, Unavailable, "The database refuses the service's role."),
    (errors.DataCorrupted, Damaged, "A part of the database cannot be read."),
    (errors.IndexCorrupted, Damaged, "An index of the database cannot be read."),
    (COLLIDED, Busy, "Too many writers were in each other's way; try again."),
    (errors.IntegrityError, Conflict, "The stored state does not allow this."),
)


@contextmanager
def translated() -> Iterator[None]:
    """Let errors of the database be refusals; a broken connection is Unavailable."""
    try:
        yield
    except psycopg.Error as error:
        if isinstance(error, errors.NotNullViolation) and error.diag.table_name == "areas":
            raise Unavailable(OTHER_RULES) from error
        for kinds, refusal, sentence in _REFUSALS:
            if isinstance(error, kinds):
                # Logged and raised: the caller is told to come back, the operator can help.
                log.warning("the database refused", extra={"code": error.sqlstate})
                raise refusal(sentence) from error
        if is_lost(error) or (error.sqlstate or "").startswith(_SPENT):
            raise Unavailable(UNREACHABLE_NOW) from error
        raise


def is_lost(error: psycopg.Error) -> bool:
    """Whether it tells of a connection that is no more, or of a server that goes."""
    code = error.sqlstate
    if code is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return code.startswith(_LOST)


OLDEST = 15  # the major version that all is tried with
NEWEST = CONTROL + 1  # that is served: while new pods take the place of old ones both have it
TIMEOUT = timedelta(seconds=3)  # for each host of the URL

# What the URL does not say. A peer that is gone is found out in some ten seconds.
DEFAULTS: dict[str, Any] = {
    "fallback_application_name": "agentops-memory",
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

NO_URL = "MEMORY_DATABASE_URL is no URL of PostgreSQL, such as postgresql://user@host/database."
READ_ONLY = (
    "The database is read-only, as a standby is: MEMORY_DATABASE_URL must name the primary, and "
    "default_transaction_read_only be off."
)
UNREACHABLE = (
    "The database cannot be reached: see the host and the port in MEMORY_DATABASE_URL, and "
    "whether PostgreSQL is running there."
)

# By what the driver says where none can be made; the first that fits. A server may speak another
# language.
_START_REFUSALS: tuple[tuple[tuple[str, ...], type[Refusal], str], ...] = (
    (
        ("password authentication failed", "no password supplied", "authentication failed"),
        StartRefused,
        "The database refuses the role or its password: see those in MEMORY_DATABASE_URL.",
    ),
    (
        ("no pg_hba.conf entry", "pg_hba.conf rejects"),
        StartRefused,
        "The database lets nobody in from here: its pg_hba.conf has no entry for this address.",
    ),
    (
        ("is not permitted to log in",),
        StartRefused,
        "The role may not log in: ALTER ROLE ... LOGIN lets it.",
    ),
    (
        ("permission denied for database",),
        StartRefused,
        "The role may not connect to the database: GRANT CONNECT ON DATABASE lets it.",
    ),
    (
        ("too many connections", "too many clients", "remaining connection slots"),
        Unavailable,
        "No connection is left there: raise max_connections, or lower MEMORY_DATABASE_POOL.",
    ),
    (
        ("is starting up", "is shutting down", "in recovery mode", "not yet accepting"),
        Unavailable,
        "The database is starting or ending; try again in a moment.",
    ),
    (
        ("session is read-only", "is in hot standby mode"),
        Unavailable,
        "No host in MEMORY_DATABASE_URL takes writes now: a primary is missing.",
    ),
    (
        ("not in hot standby mode", "session is not read-only"),
        StartRefused,
        "MEMORY_DATABASE_URL asks for a standby (target_session_attrs), which takes no writes.",
    ),
    (
        ("SSL", "certificate"),
        StartRefused,
        "The connection cannot be encrypted as MEMORY_DATABASE_URL has it (sslmode, sslrootcert).",
    ),
    (
        ("role ",),
        StartRefused,
        "There is no such role: CREATE ROLE makes it, or MEMORY_DATABASE_URL names another.",
    ),
    (
        ("database ",),
        StartRefused,
        "There is no such database: make it, or let MEMORY_DATABASE_URL name another.",
    ),
)

_STATE = """
SELECT getdatabaseencoding(), pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on',
       has_database_privilege(current_database(), 'CREATE'), s.oid IS NOT NULL,
       coalesce(pg_has_role(s.nspowner, 'USAGE'), TRUE),
       EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = s.oid AND c.relname = 'control')
  FROM (SELECT) AS one
  LEFT JOIN pg_namespace s ON s.nspname = 'agentops'"""
_GONE = """
SELECT tenant
  FROM agentops.tenants t
 WHERE NOT EXISTS (SELECT 1 FROM pg_namespace s WHERE s.nspname = t.schema)
 ORDER BY tenant"""


def connect(url: str, *, timeout: timedelta = TIMEOUT) -> psycopg.Connection[Any]:
    """A new connection, in autocommit. StartRefused or Unavailable where there is none."""
    try:
        given = {**DEFAULTS, "connect_timeout": math.ceil(timeout.total_seconds())}
        given |= {**conninfo_to_dict(url), "client_encoding": "UTF8"}
        connection = psycopg.connect(make_conninfo(**given), autocommit=True)
    except psycopg.ProgrammingError:
        raise StartRefused(NO_URL) from None
    except (psycopg.Error, OSError) as error:
        raise _refusal(str(error)) from None
    adapted(connection)
    return connection


def require_usable(connection: psycopg.Connection[Any]) -> None:
    """StartRefused unless all can be stored there; what is there is read, and not changed."""
    version = connection.info.server_version // 10_000
    if version < OLDEST:
        raise StartRefused(f"The database is PostgreSQL {version}; the oldest served is {OLDEST}.")
    with refusing():
        ((encoding, is_standby, is_read_only, may_make, is_there, is_own, has_control),) = (
            connection.execute(_STATE).fetchall()
        )
        if encoding != "UTF8":
            raise StartRefused(
                f"The database has the encoding {encoding}; make one with CREATE DATABASE ... "
                "ENCODING 'UTF8' TEMPLATE template0."
            )
        if is_standby or is_read_only:
            raise StartRefused(READ_ONLY)
        if not may_make:
            raise StartRefused(
                "The role may make no schema in the database: GRANT CREATE ON DATABASE lets it."
            )
        if is_there:
            _require_own(connection, is_own=is_own, has_control=has_control)


@contextmanager
def control(url: str, *, makes: bool = False) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a usable database, perhaps without the schema `agentops` unless it makes it.

    It is for what is not a request: such a connection is not kept.
    """
    with closing(connect(url)) as connection, refusing():
        require_usable(connection)
        if makes:
            prepare(connection)
        yield connection


def _require_own(connection: psycopg.Connection[Any], *, is_own: bool, has_control: bool) -> None:
    if not is_own:
        raise StartRefused(
            "The schema agentops belongs to another role: connect as that one, or make this a "
            "member of it."
        )
    if not has_control:
        raise StartRefused(
            "The database has a schema agentops that this program did not make; it was left as it "
            "is. MEMORY_DATABASE_URL must name another database."
        )
    ((version,),) = connection.execute("SELECT max(version) FROM agentops.control").fetchall()
    if version is None or version > NEWEST:
        raise StartRefused(
            "The database was brought up to date by a newer version of this program; run that one."
        )
    if gone := [tenant for (tenant,) in connection.execute(_GONE)]:
        raise StartRefused(
            f"The schema of the tenant {gone[0]} is gone: put it back from a backup, or delete its "
            "row from agentops.tenants."
        )


@contextmanager
def refusing() -> Iterator[None]:
    """Inside, what the database says is refused in our words, of schemas and roles in others."""
    with translated():
        try:
            yield
        except errors.InsufficientPrivilege:
            raise StartRefused(
                "The role may not use the schema agentops: make it the owner."
            ) from None
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            raise StartRefused(
                "The schema agentops is gone from the database: put it back from a backup."
            ) from None
        except errors.ReadOnlySqlTransaction:
            raise Unavailable(READ_ONLY) from None


def _refusal(said: str) -> Refusal:
    for parts, kind, sentence in _START_REFUSALS:
        if any(part in said for part in parts):
            return kind(sentence)
    return Unavailable(UNREACHABLE)
