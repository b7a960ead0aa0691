"""The engine port: transactions, and the tables of projects and idempotency."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ..model.access import Caller
from ..model.memory import MemoryId
from ..model.retention import Retentions
from ..model.space import Extent, Listed, Project, RowCounts
from .agents import AgentDirectory, AgentEventTable, AgentTable, NamespaceTable
from .commitments import CommitmentTable
from .imports import ImportTable
from .intents import ArchiveTable, BoundTable, IntentTable, TaskTable
from .lifecycles import LifecycleTable, LookalikeTable, SupersessionTable
from .maintenance import Condition, Maintenance
from .memories import MemoryTable, RevisionTable, SessionTable, TranscriptTable
from .passes import PassTable, SubjectTable
from .proposals import ProposalTable
from .refs import RefTable, RunTable
from .retention import ReceiptTable, RetentionTable
from .reviews import ReviewTable
from .search import SearchTable
from .stores import EntryTable, StoreTable, VersionTable

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


Ids = Mapping[str, int | str]
"""Ids and numbers from which an outcome is rebuilt; never any text."""


class ProjectTable(Protocol):
    """Whole projects: live and soft-deleted memories, revisions, sessions and spaces."""

    def names(self) -> list[Project]:
        """The names of non-empty projects, sorted."""

    def exists(self, project: Project) -> bool:
        """Whether the project is non-empty, or will be by an accepted import."""

    def rows(self) -> RowCounts:
        """The row counts of the database, whoever the caller is."""

    def listed(self, project: Project) -> Listed:
        """A project's entry in a list."""

    def extent(self, project: Project) -> Extent:
        """The counts of what the project holds."""

    def has_global(self, project: Project) -> bool:
        """Whether there are global memories among its own, live or deleted."""

    def rename(self, project: Project, new: Project) -> None:
        """Rename a project; the new name must be unused."""

    def same_keys(self, project: Project, into: Project) -> list[tuple[MemoryId, MemoryId]]:
        """Pairs of live memories of the two projects that share a scope and key."""

    def merge(self, project: Project, into: Project) -> None:
        """Move everything of a project into another; no key may conflict."""

    def some(self, project: Project, limit: int) -> list[MemoryId]:
        """A batch of memories to erase: the newest live ones, then deleted ones.

        No other memory borrows context from them. Fewer than the limit if they are long.
        """

    def erase_sessions(self, project: Project) -> int:
        """Remove the sessions and the spaces of a project without memories; how many sessions.

        One in which other projects have memories stays, without its summary: it goes
        to the project of the oldest of them.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord:
    """The outcome of a request with an idempotency key; key and request are kept as digests."""

    key: bytes
    request: bytes
    status: int  # of the answer
    ids: Ids
    at: datetime


class IdempotencyTable(Protocol):
    """Idempotency records, by the digest of their key; the domain checks their retention."""

    def get(self, key: bytes) -> IdempotencyRecord | None:
        """The record of the key with this digest."""

    def add(self, record: IdempotencyRecord) -> None:
        """Store a record, in the transaction that it describes; an older one is replaced."""

    def until(self, at: datetime, most: int) -> list[bytes]:
        """The keys of records up to then, oldest first, at most `most`."""

    def forget(self, keys: Sequence[bytes], at: datetime) -> int:
        """Remove the records of these keys that are up to then; how many were removed."""


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
    def memories(self) -> MemoryTable: ...
    @property
    def lifecycles(self) -> LifecycleTable: ...
    @property
    def supersessions(self) -> SupersessionTable: ...
    @property
    def lookalikes(self) -> LookalikeTable: ...
    @property
    def reviews(self) -> ReviewTable: ...
    @property
    def sessions(self) -> SessionTable: ...
    @property
    def transcripts(self) -> TranscriptTable: ...
    @property
    def revisions(self) -> RevisionTable: ...
    @property
    def search(self) -> SearchTable: ...
    @property
    def projects(self) -> ProjectTable: ...
    @property
    def receipts(self) -> ReceiptTable: ...
    @property
    def imports(self) -> ImportTable: ...
    @property
    def stores(self) -> StoreTable: ...
    @property
    def entries(self) -> EntryTable: ...
    @property
    def versions(self) -> VersionTable: ...
    @property
    def agents(self) -> AgentTable: ...
    @property
    def agent_directory(self) -> AgentDirectory: ...
    @property
    def agent_events(self) -> AgentEventTable: ...
    @property
    def namespaces(self) -> NamespaceTable: ...
    @property
    def intents(self) -> IntentTable: ...
    @property
    def tasks(self) -> TaskTable: ...
    @property
    def bound(self) -> BoundTable: ...
    @property
    def archives(self) -> ArchiveTable: ...
    @property
    def refs(self) -> RefTable: ...
    @property
    def runs(self) -> RunTable: ...
    @property
    def commitments(self) -> CommitmentTable: ...
    @property
    def passes(self) -> PassTable: ...
    @property
    def subjects(self) -> SubjectTable: ...
    @property
    def proposals(self) -> ProposalTable: ...
    @property
    def idempotency_records(self) -> IdempotencyTable: ...
    @property
    def past_retention(self) -> RetentionTable: ...

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
