"""The schemas of tenants: listed, created, measured, checked and dropped; and all keys.

Keys are changed and audited in one transaction, and each process watches for changes.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import Any, cast

import psycopg

from ..errors import Busy, Conflict, Refusal, StartRefused, Unavailable
from ..light import dataclass, replace
from ..memory.access import By, Caller, KeyRegistry, KeyRing, Put, TenantId
from ..memory.damage import (
    MOST_TOLD,
    Finding,
    RowDamage,
    checks_of,
    failed,
    note,
    ok,
    some_of,
    warn,
)
from ..memory.erasure import held
from ..memory.memory import undeleted
from ..memory.rows import micros
from ..memory.space import Counted, Held, Kind, Retentions, StorageStats, in_a_session
from ..operations.files import keys
from . import connection as pg
from .index import DRIFTS
from .transaction import MAX_WAIT, number_of, stored

_PAST_RETENTION = """at <= %(until)s
   AND number < coalesce(
       (SELECT min(number) FROM agentops.audit WHERE at > %(until)s), number + 1)"""
_MEASURED = f"SELECT count(*), count(*) FILTER (WHERE {_PAST_RETENTION}) FROM agentops.audit"
_TRIM = f"DELETE FROM agentops.audit WHERE {_PAST_RETENTION}"


@dataclass(frozen=True, slots=True)
class PostgresAudit:
    """The AuditLog of a database; `by` returns the principal of a caller."""

    url: str
    clock: Callable[[], datetime]
    by: Callable[[Caller], By] = keys.by_key

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        try:
            with pg.control(self.url, makes=True) as connection:
                record(connection, self.clock(), action, self.by(caller), **fields)
        except StartRefused as refusal:  # temporary for a request, as after a failover
            raise Unavailable(str(refusal)) from None

    def trim(self, until: datetime) -> int:
        values = {"until": micros(until)}
        with pg.control(self.url) as connection:
            return connection.execute(_TRIM, values).rowcount if pg.is_made(connection) else 0

    def measured(self, until: datetime | None) -> Held:
        values = {"until": -(1 << 62) if until is None else micros(until)}
        with pg.control(self.url, makes=True) as connection:
            ((rows, over),) = connection.execute(_MEASURED, values).fetchall()
        return Held(kind=Kind.AUDIT, rows=rows, past_retention=over)


def record(
    connection: psycopg.Connection[Any], at: datetime, action: str, by: By, **fields: object
) -> None:
    """Add an audit row in the current transaction of the connection."""
    written = keys.line(at, action, by, **fields).decode().rstrip("\n")
    connection.execute(
        "INSERT INTO agentops.audit (at, line) VALUES (%(at)s, %(line)s)",
        {"at": micros(at), "line": written},
    )


CHANNEL = "agentops_keys"
POLL_INTERVAL = timedelta(milliseconds=500)  # between two reads of keys, if none is notified
NO_SCHEMA = -1  # the number of key changes while there is no schema
STOP_INTERVAL = timedelta(milliseconds=100)  # between two checks whether to stop watching
MAX_AGE = timedelta(seconds=5)  # after which keys that were read are not used any more
LOST = (
    "Keys were created, but the database has none. Put them back, or create a key with "
    "`agentops-memory keys create --name NAME --role admin`; to give everyone access without a "
    "key, `agentops-memory keys reset --open`."
)

_RING = """
SELECT key_changes, has_keys, ARRAY(SELECT record FROM agentops.keys ORDER BY number)
  FROM agentops.control
 WHERE key_changes <> %(known)s"""
_PUT = """
INSERT INTO agentops.keys (id, record) VALUES (%(id)s, %(record)s)
    ON CONFLICT (id) DO UPDATE SET record = excluded.record"""

log = logging.getLogger(__name__)


class PostgresKeys(KeyRegistry):
    def __init__(self, url: str) -> None:
        self._url = url

    def ring(self) -> KeyRing:
        with pg.control(self._url) as connection:
            return _ring(connection)

    def require_kept(self, ring: KeyRing) -> None:
        if ring.was_ever_used and not ring.keys:
            raise Unavailable(LOST)

    def are_lost(self) -> bool:
        ring = self.ring()
        return ring.was_ever_used and not ring.keys

    @contextmanager
    def changing(self) -> Iterator[tuple[KeyRing, Put]]:
        with pg.control(self._url, makes=True) as connection, connection.transaction():
            connection.execute("SELECT FROM agentops.control FOR UPDATE")
            ring = _ring(connection)
            yield ring, partial(_put, connection, ring)


class WatchedPostgresKeys:
    """The KeyStore of a database: a change takes effect within a second.

    If the keys could not be read for five seconds, every key is refused until they can be.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._known: tuple[int, KeyRing] | None = None
        self._read_at = 0.0
        self._reported = ""
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="keys", daemon=True)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within, changes are noticed from the first `read` on."""
        try:
            yield
        finally:
            self._is_stopping.set()
            if self._thread.is_alive():
                self._thread.join()

    def ring(self) -> KeyRing:
        known = self._known
        if known is None or time.monotonic() - self._read_at > MAX_AGE.total_seconds():
            raise Unavailable("The keys cannot be read; the log of the service says why.")
        return known[1]

    def read(self) -> KeyRing:
        with pg.control(self._url) as connection:
            self._refresh(connection)
        ring = self.ring()
        PostgresKeys(self._url).require_kept(ring)
        self._thread.start()
        return ring

    def _watch(self) -> None:
        while not self._is_stopping.is_set():
            try:
                with pg.opened(self._url) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._follow(connection)
            except (Refusal, psycopg.Error) as error:
                reason = str(error) if isinstance(error, Refusal) else type(error).__name__
                if reason != self._reported:
                    self._reported = reason
                    log.error("the keys cannot be read", extra={"reason": reason})
                self._is_stopping.wait(STOP_INTERVAL.total_seconds())

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        refreshed_at = 0.0
        while not self._is_stopping.is_set():
            if time.monotonic() - refreshed_at >= POLL_INTERVAL.total_seconds():
                refreshed_at = time.monotonic()
                self._refresh(connection)
            if [*connection.notifies(timeout=STOP_INTERVAL.total_seconds(), stop_after=1)]:
                refreshed_at = 0.0

    def _refresh(self, connection: psycopg.Connection[Any]) -> None:
        began = time.monotonic()
        known = self._known[0] if self._known else NO_SCHEMA
        if known == NO_SCHEMA and not pg.is_made(connection):
            self._known = NO_SCHEMA, KeyRing()
        elif row := connection.execute(_RING, {"known": known}).fetchone():
            try:
                self._known = row[0], _read(row)
            except Unavailable:
                self._known = None
                raise
            log.info("keys loaded", extra={"keys": len(self._known[1].keys)})
        self._read_at, self._reported = began, ""


def _ring(connection: psycopg.Connection[Any]) -> KeyRing:
    if not pg.is_made(connection):
        return KeyRing()
    row = connection.execute(_RING, {"known": NO_SCHEMA}).fetchone()
    if row is None:
        raise Unavailable("The table agentops.control has no row: restore it from a backup.")
    return _read(row)


def _read(row: tuple[int, bool, list[str]]) -> KeyRing:
    _, has_keys, records = row
    document = f'{{"version": {keys.VERSION}, "keys": [{", ".join(records)}]}}'
    try:
        ring = keys.read(document.encode())
    except (ValueError, RecursionError) as fault:
        raise Unavailable(f"The keys in the database cannot be used: {fault}.") from fault
    return replace(ring, was_ever_used=has_keys or bool(ring.keys))


def _put(
    connection: psycopg.Connection[Any], before: KeyRing, ring: KeyRing, at: datetime, action: str,
    by: By, **fields: object,
) -> None:  # fmt: skip
    for key in ring.keys.values():
        if before.keys.get(key.id) != key:
            values = {"id": key.id, "record": json.dumps(keys.record_of(key))}
            connection.execute(_PUT, values)
    gone = [*(before.keys.keys() - ring.keys.keys())]
    connection.execute("DELETE FROM agentops.keys WHERE id = ANY(%(gone)s)", {"gone": gone})
    record(connection, at, action, by, **fields)
    connection.execute(
        "UPDATE agentops.control SET has_keys = %(used)s, key_changes = key_changes + 1",
        {"used": ring.was_ever_used},
    )
    connection.execute(f"NOTIFY {CHANNEL}")


VISIBILITY_INTERVAL = 0.05  # seconds between two checks whether erased rows are still visible
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
# Whether rows that were deleted before a transaction of ours are still visible to any other.
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
    """Raise StartRefused for a schema that a start would upgrade, or could not read."""
    if not pg.is_current(tenant, pg.version_of(connection, tenant)):
        raise StartRefused(
            f"The schema of the tenant {tenant} has an older version: start the service once to "
            "upgrade it."
        )


@contextmanager
def snapshot(connection: Database, tenant: TenantId) -> Iterator[pg.PostgresConnection]:
    """Within, names are those of a tenant's schema, and all reads use one snapshot."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(cast(Any, f'SET LOCAL search_path TO "{pg.schema_of(tenant)}"'))
        yield pg.PostgresConnection(connection)


