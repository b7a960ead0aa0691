"""What runs on the engine's threads: transactions, each on a connection of its own."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar, cast

import psycopg
from psycopg import errors

from ..engine.engine import Succeeded
from ..engine.maintenance import noop
from ..errors import DamagedRow, NotFound, Refusal, StartRefused, Unavailable
from ..memory.access import DEFAULT_TENANT, Caller, TenantId
from ..recall.stems import Stems
from .connection import COLLIDED, PostgresConnection, is_lost, require_usable, translated
from .migrate import all_up_to_date, brought_up_to_date, prepare, schema_of, tenants
from .postings import IndexMemory
from .transaction import (
    PATIENCE,
    Change,
    Claims,
    Lock,
    Outcomes,
    PostgresTransaction,
    Undone,
    WithinOneProject,
    in_group,
)

Connect = Callable[[], psycopg.Connection[Any]]


@dataclass(slots=True, eq=False)
class Connections:
    """Connections that wait for work; opened when they are needed. Any thread may use them."""

    connect: Connect
    on_broken: Callable[[], None] = noop  # called for each that ends before it is closed
    _idle: list[psycopg.Connection[Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_closed: bool = False

    @contextmanager
    def one(self) -> Iterator[tuple[psycopg.Connection[Any], bool]]:
        """A connection for this thread, and whether it is new; dropped if it breaks."""
        with self._lock:
            there = self._idle.pop() if self._idle else None
        connection = there or self.connect()
        try:
            yield connection, there is None
        finally:
            self._give_back(connection)

    def close(self) -> None:
        self._is_closed = True
        self.forget_idle()

    def _give_back(self, connection: psycopg.Connection[Any]) -> None:
        is_usable = (
            not connection.closed
            and connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        )
        with self._lock:
            if is_usable and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()
        if not is_usable:
            self.on_broken()

    def forget_idle(self) -> None:
        """Drop those that wait: the server that they led to is gone."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def free(connection: psycopg.Connection[Any]) -> None:
    """Leave no transaction on a connection, or drop it."""
    try:
        if not connection.closed:
            connection.rollback()
    except psycopg.Error:
        connection.close()


HasKey = Callable[[TenantId], bool]


class Schemas:
    """What other processes make and erase is learned now and again. Any thread may use it."""

    def __init__(self, has_key: HasKey) -> None:
        self._has_key = has_key
        self._known: dict[TenantId, str] = {}

    def know(self, tenants: list[TenantId]) -> None:
        """There are these tenants, each with a schema, and no others."""
        self._known = {tenant: schema_of(tenant) for tenant in tenants}

    @property
    def tenants(self) -> list[TenantId]:
        return list(self._known)

    def of(self, connection: psycopg.Connection[Any], tenant: TenantId) -> str:
        """The tenant's schema, made when it is first used, if a key opens it."""
        if schema := self._known.get(tenant):
            return schema
        if not self._has_key(tenant):
            raise NotFound("There is no such tenant.")
        try:
            schema = brought_up_to_date(connection, tenant)
        except StartRefused as refusal:  # of a schema that a newer release has made
            raise Unavailable(str(refusal)) from None
        self._known[tenant] = schema
        return schema

    def forget_erased(
        self, connection: psycopg.Connection[Any], tenant: TenantId, error: psycopg.Error
    ) -> bool:
        """Forget a tenant if an error comes from its having been erased; whether it does."""
        if not isinstance(error, errors.UndefinedTable) or tenant in tenants(connection):
            return False
        self._known.pop(tenant, None)
        return True


T = TypeVar("T")

LONGEST = timedelta(seconds=6)  # of a statement; longer than PATIENCE, so that a lock is reported
LONGEST_LOAD = timedelta(seconds=30)  # of reading an area into memory
TRIES = 8  # of a transaction that others were in the way of

log = logging.getLogger(__name__)

OnCommit = Callable[[int, float], None]
"""Told of each commit: how many changes, and the seconds that they took."""


