"""The declaration of a protocol: its paths, its operations, and its refusals over HTTP."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from re import sub
from typing import Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ..engine.engine import noop
from ..errors import Refusal, TooMany
from ..light import dataclass, field
from ..memory.access import Caller, Role

STATUS: Mapping[str, int] = {
    code: status
    for status, codes in {
        400: "invalid_input validation_error",
        401: "unauthenticated",
        403: "denied",
        404: "not_found no_path",
        405: "no_method",
        408: "too_slow",
        409: """already_done already_exists archived constraint_violation
                memory_changed memory_id_conflict nothing_to_compact nothing_to_distill
                pass_not_undoable path_taken proposal_state_conflict run_conflict run_secrets_lost
                run_terminal stale still_current task_finished too_many_commitments""",
        413: "too_large",
        422: """artifact_invalid invalid_from_seq memory_too_large
                replay_memory_snapshot_unavailable token_budget_exceeded""",
        428: "version_required",
        429: "over_capacity too_many",
        500: "failed",
        503: "db_locked storage_full timed_out unavailable",
        507: "over_quota",
    }.items()
    for code in codes.split()
}
HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {"Retry-After": "1"},
}
INVALID, FAILED = "invalid_request_error", "api_error"
TYPES: Mapping[int, str] = {  # error types by status, in dialects that have types; else FAILED
    400: INVALID,
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: INVALID,
    408: INVALID,
    409: "conflict_error",
    429: "rate_limit_error",
}
Handler = Callable[[Request], Awaitable[Response]]
# CORS for every protocol: request headers that a page may send (SENT), and read (READ).
SENT = (
    "Authorization", "X-API-Key", "Content-Type", "Idempotency-Key", "X-Idempotency-Key",
    "traceparent",
)  # fmt: skip
REDACTED = "X-Redacted"
READ = ("Retry-After", "x-should-retry", "Idempotent-Replayed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The statuses, types and headers of a dialect's refusals that differ from the defaults."""

    statuses: Mapping[str, int] = field(default_factory=dict)  # by code
    types: Mapping[str, str] = field(default_factory=dict)  # by code
    headers: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # by status

    def status(self, code: str) -> int:
        return self.statuses.get(code) or STATUS[code]

    def type(self, code: str) -> str:
        return self.types.get(code) or TYPES.get(self.status(code), FAILED)

    def headers_of(self, refusal: Refusal) -> dict[str, str]:
        if isinstance(refusal, TooMany):
            return {"Retry-After": str(refusal.retry_after)}
        status = self.status(refusal.code)
        return {**HEADERS.get(status, {}), **self.headers.get(status, {})}

    def response(
        self, refusal: Refusal, content: bytes, more: Mapping[str, str] | None = None
    ) -> Response:
        """Return the response with this JSON, and with `more` headers."""
        headers = {**(more or {}), **self.headers_of(refusal)}
        return Response(content, self.status(refusal.code), headers, media_type="application/json")


class TooLarge(Refusal):
    code = "too_large"


class TooSlow(Refusal):
    code = "too_slow"


class NoPath(Refusal):
    code, sentence = "no_path", "There is nothing at this path."


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of the query, or a header of the request."""

    name: str
    help: str
    kind: Literal[
        "string", "strings", "words", "boolean", "true", "integer", "count", "id", "instant"
    ] = "string"
    choices: Sequence[str] = ()  # the only allowed values
    most: int | None = None  # the largest number, or the maximum of different strings
    required: bool = False
    is_row_count: bool = False  # whether it limits the number of rows in the response


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A route: its method and path, its input, and its response."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    span: str = ""  # the name of its span; by default the name of the operation
    answer: type[BaseModel] | None = None
    is_list: bool = False
    media_type: str = ""  # of a response that is not JSON
    status: int = 200
    status_if_new: int | None = None  # of the same response, if the request created the resource
    body: type[BaseModel] | None = None
    body_required: bool = True
    query: Sequence[Parameter] = ()
    sends: Sequence[Parameter] = ()  # request headers
    headers: Mapping[str, str] = field(default_factory=dict)  # descriptions of response headers
    takes_key: bool = False  # whether it accepts an idempotency key
    refusals: Sequence[int] = ()  # statuses besides those of the gate and of idempotency keys
    role: Role | None = None  # the required role; None for public operations
    scope: str | None = None  # the protocol's own name of the role, for refusals
    is_limited: bool = True  # whether it counts against the rate limit of the caller's key
    is_large: bool = False  # whether its response is large, whatever the query


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A protocol. It takes all paths at and below its prefix, including unknown paths."""

    title: str
    summary: str  # its purpose, in a sentence
    prefix: str
    refusals: Refusals = Refusals()
    refused: Callable[[Refusal, Scope], Response]  # the scope of the refused request
    problem: type[BaseModel] | None = None  # the schema of refusals; None if OpenAPI omits it
    headers: Mapping[str, str] = field(default_factory=dict)  # of all responses: descriptions
    sends: Sequence[Parameter] = ()  # headers of all authenticated requests
    sent: Sequence[str] = ()  # request headers that a page may send, besides SENT
    read: Sequence[str] = ()  # response headers that a page may read, besides READ
    replayed: str = ""  # the protocol's own header of a replayed response, besides the common one
    is_authorization_only: bool = False  # whether keys are accepted only in Authorization
    require: Callable[[Request, Caller], object] = noop  # refuses callers that may not use it
    is_closed: bool = False  # whether `require` also applies to unknown paths
    # Whether its own pages send forms. With `no-referrer`, a browser hides their origin (`null`);
    # `require` checks Sec-Fetch-Site, and each form has a token.
    has_forms: bool = False


Served = tuple[Protocol, Sequence[Operation]]


@cache
def template(path: str) -> str:
    """Return the path of a route without the types of its parameters."""
    return sub(r":\w+}", "}", path)


def protocol_at(path: str, protocols: Sequence[Protocol]) -> Protocol:
    """Return the first protocol whose prefix has the path; the last protocol has every path."""
    return next(
        each
        for each in protocols
        if each.prefix in ("", path) or path.startswith(f"{each.prefix}/")
    )
