"""The domain's services over an engine, for a service or for one command."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Self

from .agentops import routes as agentops
from .agentops.transfers.transfer import Transfer
from .backend import audit_of
from .engine.callbacks import Audit, AuditLog, noop
from .engine.engine import Engine
from .http.protocol import Services, StoreServices
from .local import LocalService
from .memory.lifecycle.projects import Projects
from .memory.lifecycle.receipts import Erasures
from .memory.memories import Memories
from .memory.model.access import Caller
from .memory.redactor import Redaction, Registry, RulesOf
from .memory.reviews import Reviews
from .memory.sessions import Sessions
from .openintent.rules.entries import AgentEntries
from .openintent.rules.events import Events
from .openintent.rules.intents import Intents, Participants
from .openintent.rules.namespaces import Namespaces
from .openintent.rules.search import AgentSearch
from .openintent.rules.tasks import Tasks
from .openwop.model.passes import PassKind
from .openwop.rules.commitments import Commitments, Firing
from .openwop.rules.entries import RefEntries
from .openwop.rules.forgetting import Forgetting
from .openwop.rules.passes.passes import Passes
from .openwop.rules.proposals.proposals import Proposals
from .openwop.rules.runs import Runs
from .operations.files.redaction import RedactionFile
from .recall.recall import Recall
from .settings.settings import Settings
from .stores.rules.entries import Entries
from .stores.rules.rules import Policy
from .stores.rules.stores import Stores
from .stores.rules.versions import Versions
from .telemetry import Telemetry, counted
from .telemetry.measures import PASSES


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
        """The domain over the engine, with what comes of its operations counted.

        `on_due` is called where commitments may be left that are due.
        """
        settings, rules = self.settings, self.rules
        count = partial(counted, metrics=self.telemetry.metrics)
        audit, window = self.audit, settings.dedupe_window
        entries = AgentEntries(
            engine=engine, capacities=settings.capacities, rules=rules, on_erased=on_erased
        )
        recall = Recall(
            engine=engine,
            features=settings.recall,
            timeout=settings.recall_limit,
            accessed=entries.accesses.given,
        )
        return Services(
            memories=count(
                Memories(
                    engine=engine,
                    dedupe_window=window,
                    rules=rules,
                    on_erased=on_erased,
                    features=settings.recall,
                    recall_limit=settings.recall_limit,
                )
            ),
            sessions=count(Sessions(engine=engine, rules=rules)),
            recall=count(recall),
            reviews=Reviews(engine=engine, periods=settings.review_after),
            transfer=count(transfer),
            projects=Projects(engine=engine, audit=audit, on_erased=on_erased),
            erasures=Erasures(engine=engine),
            stores=partial(self._stores, engine, audit, on_erased),
            entries=count(entries),
            agent_search=AgentSearch(
                engine=engine,
                features=settings.recall,
                timeout=settings.recall_limit,
                accesses=entries.accesses,
                rules=rules,
            ),
            namespaces=Namespaces(engine=engine, audit=audit, rules=rules),
            agent_events=count(Events(engine=engine, rules=rules)),
            intents=count(Intents(engine=engine, rules=rules)),
            participants=count(Participants(engine=engine, audit=audit, rules=rules)),
            tasks=count(Tasks(engine=engine, audit=audit, rules=rules, on_erased=on_erased)),
            ref_entries=count(
                RefEntries(
                    engine=engine,
                    redaction=self.redaction,
                    features=settings.recall,
                    timeout=settings.recall_limit,
                    on_due=on_due,
                )
            ),
            redaction=self.redaction,
            runs=Runs(engine=engine, redaction=self.redaction),
            commitments=count(
                Commitments(
                    engine=engine,
                    redaction=self.redaction,
                    firing=Firing(
                        engine=engine, on_fired=self.telemetry.metrics.fired, on_due=on_due
                    ),
                )
            ),
            passes=count(self.passes(engine, audit, on_erased, on_due)),
            forgetting=Forgetting(engine=engine, audit=audit, on_erased=on_erased),
            is_consolidating=bool(settings.consolidate_every),
            keep_archives=settings.keep_archives,
            proposals=count(Proposals(engine=engine, redaction=self.redaction, audit=audit)),
            clock=self.clock,
            max_upload=settings.max_upload,
            delete_answer=settings.delete_answer,
            folder=settings.db_path.parent,
        )

    def passes(
        self,
        engine: Engine,
        audit: Audit,
        on_erased: Callable[[Caller], None],
        on_due: Callable[[Caller], None] = noop,
    ) -> Passes:
        """The passes over refs, which are counted."""
        metrics = self.telemetry.metrics

        def ended(kind: PassKind, outcome: str) -> None:
            metrics.count(PASSES, kind.value, outcome)

        return Passes(
            engine=engine,
            redaction=self.redaction,
            keep_archives=self.settings.keep_archives,
            audit=audit,
            ended=ended,
            on_erased=on_erased,
            on_due=on_due,
        )

    def _stores(
        self, engine: Engine, audit: Audit, on_erased: Callable[[Caller], None], policy: Policy
    ) -> StoreServices:
        rules, count = self.rules, partial(counted, metrics=self.telemetry.metrics)
        stores = Stores(engine=engine, policy=policy, audit=audit, rules=rules, on_erased=on_erased)
        entries = Entries(engine=engine, policy=policy, rules=rules, on_erased=on_erased)
        return StoreServices(
            stores=count(stores),
            entries=count(entries),
            versions=Versions(engine=engine, policy=policy, audit=audit, on_erased=on_erased),
        )

    def local(self, services: Services) -> Callable[..., LocalService]:
        """The services behind the REST API, for a caller in this process."""
        core = agentops.core(services)
        return partial(LocalService, agentops=core, rules=self.rules, telemetry=self.telemetry)
