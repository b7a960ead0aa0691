"""Maintenance of tenants' databases, in steps between which others read and write."""

import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from ...engine.callbacks import Progress, noop
from ...engine.maintenance import Condition, Repaired, Scrubbed, Sizes, Tidied
from ...engine.shared.known_values import KnownValues, Value
from ...errors import Damaged, Unavailable
from ...memory.model.access import Caller
from ...memory.model.erasure import ErasureId
from ...memory.model.space import RowCounts
from ...memory.sql.projects import ProjectTable
from ...memory.sql.receipts import ReceiptTable
from ..base.checks import is_readable
from ..base.connection import PROGRESS, connect, read_only
from ..base.copies import copies_of
from ..base.errors import REMEDY, is_damage, translated
from ..fts.partitions import Purge
from ..maintenance.values import damaged
from ..schema.schema import tables
from .opening import run_in_thread
from .transaction import SqliteTransaction, Work

log = logging.getLogger(__name__)

OnDamage = Callable[[Caller], None]
"""Told whose request has met damage. Any thread may tell."""


class Damage:
    """Whether one database is known to be damaged."""

    def __init__(self, path: Path, on_damage: OnDamage = noop) -> None:
        self.path = path
        self.report = on_damage  # where something else could stand in
        self.is_known = False
        self.known = KnownValues(str(path))

    def report_refusal(self, caller: Caller) -> None:
        """Something was refused for it."""
        self.note(caller, is_intact=False)
        self.report(caller)

    def note(self, caller: Caller, *, is_intact: bool) -> None:
        """Note what a look has found; the log has each change once."""
        fields = {"path": str(self.path), "tenant": caller.tenant}
        if self.is_known and is_intact:
            log.warning("the database file is whole again", extra=fields)
        elif not (self.is_known or is_intact):
            log.error("the database file is damaged: %s", REMEDY, extra=fields)
        self.is_known = not is_intact


def is_intact(path: Path, is_stopped: Callable[[], bool]) -> bool:
    """Whether every table and its indexes can be read, page by page, however long it takes.

    Pages that nothing uses are no damage.
    """
    with _interruptible(path, is_stopped) as database:
        try:
            return all(is_readable(database, name) for name in tables(database))
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return False


def damaged_at(path: Path, is_stopped: Callable[[], bool]) -> list[Value]:
    """The first of the damaged values in the file at the path, however long it takes."""
    with _interruptible(path, is_stopped) as database:
        return damaged(database)


@contextmanager
def _interruptible(path: Path, is_stopped: Callable[[], bool]) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as database:
        read_only(database)
        database.set_progress_handler(is_stopped, PROGRESS)
        yield database


T = TypeVar("T")

MINUTE = timedelta(minutes=1)


class Database(Protocol):
    """One database while it is open."""

    @property
    def damage(self) -> Damage: ...
    async def read(self, caller: Caller, work: Work[[], T]) -> T: ...
    async def write(self, caller: Caller, work: Work[[], T]) -> T: ...
    async def scrub_file(self, caller: Caller) -> bool: ...


class Databases(Protocol):
    """The database of each caller's tenant."""

    def path_of(self, caller: Caller) -> Path:
        """Where it lies."""

    def used(
        self, caller: Caller, *, in_passing: bool = False
    ) -> AbstractAsyncContextManager[Database]:
        """The database, which stays open inside; in passing none is opened, or kept open for it."""


