"""The engine port: transactions, which read and change the tables of each noun."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ..memory.model.access import Caller
from ..memory.model.retention import Retentions
from ..memory.model.space import Project
from .maintenance import Condition, Maintenance
from .search import SearchTable

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", bound=Callable[..., object])


def no_project(*_: object, **__: object) -> None:
    """Of work that names what it changes by its id alone."""


_PROJECT = "project_of_work"


def within_one_project(of: Callable[..., Project | None] = no_project) -> Callable[[W], W]:
    """Declare that work touches one session, one project and one idempotency key.

    An engine may make it beside other such work; any other is the only writer of its tenant.
    `of` tells the project from the arguments of the work, where they say it.
    """

    def declared(work: W) -> W:
        setattr(work, _PROJECT, of)
        return work

    return declared


def is_within_one_project(work: Callable[..., object]) -> bool:
    """Whether that was declared; of a function that wraps another, of that."""
    return hasattr(work, _PROJECT)


def project_of(work: Callable[..., object], *args: object, **kwargs: object) -> Project | None:
    """The project that declared work is within, if its arguments tell."""
    of: Callable[..., Project | None] = getattr(work, _PROJECT)
    return of(*args, **kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord:
    """What was done under an idempotency key; key and request are kept as digests."""

    key: bytes
    request: bytes
    status: int  # of the answer
    at: datetime
    answer: str | None  # the outcome as JSON, empty if it was not stored; None if it is erased


class Transaction(Protocol):
    """A read snapshot, or an atomic change."""

    @property
    def now(self) -> datetime:
        """The instant of the transaction, of every row that it writes."""

    @property
    def caller(self) -> Caller:
        """The caller, whose access limits what reads see; the domain checks changes.

        Memories outside the caller's projects are invisible, unless they are global. Lookups
        of sessions, and of keys in use, are not limited: the domain must not reveal them.
        """

    @property
    def room(self) -> int | None:
        """The tenant's remaining quota in bytes, negative if exceeded; None is unlimited."""

    @property
    def retention(self) -> Retentions:
        """The retention of each kind of data."""

    @property
    def is_awaited(self) -> bool:
        """Whether other writers are waiting for this transaction; it changes meanwhile."""

    @property
    def search(self) -> SearchTable: ...

    def __getitem__(self, table: type[T], /) -> T:
        """A table of the noun that is asked for, as in `tx[CommitmentTable]`."""

    def new_uid(self, at: datetime) -> str:
        """A new stable id (UUIDv7) that sorts by the instant; monotonic within a process."""


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
