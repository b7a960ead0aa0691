"""Shared parts of OpenIntent: fields of bodies, the calling agent, parameters, lists, refusals."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import wraps
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, cast
from urllib.parse import unquote

import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..engine.engine import Audit, Engine, Transaction, audited, noop
from ..errors import BadFields, Conflict, Denied, Invalid, NotFound, Refusal
from ..http import bodies
from ..http.bodies import JSON, NONE, WRITTEN, Bodies, Body, Instant, Param, fault, must, written
from ..http.gate import admission, current_caller, paced
from ..http.protocol import REDACTED, NoPath, Operation, Parameter
from ..http.query import ENTRY, instant, known_uid
from ..light import dataclass, replace
from ..memory import access
from ..memory.access import LONGEST_AGENT, AgentId, Caller, Role, agent_id, asking
from ..memory.agent_memory import IntentId, Viewer
from ..memory.details import details_of
from ..memory.idempotency import is_due
from ..memory.redactor import MAX_TAG, MAX_TAGS, JsonRedactor, Redactor, RulesOf, as_json, is_plain
from ..memory.rows import portion as fitting
from ..memory.saves import Written
from ..memory.table import Attributes
from ..recall.text import has_controls
from ..record import DATE_TIME, Record
from ..secrets.redaction import hide_by
from ..telemetry import annotate

T = TypeVar("T")
JsonObject = dict[str, Any]

PREFIX, AGENT, TOTAL = "/api/v1", "X-Agent-ID", "X-Total-Count"
MAX_VALUE = 65_536  # bytes of compact JSON in UTF-8 (RFC-0015 §1.3)
MAX_NAME = 200  # characters of a namespace, and of the name of an entry's curator
PAGE_ROWS, MAX_PAGE_ROWS = 100, 1_000  # rows of a page: default and maximum
PORTION = 1024 * 1024  # bytes of values that one read of a list returns
NO_ENTRY = "No such entry."
NAMING = "id", "agent_id", "assigned_agent", "principal_id"  # in these, a secret is refused
UNKNOWN = {  # the messages for unknown ids in a path
    "entry_id": NO_ENTRY,
    "intent_id": "No such intent.",
    "task_id": "No such task.",
    "coordinator_id": "No such coordinator.",
    "grant_id": "No such entry of the access list.",
}

BODIES = Bodies(refusal=bodies.bad_fields, limit=1024 * 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The dependencies of all operations.

    An operation raises NotFound for an object that the agent may not see, as if it were missing,
    and Denied for a change of an object that the agent may only see.
    """

    engine: Engine
    audit: Audit
    rules: RulesOf
    on_erased: Callable[[Caller], None] = noop

    async def audit_change(
        self, caller: Caller, viewer: Viewer, action: str,
        about: Callable[..., Mapping[str, object] | None], *args: object,
    ) -> None:  # fmt: skip
        """Audit a change before it is made; if this raises, the change is not made.

        `about` returns the fields to audit, or None to audit nothing, or raises a refusal. A
        replay under the request's idempotency key is not audited.
        """

        @wraps(about)
        def due(tx: Transaction) -> Mapping[str, object] | None:
            return about(tx, viewer, *args) if is_due(tx) else None

        if (fields := await self.engine.read(caller, due)) is not None:
            await audited(self.audit, caller, action, agent=viewer.agent, **fields)

    async def write(
        self, work: Callable[..., Any], caller: Caller, viewer: Viewer, *args: Any,
        action: str = "", about: Callable[..., Mapping[str, object] | None] | None = None,
    ) -> Written[Any]:  # fmt: skip
        """Run the work of a write, without secrets, audited first if `about` is given.

        The work gets the viewer, the arguments, and the details of a `Draft` among them.
        """
        drafts = [it for it in args if isinstance(it, Draft)]
        names = [getattr(it, name, None) for it in drafts for name in NAMING]
        redactor = redactor_for(self.rules, caller, viewer.agent, *names)
        args += tuple(str(screened(redactor, it.details)) for it in drafts)
        if about is not None:
            await self.audit_change(caller, viewer, action, about, *args)
        done = await self.engine.write(caller, work, viewer, *args)
        return replace(
            done if isinstance(done, Written) else Written(value=done), redacted=redactor.count
        )


