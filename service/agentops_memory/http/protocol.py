"""A protocol as one value: its paths, its operations, its refusals, its headers."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal
from typing import Protocol as Interface

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ..agentops.transfers.transfer import Transfer
from ..engine.callbacks import noop
from ..errors import Refusal
from ..memory.lifecycle.projects import Projects
from ..memory.lifecycle.receipts import Erasures
from ..memory.memories import Memories
from ..memory.model.access import Caller, Role, TenantId
from ..memory.redactor import Redaction
from ..memory.reviews import Reviews
from ..memory.sessions import Sessions
from ..openintent.rules.entries import AgentEntries
from ..openintent.rules.events import Events
from ..openintent.rules.intents import Intents, Participants
from ..openintent.rules.namespaces import Namespaces
from ..openintent.rules.search import AgentSearch
from ..openintent.rules.tasks import Tasks
from ..openwop.rules.commitments import Commitments
from ..openwop.rules.entries import RefEntries
from ..openwop.rules.forgetting import Forgetting
from ..openwop.rules.passes.passes import Passes
from ..openwop.rules.proposals.proposals import Proposals
from ..openwop.rules.runs import Runs
from ..openwop.rules.seeding import Seeding
from ..recall.recall import Recall
from ..stores.rules.entries import Entries
from ..stores.rules.rules import Policy
from ..stores.rules.stores import Stores
from ..stores.rules.versions import Versions
from .refusals import Refusals

Handler = Callable[[Request], Awaitable[Response]]

# CORS, for every protocol: what a page may send, and what it may read of an answer.
SENT = (
    "Authorization", "X-API-Key", "Content-Type", "Idempotency-Key", "X-Idempotency-Key",
    "traceparent",
)  # fmt: skip
READ = ("Retry-After", "x-should-retry", "Idempotent-Replayed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of the query, or a header of the request."""

    name: str
    help: str
    kind: Literal[
        "string", "strings", "words", "boolean", "true", "integer", "count", "id", "instant"
    ] = "string"
    choices: Sequence[str] = ()  # the only texts that it takes
    most: int | None = None  # the largest number that it takes, or how many different strings
    required: bool = False
    is_row_count: bool = False  # whether it says how many rows an answer has at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A route: what it answers to, what it takes, what it gives."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    span: str = ""  # what its span is called; its name unless told
    answer: type[BaseModel] | None = None
    is_list: bool = False
    media_type: str = ""  # of an answer in text that is no JSON
    status: int = 200
    status_if_new: int | None = None  # of the same answer, where the request has made it
    body: type[BaseModel] | None = None
    body_required: bool = True
    query: Sequence[Parameter] = ()
    sends: Sequence[Parameter] = ()  # in headers
    headers: Mapping[str, str] = field(default_factory=dict)  # of the answer: what each says
    takes_key: bool = False  # whether it is done once for an idempotency key
    refusals: Sequence[int] = ()  # beside those of the gate and of idempotency keys
    role: Role | None = None  # that a caller needs; none for what everybody may ask
    scope: str | None = None  # what a refusal calls that role, where the protocol has its own name
    is_limited: bool = True  # whether it counts against the rate of the caller's key
    is_large: bool = False  # whether its answer is large, whatever the query


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreServices:
    """Memory stores, under the rules of one dialect."""

    stores: Stores
    entries: Entries
    versions: Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class SeamServices:
    """What the conformance seams of OpenWOP do that no other route does."""

    seeding: Seeding
    has_key: Callable[[TenantId], bool]  # whether a key opens a tenant now


class Agents(Interface):
    """The handlers of MCP."""

    async def ask(self, request: Request) -> Response:
        """One message of an agent."""

    async def end(self, request: Request) -> Response:
        """The end of a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What handlers are made over: the domain, and how much of a body the service takes."""

    memories: Memories
    sessions: Sessions
    recall: Recall
    reviews: Reviews
    transfer: Transfer
    projects: Projects
    erasures: Erasures
    stores: Callable[[Policy], StoreServices]
    entries: AgentEntries  # of agents' own memory
    namespaces: Namespaces
    agent_search: AgentSearch
    agent_events: Events
    intents: Intents
    participants: Participants
    tasks: Tasks
    ref_entries: RefEntries  # of hosts
    redaction: Redaction
    runs: Runs
    commitments: Commitments
    passes: Passes
    forgetting: Forgetting
    is_consolidating: bool  # whether refs are consolidated by themselves
    keep_archives: timedelta  # of refs; 0: for ever
    proposals: Proposals
    clock: Callable[[], datetime]
    max_upload: int  # bytes
    delete_answer: str  # of AgentOps REST: "empty" or "json"
    folder: Path  # where a long body lies while it is read
    agents: Agents | None = None  # none in a process that serves nobody
    seams: SeamServices | None = None  # none unless they are on


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A protocol. Its prefix and whatever lies below it are its own, also what is unknown."""

    title: str
    summary: str  # what it is for, in a sentence
    prefix: str
    operations: Callable[[Services], Sequence[Operation]]
    first: Collection[str] = ()  # operations that are asked for most: their routes are tried first
    refusals: Refusals = Refusals()  # noqa: RUF009 - frozen
    refused: Callable[[Refusal], Response]
    problem: type[BaseModel] | None = None  # the shape of a refusal; none if OpenAPI cannot tell
    headers: Mapping[str, str] = field(default_factory=dict)  # of every answer: what each says
    sends: Sequence[Parameter] = ()  # headers of every request that is let in
    sent: Sequence[str] = ()  # headers that a page may send, beside SENT
    read: Sequence[str] = ()  # headers of an answer that a page may read, beside READ
    replayed: str = ""  # a header that tells of a repeated request, beside that of every protocol
    is_authorization_only: bool = False  # whether a key counts in the header Authorization alone
    require: Callable[[Request, Caller], object] = noop  # refuses those whom it is not for
    is_closed: bool = False  # whether those are refused at paths that there are not, too


def protocol_at(path: str, protocols: Sequence[Protocol]) -> Protocol:
    """The first of the protocols that has the path; the last one's prefix has every path."""
    return next(
        each
        for each in protocols
        if each.prefix in ("", path) or path.startswith(f"{each.prefix}/")
    )
