"""How an operation of OpenWOP is declared, and what the fields of bodies may hold."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel, to_snake
from starlette.requests import Request
from starlette.responses import Response

from ..errors import BadFields
from ..http import bodies
from ..http.gate import current_caller
from ..http.protocol import REDACTED, Operation, Parameter
from ..http.query import fitting, instant, natural
from ..light import dataclass
from ..memory.access import Role
from ..memory.saves import Written
from ..memory.space import MemoryRef
from ..recall.text import REPLACEMENT, clean
from ..recall.visible import has_controls
from ..record import Record
from ..telemetry import Cut, annotate, count
from ..telemetry.metrics import COMMITMENTS_FIRED
from . import refs

LONGEST_RUN, LONGEST_NODE = 128, 128  # code points
AGENT_LENGTHS = range(3, 257)
MAX_TAGS = 50

CAMEL = ConfigDict(**bodies.BODY_CONFIG, alias_generator=to_camel, populate_by_name=True)


def _tags(tags: list[str]) -> list[str]:
    kept = list(dict.fromkeys(filter(None, tags)))
    if len(kept) > MAX_TAGS:
        raise bodies.fault(f"has at most {MAX_TAGS} items")
    archives = (refs.ARCHIVE, refs.DISTILLED)
    if any(tag in archives or tag.startswith(refs.COMPACTED) for tag in kept):
        raise bodies.fault("has a tag reserved for the service")
    return kept


Exact = bodies.must(lambda text: clean(text) == text, "must have no NUL and no lone surrogate")
Printable = bodies.must(lambda text: not has_controls(text), "must not contain control characters")
ZonedText = bodies.must(
    lambda text: instant(text, needs_offset=True) is not None,
    "must be an RFC 3339 time with an offset",
)
Zoned = Annotated[bodies.Instant, ZonedText]
MemoryRefText = Annotated[
    MemoryRef, Exact, bodies.must(lambda text: not refs.is_malformed(text), "is not a memory ref"),
    Field(
        json_schema_extra={"minLength": 1, "maxLength": refs.LONGEST_REF}, examples=["mem://notes"]
    ),
]  # fmt: skip
EntryName = Annotated[
    refs.RefEntryId, Field(min_length=1, max_length=refs.LONGEST_ID), Exact, Printable
]
OwnName = Annotated[
    EntryName,
    bodies.must(lambda name: not refs.MADE.fullmatch(name), "has a form reserved for the service"),
]
RunName = Annotated[
    str, Field(min_length=1, max_length=LONGEST_RUN), Exact, Printable,
    bodies.must(lambda name: "/" not in name, "must have no slash"),
]  # fmt: skip
Node = Annotated[str, Field(min_length=1, max_length=LONGEST_NODE), Exact, Printable]
AgentName = Annotated[
    str, Field(min_length=AGENT_LENGTHS[0], max_length=AGENT_LENGTHS[-1]),
    Exact, Printable,
]  # fmt: skip
Workflow = Annotated[str, Field(min_length=1, max_length=refs.LONGEST_ID), Exact, Printable]
Tags = Annotated[
    list[Annotated[str, Field(max_length=refs.LONGEST_TAG), Exact]], AfterValidator(_tags)
]
ContentText = Annotated[
    str, Exact, bodies.must(lambda text: text.strip() != "", "must not be blank"),
    bodies.must(
        lambda text: len(text.encode()) <= refs.MAX_CONTENT,
        f"has at most {refs.MAX_CONTENT:,} bytes of UTF-8",
    ),
]  # fmt: skip


BASE = "/v1/host/agentops-memory"
LONGEST_BODY = 1024 * 1024  # bytes
DEFAULT_ROWS, MOST_LISTED = 100, 1000  # rows of a list: unless set, and at most
SPANS = {  # arguments that a span names: names alone, each with its secrets taken out
    "memory_ref": "memory.ref",
    "run_id": "openwop.run_id",
    "node_id": "openwop.node_id",
    "memory_id": "memory.entry.id",
}
LONGEST_IN_SPAN = 100  # code points

BODIES = bodies.Bodies(refusal=bodies.bad_fields, limit=LONGEST_BODY)

_IN_PATH = re.compile(r"{(\w+)")


class Query:
    """The parameters of a request, of which all faults are reported together."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._faults: list[tuple[str, str]] = []

    def fault(self, name: str, problem: str) -> None:
        self._faults.append((name, problem))

    def text(self, name: str, *, allows_nul: bool = False) -> str | None:
        """A text, exactly; an empty one is unset."""
        try:
            return bodies.exact_parameter(self._request, name, allows_nul=allows_nul)
        except ValueError:
            self.fault(name, "must be UTF-8 without NUL")
            return None

    def ref(self, name: str) -> str | None:
        """A ref to be read; one with NUL names nothing, as any other malformed one (CTI-1)."""
        return self.text(name, allows_nul=True)

    def required(self, name: str) -> str:
        text = self.text(name)
        if text is None:
            self.fault(name, "is required")
        return text or ""

    def number(self, name: str, least: int = 0) -> int | None:
        """A whole number, at least so large."""
        text = self.text(name)
        if text is None:
            return None
        number = natural(text)
        if number < least:
            self.fault(name, f"must be a whole number, {least} or more")
        return number

    def done(self) -> None:
        """Refuse with BadFields if something is wrong."""
        if self._faults:
            raise BadFields(self._faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Param(Parameter):
    """A parameter of the query, and how its argument is read."""

    read: Callable[[Query, str], Any] = Query.text


def limit(default: int = DEFAULT_ROWS, most: int = MOST_LISTED) -> Param:
    """How many rows: the default for 0 and where it is not set."""
    return Param(
        name="limit", kind="integer", is_row_count=True,
        help=f"Maximum number of results (default {default}, at most {most:,}).",
        read=lambda query, name: min(query.number(name) or default, most),
    )  # fmt: skip


def choice(name: str, of: type[StrEnum], help_: str) -> Param:
    """One of a closed set, or none."""

    def read(query: Query, name: str) -> StrEnum | None:
        text = query.text(name)
        if text is None or text in set(of):
            return None if text is None else of(text)
        query.fault(name, f"must be one of {', '.join(of)}")
        return None

    return Param(name=name, help=help_, choices=[*of], read=read)


@dataclass(frozen=True, slots=True)
class Page:
    """A list under a name, as much of it as one answer can hold.

    With a cursor it continues after the last item that is sent, if any is left.
    """

    name: str
    items: Sequence[Record]
    cursor: Callable[[Any], str] | None = None
    has_more: bool = False  # than the items
    more: Callable[[int], Mapping[str, object]] = lambda _: {}
    """What else is answered, where so many of the items are."""

    def beside(self, sent: int) -> dict[str, object]:
        """What is answered beside so many of the items."""
        beside = dict(self.more(sent))
        if self.cursor and sent and (self.has_more or sent < len(self.items)):
            beside["next"] = self.cursor(self.items[sent - 1])
        return beside


def listed(item: type[Record], name: str, docs: str) -> type[Record]:
    """The shape of a `Page` of items."""
    fields: dict[str, Any] = {name: (list[item], ...), "next": (str | None, None)}  # type: ignore[valid-type]
    return create_model(f"Listed{name.capitalize()}", __base__=Record, __doc__=docs, **fields)


def op(  # noqa: PLR0913 - all that an operation is
    method: str,
    path: str,
    name: str,
    summary: str,
    work: Callable[..., Awaitable[Record | Written[Any] | Page]],
    *,
    role: Role,
    body: type[BaseModel] | None = None,
    body_required: bool = True,
    takes_key: bool | None = None,
    query: Sequence[Param] = (),
    **more: Any,
) -> Operation:
    """An operation. `work` gets the caller, who may still do this, and what the request has.

    That is, by name, what the path names and the parameters (in snake_case), and the `body`. Every
    operation but GET takes an idempotency key, unless set.
    """
    keyed = method != "GET" if takes_key is None else takes_key
    in_path = _IN_PATH.findall(path)
    status, status_if_new = more.get("status", 200), more.get("status_if_new")

    async def handle(request: Request) -> Response:
        values: dict[str, Any] = {to_snake(it): text_in_path(request, it) for it in in_path}
        if body is not None:
            values["body"] = await BODIES.read(request, body, empty=not body_required)
        parameters = Query(request)
        values |= {to_snake(it.name): it.read(parameters, it.name) for it in query}
        parameters.done()
        for argument, attribute in SPANS.items():
            if value := values.get(argument) or getattr(values.get("body"), argument, None):
                annotate({attribute: Cut(value, LONGEST_IN_SPAN)})
        if keyed:
            caller = await BODIES.caller(request, holder=f"openwop {name}")
        else:
            caller = current_caller(request)
        # The gate checked the same; a right may have been revoked since.
        caller.require(role, more.get("scope"))
        caller.require_refs()
        done = await work(caller, **values)
        if isinstance(done, Page):
            return _page(done)
        if isinstance(done, Record):
            return Response(done.json_bytes(), status, media_type=bodies.JSON)
        if not caller.is_replay:
            count(COMMITMENTS_FIRED, "predicate", by=done.fired)
        headers = {REDACTED: str(done.redacted)} if done.redacted else {}
        of_new = status if done.is_new or status_if_new is None else status_if_new
        return Response(done.value.json_bytes(), of_new, headers, media_type=bodies.JSON)

    return Operation(
        method=method, path=path, name=f"openwop_{name}", summary=summary, handler=handle,
        role=role, body=body, body_required=body_required, takes_key=keyed, query=query, **more,
    )  # fmt: skip


def text_in_path(request: Request, name: str) -> str:
    """What the path names, exactly; BadFields for what is no text."""
    text: str = request.path_params[name]
    if REPLACEMENT in text:  # which stands for bytes that are no UTF-8, unless it was sent
        sent = unquote_to_bytes(request.scope["raw_path"])
        if sent.decode(errors="replace") != sent.decode(errors="surrogateescape"):
            raise BadFields([(name, "must be UTF-8")])
    return text


def _page(page: Page) -> Response:
    items = fitting(it.json_bytes() for it in page.items)
    annotate({"memory.result_count": len(items)})
    beside = page.beside(len(items))
    listed = b'{"%b":[%b]' % (page.name.encode(), b",".join(items))
    return Response(
        listed + (b"," + bodies.written(beside)[1:] if beside else b"}"), media_type=bodies.JSON
    )
