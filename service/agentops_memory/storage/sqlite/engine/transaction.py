"""One transaction: its instant and its tables."""

import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Concatenate, ParamSpec, TypeVar

from ....domain.model.access import Caller
from ....domain.model.retention import USUAL, Retentions
from ....domain.ports.sealing import Sealer
from ....domain.text.ids import Uids, uid_of
from ...index_cache.cache import CachedGroups
from ...sql.agents.agents import Agents
from ...sql.agents.archives import Archives
from ...sql.agents.bound import Bound
from ...sql.agents.entries import AgentEntries
from ...sql.agents.events import AgentEvents
from ...sql.agents.intents import Intents
from ...sql.agents.namespaces import Namespaces
from ...sql.agents.seals import Seals
from ...sql.agents.tasks import Tasks
from ...sql.idempotency_records import IdempotencyRecords
from ...sql.imports import Imports
from ...sql.lifecycles import Lifecycles
from ...sql.liveness import Moment
from ...sql.lookalikes import Lookalikes
from ...sql.memories import Memories, Spaces
from ...sql.memory_lists import MemoryLists
from ...sql.past_retention import PastRetention
from ...sql.projects import Projects
from ...sql.receipts import Receipts
from ...sql.reviews import ReviewRows
from ...sql.revisions import Revisions, Versions
from ...sql.sessions import Sessions, Transcripts
from ...sql.stores import Entries, Stores
from ...sql.supersessions import Supersessions
from ..base.dialect import SQLITE
from ..base.errors import NeedsTransactionOfItsOwn
from ..fts.index import Index
from ..fts.partitions import Partitions
from ..fts.pending import Pending
from ..fts.purges import Purges
from ..fts.search import Search
from ..fts.segments import Segments
from ..fts.visibility import Visibility
from .host_tables import HostTables

P = ParamSpec("P")
T = TypeVar("T")


