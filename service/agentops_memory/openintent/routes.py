"""OpenIntent as a protocol: its operations, what it tells of itself, and who may ask."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from ..engine.callbacks import Audit
from ..http.bodies import answered
from ..http.protocol import REDACTED, Operation, Parameter, Protocol
from ..memory.model.access import Caller
from ..recall.text.features import Features
from ..record import Record
from ..telemetry import annotate
from . import events, intents, memory, namespaces, participants, search, tasks
from .api import AGENT, MAX_VALUE, PREFIX, REFUSALS, TOTAL, refused, require_agent
from .drafts import MAX_BATCH, TierName
from .entries import AgentEntry

CAPABILITIES = [
    "agent-memory", "agent-memory-search", "tasks", "events", "coordinators", "access-control",
    "optimistic-concurrency",
]  # fmt: skip


class MemoryCapabilities(BaseModel):
    """What agents' memory is like here."""

    tiers: list[TierName] = ["working", "episodic", "semantic"]
    eviction_policy: Literal["lru"] = "lru"
    episodic_capacity: int
    max_value_bytes: int = MAX_VALUE
    max_batch: int = MAX_BATCH
    search: str = search.SEARCH
    encryption_at_rest: bool = True


class Discovery(BaseModel):
    """GET /.well-known/openintent.json."""

    protocol: Literal["OpenIntent"] = "OpenIntent"
    version: str = "0.1"
    rfcs: list[str] = ["RFC-0015"]
    capabilities: list[str] = CAPABILITIES
    memory: MemoryCapabilities
    openApiUrl: str = "/openapi.json"  # noqa: N815 - as the protocol writes it


class FieldFault(BaseModel):
    """What is wrong with a field."""

    field: str
    message: str


class ErrorCode(BaseModel):
    """Which refusal it is."""

    code: str


class AgentMemoryProblem(Record):
    """A refusal; of a conflict also the state that refuses, of a capacity its figures."""

    message: str
    error: ErrorCode
    errors: list[FieldFault] | None = None
    current_version: int | None = None
    current_value: dict[str, Any] | None = None
    current: AgentEntry | None = None
    limit: str | None = None
    current_count: int | None = None
    max_capacity: int | None = Field(default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIntent:
    """What the protocol is served over."""

    entries: memory.AgentEntries
    audit: Audit
    features: Features
    timeout: timedelta  # of a search
    clock: Callable[[], datetime]


def operations(services: OpenIntent) -> tuple[Operation, ...]:
    """Every operation of the protocol."""
    entries, audit = services.entries, services.audit
    over: dict[str, Any] = {"engine": entries.engine, "rules": entries.rules}
    searching = search.AgentSearch(
        features=services.features, timeout=services.timeout, accesses=entries.accesses, **over
    )

    async def discover(_: Request) -> Response:
        capacity = entries.capacities.episodic
        shown = Discovery(memory=MemoryCapabilities(episodic_capacity=capacity))
        return answered(shown.model_dump())

    return (
        Operation(
            method="GET", path="/.well-known/openintent.json", name="openintent_discover",
            summary="What this service speaks of OpenIntent.", handler=discover, answer=Discovery,
        ),
        *search.operations(searching),
        *namespaces.operations(namespaces.Namespaces(audit=audit, **over)),
        *memory.operations(entries),
        *intents.operations(intents.Intents(**over)),
        *tasks.operations(tasks.Tasks(on_erased=entries.on_erased, audit=audit, **over)),
        *events.operations(events.Events(**over)),
        *participants.operations(participants.Participants(audit=audit, **over), services.clock),
    )  # fmt: skip


def require(request: Request, caller: Caller) -> None:
    """Refuse whom this is not for; the span of whom it is for tells the agent that asks."""
    annotate({"memory.agent.id": require_agent(request, caller)})


PROTOCOL = Protocol(
    title="OpenIntent RFC-0015",
    summary="Agents' own memory in three tiers, and namespaces that they share.",
    prefix=PREFIX,
    first=tuple(f"openintent_{it}_entry" for it in ("create", "get", "update")),
    refusals=REFUSALS,
    refused=refused,
    problem=AgentMemoryProblem,
    require=require,
    sends=(
        Parameter(name=AGENT, help="The agent that asks; needed unless the key has one alone."),
    ),
    sent=(AGENT, "If-Match"),
    read=(REDACTED, "ETag", TOTAL),
)