class Json(str):
    """The compact JSON of an object in this request, with the parsed object."""

    __slots__ = ("parsed",)
    parsed: JsonObject

    @classmethod
    def of(cls, value: JsonObject, name: str = "value") -> "Json":
        """Return the compact JSON; raise Invalid if it cannot be encoded or exceeds 64 KB."""
        try:
            text = as_json(value)
            size = len(text) if text.isascii() else len(text.encode())
        except ValueError as error:  # NaN or infinity, or a lone surrogate
            raise Invalid(f"{name} must be JSON that can be encoded in UTF-8.") from error
        if size > MAX_VALUE:
            raise Invalid(
                f"{name} must be at most {MAX_VALUE:,} bytes of compact JSON; "
                "store larger values elsewhere, and a reference to them here."
            )
        made = cls(text)
        made.parsed = value
        return made


def screened(redactor: Redactor, value: str) -> str:
    """Return the JSON object without secrets; the name of a member helps to find them."""
    parsed = value.parsed if isinstance(value, Json) else json.loads(value)
    if is_plain(value, parsed, redactor.are_clean):
        return value
    return Json.of(JsonRedactor(redactor, redactor.whole).document(parsed))


def redactor_for(rules: RulesOf, caller: Caller, *names: str | None) -> Redactor:
    """Return the redactor for a caller's write; raise Denied if the caller may not write.

    Raises Invalid if an agent's name or an id contains a secret.
    """
    caller.require(Role.WRITER)
    current = rules(caller)
    hide_by(lambda: current)  # its logs and spans need not look at the rules again
    redactor = Redactor(current)
    for name in names:
        if name is not None and redactor.rules.redacted(name).count:
            raise Invalid("The agent's id contains a secret; choose another one.")
    return redactor


def rendered(at: datetime) -> str:
    """Return the instant as every version of Python parses it: with six digits and `+00:00`."""
    return at.isoformat(timespec="microseconds")


Time = Annotated[datetime, PlainSerializer(rendered), DATE_TIME]


class FullRecord(Record):
    """A record whose JSON always has every member."""

    is_tagged: ClassVar[bool] = False  # whether its version is sent as ETag, too

    @property
    def attributes(self) -> Attributes:
        """The span attributes of its response."""
        return {}

    def json_bytes(self) -> bytes:
        """Return the JSON that is sent; JSON from clients is written as `json` writes it."""
        return written(self.model_dump(by_alias=True))


class DeletedEntry(FullRecord):
    """The response to the deletion of an entry, or of a grant."""

    status: Literal["deleted"] = "deleted"
    entry_id: str


class Detailed(FullRecord):
    """A record some of whose members are stored as JSON in its row, as no query uses them.

    Reading it raises Unreadable if one of these has a wrong type.
    """

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    members: ClassVar[Mapping[str, Any]]  # each with its default, which gives its type, too
    id: str
    details: str = Field(default="{}", exclude=True)

    @classmethod
    def whole(cls, **fields: Any) -> Self:
        return super().whole(**fields, **details_of(fields["details"], cls.members))


def kilobytes(size: int) -> int:
    return -(-size // 1024)


# Types of fields of bodies.


def faulty(read: Callable[[Any], T], name: str = "", prefix: str = "") -> Callable[[Any], T]:
    """Wrap `read`: an Invalid, whose message begins with `name`, becomes a field's fault."""

    def checked(value: Any) -> T:
        try:
            return read(value)
        except Invalid as error:
            sentence = str(error).removeprefix(f"{name} ").removesuffix(".")
            raise fault(prefix + sentence) from error

    return checked


def value_of(value: Any) -> Json:
    if not isinstance(value, dict):
        raise fault("must be an object")
    return faulty(Json.of, "value")(value)


ByName = Field(strict=False)  # a member of an enum, sent by its value
Printable = must(lambda text: not has_controls(text), "must not contain control characters")
NamespaceName = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME), Printable,
    must(lambda text: "*" not in text, "must not contain an asterisk"),
]  # fmt: skip
Key = Annotated[str, Field(min_length=1, max_length=MAX_NAME), Printable]
Tag = Annotated[
    str, Field(min_length=1, max_length=MAX_TAG), Printable,
    must(lambda text: "," not in text, "must not contain a comma"),
]  # fmt: skip
Tags = Annotated[  # parsed to a tuple of the different tags
    list[Tag], Field(max_length=MAX_TAGS), AfterValidator(lambda tags: tuple(dict.fromkeys(tags)))
]
Label = Annotated[str, Field(min_length=1, max_length=LONGEST_AGENT), Printable]
Agent = Annotated[
    AgentId, AfterValidator(faulty(agent_id, prefix="is invalid: ")),
    Field(json_schema_extra={"minLength": 1, "maxLength": LONGEST_AGENT}),
]  # fmt: skip
Curator = Annotated[str, Field(max_length=MAX_NAME), Printable]
Expiry = Annotated[
    Instant, must(lambda text: instant(text) is not None, "must be an RFC 3339 time")
]

