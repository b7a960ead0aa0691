"""A database is examined: its server, and the schema of each tenant. Nothing is changed."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from ..errors import Refusal, StartRefused
from ..memory.model.access import TenantId
from ..memory.model.findings import Finding, failed, note, ok, some_of, warn
from ..memory.model.liveness import indexed
from .base.connecting import connect, refusing, require_usable
from .base.connection import PostgresConnection
from .base.values import damaged
from .schema.migrate import is_made, schema_of
from .tenants import require_current, size_of, tenants_of, use_schema

MIB = 1024 * 1024
STANDBY = "No synchronous standby is named, so what was acknowledged can be lost with the primary."
PRIMARY = "A commit does not wait until it is on the disk of a standby: synchronous_commit is {}."
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
_DRIFT = f"""
SELECT coalesce(sum(abs(coalesce(a.memories, 0) - coalesce(m.number, 0))), 0)
  FROM areas a
  FULL JOIN (SELECT s.area, count(*) AS number
               FROM spaces s
               JOIN memories m ON m.space_id = s.id
              WHERE s.area >= 0 AND {indexed("m")}
           GROUP BY s.area) m ON m.area = a.area"""

Database = psycopg.Connection[Any]


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """A connection for an examination: the database need not be usable."""
    with closing(connect(url)) as connection, refusing():
        yield connection


def tenants_in(url: str) -> list[TenantId]:
    """The tenants that the database has; none while it has no schema of ours."""
    with opened(url) as connection:
        require_usable(connection)
        return tenants_of(connection)


def check_server(url: str) -> Iterator[Finding]:
    with opened(url) as connection:
        try:
            require_usable(connection)
        except Refusal as refusal:
            yield failed("database", str(refusal), "Until then no service starts.")
            return
        yield ok("database", f"PostgreSQL {connection.info.server_version // 10_000}, UTF8.")
        settings = dict(connection.execute(_SETTINGS, ([*UNSAFE, *_OTHERS],)).fetchall())
        yield from check_durability(settings)
        yield _check_transactions(connection)
        yield _check_autovacuum(connection, settings)


def check_schema(url: str, tenant: TenantId) -> Iterator[Finding]:
    with opened(url) as connection:
        if tenant not in tenants_of(connection):
            made = "a start of the service, or its first save, makes it."
            yield note("format", f"There is no schema {schema_of(tenant)}; {made}")
            return
        try:
            require_current(connection, tenant)
        except StartRefused as refusal:
            yield failed("format", str(refusal), "A start brings it up to date.")
            return
        yield ok("format", f"The schema {schema_of(tenant)} is of this version.")
        yield _check_indexes(connection, tenant)
        yield _check_values(connection, tenant)
        yield _check_words(connection, tenant)
        yield ok("size", f"It has {size_of(connection, tenant) / MIB:.1f} MiB.")


_OTHERS = ("synchronous_standby_names", "autovacuum")


def check_durability(settings: dict[str, str]) -> Iterator[Finding]:
    """What is left of what was acknowledged, by the server's settings."""
    if unsafe := [name for name in UNSAFE if settings[name] == "off"]:
        yield warn(
            "durability",
            f"These are off, so that a crash loses what was acknowledged: {', '.join(unsafe)}.",
            "Set them to on.",
        )
    elif not settings["synchronous_standby_names"]:
        yield warn("durability", STANDBY, "Name one in synchronous_standby_names.")
    elif (waits := settings["synchronous_commit"]) not in ("on", "remote_apply"):
        yield warn("durability", PRIMARY.format(waits), "Set it to on.")
    else:
        yield ok("durability", "A commit is on disk, and on a standby, before it is acknowledged.")


def _check_transactions(connection: Database) -> Finding:
    ((number, longest),) = connection.execute(_LONG).fetchall()
    if not number:
        return ok("transactions", "None is older than an hour.")
    return warn(
        "transactions",
        f"{number} are older than an hour, one of {float(longest) / 3600:.0f} hours: until they "
        "end, no VACUUM removes what was deleted since.",
        "End them: pg_stat_activity tells whose they are.",
    )


def _check_autovacuum(connection: Database, settings: dict[str, str]) -> Finding:
    if settings["autovacuum"] == "off":
        told = "It is off: tables grow, searches get slower, and what was erased stays in pages."
        return warn("autovacuum", told, "Set autovacuum to on.")
    without = [it for (it,) in connection.execute(_UNVACUUMED)] if is_made(connection) else []
    if without:
        told = f"It is off for these tables: {some_of(without)}."
        return warn("autovacuum", told, "ALTER TABLE ... RESET (autovacuum_enabled)")
    return ok("autovacuum", "It is on.")


def _check_indexes(connection: Database, tenant: TenantId) -> Finding:
    if invalid := [it for (it,) in connection.execute(_INVALID, (schema_of(tenant),))]:
        told = f"These indexes of tables are not valid: {some_of(invalid)}."
        return failed("schema", told, f'REINDEX SCHEMA "{schema_of(tenant)}"')
    return ok("schema", "Every index of a table is valid.")


def _check_values(connection: Database, tenant: TenantId) -> Finding:
    with connection.transaction():
        use_schema(connection, tenant)
        found = damaged(PostgresConnection(connection))
    if not found:
        return ok("values", "Each row can be what it was stored as.")
    return failed(
        "values",
        f"Rows are damaged, and are not served: {some_of(found)}.",
        "Nothing says what was there: restore a backup of the database, or correct the row by SQL.",
    )


def _check_words(connection: Database, tenant: TenantId) -> Finding:
    with connection.transaction():
        use_schema(connection, tenant)
        ((drift,),) = connection.execute(_DRIFT).fetchall()
    if drift:
        return warn(
            "index",
            f"It differs from the memories by {drift:,} rows.",
            f"The next sweep mends it, or `agentops-memory index --rebuild --tenant {tenant}`.",
        )
    return ok("index", "It has as many rows as there are memories.")
