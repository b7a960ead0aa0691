"""Damaged rows: those that cannot be what they were stored as, on either engine.

A request meets one by a conversion that fails; a check finds all of them, as it looks at every
column of every table.

The findings of a check: each a sentence, with its status and remedy.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from hashlib import sha256
from threading import Lock
from typing import Any

from ..errors import DamagedRow
from ..light import dataclass, field
from . import sight, space
from .access import Caller, TenantId
from .rows import EARLIEST, LAST, MOST, UNREADABLE, counts_of, pairs_of, texts_of
from .space import GLOBAL_AREA, GLOBAL_SCOPE, LAST_AREA, ErasureKind, SpaceKind, is_partition

Fix = Callable[[], str]
"""Does what is safe about a finding, and says in a sentence what it did."""

GARBAGE = (ValueError, TypeError, ArithmeticError, RuntimeError)
"""What Python raises of files that hold something else than they should."""

MOST_NAMED = 10  # values that a sentence names


class Status(StrEnum):
    """How bad a finding is: to know, to act on, or something does not work or is lost."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    code: str  # of the check that has found it, as the documentation lists them
    sentence: str
    status: Status = Status.OK
    tenant: TenantId | None = None  # whose database; none for what all of them share
    remedy: str = ""  # a sentence or a command
    fix: Fix | None = field(default=None, compare=False, repr=False)

    @property
    def is_fixable(self) -> bool:
        """Whether `--fix` does something about it."""
        return self.fix is not None


def ok(code: str, sentence: str) -> Finding:
    return Finding(code=code, sentence=sentence)


def note(code: str, sentence: str, remedy: str = "") -> Finding:
    return Finding(code=code, status=Status.NOTE, sentence=sentence, remedy=remedy)


def warn(code: str, sentence: str, remedy: str, *, fix: Fix | None = None) -> Finding:
    return Finding(code=code, status=Status.WARNING, sentence=sentence, remedy=remedy, fix=fix)


def failed(code: str, sentence: str, remedy: str, *, fix: Fix | None = None) -> Finding:
    return Finding(code=code, status=Status.FAILED, sentence=sentence, remedy=remedy, fix=fix)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    order = list(reversed(Status))
    return sorted(findings, key=lambda finding: order.index(finding.status))


def has_failed(findings: Sequence[Finding]) -> bool:
    return any(finding.status is Status.FAILED for finding in findings)


def some_of(values: Sequence[object]) -> str:
    """The first of the values, as a sentence names them."""
    more = " and more" if len(values) > MOST_NAMED else ""
    return "; ".join(map(str, values[:MOST_NAMED])) + more


REMEDY = "`agentops-memory doctor` says what can be repaired."
MOST_TOLD = 100  # rows; more would make no sentence clearer

log = logging.getLogger(__name__)

Check = Callable[[Any], object]
"""Raises, or answers False, for a value that its column cannot hold."""


def _one_of(names: str) -> Check:
    return frozenset(names.split()).__contains__


def _json(text: str) -> None:
    sight.details_of(text, {})


def _whole(first: int, last: int) -> Check:
    return lambda number: first <= number <= last


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
    "tasks.status": sight.TaskStatus,
    "tasks.policy": sight.policy_of,
    "tasks.details": lambda text: sight.details_of(text, sight.DETAILS_OF_TASK),
    "agents.episodic_capacity": _whole(1, space.LARGEST_CAPACITY),
    "agent_spaces.tier": sight.Tier,
    "agent_memories.tier": sight.Tier,
    "agent_memories.priority": sight.Priority,
    "agent_memories.sensitivity": sight.Sensitivity,
    "agent_memories.binding": sight.Binding,
    "agent_events.binding": sight.Binding,
    "namespaces.default_access": sight.Access,
    "namespace_access.access": sight.Access,
    "events.type": (sight.LOGGED | {*sight.EventType}).__contains__,
    "events.payload": _json,
    "intents.details": lambda text: sight.details_of(text, sight.DETAILS_OF_INTENT),
    "coordinators.details": sight.guardrails_of,
    "grants.permission": sight.Permission,
    "done.status": _whole(200, 299),
    "done.answer": lambda text: json.loads(text or "null") is not ...,
    "runs.refs": texts_of,
    "runs.wrote": texts_of,
    "runs.secrets": counts_of,
    "run_events.payload": _json,
    "proposals.source_runs": texts_of,
    "proposals.artifact": _json,
    # What OpenWOP has is spelled out, as an engine knows no protocol; a test compares the two.
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
"""What a column holds, beyond what its type and its name say: an enumeration, JSON, a range."""

_TYPES = {"TEXT": str, "BLOB": bytes, "REAL": float, "BOOLEAN": bool}
_COUNT, _INSTANT, _FLAG = _whole(0, 2 * MOST), _whole(EARLIEST, LAST), _whole(0, 1)


