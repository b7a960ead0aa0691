"""The schedule of a service's background jobs, and the engines that signal them."""

import asyncio
import errno
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from ..engine.engine import AuditLog, Engine, Maintenance, RowCounts, Sealer, Storage, Tidied, noop
from ..engine.files import require_local
from ..errors import Damaged, NotFound, code_of, is_operational, sentence_of
from ..light import dataclass, field
from ..memory.access import Caller, TenantId
from ..memory.sessions import end_idle
from ..openintent.events import settle_all
from ..openwop.api import Serving as OpenWop
from ..openwop.commitments import Firing
from ..openwop.consolidation import consolidate_changed
from ..openwop.host_runs import drop_idle
from ..operations import backup
from ..recall.cache import IndexCache
from ..settings import Settings
from ..sqlite import SqliteEngine
from ..sqlite.migrate import OnUpgrade
from ..telemetry import Metrics, metrics as m
from . import jobs
from .jobs import RetentionJob, TrustedClock, scrub

LOOK_AT_FOLDER = timedelta(minutes=1)  # interval of checks of the folder; the first is delayed, too
LONGEST_WAIT = timedelta(minutes=15)  # longest time before a retry after a failure

log = logging.getLogger(__name__)
Job = partial(jobs.Job, log)
PAUSE = timedelta(minutes=1)  # between two repairs: saves wait while a part is checked
CHECK_PAUSE = 100  # pause between two checks of all rows, as a multiple of the check's duration
LOOK = timedelta(seconds=1)  # interval of checks for leadership, and of the event loop
LOOK_EVERY = timedelta(seconds=10)  # interval of lookups of due commitments
FEW = 50  # commitments of a background step, so that saves wait less for it
# The log messages of failures.
ADAPT_LATER = "the index is out of date and could not be rebuilt; retrying later"
CONSOLIDATE_LATER = "refs could not be consolidated; retrying later"
DROP_LATER = "secrets of idle runs could not be dropped; retrying later"
FIRE_LATER = "due commitments could not be fired; retrying later"
SCRUB_LATER = "erased bytes could not be overwritten; retrying later"
COUNTED_FOR = timedelta(seconds=15)  # shortest time until rows are counted again
COUNT_PAUSE = 50  # pause as a multiple of a count's duration: counts take 2 % of one reader
COUNT_TIMEOUT = timedelta(seconds=4)  # of a count; Prometheus waits for ten seconds


@dataclass(slots=True, kw_only=True)
class Backups:
    """Makes the scheduled backups of a service, and knows their state."""

    settings: Settings
    folder: Path
    metrics: Metrics
    clock: Callable[[], datetime]
    _newest: backup.KeptArchive | None = None
    _fault: str | None = None
    _try_again_at: float = 0.0

    @property
    def trouble(self) -> str | None:
        """Return a sentence about the problem; None if there is a recent archive."""
        if self._fault:
            return "The last backup failed; the log says why."
        return backup.trouble_of(self._newest, self.settings.backup_every, self.clock())

    async def run(self) -> None:
        """Make an archive whenever the newest is older than the interval.

        An archive that is incomplete at the end is discarded.
        """
        self.metrics.show(m.BACKUP_INTERVAL, self.settings.backup_every.total_seconds())
        looking = jobs.run_in_thread(self._look_first)
        await jobs.attempted(looking, log, "backups cannot be made now", folder=str(self.folder))
        while True:
            await asyncio.sleep(LOOK_AT_FOLDER.total_seconds())
            await self.keep_up()

    async def keep_up(self) -> None:
        """Make an archive if it is due. A failure is retried later."""
        if time.monotonic() < self._try_again_at:
            return
        try:
            await jobs.run_in_thread(self._make_if_due)
            self._fault = None
        except Exception as error:
            wait = min(self.settings.backup_every, LONGEST_WAIT)
            self._try_again_at = time.monotonic() + wait.total_seconds()
            self.metrics.count(m.BACKUPS, "failed")
            before, self._fault = self._fault, sentence_of(error)
            if self._fault != before:
                fields = {"reason": self._fault, "code": code_of(error), "again_in": str(wait)}
                fields["folder"] = str(self.folder)
                unforeseen = None if is_operational(error) else error
                log.error(
                    "the backup failed and will be retried", exc_info=unforeseen, extra=fields
                )

    def _look_first(self, _: jobs.CheckStopped) -> None:
        self._look()
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "it cannot be written to", str(self.folder))
        if backup.are_on_one_disk(self.folder, self.settings.db_path):
            sentence = "backups are on the same disk as the database and would be lost with it"
            log.warning(sentence, extra={"folder": str(self.folder)})

    def _look(self) -> None:
        self._newest = archive = backup.newest(self.folder, self.clock())
        self.metrics.show(m.BACKUP_LAST_SUCCESS, archive.made_at.timestamp() if archive else 0)
        self.metrics.show(m.BACKUP_BYTES, archive.size if archive else 0)

    def _make_if_due(self, check_stopped: jobs.CheckStopped) -> None:
        self._look()
        last, now, began = self._newest, self.clock(), time.monotonic()
        if last is not None and now - last.made_at < self.settings.backup_every:
            return
        target = backup.path_in(self.folder, now)
        made = backup.make_archive(self.settings, target, now=now, progress=check_stopped)
        self.metrics.count(m.BACKUPS, "made")
        seconds = round(time.monotonic() - began, 3)
        extra = {"archive": str(made.path), "bytes": made.size, "seconds": seconds}
        log.info("backed up", extra=extra)
        if damaged := made.manifest.damaged:
            log.error("the backup has damaged values", extra={**extra, "values": list(damaged)})
        try:
            if gone := backup.prune(self.folder, self.settings.backup_keep, self.clock()):
                names = [path.name for path in gone]
                log.info("old backups were removed", extra={"archives": names})
        except OSError as error:
            extra = {"folder": str(self.folder), "reason": sentence_of(error)}
            log.warning("old backups could not be removed", extra=extra)
        self._look()


