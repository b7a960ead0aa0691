"""The schemas of tenants: found, counted, made, measured, and dropped for good."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any, cast

import psycopg

from ..errors import Busy, Conflict, Refusal, StartRefused
from ..memory.access import TenantId
from ..memory.damage import Finding, failed, note, ok, some_of, warn
from ..memory.erasure import held
from ..memory.keys import By
from ..memory.memory import undeleted
from ..memory.retention import Counted, Retentions, StorageStats
from ..memory.rows import micros
from ..memory.space import in_a_session
from .connection import (
    POSTGRESQL,
    PostgresConnection,
    connect,
    control,
    damaged,
    refusing,
    require_usable,
)
from .index import DRIFTS
from .keys import record
from .migrate import brought_up_to_date, is_made, newest, schema_of, tenants
from .transaction import MAX_WAIT, number_of, stored

PAUSE = 0.05  # seconds between two looks at who may see what was erased
STILL_VISIBLE = (
    "A transaction may still see erased data, so the database would keep it. Try again; if that "
    "does not help, end old transactions (pg_stat_activity, pg_prepared_xacts) and release what "
    "replication slots hold (pg_replication_slots)."
)

_TABLES = """
SELECT format('%%I.%%I', schemaname, tablename)
  FROM pg_tables
 WHERE schemaname = %s
 ORDER BY tablename"""
# Whether anybody sees what a transaction that is older than one of ours has removed.
_IS_VISIBLE = """
SELECT EXISTS (
    SELECT FROM (SELECT unnest(ARRAY[backend_xid, backend_xmin]) AS xid
                   FROM pg_stat_activity
                  WHERE pid <> pg_backend_pid() AND coalesce(datname = current_database(), TRUE)
              UNION ALL
                 SELECT xmin FROM pg_replication_slots
              UNION ALL
                 SELECT transaction FROM pg_prepared_xacts WHERE database = current_database()) its
     WHERE age(xid) > age(CAST(%s AS xid)))"""
_COUNTS = f"""
SELECT (SELECT count(*)
          FROM memories
         WHERE {undeleted("memories")} AND {in_a_session("memories")}),
       (SELECT count(*) FROM sessions),
       (SELECT count(*) FROM stores WHERE erasure_id IS NULL)"""

Database = psycopg.Connection[Any]


def require_current(connection: Database, tenant: TenantId) -> None:
    """Refuse with StartRefused a schema that a start would bring up to date, or could not read."""
    ((version,),) = connection.execute(
        "SELECT version FROM agentops.tenants WHERE tenant = %s", (tenant,)
    ).fetchall()
    if version < newest():
        raise StartRefused(
            f"The schema of the tenant {tenant} has an older version: start the service once to "
            "upgrade it."
        )
    if version > newest() + 1:
        raise StartRefused(
            f"The schema of the tenant {tenant} has version {version}, but this program reads "
            f"only {newest()} and the next: use a newer one."
        )


@contextmanager
def snapshot(connection: Database, tenant: TenantId) -> Iterator[PostgresConnection]:
    """Inside, names mean those of a tenant's schema, and what is read is of one state."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(cast(Any, f'SET LOCAL search_path TO "{schema_of(tenant)}"'))
        yield PostgresConnection(connection)


def counted(connection: Database, tenant: TenantId) -> Counted:
    with snapshot(connection, tenant) as ours:
        memories, sessions, stores = ours.execute(_COUNTS).fetchone()
        return Counted(size=stored(ours), memories=memories, sessions=sessions, stores=stores)


def make(connection: Database, tenant: TenantId, at: datetime, by: By) -> None:
    """Make a tenant's schema, audited in the same transaction; Conflict if it is there."""
    with connection.transaction():
        if tenant in tenants(connection):
            raise Conflict(
                f"The tenant {tenant} already has a database: the schema {schema_of(tenant)}."
            )
        record(connection, at, "tenant.created", by, tenant=tenant)
        brought_up_to_date(connection, tenant)


