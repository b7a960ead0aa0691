"""One transaction: its instant and its tables."""

import sqlite3
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..engine.engine import Transaction
from ..memory.memories import MemoryLists
from ..memory.model.access import Caller
from ..recall.inverted_index.cache import DatabaseIndex
from ..recall.search.visibility import Visibility
from .dialect import SQLITE, NeedsTransactionOfItsOwn
from .documents import Pending
from .index import Index
from .partitions import Partitions, Segments
from .search import SqliteSearch

P = ParamSpec("P")
T = TypeVar("T")


class SqliteTransaction(Transaction):
    """The tables of a connection on which a transaction has begun.

    Each is made on demand: a request needs few of them.
    """

    _connection: sqlite3.Connection
    _sql = SQLITE

    def __init__(
        self,
        connection: sqlite3.Connection,
        now: datetime,
        caller: Caller,
        *,
        batch: Pending | None = None,
        index: DatabaseIndex | None = None,
        may_be_behind: bool = False,
        **bound: Any,
    ) -> None:
        super().__init__(connection, now, caller, **bound)
        self._in_memory = index
        self._may_be_behind = may_be_behind
        self.is_alone = batch is None or batch.partitions.is_alone
        self._batch = batch
        if batch is not None:
            self._known = batch.known

    def _stored(self) -> int:
        """Pages that are free are none."""
        self._settle()
        names = ("page_size", "page_count", "freelist_count")
        size, count, free = (self._connection.execute(f"PRAGMA {it}").fetchone()[0] for it in names)
        return int(size * (count - free))

    @property
    def met_damage(self) -> bool:
        """Whether the index was found damaged where something else stood in."""
        return "_search" in vars(self) and self._search.met_damage

    @cached_property
    def index(self) -> Index:
        return Index(self._connection, self._batch)

    @property
    def search(self) -> SqliteSearch:
        self._flush()
        return self._search

    @cached_property
    def _search(self) -> SqliteSearch:
        lists = MemoryLists(self._connection, SQLITE, self._projects, self._moment)
        visibility = Visibility(
            self._connection,
            SQLITE,
            self._projects,
            self._moment,
            self._partitions.of_projects,
            self._partitions.is_made,
        )
        return SqliteSearch(
            self._connection,
            lists,
            visibility,
            self._in_memory,
            self._begun,
            may_be_behind=self._may_be_behind,
        )

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

    def _flush(self) -> None:
        """Put into the index what waits for the end of the batch: it is about to be read."""
        if self._batch is not None:
            self._batch.flush()

    def _settle(self) -> None:
        """Let the index take the pages that it needs: they are about to be counted."""
        if self._batch is not None and self._batch.flush():
            self._connection.execute("SAVEPOINT settled")  # at which FTS5 writes out
            self._connection.execute("RELEASE settled")

    def require_alone(self) -> None:
        if not self.is_alone:
            raise NeedsTransactionOfItsOwn


Work = Callable[Concatenate[SqliteTransaction, P], T]
"""What runs in a transaction; it may be run again when nothing of it happened."""
