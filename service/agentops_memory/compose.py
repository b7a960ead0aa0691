"""The wiring: settings in, a running application out, closed in reverse."""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from datetime import UTC, datetime, timedelta
from functools import partial

from starlette.applications import Starlette

from .api.agentops import AgentOps, Handlers
from .api.agentops import routes as agentops
from .api.agentops.answers import Problem
from .api.anthropic_stores import AnthropicStores
from .api.anthropic_stores import routes as anthropic
from .api.anthropic_stores.rules import POLICY as ANTHROPIC
from .api.kit.endpoint import Api
from .api.kit.gate import Door
from .api.kit.openapi import Operation
from .api.memory_stores import MemoryStores
from .api.memory_stores import routes as memory_stores
from .api.memory_stores.policy import POLICY
from .domain.lifecycle.projects import Projects
from .domain.lifecycle.receipts import Erasures
from .domain.memories.memories import Memories
from .domain.memories.redaction_rules import Redaction
from .domain.memories.redactor import RulesOf
from .domain.memories.sessions import Sessions
from .domain.model.access import DEFAULT_TENANT, Caller, TenantId
from .domain.ports.engine import Engine
from .domain.ports.keys import KeyStore
from .domain.ports.maintenance import noop
from .domain.recall.recall import Recall
from .domain.stores.entries import Entries
from .domain.stores.stores import Stores
from .domain.stores.versions import Versions
from .domain.transfer.transfer import Transfer
from .files.audit import AuditFile
from .files.file_systems import require_local
from .files.keys import KeyFile, WatchedKeys
from .files.redaction import RedactionFile
from .files.service_lock import OnWait, service_lock_within
from .jobs.gauges import Figures, kept_fresh, watching_the_loop
from .jobs.runner import WorkSignal
from .jobs.schedule import Housekeeping
from .local import LocalService
from .mcp import routes as mcp
from .mcp.connection import Connections
from .mcp.http import McpOverHttp
from .settings.settings import Settings
from .storage.sqlite import SqliteEngine, TenantsEngine
from .storage.sqlite.engine.tenants import tenant_file
from .storage.sqlite.schema.migrate import OnUpgrade
from .telemetry import Telemetry, hide_by
from .web.app import application
from .web.auth import Identity, is_open_allowed, must_have_keys
from .web.health import Probes
from .web.metrics import Scrape
from .web.rate_limit import Rates

log = logging.getLogger(__name__)