_NEW = {"namespace": TypeAdapter[str](NamespaceName), "key": TypeAdapter[str](Key)}


class Nested(Body):
    """A part of a body in which `null` means absent."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _present(cls, value: Any) -> Any:
        return bodies.present(value) if isinstance(value, dict) else value


class Draft(Body):
    """A body some of whose members are stored as the JSON of its details."""

    members: ClassVar[Collection[str]] = ()

    @property
    def details(self) -> Json:
        """The details to store; raise BadFields beyond 64 KB."""
        named = {*self.members}
        return compact(self.model_dump(include=named, exclude_unset=True, exclude_none=True))


def instant_if_any(text: str | None) -> datetime | None:
    return None if text is None else instant(text)


def require_names(**names: str) -> None:
    """Raise BadFields for an invalid namespace or key."""
    faults = []
    for name, text in names.items():
        try:
            _NEW[name].validate_python(text)
        except pydantic.ValidationError as error:
            faults += [(name, bodies.said_of(fault)) for fault in error.errors()]
    if faults:
        raise BadFields(faults)


# The calling agent, and the names, ids and numbers in a request.

_IDENTITY = f"{__package__}.identity"  # the key of (caller, agent) in a request's scope
NAMES = re.compile(rb"/namespaces/|/agents/[^/]*/memory/")  # only names follow in the path
_MATCH = re.compile(r'(?:W/)?"(\d{1,18})"|(\d{1,18})', re.ASCII)
_IN_PATH = re.compile(r"{(\w+)")
CHOSEN = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._:-]{1,128}")  # an id that a client chooses


class VersionRequired(Refusal):
    code, sentence = "version_required", "The header If-Match must name the version to change."


def require_agent(request: Request, caller: Caller) -> AgentId:
    """Return the calling agent; raise Denied or Invalid if the caller may not act as it.

    The path is split before it is unescaped. NoPath for an escaped slash before the names.
    """
    known = request.scope.get(_IDENTITY)
    if known is not None and known[0] == caller:  # checked before the body was read
        return cast(AgentId, known[1])
    raw: bytes = request.scope["raw_path"]
    if b"%" in raw:
        names = NAMES.search(raw)
        if b"%2f" in raw[: names.end() if names else None].lower():
            raise NoPath
    agent = asking(caller, request.headers.get(AGENT, "").strip())
    request.scope[_IDENTITY] = caller, agent
    return agent


def require(request: Request, caller: Caller) -> None:
    """Refuse a caller that may not act as the agent; add the agent to the span."""
    annotate({"memory.agent.id": require_agent(request, caller)})


def identify(request: Request) -> tuple[Caller, Viewer]:
    """Return the caller and the viewer, by the current keys."""
    caller = current_caller(request)
    agent = require_agent(request, caller)
    return caller, Viewer(agent=agent, is_admin=caller.role.includes(Role.ADMIN))


async def identify_writer(request: Request, of: Bodies = BODIES) -> tuple[Caller, Viewer]:
    """Return the caller and the viewer of a write, with any idempotency key of the request."""
    has_key = any(name in request.headers for name in bodies.KEY_HEADERS)
    if has_key and admission(request).body_digest is None:
        await bodies.whole_body(request, of.limit)
    caller, viewer = identify(request)
    if has_key:
        caller = await bodies.keyed_caller(request, limit=of.limit, holder=viewer.agent)
    return caller, viewer


def identify_owner(request: Request) -> tuple[Caller, Viewer]:
    """Return the caller and the viewer; raise Denied if the path names another agent."""
    caller, viewer = identify(request)
    require_own(agent_in_path(request), viewer)
    return caller, viewer


def require_own(agent: AgentId, viewer: Viewer) -> None:
    """Raise Denied unless `agent` is the calling agent."""
    if agent != viewer.agent:
        raise Denied(access.NOT_YOUR_AGENT)


def agent_in_path(request: Request) -> AgentId:
    return AgentId(id_in_path(request, "agent"))


def names_in_path(request: Request, number: int) -> list[str]:
    """Return the names at the end of a path; an escaped slash belongs to a name."""
    raw: bytes = request.scope["raw_path"]
    match = NAMES.search(raw)
    parts = raw[match.end() :].split(b"/") if match else []
    if len(parts) != number or not all(parts):
        raise NoPath
    try:
        return [unquote(part.decode("ascii"), errors="strict") for part in parts]
    except UnicodeDecodeError as error:
        raise NoPath from error


def id_in_path(request: Request, name: str) -> str:
    """Return the id in the path; raise NotFound for a malformed one, Invalid for an agent's."""
    id_: str = request.path_params[name]
    if name == "agent":
        return agent_id(id_)
    if name == "entry_id":
        return known_uid(ENTRY, id_, NO_ENTRY)
    if not CHOSEN.fullmatch(id_):
        raise NotFound(UNKNOWN[name])
    return id_