def drop(connection: Database, tenant: TenantId, at: datetime, by: By, **counts: object) -> None:
    """Drop a tenant's schema, audited in the same transaction; Busy while it is in use."""
    connection.execute(cast(Any, f"SET lock_timeout = '{MAX_WAIT.total_seconds()}s'"))
    with connection.transaction():
        record(connection, at, "tenant.erased", by, tenant=tenant, **counts)
        connection.execute(cast(Any, f'DROP SCHEMA IF EXISTS "{schema_of(tenant)}" CASCADE'))
        connection.execute("DELETE FROM agentops.tenants WHERE tenant = %s", (tenant,))


def rewrite(connection: Database, tenant: TenantId, at: datetime) -> None:
    """Write each table of a tenant anew, without what was erased by now; others wait meanwhile.

    Busy while anybody may see it.
    """
    connection.execute(cast(Any, f"SET lock_timeout = '{MAX_WAIT.total_seconds()}s'"))
    with connection.transaction():  # alone: what has begun to erase by now, has ended
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (number_of(schema_of(tenant)),))
        ((own,),) = connection.execute("SELECT CAST(pg_current_xact_id() AS TEXT)").fetchall()
    until = time.monotonic() + MAX_WAIT.total_seconds()
    while connection.execute(_IS_VISIBLE, (own,)).fetchone() == (True,):
        if time.monotonic() >= until:
            raise Busy(STILL_VISIBLE)
        time.sleep(PAUSE)
    for (table,) in connection.execute(_TABLES, (schema_of(tenant),)).fetchall():
        connection.execute(cast(Any, f"VACUUM (FULL, ANALYZE) {table}"))
    connection.execute(
        "UPDATE agentops.tenants SET rewritten_at = %s WHERE tenant = %s", (micros(at), tenant)
    )


def storage_stats(
    connection: psycopg.Connection[Any], tenant: TenantId, retention: Retentions, now: datetime
) -> StorageStats:
    """The sizes of a tenant's tables, on one snapshot of what they hold."""
    with snapshot(connection, tenant) as ours:
        ((words,),) = ours.execute("SELECT pg_total_relation_size('postings')")
        return StorageStats(
            database=stored(ours),
            free=0,
            index=words,
            log=0,
            copies=0,
            held=held(ours, POSTGRESQL, retention, now),
        )


MIB = 1024 * 1024
STANDBY = "No synchronous standby is named, so acknowledged writes can be lost with the primary."
PRIMARY = "A commit does not wait for the disk of a standby: synchronous_commit is {}."
UNSAFE = ("fsync", "full_page_writes", "synchronous_commit")  # off: a crash loses or damages rows

_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
_LONG = """
SELECT count(*), coalesce(max(extract(epoch FROM now() - xact_start)), 0)
  FROM pg_stat_activity
 WHERE datname = current_database() AND xact_start < now() - INTERVAL '1 hour'"""
_UNVACUUMED = """
SELECT format('%I.%I', n.nspname, c.relname)
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN agentops.tenants t ON t.schema = n.nspname
 WHERE EXISTS (SELECT FROM pg_options_to_table(c.reloptions)
                WHERE option_name = 'autovacuum_enabled' AND NOT CAST(option_value AS BOOLEAN))
 ORDER BY 1"""
_INVALID = """
SELECT c.relname
  FROM pg_index i
  JOIN pg_class c ON c.oid = i.indexrelid
 WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND NOT (i.indisvalid AND i.indisready)
 ORDER BY 1"""
_DRIFT = f"SELECT coalesce(sum(drift), 0) FROM ({DRIFTS}) its"


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """A connection for an examination: the database need not be usable."""
    with closing(connect(url)) as connection, refusing():
        yield connection


def tenants_in(url: str) -> list[TenantId]:
    """The tenants that the database has; none while it has no schema of ours."""
    with control(url) as connection:
        return tenants(connection)