def _has_value(row: Mapping[str, Any]) -> None:
    if row["content"] is not None:
        sight.require_value(row["content"], row["sensitivity"])


ROWS: Mapping[str, Mapping[str, Check]] = {
    "spaces": {"partition": lambda row: (row["area"] <= GLOBAL_AREA
                                         or is_partition(row["partition"]))
               and (row["area"] == GLOBAL_AREA) is (row["scope"] == GLOBAL_SCOPE)},
    "agent_memories": {"attempt": lambda row: row["binding"] != sight.Binding.TASK
                       or row["attempt"] is not None,
                       "content": _has_value},
    "proposals": {"checksum": lambda row: sha256(row["artifact"].encode()).digest()
                  == row["checksum"]},
}  # fmt: skip
"""What columns of a row say of each other, by the column that is named if they do not agree."""

BESIDE = {("agent_memories", "content"): "(SELECT content FROM memories WHERE id = memory_id)"}
"""Columns that lie in another table, as they are selected with a row."""

BY_PLACE = frozenset("tasks agents namespaces namespace_access intents coordinators grants".split())
"""The tables whose keys are names that users chose: a row is named by its position."""

DERIVED = frozenset(
    "partitions index_rules purges remains memory_stems area_stems database_state areas postings"
    .split()
)  # fmt: skip
"""The tables derived from the others: the index and its bookkeeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    type: str  # TEXT, INTEGER, BLOB, REAL or BOOLEAN
    may_be_null: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDamage:
    """A damaged row, by its key. What it holds stays in the database."""

    table: str
    row: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f": {', '.join(self.columns)}" if any(self.columns) else ""
        return f"{self.table} {self.row}{where}"


class TableCheck:
    def __init__(self, table: str, columns: Sequence[Column]) -> None:
        beside = {name: made for (of, name), made in BESIDE.items() if of == table}
        columns = [*columns, *(Column(name=it, type="TEXT", may_be_null=True) for it in beside)]
        self.table = table
        self.names = [column.name for column in columns]
        self.selected = [beside.get(name, f'"{name}"') for name in self.names]
        self._columns = columns
        self._sound: set[tuple[type, ...]] = set()
        self._checks = [
            (at, check)
            for at, column in enumerate(columns)
            if (check := _check_of(table, column)) is not None
        ]
        self._agreements = ROWS.get(table, {})

    def damaged(self, values: Sequence[Any]) -> list[str]:
        """The columns that are damaged of a row with these values."""
        types = tuple(map(type, values))
        if types not in self._sound:
            wrong = [
                it.name
                for it, of in zip(self._columns, types, strict=True)
                if not (it.may_be_null if of is type(None) else of is _TYPES.get(it.type, int))
            ]
            if wrong:
                return wrong
            self._sound.add(types)
        wrong = [
            self.names[at]
            for at, check in self._checks
            if (value := values[at]) is not None and not _passes(check, value)
        ]
        if self._agreements and not wrong:
            row = dict(zip(self.names, values, strict=True))
            return [name for name, check in self._agreements.items() if not _passes(check, row)]
        return wrong

    def found(self, rows: Iterable[Sequence[Any]]) -> Iterator[RowDamage]:
        """The damaged ones of rows, each with its key before the columns."""
        for key, *values in rows:
            if columns := self.damaged(values):
                yield RowDamage(table=self.table, row=named(key), columns=tuple(columns))


def named(key: object) -> str:
    """The key of a row in reports: a digest in hexadecimal, without unprintable characters."""
    if type(key) is bytes:
        return key.hex()
    text = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


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
    """The known damaged rows of one tenant. Thread-safe."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._lock = Lock()
        self.rows: tuple[RowDamage, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self.rows))

    def note(self, caller: Caller, rows: Iterable[RowDamage]) -> None:
        """Note all that a check reports; the log has each row once, but never what it holds."""
        with self._lock:
            known, self.rows = self.rows, tuple(rows)
        known_rows = {(it.table, it.row) for it in known}
        for row in self.rows:
            if (row.table, row.row) not in known_rows:
                self._tell(caller, row)
        if known and not self.rows:
            fields = {"path": self._where, "tenant": caller.tenant}
            log.warning("the database has no damaged rows any more", extra=fields)

    def add(self, caller: Caller, damaged: Iterable[DamagedRow]) -> None:
        """Note what a request was refused for, or has left out, until the next check."""
        for it in damaged:
            row = RowDamage(table=it.table, row=it.row, columns=(it.column,))
            with self._lock:
                is_known = any((of.table, of.row) == (it.table, it.row) for of in self.rows)
                is_new = not is_known and len(self.rows) < MOST_TOLD
                self.rows += (row,) if is_new else ()
            if is_new:
                self._tell(caller, row)

    def _tell(self, caller: Caller, row: RowDamage) -> None:
        fields = {"path": self._where, "tenant": caller.tenant, "table": row.table, "row": row.row}
        log.error("a row in the database is damaged: %s", REMEDY, extra=fields)
