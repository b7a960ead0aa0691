"""The engine port: transactions, which read and change the tables of each noun; maintenance; and
the audit log.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from ..errors import RunAgain
from ..light import dataclass, fields
from ..memory.access import Caller
from ..memory.memory import SessionId
from ..memory.rows import Uids, uid_of
from ..memory.space import DEFAULT_RETENTIONS, Held, Project, Retentions
from ..memory.table import Connection, Dialect, Index, Known, Moment, Table
from ..recall.search import Search

Audit = Callable[..., None]
"""Called with caller, action and fields before an action; Unavailable if it cannot be recorded."""


async def audited(audit: Audit, caller: Caller, action: str, **fields: object) -> None:
    """Record an action in a caller's tenant before it is done; if this raises, it must not be."""
    await asyncio.to_thread(audit, caller, action, tenant=caller.tenant, **fields)


class AuditLog(Protocol):
    """The audit log, including its maintenance. Unavailable if it cannot be used."""

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        """Record an action before it is done."""

    def trim(self, until: datetime) -> int:
        """Remove the leading lines that are not newer than `until`; return their number."""

    def measured(self, until: datetime | None) -> Held:
        """Count the lines, and those that `trim` would remove."""


def noop(*_: object) -> None:
    """A callback that ignores its arguments."""


class RowCounts(NamedTuple):
    """The numbers of rows of a database; deleted memories count only in `memories`."""

    memories: int
    revisions: int
    sessions: int
    sessions_open: int  # sessions that have not ended
    pinned: int  # pinned live memories
    reviews_due: int  # live memories whose own review date has passed
    working: int  # entries of agents' working memory, including expired ones
    episodic: int
    semantic: int
    refs: int  # entries of refs, deleted ones included
    runs: int
    runs_open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The result of a check of a tenant's storage."""

    is_intact: bool = True
    has_newest_format: bool = True
    damaged_rows: Sequence[str] = ()  # the first known ones, by table, row and column
    lacks_standby: bool = False  # if so, acknowledged writes can be lost with one machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidied:
    """The state in which the full-text index was found, and its repairs."""

    parts: int
    drift: int  # surplus or missing rows of the index
    rebuilt: tuple[int, ...]  # rebuilt parts
    moved: int  # projects moved to another part
    is_damaged: bool  # whether some storage could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    settled: int = 0  # erasures whose bytes are gone now
    pending: int = 0  # erasures whose bytes are held back


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The size of a tenant's storage and the free space, in bytes."""

    database: int
    log: int | None  # log of writes not yet in the database file; None if we have no files
    free: int | None  # free space on the disk; None if unknown


class Maintenance(Protocol):
    """The maintenance of a tenant's storage by its engine, concurrent with reads and writes.

    Methods raise the same refusals as reads and writes.
    """

    @property
    def has_files(self) -> bool:
        """Whether the storage is in our own files, on a local disk."""

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:
        """Check every row for damage, and remember the damage found.

        `thorough` checks all of the storage, however long that takes.
        """

    async def repair(self, caller: Caller) -> Sequence[int]:
        """Rebuild damaged parts of the index from the unchanged rows; return the parts' numbers."""

    async def bring_to_rules(self, caller: Caller) -> None:
        """Rebuild parts of the index built by other rules, unless opening it has done so."""

    async def tidy(self, caller: Caller) -> Tidied:
        """Correct and rebalance the full-text index, and merge its segments."""

    async def drifts(self, caller: Caller) -> Mapping[int, int]:
        """Return the number of surplus or missing rows of each part of the index."""

    async def is_exact(self, caller: Caller, number: int) -> bool:
        """Whether a part of the index has exactly the words of its memories."""

    async def rebuild(self, caller: Caller, number: int) -> None:
        """Rebuild a part of the index from the memories."""

    async def scrub(self, caller: Caller) -> Scrubbed:
        """Try once to remove erased bytes from the storage, and settle their receipts.

        They stay pending while a read or another process holds the bytes back.
        """

    async def sizes(self, caller: Caller) -> Sizes:
        """Return the size of the storage, and the free space."""

    async def count(self, caller: Caller) -> RowCounts:
        """Return the row counts; NotFound if the storage is not open, as this does not open it."""

    def copies(self, caller: Caller) -> Sequence[str]:
        """Return the names of copies next to the storage, which erasures do not reach."""


class Outcome(NamedTuple):
    """The answer of work whose change is committed, or the error because of which it had none."""

    answer: Any = None
    error: BaseException | None = None


def outcome_of(work: Callable[[], object]) -> Outcome:
    try:
        return Outcome(work())
    except BaseException as error:  # noqa: BLE001 - raised where the outcome is awaited
        return Outcome(error=error)


def answer_of(outcome: Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error
    return outcome.answer


def settle(answer: asyncio.Future[Any], outcome: Outcome) -> None:
    if answer.done():
        return
    if outcome.error is None:
        answer.set_result(outcome.answer)
    else:
        answer.set_exception(outcome.error)
        answer.exception()  # marks it as retrieved, as a caller that leaves now does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """An encrypted value, and what its decryption needs except the key."""

    key: str  # the id of the key that sealed it
    nonce: bytes
    text: bytes


@dataclass(frozen=True, slots=True)
class Sealer:
    """Encrypts texts, each bound to a context, without which it cannot be opened. Thread-safe."""

    seal: Callable[[str, bytes], Sealed]
    """Encrypts a text with the newest key, created if missing; Unavailable if that fails."""
    opened: Callable[[Sealed, bytes], str | None]
    """Returns the text; None if its key is lost, or if it was not sealed for this context."""


P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound=Callable[..., object])


