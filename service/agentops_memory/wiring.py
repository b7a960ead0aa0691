"""The domain's services over an engine, for a service or for one command."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar

from .agentops.operations import AgentOps
from .agentops.transfers.transfer import Transfer
from .backend import audit_of
from .engine.callbacks import AuditLog, noop
from .engine.engine import Engine
from .local import LocalService
from .memory.lifecycle.projects import Projects
from .memory.lifecycle.receipts import Erasures
from .memory.memories import Memories
from .memory.model.access import Caller
from .memory.redactor import Redaction, Registry, RulesOf
from .memory.reviews import Reviews
from .memory.sessions import Sessions
from .openintent.intent_routes import IntentHandlers
from .openintent.routes import OpenIntent
from .openintent.rules.entries import AgentEntries
from .openintent.rules.events import Events
from .openintent.rules.intents import Intents, Participants
from .openintent.rules.namespaces import Namespaces
from .openintent.rules.search import AgentSearch
from .openintent.rules.tasks import Tasks
from .openwop.adapter import RefEntries
from .openwop.commitments import Commitments, Firing
from .openwop.host_runs import Runs
from .openwop.passes import Passes
from .openwop.proposals import Proposals
from .openwop.routes import OpenWopServices
from .openwop.subjects import Forgetting
from .operations.files.redaction import RedactionFile
from .recall.recall import Recall
from .settings.settings import Settings
from .stores.anthropic import routes as anthropic_stores
from .stores.anthropic.routes import AnthropicStores
from .stores.memory_stores import routes as memory_stores
from .stores.memory_stores.routes import MemoryStores
from .stores.rules.entries import Entries
from .stores.rules.rules import Policy
from .stores.rules.stores import Stores
from .stores.rules.versions import Versions
from .telemetry import Telemetry
from .telemetry.measures import PASSES

Handlers = TypeVar("Handlers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What each protocol is served over."""

    agentops: AgentOps
    memory_stores: MemoryStores
    anthropic_stores: AnthropicStores
    openintent: OpenIntent
    intents: IntentHandlers
    openwop: OpenWopServices


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """How the parts of the program are put together, for a service or for one command."""

    settings: Settings
    telemetry: Telemetry
    clock: Callable[[], datetime]
    redaction: Redaction
    audit: AuditLog

    @classmethod
    def of(cls, settings: Settings, telemetry: Telemetry, clock: Callable[[], datetime]) -> Self:
        exceptions = RedactionFile(settings.redaction_file)
        exceptions.read()
        redaction = Redaction(
            exceptions=exceptions.rules, registry=Registry(settings.max_run_secrets)
        )
        return cls(
            settings=settings,
            telemetry=telemetry,
            clock=clock,
            redaction=redaction,
            audit=audit_of(settings, clock),
        )

    @property
    def rules(self) -> RulesOf:
        """The redaction rules for what a caller writes."""
        return self.redaction.rules

    def services(
        self,
        engine: Engine,
        transfer: Transfer,
        on_erased: Callable[[Caller], None] = noop,
        on_due: Callable[[Caller], None] = noop,
    ) -> Services:
        """The domain over the engine.

        `on_due` is called where commitments may be left that are due.
        """
        settings, rules = self.settings, self.rules
        audit = self.audit
        entries = AgentEntries(
            engine=engine, capacities=settings.capacities, rules=rules, on_erased=on_erased
        )
        recall = Recall(
            engine=engine,
            features=settings.recall,
            timeout=settings.recall_limit,
            accessed=entries.accesses.given,
        )
        stores = partial(self._stores, engine, on_erased)
        events = Events(engine=engine, rules=rules)
        return Services(
            agentops=AgentOps(
                memories=Memories(
                    engine=engine,
                    dedupe_window=settings.dedupe_window,
                    rules=rules,
                    on_erased=on_erased,
                    features=settings.recall,
                    recall_limit=settings.recall_limit,
                ),
                sessions=Sessions(engine=engine, rules=rules),
                recall=recall,
                reviews=Reviews(engine=engine, periods=settings.review_after),
                transfer=transfer,
                projects=Projects(engine=engine, audit=audit, on_erased=on_erased),
                erasures=Erasures(engine=engine),
                clock=self.clock,
            ),
            memory_stores=stores(memory_stores.POLICY, partial(MemoryStores, recall=recall)),
            anthropic_stores=stores(anthropic_stores.POLICY, AnthropicStores),
            openintent=OpenIntent(
                entries=entries,
                namespaces=Namespaces(engine=engine, audit=audit, rules=rules),
                agent_search=AgentSearch(
                    engine=engine,
                    features=settings.recall,
                    timeout=settings.recall_limit,
                    accesses=entries.accesses,
                    rules=rules,
                ),
                events=events,
            ),
            intents=IntentHandlers(
                intents=Intents(engine=engine, rules=rules),
                participants=Participants(engine=engine, audit=audit, rules=rules),
                tasks=Tasks(engine=engine, audit=audit, rules=rules, on_erased=on_erased),
                events=events,
                clock=self.clock,
            ),
            openwop=OpenWopServices(
                ref_entries=RefEntries(
                    engine=engine,
                    redaction=self.redaction,
                    features=settings.recall,
                    timeout=settings.recall_limit,
                    on_due=on_due,
                ),
                runs=Runs(engine=engine, redaction=self.redaction),
                commitments=Commitments(
                    engine=engine,
                    redaction=self.redaction,
                    firing=Firing(
                        engine=engine, on_fired=self.telemetry.metrics.fired, on_due=on_due
                    ),
                ),
                passes=Passes(
                    engine=engine,
                    redaction=self.redaction,
                    keep_archives=self.settings.keep_archives,
                    audit=audit,
                    ended=partial(self.telemetry.metrics.count, PASSES),
                    on_erased=on_erased,
                    on_due=on_due,
                ),
                forgetting=Forgetting(
                    engine=engine, redaction=self.redaction, audit=audit, on_erased=on_erased
                ),
                proposals=Proposals(engine=engine, redaction=self.redaction, audit=audit),
                redaction=self.redaction,
                clock=self.clock,
            ),
        )

    def _stores(
        self,
        engine: Engine,
        on_erased: Callable[[Caller], None],
        policy: Policy,
        make: Callable[..., Handlers],
    ) -> Handlers:
        over: dict[str, Any] = {"engine": engine, "policy": policy, "on_erased": on_erased}
        return make(
            stores=Stores(audit=self.audit, rules=self.rules, **over),
            entries=Entries(rules=self.rules, **over),
            versions=Versions(audit=self.audit, **over),
        )

    def local(self, agentops: AgentOps) -> Callable[..., LocalService]:
        """The services behind the REST API, for a caller in this process."""
        return partial(LocalService, agentops=agentops, rules=self.rules, telemetry=self.telemetry)
