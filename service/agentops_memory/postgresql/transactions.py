"""Transactions on the engine's threads, each on its own connection."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast

import psycopg
from psycopg import errors

from ..engine.engine import Outcome, noop
from ..errors import DamagedRow, NotFound, Refusal, StartRefused, Unavailable
from ..light import dataclass, field
from ..memory.access import DEFAULT_TENANT, Caller, TenantId
from ..memory.table import Known
from ..recall.stems import Stems
from . import connection as pg, transaction as writing
from .postings import IndexMemory

HasKey = Callable[[TenantId], bool]


def roll_back(connection: psycopg.Connection[Any]) -> None:
    """Roll back a connection's transaction, or close the connection."""
    try:
        if not connection.closed:
            connection.rollback()
    except psycopg.Error:
        connection.close()


T = TypeVar("T")

LONGEST = timedelta(seconds=6)  # of a statement; longer than MAX_WAIT, the lock timeout
LOAD_TIMEOUT = timedelta(seconds=30)  # of a statement that reads an area into the cache
RETRIES = 8  # of a transaction that collided with others

log = logging.getLogger(__name__)

OnCommit = Callable[[int, float], None]
"""Called after each commit with the number of changes and the seconds that they took."""


SNAPSHOT = "REPEATABLE READ READ ONLY"


