"""The tables of a transaction, of whichever engine."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from functools import cache, cached_property
from typing import Any, TypeVar, cast

from ...memory.model.access import Caller
from ...memory.model.liveness import Moment
from ...memory.model.retention import USUAL, Retentions
from ...memory.model.table import Connection, Dialect, Index, Known, Table
from ...recall.text.ids import Uids, uid_of
from ..engine import Sealer

T = TypeVar("T")


class Tables(ABC):
    """A transaction on either engine; `tx[CommitmentTable]` is one of its tables."""

    _sql: Dialect

    def __init__(  # noqa: PLR0913 - all that a transaction is bound to
        self,
        connection: Connection,
        now: datetime,
        caller: Caller,
        *,
        quota: int | None = None,
        retention: Retentions = USUAL,
        uids: Uids | None = None,
        others: Callable[[], int] = lambda: 0,
        sealer: Sealer | None = None,
    ) -> None:
        self._connection = connection
        self._quota = quota
        self._uids = uids or Uids()
        self._others = others
        self._sealer = sealer
        self._projects = caller.projects
        self._begun = time.monotonic()
        self._tables: dict[type, object] = {}
        self._tenant = caller.tenant
        self.now = self._now = now
        self.caller = caller
        self.retention = retention

    @property
    def is_awaited(self) -> bool:
        return self._others() > 0

    @property
    def room(self) -> int | None:
        return None if self._quota is None else self._quota - self._stored()

    @abstractmethod
    def _stored(self) -> int:
        """The bytes that the tenant takes now."""

    @property
    @abstractmethod
    def index(self) -> Index:
        """The full-text index, as the tables see it."""

    @abstractmethod
    def _require_alone(self) -> None:
        """Nothing else may share the transaction."""

    def new_uid(self, at: datetime) -> str:
        return self._uids.make(at) if at == self.now else uid_of(at)

    def __getitem__(self, table: type[T], /) -> T:
        """A table of this transaction; made when it is first asked for."""
        made = self._tables.get(table)
        if made is None:
            parts = _parts(cast("Any", table))
            given = [self[of] if of is not None else getattr(self, name) for name, of in parts]
            made = self._tables[table] = table(*given)
        return cast("T", made)

    @property
    def _index(self) -> Index:
        return self.index

    @cached_property
    def _known(self) -> Known:
        return Known()

    @cached_property
    def _moment(self) -> Moment:
        return Moment(self._connection, self.now)


@cache
def _parts(table: Any) -> tuple[tuple[str, type | None], ...]:
    """What a table is made of: attributes of the transaction by name, and other tables."""
    return tuple(
        (it.name, it.type if isinstance(it.type, type) and issubclass(it.type, Table) else None)
        for it in fields(table)
        if it.init
    )
