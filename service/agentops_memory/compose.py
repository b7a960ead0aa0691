"""The wiring: settings in, a running application out, closed in reverse."""

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from starlette.applications import Starlette

from .api.agentops import routes as agentops
from .api.anthropic_stores import routes as anthropic_stores
from .api.kit.endpoint import Gate
from .api.kit.protocol import Operation, Protocol, SeamServices
from .api.memory_stores import routes as memory_stores
from .api.openintent import routes as openintent
from .api.openwop import routes as openwop
from .domain.hosts.seeding import Seeding
from .domain.model.access import DEFAULT_TENANT, OPERATOR, Caller, TenantId
from .domain.model.keys import KeyStore
from .domain.ports.callbacks import noop
from .domain.ports.engine import Engine
from .domain.transfer.transfer import Transfer
from .files.audit import AuditFile
from .files.file_systems import require_local
from .files.keys import KeyFile, WatchedKeys
from .files.seals import SealFile, SealFileRefused, require_seal_file
from .files.service_lock import OnWait, service_lock_within
from .jobs.accesses import noting
from .jobs.gauges import Figures, kept_fresh, watching_the_loop
from .jobs.schedule import BackgroundJobs
from .local import LocalService
from .mcp import http as mcp
from .mcp.connection import Connections
from .settings.settings import Settings
from .storage.index_cache.cache import IndexCache
from .storage.sqlite import SqliteEngine, TenantsEngine
from .storage.sqlite.engine.tenants import tenant_file
from .storage.sqlite.schema.migrate import OnUpgrade
from .telemetry import Telemetry, counted, traced
from .web.app import Scrape, application
from .web.auth import (
    Identity,
    is_open_allowed,
    must_have_keys,
    must_have_keys_for_seams,
)
from .web.health import Probes
from .web.rate_limit import RateLimiter
from .wiring import Wiring

log = logging.getLogger(__name__)

# Of an import by a command, and between them, when a service on the same file can save.
OWN, OF_OTHERS = timedelta(milliseconds=50), timedelta(milliseconds=25)

# What is spoken, in the order in which a path is looked for: the last has the paths of no other.
PROTOCOLS: tuple[Protocol, ...] = (
    memory_stores.PROTOCOL,
    openintent.PROTOCOL,
    anthropic_stores.PROTOCOL,
    openwop.PROTOCOL,
    mcp.PROTOCOL,
    agentops.PROTOCOL,
)

utc_now: Callable[[], datetime] = partial(datetime.now, UTC)  # the wall clock


@asynccontextmanager
async def opened(
    settings: Settings,
    telemetry: Telemetry,
    *,
    clock: Callable[[], datetime] = utc_now,
    elapsed: Callable[[], float] = time.monotonic,
    on_wait: OnWait | None = None,
    on_upgrade: OnUpgrade = noop,
) -> AsyncIterator[Starlette]:
    """The application over its open database, which no other service has meanwhile.

    `elapsed` tells seconds, however the clock is put. `on_wait` is told what it waits for
    before all that, and nothing once it goes on; `on_upgrade` is called on the loop.
    """
    require_local(settings.db_path, is_network_allowed=settings.allow_network_fs)
    wiring = _Wiring.of(settings, telemetry, clock)
    sealer = _sealer(settings, clock)
    keys = WatchedKeys(KeyFile(settings.keys_file, settings.audit_file))
    gate = wiring.gate(keys)
    jobs = BackgroundJobs(
        settings=settings,
        metrics=telemetry.metrics,
        clock=clock,
        elapsed=elapsed,
        on_upgrade=on_upgrade,
        index_cache=IndexCache(settings.index_cache),
        sealer=sealer,
    )
    async with (
        service_lock_within(settings.db_path, settings.lock_wait, on_wait),
        TenantsEngine.opened(
            settings.db_path,
            jobs.engine,
            has_key=lambda tenant: bool(keys.ring().working(tenant)),
            on_opened=jobs.put_in_order,
        ) as sqlite,
        wiring.application(sqlite, gate, jobs, keys) as application,
    ):
        yield application


