"""One transaction: its instant and its tables."""

import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from ....domain.model.access import Caller
from ....domain.model.retention import USUAL, Retentions
from ....domain.text.ids import Uids, uid_of
from ...sql.entries import Entries
from ...sql.idempotency_records import IdempotencyRecords
from ...sql.imports import Imports
from ...sql.memories import Memories
from ...sql.past_retention import PastRetention
from ...sql.projects import Projects
from ...sql.receipts import Receipts
from ...sql.revisions import Revisions
from ...sql.sessions import Sessions, Transcripts
from ...sql.spaces import Spaces
from ...sql.stores import Stores
from ...sql.versions import Versions
from ..base.dialect import SQLITE
from ..base.errors import NeedsTransactionOfItsOwn
from ..fts.index import Index
from ..fts.partitions import Partitions
from ..fts.search import Search
from ..schema.copies import copies_of


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
        kept: Retentions = USUAL,
        uids: Uids | None = None,
        others: Callable[[], int] = lambda: 0,
    ) -> None:
        self._connection = connection
        self._quota = quota
        self._uids = uids or Uids()
        self._others = others
        self.now = now
        self.caller = caller
        self.kept = kept
        self.is_alone = is_alone
        projects = caller.projects
        partitions = Partitions(connection, is_alone=is_alone)
        self.index = Index(connection, partitions)
        spaces = Spaces(connection, SQLITE, self.index)
        self.memories = Memories(connection, SQLITE, projects, self.index, spaces)
        self.sessions = Sessions(connection, SQLITE, projects)
        self.transcripts = Transcripts(connection, SQLITE, now)
        self.revisions = Revisions(connection, SQLITE)
        self.imports = Imports(connection, SQLITE, now, self._require_alone)
        self.projects = Projects(connection, SQLITE, projects, self.index, self.imports)
        self.receipts = SqliteReceipts(connection, SQLITE, now)
        self.stores = Stores(connection, SQLITE, self.index, spaces)
        self.entries = Entries(connection, SQLITE)
        self.versions = Versions(connection, SQLITE)
        self.idempotency_records = IdempotencyRecords(connection, SQLITE)
        self.past_retention = PastRetention(connection, SQLITE)
        self.search = Search(connection, self.memories, partitions, projects)

    @property
    def is_awaited(self) -> bool:
        return self._others() > 0

    @property
    def room(self) -> int | None:
        return None if self._quota is None else self._quota - _stored(self._connection)

    def new_uid(self, at: datetime) -> str:
        return self._uids.make(at) if at == self.now else uid_of(at)

    def _require_alone(self) -> None:
        if not self.is_alone:
            raise NeedsTransactionOfItsOwn


class SqliteReceipts(Receipts):
    """Receipts that know of the copies which lie beside the database file."""

    def copies(self) -> list[str]:
        ((_, _, file),) = self._execute("SELECT * FROM pragma_database_list WHERE name = 'main'")
        return [copy.name for copy in copies_of(Path(file))]


def _stored(connection: sqlite3.Connection) -> int:
    """The bytes in use; pages that are free are none."""
    sizes = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _SIZES)
    page_size, pages, free = sizes
    return int(page_size * (pages - free))


_SIZES = ("page_size", "page_count", "freelist_count")