class WriteTarget(NamedTuple):
    """The one project and the one session that work touches."""

    project: Project
    session: SessionId
    fingerprint: int = 0  # of a text whose duplicate it looks for
    only_adds: bool = False  # a memory of this text, or counts its duplicate, and no more


_WITHIN, _LATER = "target_of_work", "is_durable_later"


def within_one_project(
    target: Callable[..., WriteTarget | None] = lambda *_, **__: None,
) -> Callable[[W], W]:
    """Declare that work touches one session, one project and one idempotency key.

    An engine may run it concurrently with other such work; undeclared work is the only writer of
    its tenant. `target` returns the WriteTarget from the arguments of the work, if these name more
    than an id; work with a WriteTarget may share a transaction with other work.
    """

    def declared(work: W) -> W:
        setattr(work, _WITHIN, target)
        return work

    return declared


def target_of(work: Callable[..., object]) -> Callable[..., WriteTarget | None] | None:
    """Return the `target` of declared work; a wrapper has that of the wrapped function."""
    return getattr(work, _WITHIN, None)


def durable_later(work: W) -> W:
    """Declare that a power failure may undo work until the next write that is not declared so."""
    setattr(work, _LATER, True)
    return work


def is_durable_later(work: Callable[..., object]) -> bool:
    return hasattr(work, _LATER)


class Transaction(ABC):
    """A read snapshot, or an atomic change, on either engine."""

    _sql: Dialect

    def __init__(  # noqa: PLR0913 - everything that a transaction depends on
        self, connection: Connection, now: datetime, caller: Caller, *, quota: int | None = None,
        retention: Retentions = DEFAULT_RETENTIONS, uids: Uids | None = None,
        others: Callable[[], int] = lambda: 0, sealer: Sealer | None = None,
        known: Known | None = None, is_alone: bool = True,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._quota = quota
        self._uids = uids or Uids()
        self._others = others
        self._sealer = sealer
        self.is_alone = is_alone  # whether no other work shares the transaction
        self._projects = caller.projects
        self._begun = time.monotonic()
        self._tables: dict[type, object] = {}
        self._tenant = caller.tenant
        self._moment = Moment(connection, now)
        self._known = known or Known()
        self.now = self._now = now
        """The instant of the transaction, and of every row that it writes."""
        self.caller = caller
        """The caller, whose access limits what reads see; the domain checks changes.

        Memories outside the caller's projects are invisible, unless they are global. Lookups
        of sessions, and of keys in use, are not limited: the domain must not reveal them.
        """
        self.retention = retention

    @property
    def is_awaited(self) -> bool:
        """Whether other writers are waiting for this transaction at the moment."""
        return self._others() > 0

    @property
    def room(self) -> int | None:
        """The tenant's remaining quota in bytes, negative if exceeded; None is unlimited."""
        return None if self._quota is None else self._quota - self._stored()

    @abstractmethod
    def _stored(self) -> int:
        """Return the current size of the tenant's storage in bytes."""

    @property
    @abstractmethod
    def search(self) -> Search:
        """Search over live memories."""

    @property
    @abstractmethod
    def index(self) -> Index:
        """The full-text index, as tables use it."""

    def require_alone(self) -> None:
        """Ensure that no other work shares the transaction: otherwise, the work runs again."""
        if not self.is_alone:
            raise RunAgain

    def new_uid(self, at: datetime) -> str:
        """Return a new stable id (UUIDv7) that sorts by the instant; monotonic within a process."""
        return self._uids.make(at) if at == self.now else uid_of(at)

    def __getitem__(self, table: type[T], /) -> T:
        """Return the table of a noun, as in `tx[MemoryTable]`, created on first use."""
        made = self._tables.get(table)
        if made is None:
            attributes, tables = _parts(cast("Any", table))
            made = self._tables[table] = table(*attributes(self), *[self[it] for it in tables])
        return cast("T", made)


@cache
def _parts(table: Any) -> tuple[Callable[["Transaction"], tuple[object, ...]], Sequence[type]]:
    """Return the arguments of a table: attributes of the transaction, then other tables."""
    kinds = {it.name: it.type for it in fields(table) if it.init}
    tables = {n: it for n, it in kinds.items() if isinstance(it, type) and issubclass(it, Table)}
    names = [name for name in kinds if name not in tables]
    assert list(kinds) == [*names, *tables], table
    return attrgetter(*names), tuple(tables.values())


class Engine(Protocol):
    """Runs plain functions as transactions on the caller's tenant. Unavailable, Busy or Full."""

    async def read(
        self, caller: Caller, work: Callable[Concatenate[Transaction, P], T], *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:  # fmt: skip
        """Run `work` on one snapshot; it must not write."""

    async def write(
        self, caller: Caller, work: Callable[Concatenate[Transaction, P], T], *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:  # fmt: skip
        """Run `work` as if it were the only writer and commit it; rolled back if it raises.

        On return the change is durable, or `durable_later`. Cancellation does not stop begun work.
        """

    @property
    def maintenance(self) -> Maintenance:
        """The maintenance of the engine's own storage."""


class Storage(Engine, Protocol):
    """The engine of a service, including what its operation needs."""

    @property
    def waiting(self) -> int:
        """The number of writes that are waiting or running."""

    @property
    def background(self) -> Engine:
        """The engine for scheduled jobs: it neither opens storage nor keeps it open."""

    def callers(self) -> Sequence[Caller]:
        """Return the operator of each tenant whose storage is open, the default tenant first."""

    def led(self) -> Sequence[Caller]:
        """Return the operators of tenants whose scheduled jobs this process runs, as the leader."""

    async def probe(self) -> Condition:
        """Test a write to the default tenant; return the known condition of all open storage.

        Raises the refusals of such a write, and Damaged while damage is known.
        """