def _begin(
    connection: pg.PostgresConnection, schema: str, isolation: str, *locks: str,
    timeout: timedelta | None = None, **values: object,
) -> pg.PostgresCursor:  # fmt: skip
    """Begin a tenant's transaction, and take locks in order within its timeouts."""
    connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    return connection.execute(
        f"""SELECT set_config('search_path', :path, TRUE),
                   set_config('lock_timeout', :lock_timeout, TRUE),
                   set_config('statement_timeout', :timeout, TRUE)
                   {"".join(f", {it}" for it in locks)}""",
        {
            "path": f'"{schema}"',
            "lock_timeout": str(writing.MAX_WAIT // timedelta(milliseconds=1)),
            "timeout": str((timeout or LONGEST) // timedelta(milliseconds=1)),
            **values,
        },
    )


class _Thread(threading.local):
    """The state of each thread."""

    def __init__(self) -> None:
        self.stems = Stems()
        self.has_sent_commit = False  # then nobody can tell whether it succeeded


@dataclass(slots=True, eq=False)
class Transactions:
    """Runs transactions, each on a pooled connection. Any thread may call it."""

    _connect: Callable[[], psycopg.Connection[Any]]
    _clock: Callable[[], datetime]
    _new_transaction: Callable[..., writing.PostgresTransaction]
    _new_memory: Callable[[], IndexMemory]
    _has_key: HasKey
    _committed: OnCommit
    on_damage: Callable[[Caller, Sequence[DamagedRow]], None] = noop
    tenants: set[TenantId] = field(default_factory=set)  # whose schemas are known to exist
    _memories: dict[str, IndexMemory] = field(default_factory=dict)
    _existing: set[int] = field(default_factory=set)  # projects with a space, by number
    _idle: list[psycopg.Connection[Any]] = field(default_factory=list)  # last in, first out
    _thread: _Thread = field(default_factory=_Thread)

    def prepare(self, tenant: TenantId, upgrading: Callable[[], object]) -> None:
        """Create or upgrade the shared schema, this tenant's and those of all existing tenants."""
        with self._connected() as (connection, _):
            pg.require_usable(connection)
            with pg.translated():
                pg.prepare(connection)
                pg.brought_up_to_date(connection, tenant, upgrading)
                self.tenants = {*pg.all_up_to_date(connection, upgrading)}

    def close(self) -> None:
        """Close all caches and connections, once no thread is at work."""
        for memory in self._memories.values():
            memory.close()
        self._close_idle()

    def _create_missing(self, connection: psycopg.Connection[Any], tenant: TenantId) -> None:
        """Create the tenant's schema on first use, if a key opens the tenant."""
        if tenant in self.tenants:
            return
        if not self._has_key(tenant):
            raise NotFound("There is no such tenant.")
        try:
            pg.brought_up_to_date(connection, tenant)
        except StartRefused as refusal:  # a newer release has upgraded the schema
            raise Unavailable(str(refusal)) from None
        self.tenants.add(tenant)

    @contextmanager
    def _connected(self) -> Iterator[tuple[psycopg.Connection[Any], bool]]:
        """Yield a connection, and whether it is new. A broken connection is dropped."""
        try:
            connection, is_new = self._idle.pop(), False
        except IndexError:
            connection, is_new = self._connect(), True
        try:
            yield connection, is_new
        finally:
            roll_back(connection)
            if not connection.closed:
                self._idle.append(connection)
            else:
                for memory in list(self._memories.values()):
                    memory.forget()

    def _close_idle(self) -> None:
        with suppress(IndexError):  # another thread may take the last
            while True:
                self._idle.pop().close()

    def read(self, caller: Caller, work: Callable[[writing.PostgresTransaction], T]) -> T:
        """Run work on one snapshot, and return its answer."""

        def transaction(connection: psycopg.Connection[Any]) -> T:
            schema = pg.schema_of(caller.tenant)
            self._create_missing(connection, caller.tenant)
            ours, memory = pg.PostgresConnection(connection), self._memory(schema)
            make, stems = self._new_transaction, self._thread.stems
            try:
                with ours.pipelined():
                    _begin(ours, schema, SNAPSHOT)
                    answer = work(make(ours, self._clock(), caller, stems, memory=memory))
                    ours.execute("COMMIT")
            except DamagedRow as damage:
                ours.damaged.append(damage)
                raise
            finally:
                self.on_damage(caller, ours.damaged)
            return answer

        return self._run(transaction, caller.tenant)

    def write(
        self, lock: writing.Lock, changes: Sequence[writing.Change], others: Callable[[], int],
        committing: Callable[[], object],
    ) -> writing.Outcomes:  # fmt: skip
        """Commit changes together, and return the outcomes of those that ran.

        Changes that did not begin in time, or whose claims were not free, are left out. None: the
        change was rolled back with its group, or cannot share a transaction, and may run by itself.
        `committing` is called when the commit has been sent.
        """
        # With the exclusive lock a duplicate is no collision, but a conflict with a stored row.
        collided = () if len(changes) > 1 or lock.alone else (errors.UniqueViolation,)
        transaction = partial(self._write, lock, changes, others, committing)
        return self._run(transaction, lock.tenant, *collided)

    def _write(
        self, lock: writing.Lock, changes: Sequence[writing.Change], others: Callable[[], int],
        committing: Callable[[], object], connection: psycopg.Connection[Any],
    ) -> writing.Outcomes:  # fmt: skip
        schema, is_alone = pg.schema_of(lock.tenant), len(changes) == 1
        ours, began, known = pg.PostgresConnection(connection), time.monotonic(), Known()

        # Without cached areas: after a rollback, an area reuses a version for other words.
        make = partial(
            self._new_transaction, ours, others=others, is_alone=is_alone, known=known
        )  # fmt: skip

        def transaction_of(change: writing.Change) -> writing.PostgresTransaction:
            return make(self._clock(), change.caller, self._thread.stems)

        def run(change: writing.Change) -> object:
            if lock.alone:
                known.forget()  # an earlier change may have renamed or erased a known row
            tx = transaction_of(change)
            tx.index = first.index  # the group shares it
            return change.work(
                tx if lock.alone else cast("Any", writing.WithinOneProject(tx, claims))
            )

        claims, first = writing.Claims(ours, schema, self._existing), transaction_of(changes[0])
        begin = partial(_begin, ours, schema, "READ COMMITTED")
        try:
            self._create_missing(connection, lock.tenant)
            with ours.pipelined():
                claimed = claims.begin(begin, lock, changes, known)
                outcomes: writing.Outcomes = (
                    {changes[0]: Outcome(run(changes[0]))}
                    if is_alone and claimed
                    else writing.run_group(ours, {it: partial(run, it) for it in claimed})
                )
                first.flush()
                self._thread.has_sent_commit = True
                commit = connection.execute("COMMIT")
                committing()
        except (psycopg.Error, writing.Undone) as error:
            if is_alone or isinstance(error, errors.LockNotAvailable) or pg.is_lost(error):
                raise
            roll_back(connection)
            return dict.fromkeys(changes)
        if commit.statusmessage != "COMMIT":  # a statement failed, and work caught the error
            raise Unavailable("The database did not commit; try again.")
        self._memory(schema).apply(first.index.written())
        self.on_damage(changes[0].caller, ours.damaged)  # all are of one tenant
        if count := sum(it is not None and it.error is None for it in outcomes.values()):
            self._committed(count, time.monotonic() - began)
        return outcomes

    def probe(self) -> bool:
        """Commit a transaction without locks; return whether commits wait for a standby."""

        def transaction(connection: psycopg.Connection[Any]) -> bool:
            with connection.transaction():
                ((waits, _),) = connection.execute(
                    """SELECT current_setting('synchronous_standby_names') <> ''
                              AND current_setting('synchronous_commit') IN ('on', 'remote_apply'),
                              pg_current_xact_id()"""
                ).fetchall()
            return bool(waits)

        return self._run(transaction, DEFAULT_TENANT)

    def needs_load(self, tenant: TenantId) -> bool:
        """Whether prompts need an area that is not cached."""
        return self._memory(pg.schema_of(tenant)).queue.is_due

    def load(self, tenant: TenantId) -> None:
        schema = pg.schema_of(tenant)
        memory = self._memory(schema)
        with memory.queue.next() as area:
            if area is None:
                return
            try:
                with self._connected() as (connection, _):
                    ours = pg.PostgresConnection(connection)
                    _begin(ours, schema, SNAPSHOT, timeout=LOAD_TIMEOUT)
                    memory.load(ours, area)
                    ours.execute("COMMIT")
            except BaseException as error:
                memory.queue.defer(area)
                if not isinstance(error, psycopg.Error | Refusal):
                    raise
                log.debug("a partition is not cached: %s", error)

    def _memory(self, schema: str) -> IndexMemory:
        known = self._memories.get(schema)
        return known or self._memories.setdefault(schema, self._new_memory())

    def _run(
        self, transaction: Callable[[psycopg.Connection[Any]], T], tenant: TenantId,
        *collided: type[psycopg.Error],
    ) -> T:  # fmt: skip
        """Run a transaction, again after each collision, and return its answer.

        If an idle connection turns out to be broken, it runs again on another. It never does so
        after a commit was sent, as nobody can tell whether that succeeded.
        """
        retries = RETRIES
        while True:
            self._thread.has_sent_commit = False
            with ExitStack() as stack:
                try:  # at a start fatal, for a request temporary
                    connection, is_new = stack.enter_context(self._connected())
                except StartRefused as refusal:
                    raise Unavailable(str(refusal)) from None
                stack.enter_context(pg.translated())
                try:
                    return transaction(connection)
                except psycopg.Error as error:
                    roll_back(connection)
                    if isinstance(error, (*pg.COLLIDED, *collided)) and retries:
                        retries -= 1
                    elif isinstance(error, errors.UndefinedTable) and tenant not in pg.tenants(
                        connection
                    ):
                        self.tenants.discard(tenant)
                        continue  # the tenant was erased, and maybe created again
                    elif pg.is_lost(error) and not (is_new or self._thread.has_sent_commit):
                        self._close_idle()
                    else:
                        raise
            time.sleep(random.uniform(0, 0.01))  # noqa: S311 - so that they do not collide again
