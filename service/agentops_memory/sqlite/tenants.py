"""Tenants' databases: their files, and the maintenance of each."""

import os
import shutil
from abc import ABC, abstractmethod
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from ..engine.engine import Scrubbed, Sizes, Tidied
from ..engine.files import os_errors_as, owned_like, private_file, sync
from ..errors import Conflict, Damaged, DamagedRow, Invalid, Unavailable
from ..memory.access import DEFAULT_TENANT, Caller, TenantId, tenant_id
from ..memory.erasure import ReceiptTable, held
from ..memory.space import Counted, Retentions, StorageStats
from ..recall.area import Area
from .connection import connect, sizes_of
from .dialect import SQLITE, translated
from .index import STEMMED_AT_ONCE
from .migrate import migrated
from .open_files import copies_of, require_one_name, size_at
from .partitions import Purge
from .transaction import SqliteTransaction, Work

P = ParamSpec("P")
T = TypeVar("T")
LOG_SUFFIXES = ("-wal", "-shm")


def tenant_file(path: Path, tenant: TenantId) -> Path:
    return path if tenant == DEFAULT_TENANT else tenants_folder(path) / f"{tenant}.db"


def tenants_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.tenants")


def tenants_of(path: Path) -> list[TenantId]:
    """Return the tenants with a database, of a service whose default database is at the path."""
    others = []
    for file in sorted(tenants_folder(path).glob("*.db")):
        with suppress(Invalid):
            others.append(tenant_id(file.stem))
    return [DEFAULT_TENANT, *others] if path.exists() else others


def counted(path: Path) -> Counted:
    """Count the contents of the database at the path, which may have an older format."""
    from .snapshots import contents_at  # noqa: PLC0415 - its models slow down the start

    size, contents = size_of(path), contents_at(path)
    if contents is None:
        return Counted(size=size)
    counts = contents.counts
    return Counted(
        size=size, memories=counts.observations, sessions=counts.sessions, stores=counts.stores
    )  # fmt: skip


def size_of(path: Path) -> int:
    """Return the bytes of a database on the disk, with its log."""
    return sum(file.stat().st_size for file in files_of(path))


def files_of(path: Path) -> list[Path]:
    """Return the existing files of a database, itself last."""
    every = [*(path.with_name(f"{path.name}{suffix}") for suffix in LOG_SUFFIXES), path]
    return [file for file in every if file.exists()]


def require_new(path: Path, tenant: TenantId) -> None:
    file = tenant_file(path, tenant)
    if file.exists():
        raise Conflict(f"The tenant {tenant} already has a database: {file}.")


def make(path: Path, tenant: TenantId, now: datetime) -> Path:
    """Create a tenant's database next to the default one at the path; Conflict if it exists."""
    file = tenant_file(path, tenant)
    with os_errors_as(Unavailable, f"The database {file} cannot be created"):
        if not file.parent.exists():
            file.parent.mkdir(parents=True)
            owned_like(file.parent, path if path.exists() else path.parent)
        try:
            with private_file(file, os.O_RDWR | os.O_EXCL, like=file.parent):
                pass
        except FileExistsError as error:
            raise Conflict(f"The tenant {tenant} already has a database: {file}.") from error
    try:
        migrated(file, now)
    except BaseException:
        for part in files_of(file):  # nobody uses it yet
            part.unlink(missing_ok=True)
        raise
    return file


def remove(path: Path) -> list[Path]:
    """Remove a database permanently; later saves into it are refused, not lost.

    A process that has it open notices before it acknowledges its next commit, and a service with
    the next request. Raises StartRefused if the file would stay under another name.
    """
    require_one_name(path)
    files = files_of(path)
    with os_errors_as(Unavailable, f"The database {path} cannot be removed"):
        # The database last: while it exists, nobody creates another whose log this would remove.
        for file in files:
            file.unlink(missing_ok=True)
        # A program that opened it meanwhile has made a new log.
        for file in () if path.exists() else files_of(path):
            file.unlink(missing_ok=True)
        sync(path.parent)
    return files


def storage_stats(path: Path, retention: Retentions, now: datetime) -> StorageStats:
    path = Path(os.path.realpath(path))  # where SQLite keeps the log
    with translated(), closing(connect(path)) as database:
        return StorageStats(
            database=path.stat().st_size,
            free=sizes_of(database)[1],
            index=sum(
                database.execute(
                    f"SELECT coalesce(sum(length(block)), 0) FROM memories_fts_{number}_data"
                ).fetchone()[0]
                for (number,) in database.execute("SELECT number FROM partitions").fetchall()
            ),
            log=size_at(path.with_name(f"{path.name}-wal")),
            copies=sum(map(size_at, copies_of(path))),
            held=held(database, SQLITE, retention, now),
        )


