"""The engine port: transactions, which read and change the tables of each noun."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from ..light import dataclass, fields
from ..memory.access import Caller
from ..memory.agents import Sealed
from ..memory.memory import Moment, SessionId
from ..memory.retention import USUAL, Retentions
from ..memory.space import Project
from ..memory.table import Connection, Dialect, Index, Known, Table
from ..recall.instants import Uids, uid_of
from ..recall.search import Search
from .maintenance import Condition, Maintenance


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


Place = tuple[Project, SessionId]
"""The one project and the one session that work touches."""


_WITHIN = "place_of_work"


def within_one_project(
    of: Callable[..., Place | None] = lambda *_, **__: None,
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


def place_of(work: Callable[..., object], *args: object, **kwargs: object) -> Place | None:
    """The place of declared work, if its arguments tell."""
    of: Callable[..., Place | None] = getattr(work, _WITHIN)
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
    """Runs plain functions as transactions on the caller's tenant alone.

    Raises Unavailable, Busy or Full.
    """

    async def read(
        self,
        caller: Caller,
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `work` on one snapshot; it must not write."""

    async def write(
        self,
        caller: Caller,
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
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
        """Those for whom this process does what is due by the clock.

        Of processes that share a database, one leads.
        """

    async def probe(self) -> Condition:
        """Write to the disk what is there, and tell what is known of all storage that is open.

        Refuses as a write of the default tenant does, and with Damaged while damage is known.
        """
