"""A transaction, what it claims beside others, and the groups of writes that share a commit.

A write holds the tenant's lock alone, as SQLite's one writer does. One whose function is declared
to be `within_one_project` shares it with others like it. Then it has the tables here alone, each
of whose methods claims what it names until the commit; what is not here makes it run again, with
the lock to itself. So no claim can be forgotten.

Saves that only add to a project share its lock, and each has the text that it adds alone. So those
of two processes are made beside each other, up to the count of the project's words: that is the
last before the commit.

Writes that wait at the same time share a transaction, and so its commit, whatever their projects.
Such a group waits for nobody: what another process has claimed is left to the next one. Who missed
two waits for its project, in a line of that alone. When a change raises after it had written, the
group is rolled back, and each of its changes is made by itself.
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
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import psycopg

from ..engine.engine import Failed, Outcome, Transaction, WriteTarget, noop, outcome_of
from ..errors import Busy, DamagedRow
from ..light import dataclass
from ..memory.access import Caller, TenantId
from ..memory.idempotency import IdempotencyTable
from ..memory.lifecycles import SupersessionTable
from ..memory.memories import MemoryLists, MemoryTable
from ..memory.memory import Memory, MemoryId, SessionId
from ..memory.saves import RevisionTable
from ..memory.sessions import SessionTable, TranscriptTable
from ..memory.space import (  # fmt: skip
    FIRST,
    GLOBAL_SCOPE,
    NUMBERS,
    IndexGroup,
    Project,
    Space,
    require_place,
)
from ..memory.table import Known
from ..recall.features import Features
from ..recall.stems import Stems
from ..recall.text import fingerprint
from ..recall.visibility import Visibility
from .connection import BUSY, POSTGRESQL, PostgresConnection
from .index import Index
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
        features: Features,
        memory: IndexMemory | None = None,
        is_alone: bool = True,
        **bound: Any,
    ) -> None:
        super().__init__(connection, now, caller, **bound)
        self.connection = connection
        self._stems = stems
        self._features = features
        self._memory = memory
        self._is_alone = is_alone

    def beside(self, first: "PostgresTransaction") -> "PostgresTransaction":
        """This one, of the group of another: what is known holds until the end of both."""
        self._known, self.index = first.known, first.index
        return self

    @property
    def known(self) -> Known:
        return self._known

    def _stored(self) -> int:
        self.flush()
        return stored(self._connection)

    @cached_property
    def index(self) -> Index:
        return Index(self._connection, self._features, self._stems)

    def written(self) -> dict[int, Written | None]:
        """What was written into the index, once it is committed."""
        return self.index.written() if "index" in vars(self) else {}

    def flush(self) -> None:
        """Put into the index what waits: it is about to be read, or committed."""
        if "index" in vars(self):
            self.index.flush()
        self.connection.flush()

    @property
    def search(self) -> PostgresSearch:
        self.flush()
        return self._search

    @cached_property
    def _search(self) -> PostgresSearch:
        table = self._connection, self._sql, self._projects, self._moment
        return PostgresSearch(
            self._connection,
            memories=MemoryLists(*table),
            visibility=Visibility(*table, self._groups_of_projects),
            features=self._features,
            stems=self._stems,
            begun=self._begun,
            cached=self._memory or IndexMemory(None, self._features),
        )

    def _groups_of_projects(self) -> list[int]:
        rows = self._connection.execute(
            "SELECT DISTINCT partition FROM spaces WHERE partition BETWEEN :first AND :last",
            {"first": FIRST, "last": NUMBERS[IndexGroup.PROJECTS][-1]},
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
    """What a write holds from its beginning: its tenant, and a project that it waits for."""

    tenant: TenantId
    alone: bool = False
    project: Project | None = None


# A selected array has one plan: an array as such would be planned each time that it is short.
KNOWN = """
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
    """What a transaction has claimed: nobody else touches it until its end."""

    def __init__(self, connection: PostgresConnection, schema: str, existing: set[int]) -> None:
        self._connection = connection
        self._schema = schema
        self._existing = existing  # numbers of projects that have a space; who makes one is alone
        self._taken: set[int] = set()
        self._shared: set[int] = set()  # projects

    def begin(
        self, begin: Callable[..., Any], lock: Lock, changes: "Sequence[Change]", known: Known
    ) -> "Sequence[Change]":
        """Begin, and claim what changes name; those of which all was free, or the first.

        `begin` takes locks in this order; each is an expression of some values.

        The whole tenant is claimed, alone or beside others that claim what they touch. Nothing that
        others wait for is held while this waits, for the first one's project alone. What these
        changes ask first is learned with it, in one round trip: it stays true.
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
        waited = f"pg_advisory_xact_lock{'_shared' * bool(shared)}(:project)"
        begun = begin(
            tenant,
            waited if lock.project else "NULL",
            # One after the other, when those before are held.
            *(
                f"""ARRAY(SELECT number
                           FROM unnest(CAST((SELECT :{its}) AS BIGINT[])) AS number
                          WHERE pg_try_advisory_xact_lock{kind}(number))"""
                for its, kind in (("numbers", ""), ("shared", "_shared"))
            ),
            # The sequence is looked for when this runs, in the schema that was set before.
            """ARRAY(SELECT nextval(CAST(CAST('memories_id_seq' AS TEXT) AS regclass))
                       FROM generate_series(1, (SELECT CAST(:count AS BIGINT)))
                   ORDER BY 1 DESC)""",
            tenant=number_of(self._schema),
            project=number_of(self._schema, "project", lock.project or ""),
            numbers=list(set().union(*numbers.values()) - shared),
            shared=list(shared),
            # None for one by itself, which may need none: numbers have gaps only after groups.
            count=len(targets) if len(changes) > 1 else 0,
        )
        projects, sessions, fingerprints, _ = map(list, zip(*targets, strict=True))
        known_rows = self._connection.execute(
            KNOWN, {"projects": projects, "sessions": sessions, "fingerprints": fingerprints}
        )
        *_, taken, also, self._connection.ids = begun.fetchone()
        self._taken.update(taken)
        self._shared.update(also)
        for session, project, scope, id_, area, partition in known_rows.fetchall():
            with suppress(DamagedRow):  # who reads it will tell
                if session is not None:
                    known.sessions[session] = project
                elif project is not None:
                    require_place(id_, area, partition, project)
                    known.spaces[Space(project=project, scope=scope)] = id_, area
                    self._existing.add(number_of(self._schema, "project", project))
                else:
                    fingerprints.append(id_)
        # Of two changes that say the same, the second finds the first one's memory.
        known.new.update(it for it, times in Counter(fingerprints).items() if times == 1)
        made = [it for it in changes if numbers[it] <= self._taken | self._shared]
        if lock.project and first not in made:
            return [first]
        for it in changes:
            it.misses += it not in made
        return made

    def key(self, digest: bytes) -> None:
        self._claim("key", digest.hex())

    def session(self, session: SessionId) -> None:
        self._claim("session", session)

    def space(self, space: Space) -> None:
        """The project of a space: its scopes share its words. Global memories are of all."""
        if not space.traits.has_project or space.scope == GLOBAL_SCOPE:
            raise NeedsToBeAlone
        self._claim("project", space.project)

    def text(self, memory: Memory) -> None:
        """The text of a memory in its project: who shares that adds it, or counts its duplicate."""
        space = memory.space
        if number_of(self._schema, "project", space.project) not in self._shared:
            self.space(space)
        else:
            text = memory.text
            searched = fingerprint(memory.key, text.type, text.title, memory.content_hash)
            self._claim("text", space.project, str(searched))

    def _claim(self, kind: str, *names: str) -> None:
        """Nobody else may touch it until this transaction has ended; claimed once."""
        number = number_of(self._schema, kind, *names)
        if number in self._shared:  # two that wait for each other's part would wait for ever
            raise NeedsToBeAlone
        if number not in self._taken:
            self._taken.add(number)
            self._connection.execute("SELECT pg_advisory_xact_lock(:number)", {"number": number})


def number_of(*parts: str) -> int:
    digest = blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


Methods = Mapping[str, Callable[[Claims, Any], None]]
"""How each method claims its first argument."""

CLAIMED: Mapping[type, Methods] = {
    IdempotencyTable: {"get": Claims.key, "add": lambda claims, it: claims.key(it.key)},
    SessionTable: {
        **dict.fromkeys(("get", "project_of"), Claims.session),
        **dict.fromkeys(("open", "close", "grow"), lambda claims, it: claims.session(it.id)),
    },
    TranscriptTable: dict.fromkeys(("get", "put", "drop"), Claims.session),
    # What is linked is of one project: that of a memory which was claimed.
    SupersessionTable: {"of": noop},
    MemoryTable: {
        **dict.fromkeys(("at_key", "pins"), Claims.space),
        **dict.fromkeys(
            ("replace", "set_lifecycle", "release_key"), lambda claims, it: claims.space(it.space)
        ),
        **dict.fromkeys(("twin", "insert", "count_duplicate"), Claims.text),
    },
}  # fmt: skip
"""What a write beside others has of tables."""


class Claimed:
    """A table of which a write beside others has some methods."""

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
        return self._table.get(memory)  # it may have changed until it was claimed


class WithinOneProject:
    def __init__(self, tx: PostgresTransaction, claims: Claims) -> None:
        self.now = tx.now
        self.caller = tx.caller
        self.retention = tx.retention
        self.new_uid = tx.new_uid
        self._tx = tx
        self._claims = claims

    def __getitem__(self, table: type[T], /) -> T:
        if table is RevisionTable:  # of memories, which were claimed
            return self._tx[table]
        if table not in CLAIMED:
            raise NeedsToBeAlone(table.__name__)
        claimed = ClaimedMemories if table is MemoryTable else Claimed
        return cast("T", claimed(self._tx[table], self._claims, CLAIMED[table]))

    @property
    def room(self) -> int | None:
        return self._tx.room

    @property
    def is_awaited(self) -> bool:
        return self._tx.is_awaited


QUEUE = 512  # callers that may wait
MAX_WAIT = timedelta(seconds=5)  # for a place, and for a lock


class Places(asyncio.Semaphore):
    """So many may be used at a time."""

    _waiting = 0

    async def take(self, until: float) -> None:
        """Take one; Busy when none is free by then, a time of the loop, or too many wait."""
        if self._waiting >= QUEUE:
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
    """The time of the loop until which a caller waits that comes now, for whatever it needs."""
    return asyncio.get_running_loop().time() + MAX_WAIT.total_seconds()


MEMBERS = 32  # of a group
LONGEST = timedelta(milliseconds=50)  # of a group: all its callers wait for the commit
AT_A_TIME = 2  # groups of a line: one works while the other commits
MISSES = 2  # of a change in groups that do not wait; then it does, beside them
# Of the loop, from a request's arrival to its group: those that come together are made together.
LOOP_PASSES = 3


@dataclass(slots=True, eq=False)
class Change:
    """A write, its caller, and what came of it."""

    caller: Caller
    work: Callable[[PostgresTransaction], Any]
    until: float  # a time of the loop, to which it waits for what it needs
    target: WriteTarget | None = None  # the project and the session that it touches
    misses: int = 0  # groups in which another process had what it names
    answer: "asyncio.Future[Outcome | None] | None" = None

    @property
    def names(self) -> list[tuple[str, ...]]:
        """What it will claim, as far as that is known."""
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
        """What only one group at a time may have: else it waits for the other."""
        target = self.target
        return target and (target.project, target.session if target.only_adds else None)

    def settle(self, outcome: Outcome | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(outcome)


Outcomes = Mapping[Change, Outcome | None]
"""Of changes, as far as they were made. None: nothing happened of it, it is to be made alone."""

Make = Callable[[Sequence[Change], Callable[[], None]], Awaitable[Outcomes]]
"""Makes changes, and calls back when all that is left of it is to wait for the commit."""


class Line:
    """Writes of one process that share transactions: those that wait together, if they can."""

    def __init__(self, make: Make) -> None:
        self._make_group = make
        self._waiting: dict[Change, None] = {}
        self._busy: set[object] = set()  # what groups contend for
        self._groups: set[asyncio.Task[None]] = set()
        self._working: asyncio.Task[None] | None = None  # of the groups the one not committing yet
        self._is_gathering = False  # whether a group waits for its last members
        self._size = 1  # of the last group

    async def made(self, change: Change) -> Outcome | None:
        """What came of a change. Busy when it waits for too long, or too many do.

        None: nothing happened, for another's sake maybe; it shall be made by itself. A cancelled
        caller leaves; a change that has begun continues.
        """
        if len(self._waiting) >= QUEUE:
            raise Busy("Too many writes are waiting; try again.")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome | None] = loop.create_future()
        change.answer, change.misses = answer, 0
        self._waiting[change] = None
        self._begin()
        late = loop.call_at(change.until, self._refuse, change)
        try:
            return await answer
        finally:
            late.cancel()
            self._waiting.pop(change, None)

    def _refuse(self, change: Change) -> None:
        if change in self._waiting:
            del self._waiting[change]
            change.settle(Failed(Busy(BUSY)))

    def _begin(self) -> None:
        """Make what waits, if that is as much as what is being made: each group costs two saves."""
        enough = self._size if self._working else 1
        is_free = not self._is_gathering and len(self._groups) < AT_A_TIME
        if is_free and len(self._waiting) >= enough:
            self._is_gathering = True
            self._groups.add(asyncio.create_task(self._serve(asyncio.get_running_loop())))

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        own = cast("asyncio.Task[None]", asyncio.current_task())

        def committing() -> None:  # called by another thread
            if self._working is own:
                self._working = None
            if self._waiting:
                loop.call_soon_threadsafe(self._begin)

        for _ in range(LOOP_PASSES if self._size > 1 else 1):
            await asyncio.sleep(0)
        self._is_gathering = False
        group = [*islice((it for it in self._waiting if it.contended not in self._busy), MEMBERS)]
        if group:
            self._size, self._working = len(group), own
            await self._make(group, committing)
        self._groups.discard(own)  # at once: who comes now sees it
        if self._working is own:
            self._working = None
        if group:  # else those that wait are made after others that contend
            self._begin()

    async def _make(self, group: Sequence[Change], committing: Callable[[], None]) -> None:
        for it in group:
            del self._waiting[it]
        busy = {it.contended for it in group}
        self._busy |= busy
        try:
            outcomes: Outcomes = await self._make_group(group, committing)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            outcomes = dict.fromkeys(group, Failed(error))
        finally:
            self._busy -= busy
        left: dict[Change, None] = {}
        for it in group:
            if it in outcomes or it.misses >= MISSES:
                it.settle(outcomes.get(it))
            elif it.answer is not None and not it.answer.done():  # its caller waits
                left[it] = None
        self._waiting = {**left, **self._waiting}


class Undone(Exception):
    """A change raised after it had written: what was done before it is undone with it."""


def in_group(
    connection: PostgresConnection, works: Mapping[Change, Callable[[], object]]
) -> dict[Change, Outcome | None]:
    """What came of the first work, and of all that have time to begin.

    None is one that cannot share a transaction. Raises Undone, or what the database refuses:
    nothing of the transaction is left then.
    """
    outcomes: dict[Change, Outcome | None] = {}
    end = time.monotonic() + LONGEST.total_seconds()
    for change, work in works.items():
        connection.has_written = False
        outcome: Outcome | None = outcome_of(work)
        if isinstance(outcome, Failed):
            error = outcome.error
            if not isinstance(error, Exception) or isinstance(error, psycopg.Error):
                raise error
            if connection.has_written:
                raise Undone from error
            if isinstance(error, NeedsTransactionOfItsOwn):
                outcome = None
        outcomes[change] = outcome
        if time.monotonic() > end:
            break
    return outcomes
