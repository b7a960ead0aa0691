"""One transaction: its instant and its tables."""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...engine.engine import Transaction
from ...engine.shared.stems import Stems
from ...memory.memories import MemoryLists
from ...memory.model.access import Caller
from ...memory.model.space import FIRST, NUMBERS, IndexGroup
from ...recall.search.visibility import Visibility
from ...recall.text.features import ALL, Features
from ..base.connection import POSTGRESQL, PostgresConnection
from ..words.cached import IndexMemory, Written
from ..words.index import Index, Upkeep
from ..words.search import PostgresSearch

P = ParamSpec("P")
T = TypeVar("T")


class NeedsTransactionOfItsOwn(Exception):
    """Work cannot share a transaction: what it did is undone, and it is run again, alone."""


class PostgresTransaction(Transaction):
    """The tables of a connection on which a transaction has begun."""

    _connection: PostgresConnection
    _sql = POSTGRESQL

    def __init__(
        self,
        connection: PostgresConnection,
        now: datetime,
        caller: Caller,
        stems: Stems,
        *,
        features: Features = ALL,
        memory: IndexMemory | None = None,
        is_alone: bool = True,
        **bound: Any,
    ) -> None:
        super().__init__(connection, now, caller, **bound)
        self._stems = stems
        self._features = features
        self._memory = memory or IndexMemory(None)
        self._is_alone = is_alone

    def _stored(self) -> int:
        self.flush()
        return stored(self._connection)

    @cached_property
    def index(self) -> Index:
        return Index(self._connection, self._features, self._stems)

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(self._connection, self.index)

    @property
    def search(self) -> PostgresSearch:
        self.flush()
        return self._search

    def written(self) -> dict[int, Written | None]:
        """What was written into the index, once it is committed."""
        return self.index.written() if "index" in vars(self) else {}

    def flush(self) -> None:
        """Put into the index what waits: it is about to be read, or committed."""
        if "index" in vars(self):
            self.index.flush()

    @cached_property
    def _search(self) -> PostgresSearch:
        lists = MemoryLists(self._connection, self._sql, self._projects, self._moment)
        visibility = Visibility(
            self._connection, self._sql, self._projects, self._moment, self._groups_of_projects
        )
        return PostgresSearch(
            self._connection,
            memories=lists,
            visibility=visibility,
            features=self._features,
            stems=self._stems,
            begun=self._begun,
            cached=self._memory,
        )

    def _groups_of_projects(self) -> list[int]:
        last = NUMBERS[IndexGroup.PROJECTS][-1]
        rows = self._connection.execute(
            """SELECT DISTINCT partition
                 FROM spaces
                WHERE partition BETWEEN :first AND :last
             ORDER BY partition""",
            {"first": FIRST, "last": last},
        )
        return sorted({FIRST, *(number for (number,) in rows.fetchall())})

    def require_alone(self) -> None:
        if not self._is_alone:
            raise NeedsTransactionOfItsOwn


def stored(connection: PostgresConnection) -> int:
    """The bytes that the schema takes, with what was deleted until the database reuses it."""
    ((size,),) = connection.execute(
        """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
             FROM pg_class c
            WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND c.relkind = 'r'"""
    )
    return int(size)


Work = Callable[Concatenate[PostgresTransaction, P], T]
"""What runs in a transaction; it may be run again when nothing of it happened."""
