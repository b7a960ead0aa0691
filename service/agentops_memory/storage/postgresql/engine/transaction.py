"""One transaction: its instant and its tables."""

import time
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Concatenate, ParamSpec, TypeVar

from ....domain.model.access import Caller
from ....domain.model.kinds import FIRST, NUMBERS, IndexGroup
from ....domain.model.retention import USUAL, Retentions
from ....domain.ports.sealing import Sealer
from ....domain.text.features import ALL, Features
from ....domain.text.ids import Uids
from ...index_cache.writes import IndexWrites
from ...search.visibility import Visibility
from ...sql.memory_lists import MemoryLists
from ...stems import Stems
from ...tables import Tables
from ..base.connection import PostgresConnection
from ..base.dialect import POSTGRESQL
from ..words.cached import CachedAreas, IndexMemory
from ..words.index import Index
from ..words.search import PostgresSearch
from ..words.upkeep import Upkeep

P = ParamSpec("P")
T = TypeVar("T")


class PostgresTransaction(Tables):
    """The tables of a connection on which a transaction has begun."""

    _connection: PostgresConnection
    _sql = POSTGRESQL

    def __init__(  # noqa: PLR0913 - all that a transaction is bound to
        self,
        connection: PostgresConnection,
        now: datetime,
        caller: Caller,
        stems: Stems,
        *,
        features: Features = ALL,
        quota: int | None = None,
        retention: Retentions = USUAL,
        uids: Uids | None = None,
        others: Callable[[], int] = lambda: 0,
        sealer: Sealer | None = None,
        memory: IndexMemory | None = None,
    ) -> None:
        self._connection = connection
        self._stems = stems
        self._features = features
        self._quota = quota
        self._uids = uids or Uids()
        self._others = others
        self._sealer = sealer
        self._memory = memory or IndexMemory(None)
        self._projects = caller.projects
        self._begun = time.monotonic()
        self.now = now
        self.caller = caller
        self.retention = retention

    @property
    def is_awaited(self) -> bool:
        return self._others() > 0

    @property
    def room(self) -> int | None:
        if self._quota is None:
            return None
        self.flush()
        return self._quota - stored(self._connection)

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

    def written(self) -> IndexWrites | None:
        """What was written into the index, once it is committed."""
        return self.index.written() if "index" in vars(self) else None

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
            cached=CachedAreas(self._memory, self._begun, self._stems),
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

    def _require_alone(self) -> None:
        """It always is."""


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