def counted(connection: Database, tenant: TenantId) -> Counted:
    with snapshot(connection, tenant) as ours:
        ((memories, sessions, stores),) = ours.execute(_COUNTS)
        return Counted(size=stored(ours), memories=memories, sessions=sessions, stores=stores)


def make(connection: Database, tenant: TenantId, at: datetime, by: By) -> None:
    """Create a tenant's schema, audited in the same transaction; Conflict if it exists."""
    with connection.transaction():
        if tenant in pg.tenants(connection):
            raise Conflict(
                f"The tenant {tenant} already has a database: the schema {pg.schema_of(tenant)}."
            )
        record(connection, at, "tenant.created", by, tenant=tenant)
        pg.brought_up_to_date(connection, tenant)


def drop(connection: Database, tenant: TenantId, at: datetime, by: By, **counts: object) -> None:
    """Drop a tenant's schema, audited in the same transaction; Busy while it is in use."""
    connection.execute(cast(Any, f"SET lock_timeout = '{MAX_WAIT.total_seconds()}s'"))
    with connection.transaction():
        record(connection, at, "tenant.erased", by, tenant=tenant, **counts)
        connection.execute(cast(Any, f'DROP SCHEMA IF EXISTS "{pg.schema_of(tenant)}" CASCADE'))
        connection.execute("DELETE FROM agentops.tenants WHERE tenant = %s", (tenant,))


