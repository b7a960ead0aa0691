"""Damaged rows: values that break the type or the rules of their column, on either engine.

A request notices a damaged row when a conversion fails; a check finds all of them, as it reads
every column of every table.

A finding of a check is a sentence with a status and a remedy.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from functools import partial
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from threading import Lock
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import DamagedRow
from ..light import KW_ONLY, Lazy, dataclass, field
from ..recall.text import object_of
from . import agent_memory, space
from .access import Caller, TenantId
from .rows import EARLIEST, LAST, MOST, UNREADABLE, counts_of, pairs_of, texts_of
from .space import GLOBAL_AREA, GLOBAL_SCOPE, LAST_AREA, ErasureKind, SpaceKind, is_partition

if TYPE_CHECKING:
    from . import details
else:  # a search imports no pydantic
    details = Lazy(__package__, ".details")

Fix = Callable[[], str]
"""Applies the safe fix of a finding, and returns a sentence that describes it."""

GARBAGE = (ValueError, TypeError, ArithmeticError, RuntimeError)
"""Exceptions that parsing a corrupt file may raise."""

MAX_NAMED = 10  # most values that a sentence names


class Status(StrEnum):
    """How bad a finding is: for information, needs action, or something is broken or lost."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    code: str  # identifies the kind of finding, as the documentation lists them
    sentence: str
    remedy: str = ""  # a sentence or a command
    _: KW_ONLY
    status: Status = Status.OK
    tenant: TenantId | None = None  # whose database it is; None for findings about the service
    fix: Fix | None = field(default=None, compare=False, repr=False)

    @property
    def is_fixable(self) -> bool:
        return self.fix is not None


ok = Finding
note, warn, failed = (
    partial(Finding, status=it) for it in (Status.NOTE, Status.WARNING, Status.FAILED)
)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    order = list(reversed(Status))
    return sorted(findings, key=lambda finding: order.index(finding.status))


def has_failed(findings: Sequence[Finding]) -> bool:
    return any(finding.status is Status.FAILED for finding in findings)


def some_of(values: Sequence[object]) -> str:
    """Return the first values as a phrase for a sentence."""
    more = " and more" if len(values) > MAX_NAMED else ""
    return "; ".join(map(str, values[:MAX_NAMED])) + more


REMEDY = "`agentops-memory doctor` says what can be repaired."
MOST_TOLD = 100  # most rows that a check reports; a longer list would not help

log = logging.getLogger(__name__)

Check = Callable[[Any], object]
"""Raises, or returns False, for a value that its column must not have."""


def _one_of(names: str) -> Check:
    return frozenset(names.split()).__contains__


def _whole(first: int, last: int) -> Check:
    return lambda number: first <= number <= last


def _details(column: str) -> Check:
    return lambda text: details.CHECKS[column](text)  # noqa: PLW0108 - imports at first use


