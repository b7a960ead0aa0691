"""What the domain asks of storage: every promise in prose."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ..model.access import Caller
from ..model.erasure import Erasure, ErasureId
from ..model.idempotency import IdempotencyRecord
from ..model.maintenance import Condition
from ..model.memory import MemoryId
from ..model.retention import Retentions
from ..model.space import Project
from ..model.totals import Extent, Listed, Rows
from .imports import ImportTable
from .maintenance import Maintenance
from .memories import MemoryTable, RevisionTable, SessionTable, TranscriptTable
from .retention import RetentionTable
from .search import SearchTable
from .stores import EntryTable, StoreTable, VersionTable

P = ParamSpec("P")
T = TypeVar("T")


class ReceiptTable(Protocol):
    """The receipts of erasures, of every project: the rules say who may see one."""

    def add(self, erasure: Erasure) -> None:
        """Store a receipt, in the transaction that erases."""

    def extend(self, erasure: ErasureId, memories: Collection[MemoryId], revisions: int) -> None:
        """Add to a receipt what more has gone."""

    def complete(self, erasure: ErasureId, sessions: int) -> None:
        """Note that the erasure ends now, with so many sessions."""

    def newest_of(self, project: Project) -> Erasure | None:
        """The receipt of the newest erasure of a whole project with this name."""

    def get(self, erasure: ErasureId) -> Erasure | None:
        """The receipt."""

    def of(self, memory: MemoryId) -> Erasure | None:
        """The receipt of the erasure that removed a memory; not one of a redaction."""

    def settled(self, until: datetime, most: int) -> list[ErasureId]:
        """Those whose bytes were gone by then, oldest first, at most so many."""

    def forget(self, erasure: ErasureId, most: int) -> int:
        """Remove a receipt, or so many of the memories that it names; how many rows went."""


class ProjectTable(Protocol):
    """Projects as a whole: live and deleted memories, revisions, sessions and spaces."""

    def names(self) -> list[Project]:
        """The projects that hold anything, in order."""

    def exists(self, project: Project) -> bool:
        """Whether the project holds anything, or will by an import that was accepted."""

    def rows(self) -> Rows:
        """All that the database holds, whoever asks."""

    def listed(self, project: Project) -> Listed:
        """What is told of a project in a list."""

    def extent(self, project: Project) -> Extent:
        """All that the project holds."""

    def has_global(self, project: Project) -> bool:
        """Whether there are global memories among its own, live or deleted."""

    def rename(self, project: Project, new: Project) -> None:
        """Give a project a name that nothing has."""

    def same_keys(self, project: Project, into: Project) -> list[tuple[MemoryId, MemoryId]]:
        """Live memories of the one at a key that a live memory of the other has in that scope."""

    def merge(self, project: Project, into: Project) -> None:
        """Move all of a project into another. No key is held twice any more."""

    def some(self, project: Project, limit: int) -> list[MemoryId]:
        """Some of its memories to erase together: the newest live ones, then deleted ones.

        No other one borrows from them. Fewer than the limit if they are long.
        """

    def erase_sessions(self, project: Project) -> int:
        """Remove the sessions and the spaces of a project without memories; how many sessions.

        One in which other projects have memories stays, without its summary: it goes
        to the project of the oldest of them.
        """


class IdempotencyTable(Protocol):
    """What was done under idempotency keys. Whether that still counts is for the rules to say."""

    def get(self, key: bytes) -> IdempotencyRecord | None:
        """What was done under the key with this digest."""

    def add(self, record: IdempotencyRecord) -> None:
        """Store what was done, in the transaction that does it; it takes the place of another."""

    def until(self, at: datetime, most: int) -> list[bytes]:
        """The keys of what was done until then, oldest first, at most so many."""

    def forget(self, keys: Sequence[bytes], at: datetime) -> int:
        """Forget what was done under these keys, if that was until then; how many these were."""


class Transaction(Protocol):
    """One snapshot to read, or one change that is made whole or not at all."""

    @property
    def now(self) -> datetime:
        """The one instant of every row that this transaction writes."""

    @property
    def caller(self) -> Caller:
        """Who asks. Reads see what the caller may see, and what is changed is checked by the rules.

        To a caller with patterns a memory of another project is as one that
        never was, unless it is global. What a table says of a session, or of a
        key that is taken, is the whole truth: the rules keep it to themselves.
        """

    @property
    def room(self) -> int | None:
        """The bytes that the tenant may still store, below 0 when it has more; None: any number."""

    @property
    def retention(self) -> Retentions:
        """How long is kept what is kept for a time."""

    @property
    def is_awaited(self) -> bool:
        """Whether other changes wait until this one ends."""

    @property
    def memories(self) -> MemoryTable:
        """Memories."""

    @property
    def sessions(self) -> SessionTable:
        """Sessions."""

    @property
    def transcripts(self) -> TranscriptTable:
        """What was told of sessions that go on."""

    @property
    def revisions(self) -> RevisionTable:
        """Revisions."""

    @property
    def search(self) -> SearchTable:
        """Search."""

    @property
    def projects(self) -> ProjectTable:
        """Projects."""

    @property
    def receipts(self) -> ReceiptTable:
        """Receipts of erasures."""

    @property
    def imports(self) -> ImportTable:
        """Imports that are stored in many transactions."""

    @property
    def stores(self) -> StoreTable:
        """Memory stores."""

    @property
    def entries(self) -> EntryTable:
        """The live memories of stores."""

    @property
    def versions(self) -> VersionTable:
        """What stores tell of revisions."""

    @property
    def idempotency_records(self) -> IdempotencyTable:
        """Records of what was done under idempotency keys."""

    @property
    def past_retention(self) -> RetentionTable:
        """What is past its retention."""

    def new_uid(self, at: datetime) -> str:
        """A fresh stable id (UUIDv7) that orders by the instant.

        Those of `now` order as they were made, in one process and as long as it runs.
        """


class Engine(Protocol):
    """Runs plain functions as transactions on the caller's tenant, and on no other.

    Refuses with Unavailable, Busy or Full.
    """

    async def read(
        self,
        caller: Caller,
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run work on one snapshot. Writing in it is an error."""

    async def write(
        self,
        caller: Caller,
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run work alone and commit it whole; if it raises, nothing happened.

        An answer means that the change is on disk. A cancelled caller does not
        stop work that has begun.
        """

    @property
    def maintenance(self) -> Maintenance:
        """What the engine does for its own storage."""


class Storage(Engine, Protocol):
    """The engine of a service, as those see it who look after that."""

    @property
    def waiting(self) -> int:
        """How many writes wait or are being made."""

    def callers(self) -> Sequence[Caller]:
        """The operator of each tenant whose storage is open, the default one first."""

    async def probe(self) -> Condition:
        """Write to the disk what is there, and tell what is known of all storage that is open.

        Refuses as a write of the default tenant does, and with Damaged while damage is known.
        """