async def adapt(maintenance: Maintenance, callers: jobs.Callers) -> None:
    """Rebuild each tenant's index by the rules of this process, once it leads the tenant.

    Processes with other rules can no longer write. So of two releases that run concurrently, only
    one indexes, and they do not undo each other's work forever.
    """
    job = Job(maintenance.bring_to_rules, ADAPT_LATER)
    done: set[TenantId] = set()
    while True:
        led = {caller.tenant: caller for caller in callers()}
        failed = await job.run([it for tenant, it in led.items() if tenant not in done])
        done = led.keys() - {caller.tenant for caller in failed}
        await asyncio.sleep(LOOK.total_seconds())


async def check(
    maintenance: Maintenance, callers: jobs.Callers, metrics: Metrics, every: timedelta
) -> None:
    """Check each tenant's rows after each interval, for at most 1 % of the time."""
    counts: list[int] = []

    async def check_one(caller: Caller) -> None:
        counts.append(len((await maintenance.check(caller)).damaged_rows))

    job = Job(check_one, "the rows could not be checked; retrying later")
    clock = asyncio.get_running_loop().time
    while every:
        await asyncio.sleep(every.total_seconds())
        began = clock()
        counts.clear()
        await job.run(callers())
        metrics.show(m.DAMAGED_ROWS, sum(counts))
        await asyncio.sleep(CHECK_PAUSE * (clock() - began))


async def is_repaired(maintenance: Maintenance, caller: Caller) -> bool:
    """Repair a tenant's storage, and then check all of it; return whether it is intact."""
    try:
        if rebuilt := await maintenance.repair(caller):
            fields = {"tenant": caller.tenant, "partitions": list(rebuilt)}
            log.error("index was damaged and has been rebuilt", extra=fields)
        return (await maintenance.check(caller, thorough=True)).is_intact
    except Damaged:
        return False  # it was logged when it was found


