"""The keys in a database: changed and audited in one transaction, and watched by each process."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import psycopg

from ..errors import Refusal, StartRefused, Unavailable
from ..light import dataclass, replace
from ..memory.access import Caller
from ..memory.keys import By, KeyRegistry, KeyRing, Put
from ..memory.retention import Held, Kind
from ..memory.rows import instant, micros
from ..operations.files import keys
from ..operations.files.keys import by_key, line
from .connection import connect, control, refusing
from .migrate import is_made

_OVER = """at <= %(until)s
   AND number < coalesce(
       (SELECT min(number) FROM agentops.audit WHERE at > %(until)s), number + 1)"""
_MEASURED = f"""
SELECT count(*), coalesce(sum(octet_length(line) + 1), 0), min(at),
       count(*) FILTER (WHERE {_OVER})
  FROM agentops.audit"""
_TRIM = f"DELETE FROM agentops.audit WHERE {_OVER}"


@dataclass(frozen=True, slots=True)
class PostgresAudit:
    """The AuditLog of a database; `by` says who a caller is."""

    url: str
    clock: Callable[[], datetime]
    by: Callable[[Caller], By] = by_key

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        try:
            with control(self.url, makes=True) as connection:
                record(connection, self.clock(), action, self.by(caller), **fields)
        except StartRefused as refusal:  # as after a failover: for a request it is one for now
            raise Unavailable(str(refusal)) from None

    def trim(self, until: datetime) -> int:
        values = {"until": micros(until)}
        with control(self.url) as connection:
            return connection.execute(_TRIM, values).rowcount if is_made(connection) else 0

    def measured(self, until: datetime | None) -> Held:
        values = {"until": -(1 << 62) if until is None else micros(until)}
        with control(self.url, makes=True) as connection:
            ((rows, size, oldest, over),) = connection.execute(_MEASURED, values).fetchall()
        return Held(
            kind=Kind.AUDIT,
            rows=rows,
            size=size,
            oldest=None if oldest is None else instant(oldest),
            past_retention=over,
        )


def record(
    connection: psycopg.Connection[Any], at: datetime, action: str, by: By, **fields: object
) -> None:
    """Add a row, in the transaction that the connection is in."""
    written = line(at, action, by, **fields).decode().rstrip("\n")
    connection.execute(
        "INSERT INTO agentops.audit (at, line) VALUES (%(at)s, %(line)s)",
        {"at": micros(at), "line": written},
    )


CHANNEL = "agentops_keys"
LOOK = timedelta(milliseconds=500)  # between two looks, if no change is notified
UNMADE = -1  # the number of changes while there is no schema
STEP = timedelta(milliseconds=100)  # in which the watch sees that it is to end
STALE = timedelta(seconds=5)  # after which what was seen last opens nothing
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
        with control(self._url) as connection:
            return _ring(connection)

    def require_kept(self, ring: KeyRing) -> None:
        if ring.was_ever_used and not ring.keys:
            raise Unavailable(LOST)

    def are_lost(self) -> bool:
        ring = self.ring()
        return ring.was_ever_used and not ring.keys

    @contextmanager
    def changing(self) -> Iterator[tuple[KeyRing, Put]]:
        with control(self._url, makes=True) as connection, connection.transaction():
            connection.execute("SELECT FROM agentops.control FOR UPDATE")
            ring = _ring(connection)
            yield ring, partial(_put, connection, ring)


class WatchedPostgresKeys:
    """The KeyStore of a database: a change of it holds within a second.

    Once a database was not heard for five seconds, nobody is let in until it is.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._known: tuple[int, KeyRing] | None = None
        self._read_at = 0.0
        self._complaint = ""
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="keys", daemon=True)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, changes are seen from the first `read` on."""
        try:
            yield
        finally:
            self._is_ending.set()
            if self._thread.is_alive():
                self._thread.join()

    def ring(self) -> KeyRing:
        known = self._known
        if known is None or time.monotonic() - self._read_at > STALE.total_seconds():
            raise Unavailable("The keys cannot be read; the log of the service says why.")
        return known[1]

    def read(self) -> KeyRing:
        with control(self._url) as connection:
            self._look(connection)
        ring = self.ring()
        PostgresKeys(self._url).require_kept(ring)
        self._thread.start()
        return ring

    def _watch(self) -> None:
        while not self._is_ending.is_set():
            try:
                with refusing(), closing(connect(self._url)) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._follow(connection)
            except (Refusal, psycopg.Error) as error:
                reason = str(error) if isinstance(error, Refusal) else type(error).__name__
                if reason != self._complaint:
                    self._complaint = reason
                    log.error("the keys cannot be read", extra={"reason": reason})
                self._is_ending.wait(STEP.total_seconds())

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        looked_at = 0.0
        while not self._is_ending.is_set():
            if time.monotonic() - looked_at >= LOOK.total_seconds():
                looked_at = time.monotonic()
                self._look(connection)
            if [*connection.notifies(timeout=STEP.total_seconds(), stop_after=1)]:
                looked_at = 0.0

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        began = time.monotonic()
        known = self._known[0] if self._known else UNMADE
        if known == UNMADE and not is_made(connection):
            self._known = UNMADE, KeyRing()
        elif row := connection.execute(_RING, {"known": known}).fetchone():
            try:
                self._known = row[0], _read(row)
            except Unavailable:
                self._known = None
                raise
            log.info("keys loaded", extra={"keys": len(self._known[1].keys)})
        self._read_at, self._complaint = began, ""


def _ring(connection: psycopg.Connection[Any]) -> KeyRing:
    if not is_made(connection):
        return KeyRing()
    row = connection.execute(_RING, {"known": UNMADE}).fetchone()
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
    connection: psycopg.Connection[Any],
    before: KeyRing,
    ring: KeyRing,
    at: datetime,
    action: str,
    by: By,
    **fields: object,
) -> None:
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
