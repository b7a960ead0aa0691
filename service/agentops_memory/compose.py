"""The wiring: settings in, a running application out, closed in reverse."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from starlette.applications import Starlette

from .api.agentops import routes as agentops
from .api.anthropic_stores import routes as anthropic_stores
from .api.kit.endpoint import Gate
from .api.kit.protocol import Operation, Protocol, Services, StoreServices
from .api.memory_stores import routes as memory_stores
from .domain.lifecycle.projects import Projects
from .domain.lifecycle.receipts import Erasures
from .domain.memories.memories import Memories
from .domain.memories.redaction_rules import Redaction
from .domain.memories.redactor import RulesOf
from .domain.memories.sessions import Sessions
from .domain.model.access import DEFAULT_TENANT, Caller, TenantId
from .domain.ports.audit import noop
from .domain.ports.engine import Engine
from .domain.ports.keys import KeyStore
from .domain.recall.recall import Recall
from .domain.stores.entries import Entries
from .domain.stores.rules import Policy
from .domain.stores.stores import Stores
from .domain.stores.versions import Versions
from .domain.transfer.transfer import Transfer
from .files.audit import AuditFile
from .files.file_systems import require_local
from .files.keys import KeyFile, WatchedKeys
from .files.redaction import RedactionFile
from .files.service_lock import OnWait, service_lock_within
from .jobs.gauges import Figures, kept_fresh, watching_the_loop
from .jobs.schedule import Housekeeping
from .local import LocalService
from .mcp import routes as mcp
from .mcp.connection import Connections
from .mcp.http import McpOverHttp
from .settings.settings import Settings
from .storage.sqlite import SqliteEngine, TenantsEngine
from .storage.sqlite.engine.tenants import tenant_file
from .storage.sqlite.schema.migrate import OnUpgrade
from .telemetry import Telemetry, counted, hide_by, traced
from .web.app import Scrape, application
from .web.auth import Identity, RateLimiter, is_open_allowed, must_have_keys
from .web.health import Probes

log = logging.getLogger(__name__)

# Of an import by a command, and between them, when a service on the same file can save.
OWN, OF_OTHERS = timedelta(milliseconds=50), timedelta(milliseconds=25)
NO_TRACE: Mapping[str, str] = {}

# What is spoken, in the order in which a path is looked for: the last has the paths of no other.
PROTOCOLS: tuple[Protocol, ...] = (
    memory_stores.PROTOCOL,
    anthropic_stores.PROTOCOL,
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
    exceptions = RedactionFile(settings.redaction_file)
    exceptions.read()
    redaction = Redaction(exceptions=exceptions.rules)
    keys = WatchedKeys(KeyFile(settings.keys_file, settings.audit_file))
    gate = Gate(
        identify=_identity(settings, keys, clock).caller,
        require_rate=RateLimiter(settings.rate_limit).require,
        rules=redaction.rules,
    )
    housekeeping = Housekeeping(
        settings=settings,
        metrics=telemetry.metrics,
        clock=clock,
        elapsed=elapsed,
        on_upgrade=on_upgrade,
    )
    async with (
        service_lock_within(settings.db_path, settings.lock_wait, on_wait),
        TenantsEngine.opened(
            settings.db_path,
            housekeeping.engine,
            has_key=lambda tenant: bool(keys.ring().working(tenant)),
            on_opened=housekeeping.put_in_order,
        ) as sqlite,
    ):
        engine, rules = traced(sqlite, telemetry), redaction.rules
        transfer = Transfer(engine=engine, rules=rules, on_left=housekeeping.imports.set)
        services = _services(
            engine,
            telemetry,
            settings,
            rules,
            clock,
            transfer=transfer,
            on_erased=housekeeping.erased.set,
        )
        local = partial(_local, services, telemetry, rules)
        agents = McpOverHttp(Connections(profile=settings.profile, service=local, clock=clock))
        figures, backups = Figures(sqlite, telemetry.metrics), housekeeping.backups()
        probes = Probes(storage=sqlite, metrics=telemetry.metrics, backups=backups)
        more = _looked_after(probes, figures, gate, settings, telemetry)
        async with (
            housekeeping.done_for(sqlite, backups),
            watching_the_loop(telemetry.metrics),
            kept_fresh(figures) if telemetry.is_sent else nullcontext(),
            agents.opened(),
        ):
            yield application(PROTOCOLS, replace(services, agents=agents), more, gate, telemetry)


def _looked_after(
    probes: Probes, figures: Figures, gate: Gate, settings: Settings, telemetry: Telemetry
) -> list[Operation]:
    """What those are answered who look after the service."""
    if settings.metrics == "off":
        return probes.operations
    scrape = Scrape(
        refresh=figures.refresh,
        exposition=telemetry.exposition(),
        gate=gate,
        is_open=settings.metrics == "open",
    )
    return [*probes.operations, scrape.operation]


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
    exceptions = RedactionFile(settings.redaction_file)
    exceptions.read()
    redaction, path = Redaction(exceptions=exceptions.rules), tenant_file(settings.db_path, tenant)
    async with SqliteEngine.opened(
        path,
        clock=clock,
        features=settings.recall,
        quota=settings.tenant_quota,
        retention=settings.retention,
    ) as sqlite:
        engine, rules = traced(sqlite, telemetry), redaction.rules
        transfer = Transfer(engine=engine, rules=rules, step=OWN, rest=OF_OTHERS)
        services = _services(engine, telemetry, settings, rules, clock, transfer=transfer)
        yield _local(services, telemetry, rules, lambda: Caller(tenant=tenant))


def _local(
    services: Services,
    telemetry: Telemetry,
    rules: RulesOf,
    caller: Callable[[], Caller],
    trace: Mapping[str, str] = NO_TRACE,
) -> LocalService:
    """The services behind the REST API, for one caller in this process."""

    def operation(name: str, caller: Caller) -> AbstractContextManager[object]:
        hide_by(rules(caller))
        return telemetry.operation(name, trace)

    return LocalService(agentops=agentops.core(services), caller=caller, operation=operation)


def _services(
    engine: Engine,
    telemetry: Telemetry,
    settings: Settings,
    rules: RulesOf,
    clock: Callable[[], datetime],
    *,
    transfer: Transfer,
    on_erased: Callable[[Caller], None] = noop,
) -> Services:
    """The domain over the engine, with what comes of its operations counted."""
    count = partial(counted, metrics=telemetry.metrics)
    audit = AuditFile(settings.audit_file, clock)
    memories = Memories(
        engine=engine, dedupe_window=settings.dedupe_window, rules=rules, on_erased=on_erased
    )

    def stores(policy: Policy) -> StoreServices:
        made = Stores(engine=engine, policy=policy, audit=audit, rules=rules, on_erased=on_erased)
        return StoreServices(
            stores=count(made),
            entries=count(Entries(engine=engine, policy=policy, rules=rules, on_erased=on_erased)),
            versions=Versions(engine=engine, policy=policy, audit=audit, on_erased=on_erased),
        )

    return Services(
        memories=count(memories),
        sessions=count(Sessions(engine=engine, rules=rules)),
        recall=count(
            Recall(engine=engine, features=settings.recall, timeout=settings.recall_limit)
        ),
        transfer=count(transfer),
        projects=Projects(engine=engine, audit=audit, on_erased=on_erased),
        erasures=Erasures(engine=engine),
        stores=stores,
        clock=clock,
        max_upload=settings.max_upload,
        folder=settings.db_path.parent,
    )


def _identity(settings: Settings, keys: KeyStore, clock: Callable[[], datetime]) -> Identity:
    """Who may come in; SettingRefused or KeyFileRefused when nobody could, or keys are unknown."""
    ring, host = keys.read(), settings.listen.host
    must_have_keys(ring, settings.auth, host)
    if not ring.was_ever_used:
        log.warning(
            "no key was ever made, so whoever reaches this service may do everything; "
            "the first key closes it",
            extra={"auth": settings.auth, "listen": str(settings.listen)},
        )
    return Identity(keys, is_open_allowed=is_open_allowed(settings.auth, host), clock=clock)
