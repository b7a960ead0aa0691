"""A transaction, what it claims beside others, and the groups of writes that share a commit.

A write holds the tenant's lock alone, as SQLite's one writer does. One whose function is declared
to be `within_one_project` shares it with others like it. Then it has the tables here alone, each
of whose methods claims what it names until the commit; what is not here makes it run again, with
the lock to itself. So no claim can be forgotten.

Writes that would wait for each other share a transaction, and so its commit: the first in a line
takes those that wait behind it into a group; they find themselves made when their turn comes.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import psycopg

from ..engine.callbacks import noop
from ..engine.engine import Transaction
from ..engine.shared.outcomes import Failed, Outcome, outcome_of
from ..engine.shared.stems import Stems
from ..errors import Busy
from ..memory.idempotency import IdempotencyRecord, IdempotencyTable
from ..memory.lifecycles import LifecycleTable, SupersessionTable
from ..memory.memories import MemoryLists, MemoryTable
from ..memory.model.access import Caller, TenantId
from ..memory.model.memory import Memory, MemoryId, Session, SessionId
from ..memory.model.space import FIRST, GLOBAL_SCOPE, NUMBERS, IndexGroup, Project, Space
from ..memory.revisions import RevisionTable
from ..memory.sessions import SessionTable, TranscriptTable
from ..recall.search.visibility import Visibility
from ..recall.text.features import ALL, Features
from .connection import POSTGRESQL, PostgresConnection
from .index import Index, Upkeep
from .postings import IndexMemory, Written
from .search import PostgresSearch

P = ParamSpec("P")
T = TypeVar("T")


class NeedsTransactionOfItsOwn(Exception):
    """Work cannot share a transaction: what it did is undone, and it is run again, alone."""


class PostgresTransaction(Transaction):
    """The tables of a connection on which a transaction has begun."""

    _connection: PostgresConnection
    _sql = POSTGRESQL

    def __init__(
        self,
        connection: PostgresConnection,
        now: datetime,
        caller: Caller,
        stems: Stems,
        *,
        features: Features = ALL,
        memory: IndexMemory | None = None,
        is_alone: bool = True,
        **bound: Any,
    ) -> None:
        super().__init__(connection, now, caller, **bound)
        self.connection = connection
        self._stems = stems
        self._features = features
        self._memory = memory or IndexMemory(None)
        self._is_alone = is_alone

    def _stored(self) -> int:
        self.flush()
        return stored(self._connection)

    @cached_property
    def index(self) -> Index:
        return Index(self._connection, self._features, self._stems)

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(self._connection, self.index)

    @property
    def search(self) -> PostgresSearch:
        self.flush()
        return self._search

    def written(self) -> dict[int, Written | None]:
        """What was written into the index, once it is committed."""
        return self.index.written() if "index" in vars(self) else {}

    def flush(self) -> None:
        """Put into the index what waits: it is about to be read, or committed."""
        if "index" in vars(self):
            self.index.flush()

    @cached_property
    def _search(self) -> PostgresSearch:
        lists = MemoryLists(self._connection, self._sql, self._projects, self._moment)
        visibility = Visibility(
            self._connection, self._sql, self._projects, self._moment, self._groups_of_projects
        )
        return PostgresSearch(
            self._connection,
            memories=lists,
            visibility=visibility,
            features=self._features,
            stems=self._stems,
            begun=self._begun,
            cached=self._memory,
        )

    def _groups_of_projects(self) -> list[int]:
        last = NUMBERS[IndexGroup.PROJECTS][-1]
        rows = self._connection.execute(
            """SELECT DISTINCT partition
                 FROM spaces
                WHERE partition BETWEEN :first AND :last
             ORDER BY partition""",
            {"first": FIRST, "last": last},
        )
        return sorted({FIRST, *(number for (number,) in rows.fetchall())})

    def require_alone(self) -> None:
        if not self._is_alone:
            raise NeedsTransactionOfItsOwn


def stored(connection: PostgresConnection) -> int:
    """The bytes that the schema takes, with what was deleted until the database reuses it."""
    ((size,),) = connection.execute(
        """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
             FROM pg_class c
            WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND c.relkind = 'r'"""
    )
    return int(size)


Work = Callable[Concatenate[PostgresTransaction, P], T]
"""What runs in a transaction; it may be run again when nothing of it happened."""


class NeedsToBeAlone(Exception):
    """Work touched what it cannot claim: it is run again, with the tenant's lock to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """What a write holds from its beginning: its tenant, and a project if that is known."""

    tenant: TenantId
    alone: bool = False
    project: Project | None = None


