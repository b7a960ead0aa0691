"""What runs on the engine's threads: transactions, each on a connection of its own."""

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

from ..engine.engine import Succeeded, noop
from ..errors import DamagedRow, NotFound, Refusal, StartRefused, Unavailable
from ..light import dataclass, field
from ..memory.access import DEFAULT_TENANT, Caller, TenantId
from ..recall.stems import Stems
from .connection import (
    COLLIDED,
    PostgresConnection,
    PostgresCursor,
    is_lost,
    require_usable,
    translated,
)
from .migrate import all_up_to_date, brought_up_to_date, prepare, schema_of, tenants
from .postings import IndexMemory
from .transaction import (
    MAX_WAIT,
    Change,
    Claims,
    Lock,
    Outcomes,
    PostgresTransaction,
    Undone,
    WithinOneProject,
    in_group,
)

HasKey = Callable[[TenantId], bool]


def free(connection: psycopg.Connection[Any]) -> None:
    """Leave no transaction on a connection, or drop it."""
    try:
        if not connection.closed:
            connection.rollback()
    except psycopg.Error:
        connection.close()


T = TypeVar("T")

LONGEST = timedelta(seconds=6)  # of a statement; longer than MAX_WAIT, so that a lock is reported
LONGEST_LOAD = timedelta(seconds=30)  # of reading an area into memory
TRIES = 8  # of a transaction that others were in the way of

log = logging.getLogger(__name__)

OnCommit = Callable[[int, float], None]
"""Told of each commit: how many changes, and the seconds that they took."""


SNAPSHOT = "REPEATABLE READ READ ONLY"


