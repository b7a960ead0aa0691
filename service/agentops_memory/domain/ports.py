"""What the domain asks of storage: every promise in prose."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from .explain import Parts, Tier
from .model import (
    Caller,
    Done,
    Erasure,
    ErasureId,
    Extent,
    Filter,
    Hit,
    Listed,
    Memory,
    MemoryId,
    Purge,
    Revision,
    Session,
    SessionId,
    Space,
    Text,
)
from .query import Corrections, Query
from .store_ports import EntryTable, StoreTable, VersionTable
from .text import Project

P = ParamSpec("P")
T = TypeVar("T")


class MemoryTable(Protocol):
    """Memories. "Live" means not deleted; without that word, deleted ones count too.

    Those of stores are seen only where a store, its space or `every` memory is asked for.
    """

    def get(self, memory: MemoryId) -> Memory | None:
        """The memory, live or deleted."""

    def in_space(self, space: Space, uid: str) -> Memory | None:
        """The memory of a space with this stable id."""

    def at_key(self, space: Space, key: str) -> Memory | None:
        """The live memory at the key; a space holds at most one."""

    def twin(self, space: Space, key: str | None, text: Text, since: datetime) -> Memory | None:
        """The newest live memory that says the same, created at `since` or later.

        The same: key, type, title, and content by its hash.
        """

    def twin_of(self, memory: Memory, *, but: Collection[MemoryId] = ()) -> Memory | None:
        """The memory, not among `but`, that an imported one already is, although it brings no uid.

        The same: space, session, type, key, title, content, and the second of its creation.
        """

    def by_uid(self, uid: str) -> Memory | None:
        """The memory with this stable id, wherever it is."""

    def in_bulk(self) -> AbstractContextManager[None]:
        """Inside, inserts cost less each, and are found by their words at the end."""

    def insert(self, memory: Memory) -> Memory:
        """Store a memory and index it; the answer carries its id."""

    def replace(self, memory: Memory) -> None:
        """Store every part of the memory under its id and bring the index into line."""

    def count_duplicate(self, memory: Memory) -> None:
        """Store the memory's `duplicates` and `last_seen_at`; nothing else changes."""

    def erase(self, memory: MemoryId) -> None:
        """Remove the memory and its index entry; one that is not there is no error."""

    def erase_some(self, memories: Sequence[MemoryId]) -> int:
        """Remove memories with their revisions; how many those were. No other borrows from them."""

    def newest(self, seen: Filter, limit: int, *, before: MemoryId | None = None) -> list[Memory]:
        """Live memories, newest first by creation, ties by id; only those older than `before`.

        A list ends early when its texts would pass the bound of one answer.
        """

    def around(self, memory: Memory, before: int, after: int) -> list[Memory]:
        """The live neighbours of a memory in its project, with itself, oldest first."""

    def page(self, project: Project | None, after: MemoryId, limit: int) -> list[Memory]:
        """Live memories with higher ids, in id order; fewer than the limit if they are long."""

    def every(self, after: MemoryId, limit: int) -> list[Memory]:
        """Memories with higher ids, in id order, deleted ones too; fewer if they are long.

        To a caller who acts on every project, those of stores, too.
        """

    def total(self) -> int:
        """How many memories there are, deleted ones too."""

    def count(self, project: Project | None) -> int:
        """How many live memories there are."""

    def projects(self) -> set[Project]:
        """The projects that have a live memory."""


class SessionTable(Protocol):
    """Sessions, known by their id alone."""

    def get(self, session: SessionId) -> Session | None:
        """The session, ended or not."""

    def open(self, session: Session) -> Session:
        """Store the session unless its id is known; the answer is what is stored."""

    def close(self, session: Session) -> None:
        """Store the session's end, summary and count."""

    def newest(
        self, project: Project | None, limit: int, *, before: SessionId | None = None
    ) -> list[Session]:
        """Sessions, newest first by start, ties by insertion; only those older than `before`."""

    def summaries(self, project: Project, limit: int) -> list[str]:
        """The newest summaries of the project that are not empty."""

    def page(self, project: Project | None, after: SessionId | None, limit: int) -> list[Session]:
        """Sessions in the order in which they were stored."""

    def count(self, project: Project | None) -> int:
        """How many sessions there are."""

    def projects(self) -> set[Project]:
        """The projects that have a session."""


class RevisionTable(Protocol):
    """The record of each memory's changes. The newest revision is the current state."""

    def add(self, memory: MemoryId, revision: Revision) -> None:
        """Record a change. Its text is kept with the memory until the next change."""

    def keep(self, memory: Memory) -> None:
        """Give the newest revision its own copy of the memory's text, before a change.

        One that was redacted has lost its text, and gets none.
        """

    def absorb(self, memory: MemoryId, older: Revision) -> None:
        """Record an older state just below the newest revision, which moves up by one."""

    def newest(self, memory: Memory) -> list[Revision]:
        """All that is kept of a memory's changes, newest first, each with its text."""

    def rewrite(self, memory: MemoryId, number: int, text: Text) -> None:
        """Put another text into a revision that has its own copy."""

    def trim(self, memory: MemoryId, keep: int) -> None:
        """Forget all but the newest `keep` revisions."""