# Of an import by a command, and between them, when a service on the same file can save.
OWN, OF_OTHERS = timedelta(milliseconds=50), timedelta(milliseconds=25)
NO_TRACE: Mapping[str, str] = {}


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


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
    door = Door(
        identify=_identity(settings, keys, clock).caller,
        require_rate=Rates(settings.rate_limit).require,
        admitted=lambda caller: hide_by(redaction.rules(caller)),
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
        engine, erased, left = telemetry.engine(sqlite), housekeeping.erased, housekeeping.imports
        apis, agents = _protocols(engine, telemetry, settings, redaction, erased, clock, left=left)
        figures, backups = Figures(sqlite, telemetry.metrics), housekeeping.backups()
        probes = Probes(storage=sqlite, metrics=telemetry.metrics, backups=backups)
        more = _looked_after(probes, figures, door, settings, telemetry)
        async with (
            housekeeping.done_for(sqlite, backups),
            watching_the_loop(telemetry.metrics),
            kept_fresh(figures) if telemetry.is_sent else nullcontext(),
            agents.opened(),
        ):
            yield application(apis, more, door, telemetry)


def _protocols(
    engine: Engine,
    telemetry: Telemetry,
    settings: Settings,
    redaction: Redaction,
    work_signal: WorkSignal,
    clock: Callable[[], datetime],
    *,
    left: WorkSignal,
) -> tuple[list[Api], McpOverHttp]:
    """What is spoken, in the order in which a path is looked for; agents are to be let in."""
    shared = (engine, telemetry, settings, redaction, work_signal, clock)
    transfer = Transfer(engine=engine, rules=redaction.rules, on_left=left.set)
    rest = _agentops(*shared, transfer=transfer)
    local = partial(_local, rest, telemetry, redaction.rules)
    agents = McpOverHttp(Connections(profile=settings.profile, service=local, clock=clock))
    apis = [
        memory_stores.protocol(_memory_stores(*shared)),
        anthropic.protocol(_anthropic(*shared)),
        mcp.protocol(agents, agentops.refused, Problem),
        agentops.protocol(
            Handlers(agentops=rest, max_upload=settings.max_upload, folder=settings.db_path.parent)
        ),
    ]
    return apis, agents


def _looked_after(
    probes: Probes, figures: Figures, door: Door, settings: Settings, telemetry: Telemetry
) -> list[Operation]:
    """What those are answered who look after the service."""
    if settings.metrics == "off":
        return probes.operations
    scrape = Scrape(
        refresh=figures.refresh,
        exposition=telemetry.exposition(),
        door=door,
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
        engine = telemetry.engine(sqlite)
        transfer = Transfer(engine=engine, rules=redaction.rules, step=OWN, rest=OF_OTHERS)
        rest = _agentops(
            engine, telemetry, settings, redaction, WorkSignal(), clock, transfer=transfer
        )
        yield _local(rest, telemetry, redaction.rules, lambda: Caller(tenant=tenant))


def _local(
    rest: AgentOps,
    telemetry: Telemetry,
    rules: RulesOf,
    caller: Callable[[], Caller],
    trace: Mapping[str, str] = NO_TRACE,
) -> LocalService:
    """The services behind the REST API, for one caller in this process."""

    def operation(name: str, caller: Caller) -> AbstractContextManager[object]:
        hide_by(rules(caller))
        return telemetry.operation(name, trace)

    return LocalService(agentops=rest, caller=caller, operation=operation)


def _agentops(
    engine: Engine,
    telemetry: Telemetry,
    settings: Settings,
    redaction: Redaction,
    work_signal: WorkSignal,
    clock: Callable[[], datetime],
    *,
    transfer: Transfer,
) -> AgentOps:
    """The protocol's operations over the domain's services."""
    rules, counted = redaction.rules, telemetry.counted
    audit = AuditFile(settings.audit_file, clock)
    return AgentOps(
        memories=counted(
            Memories(
                engine=engine,
                dedupe_window=settings.dedupe_window,
                rules=rules,
                on_erased=work_signal.set,
            )
        ),
        projects=Projects(engine=engine, audit=audit, on_erased=work_signal.set),
        erasures=Erasures(engine=engine),
        sessions=counted(Sessions(engine=engine, rules=rules)),
        recall=counted(
            Recall(engine=engine, features=settings.recall, timeout=settings.recall_limit)
        ),
        transfer=counted(transfer),
        clock=clock,
    )


def _memory_stores(
    engine: Engine,
    telemetry: Telemetry,
    settings: Settings,
    redaction: Redaction,
    work_signal: WorkSignal,
    clock: Callable[[], datetime],
) -> MemoryStores:
    """The protocol's handlers over the domain's services."""
    rules, audit, ring = redaction.rules, AuditFile(settings.audit_file, clock), work_signal.set
    stores = Stores(engine=engine, policy=POLICY, audit=audit, rules=rules, on_erased=ring)
    return MemoryStores(
        stores=telemetry.counted(stores),
        entries=telemetry.counted(
            Entries(engine=engine, policy=POLICY, rules=rules, on_erased=ring)
        ),
        versions=Versions(engine=engine, policy=POLICY, audit=audit, on_erased=ring),
        recall=Recall(engine=engine, features=settings.recall, timeout=settings.recall_limit),
    )


def _anthropic(
    engine: Engine,
    telemetry: Telemetry,
    settings: Settings,
    redaction: Redaction,
    work_signal: WorkSignal,
    clock: Callable[[], datetime],
) -> AnthropicStores:
    """The protocol's handlers over the domain's services."""
    rules, audit, ring = redaction.rules, AuditFile(settings.audit_file, clock), work_signal.set
    stores = Stores(engine=engine, policy=ANTHROPIC, audit=audit, rules=rules, on_erased=ring)
    return AnthropicStores(
        stores=telemetry.counted(stores),
        entries=telemetry.counted(
            Entries(engine=engine, policy=ANTHROPIC, rules=rules, on_erased=ring)
        ),
        versions=Versions(engine=engine, policy=ANTHROPIC, audit=audit, on_erased=ring),
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