def _begin(
    connection: PostgresConnection,
    schema: str,
    isolation: str,
    *locks: str,
    timeout: timedelta | None = None,
    **values: object,
) -> PostgresCursor:
    """Begin a transaction of a tenant, and take locks one after the other, within its limits."""
    connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    return connection.execute(
        f"""SELECT set_config('search_path', :path, TRUE),
                   set_config('lock_timeout', :lock_timeout, TRUE),
                   set_config('statement_timeout', :timeout, TRUE)
                   {"".join(f", {it}" for it in locks)}""",
        {
            "path": f'"{schema}"',
            "lock_timeout": str(MAX_WAIT // timedelta(milliseconds=1)),
            "timeout": str((timeout or LONGEST) // timedelta(milliseconds=1)),
            **values,
        },
    )


class _Thread(threading.local):
    """What each thread has of its own."""

    def __init__(self) -> None:
        self.stems = Stems()
        self.may_be_done = False  # whether a commit was sent


@dataclass(slots=True, eq=False)
class Transactions:
    """Any thread may call these; a call takes a connection while it lasts."""

    _connect: Callable[[], psycopg.Connection[Any]]
    _clock: Callable[[], datetime]
    _new_transaction: Callable[..., PostgresTransaction]
    _new_memory: Callable[[], IndexMemory]
    _has_key: HasKey
    _committed: OnCommit
    on_damage: Callable[[Caller, Sequence[DamagedRow]], None] = noop
    _schemas: dict[TenantId, str] = field(default_factory=dict)
    _memories: dict[str, IndexMemory] = field(default_factory=dict)
    _existing: set[int] = field(default_factory=set)  # projects, as they are claimed
    _idle: list[psycopg.Connection[Any]] = field(default_factory=list)  # the last used is the next
    _thread: _Thread = field(default_factory=_Thread)

    def prepare(self, tenant: TenantId, upgrading: Callable[[], object]) -> None:
        """Make what all share, and bring up to date a tenant's schema and all existing ones."""
        with self._connected() as (connection, _):
            require_usable(connection)
            with translated():
                prepare(connection)
                brought_up_to_date(connection, tenant, upgrading)
                self.know(all_up_to_date(connection, upgrading))

    def close(self) -> None:
        """Once no thread calls any more."""
        for memory in self._memories.values():
            memory.close()
        self._close_idle()

    @property
    def tenants(self) -> list[TenantId]:
        return list(self._schemas)

    def know(self, tenants: Sequence[TenantId]) -> None:
        """There are these tenants, each with a schema, and no others: other processes change it."""
        self._schemas = {tenant: schema_of(tenant) for tenant in tenants}

    def _schema(self, connection: psycopg.Connection[Any], tenant: TenantId) -> str:
        """The tenant's schema, made when it is first used, if a key opens it."""
        if schema := self._schemas.get(tenant):
            return schema
        if not self._has_key(tenant):
            raise NotFound("There is no such tenant.")
        try:
            schema = brought_up_to_date(connection, tenant)
        except StartRefused as refusal:  # of a schema that a newer release has made
            raise Unavailable(str(refusal)) from None
        self._schemas[tenant] = schema
        return schema

    @contextmanager
    def _connected(self) -> Iterator[tuple[psycopg.Connection[Any], bool]]:
        """A connection for this thread, and whether it is new; dropped if it breaks."""
        try:
            connection, is_new = self._idle.pop(), False
        except IndexError:
            connection, is_new = self._connect(), True
        try:
            yield connection, is_new
        finally:
            free(connection)
            if not connection.closed:
                self._idle.append(connection)
            else:
                for memory in list(self._memories.values()):
                    memory.forget()

    def _close_idle(self) -> None:
        with suppress(IndexError):  # another thread may take the last
            while True:
                self._idle.pop().close()

    def read(self, caller: Caller, work: Callable[[PostgresTransaction], T]) -> T:
        """What work answers on one snapshot."""

        def transaction(connection: psycopg.Connection[Any]) -> T:
            schema = self._schema(connection, caller.tenant)
            ours, memory = PostgresConnection(connection), self._memory(schema)
            with ours.pipelined():
                _begin(ours, schema, SNAPSHOT)
                answer = work(
                    self._new_transaction(
                        ours, self._clock(), caller, self._thread.stems, memory=memory
                    )
                )
                ours.execute("COMMIT")
            self.on_damage(caller, ours.damaged)
            return answer

        return self._tried(transaction, caller.tenant)

    def write(
        self,
        lock: Lock,
        changes: Sequence[Change],
        others: Callable[[], int],
        committing: Callable[[], object],
    ) -> Outcomes:
        """The outcomes of changes that were committed together; it tells when it sends the commit.

        Of all that had time to begin, and of which all was free. None: nothing of it happened, as
        the database did not take them all, or it cannot share a transaction; it may be made by
        itself.
        """
        is_group = len(changes) > 1

        def transaction(connection: psycopg.Connection[Any]) -> Outcomes:
            try:
                return self._written(lock, changes, others, committing, connection)
            except (psycopg.Error, Undone) as error:
                if not is_group or isinstance(error, errors.LockNotAvailable) or is_lost(error):
                    raise
                free(connection)
                return dict.fromkeys(changes)

        # Alone nobody is in its way: what is there already is a conflict with what is stored.
        collided = () if is_group or lock.alone else (errors.UniqueViolation,)
        return self._tried(transaction, lock.tenant, *collided)

    def _written(
        self,
        lock: Lock,
        changes: Sequence[Change],
        others: Callable[[], int],
        committing: Callable[[], object],
        connection: psycopg.Connection[Any],
    ) -> Outcomes:
        schema = self._schema(connection, lock.tenant)
        ours, began = PostgresConnection(connection), time.monotonic()
        is_alone = len(changes) == 1

        def begun(change: Change) -> PostgresTransaction:
            # Without memory: a version that is undone is used again, for other words.
            return self._new_transaction(
                ours,
                self._clock(),
                change.caller,
                self._thread.stems,
                others=others,
                is_alone=is_alone,
            )

        def make(change: Change) -> object:
            if lock.alone:
                first.known.forget()  # one before it may have renamed or erased that
            tx = begun(change).beside(first)
            return change.work(tx if lock.alone else cast("Any", WithinOneProject(tx, claims)))

        with ours.pipelined():
            claims, first = Claims(ours, schema, self._existing), begun(changes[0])
            begin = partial(_begin, ours, schema, "READ COMMITTED")
            free = claims.begin(begin, lock, changes, first.known)
            outcomes: Outcomes = (
                {changes[0]: Succeeded(make(changes[0]))}
                if is_alone and free
                else in_group(ours, {it: partial(make, it) for it in free})
            )
            first.flush()
            self._thread.may_be_done = True
            commit = connection.execute("COMMIT")
            committing()
        if commit.statusmessage != "COMMIT":  # of what had failed, and somebody caught it
            raise Unavailable("The database did not commit; try again.")
        self._memory(schema).hand_over(first.written(), self._thread.stems)
        self.on_damage(changes[0].caller, ours.damaged)  # all are of one tenant
        if count := sum(isinstance(it, Succeeded) for it in outcomes.values()):
            self._committed(count, time.monotonic() - began)
        return outcomes

    def probe(self) -> bool:
        """Commit something, in nobody's way; whether a commit waits for a standby."""

        def transaction(connection: psycopg.Connection[Any]) -> bool:
            with connection.transaction():
                ((waits, _),) = connection.execute(
                    """SELECT current_setting('synchronous_standby_names') <> ''
                              AND current_setting('synchronous_commit') IN ('on', 'remote_apply'),
                              pg_current_xact_id()"""
                ).fetchall()
            return bool(waits)

        return self._tried(transaction, DEFAULT_TENANT)

    def is_wanting(self, tenant: TenantId) -> bool:
        """Whether prompts ask for an area that is not in memory."""
        memory = self._memories.get(schema_of(tenant))
        return memory is not None and memory.queue.is_due

    def load(self, tenant: TenantId) -> None:
        schema = schema_of(tenant)
        memory = self._memory(schema)
        with memory.queue.next() as area:
            if area is None:
                return
            try:
                with self._connected() as (connection, _):
                    ours = PostgresConnection(connection)
                    _begin(ours, schema, SNAPSHOT, timeout=LONGEST_LOAD)
                    memory.load(ours, area)
                    ours.execute("COMMIT")
            except (psycopg.Error, Refusal) as error:
                log.debug("a partition is not cached: %s", error)
                memory.queue.defer(area)
            except BaseException:
                memory.queue.defer(area)
                raise

    def _memory(self, schema: str) -> IndexMemory:
        if schema not in self._memories:
            self._memories.setdefault(schema, self._new_memory())
        return self._memories[schema]

    def _tried(
        self,
        transaction: Callable[[psycopg.Connection[Any]], T],
        tenant: TenantId,
        *collided: type[psycopg.Error],
    ) -> T:
        """What a transaction answers; it is run again where others were in its way.

        One on a connection that had died while it waited for work is run on another, but never
        one that was being committed: nobody can tell whether it was.
        """
        tries = TRIES
        while True:
            self._thread.may_be_done = False
            with ExitStack() as stack:
                try:  # what would refuse a start is a refusal for now
                    connection, is_new = stack.enter_context(self._connected())
                except StartRefused as refusal:
                    raise Unavailable(str(refusal)) from None
                stack.enter_context(translated())
                try:
                    return transaction(connection)
                except psycopg.Error as error:
                    free(connection)
                    if isinstance(error, (*COLLIDED, *collided)) and tries:
                        tries -= 1
                    elif isinstance(error, errors.UndefinedTable) and tenant not in tenants(
                        connection
                    ):
                        self._schemas.pop(tenant, None)
                        continue  # it was erased: there is none of the name now, or another one
                    elif is_lost(error) and not (is_new or self._thread.may_be_done):
                        self._close_idle()
                    else:
                        raise
            time.sleep(random.uniform(0, 0.01))  # noqa: S311 - those that collided shall part