class SearchTable(Protocol):
    """The full-text index over live memories, and the way round it.

    Over several projects ranks are comparable only roughly.
    """

    def within(self, patience: timedelta) -> AbstractContextManager[None]:
        """Inside, reads that take longer in all raise TimedOut; the transaction goes on."""

    def keyed(self, path: str, seen: Filter, limit: int) -> list[Hit]:
        """Memories whose key contains the path literally, newest first."""

    def lookalikes(self, words: Collection[str], seen: Filter) -> Corrections:
        """What words may have meant that neither the project nor a global memory has.

        Up to three that differ in one letter, not the first; of more the most
        frequent. At most four words are answered for, and none when no single
        project or store is asked.
        """

    def every(self, query: Query, seen: Filter, limit: int) -> list[Hit]:
        """Memories in which all pieces of the query occur, best first, ties by id."""

    def best(self, query: Query, seen: Filter, limit: int) -> list[Hit]:
        """Memories in which any term occurs, best first, ties by id.

        A memory's rank is its best sentence's plus 0.4 times the sum of the
        others'. Each sentence contributes its best few alone.
        """

    def ranking(
        self, tier: Tier, query: Query, seen: Filter, limit: int
    ) -> list[tuple[MemoryId, float]]:
        """All that a tier would list, best first, with their ranks; at most 10,000.

        Sentences contribute what they do for the limit; a single one contributes all.
        """

    def parts(
        self, tier: Tier, query: Query, seen: Filter, limit: int, ids: Collection[MemoryId]
    ) -> Mapping[MemoryId, Parts]:
        """What made the ranks of these memories, for a tier and a limit that listed them.

        A memory in sight that was not listed has the terms that it matches, too;
        one out of sight is left out.
        """

    def backfill(self, seen: Filter, limit: int, but: Collection[MemoryId]) -> list[Hit]:
        """The newest memories that are not among `but`."""


class IndexTable(Protocol):
    """The full-text index as a thing to keep: it lies in partitions, each seen to on its own."""

    def partitions(self) -> list[int]:
        """The numbers of the partitions."""

    def drift(self, partition: int) -> int:
        """By how many rows it has more or fewer than the memories that belong in it."""

    def is_exact(self, partition: int) -> bool:
        """Whether it holds just what the memories say, word for word. Asked in a write."""

    def rebuild(self, partition: int) -> None:
        """Fill it afresh from the memories."""

    def is_crowded(self) -> bool:
        """Whether some partition has grown so large that a project should leave it."""

    def relieve(self) -> bool:
        """Move one project out of a crowded partition; false if none can."""

    def must_purge(self, memory: MemoryId) -> None:
        """Note that words of a memory are to leave the storage of its partitions for good.

        Erasing a memory notes it by itself.
        """

    def to_purge(self) -> Mapping[int, int]:
        """The partitions of which that was noted, and how often."""

    def purged(self, notes: Mapping[int, int]) -> None:
        """Forget what `to_purge` said; of a partition with further notes nothing is forgotten."""

    def purge(self, partition: int, begun: Purge | None) -> Purge | None:
        """Do a part of ridding a partition's storage of what it no longer holds.

        Deleted words stay in it until they are merged away. The answer is to be handed
        in again, until it is None: then nothing is left of what was deleted before the
        first part. Saves in between do not prolong it.
        """


class ErasureTable(Protocol):
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

    def pending(self) -> list[ErasureId]:
        """Those that do not go on and whose bytes may still be in the file, oldest first."""

    def settle(self, erasures: Collection[ErasureId]) -> None:
        """Note that the bytes are gone now."""

    def copies(self) -> list[str]:
        """The names of the copies of the file that lie beside it, which no erasure reaches."""


class ProjectTable(Protocol):
    """Projects as a whole: live and deleted memories, revisions, sessions and spaces."""

    def names(self) -> list[Project]:
        """The projects that hold anything, in order."""

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


class DoneTable(Protocol):
    """What was done under idempotency keys. Whether that still counts is for the rules to say."""

    def get(self, key: bytes) -> Done | None:
        """What was done under the key with this digest."""

    def add(self, done: Done) -> None:
        """Store what was done, in the transaction that does it; it takes the place of another."""

    def trim(self, until: datetime, most: int) -> None:
        """Forget some of what was done until then, at most so many."""


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
    def memories(self) -> MemoryTable:
        """Memories."""

    @property
    def sessions(self) -> SessionTable:
        """Sessions."""

    @property
    def revisions(self) -> RevisionTable:
        """Revisions."""

    @property
    def search(self) -> SearchTable:
        """Search."""

    @property
    def index(self) -> IndexTable:
        """The full-text index."""

    @property
    def projects(self) -> ProjectTable:
        """Projects."""

    @property
    def erasures(self) -> ErasureTable:
        """Receipts of erasures."""

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
    def done(self) -> DoneTable:
        """What was done under idempotency keys."""

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

    async def blank(self, caller: Caller) -> bool:
        """Leave nothing in the tenant's file and its log of what was deleted before.

        False while a read or another process holds it back; then nothing is promised.
        Changes wait a moment now and then, not until the end.
        """
