"""The engine port: transactions, which read and change the tables of each noun; and what those who
look after an engine ask of it, the audit log, and progress.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from ..light import dataclass, fields
from ..memory.access import Caller
from ..memory.memory import Moment, SessionId
from ..memory.rows import Uids, uid_of
from ..memory.space import USUAL, Held, Project, Retentions
from ..memory.table import Connection, Dialect, Index, Known, Table
from ..recall.search import Search

Progress = Callable[[str], None]
"""Called with the name of each step before it is taken."""

Audit = Callable[..., None]
"""Called with caller, action and fields before the action is done; Unavailable if that fails."""


async def audited(audit: Audit, caller: Caller, action: str, **fields: object) -> None:
    """Audit what is about to be done in a caller's tenant, which is not done if that fails."""
    await asyncio.to_thread(audit, caller, action, tenant=caller.tenant, **fields)


class AuditLog(Protocol):
    """The audit log, as those see it who look after it. Unavailable if it cannot be used."""

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        """Record an action before it is done."""

    def trim(self, until: datetime) -> int:
        """Remove what is as old as that, or older, and has no newer before it; how much."""

    def measured(self, until: datetime | None) -> Held:
        """How much there is, and how much of it `trim` would remove."""


def noop(*_: object) -> None:
    """A callback that ignores its arguments."""


class RowCounts(NamedTuple):
    """How many rows a database has; deleted memories count among `memories` alone."""

    memories: int
    revisions: int
    sessions: int
    sessions_open: int  # of the sessions, those that have not ended
    pinned: int  # of the live memories
    reviews_due: int  # live memories whose own date has passed
    working: int  # entries of agents' memory, those included that have expired
    episodic: int
    semantic: int
    refs: int  # entries of refs, deleted ones included
    runs: int
    runs_open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a check found of the storage of a tenant."""

    is_intact: bool = True
    has_newest_format: bool = True
    damaged_rows: Sequence[str] = ()  # of those that are known the first, by table, row, column
    lacks_standby: bool = False  # so that what is acknowledged can be lost with one machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidied:
    """How the full-text index was found, and what was done for it."""

    parts: int
    drift: int  # rows that the index had too many or too few
    rebuilt: tuple[int, ...]  # parts that were filled afresh
    moved: int  # projects that went to another part
    is_damaged: bool  # whether some storage could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    settled: int = 0  # erasures whose bytes are gone now
    pending: int = 0  # that are held back


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The bytes that the storage of a tenant takes, and those that are left for it."""

    database: int
    log: int | None  # of writes that are not in the database yet; None if it has no files of ours
    free: int | None  # on the disk; None where nobody can tell


