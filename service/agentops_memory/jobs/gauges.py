"""Gauges that are computed when metrics are read: sizes, row counts, open tenants."""

import asyncio
import logging
import math
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta

from ..engine.engine import Storage
from ..engine.maintenance import RowCounts, Sizes
from ..errors import NotFound
from ..telemetry import Metrics
from ..telemetry import measures as m
from .runner import attempted, background

COUNTED_FOR = timedelta(seconds=15)  # until rows are counted again, at least
REST = 50  # times what a count took, until the next: it has a fiftieth of one reader at most
TIMEOUT = timedelta(seconds=4)  # with a count; Prometheus waits for ten seconds
LOOK = timedelta(seconds=1)  # between two looks at the event loop

log = logging.getLogger(__name__)


class Figures:
    """The gauges that are looked up when they are asked for, and not before."""

    def __init__(self, storage: Storage, metrics: Metrics) -> None:
        self._storage = storage
        self._metrics = metrics
        self._counting = asyncio.Lock()
        self._count_again_at = 0.0
        metrics.look_up(m.WRITE_QUEUE_DEPTH, lambda: storage.waiting)
        metrics.look_up(m.TENANTS_OPEN, lambda: len(storage.callers()))

    async def refresh(self) -> None:
        """Look up all of them. Rows that cannot be counted now stay what they were."""
        async with self._counting:
            if asyncio.get_running_loop().time() >= self._count_again_at:
                await self._count()
        await self._measure()
        self._metrics.refresh()

    async def _measure(self) -> None:
        maintenance, callers = self._storage.maintenance, self._storage.callers()
        sizes = [await maintenance.sizes(caller) for caller in callers]
        self._metrics.show(m.DATABASE_BYTES, sum(it.database for it in sizes))
        self._metrics.show(m.WAL_BYTES, sum(it.log or 0 for it in sizes))
        self._metrics.show(m.DISK_FREE_BYTES, _free(sizes[0]))

    async def _count(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        await attempted(self._show_rows(), log, "rows could not be counted")
        self._count_again_at = clock() + max(COUNTED_FOR.total_seconds(), REST * (clock() - began))

    async def _show_rows(self) -> None:
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            counts = await counted(self._storage)
        for table in m.ROWS.labels["table"]:
            self._metrics.show(m.ROWS, sum(getattr(rows, table) for rows in counts), table)
        for tier in m.AGENT_ENTRIES.labels["tier"]:
            self._metrics.show(m.AGENT_ENTRIES, sum(getattr(rows, tier) for rows in counts), tier)
        self._metrics.show(m.RUNS_OPEN, sum(rows.runs_open for rows in counts))
        self._metrics.show(m.SESSIONS_OPEN, sum(rows.sessions_open for rows in counts))
        self._metrics.show(m.PINNED, sum(rows.pinned for rows in counts))
        self._metrics.show(m.REVIEWS_DUE, sum(rows.reviews_due for rows in counts))


def _free(sizes: Sizes) -> float:
    """The free bytes; of a disk that is not ours they are no number, which alerts nobody."""
    return math.nan if sizes.log is None else sizes.free or 0


async def counted(storage: Storage) -> list[RowCounts]:
    """How many rows each open database has; those that are closed meanwhile are left out."""
    counts = []
    for caller in storage.callers():
        with suppress(NotFound):
            counts.append(await storage.maintenance.count(caller))
    return counts


def kept_fresh(figures: Figures) -> AbstractAsyncContextManager[None]:
    """Inside, all is looked up again and again, for a collector: it cannot ask."""

    async def look() -> None:
        while True:
            await figures.refresh()
            await asyncio.sleep(COUNTED_FOR.total_seconds())

    return background(look())


def watching_the_loop(metrics: Metrics) -> AbstractAsyncContextManager[None]:
    """Inside, it is measured how late the event loop comes."""

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOK.total_seconds()
            await asyncio.sleep(LOOK.total_seconds())
            metrics.observe(m.EVENT_LOOP_LAG, max(loop.time() - due, 0))

    return background(watch())
