"""The results of calls, as frozen dataclasses; the readers of responses; the exceptions of calls.

Fields have the names and the order of the JSON of AgentOps REST, where `redacted`, `omitted` and
`warning` are headers. Fields that a newer service adds are ignored. There is one exception class
for each kind of failure that callers handle differently; its message is a sentence that is safe to
show. A message about a missing extra has a command that installs its requirements, since the
distributions are in no package index yet.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from pydantic import TypeAdapter


__all__ = [
    "Conflict", "Denied", "Failed", "Invalid", "MemoryServiceError", "MemoryServiceWarning",
    "Misconfigured", "NotFound", "OverQuota", "Refused", "TooLarge", "TooMany", "Unauthenticated",
    "Unavailable", "UnexpectedAnswer", "Unreachable",
]  # fmt: skip


class MemoryServiceError(Exception):
    """Base of all failures of a call to the service; keyword arguments become attributes."""

    status = 0  # the HTTP status, or 0 if there is none
    retry_after: timedelta | None = None  # the Retry-After of the response, if it has one

    def __init__(self, message: str = "", **attributes: object) -> None:
        super().__init__(message)
        vars(self).update(attributes)


class MemoryServiceWarning(UserWarning):
    """The call succeeded, but the service warns that it may not do what was intended."""


class Misconfigured(MemoryServiceError, ValueError):
    """The configuration of the client is invalid; nothing was sent."""


class Unreachable(MemoryServiceError):
    """The service did not respond, or not in time; the same request may succeed later."""

    may_be_done = False  # whether the service may have received and executed the request


class UnexpectedAnswer(MemoryServiceError):
    """The response does not come from the service, or is malformed."""


class Refused(MemoryServiceError):
    """The service refused the call."""

    code: str | None = None  # OpenWOP's error code; a status may have several codes
    details: Mapping[str, Any] = MappingProxyType({})  # OpenWOP's details of some codes
    request_id: str | None = None  # the X-Request-Id of the response, if it has one

    def __init_subclass__(cls, status: int = 0) -> None:
        cls.status = status or cls.status


class Invalid(Refused, status=400):
    """The request is invalid or exceeds a limit; the message names every fault."""


class Unauthenticated(Refused, status=401):
    """The request has no valid key."""


class Denied(Refused, status=403):
    """The key does not permit this operation."""


class NotFound(Refused, status=404):
    """The object does not exist, or this key has no access to it."""


class Conflict(Refused, status=409):
    """The stored state does not allow this change."""


class TooLarge(Refused, status=413):
    """The request is too large; nothing was stored."""


class TooMany(Refused, status=429):
    """The key has sent too many requests; the same request succeeds in a few seconds."""


class Failed(Refused, status=500):
    """The service failed; its log has the reason."""


class Unavailable(Refused, status=503):
    """The service cannot execute the request now; it may succeed later."""


class OverQuota(Refused, status=507):
    """The tenant has used up its quota."""


BY_STATUS: Mapping[int, type[Refused]] = {kind.status: kind for kind in Refused.__subclasses__()}


def refused(status: int, message: str, **attributes: object) -> Refused:
    """Return the exception for an HTTP status; an unknown status counts as 400 or 500."""
    kind = BY_STATUS.get(status, Failed if status >= 500 else Invalid)
    return kind(message, status=status, **attributes)


CLIENT, SERVER = "agentops-memory-client", "agentops-memory"


def install_command(name: str, extra: str) -> str:
    """Return the shell command that installs the requirements of an extra."""
    # Imported here: it takes 20 ms, and is needed only if an extra is missing.
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415

    try:
        lines = [line.partition(";") for line in requires(name) or ()]
    except PackageNotFoundError:  # an editable server imports the client from its sources
        return f"install the extra `{extra}` of {name}"
    needed = [line.strip() for line, _, marker in lines if f"'{extra}'" in marker]
    return f"pip install {' '.join(map(shlex.quote, needed))}"


MINUTE, HOUR, DAY = 60, 3600, 86_400
UNITS = (
    (365 * DAY, "year"), (30 * DAY, "month"), (7 * DAY, "week"), (DAY, "day"), (HOUR, "hour"),
    (MINUTE, "minute"),
)  # fmt: skip
JUST_NOW = "just now"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 session`, `2 sessions`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def size(count: int, grouping: str = "") -> str:
    """Return a number of bytes in its largest unit: `12.5 MiB`; `grouping` separates thousands."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):{grouping}.1f} {unit}"
    return f"{count:{grouping}} bytes"


def age_words(seconds: float) -> str:
    """Return an age in its largest unit, rounded down; `just now` below a minute."""
    for length, unit in UNITS:
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return JUST_NOW


