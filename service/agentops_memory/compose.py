"""The wiring: opens a running application from settings, and closes it in reverse order."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, nullcontext
from datetime import datetime, timedelta
from functools import partial

from . import console
from .agentops import routes as agentops
from .agentops.operations import AgentOps
from .agentops.reader import Reader, has_room
from .agentops.routes import Handlers
from .agentops.shortcuts import PATH as SAVES, TRACE_HEADERS, FastReads, FastSaves, PlainHeads
from .agentops.transfer import Transfer
from .backend import audit_of, sealer_of, watched_keys
from .console.page import PROTOCOL as CONSOLE, Console
from .engine.engine import AuditLog, Engine, Sealer, Storage, noop
from .engine.files import require_local
from .http.app import Application, Early, Probes, healthy, host_of, local_names
from .http.gate import Gate, RateLimiter, is_loopback, is_open_allowed, must_have_keys
from .http.openapi import documentation, scrape
from .http.protocol import Operation, Protocol
from .jobs.jobs import attempted, background, repeat
from .jobs.schedule import BackgroundJobs, Figures, watch_the_loop
from .light import dataclass
from .local import LocalService, redaction_of, utc_now
from .mcp import http as mcp
from .memory.access import Caller, KeyStore, TenantId
from .memory.projects import Projects
from .memory.redactor import Redaction, RulesOf
from .openintent import routes as openintent
from .openintent.routes import AgentEntries
from .openwop import routes as openwop
from .openwop.api import Serving as OpenWop
from .openwop.routes import OpenWopOperations
from .operations.files.seal import SealFileRefused, require_seal_file
from .operations.files.service_lock import service_lock_within
from .recall.cache import IndexCache
from .recall.recall import Recall
from .settings import Settings
from .sqlite.engine import TenantsEngine
from .sqlite.migrate import OnUpgrade
from .stores import anthropic, cloud
from .stores.store import Serving
from .telemetry import Telemetry, traced
from .telemetry.metrics import PASSES

FLUSH_INTERVAL = timedelta(seconds=1)  # a crash loses the accesses noted since the last flush
log = logging.getLogger(__name__)
# In the order in which a path is matched: the last protocol takes all paths that no other has.
PROTOCOLS: tuple[Protocol, ...] = (
    cloud.PROTOCOL,
    openintent.PROTOCOL,
    anthropic.PROTOCOL,
    openwop.PROTOCOL,
    mcp.PROTOCOL,
    CONSOLE,
    agentops.PROTOCOL,
)


@asynccontextmanager
async def noting(entries: AgentEntries) -> AsyncIterator[None]:
    """Within, noted accesses are written regularly; a failed write is retried."""

    async def write() -> None:
        await attempted(entries.flush(), log, "accesses could not be written; retrying later")

    async with background(repeat(FLUSH_INTERVAL, write)):
        yield
    await write()


@asynccontextmanager
async def opened(
    settings: Settings,
    telemetry: Telemetry,
    *,
    of_openwop: OpenWopOperations | None = None,
    clock: Callable[[], datetime] | None = None,
    elapsed: Callable[[], float] = time.monotonic,
    on_upgrade: OnUpgrade = noop,
) -> AsyncIterator[Application]:
    """Yield the application on its open storage; no other service can open its files meanwhile.

    `elapsed` is a monotonic clock in seconds. `on_upgrade` is called on the event loop.
    """
    clock = clock or utc_now
    wiring = _Wiring(
        settings=settings, telemetry=telemetry, clock=clock, redaction=redaction_of(settings),
        audit=audit_of(settings, clock), of_openwop=of_openwop or openwop.operations,
        reader=Reader(may_start=has_room()),
        # From here on, so that commitments that fire while the storage is opened are counted.
        exposition=None if settings.metrics == "off" else telemetry.exposition(),
    )  # fmt: skip
    jobs = BackgroundJobs(
        settings=settings, metrics=telemetry.metrics, audit=wiring.audit, clock=clock,
        elapsed=elapsed, on_upgrade=on_upgrade, index_cache=IndexCache(settings.index_cache),
        sealer=_sealer(settings, clock),
    )  # fmt: skip
    with closing(wiring.reader):
        async with (
            watched_keys(settings) as keys,
            nullcontext(wiring.gate(keys)) as gate,
            _storage(settings, jobs, keys) as storage,
            wiring.application(storage, gate, jobs) as application,
        ):
            yield application


@asynccontextmanager
async def _storage(
    settings: Settings, jobs: BackgroundJobs, keys: KeyStore
) -> AsyncIterator[Storage]:
    """Yield the storage of all tenants; files are locked against other services."""

    def has_key(tenant: TenantId) -> bool:
        return bool(keys.ring().working(tenant))

    if settings.database_url:
        async with jobs.database(settings.database_url, has_key) as database:
            yield database
        return
    path = settings.db_path
    require_local(path, is_network_allowed=settings.allow_network_fs)
    async with (
        service_lock_within(path, settings.lock_wait),
        TenantsEngine.opened(
            path, jobs.engine, has_key=has_key, on_opened=jobs.put_in_order
        ) as files,
    ):
        yield files


def _sealer(settings: Settings, clock: Callable[[], datetime]) -> Sealer:
    """Return the sealer of confidential values; others work even if its file is unreadable."""
    require_seal_file(settings.seal_file, settings.db_path)
    file = sealer_of(settings, clock)
    try:
        file.keys()
    except SealFileRefused as refusal:
        log.warning("confidential values cannot be read or stored", extra={"reason": str(refusal)})
    return file.sealer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wiring:
    settings: Settings
    telemetry: Telemetry
    clock: Callable[[], datetime]
    redaction: Redaction
    audit: AuditLog
    of_openwop: OpenWopOperations
    reader: Reader
    exposition: Callable[[str], tuple[bytes, str]] | None  # of metrics, if enabled

    @property
    def rules(self) -> RulesOf:
        """The redaction rules for what a caller writes."""
        return self.redaction.rules

    def gate(self, keys: KeyStore) -> Gate:
        """Return the gate; SettingRefused without required keys, KeyFileRefused for faulty ones."""
        settings, ring = self.settings, keys.read()
        auth, host = settings.auth, settings.listen.host
        must_have_keys(ring, auth, host)
        if not ring.was_ever_used and not is_loopback(host):
            log.warning(
                "anyone who can reach port %d is admin; `agentops-memory keys create` restricts "
                "access",
                settings.listen.port,
                extra={"auth": auth, "listen": str(settings.listen)},
            )
        return Gate(
            keys=keys, is_open_allowed=is_open_allowed(auth, host), clock=self.clock,
            require_rate=RateLimiter(settings.rate_limit).require, rules=self.rules,
        )  # fmt: skip

    @asynccontextmanager
    async def application(
        self, storage: Storage, gate: Gate, jobs: BackgroundJobs
    ) -> AsyncIterator[Application]:
        """Yield the application, with its background jobs running."""
        settings, on_erased = self.settings, jobs.erased.set
        metrics, backups = self.telemetry.metrics, jobs.backups()
        engine, figures = traced(storage, self.telemetry), Figures(storage, metrics)
        entries = AgentEntries(
            engine=engine, audit=self.audit, rules=self.rules, capacities=settings.capacities,
            timeout=settings.recall_limit, on_erased=on_erased,
        )  # fmt: skip
        recall = Recall(
            engine=engine, timeout=settings.recall_limit,
            accessed=entries.accesses.put,
        )  # fmt: skip
        transfer = Transfer(engine=engine, rules=self.rules)
        api = AgentOps(
            engine=engine, rules=self.rules, recall=recall, clock=self.clock,
            dedupe_window=settings.dedupe_window, periods=settings.review_after,
            transfer=lambda: transfer,
            projects=partial(Projects, engine=engine, audit=self.audit, on_erased=on_erased),
        )  # fmt: skip
        of_openwop = self._openwop(engine, jobs)
        trouble = (lambda: backups.trouble) if backups else None
        probes = Probes(storage=storage, metrics=metrics, backup_trouble=trouble)
        async with (
            jobs.running(storage, of_openwop, backups),
            background(
                watch_the_loop(metrics), *([figures.keep_fresh()] if self.telemetry.tracer else [])
            ),
            noting(entries),
        ):
            of_console = partial(
                Console, readiness=probes.readiness, maintenance=storage.maintenance,
                settings=settings, metrics=metrics, keys=gate.keys.ring, used=gate.used,
            )  # fmt: skip
            operations = self._operations(api, entries, of_openwop, of_console, on_erased)
            served = list(zip(PROTOCOLS, operations, strict=True))
            more = probes.operations
            if self.exposition is not None:
                is_open = settings.metrics == "open"
                more.append(scrape(figures.refresh, self.exposition, gate, is_open=is_open))
            own = [*documentation(served, more, gate)]
            app = Application(served, own, gate, self.telemetry)
            app.early = self._early(storage, gate)
            if not self.telemetry.tracer:  # otherwise spans must show each step of a save
                heads = PlainHeads(self._is_own_name, TRACE_HEADERS | {b"content-length"})
                saves = FastSaves(api, gate, heads, self.telemetry)
                app.early_posts = {SAVES: saves.answer}
            yield app

    def _openwop(self, engine: Engine, jobs: BackgroundJobs) -> OpenWop:
        settings, metrics = self.settings, self.telemetry.metrics
        return OpenWop(
            engine=engine, redaction=self.redaction, audit=self.audit, clock=self.clock,
            timeout=settings.recall_limit,
            keep_archives=settings.keep_archives, is_consolidating=bool(settings.consolidate_every),
            on_due=jobs.due.set, on_erased=jobs.erased.set,
            pass_ended=partial(metrics.count, PASSES),
        )  # fmt: skip

    def _is_own_name(self, host: str) -> bool:
        names = local_names(self.settings.listen.host)
        return names is None or host_of(host) in names

    def _early(self, storage: Storage, gate: Gate) -> Early:
        """Return the fast path for plain reads from memory, which only files have."""
        is_fast = self.telemetry.past or not self.telemetry.tracer
        return FastReads(
            storage.cached_reads_of if isinstance(storage, TenantsEngine) and is_fast
            else lambda _: None,
            gate=gate, heads=PlainHeads(self._is_own_name),
            health=bytes(healthy().body), clock=self.clock, telemetry=self.telemetry,
        ).answer  # fmt: skip

    def _operations(
        self,
        api: AgentOps,
        entries: AgentEntries,
        of_openwop: OpenWop,
        of_console: Callable[..., Console],
        on_erased: Callable[[Caller], None],
    ) -> Sequence[Sequence[Operation]]:
        settings, rules = self.settings, self.rules
        stores = partial(
            Serving, engine=api.engine, audit=self.audit, rules=rules, on_erased=on_erased
        )
        # The operations of the REST API, for a caller in this process.
        local = partial(LocalService, agentops=api, rules=rules, telemetry=self.telemetry)
        agents = mcp.McpOverHttp(profile=settings.profile, service=local, clock=self.clock)
        return (
            cloud.operations(stores(policy=cloud.POLICY), api.recall),
            openintent.operations(entries),
            anthropic.operations(stores(policy=anthropic.POLICY)),
            self.of_openwop(of_openwop),
            mcp.operations(agents),
            console.operations(of_console(
                agentops=api, memories=local, clock=self.clock, agents=entries, refs=of_openwop,
            )),
            agentops.operations(Handlers(
                agentops=api, max_upload=settings.max_upload, reader=self.reader,
                folder=settings.db_path.parent,
            ), settings.delete_answer),
        )  # fmt: skip