COLUMNS: Mapping[str, type[Enum] | Check] = {
    "spaces.kind": SpaceKind,
    "spaces.area": _whole(space.UNINDEXED_AREA, LAST_AREA),
    "memories.tags": texts_of,
    "memories.extras": pairs_of,
    "memories.fingerprint": _whole(-(1 << 63), (1 << 63) - 1),
    "revisions.deed": _one_of("created updated deleted"),
    "revisions.tags": texts_of,
    "passes.written": texts_of,
    "erasures.kind": ErasureKind,
    "stores.metadata": pairs_of,
    "tasks.status": agent_memory.TaskStatus,
    "tasks.policy": _details("tasks.policy"),
    "tasks.details": _details("tasks.details"),
    "agents.episodic_capacity": _whole(1, space.LARGEST_CAPACITY),
    "agent_spaces.tier": agent_memory.Tier,
    "agent_memories.tier": agent_memory.Tier,
    "agent_memories.priority": agent_memory.Priority,
    "agent_memories.sensitivity": agent_memory.Sensitivity,
    "agent_memories.binding": agent_memory.Binding,
    "agent_events.binding": agent_memory.Binding,
    "namespaces.default_access": agent_memory.Access,
    "namespace_access.access": agent_memory.Access,
    "events.type": agent_memory.EVENT_TYPES.__contains__,
    "events.payload": object_of,
    "intents.details": _details("intents.details"),
    "coordinators.details": _details("coordinators.details"),
    "grants.permission": agent_memory.Permission,
    "done.status": _whole(200, 299),
    "done.answer": lambda text: json.loads(text or "null") is not ...,
    "runs.refs": texts_of,
    "runs.wrote": texts_of,
    "runs.secrets": counts_of,
    "run_events.payload": object_of,
    "proposals.source_runs": texts_of,
    "proposals.artifact": object_of,
    # OpenWOP's values are repeated here, as engines depend on no protocol; a test compares them.
    "runs.kind": _one_of("host pass replay branch"),
    "runs.status": _one_of("running completed failed cancelled"),
    "commitments.state": _one_of("armed fired cancelled"),
    "proposals.kind": _one_of("agent-pack workflow-chain-pack prompt-template automation"),
    "proposals.state": _one_of("draft revised applied rejected archived"),
    "run_events.type": _one_of(
        "run.started run.completed run.failed run.cancelled memory.written memory.compacted "
        "agent.memory.consolidated commitment.fired proposal.created proposal.activated "
        "agentops-memory.memory.deleted agentops-memory.memory.forgotten "
        "agentops-memory.pass.undone"
    ),
    "ref_entries.method": _one_of("put extract-1 host"),
}
"""Checks of columns beyond type and name: an enumeration, JSON, or a range."""

_TYPES = {"TEXT": str, "BLOB": bytes, "REAL": float, "BOOLEAN": bool}
_COUNT, _INSTANT, _FLAG = _whole(0, 2 * MOST), _whole(EARLIEST, LAST), _whole(0, 1)


def _has_value(row: Mapping[str, Any]) -> bool:
    """Whether a stored value fits its sensitivity: JSON, or a mark if sealed."""
    value, is_sealed = row["content"], row["sensitivity"] in agent_memory.SEALED
    if value is not None and not is_sealed:
        object_of(value)
    return value is None or not is_sealed or not value.startswith("{")


ROWS: Mapping[str, Mapping[str, Check]] = {
    "spaces": {"partition": lambda row: (row["area"] <= GLOBAL_AREA
                                         or is_partition(row["partition"]))
               and (row["area"] == GLOBAL_AREA) is (row["scope"] == GLOBAL_SCOPE)},
    "agent_memories": {"attempt": lambda row: row["binding"] != agent_memory.Binding.TASK
                       or row["attempt"] is not None,
                       "content": _has_value},
    "proposals": {"checksum": lambda row: sha256(row["artifact"].encode()).digest()
                  == row["checksum"]},
}  # fmt: skip
"""Checks across the columns of a row, by the column to report if a check fails."""

JOINED = {("agent_memories", "content"): "(SELECT content FROM memories WHERE id = memory_id)"}
"""Columns that are stored in another table, with the subquery that reads them."""

BY_PLACE = frozenset("tasks agents namespaces namespace_access intents coordinators grants".split())
"""The tables whose keys are chosen by users: reports name a row by its position instead."""

DERIVED = frozenset(
    "partitions index_rules purges remains memory_stems area_stems database_state areas postings"
    .split()
)  # fmt: skip
"""The tables that are derived from other tables: the index and its bookkeeping."""


class Column(NamedTuple):
    name: str
    type: str  # TEXT, INTEGER, BLOB, REAL or BOOLEAN
    may_be_null: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDamage:
    """A damaged row, named by its key; its values stay in the database."""

    table: str
    row: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f": {', '.join(self.columns)}" if any(self.columns) else ""
        return f"{self.table} {self.row}{where}"