def age_suffix(seconds: float) -> str:
    """Return an age to append to a title, such as ` (3 weeks old)`."""
    words = age_words(seconds)
    return f" ({words})" if words == JUST_NOW else f" ({words} old)"


Action = Literal["created", "updated", "deduplicated"]
Explanation = Mapping[str, Any]  # docs/api.md describes its members

Progress = Callable[[int, int | None], None]
"""Called after each chunk of a transfer: bytes done, and bytes in total if known."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Noun:
    """Base of results: a subclass becomes a frozen dataclass with keyword arguments."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class Message(Noun):
    """One message of a session's transcript."""

    role: str
    content: str


class Session(Noun):
    """A stored session; it gets a summary when it ends with messages."""

    id: str
    project: str
    started_at: datetime
    message_count: int
    ended_at: datetime | None = None
    summary: str | None = None
    redacted: int = 0  # secrets removed before it was stored
    warning: str | None = None  # the session belongs to another project


class Appended(Noun):
    """The outcome of adding messages to a session's transcript."""

    redacted: int = 0  # secrets removed before it was stored
    warning: str | None = None  # the session belongs to another project


class SessionEnd(Noun):
    """The outcome of ending a session."""

    session_id: str
    summary: str
    message_count: int
    redacted: int = 0  # secrets removed before it was stored
    warning: str | None = None  # the session belongs to another project


class Similar(Noun):
    """A near duplicate; a score of 1 means the same words."""

    id: int
    title: str
    type: str
    score: float
    updated_at: datetime


class Saved(Noun):
    """The outcome of a save: a new memory, a new revision, or a duplicate."""

    id: int
    action: Action
    revision_count: int
    duplicate_count: int
    expires_at: datetime | None = None
    similar: tuple[Similar, ...] | None = None  # None: not requested, or not found in time
    redacted: int = 0  # secrets removed before it was stored
    warning: str | None = None  # the session belongs to another project


class Observation(Noun):
    """A memory in full. Only live memories supersede it; lists omit expired ones."""

    id: int
    session_id: str
    type: str
    title: str
    content: str
    tags: tuple[str, ...] = ()
    project: str
    scope: str
    topic_key: str | None = None
    normalized_hash: str
    revision_count: int
    duplicate_count: int
    last_seen_at: datetime
    promoted_to: str | None = None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    expired: bool = False
    pinned: bool = False
    supersedes: tuple[int, ...] = ()
    superseded_by: tuple[int, ...] = ()
    review_at: datetime | None = None
    confirmed_at: datetime | None = None
    redacted: int = 0  # secrets removed before it was stored


class ReviewItem(Noun):
    """A memory that needs a review, with the reason and its time; `other` is a near duplicate."""

    reason: str  # review_due, expires_soon or similar
    at: datetime
    observation: Observation
    other: Observation | None = None
    score: float | None = None


class ReviewList(Noun):
    """Memories that need a review, newest reason first."""

    items: tuple[ReviewItem, ...]
    next: str | None = None  # pass it as `before` to get the next page; None on the last


class Revision(Noun):
    """One change of a memory; a deletion has no text."""

    revision: int
    action: str  # created, updated or deleted
    created_at: datetime
    type: str | None = None
    title: str | None = None
    content: str | None = None
    tags: tuple[str, ...] = ()


class Hit(Noun):
    """A memory that matches a query; a lower rank is better."""

    id: int
    type: str
    title: str
    content: str
    rank: float
    topic_key: str | None = None
    superseded_by: tuple[int, ...] = ()
    explain: Explanation | None = None


class Found(Noun):
    """The hits of a search, best first."""

    hits: tuple[Hit, ...] = ()
    omitted: int = 0  # hits that did not fit into the response
    explanation: Explanation | None = None

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


class Line(Noun):
    """A memory in a context, with a shortened content."""

    type: str
    title: str
    content: str
    age: int | None = None  # seconds since its last change, repetition or confirmation
    superseded: int | None = None  # number of memories that it supersedes
    explain: Explanation | None = None


class Context(Noun):
    """The context for an agent's turn: summaries of sessions, then memories."""

    summaries: tuple[str, ...] = ()
    observations: tuple[Line, ...] = ()
    omitted: int = 0  # memories that did not fit into the response
    explanation: Explanation | None = None


class TimelineEntry(Noun):
    """A memory in a timeline."""

    id: int
    type: str
    title: str
    content: str
    created_at: datetime


class Stats(Noun):
    """How much is stored; `projects` always lists every project that the key may read."""

    total_sessions: int
    total_observations: int
    projects: tuple[str, ...] = ()


