"""One transaction: its instant and its tables."""

import sqlite3
from collections.abc import Callable
from datetime import datetime

from ....domain.model.access import Caller
from ....domain.model.retention import USUAL, Retentions
from ....domain.text.ids import Uids, uid_of
from ..fts.index import Index
from ..fts.partitions import Partitions
from ..fts.search import Search
from ..tables.entries import Entries
from ..tables.idempotency import DoneRecords
from ..tables.imports import Imports
from ..tables.memories import Memories
from ..tables.projects import Projects
from ..tables.receipts import Erasures
from ..tables.retention import Overdue
from ..tables.revisions import Revisions
from ..tables.sessions import Sessions
from ..tables.stores import Stores
from ..tables.transcripts import Transcripts
from ..tables.versions import Versions


class SqliteTransaction:
    """The tables of a connection on which a transaction has begun, or a savepoint in one."""

    def __init__(  # noqa: PLR0913 - all that a transaction is bound to
        self,
        connection: sqlite3.Connection,
        now: datetime,
        caller: Caller,
        *,
        is_alone: bool = True,
        quota: int | None = None,
        retention: Retentions = USUAL,
        uids: Uids | None = None,
        others: Callable[[], int] = lambda: 0,
    ) -> None:
        self._connection = connection
        self._quota = quota
        self._uids = uids or Uids()
        self._others = others
        self.now = now
        self.caller = caller
        self.retention = retention
        self.is_alone = is_alone
        self.partitions = Partitions(connection, is_alone=is_alone)
        self.index = Index(connection, self.partitions)
        self.memories = Memories(connection, self.index, caller.projects)
        self.sessions = Sessions(connection, caller.projects)
        self.transcripts = Transcripts(connection, now)
        self.revisions = Revisions(connection)
        self.imports = Imports(connection, now, is_alone=is_alone)
        self.projects = Projects(connection, self.index, self.imports, caller.projects)
        self.receipts = Erasures(connection, now)
        self.stores = Stores(connection, self.index)
        self.entries = Entries(connection)
        self.versions = Versions(connection)
        self.idempotency = DoneRecords(connection)
        self.past_retention = Overdue(connection)
        self.search = Search(connection, self.memories, self.partitions, caller.projects)

    @property
    def is_awaited(self) -> bool:
        return self._others() > 0

    @property
    def room(self) -> int | None:
        return None if self._quota is None else self._quota - _stored(self._connection)

    def new_uid(self, at: datetime) -> str:
        return self._uids.make(at) if at == self.now else uid_of(at)


def _stored(connection: sqlite3.Connection) -> int:
    """The bytes in use; pages that are free are none."""
    sizes = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _SIZES)
    page_size, pages, free = sizes
    return int(page_size * (pages - free))


_SIZES = ("page_size", "page_count", "freelist_count")