def check_server(url: str) -> Iterator[Finding]:
    with opened(url) as connection:
        try:
            require_usable(connection)
        except Refusal as refusal:
            yield failed("database", str(refusal), "The service cannot start before this is fixed.")
            return
        yield ok("database", f"PostgreSQL {connection.info.server_version // 10_000}, UTF8.")
        names = [*UNSAFE, "synchronous_standby_names", "autovacuum"]
        settings = dict(connection.execute(_SETTINGS, (names,)).fetchall())
        yield from check_durability(settings)
        ((number, longest),) = connection.execute(_LONG).fetchall()
        if number:
            yield warn(
                "transactions",
                f"Older than an hour: {number}, the oldest {float(longest) / 3600:.0f} hours. "
                "Until they end, VACUUM removes nothing that was deleted since.",
                "End them: pg_stat_activity shows whose they are.",
            )
        else:
            yield ok("transactions", "None is older than an hour.")
        if settings["autovacuum"] == "off":
            problem = "tables grow, searches get slower, and what was erased stays in pages."
            yield warn("autovacuum", f"It is off: {problem}", "Set autovacuum to on.")
        elif is_made(connection) and (without := [it for (it,) in connection.execute(_UNVACUUMED)]):
            problem = f"It is off for these tables: {some_of(without)}."
            yield warn("autovacuum", problem, "ALTER TABLE ... RESET (autovacuum_enabled)")
        else:
            yield ok("autovacuum", "It is on.")


def check_schema(url: str, tenant: TenantId) -> Iterator[Finding]:
    with opened(url) as connection:
        if tenant not in tenants(connection):
            absent = f"There is no schema {schema_of(tenant)}; starting the service, or the first"
            yield note("format", f"{absent} save, creates it.")
            return
        try:
            require_current(connection, tenant)
        except StartRefused as refusal:
            yield failed("format", str(refusal), "Starting the service upgrades it.")
            return
        yield ok("format", f"The schema {schema_of(tenant)} has this version.")
        if invalid := [it for (it,) in connection.execute(_INVALID, (schema_of(tenant),))]:
            problem = f"These indexes are invalid: {some_of(invalid)}."
            yield failed("schema", problem, f'REINDEX SCHEMA "{schema_of(tenant)}"')
        else:
            yield ok("schema", "Every index is valid.")
        with snapshot(connection, tenant) as ours:
            yield from _check_rows(ours, tenant)


def check_durability(settings: dict[str, str]) -> Iterator[Finding]:
    """What is left of what was acknowledged, by the server's settings."""
    if unsafe := [name for name in UNSAFE if settings[name] == "off"]:
        yield warn(
            "durability",
            f"These are off, so a crash can lose acknowledged writes: {', '.join(unsafe)}.",
            "Set them to on.",
        )
    elif not settings["synchronous_standby_names"]:
        yield warn("durability", STANDBY, "Name one in synchronous_standby_names.")
    elif (waits := settings["synchronous_commit"]) not in ("on", "remote_apply"):
        yield warn("durability", PRIMARY.format(waits), "Set it to on.")
    else:
        yield ok("durability", "A commit is on disk, and on a standby, before it is acknowledged.")


def _check_rows(connection: PostgresConnection, tenant: TenantId) -> Iterator[Finding]:
    if rows := damaged(connection):
        yield failed(
            "values",
            f"These rows are damaged, and not served: {some_of(rows)}.",
            "Their values are unknown: restore a backup of the database, or correct them with SQL.",
        )
    else:
        yield ok("values", "Every row has valid values.")
    ((drift,),) = connection.execute(_DRIFT)
    if drift:
        yield warn(
            "index",
            f"It differs from the memories in {drift:,} row{'s' * (drift != 1)}.",
            "The next sweep repairs it; to repair it now, run `agentops-memory index --rebuild "
            f"--tenant {tenant}`.",
        )
    else:
        yield ok("index", "Its number of rows matches the memories.")
    yield ok("size", f"It has {stored(connection) / MIB:.1f} MiB.")