class SqliteMaintenance(ABC):
    """Maintains the database of each caller's tenant, one partition of the index at a time."""

    @abstractmethod
    async def read(
        self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @abstractmethod
    async def write(
        self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @abstractmethod
    def path_of(self, caller: Caller) -> Path: ...

    @abstractmethod
    async def scrub_file(self, caller: Caller) -> bool:
        """Remove deleted data from the file and its log; return False while that is held back.

        Saves wait for short moments, not until the end.
        """

    @property
    def maintenance(self) -> Self:
        return self

    @property
    def has_files(self) -> bool:
        return True

    async def repair(self, caller: Caller) -> list[int]:
        numbers = await self._partitions(caller)
        damaged = [number for number in numbers if await self._is_damaged(caller, number)]
        for number in damaged:
            await self.write(caller, lambda tx, one: tx.index.recreate(one), number)
        return damaged

    async def bring_to_rules(self, caller: Caller) -> None:  # noqa: B027 - the port has it
        """Do nothing: opening the database has applied the rules."""

    async def tidy(self, caller: Caller) -> Tidied:
        """Count each partition's rows, rebuild partitions that drifted, rebalance, merge segments.

        Nothing is rebuilt while a space's location is damaged: the index would lose its words.
        """
        await self._store_stems(caller)
        drifts = await self.drifts(caller)
        drifted = tuple(number for number, drift in drifts.items() if drift)
        try:
            for number in drifted:
                await self.rebuild(caller, number)
        except DamagedRow:  # it is logged, and readiness reports it
            drifted = ()
        moved = 0
        while await self.read(caller, lambda tx: bool(tx.partitions.oversized())):
            if not await self.write(caller, lambda tx: tx.index.rebalance()):
                break
            moved += 1
        for number in await self._partitions(caller):
            if await self.read(caller, lambda tx, one: tx.partitions.is_merged(one), number):
                continue
            await self.write(caller, lambda tx, one: tx.partitions.set_merges(one), number)
            while await self.write(caller, lambda tx, one: tx.partitions.merge(one), number):
                pass
        return Tidied(
            parts=len(drifts), drift=sum(drifts.values()), rebuilt=drifted, moved=moved,
            is_damaged=not await self._is_readable(caller, _is_next_readable),
        )  # fmt: skip

    async def scrub(self, caller: Caller) -> Scrubbed:
        erasures = await self.read(caller, lambda tx: tx[ReceiptTable].pending())
        if not erasures:
            return Scrubbed()
        for number, notes in await self.read(caller, lambda tx: tx.partitions.marked_for_purge()):
            begun: Purge | None = None
            while begun := await self.write(
                caller, lambda tx, *its: tx.partitions.purge(*its), number, notes, begun
            ):
                pass
        if not await self.scrub_file(caller):
            return Scrubbed(pending=len(erasures))
        await self.write(caller, lambda tx: tx[ReceiptTable].settle(erasures))
        return Scrubbed(settled=len(erasures))

    async def sizes(self, caller: Caller) -> Sizes:
        path, free = self.path_of(caller), None
        with suppress(OSError):
            free = shutil.disk_usage(path.parent).free
        return Sizes(
            database=size_at(path), log=size_at(path.with_name(f"{path.name}-wal")), free=free
        )

    def copies(self, caller: Caller) -> list[str]:
        path = Path(os.path.realpath(self.path_of(caller)))
        return [copy.name for copy in copies_of(path)]

    async def drifts(self, caller: Caller) -> dict[int, int]:
        return {
            it: await self.read(caller, lambda tx, one: tx.partitions.drift(one), it)
            for it in await self._partitions(caller)
        }

    async def is_exact(self, caller: Caller, number: int) -> bool:
        try:
            return await self.write(caller, lambda tx: tx.index.is_exact(number))
        except Damaged:
            return False

    async def rebuild(self, caller: Caller, number: int) -> None:
        """Rebuild a partition from the memories; replace it if it is damaged."""
        try:
            await self.write(caller, lambda tx: tx.index.rebuild(number))
        except Damaged:
            await self.write(caller, lambda tx: tx.index.recreate(number))

    async def _partitions(self, caller: Caller) -> list[int]:
        return await self.read(caller, lambda tx: tx.partitions.all())

    async def _store_stems(self, caller: Caller) -> None:
        """Store missing stems of memories, so that loading the index need not compute them."""
        after: int | None = 0
        while after is not None:
            missing, after = await self.read(
                caller, lambda tx, first: tx.index.missing_stems(first), after
            )
            for start in range(0, len(missing), STEMMED_AT_ONCE):
                some = missing[start : start + STEMMED_AT_ONCE]
                await self.write(caller, lambda tx, them: tx.index.store_stems(them), some)
        for number, state in await self.write(caller, lambda tx: tx.index.areas.behind()):
            with suppress(ValueError):  # damaged stems
                area = await self.read(caller, _area, number)
                if area.ids:  # otherwise all were deleted meanwhile
                    await self.write(caller, lambda tx, *it: tx.index.areas.store(*it), area, state)

    async def _is_damaged(self, caller: Caller, number: int) -> bool:
        """Check pages and contents: each check misses damage that the other finds."""

        def differs(tx: SqliteTransaction) -> bool:
            tx.partitions.require_places()
            return not tx.partitions.is_exact(number)

        if not await self._is_readable(caller, lambda tx: tx.partitions.is_readable(number)):
            return True
        try:
            return await self.write(caller, differs)
        except Damaged:
            return True
        except DamagedRow:
            return False

    async def _is_readable(self, caller: Caller, work: Work[[], bool]) -> bool:
        """Return the result of `work`; a partition too large for one read counts as readable."""
        try:
            return await self.read(caller, work)
        except Damaged:
            return False
        except Unavailable:
            return True


def _area(tx: SqliteTransaction, number: int) -> Area:
    return tx.index.areas.area(number)


def _is_next_readable(tx: SqliteTransaction) -> bool:
    numbers = tx.partitions.all()
    minute = int(tx.now.timestamp() // 60)
    return not numbers or tx.partitions.is_readable(numbers[minute % len(numbers)])
