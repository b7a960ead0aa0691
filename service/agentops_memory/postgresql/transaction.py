"""A transaction, its claims next to concurrent ones, and groups of writes that share a commit.

A write locks its tenant exclusively, as SQLite's single writer does. A write whose function is
declared `within_one_project` shares this lock with others like it. It reaches only the table
methods that are listed here, each of which claims what it touches until the commit. Any other
access makes it run again with the exclusive lock. So no claim can be forgotten.

Saves that only add to a project share its lock, and each locks its text exclusively. So saves of
two processes run concurrently until the project's words are counted, just before the commit.

Writes that wait at the same time share a transaction, and so its commit, whatever their projects.
Such a group waits for no lock: a change whose claims another process holds is left to the next
group. A change that missed two groups waits for its project, in that project's queue. If a change
raises after it has written, the group is rolled back, and each of its changes runs by itself.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import psycopg

from ..engine.engine import Outcome, Transaction, WriteTarget, noop, outcome_of
from ..errors import Busy, DamagedRow, RunAgain
from ..light import dataclass
from ..memory.access import Caller, TenantId
from ..memory.idempotency import IdempotencyTable
from ..memory.lifecycles import SupersessionTable
from ..memory.memories import MemoryLists, MemoryTable
from ..memory.memory import Memory, MemoryId, SessionId
from ..memory.saves import RevisionTable
from ..memory.sessions import SessionTable, TranscriptTable
from ..memory.space import FIRST, GLOBAL_SCOPE, NUMBERS, IndexGroup, Project, Space, require_place
from ..memory.table import Known
from ..recall.stems import Stems
from ..recall.text import fingerprint
from ..recall.visibility import Visibility
from .connection import BUSY, POSTGRESQL, PostgresConnection
from .index import Index
from .postings import IndexMemory
from .search import PostgresSearch

P = ParamSpec("P")
T = TypeVar("T")


class PostgresTransaction(Transaction):
    """The tables of a connection on which a transaction has begun."""

    _connection: PostgresConnection
    _sql = POSTGRESQL

    def __init__(
        self, connection: PostgresConnection, now: datetime, caller: Caller, stems: Stems, *,
        memory: IndexMemory | None = None, **bound: Any,
    ) -> None:  # fmt: skip
        super().__init__(connection, now, caller, **bound)
        self.connection = connection
        self._stems = stems
        self._memory = memory

    def _stored(self) -> int:
        self.index.index_waiting()
        self.connection.flush()
        return stored(self._connection)

    @cached_property
    def index(self) -> Index:
        return Index(self._connection, self._stems)

    def flush(self) -> None:
        """Store waiting memories and their words, which are about to be read or committed."""
        self.index.flush()
        self.connection.flush()

    @property
    def search(self) -> PostgresSearch:
        self.flush()
        return self._search

    @cached_property
    def _search(self) -> PostgresSearch:
        visibility = Visibility(
            self._connection, self._sql, self._projects, self._moment, self._groups_of_projects
        )
        return PostgresSearch(
            self._connection, memories=self[MemoryLists], visibility=visibility,
            stems=self._stems, begun=self._begun,
            cached=self._memory or IndexMemory(None),
        )  # fmt: skip

    def _groups_of_projects(self) -> list[int]:
        rows = self._connection.execute(
            "SELECT DISTINCT partition FROM spaces WHERE partition BETWEEN :first AND :last",
            {"first": FIRST, "last": NUMBERS[IndexGroup.PROJECTS][-1]},
        )
        return sorted({FIRST, *(number for (number,) in rows.fetchall())})


def stored(connection: PostgresConnection) -> int:
    """Return the bytes of the schema's tables, with deleted rows whose space is not reused yet."""
    ((size,),) = connection.execute(
        """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
             FROM pg_class c
            WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND c.relkind = 'r'"""
    )
    return int(size)


Work = Callable[Concatenate[PostgresTransaction, P], T]
"""A function that runs in a transaction; it may run again after a rollback."""