@asynccontextmanager
async def opened_here(
    settings: Settings,
    telemetry: Telemetry,
    tenant: TenantId = DEFAULT_TENANT,
    *,
    clock: Callable[[], datetime] = utc_now,
) -> AsyncIterator[LocalService]:
    """A tenant's memories without a service: for whoever may read the file, all of them.

    The file may be in use by others meanwhile. What is erased here loses its bytes, and an
    import that is left half-way is completed, when a service next looks after the file.
    """
    wiring = _Wiring.of(settings, telemetry, clock)
    async with SqliteEngine.opened(
        tenant_file(settings.db_path, tenant),
        clock=clock,
        features=settings.recall,
        quota=settings.tenant_quota,
        retention=settings.retention,
        index_cache=IndexCache(settings.index_cache),
        sealer=SealFile(settings.seal_file, clock),
    ) as sqlite:
        engine = traced(sqlite, telemetry)
        transfer = Transfer(engine=engine, rules=wiring.rules, step=OWN, rest=OF_OTHERS)
        services = wiring.services(engine, transfer)
        yield wiring.local(services)(lambda: Caller(tenant=tenant))


def _sealer(settings: Settings, clock: Callable[[], datetime]) -> SealFile:
    """The keys of confidential values; a file that cannot be read keeps no other value back."""
    require_seal_file(settings.seal_file, settings.db_path)
    file = SealFile(settings.seal_file, clock)
    try:
        file.keys()
    except SealFileRefused as refusal:
        log.warning("confidential values cannot be read or stored", extra={"reason": str(refusal)})
    return file


class _Wiring(Wiring):
    """The same, of a service."""

    def gate(self, keys: KeyStore) -> Gate:
        """Whom to let in; SettingRefused or KeyFileRefused if nobody, or the keys are unknown."""
        settings, ring = self.settings, keys.read()
        auth, host = settings.auth, settings.listen.host
        must_have_keys(ring, auth, host)
        if settings.openwop_seams:
            must_have_keys_for_seams(ring)
        if not ring.was_ever_used:
            log.warning(
                "no key was ever made, so whoever reaches this service may do everything; "
                "the first key closes it",
                extra={"auth": auth, "listen": str(settings.listen)},
            )
        is_open = is_open_allowed(auth, host)
        identity = Identity(keys, is_open_allowed=is_open, clock=self.clock)
        rates = RateLimiter(settings.rate_limit)
        return Gate(identify=identity.caller, require_rate=rates.require, rules=self.rules)

    @asynccontextmanager
    async def application(
        self, sqlite: TenantsEngine, gate: Gate, jobs: BackgroundJobs, keys: KeyStore
    ) -> AsyncIterator[Starlette]:
        """The application, with what goes on beside it."""
        metrics, backups = self.telemetry.metrics, jobs.backups()
        engine, figures = traced(sqlite, self.telemetry), Figures(sqlite, metrics)
        transfer = Transfer(engine=engine, rules=self.rules, on_left=jobs.imports.set)
        services = self.services(engine, transfer, jobs.erased.set)
        connections = Connections(
            profile=self.settings.profile, service=self.local(services), clock=self.clock
        )
        agents = mcp.McpOverHttp(connections)
        probes = Probes(storage=sqlite, metrics=metrics, backups=backups)
        more = self._endpoints(probes, figures, gate)
        async with (
            jobs.running(sqlite, services.runs, services.passes, backups),
            watching_the_loop(metrics),
            kept_fresh(figures) if self.telemetry.is_sent else nullcontext(),
            agents.opened(),
            noting(services.entries),
        ):
            served = replace(services, agents=agents, seams=self._seams(engine, keys))
            yield application(PROTOCOLS, served, more, gate, self.telemetry)

    def _seams(self, engine: Engine, keys: KeyStore) -> SeamServices | None:
        """The conformance seams, of which log and audit tell; none unless they are on."""
        settings = self.settings
        if not settings.openwop_seams:
            return None
        AuditFile(settings.audit_file, self.clock)(OPERATOR, "seams.enabled")
        log.warning(
            "the conformance seams of OpenWOP are served, which no host needs",
            extra={"setting": "MEMORY_OPENWOP_SEAMS"},
        )
        seeding = Seeding(engine=engine, redaction=self.redaction)
        return SeamServices(
            seeding=counted(seeding, metrics=self.telemetry.metrics),
            has_key=lambda tenant: bool(keys.ring().working(tenant)),
        )

    def _endpoints(self, probes: Probes, figures: Figures, gate: Gate) -> list[Operation]:
        """What those are answered who look after the service."""
        mode = self.settings.metrics
        if mode == "off":
            return probes.operations
        shown, is_open = self.telemetry.exposition(), mode == "open"
        scrape = Scrape(refresh=figures.refresh, exposition=shown, gate=gate, is_open=is_open)
        return [*probes.operations, scrape.operation]
