"""The schemas of tenants: found, counted, made, measured, and dropped for good."""

import time
from datetime import datetime
from typing import Any, cast

import psycopg

from ..engine.shared.held import held
from ..errors import Busy, Conflict, StartRefused
from ..memory.model.access import DEFAULT_TENANT, TenantId
from ..memory.model.keys import By
from ..memory.model.liveness import undeleted
from ..memory.model.retention import Counted, Retentions, StorageStats
from ..memory.model.rows import micros
from ..memory.model.space import in_a_session
from .base.connection import PostgresConnection
from .base.dialect import POSTGRESQL
from .engine.claims import number_of
from .engine.group_commit import PATIENCE
from .engine.transaction import stored
from .keys import record
from .schema.migrate import brought_up_to_date, is_made, newest, schema_of, tenants

PAUSE = 0.05  # seconds between two looks at who may see what was erased
SEEN = (
    "Somebody may still see what was erased, so the database would keep it. Try again; else end "
    "old transactions (pg_stat_activity, pg_prepared_xacts) and what replication slots hold "
    "(pg_replication_slots)."
)

_TABLES = """
SELECT format('%%I.%%I', schemaname, tablename)
  FROM pg_tables
 WHERE schemaname = %s
 ORDER BY tablename"""
# Whether anybody sees what a transaction that is older than one of ours has removed.
_IS_SEEN = """
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


def tenants_of(connection: Database) -> list[TenantId]:
    """The tenants that have a schema, the default one first."""
    there = tenants(connection) if is_made(connection) else []
    return sorted(there, key=lambda it: (it != DEFAULT_TENANT, it))


def require_current(connection: Database, tenant: TenantId) -> None:
    """Refuse with StartRefused a schema that a start would bring up to date, or could not read."""
    ((version,),) = connection.execute(
        "SELECT version FROM agentops.tenants WHERE tenant = %s", (tenant,)
    ).fetchall()
    if version < newest():
        raise StartRefused(
            f"The schema of the tenant {tenant} is of an older version: start the service once, "
            "which brings it up to date."
        )
    if version > newest() + 1:
        raise StartRefused(
            f"The schema of the tenant {tenant} is of version {version}, and this program reads "
            f"{newest()} and the next: use a newer one."
        )


def size_of(connection: Database, tenant: TenantId) -> int:
    with connection.transaction():
        use_schema(connection, tenant)
        return stored(PostgresConnection(connection))


def counted(connection: Database, tenant: TenantId) -> Counted:
    with connection.transaction():
        use_schema(connection, tenant)
        ((memories, sessions, stores),) = connection.execute(_COUNTS).fetchall()
        size = stored(PostgresConnection(connection))
    return Counted(size=size, memories=memories, sessions=sessions, stores=stores)


def use_schema(connection: Database, tenant: TenantId) -> None:
    """Let names mean those of a tenant's schema, to the end of the transaction."""
    connection.execute(cast(Any, f'SET LOCAL search_path TO "{schema_of(tenant)}"'))


def make(connection: Database, tenant: TenantId, at: datetime, by: By) -> None:
    """Make a tenant's schema, audited in the same transaction; Conflict if it is there."""
    with connection.transaction():
        if tenant in tenants(connection):
            raise Conflict(
                f"The tenant {tenant} has a database already: the schema {schema_of(tenant)}."
            )
        record(connection, at, "tenant.created", by, tenant=tenant)
        brought_up_to_date(connection, tenant)


def drop(connection: Database, tenant: TenantId, at: datetime, by: By, **counts: object) -> None:
    """Drop a tenant's schema, audited in the same transaction; Busy while it is in use."""
    _set_lock_timeout(connection)
    with connection.transaction():
        record(connection, at, "tenant.erased", by, tenant=tenant, **counts)
        connection.execute(cast(Any, f'DROP SCHEMA IF EXISTS "{schema_of(tenant)}" CASCADE'))
        connection.execute("DELETE FROM agentops.tenants WHERE tenant = %s", (tenant,))


def rewrite(connection: Database, tenant: TenantId, at: datetime) -> None:
    """Write each table of a tenant anew, without what was erased by now; others wait meanwhile.

    Busy while anybody may see it.
    """
    _set_lock_timeout(connection)
    with connection.transaction():  # alone: what has begun to erase by now, has ended
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (number_of(schema_of(tenant)),))
        ((own,),) = connection.execute("SELECT CAST(pg_current_xact_id() AS TEXT)").fetchall()
    _require_unseen(connection, own)
    for (table,) in connection.execute(_TABLES, (schema_of(tenant),)).fetchall():
        connection.execute(cast(Any, f"VACUUM (FULL, ANALYZE) {table}"))
    connection.execute(
        "UPDATE agentops.tenants SET rewritten_at = %s WHERE tenant = %s", (micros(at), tenant)
    )


def _require_unseen(connection: Database, transaction: str) -> None:
    until = time.monotonic() + PATIENCE.total_seconds()
    while connection.execute(_IS_SEEN, (transaction,)).fetchone() == (True,):
        if time.monotonic() >= until:
            raise Busy(SEEN)
        time.sleep(PAUSE)


def _set_lock_timeout(connection: Database) -> None:
    connection.execute(cast(Any, f"SET lock_timeout = '{PATIENCE.total_seconds()}s'"))


_WORDS = "SELECT pg_total_relation_size('postings')"


def storage_stats(
    connection: psycopg.Connection[Any], tenant: TenantId, retention: Retentions, now: datetime
) -> StorageStats:
    """The sizes of a tenant's tables, on one snapshot of what they hold."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        use_schema(connection, tenant)
        ((words,),) = connection.execute(_WORDS).fetchall()
        ours = PostgresConnection(connection)
        return StorageStats(
            database=stored(ours),
            free=0,
            index=int(words),
            log=0,
            copies=0,
            held=held(ours, POSTGRESQL, retention, now),
        )