class NeedsToBeAlone(Exception):
    """Work touched something that it cannot claim: it runs again with the exclusive lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The locks that a write waits for: its tenant's, exclusive if `alone`, maybe a project's."""

    tenant: TenantId
    alone: bool = False
    project: Project | None = None


# Arrays are selected, as a short array parameter would be planned again each time.
_KNOWN_ROWS = """
SELECT id, project, NULL, 0, 0, 0
  FROM sessions
 WHERE id = ANY(CAST((SELECT :sessions) AS TEXT[]))
 UNION ALL
SELECT NULL, project, scope, id, area, partition
  FROM spaces
 WHERE kind = 'project' AND project = ANY(CAST((SELECT :projects) AS TEXT[]))
 UNION ALL
SELECT NULL, NULL, NULL, m.fingerprint, 0, 0
  FROM unnest(CAST((SELECT :projects) AS TEXT[]), CAST((SELECT :fingerprints) AS BIGINT[]))
       AS its (project, fingerprint)
  JOIN spaces s ON s.project = its.project
 CROSS JOIN LATERAL (SELECT fingerprint
                       FROM memories
                      WHERE space_id = s.id AND fingerprint = its.fingerprint
                      LIMIT 1) m"""


class Claims:
    """The advisory locks of a transaction, which it holds until its end."""

    def __init__(self, connection: PostgresConnection, schema: str, existing: set[int]) -> None:
        self._connection = connection
        self._schema = schema
        self._existing = existing  # projects with a space, by number; a new one is not shared
        self._exclusive: set[int] = set()  # lock numbers
        self._shared: set[int] = set()  # lock numbers of projects
        self._without_space: set[int] = set()  # shared projects that were renamed or erased since

    def begin(
        self, begin: Callable[..., Any], lock: Lock, changes: "Sequence[Change]", known: Known
    ) -> "Sequence[Change]":
        """Begin and claim; return the changes whose claims are all free, or only the first.

        `begin` takes locks in the order of its expressions, with parameters by name.

        The tenant is locked first, exclusively or shared. This waits only for the tenant and the
        first change's project, while it holds nothing that others wait for. The rows that the
        changes look up first are read in the same round trip: claims keep them from changing.
        """
        first, targets = changes[0], [it.target for it in changes if it.target is not None]
        tenant = f"pg_advisory_xact_lock{'' if lock.alone else '_shared'}(:tenant)"
        if not targets:
            begin(tenant, tenant=number_of(self._schema))
            return changes
        project_of = {it: number_of(self._schema, "project", it.project) for it in targets}
        shared = self._existing.intersection(project_of.values())
        shared -= {number for it, number in project_of.items() if not it.only_adds}
        numbers = {it: {number_of(self._schema, *name) for name in it.names} for it in changes}
        project = f"pg_advisory_xact_lock{'_shared' * bool(shared)}(:project)"
        begun = begin(
            tenant,
            project if lock.project else "NULL",
            # Evaluated in this order, after the locks above are held.
            *(
                f"""ARRAY(SELECT number
                           FROM unnest(CAST((SELECT :{names}) AS BIGINT[])) AS number
                          WHERE pg_try_advisory_xact_lock{mode}(number))"""
                for names, mode in (("exclusive", ""), ("shared", "_shared"))
            ),
            # The sequence is resolved when this runs, in the schema that was set before.
            """ARRAY(SELECT nextval(CAST(CAST('memories_id_seq' AS TEXT) AS regclass))
                       FROM generate_series(1, (SELECT CAST(:count AS BIGINT)))
                   ORDER BY 1 DESC)""",
            tenant=number_of(self._schema),
            project=number_of(self._schema, "project", lock.project or ""),
            exclusive=list(set().union(*numbers.values()) - shared),
            shared=list(shared),
            # A single change may need no id: only groups leave gaps in the ids.
            count=len(targets) if len(changes) > 1 else 0,
        )
        projects, sessions, fingerprints, _ = map(list, zip(*targets, strict=True))
        known_rows = self._connection.execute(
            _KNOWN_ROWS, {"projects": projects, "sessions": sessions, "fingerprints": fingerprints}
        )
        *_, exclusive, shared, self._connection.ids = begun.fetchone()
        self._exclusive.update(exclusive)
        self._shared.update(shared)
        placed = set[int]()
        for session, project, scope, id_, area, partition in known_rows.fetchall():
            with suppress(DamagedRow):  # its reader will report it
                if session is not None:
                    known.sessions[session] = project
                elif project is not None:
                    require_place(id_, area, partition)
                    known.spaces[Space(project=project, scope=scope)] = id_, area
                    placed.add(number_of(self._schema, "project", project))
                else:
                    fingerprints.append(id_)
        self._existing |= placed
        self._without_space = self._shared - placed
        self._existing -= self._without_space
        # Of two changes with the same text, the second must find the memory of the first.
        known.new.update(it for it, times in Counter(fingerprints).items() if times == 1)
        claimed = [it for it in changes if numbers[it] <= self._exclusive | self._shared]
        if lock.project and first not in claimed:
            known.new.clear()  # read before the text was claimed, for which this change will wait
            return [first]
        for it in changes:
            it.misses += it not in claimed
        return claimed

    def key(self, digest: bytes) -> None:
        self._claim("key", digest.hex())

    def session(self, session: SessionId) -> None:
        self._claim("session", session)

    def space(self, space: Space) -> None:
        """Claim a space's project, as all its scopes share an area of the index."""
        if not space.kind.traits.has_project or space.scope == GLOBAL_SCOPE:
            raise NeedsToBeAlone
        self._claim("project", space.project)

    def text(self, memory: Memory) -> None:
        """Claim a memory's text if this transaction shares the project, else the project."""
        space = memory.space
        if (number := number_of(self._schema, "project", space.project)) in self._without_space:
            raise NeedsToBeAlone  # two processes would each place the project in an area
        if number not in self._shared:
            self.space(space)
        else:
            text = memory.text
            number = fingerprint(memory.key, text.type, text.title, memory.content_hash)
            self._claim("text", space.project, str(number))

    def _claim(self, kind: str, *names: str) -> None:
        """Take a lock until the end of this transaction, unless it is already held."""
        number = number_of(self._schema, kind, *names)
        if number in self._shared:  # two that upgrade a shared lock would deadlock
            raise NeedsToBeAlone
        if number not in self._exclusive:
            self._exclusive.add(number)
            self._connection.execute("SELECT pg_advisory_xact_lock(:number)", {"number": number})