def rewrite(connection: Database, tenant: TenantId, at: datetime) -> None:
    """Rewrite each table of a tenant without erased rows; other transactions wait meanwhile.

    Raises Busy if an old transaction may still see erased rows.
    """
    connection.execute(cast(Any, f"SET lock_timeout = '{MAX_WAIT.total_seconds()}s'"))
    with connection.transaction():  # exclusively: erasures that have begun are committed
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (number_of(pg.schema_of(tenant)),))
        ((own,),) = connection.execute("SELECT CAST(pg_current_xact_id() AS TEXT)").fetchall()
    until = time.monotonic() + MAX_WAIT.total_seconds()
    while connection.execute(_IS_VISIBLE, (own,)).fetchone() == (True,):
        if time.monotonic() >= until:
            raise Busy(STILL_VISIBLE)
        time.sleep(VISIBILITY_INTERVAL)
    for (table,) in connection.execute(_TABLES, (pg.schema_of(tenant),)).fetchall():
        connection.execute(cast(Any, f"VACUUM (FULL, ANALYZE) {table}"))
    connection.execute(
        "UPDATE agentops.tenants SET rewritten_at = %s WHERE tenant = %s", (micros(at), tenant)
    )


def storage_stats(
    connection: psycopg.Connection[Any], tenant: TenantId, retention: Retentions, now: datetime
) -> StorageStats:
    """Return the sizes of a tenant's tables, and the retention of rows in one snapshot."""
    with snapshot(connection, tenant) as ours:
        ((words,),) = ours.execute("SELECT pg_total_relation_size('postings')")
        return StorageStats(
            database=stored(ours), free=0, index=words, log=0, copies=0,
            held=held(ours, pg.POSTGRESQL, retention, now),
        )  # fmt: skip


_COLUMNS = """SELECT c.table_name, c.column_name,
                     CASE c.data_type WHEN 'text' THEN 'TEXT' WHEN 'bytea' THEN 'BLOB'
                                      WHEN 'double precision' THEN 'REAL'
                                      WHEN 'boolean' THEN 'BOOLEAN' ELSE 'INTEGER' END,
                     c.is_nullable = 'YES'
                FROM information_schema.columns c
                JOIN information_schema.tables t USING (table_schema, table_name)
               WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE'
            ORDER BY c.table_name, c.ordinal_position"""


def damaged(connection: pg.PostgresConnection) -> list[RowDamage]:
    """Return the first damaged rows by table, in a transaction of the tenant."""
    checks = checks_of(connection.execute(_COLUMNS).fetchall())
    damage = (it.found(connection.read(it.selecting("ctid"), {})) for it in checks)
    return list(islice(chain.from_iterable(damage), MOST_TOLD))