async def tidy(
    maintenance: Maintenance, callers: Iterable[Caller], metrics: Metrics, damage: jobs.WorkSignal
) -> None:
    """Tidy each tenant's index once; signal the tenants whose index cannot be read."""
    indexes: list[Tidied] = []

    async def tidy_one(caller: Caller) -> None:
        tidied = await maintenance.tidy(caller)
        indexes.append(tidied)
        if tidied.rebuilt:
            fields = {"rows": tidied.drift, "partitions": list(tidied.rebuilt)}
            log.error("index was inconsistent and has been rebuilt", extra=fields)
        if tidied.moved:
            log.info("projects moved to other partitions", extra={"projects": tidied.moved})
        if tidied.is_damaged:
            damage.set(caller)

    await Job(tidy_one, "the sweep failed; the next one tries again").run(callers)
    metrics.show(m.INDEX_DRIFT, sum(it.drift for it in indexes))
    metrics.show(m.INDEX_PARTITIONS, sum(it.parts for it in indexes))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundJobs:
    """Opens the databases of a service, and runs the background jobs for them.

    `elapsed` returns monotonic seconds. `on_upgrade` is called on the loop.
    """

    settings: Settings
    metrics: Metrics
    audit: AuditLog
    clock: Callable[[], datetime]
    elapsed: Callable[[], float] = time.monotonic
    on_upgrade: OnUpgrade = noop
    index_cache: IndexCache = field(default_factory=IndexCache)
    sealer: Sealer | None = None
    # Signals for tenants with erased data, and for tenants whose commitments may be due.
    erased: jobs.WorkSignal = field(default_factory=jobs.WorkSignal)
    due: jobs.WorkSignal = field(default_factory=jobs.WorkSignal)
    _opened: jobs.WorkSignal = field(default_factory=jobs.WorkSignal)
    _damaged: jobs.WorkSignal = field(default_factory=jobs.WorkSignal)

    def _options(self) -> dict[str, Any]:
        """Return the arguments with which each engine is opened."""
        soon = asyncio.get_running_loop().call_soon_threadsafe
        return {
            "clock": self.clock,
            "quota": self.settings.tenant_quota,
            "retention": self.settings.retention,
            "index_cache": self.index_cache,
            "sealer": self.sealer,
            "committed": self.metrics.committed,
            "upgrading": lambda: soon(self.on_upgrade),
        }

    def engine(self, path: Path) -> AbstractAsyncContextManager[SqliteEngine]:
        """Open the database of a tenant; a network file system is refused, unless it is allowed."""
        require_local(path, is_network_allowed=self.settings.allow_network_fs)
        soon = asyncio.get_running_loop().call_soon_threadsafe
        return SqliteEngine.opened(
            path, damaged=lambda caller: soon(self._damaged.set, caller), **self._options()
        )

    @asynccontextmanager
    async def database(
        self, url: str, has_key: Callable[[TenantId], bool]
    ) -> AsyncIterator[Storage]:
        from ..postgresql.engine import PostgresEngine  # noqa: PLC0415

        opened = PostgresEngine.opened(
            url, has_key=has_key, size=self.settings.database_pool,
            copies_kept=self.settings.database_retention, may_lead=True, **self._options(),
        )  # fmt: skip
        async with opened as engine, jobs.background(engine.lead()):
            yield engine

    async def put_in_order(self, caller: Caller, engine: Engine) -> None:
        """End idle sessions, and fire a first step of due commitments, before the first reader."""
        await end_all_idle(engine, [caller], self.settings.session_idle)
        await Job(self.firing(engine).look, FIRE_LATER).run([caller])
        self.erased.set(caller)
        self._opened.set(caller)

    def backups(self) -> Backups | None:
        """Return the scheduled backups; None if they are off."""
        folder = self.settings.backup_dir
        if folder is None or not self.settings.backup_every:
            return None
        return Backups(
            settings=self.settings, folder=folder, metrics=self.metrics, clock=self.clock
        )

    @asynccontextmanager
    async def running(
        self, storage: Storage, of_openwop: OpenWop, backups: Backups | None
    ) -> AsyncIterator[None]:
        """Run the jobs while the context is open.

        First, idle sessions end, and a step of due commitments fires; the rest fire in further
        steps, between which other writers continue. Each sweep visits all tenants, because another
        process may have erased data or left an import unfinished.
        """
        maintenance, callers = storage.maintenance, storage.led
        idle, every = self.settings.session_idle, self.settings.sweep_every
        firing = self.firing(storage.background)
        fire = Job(firing.look, FIRE_LATER)
        fire_more = Job(partial(firing.step, most=FEW), FIRE_LATER)
        repair = Job(partial(is_repaired, maintenance), "the repair failed; retrying later")
        settle = Job(partial(_is_scrubbed, storage), SCRUB_LATER)
        drop = Job(partial(drop_idle, of_openwop, idle=idle), DROP_LATER)
        consolidate = Job(partial(consolidate_changed, of_openwop), CONSOLIDATE_LATER)
        retention = RetentionJob(
            engine=storage, on_erased=self.erased.set, retention=self.settings.retention,
            trim_audit=self.audit.trim, metrics=self.metrics,
            clock=TrustedClock(clock=self.clock, elapsed=self.elapsed),
        )  # fmt: skip
        await end_all_idle(storage, callers(), idle)
        await fire.run(callers())
        async with jobs.background(
            adapt(maintenance, callers),
            jobs.repeat(every, lambda: tidy(maintenance, callers(), self.metrics, self._damaged)),
            check(maintenance, callers, self.metrics, every),
            repair.on_signal(list, self._damaged, timedelta(), PAUSE),
            settle.on_signal(callers, self.erased, every),
            jobs.repeat(every, lambda: end_all_idle(storage, callers(), idle)),
            jobs.repeat(every, lambda: drop.run(storage.callers())),
            jobs.repeat(LOOK_EVERY, lambda: fire.run(callers())),
            fire_more.on_signal(callers, self.due, timedelta()),
            jobs.repeat(self.settings.consolidate_every, lambda: consolidate.run(callers())),
            jobs.repeat(every, lambda: retention.run(callers())),
            *([retention.sweep_opened(self._opened)] if every else []),
            *([backups.run()] if backups else []),
        ):
            yield

    def firing(self, engine: Engine) -> Firing:
        return Firing(engine=engine, on_fired=self.metrics.fired, on_due=self.due.set)


