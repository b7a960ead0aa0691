"""The engine port: transactions, which read and change the tables of each noun."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ..memory.model.access import Caller
from ..memory.model.agent_memory import Sealed
from ..memory.model.memory import Memory, MemoryId
from ..memory.model.ranking import Scored
from ..memory.model.retention import Retentions
from ..memory.model.search import Filter, Hit, Parts, Tier
from ..memory.model.space import Project
from ..recall.text.query import Corrections, Query, Term
from .maintenance import Condition, Maintenance


@dataclass(frozen=True, slots=True)
class Sealer:
    """Seals texts, each bound to what it belongs to: elsewhere it does not open. Thread-safe."""

    seal: Callable[[str, bytes], Sealed]
    """The text under the newest key, made if there is none; Unavailable if that fails."""
    opened: Callable[[Sealed, bytes], str | None]
    """The text; None if its key is lost, or if it is not what was sealed for this."""


class SearchTable(Protocol):
    """Search over live memories; ranks of different projects are only roughly comparable."""

    def within(self, timeout: timedelta) -> AbstractContextManager[None]:
        """A context whose reads raise TimedOut, or Damaged, and leave the transaction usable."""

    def keyed(self, path: str, filter_: Filter, limit: int) -> list[Hit]:
        """Memories whose key contains the path literally, newest first."""

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        """Corrections of words that are neither in the project or store nor in a global memory.

        The three most frequent words one edit away, with the same first letter. At most four
        words are corrected; none without a single project or store.
        """

    def every(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """Memories in which all pieces of the query occur, best first, ties by id."""

    def best(self, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """Memories in which any term occurs, best first, ties by id.

        A score is that of the best sentence plus 0.4 times the sum of the others, each times
        the sentence's weight; each of several sentences contributes its best memories alone
        (`sentence_depth`). The best then gain by those that follow them (`with_gains`).
        """

    def similar(self, terms: Collection[Term], filter_: Filter, limit: int) -> list[Memory]:
        """Memories that have any of the rare terms among their own words, best first, ties by id.

        The rarest that several memories have, as many as bring SCORED rows; if there is none,
        every term counts.
        """

    def similarities(self, text: str, others: Sequence[str]) -> list[float]:
        """How alike a text and each of the others are (`similarity`), by stems without stop words.

        No statistics count, so that a score is the same in any project and in every engine.
        """

    def ranking(self, tier: Tier, query: Query, filter_: Filter, limit: int) -> list[Scored]:
        """The full ranking of a tier, at most PLACES long.

        Sentence depth is that of the limit; a single sentence contributes all.
        """

    def parts(
        self, tier: Tier, query: Query, filter_: Filter, limit: int, ids: Collection[MemoryId]
    ) -> Mapping[MemoryId, Parts]:
        """The score parts of these memories; those that are invisible are left out.

        One beyond the limit of the tier has its matched terms, too.
        """

    def backfill(self, filter_: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        """The newest memories that are not among `but`."""


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
