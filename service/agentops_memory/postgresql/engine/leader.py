"""One leader among the processes of a database: it does for all what is due by the clock."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import psycopg
from psycopg import errors

from ...errors import Refusal, StartRefused
from ...memory.model.access import TenantId
from ..base.connecting import translated
from ..schema.migrate import all_up_to_date
from .claims import number_of

LOCK = number_of("agentops", "leader")
SERVES = number_of("agentops", "serves")  # shared by all that serve; who copies has it alone
COPIED = "The database is being copied; a service may start when that has ended."

LOCK_TIMEOUT = "1s"
ANALYZE_EVERY = 3  # looks
# Tables that have some rows by now, of which the planner knows nothing: it would expect one.
_NEW = """
    SELECT format('%I.%I', s.schemaname, s.relname)
      FROM agentops.tenants t
      JOIN pg_stat_all_tables s ON s.schemaname = t.schema
     WHERE s.last_analyze IS NULL AND s.last_autoanalyze IS NULL AND s.n_mod_since_analyze > 20"""

log = logging.getLogger(__name__)


class Leader:
    """Whether this process leads, by a lock that ends with its connection."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None
        self.leads = False
        self._looks = 0

    def serve(self) -> psycopg.Connection[Any]:
        """Let nobody copy the database from now on; StartRefused while somebody does."""
        connection = self._connection = self._connect()
        connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        with translated():
            ((serves,),) = connection.execute(
                "SELECT pg_try_advisory_lock_shared(%s)", (SERVES,)
            ).fetchall()
        if not serves:
            raise StartRefused(COPIED)
        return connection

    def look(self) -> list[TenantId]:
        """Lead, if nobody else does; the tenants that there are now, if this one leads."""
        try:
            connection = self._connection or self.serve()
            if not self.leads and not self._taken(connection):
                return []
            found = all_up_to_date(connection)  # an older process may have made some
            if not self.leads:
                log.info("this process leads now: it does what is due by the clock")
            self.leads = True
            self._looks += 1
            if self._looks % ANALYZE_EVERY == 0:
                _analyze_new(connection)
        except (psycopg.Error, Refusal) as error:
            self.close()
            log.debug("nobody can be the leader now: %s", error)
            return []
        return found

    def close(self) -> None:
        self.leads = False
        if self._connection is not None:
            with suppress(psycopg.Error):  # at once, before the server sees that it is closed
                self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._connection.close()
            self._connection = None

    def _taken(self, connection: psycopg.Connection[Any]) -> bool:
        ((is_ours,),) = connection.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,)).fetchall()
        return bool(is_ours)


def _analyze_new(connection: psycopg.Connection[Any]) -> None:
    """Let the planner know of new tables at once; autovacuum comes after a minute."""
    for (table,) in connection.execute(_NEW).fetchall():
        # One that is locked is met again, one that was erased is not.
        with suppress(errors.LockNotAvailable, errors.UndefinedTable):
            connection.execute(cast(Any, f"ANALYZE {table}"))