def number_of(*parts: str) -> int:
    digest = blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


Methods = Mapping[str, Callable[[Claims, Any], None]]
"""By method name, a function that claims the method's first argument."""

CLAIMED: Mapping[type, Methods] = {
    IdempotencyTable: {"get": Claims.key, "add": lambda claims, it: claims.key(it.key)},
    SessionTable: {
        **dict.fromkeys(("get", "project_of"), Claims.session),
        **dict.fromkeys(("open", "close", "grow"), lambda claims, it: claims.session(it.id)),
    },
    TranscriptTable: dict.fromkeys(("get", "put", "drop"), Claims.session),
    # Links are within one project, that of a memory that was claimed.
    SupersessionTable: {"of": noop},
    MemoryTable: {
        **dict.fromkeys(("at_key", "pins"), Claims.space),
        **dict.fromkeys(
            ("replace", "set_lifecycle", "release_key"), lambda claims, it: claims.space(it.space)
        ),
        **dict.fromkeys(("recent_duplicate", "insert", "count_duplicate"), Claims.text),
    },
}  # fmt: skip
"""The table methods that a concurrent write may call."""


class Claimed:
    """A table with only the methods that a concurrent write may call."""

    def __init__(self, table: Any, claims: Claims, methods: Methods) -> None:
        self._table = table
        self._claims = claims
        self._methods = methods

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._methods:
            raise NeedsToBeAlone(name)
        claim, method = self._methods[name], getattr(self._table, name)

        def claimed(subject: object, *args: object, **kwargs: object) -> Any:
            claim(self._claims, subject)
            return method(subject, *args, **kwargs)

        return claimed