MIB = 1024 * 1024
STANDBY = "No synchronous standby is named, so acknowledged writes can be lost with the primary."
PRIMARY = "A commit does not wait for the disk of a standby: synchronous_commit is {}."
UNSAFE = ("fsync", "full_page_writes", "synchronous_commit")  # off: a crash loses or damages rows

_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
_OLD_TRANSACTIONS = """
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
_DRIFT = f"SELECT coalesce(sum(drift), 0) FROM ({DRIFTS}) its"


def check_server(url: str) -> Iterator[Finding]:
    with pg.opened(url) as connection:
        try:
            pg.require_usable(connection)
        except Refusal as refusal:
            yield failed("database", str(refusal), "The service cannot start before this is fixed.")
            return
        yield ok("database", f"PostgreSQL {connection.info.server_version // 10_000}, UTF8.")
        names = [*UNSAFE, "synchronous_standby_names", "autovacuum"]
        settings = dict(connection.execute(_SETTINGS, (names,)).fetchall())
        yield from check_durability(settings)
        ((number, longest),) = connection.execute(_OLD_TRANSACTIONS).fetchall()
        fine = ok("transactions", "None is older than an hour.")
        problem = f"Older than an hour: {number}, the oldest {float(longest) / 3600:.0f} hours."
        problem += " Until they end, VACUUM removes nothing that was deleted since."
        remedy = "End them: pg_stat_activity shows whose they are."
        yield warn("transactions", problem, remedy) if number else fine
        if settings["autovacuum"] == "off":
            problem = "tables grow, searches get slower, and what was erased stays in pages."
            yield warn("autovacuum", f"It is off: {problem}", "Set autovacuum to on.")
        elif pg.is_made(connection) and (
            without := [it for (it,) in connection.execute(_UNVACUUMED)]
        ):
            problem = f"It is off for these tables: {some_of(without)}."
            yield warn("autovacuum", problem, "ALTER TABLE ... RESET (autovacuum_enabled)")
        else:
            yield ok("autovacuum", "It is on.")


def check_schema(url: str, tenant: TenantId) -> Iterator[Finding]:
    with pg.opened(url) as connection:
        if tenant not in pg.tenants(connection):
            absent = f"There is no schema {pg.schema_of(tenant)}; starting the service, or"
            yield note("format", f"{absent} the first save, creates it.")
            return
        try:
            require_current(connection, tenant)
        except StartRefused as refusal:
            yield failed("format", str(refusal), "Starting the service upgrades it.")
            return
        yield ok("format", f"The schema {pg.schema_of(tenant)} has this version.")
        with snapshot(connection, tenant) as ours:
            yield from _check_rows(ours, tenant)


def check_durability(settings: dict[str, str]) -> Iterator[Finding]:
    """Check whether the server's settings keep acknowledged writes after a crash."""
    if unsafe := [name for name in UNSAFE if settings[name] == "off"]:
        problem = f"These are off, so a crash can lose acknowledged writes: {', '.join(unsafe)}."
        yield warn("durability", problem, "Set them to on.")
    elif not settings["synchronous_standby_names"]:
        yield warn("durability", STANDBY, "Name one in synchronous_standby_names.")
    elif (waits := settings["synchronous_commit"]) not in ("on", "remote_apply"):
        yield warn("durability", PRIMARY.format(waits), "Set it to on.")
    else:
        yield ok("durability", "A commit is on disk, and on a standby, before it is acknowledged.")


def _check_rows(connection: pg.PostgresConnection, tenant: TenantId) -> Iterator[Finding]:
    rows = damaged(connection)
    fine = ok("values", "Every row has valid values.")
    problem = f"These rows are damaged, and not served: {some_of(rows)}."
    remedy = "Their values are unknown: restore a backup of the database, or correct them with SQL."
    yield failed("values", problem, remedy) if rows else fine
    ((drift,),) = connection.execute(_DRIFT)
    fine = ok("index", "Its number of rows matches the memories.")
    problem = f"It differs from the memories in {drift:,} row{'s' * (drift != 1)}."
    command = f"`agentops-memory index --rebuild --tenant {tenant}`"
    remedy = f"The next sweep repairs it; to repair it now, run {command}."
    yield warn("index", problem, remedy) if drift else fine
    yield ok("size", f"It has {stored(connection) / MIB:.1f} MiB.")