class Imported(Noun):
    """The number of rows that an import added."""

    imported_sessions: int
    imported_observations: int
    refused_supersessions: int | None = None  # number of observations stored without `supersedes`
    redacted: int = 0  # secrets removed before it was stored


class ImportConflict(Noun):
    """An imported observation that differs from the stored one, and which of them is kept."""

    place: int  # index in the document's observations
    id: int  # of the stored observation
    reason: Literal["topic_key", "changed"]  # same topic key, or changed since the export
    kept: Literal["stored", "imported"]  # the other becomes a revision, or is dropped
    project: str
    title: str


class ImportPlan(Noun):
    """The numbers of rows that an import would add, skip or find in conflict."""

    new_sessions: int
    same_sessions: int
    conflicting_sessions: int
    new_observations: int
    restored_observations: int  # deleted ones that would be live again
    same_observations: int
    conflicting_observations: int
    conflicts: tuple[ImportConflict, ...] = ()  # the first 100


T = TypeVar("T")

REDACTED = "x-redacted"
WARNING = "x-memory-warning"
OMITTED = "x-results-omitted"
ERASURE = "x-erasure-id"
Headers = Mapping[str, str]  # lookups by lower-case names must work
Reader = Callable[[bytes, Headers], T]


def noun(kind: type[T]) -> Reader[T]:
    """Return a reader of a dataclass, whose `redacted` and `warning` are headers; or of a list."""

    def read(body: bytes, headers: Headers) -> T:
        document = _parsed(body)
        if isinstance(document, dict):
            document |= {"redacted": _count(headers, REDACTED), "warning": headers.get(WARNING)}
        return read_as(kind, document)

    return read


def found(body: bytes, headers: Headers) -> Found:
    """Read a search response: a list of hits, or an object with an explanation."""
    document = _parsed(body)
    response = document if isinstance(document, dict) else {"results": document}
    return read_as(Found, {
        "hits": response.get("results"), "omitted": _count(headers, OMITTED),
        "explanation": response.get("explain"),
    })  # fmt: skip


def context(body: bytes, headers: Headers) -> Context:
    document = json_object(body)
    sessions = read_as(list[dict[str, Any]], document.get("recent_sessions"))
    return read_as(Context, {
        "summaries": [it.get("summary", "") for it in sessions],
        "observations": document.get("recent_observations"),
        "omitted": _count(headers, OMITTED), "explanation": document.get("explain"),
    })  # fmt: skip


def erasure(body: bytes, headers: Headers) -> str | None:
    """Read the response of a deletion; return the id of the erasure receipt, if any."""
    if body and json_object(body).get("status") != "deleted":
        raise UnexpectedAnswer("The service did not confirm the deletion.")
    return headers.get(ERASURE)


def appended(body: bytes, headers: Headers) -> Appended:
    """Read the response to appended messages, which has no body."""
    if body:
        raise UnexpectedAnswer("The service returned an unexpected body for messages.")
    return Appended(redacted=_count(headers, REDACTED), warning=headers.get(WARNING))


def problem(status: int, body: bytes) -> Refused:
    """Return the exception for an error response; with `message`, `error` is OpenWOP's code."""
    document = json_object(body)
    error = read_as(str, document.get("error"))
    if "message" not in document:
        return refused(status, error)
    message, details = read_as(str, document["message"]), document.get("details")
    details = details if isinstance(details, dict) else {}
    faults = read_as(list[dict[str, str]], details.get("fields", []))
    listed = "; ".join(f"{it.get('field')} {it.get('problem')}" for it in faults)
    sentence = f"{message} {listed}." if listed else message
    return refused(status, sentence, code=error, details=details)


def read_as(kind: type[T], value: object) -> T:
    """Validate a value as `kind`; UnexpectedAnswer without a cause, which would quote the value."""
    with suppress(ValueError):  # pydantic's ValidationError is a ValueError
        valid: T = adapter_of(kind).validate_python(value)  # type: ignore[arg-type]
        return valid
    raise UnexpectedAnswer("The service returned an unexpected answer.")


@cache
def adapter_of(kind: Any) -> "TypeAdapter[Any]":
    """Return the validator and serializer of a type."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - importing it takes 0.1 s

    return TypeAdapter(kind)


def json_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; UnexpectedAnswer if the body is anything else."""
    document = _parsed(body)
    if not isinstance(document, dict):
        raise UnexpectedAnswer("The service returned something other than a JSON object.")
    return document


def _parsed(body: bytes) -> Any:
    from pydantic_core import from_json  # noqa: PLC0415 - as above

    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise UnexpectedAnswer("The service returned something other than JSON.") from error


def _count(headers: Headers, name: str) -> int:
    text = headers.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