class Claims:
    def __init__(
        self, connection: PostgresConnection, schema: str, taken: Collection[int] = ()
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._taken = set(taken)

    def anew(self) -> "Claims":
        """For one of several works: what others claim is given back when they are undone."""
        return Claims(self._connection, self._schema, self._taken)

    def lock(self, lock: Lock) -> None:
        """The whole tenant, alone or beside others that claim what they touch; and a project."""
        shared = "" if lock.alone else "_shared"
        self._connection.execute(
            f"SELECT pg_advisory_xact_lock{shared}(:number)", {"number": number_of(self._schema)}
        )
        if lock.project:
            self._claim("project", lock.project)

    def key(self, digest: bytes) -> None:
        self._claim("key", digest.hex())

    def session(self, session: SessionId) -> None:
        self._claim("session", session)

    def space(self, space: Space) -> None:
        """The project of a space: its scopes share its words. Global memories are of all."""
        if not space.traits.has_project or space.scope == GLOBAL_SCOPE:
            raise NeedsToBeAlone
        self._claim("project", space.project)

    def _claim(self, kind: str, name: str) -> None:
        """Nobody else may touch it until this transaction has ended; asked for once."""
        number = number_of(self._schema, kind, name)
        if number not in self._taken:
            self._taken.add(number)
            self._connection.execute("SELECT pg_advisory_xact_lock(:number)", {"number": number})


def number_of(*parts: str) -> int:
    digest = blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


class Claimed:
    """A table of which a write beside others has some methods: each claims its first argument."""

    def __init__(self, table: object, claims: Mapping[str, Callable[[Any], None]]) -> None:
        self._table = table
        self._claims = claims

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._claims:
            raise NeedsToBeAlone(name)
        claim, method = self._claims[name], getattr(self._table, name)

        def claimed(subject: object, *rest: object, **named: object) -> Any:
            claim(subject)
            return method(subject, *rest, **named)

        return claimed


class ClaimedMemories(Claimed):
    _table: MemoryTable

    def get(self, memory: MemoryId) -> Memory | None:
        found = self._table.get(memory)
        if found is None:
            return None
        self._claims["replace"](found)
        return self._table.get(memory)  # it may have changed until it was claimed


class WithinOneProject:
    def __init__(self, tx: PostgresTransaction, claims: Claims) -> None:
        self.now = tx.now
        self.caller = tx.caller
        self.retention = tx.retention
        self.new_uid = tx.new_uid
        self._tx = tx

        def session(it: Session) -> None:
            claims.session(it.id)

        def memory(it: Memory) -> None:
            claims.space(it.space)

        def key(it: IdempotencyRecord) -> None:
            claims.key(it.key)

        methods: Mapping[type, Mapping[str, Callable[[Any], None]]] = {
            IdempotencyTable: {"get": claims.key, "add": key},
            SessionTable: {
                **dict.fromkeys(("get", "project_of"), claims.session),
                **dict.fromkeys(("open", "close", "grow"), session),
            },
            TranscriptTable: dict.fromkeys(("get", "put", "drop"), claims.session),
            LifecycleTable: {"pins": claims.space},
            # What is linked is of one project: that of a memory which was claimed.
            SupersessionTable: {"of": noop},
        }  # fmt: skip
        self._tables: Mapping[type, object] = {
            **{table: Claimed(tx[table], its) for table, its in methods.items()},
            MemoryTable: ClaimedMemories(
                tx[MemoryTable],
                {
                    "at_key": claims.space,
                    **dict.fromkeys(("twin", "insert", "replace", "set_lifecycle"), memory),
                    **dict.fromkeys(("release_key", "count_duplicate"), memory),
                },
            ),
            RevisionTable: tx[RevisionTable],  # of memories, which were claimed
        }

    def __getitem__(self, table: type[T], /) -> T:
        if table not in self._tables:
            raise NeedsToBeAlone(table.__name__)
        return cast("T", self._tables[table])

    @property
    def room(self) -> int | None:
        return self._tx.room

    @property
    def is_awaited(self) -> bool:
        return self._tx.is_awaited


QUEUE = 512  # callers that may wait
PATIENCE = timedelta(seconds=5)  # for a place, and for a lock


class Places:
    """So many may be used at a time."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._waiting = 0

    @property
    def are_taken(self) -> bool:
        return self._free.locked()

    async def take(self, until: float) -> None:
        """Take one; Busy when none is free by then, a time of the loop, or too many wait."""
        if self._waiting >= QUEUE:
            raise Busy("Too many requests are waiting; try again.")
        self._waiting += 1
        try:
            async with asyncio.timeout_at(until):
                await self._free.acquire()
        except TimeoutError:
            raise Busy("Too many requests are waiting; try again.") from None
        finally:
            self._waiting -= 1

    def give_back(self) -> None:
        self._free.release()


def deadline() -> float:
    """The time of the loop until which a caller waits that comes now, for whatever it needs."""
    return asyncio.get_running_loop().time() + PATIENCE.total_seconds()


@asynccontextmanager
async def locked(lock: asyncio.Lock, until: float) -> AsyncIterator[None]:
    """Inside, the lock is held; Busy when others hold it until then, a time of the loop."""
    try:
        async with asyncio.timeout_at(until):
            await lock.acquire()
    except TimeoutError:
        raise Busy("Another writer has used the database for too long; try again.") from None
    try:
        yield
    finally:
        lock.release()


MEMBERS = 32  # of a group
LONGEST = timedelta(milliseconds=50)  # of a group: all its callers wait for the commit


@dataclass(slots=True, eq=False)
class Change:
    """A write, its caller, and what came of it."""

    caller: Caller
    work: Callable[[PostgresTransaction], Any]
    until: float  # a time of the loop, to which it waits for what it needs
    group: asyncio.Task[None] | None = None  # in which it is being made, or was
    is_over: bool = False
    is_left: bool = False  # by its caller
    outcome: Outcome | None = None  # None: it is to be made by itself


Make = Callable[[Sequence[Change]], Awaitable[Sequence[Outcome | None]]]
"""Make changes together: the outcomes of the first of them, one at least."""


class Line:
    """Writes of one process that stand in each other's way."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting: deque[Change] = deque()

    async def made(self, change: Change, make: Make) -> Outcome | None:
        """What came of a change. Busy when it waits for too long, or too many do.

        None: nothing happened, for another's sake maybe; it shall be made by itself. A cancelled
        caller leaves; a change that has begun goes on.
        """
        if len(self._waiting) >= QUEUE:
            raise Busy("Too many writes are waiting; try again.")
        self._waiting.append(change)
        try:
            async with locked(self._turn, change.until):
                while not change.is_over:
                    await asyncio.shield(change.group or self._grouped(make))
        except Busy:
            if change.group is None:
                raise
            await asyncio.shield(change.group)
            if not change.is_over:  # its group had no time for it
                raise
        finally:
            change.is_left = True
            if change in self._waiting:
                self._waiting.remove(change)
        return change.outcome

    def _grouped(self, make: Make) -> asyncio.Task[None]:
        group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MEMBERS))]
        task = asyncio.create_task(self._make(group, make))
        # Its error is raised where it is awaited; a caller that has left awaits it no more.
        task.add_done_callback(lambda it: it.cancelled() or it.exception())
        for change in group:
            change.group = task
        return task

    async def _make(self, group: Sequence[Change], make: Make) -> None:
        outcomes = await make(group)
        for change, outcome in zip(group, outcomes, strict=False):
            change.is_over, change.outcome = True, outcome
        for change in reversed(group[len(outcomes) :]):
            change.group = None
            if not change.is_left:
                self._waiting.appendleft(change)


def in_savepoints(
    connection: PostgresConnection, works: Sequence[Callable[[], object]]
) -> list[Outcome | None]:
    """What came of the first work, and of all that have time to begin; each is undone alone.

    None is one that cannot share a transaction. Raises what the database refuses: nothing of the
    transaction is left then.
    """
    outcomes: list[Outcome | None] = []
    end = time.monotonic() + LONGEST.total_seconds()
    for work in works:
        connection.execute("SAVEPOINT work")
        outcome: Outcome | None = outcome_of(work)
        if isinstance(outcome, Failed):
            if not isinstance(outcome.error, Exception) or isinstance(outcome.error, psycopg.Error):
                raise outcome.error
            connection.go_back("work")
            if isinstance(outcome.error, NeedsTransactionOfItsOwn):
                outcome = None
        outcomes.append(outcome)
        connection.execute("RELEASE SAVEPOINT work")
        if time.monotonic() > end:
            break
    return outcomes