class ClaimedMemories(Claimed):
    _table: MemoryTable

    def get(self, memory: MemoryId) -> Memory | None:
        unclaimed = self._table.get(memory)
        if unclaimed is None:
            return None
        self._claims.space(unclaimed.space)
        return self._table.get(memory)  # it may have changed before the claim


class WithinOneProject:
    def __init__(self, tx: PostgresTransaction, claims: Claims) -> None:
        self.now = tx.now
        self.caller = tx.caller
        self.retention = tx.retention
        self.new_uid = tx.new_uid
        self._tx = tx
        self._claims = claims

    def __getitem__(self, table: type[T], /) -> T:
        if table is RevisionTable:  # of memories that were claimed
            return self._tx[table]
        if table not in CLAIMED:
            raise NeedsToBeAlone(table.__name__)
        claimed = ClaimedMemories if table is MemoryTable else Claimed
        return cast("T", claimed(self._tx[table], self._claims, CLAIMED[table]))

    room = property(attrgetter("_tx.room"))
    is_awaited = property(attrgetter("_tx.is_awaited"))


MAX_WAITING = 512  # most callers that may wait
MAX_WAIT = timedelta(seconds=5)  # for a slot or a lock


class Slots(asyncio.Semaphore):
    """Slots for concurrent work, with a limit of waiting callers."""

    _waiting = 0

    async def take(self, until: float) -> None:
        """Acquire a slot; Busy if none is free by `until` (loop time), or too many callers wait."""
        if self._waiting >= MAX_WAITING:
            raise Busy("Too many requests are waiting; try again.")
        self._waiting += 1
        try:
            async with asyncio.timeout_at(until):
                await self.acquire()
        except TimeoutError:
            raise Busy("Too many requests are waiting; try again.") from None
        finally:
            self._waiting -= 1


def deadline() -> float:
    """Return the loop time until which a caller that arrives now waits."""
    return asyncio.get_running_loop().time() + MAX_WAIT.total_seconds()


MAX_GROUP = 32  # most changes of a group
LONGEST = timedelta(milliseconds=50)  # after which no change of a group begins: all callers wait
MAX_RUNNING = 2  # groups of a queue: one runs its changes while the other commits
MAX_MISSES = 2  # missed groups after which a change waits for its project
# Passes of the loop before a group is formed, so that requests that arrive together share it.
LOOP_PASSES = 3