async def end_all_idle(engine: Engine, callers: Iterable[Caller], idle: timedelta) -> None:
    """End each tenant's idle sessions, and log their number; failures are retried next time."""

    async def end(caller: Caller) -> None:
        if ended := await end_idle(engine, caller, idle):
            extra = {"sessions": ended, "tenant": caller.tenant}
            log.info("idle sessions have ended", extra=extra)

    await Job(end, "idle sessions could not be ended; retrying later").run(callers)


async def _is_scrubbed(engine: Engine, caller: Caller) -> bool:
    await settle_all(engine, caller)
    scrubbed = await scrub(engine, caller)
    if scrubbed.settled:
        extra = {"erasures": scrubbed.settled, "tenant": caller.tenant}
        log.info("erased bytes are gone", extra=extra)
    return not scrubbed.pending


class Figures:
    """The gauges that are computed on demand."""

    def __init__(self, storage: Storage, metrics: Metrics) -> None:
        self._storage = storage
        self._metrics = metrics
        self._counting = asyncio.Lock()
        self._count_again_at = 0.0
        metrics.look_up(m.WRITE_QUEUE_DEPTH, lambda: storage.waiting)
        metrics.look_up(m.TENANTS_OPEN, lambda: len(storage.callers()))

    async def refresh(self) -> None:
        """Compute all gauges. If rows cannot be counted now, their gauges keep the old values."""
        async with self._counting:
            clock = asyncio.get_running_loop().time
            if (began := clock()) >= self._count_again_at:
                await jobs.attempted(self._show_rows(), log, "rows could not be counted")
                pause = max(COUNTED_FOR.total_seconds(), COUNT_PAUSE * (clock() - began))
                self._count_again_at = clock() + pause
        self._metrics.settle()  # first, as sizes may be unavailable
        maintenance, callers = self._storage.maintenance, self._storage.callers()
        sizes = [await maintenance.sizes(caller) for caller in callers]
        self._metrics.show(m.DATABASE_BYTES, sum(it.database for it in sizes))
        self._metrics.show(m.WAL_BYTES, sum(it.log or 0 for it in sizes))
        # The free bytes of a database server's disk are unknown: NaN triggers no alert.
        free = math.nan if sizes[0].log is None else sizes[0].free or 0
        self._metrics.show(m.DISK_FREE_BYTES, free)
        self._metrics.refresh()

    async def keep_fresh(self) -> None:
        """Compute all gauges regularly for a collector, which cannot request them."""
        failure = "gauges could not be computed; retrying later"
        while True:
            await jobs.attempted(self.refresh(), log, failure)
            await asyncio.sleep(COUNTED_FOR.total_seconds())

    async def _show_rows(self) -> None:
        async with asyncio.timeout(COUNT_TIMEOUT.total_seconds()):
            counts = await counted(self._storage)
        for table in m.ROWS.labels["table"]:
            self._metrics.show(m.ROWS, sum(getattr(rows, table) for rows in counts), table)
        for tier in m.AGENT_ENTRIES.labels["tier"]:
            self._metrics.show(m.AGENT_ENTRIES, sum(getattr(rows, tier) for rows in counts), tier)
        self._metrics.show(m.RUNS_OPEN, sum(rows.runs_open for rows in counts))
        self._metrics.show(m.SESSIONS_OPEN, sum(rows.sessions_open for rows in counts))
        self._metrics.show(m.PINNED, sum(rows.pinned for rows in counts))
        self._metrics.show(m.REVIEWS_DUE, sum(rows.reviews_due for rows in counts))


async def counted(storage: Storage) -> list[RowCounts]:
    """Return the row counts of each open database; databases closed meanwhile are omitted."""
    counts = []
    for caller in storage.callers():
        with suppress(NotFound):
            counts.append(await storage.maintenance.count(caller))
    return counts


async def watch_the_loop(metrics: Metrics) -> None:
    """Measure the delay of the event loop."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LOOK.total_seconds()
        await asyncio.sleep(LOOK.total_seconds())
        metrics.observe(m.EVENT_LOOP_LAG, max(loop.time() - due, 0))