def intent_id(request: Request) -> IntentId:
    return IntentId(id_in_path(request, "intent_id"))


def version(request: Request, *, is_required: bool = False) -> int | None:
    """Return the version in If-Match; raise VersionRequired if a required header is missing."""
    header = request.headers.get("if-match", "").strip()
    if not header:
        if is_required:
            raise VersionRequired
        return None
    match = _MATCH.fullmatch(header)
    if match is None:
        raise Invalid('The header If-Match must be one version, such as "3".')
    return int(match[1] or match[2])


# Lists, read in portions while they are sent.

Identify = Callable[[], tuple[Caller, Viewer]]
Ids = Sequence[tuple[Any, int]]
"""The ids of rows that a list reads later, with the sizes of their values in bytes."""


Frame = Callable[[int], tuple[bytes, bytes, Mapping[str, str]]]
"""Returns what is sent before and after the records of a list, and headers, by the total."""


async def listed(  # noqa: PLR0917 - the steps of a list
    engine: Engine, identity: tuple[Caller, Viewer], identify: Identify,
    ids: Callable[[Transaction, Viewer], tuple[Ids, int]],
    some: Callable[[Transaction, Viewer, list[Any]], Sequence[Any]],
    on_read: Callable[[Caller, Viewer, datetime, Sequence[Any]], None] = noop,
    frame: Frame | None = None,
) -> Response:  # fmt: skip
    """Return the response with the rows that `ids` selects and counts, read by `some`.

    Large values are sent in several pieces. Access is checked again before each later portion,
    and by `some`; `on_read` gets its rows.
    """

    def begin(tx: Transaction, viewer: Viewer) -> tuple[Sequence[Any], Ids, datetime, int]:
        left, total = ids(tx, viewer)
        return *go_on(tx, viewer, left), total

    def go_on(tx: Transaction, viewer: Viewer, left: Ids) -> tuple[Sequence[Any], Ids, datetime]:
        chosen, left = portion(left)
        return some(tx, viewer, chosen), left, tx.now

    async def pieces() -> AsyncIterator[bytes]:
        rows, left, separator = first, others, b""
        yield before
        while True:
            async for each in paced((it.json_bytes() for it in rows), len):
                yield separator + each
                separator = b","
            if not left:
                break
            caller, viewer = identify()
            rows, left, now = await engine.read(caller, go_on, viewer, left)
            on_read(caller, viewer, now, rows)
        yield after

    caller, viewer = identity
    first, others, now, total = await engine.read(caller, begin, viewer)
    on_read(caller, viewer, now, first)
    annotate({"memory.result_count": len(first) + len(others)})
    before, after, headers = frame(total) if frame else (b"[", b"]", NONE)
    if others:
        return StreamingResponse(pieces(), headers=headers, media_type=JSON)
    content = b"".join([piece async for piece in pieces()])
    return Response(content, headers=headers, media_type=JSON)


def portion(left: Ids) -> tuple[list[Any], Ids]:
    """Split off the ids that one read returns: at least one, if any are left."""
    some = fitting(left, PORTION, itemgetter(1))
    return [id_ for id_, _ in some], left[len(some) :]


def answered(done: FullRecord | Written[Any], status: int = 200) -> Response:
    """Return the response with a record, or a write's result; a tagged one with its ETag."""
    record: Any = done.value if isinstance(done, Written) else done
    annotate(lambda: record.attributes)
    redacted = done.redacted if isinstance(done, Written) else 0
    headers = {"ETag": f'"{record.version}"'} if record.is_tagged else {}
    if redacted:
        headers[REDACTED] = str(redacted)
    return Response(record.json_bytes(), status, headers, media_type=JSON)