class SqliteTransaction(HostTables):
    """The tables of a connection on which a transaction has begun, or a savepoint in one.

    Each is made when it is asked for: a request needs few of them.
    """

    def __init__(  # noqa: PLR0913 - all that a transaction is bound to
        self,
        connection: sqlite3.Connection,
        now: datetime,
        caller: Caller,
        *,
        batch: Pending | None = None,
        quota: int | None = None,
        retention: Retentions = USUAL,
        uids: Uids | None = None,
        others: Callable[[], int] = lambda: 0,
        groups: CachedGroups | None = None,
        sealer: Sealer | None = None,
    ) -> None:
        self._connection = connection
        self._quota = quota
        self._uids = uids or Uids()
        self._others = others
        self._groups = groups
        self._sealer = sealer
        self.now = now
        self.caller = caller
        self.retention = retention
        self.is_alone = batch is None or batch.partitions.is_alone
        self._batch = batch
        self._projects = caller.projects
        self._begun = time.monotonic()

    @property
    def is_awaited(self) -> bool:
        return self._others() > 0

    @property
    def room(self) -> int | None:
        if self._quota is None:
            return None
        self._settle()
        return self._quota - _stored(self._connection)

    @property
    def met_damage(self) -> bool:
        """Whether the index was found damaged where something else stood in."""
        return "_search" in vars(self) and self._search.met_damage

    def new_uid(self, at: datetime) -> str:
        return self._uids.make(at) if at == self.now else uid_of(at)

    @cached_property
    def memories(self) -> Memories:
        return Memories(
            self._connection, SQLITE, self._projects, self._moment, self.index, self._spaces
        )

    @cached_property
    def sessions(self) -> Sessions:
        return Sessions(self._connection, SQLITE, self._projects, self._moment)

    @cached_property
    def lifecycles(self) -> Lifecycles:
        return Lifecycles(self._connection, SQLITE, self._projects, self._moment, self.index)

    @cached_property
    def supersessions(self) -> Supersessions:
        return Supersessions(self._connection, SQLITE, self._projects, self._moment)

    @cached_property
    def lookalikes(self) -> Lookalikes:
        return Lookalikes(self._connection, SQLITE, self.now)

    @cached_property
    def reviews(self) -> ReviewRows:
        return ReviewRows(self._connection, SQLITE, self._projects, self._moment)

    @cached_property
    def transcripts(self) -> Transcripts:
        return Transcripts(self._connection, SQLITE, self.now)

    @cached_property
    def revisions(self) -> Revisions:
        return Revisions(self._connection, SQLITE)

    @cached_property
    def imports(self) -> Imports:
        return Imports(self._connection, SQLITE, self.now, self._require_alone)

    @cached_property
    def projects(self) -> Projects:
        return Projects(
            self._connection, SQLITE, self._projects, self._moment, self.index, self.imports
        )

    @cached_property
    def receipts(self) -> Receipts:
        return Receipts(self._connection, SQLITE, self.now)

    @cached_property
    def stores(self) -> Stores:
        return Stores(self._connection, SQLITE, self.index, self._spaces)

    @cached_property
    def entries(self) -> Entries:
        return Entries(self._connection, SQLITE, self.now)

    @cached_property
    def versions(self) -> Versions:
        return Versions(self._connection, SQLITE)

    @cached_property
    def agents(self) -> AgentEntries:
        return AgentEntries(
            self._connection, SQLITE, self.now, self._spaces, self._uids, self._seals
        )

    @cached_property
    def _seals(self) -> Seals:
        return Seals(self._connection, SQLITE, self._sealer, self.caller.tenant)

    @cached_property
    def intents(self) -> Intents:
        return Intents(self._connection, SQLITE, self.now)

    @cached_property
    def tasks(self) -> Tasks:
        return Tasks(self._connection, SQLITE, self.now)

    @cached_property
    def bound(self) -> Bound:
        return Bound(self._connection, SQLITE, self.now)

    @cached_property
    def archives(self) -> Archives:
        return Archives(self._connection, SQLITE, self.now, self._seals)

    @cached_property
    def agent_directory(self) -> Agents:
        return Agents(self._connection, SQLITE, self.now)

    @cached_property
    def agent_events(self) -> AgentEvents:
        return AgentEvents(self._connection, SQLITE, self.now, self._uids)

    @cached_property
    def namespaces(self) -> Namespaces:
        return Namespaces(self._connection, SQLITE, self.now)

    @cached_property
    def idempotency_records(self) -> IdempotencyRecords:
        return IdempotencyRecords(self._connection, SQLITE)

    @cached_property
    def past_retention(self) -> PastRetention:
        return PastRetention(self._connection, SQLITE)

    @cached_property
    def index(self) -> Index:
        return Index(self._connection, self._partitions, self._batch)

    @property
    def search(self) -> Search:
        self._flush()
        return self._search

    @cached_property
    def _search(self) -> Search:
        lists = MemoryLists(self._connection, SQLITE, self._projects, self._moment)
        visibility = Visibility(self._connection, self._partitions, self._projects, self._moment)
        return Search(self._connection, lists, visibility, self._groups, self._begun)

    @property
    def partitions(self) -> Partitions:
        self._flush()
        return self._partitions

    @cached_property
    def _partitions(self) -> Partitions:
        if self._batch is not None:
            return self._batch.partitions
        return Partitions(self._connection, is_alone=True)

    @property
    def segments(self) -> Segments:
        self._flush()
        return Segments(self._connection)

    @property
    def purges(self) -> Purges:
        return Purges(self._connection, self.partitions)

    @cached_property
    def _moment(self) -> Moment:
        return Moment(self._connection, self.now)

    @cached_property
    def _spaces(self) -> Spaces:
        return Spaces(self._connection, SQLITE, self.index)

    def _flush(self) -> None:
        """Put into the index what waits for the end of the batch: it is about to be read."""
        if self._batch is not None:
            self._batch.flush()

    def _settle(self) -> None:
        """Let the index take the pages that it needs: they are about to be counted."""
        if self._batch is not None and self._batch.flush():
            self._connection.execute("SAVEPOINT settled")  # at which FTS5 writes out
            self._connection.execute("RELEASE settled")

    def _require_alone(self) -> None:
        if not self.is_alone:
            raise NeedsTransactionOfItsOwn


Work = Callable[Concatenate[SqliteTransaction, P], T]
"""What runs in a transaction; it may be run again when nothing of it happened."""


def _stored(connection: sqlite3.Connection) -> int:
    """The bytes in use; pages that are free are none."""
    names = ("page_size", "page_count", "freelist_count")
    size, count, free = (connection.execute(f"PRAGMA {it}").fetchone()[0] for it in names)
    return int(size * (count - free))
