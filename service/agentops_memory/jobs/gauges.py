"""What is looked up when somebody asks for the measurements: sizes, rows, what is open."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from ..domain.model.totals import Rows
from ..telemetry import Metrics
from ..telemetry import measures as m
from .runner import beside, log_failure

COUNTED_FOR = timedelta(seconds=15)  # until rows are counted again, at least
REST = 50  # times what a count took, until the next: it has a fiftieth of one reader at most
TIMEOUT = timedelta(seconds=4)  # with a count; Prometheus waits for ten seconds
LOOK = timedelta(seconds=1)  # between two looks at the event loop

log = logging.getLogger(__name__)


class Storage(Protocol):
    """The databases of a service, as those see them who look after it."""

    @property
    def waiting(self) -> int:
        """How many writes wait or are being made."""

    def files(self) -> Sequence[Path]:
        """The databases that are open, the default one first."""

    async def rows(self) -> Sequence[Rows]:
        """How much each of them holds."""


class Figures:
    """The gauges that are looked up when they are asked for, and not before."""

    def __init__(self, storage: Storage, metrics: Metrics) -> None:
        self._storage = storage
        self._metrics = metrics
        self._counting = asyncio.Lock()
        self._count_again_at = 0.0
        looks: dict[m.Measure, Callable[[], float]] = {
            m.WRITE_QUEUE_DEPTH: lambda: storage.waiting,
            m.TENANTS_OPEN: lambda: len(storage.files()),
            m.DATABASE_BYTES: lambda: sum(map(size, storage.files())),
            m.WAL_BYTES: lambda: sum(map(wal_size, storage.files())),
            m.DISK_FREE_BYTES: lambda: disk_free(storage.files()[0].parent) or 0,
        }
        for measure, look in looks.items():
            metrics.look_up(measure, look)

    async def refresh(self) -> None:
        """Look up all of them. Rows that cannot be counted now stay what they were."""
        async with self._counting:
            if asyncio.get_running_loop().time() >= self._count_again_at:
                await self._count()
        self._metrics.refresh()

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(TIMEOUT.total_seconds()):
                counted = await self._storage.rows()
        except Exception as error:  # noqa: BLE001 - all else can still be told
            log_failure(log, "rows could not be counted", error)
            return
        finally:
            now = loop.time()
            self._count_again_at = now + max(COUNTED_FOR.total_seconds(), REST * (now - began))
        for table in m.ROWS.labels["table"]:
            self._metrics.show(m.ROWS, sum(getattr(rows, table) for rows in counted), table)
        self._metrics.show(m.SESSIONS_OPEN, sum(rows.sessions_open for rows in counted))


def kept_fresh(figures: Figures) -> AbstractAsyncContextManager[None]:
    """Inside, all is looked up again and again, for a collector: it cannot ask."""

    async def look() -> None:
        while True:
            await figures.refresh()
            await asyncio.sleep(COUNTED_FOR.total_seconds())

    return beside(look())


def watching_the_loop(metrics: Metrics) -> AbstractAsyncContextManager[None]:
    """Inside, it is measured how late the event loop comes."""

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOK.total_seconds()
            await asyncio.sleep(LOOK.total_seconds())
            metrics.observe(m.EVENT_LOOP_LAG, max(loop.time() - due, 0))

    return beside(watch())


def size(file: Path) -> int:
    """The bytes of a file; 0 of one that is not there."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def wal_size(database: Path) -> int:
    """The bytes of a database's write-ahead log."""
    return size(database.with_name(f"{database.name}-wal"))


def disk_free(folder: Path) -> int | None:
    """The bytes that are left for whoever is not root; None where nobody can tell."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