@dataclass(slots=True, eq=False)
class Transactions:
    """Any thread may call these; a call takes a connection while it lasts."""

    _connections: Connections
    _clock: Callable[[], datetime]
    _made: Callable[..., PostgresTransaction]
    _new_memory: Callable[[], IndexMemory]
    schemas: Schemas
    _committed: OnCommit
    on_damage: Callable[[Caller, Sequence[DamagedRow]], None] = noop
    _memories: dict[str, IndexMemory] = field(default_factory=dict)
    _of_thread: threading.local = field(default_factory=threading.local)

    def __post_init__(self) -> None:
        def forget() -> None:
            for memory in list(self._memories.values()):
                memory.forget()

        self._connections.on_broken = forget

    def prepare(self, tenant: TenantId, upgrading: Callable[[], object]) -> None:
        """Make what all share, and bring up to date a tenant's schema and all that are there."""
        with self._connections.one() as (connection, _):
            require_usable(connection)
            with translated():
                prepare(connection)
                brought_up_to_date(connection, tenant, upgrading)
                self.schemas.know(all_up_to_date(connection, upgrading))

    def close(self) -> None:
        for memory in self._memories.values():
            memory.close()
        self._connections.close()

    def read(self, caller: Caller, work: Callable[[PostgresTransaction], T]) -> T:
        """What work answers on one snapshot."""

        def transaction(connection: psycopg.Connection[Any]) -> T:
            schema = self.schemas.of(connection, caller.tenant)
            ours = PostgresConnection(connection)
            with ours.pipelined():
                self._begin(ours, schema, "REPEATABLE READ READ ONLY")
                answer = work(
                    self._made(
                        ours, self._clock(), caller, self._stems, memory=self._memory(schema)
                    )
                )
                ours.execute("COMMIT")
            self.on_damage(caller, ours.damaged)
            return answer

        return self._tried(transaction, caller.tenant)

    def write(self, lock: Lock, changes: Sequence[Change], others: Callable[[], int]) -> Outcomes:
        """The outcomes of changes that were committed together.

        Of all that had time to begin, and of which all was free. None: nothing of it happened, as
        the database did not take them all, or it cannot share a transaction; it may be made by
        itself.
        """
        write = partial(self._written, lock, changes, others)

        def group(connection: psycopg.Connection[Any]) -> Outcomes:
            try:
                return write(connection)
            except (psycopg.Error, Undone) as error:
                if isinstance(error, errors.LockNotAvailable) or is_lost(error):
                    raise
                free(connection)
                return dict.fromkeys(changes)

        if len(changes) > 1:
            return self._tried(group, lock.tenant)
        # Alone nobody is in its way: what is there already is a conflict with what is stored.
        collided = () if lock.alone else (errors.UniqueViolation,)
        return self._tried(write, lock.tenant, *collided)

    def _written(
        self,
        lock: Lock,
        changes: Sequence[Change],
        others: Callable[[], int],
        connection: psycopg.Connection[Any],
    ) -> Outcomes:
        schema = self.schemas.of(connection, lock.tenant)
        ours, began = PostgresConnection(connection), time.monotonic()
        is_alone = len(changes) == 1

        def begun(change: Change) -> PostgresTransaction:
            # Without memory: a version that is undone is used again, for other words.
            return self._made(
                ours, self._clock(), change.caller, self._stems, others=others, is_alone=is_alone
            )

        def make(change: Change) -> object:
            if lock.alone:
                first.known.forget()  # one before it may have renamed or erased that
            tx = begun(change).beside(first)
            return change.work(tx if lock.alone else cast("Any", WithinOneProject(tx, claims)))

        with ours.pipelined():
            self._begin(ours, schema, "READ COMMITTED")
            claims, first, free = Claims(ours, schema), begun(changes[0]), changes
            claims.tenant(alone=lock.alone)
            if changes[0].place is not None:
                free = claims.of(changes, first.known, waits=lock.project is not None)
            outcomes: Outcomes = (
                {changes[0]: Succeeded(make(changes[0]))}
                if is_alone and free
                else in_group(ours, {it: partial(make, it) for it in free})
            )
            first.flush()
            self._of_thread.may_be_done = True
            commit = connection.execute("COMMIT")
        if commit.statusmessage != "COMMIT":  # of what had failed, and somebody caught it
            raise Unavailable("The database did not commit; try again.")
        self._memory(schema).hand_over(first.written(), self._stems)
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
                with self._connections.one() as (connection, _), connection.transaction():
                    ours = PostgresConnection(connection)
                    ours.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                    self._set_up(ours, schema, LONGEST_LOAD)
                    memory.load(ours, area)
            except (psycopg.Error, Refusal) as error:
                log.debug("a partition is not cached: %s", error)
                memory.queue.refuse(area)
            except BaseException:
                memory.queue.refuse(area)
                raise

    def _begin(self, connection: PostgresConnection, schema: str, isolation: str) -> None:
        connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")
        self._set_up(connection, schema, LONGEST)

    def _set_up(self, connection: PostgresConnection, schema: str, longest: timedelta) -> None:
        connection.execute(
            """SELECT set_config('search_path', :path, TRUE),
                      set_config('lock_timeout', :patience, TRUE),
                      set_config('statement_timeout', :longest, TRUE)""",
            {
                "path": f'"{schema}"',
                "patience": _milliseconds(PATIENCE),
                "longest": _milliseconds(longest),
            },
        )

    def _memory(self, schema: str) -> IndexMemory:
        if schema not in self._memories:
            self._memories.setdefault(schema, self._new_memory())
        return self._memories[schema]

    @property
    def _stems(self) -> Stems:
        if not hasattr(self._of_thread, "stems"):
            self._of_thread.stems = Stems()
        return cast("Stems", self._of_thread.stems)

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
            self._of_thread.may_be_done = False
            with ExitStack() as stack:
                try:  # what would refuse a start is a refusal for now
                    connection, is_new = stack.enter_context(self._connections.one())
                except StartRefused as refusal:
                    raise Unavailable(str(refusal)) from None
                stack.enter_context(translated())
                try:
                    return transaction(connection)
                except psycopg.Error as error:
                    free(connection)
                    if isinstance(error, (*COLLIDED, *collided)) and tries:
                        tries -= 1
                    elif self.schemas.forget_erased(connection, tenant, error):
                        continue  # there is none of the name now, or another one
                    elif is_lost(error) and not (is_new or self._of_thread.may_be_done):
                        self._connections.forget_idle()
                    else:
                        raise
                except BaseException:
                    free(connection)
                    raise
            time.sleep(random.uniform(0, 0.01))  # noqa: S311 - those that collided shall part


def _milliseconds(time: timedelta) -> str:
    return str(round(time.total_seconds() * 1000))