class Maintenance(Protocol):
    """What an engine does for the storage of a tenant; others read and write meanwhile.

    Refuses as a read or a write does.
    """

    @property
    def has_files(self) -> bool:
        """Whether storage lies in files of ours, on a disk that can be looked at."""

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:
        """Check every row for damage, and remember what is found.

        `thorough` checks all of the storage, however long that takes.
        """

    async def repair(self, caller: Caller) -> Sequence[int]:
        """Rebuild damaged parts of the index from the rows, which are never changed; which."""

    async def bring_to_rules(self, caller: Caller) -> None:
        """Rebuild what other rules have made of the index, unless that was done when it opened."""

    async def tidy(self, caller: Caller) -> Tidied:
        """Correct and rebalance the full-text index, and merge its segments."""

    async def drifts(self, caller: Caller) -> Mapping[int, int]:
        """By how many rows each part of the index is out of line."""

    async def is_exact(self, caller: Caller, number: int) -> bool:
        """Whether a part of the index holds just what the memories say, word for word."""

    async def rebuild(self, caller: Caller, number: int) -> None:
        """Fill a part of the index again from the memories."""

    async def scrub(self, caller: Caller, progress: Progress = noop) -> Scrubbed:
        """Try once to remove erased bytes from the storage, and settle their receipts.

        They stay pending while a read or another process holds the bytes back.
        """

    async def sizes(self, caller: Caller) -> Sizes:
        """The size of the storage, and the free space."""

    async def count(self, caller: Caller) -> RowCounts:
        """The row counts; NotFound if the storage is not open, as this does not open it."""

    def copies(self, caller: Caller) -> Sequence[str]:
        """The names of copies beside the storage, which erasures do not reach."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The work is done, and a change committed; this is what it answered."""

    answer: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing of the work happened, for this reason."""

    error: BaseException


Outcome = Succeeded | Failed


def outcome_of(work: Callable[[], object]) -> Outcome:
    try:
        return Succeeded(work())
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
        return Failed(error)


def answer_of(outcome: Outcome) -> Any:
    if isinstance(outcome, Failed):
        raise outcome.error
    return outcome.answer


def settle(answer: asyncio.Future[Any], outcome: Outcome) -> None:
    if answer.done():
        return
    if isinstance(outcome, Succeeded):
        answer.set_result(outcome.answer)
    else:
        answer.set_exception(outcome.error)
        answer.exception()  # a caller that leaves now does not ask for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """An encrypted value, and what is needed to open it but the key."""

    key: str  # the id of the key that sealed it
    nonce: bytes
    text: bytes


@dataclass(frozen=True, slots=True)
class Sealer:
    """Seals texts, each bound to what it belongs to: elsewhere it does not open. Thread-safe."""

    seal: Callable[[str, bytes], Sealed]
    """The text under the newest key, made if there is none; Unavailable if that fails."""
    opened: Callable[[Sealed, bytes], str | None]
    """The text; None if its key is lost, or if it is not what was sealed for this."""


P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound=Callable[..., object])


class WriteTarget(NamedTuple):
    """The one project and the one session that work touches."""

    project: Project
    session: SessionId
    fingerprint: int = 0  # of a text whose duplicate it looks for
    only_adds: bool = False  # a memory of this text, or counts its duplicate, and no more


_WITHIN = "target_of_work"


def within_one_project(
    of: Callable[..., WriteTarget | None] = lambda *_, **__: None,
) -> Callable[[W], W]:
    """Declare that work touches one session, one project and one idempotency key.

    An engine may make it beside other such work; any other is the only writer of its tenant.
    `of` tells the place from the arguments of the work, where they say it, and not an id alone;
    work that has one may share a transaction with others.
    """

    def declared(work: W) -> W:
        setattr(work, _WITHIN, of)
        return work

    return declared


def is_within_one_project(work: Callable[..., object]) -> bool:
    """Whether that was declared; of a function that wraps another, of that."""
    return hasattr(work, _WITHIN)


def target_of(work: Callable[..., object], *args: object, **kwargs: object) -> WriteTarget | None:
    """The place of declared work, if its arguments tell."""
    of: Callable[..., WriteTarget | None] = getattr(work, _WITHIN)
    return of(*args, **kwargs)


class Transaction(ABC):
    """A read snapshot, or an atomic change, on either engine."""

    _sql: Dialect

    def __init__(  # noqa: PLR0913 - all that a transaction is bound to
        self,
        connection: Connection,
        now: datetime,
        caller: Caller,
        *,
        quota: int | None = None,
        retention: Retentions = USUAL,
        uids: Uids | None = None,
        others: Callable[[], int] = lambda: 0,
        sealer: Sealer | None = None,
    ) -> None:
        self._connection = connection
        self._quota = quota
        self._uids = uids or Uids()
        self._others = others
        self._sealer = sealer
        self._projects = caller.projects
        self._begun = time.monotonic()
        self._tables: dict[type, object] = {}
        self._tenant = caller.tenant
        self._moment = Moment(connection, now)
        self._known = Known()
        self.now = self._now = now
        """The instant of the transaction, of every row that it writes."""
        self.caller = caller
        """The caller, whose access limits what reads see; the domain checks changes.

        Memories outside the caller's projects are invisible, unless they are global. Lookups
        of sessions, and of keys in use, are not limited: the domain must not reveal them.
        """
        self.retention = retention

    @property
    def is_awaited(self) -> bool:
        """Whether other writers are waiting for this transaction; it changes meanwhile."""
        return self._others() > 0

    @property
    def room(self) -> int | None:
        """The tenant's remaining quota in bytes, negative if exceeded; None is unlimited."""
        return None if self._quota is None else self._quota - self._stored()

    @abstractmethod
    def _stored(self) -> int:
        """The bytes that the tenant takes now."""

    @property
    @abstractmethod
    def search(self) -> Search:
        """Search over live memories."""

    @property
    @abstractmethod
    def index(self) -> Index:
        """The full-text index, as the tables see it."""

    @abstractmethod
    def require_alone(self) -> None:
        """Nothing else may share the transaction."""

    def new_uid(self, at: datetime) -> str:
        """A new stable id (UUIDv7) that sorts by the instant; monotonic within a process."""
        return self._uids.make(at) if at == self.now else uid_of(at)

    def __getitem__(self, table: type[T], /) -> T:
        """The table of a noun, as in `tx[MemoryTable]`, made on first use."""
        made = self._tables.get(table)
        if made is None:
            attributes, tables = _parts(cast("Any", table))
            made = self._tables[table] = table(*attributes(self), *[self[it] for it in tables])
        return cast("T", made)

    @property
    def _index(self) -> Index:
        return self.index


@cache
def _parts(table: Any) -> tuple[Callable[["Transaction"], tuple[object, ...]], Sequence[type]]:
    """What a table is made of: first attributes of the transaction, then other tables."""
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

        On return the change is durable. Cancellation does not stop work that has begun.
        """

    @property
    def maintenance(self) -> Maintenance:
        """What the engine does for its own storage."""


class Storage(Engine, Protocol):
    """The engine of a service, as those see it who look after that."""

    @property
    def waiting(self) -> int:
        """How many writes wait or are being made."""

    @property
    def in_passing(self) -> Engine:
        """For what is done by the clock: it opens no storage, and keeps none open."""

    def callers(self) -> Sequence[Caller]:
        """The operator of each tenant whose storage is open, the default one first."""

    def led(self) -> Sequence[Caller]:
        """Those for whom this process does what is due by the clock: of several, one leads."""

    async def probe(self) -> Condition:
        """Write to the disk what is there, and tell what is known of all storage that is open.

        Refuses as a write of the default tenant does, and with Damaged while damage is known.
        """