@dataclass(frozen=True, slots=True)
class SqliteMaintenance:
    """Looks after databases; partitions of the full-text index one by one."""

    databases: Databases

    @property
    def has_files(self) -> bool:
        return True

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:
        async with self.databases.used(caller) as database:
            damage = database.damage
            with translated():
                if thorough:
                    found = await _look(partial(is_intact, damage.path))
                    damage.note(caller, is_intact=found)
                if not (thorough and damage.is_known):
                    damage.known.note(caller, await _look(partial(damaged_at, damage.path)))
        return Condition(is_intact=not damage.is_known, damaged_values=damage.known.names)

    async def repair(self, caller: Caller) -> Repaired:
        numbers = await self._partitions(caller)
        damaged = [number for number in numbers if await self._is_damaged(caller, number)]
        for number in damaged:
            await self._recreate(caller, number)
        return Repaired(rebuilt=tuple(damaged))

    async def bring_to_rules(self, caller: Caller) -> None:
        """It was, when the database was opened."""

    async def tidy(self, caller: Caller) -> Tidied:
        """Count each partition's rows, rebuild those that are out of line, rebalance, merge."""
        drifts = await self.drifts(caller)
        drifted = tuple(number for number, drift in drifts.items() if drift)
        for number in drifted:
            await self.rebuild(caller, number)
        moved = await self._rebalance(caller)
        for number in await self._partitions(caller):
            await self._merge(caller, number)
        return Tidied(
            parts=len(drifts),
            drift=sum(drifts.values()),
            rebuilt=drifted,
            moved=moved,
            is_damaged=not await self._is_readable(caller, _is_next_readable),
        )

    async def scrub(self, caller: Caller, progress: Progress = noop) -> Scrubbed:
        erasures = await self._read(caller, lambda tx: tx[ReceiptTable].pending())
        if not erasures:
            return Scrubbed()
        notes = await self._read(caller, lambda tx: tx.purges.marked())
        for number in notes:
            progress(f"partition {number}")
            await self._purge(caller, number)
        progress("the file")
        async with self.databases.used(caller) as database:
            is_scrubbed = await database.scrub_file(caller)
        if not is_scrubbed:
            return Scrubbed(pending=len(erasures))
        await self._write(caller, lambda tx: _settle(tx, erasures, notes))
        return Scrubbed(settled=len(erasures))

    async def sizes(self, caller: Caller) -> Sizes:
        path = self.databases.path_of(caller)
        return Sizes(
            database=_size(path),
            log=_size(path.with_name(f"{path.name}-wal")),
            free=_free(path.parent),
        )

    async def count(self, caller: Caller) -> RowCounts:
        async with self.databases.used(caller, in_passing=True) as database:
            return await database.read(caller, lambda tx: tx[ProjectTable].rows())

    def copies(self, caller: Caller) -> list[str]:
        path = Path(os.path.realpath(self.databases.path_of(caller)))
        return [copy.name for copy in copies_of(path)]

    async def drifts(self, caller: Caller) -> dict[int, int]:
        """By how many rows each partition is out of line."""
        return {it: await self._drift(caller, it) for it in await self._partitions(caller)}

    async def is_exact(self, caller: Caller, number: int) -> bool:
        """Whether a partition holds just what the memories say, word for word."""
        try:
            return await self._write(caller, lambda tx: tx.index.is_exact(number))
        except Damaged:
            return False

    async def rebuild(self, caller: Caller, number: int) -> None:
        """Fill a partition again from the memories; one that is damaged is replaced."""
        try:
            await self._write(caller, lambda tx: tx.index.rebuild(number))
        except Damaged:
            await self._recreate(caller, number)

    async def _partitions(self, caller: Caller) -> list[int]:
        return await self._read(caller, lambda tx: tx.partitions.all())

    async def _drift(self, caller: Caller, number: int) -> int:
        return await self._read(caller, lambda tx: tx.partitions.drift(number))

    async def _recreate(self, caller: Caller, number: int) -> None:
        await self._write(caller, lambda tx: tx.index.recreate(number))

    async def _rebalance(self, caller: Caller) -> int:
        """Move projects out of oversized partitions; how many."""
        moved = 0
        while await self._read(caller, lambda tx: bool(tx.partitions.oversized())):
            if not await self._write(caller, lambda tx: tx.index.rebalance()):
                break
            moved += 1
        return moved

    async def _merge(self, caller: Caller, number: int) -> None:
        """Merge the segments of a partition until each level has one."""
        goes_on = await self._read(caller, lambda tx: tx.segments.are_many(number))
        while goes_on:
            goes_on = await self._write(caller, lambda tx: tx.segments.merge(number))

    async def _is_damaged(self, caller: Caller, number: int) -> bool:
        """Of what was read before, a page tells nothing; so both are asked."""
        if not await self._is_readable(caller, lambda tx: tx.partitions.is_readable(number)):
            return True
        try:
            return not await self._write(caller, lambda tx: tx.partitions.is_exact(number))
        except Damaged:
            return True

    async def _is_readable(self, caller: Caller, work: Work[[], bool]) -> bool:
        """What work finds; one that is too large for a read counts as readable."""
        try:
            return await self._read(caller, work)
        except Damaged:
            return False
        except Unavailable:
            return True

    async def _purge(self, caller: Caller, number: int) -> None:
        begun = await self._write(caller, partial(_purge, number=number, begun=None))
        while begun is not None:
            begun = await self._write(caller, partial(_purge, number=number, begun=begun))

    async def _read(self, caller: Caller, work: Work[[], T]) -> T:
        async with self.databases.used(caller) as database:
            return await database.read(caller, work)

    async def _write(self, caller: Caller, work: Work[[], T]) -> T:
        async with self.databases.used(caller) as database:
            return await database.write(caller, work)


async def _look(look: Callable[[Callable[[], bool]], T]) -> T:
    """What a look finds, which asks whether to stop once nobody waits for it any more."""
    stop = threading.Event()
    try:
        return await run_in_thread(partial(look, stop.is_set))
    finally:
        stop.set()


def _is_next_readable(tx: SqliteTransaction) -> bool:
    """Whether one partition can be read: another with each minute."""
    numbers = tx.partitions.all()
    turn = int(tx.now.timestamp() // MINUTE.total_seconds())
    return not numbers or tx.partitions.is_readable(numbers[turn % len(numbers)])


def _purge(tx: SqliteTransaction, number: int, begun: Purge | None) -> Purge | None:
    return tx.purges.purge(number, begun)


def _settle(tx: SqliteTransaction, erasures: Sequence[ErasureId], notes: dict[int, int]) -> None:
    tx.purges.unmark(notes)
    tx[ReceiptTable].settle(erasures)


def _size(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_size
    return 0


def _free(folder: Path) -> int | None:
    with suppress(OSError):
        return shutil.disk_usage(folder).free
    return None
