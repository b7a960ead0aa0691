"""A protocol as one value, its paths, refusals and headers, and what its operations are."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ..engine.callbacks import noop
from ..errors import Refusal
from ..memory.model.access import Caller, Role
from .refusals import Refusals

Handler = Callable[[Request], Awaitable[Response]]

# CORS, for every protocol: what a page may send, and what it may read of an answer.
SENT = (
    "Authorization", "X-API-Key", "Content-Type", "Idempotency-Key", "X-Idempotency-Key",
    "traceparent",
)  # fmt: skip
REDACTED = "X-Redacted"
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
class Protocol:
    """A protocol. Its prefix and whatever lies below it are its own, also what is unknown."""

    title: str
    summary: str  # what it is for, in a sentence
    prefix: str
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
    # Whether pages of its own send forms. With `no-referrer` a browser hides their origin (`null`);
    # `require` judges them by Sec-Fetch-Site, and each form by its token.
    has_forms: bool = False


Served = tuple[Protocol, Sequence[Operation]]


def protocol_at(path: str, protocols: Sequence[Protocol]) -> Protocol:
    """The first of the protocols that has the path; the last one's prefix has every path."""
    return next(
        each
        for each in protocols
        if each.prefix in ("", path) or path.startswith(f"{each.prefix}/")
    )