class TableCheck:
    def __init__(self, table: str, columns: Sequence[Column]) -> None:
        joined = {name: sql for (owner, name), sql in JOINED.items() if owner == table}
        columns = [*columns, *(Column(it, "TEXT", may_be_null=True) for it in joined)]
        self.table = table
        self.names = [column.name for column in columns]
        self._selected = ", ".join(joined.get(name, f'"{name}"') for name in self.names)
        self._columns = columns
        self._sound: set[tuple[type, ...]] = set()
        self._checks = [
            (at, check)
            for at, column in enumerate(columns)
            if (check := _check_of(table, column)) is not None
        ]
        self._row_checks = ROWS.get(table, {})

    def damaged(self, values: Sequence[Any]) -> list[str]:
        """Return the names of the damaged columns of a row with these values."""
        types = tuple(map(type, values))
        if types not in self._sound:
            wrong = [
                it.name
                for it, type_ in zip(self._columns, types, strict=True)
                if not (it.may_be_null if type_ is NoneType else type_ is _TYPES.get(it.type, int))
            ]
            if wrong:
                return wrong
            self._sound.add(types)
        wrong = [
            self.names[at]
            for at, check in self._checks
            if (value := values[at]) is not None and not _passes(check, value)
        ]
        if self._row_checks and not wrong:
            row = dict(zip(self.names, values, strict=True))
            return [name for name, check in self._row_checks.items() if not _passes(check, row)]
        return wrong

    def selecting(self, position: str) -> str:
        """Return the statement that reads the table: the key or place of a row, then its columns.

        `position` is the column with the position of a row.
        """
        key = position if self.table in BY_PLACE else f'"{self.names[0]}"'
        return f'SELECT {key}, {self._selected} FROM "{self.table}"'

    def found(self, rows: Iterable[Sequence[Any]]) -> Iterator[RowDamage]:
        """Yield the damaged rows; each of `rows` has its key before the columns."""
        for key, *values in rows:
            if columns := self.damaged(values):
                yield RowDamage(table=self.table, row=named(key), columns=tuple(columns))


def checks_of(columns: Iterable[tuple[str, str, str, bool]]) -> Iterator[TableCheck]:
    """Yield a check for each table that is not derived; `columns` are sorted by their tables."""
    for table, its in groupby(columns, itemgetter(0)):
        if table not in DERIVED:
            yield TableCheck(table, [Column(name, type_, null) for _, name, type_, null in its])


def named(key: object) -> str:
    """Return the key of a row for reports: printable, and a digest in hexadecimal."""
    if type(key) is bytes:  # a subclass is a text that is not UTF-8
        return key.hex()
    text = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _check_of(table: str, column: Column) -> Check | None:
    if (check := COLUMNS.get(f"{table}.{column.name}")) is not None:
        return check
    if column.type != "INTEGER":
        return None
    if column.name == "at" or column.name.endswith("_at"):
        return _INSTANT
    is_flag = column.name.startswith("is_") or column.name in {"goes_on", "inherits"}
    return _FLAG if is_flag else _COUNT if column.name != "partition" else None


def _passes(check: Check, value: object) -> bool:
    try:
        return check(value) is not False
    except UNREADABLE:
        return False


class KnownDamage:
    """The damaged rows of one tenant that are known so far. Thread-safe."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._lock = Lock()
        self._rows: Mapping[tuple[str, str], RowDamage] = {}  # by table and row

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self._rows.values()))

    def note(self, caller: Caller, rows: Iterable[RowDamage]) -> None:
        """Store the rows that a check reports; log each new row once, without its values."""
        reported = {(it.table, it.row): it for it in rows}
        with self._lock:
            known, self._rows = self._rows, reported
        for key, row in reported.items():
            if key not in known:
                self._log(caller, row)

    def add(self, caller: Caller, damaged: Iterable[DamagedRow]) -> None:
        """Add the damage that a request met, whether refused or skipped, until the next check."""
        for it in damaged:
            row = RowDamage(table=it.table, row=it.row, columns=(it.column,))
            with self._lock:
                if (it.table, it.row) in self._rows or len(self._rows) >= MOST_TOLD:
                    continue
                self._rows = {**self._rows, (it.table, it.row): row}
            self._log(caller, row)

    def _log(self, caller: Caller, row: RowDamage) -> None:
        fields = {"path": self._where, "tenant": caller.tenant, "table": row.table, "row": row.row}
        log.error("a row in the database is damaged: %s", REMEDY, extra=fields)
