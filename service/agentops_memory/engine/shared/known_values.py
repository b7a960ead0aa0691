"""The damaged values of a tenant that are known: a check finds them, and requests meet them."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from ...errors import DamagedRow
from ...memory.model.access import Caller
from .columns import TABLES, Kind

REMEDY = "`agentops-memory doctor` says what can be repaired."
MOST_TOLD = 100  # values; more would make no sentence clearer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value that is no such thing as its column holds. What it is stays in the database."""

    table: str
    row: str  # its key
    column: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.table} {self.row}: {self.column} ({self.kind.value})"


class KnownValues:
    """What is known of one tenant. Any thread may tell."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._lock = Lock()
        self.values: tuple[Value, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self.values))

    def note(self, caller: Caller, values: Iterable[Value]) -> None:
        """Note all that a check has found; the log has each once, but never what it is."""
        with self._lock:
            known, self.values = self.values, tuple(values)
        for value in self.values:
            if value not in known:
                self._tell(caller, value)
        if known and not self.values:
            fields = {"path": self._where, "tenant": caller.tenant}
            log.warning("no value in the database is damaged any more", extra=fields)

    def add(self, caller: Caller, damaged: Iterable[DamagedRow]) -> None:
        """Note what a request was refused for, or has left out, until the next check."""
        for it in damaged:
            kind = TABLES[it.table].columns[it.column]
            value = Value(table=it.table, row=it.row, column=it.column, kind=kind)
            with self._lock:
                is_new = value not in self.values and len(self.values) < MOST_TOLD
                self.values += (value,) if is_new else ()
            if is_new:
                self._tell(caller, value)

    def _tell(self, caller: Caller, value: Value) -> None:
        where = {"table": value.table, "row": value.row, "column": value.column}
        fields = {"path": self._where, "tenant": caller.tenant}
        log.error("a value in the database is damaged: %s", REMEDY, extra=fields | where)