@dataclass(slots=True, eq=False)
class Change:
    """A write, its caller and its outcome."""

    caller: Caller
    work: Callable[[PostgresTransaction], Any]
    until: float  # loop time until which it waits for slots and locks
    target: WriteTarget | None = None  # the project and the session that it touches
    misses: int = 0  # groups that it missed, as another process held one of its claims
    answer: "asyncio.Future[Outcome | None] | None" = None

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The names of the locks that it will claim, as far as they are known."""
        request, target = self.caller.request, self.target
        names: list[tuple[str, ...]] = [] if request is None else [("key", request.key.hex())]
        if target is not None:
            names += [("project", target.project), ("session", target.session)]
            if target.only_adds:
                names.append(("text", target.project, str(target.fingerprint)))
        return names

    @property
    def project(self) -> Project | None:
        return None if self.target is None else self.target.project

    @property
    def contended(self) -> tuple[Project, SessionId | None] | None:
        """What only one group at a time may claim: a second group would wait for it."""
        target = self.target
        return target and (target.project, target.session if target.only_adds else None)

    def settle(self, outcome: Outcome | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(outcome)


Outcomes = Mapping[Change, Outcome | None]
"""The outcomes of the changes that ran; None if a change must run again by itself."""

RunGroup = Callable[[Sequence[Change], Callable[[], None]], Awaitable[Outcomes]]
"""Runs changes, and calls back when only the commit is left to wait for."""


class WriteQueue:
    """Writes of one process; those that wait together share a transaction if they can."""

    def __init__(self, run_group: RunGroup) -> None:
        self._run_group = run_group
        self._waiting: dict[Change, None] = {}
        self._busy: set[object] = set()  # what running groups contend for
        self._groups: set[asyncio.Task[None]] = set()
        self._working: asyncio.Task[None] | None = None  # the group that is not committing yet
        self._is_gathering = False  # whether a group waits for its last members
        self._size = 1  # of the last group

    async def submit(self, change: Change) -> Outcome | None:
        """Return a change's outcome. Busy if it waits for too long, or too many wait.

        None: it was rolled back, maybe because of another change, and must run by itself. If its
        caller is cancelled, a change that has begun continues.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise Busy("Too many writes are waiting; try again.")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome | None] = loop.create_future()
        change.answer, change.misses = answer, 0
        self._waiting[change] = None
        self._begin()
        timer = loop.call_at(change.until, self._refuse, change)
        try:
            return await answer
        finally:
            timer.cancel()
            self._waiting.pop(change, None)

    def _refuse(self, change: Change) -> None:
        if change in self._waiting:
            del self._waiting[change]
            change.settle(Outcome(error=Busy(BUSY)))

    def _begin(self) -> None:
        """Start a group if as many changes wait as run: a group costs as much as two saves."""
        enough = self._size if self._working else 1
        is_free = not self._is_gathering and len(self._groups) < MAX_RUNNING
        if is_free and len(self._waiting) >= enough:
            self._is_gathering = True
            self._groups.add(asyncio.create_task(self._run_next(asyncio.get_running_loop())))

    async def _run_next(self, loop: asyncio.AbstractEventLoop) -> None:
        own = cast("asyncio.Task[None]", asyncio.current_task())

        def committing() -> None:  # called by another thread
            if self._working is own:
                self._working = None
            if self._waiting:
                loop.call_soon_threadsafe(self._begin)

        for _ in range(LOOP_PASSES if self._size > 1 else 1):
            await asyncio.sleep(0)
        self._is_gathering = False
        free = (it for it in self._waiting if it.contended not in self._busy)
        group = [*islice(free, MAX_GROUP)]
        if group:
            self._size, self._working = len(group), own
            await self._run(group, committing)
        self._groups.discard(own)  # without delay, as new callers look at it
        if self._working is own:
            self._working = None
        if group:  # else the waiting changes contend with a running group, which begins the next
            self._begin()

    async def _run(self, group: Sequence[Change], committing: Callable[[], None]) -> None:
        for it in group:
            del self._waiting[it]
        busy = {it.contended for it in group}
        self._busy |= busy
        try:
            outcomes: Outcomes = await self._run_group(group, committing)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            outcomes = dict.fromkeys(group, Outcome(error=error))
        finally:
            self._busy -= busy
        retried: dict[Change, None] = {}
        for it in group:
            if it in outcomes or it.misses >= MAX_MISSES:
                it.settle(outcomes.get(it))
            elif it.answer is not None and not it.answer.done():  # its caller waits
                retried[it] = None
        self._waiting = {**retried, **self._waiting}


class Undone(Exception):
    """A change raised after it had written: its whole group is rolled back."""


def run_group(
    connection: PostgresConnection, works: Mapping[Change, Callable[[], object]]
) -> dict[Change, Outcome | None]:
    """Return the outcomes of the first work, and of the others that begin in time.

    None: the work cannot share a transaction. Raises Undone, or an error of the database; then
    the transaction must be rolled back.
    """
    outcomes: dict[Change, Outcome | None] = {}
    end = time.monotonic() + LONGEST.total_seconds()
    for change, work in works.items():
        connection.has_written = False
        outcomes[change] = outcome = outcome_of(work)
        if (error := outcome.error) is not None:
            if not isinstance(error, Exception) or isinstance(error, psycopg.Error):
                raise error
            if connection.has_written:
                raise Undone from error
            if isinstance(error, RunAgain):
                outcomes[change] = None
        if time.monotonic() > end:
            break
    return outcomes