# Refusals.


def require_future(at: datetime | None, now: datetime) -> None:
    """Raise BadFields for an expiry that has passed."""
    if at is not None and at <= now:
        raise BadFields([("expires_at", "must be in the future")])


class Stale(Conflict):
    """The stored state, which the response contains, is not the expected one (§3.2)."""

    code = "stale"

    def __init__(self, sentence: str, current: Any) -> None:
        super().__init__(sentence)
        self.current = current


class OverCapacity(Conflict):
    """A capacity is reached (§9.4)."""

    code = "over_capacity"

    def __init__(self, limit: str, number: int, most: int, what: str = "Entries") -> None:
        super().__init__(f"{what} here are limited to {most:,}.")
        self.limit, self.count, self.most = limit, number, most


class AlreadyExists(Conflict):
    code, sentence = "already_exists", "This id is already taken."


# Operations, with their parameters and headers in OpenAPI.

MATCH = Parameter(name="If-Match", help='The expected version, such as "3".')
MUST_MATCH = replace(MATCH, required=True)
TAG = {"ETag": "The version, in the form for If-Match."}
PAGE = (
    bodies.row_limit(PAGE_ROWS, MAX_PAGE_ROWS),
    Param(name="offset", kind="integer", help="Number of results to skip (default 0).",
          read=bodies.whole_number(absent=0)),
)  # fmt: skip
INSTANT = bodies.parsing(instant, "must be an RFC 3339 time")


def op(
    method: str, path: str, name: str, summary: str, work: Callable[..., Awaitable[Any]],
    answer: type[BaseModel], *, nulls: bool = False, **more: Any,
) -> Operation:  # fmt: skip
    """Declare an operation whose `work` gets the caller, the viewer, and the request's arguments.

    These are the ids in the path, the body, and the version of If-Match, in this order. They are
    checked in another order: the version, the body, the caller, the ids.
    """
    ids: list[str] = _IN_PATH.findall(path)
    body, match = more.get("body"), next(iter(more.get("sends", ())), None)

    async def handle(request: Request) -> Response:
        at = [] if match is None else [version(request, is_required=match.required)]
        fields = [] if body is None else [await BODIES.read(request, body, nulls=nulls)]
        caller, viewer = identify(request) if method == "GET" else await identify_writer(request)
        named = [id_in_path(request, it) for it in ids]
        done = await work(caller, viewer, *named, *fields, *at)
        if isinstance(done, list):
            annotate({"memory.result_count": len(done)})
            return bodies.answered([it.model_dump() for it in done])
        return done if isinstance(done, Response) else answered(done, more.get("status", 200))

    return route(method, path, name, summary, handle, answer, **more)


def reading(engine: Engine, work: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Return the work of an operation: `work` in a read transaction."""
    return lambda caller, viewer, *ids: engine.read(caller, work, viewer, *ids)


def route(
    method: str, path: str, name: str, summary: str, handler: Callable[..., Awaitable[Response]],
    answer: type[BaseModel], *, query: Sequence[Param] = (), **more: Any,
) -> Operation:  # fmt: skip
    """Declare an operation: a GET for readers, others for writers, with idempotency keys.

    `handler` gets the request, and the parameters in `query` by name.
    """

    async def handle(request: Request) -> Response:
        return await handler(request, **bodies.Arguments(request).parsed(query))

    is_write, is_one = method != "GET", not more.get("is_list")
    role = Role.WRITER if is_write else Role.READER
    headers = {
        **(WRITTEN if more.get("body") else NONE),
        **(TAG if is_one and getattr(answer, "is_tagged", False) else NONE),
        **more.pop("headers", NONE),
    }
    return Operation(
        method=method, path=path, name=f"openintent_{name}", summary=summary,
        handler=handle if query else handler, query=query, answer=answer, role=role,
        takes_key=is_write, headers=headers, **more,
    )  # fmt: skip


def compact(value: JsonObject, field: str = "the body") -> Json:
    try:
        return Json.of(value)
    except Invalid as error:
        phrase = str(error).removeprefix("value ").partition(";")[0].removesuffix(".")
        raise BadFields([(field, phrase)]) from error
