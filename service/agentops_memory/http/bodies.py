"""Reads bodies, within limits and by models, and idempotency keys and parameters of requests."""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext
from enum import StrEnum
from functools import partial
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar, cast
from urllib.parse import parse_qs, parse_qsl
from uuid import uuid4

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_snake
from pydantic_core import ErrorDetails, PydanticCustomError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ..errors import BadFields, Full, Invalid
from ..light import dataclass
from ..memory.access import Caller
from ..memory.idempotency import idempotency
from ..recall.text import clean
from ..secrets.redaction import hidden
from .gate import HAS_BODY, admission, current_caller, short_switch_interval
from .protocol import REDACTED, Parameter, TooLarge, TooSlow
from .query import NUMBER, Query, natural, parameter, parsed

MAX_BODY = 1024 * 1024  # bytes
SHORT = 64 * 1024  # bytes of a body that is parsed on the loop's thread
BODY_IDLE = 15.0  # most seconds between two chunks of a body
IN_MEMORY = 1024 * 1024  # bytes of an upload that stay in memory; a longer one becomes a file

KEY_HEADERS = ("Idempotency-Key", "X-Idempotency-Key")  # the second is an older spelling
REQUEST_ID = "X-Request-Id"
_SAFE_ID = re.compile(r"[!-~]{1,128}")  # visible ASCII
JSON = "application/json"
WRITTEN = {REDACTED: "The number of secrets that were redacted."}
NONE: Mapping[str, str] = {}
FLAGS = {"true": True, "false": False}
Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Model = TypeVar("Model", bound=BaseModel)


class Body(BaseModel):
    """The base of models of bodies: of exact types; other members are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", defer_build=True)


async def json_object(
    request: Request, *, limit: int = MAX_BODY, empty: bool = False, exact: bool = False
) -> dict[str, object]:
    """Return the JSON object in the body, whatever the Content-Type is.

    With `empty`, an empty body counts as an empty object. With `exact`, bytes that are not UTF-8
    are refused; otherwise they become U+FFFD.
    """
    body = await whole_body(request, limit)
    if empty and not body.strip():
        return {}
    # A body of a megabyte can have 250,000 values; a thread parses it while others are served.
    if len(body) < SHORT:
        value = parsed(body, exact=exact)
    else:
        value = await asyncio.to_thread(parsed, body, exact=exact)
    if not isinstance(value, dict):
        raise Invalid("invalid JSON: an object is expected.")
    return value


@asynccontextmanager
async def spooled(request: Request, limit: int, folder: Path) -> AsyncIterator[BinaryIO]:
    try:
        with ExitStack() as stack:
            file = stack.enter_context(tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(folder)))
            is_long = False
            async for chunk in _chunks(request, limit):
                size = file.tell() + len(chunk)
                if size > SHORT and not is_long:
                    stack.enter_context(short_switch_interval())
                    is_long = True
                if size <= IN_MEMORY:
                    file.write(chunk)
                else:
                    await asyncio.to_thread(file.write, chunk)
            yield cast(BinaryIO, file)
    except OSError as error:  # at any step: written bytes may stay in a buffer until the end
        raise Full("The disk cannot hold the body; nothing was stored.") from error


async def whole_body(request: Request, limit: int) -> bytes:
    return b"".join([chunk async for chunk in _chunks(request, limit)])


async def keyed_caller(request: Request, *, limit: int = MAX_BODY, holder: str = "") -> Caller:
    """Return the current caller, with the request's idempotency key; each `holder` has its own.

    If there is a key, a body that was not read yet is read, up to `limit` bytes.
    Invalid for a malformed key and for several keys.
    """
    values = (value for name in KEY_HEADERS for value in request.headers.getlist(name))
    keys = {value.strip(" \t") for value in values}
    if not keys:
        return current_caller(request)
    if len(keys) > 1:
        raise Invalid("A request may have only one idempotency key; this one has several.")
    admitted = admission(request)
    if admitted.body_digest is None:
        async for _ in _chunks(request, limit):
            pass
    assert admitted.body_digest is not None  # set by `_chunks` for requests with a key
    path, query = request.scope["path"].encode(), request.scope["query_string"]
    parts = [request.method.encode(), path, query, admitted.body_digest]
    if match := request.headers.get("if-match"):  # a different version is a different request
        parts.append(match.encode())
    admitted.idempotency = idempotency(
        admitted.caller(), keys.pop(), admitted.status, *parts, holder=holder
    )
    return current_caller(request)


def is_empty(file: BinaryIO) -> bool:
    file.seek(0)
    return not any(chunk.strip() for chunk in iter(lambda: file.read(IN_MEMORY), b""))


def query_of(request: Request) -> Query:
    return parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)


def exact_parameter(request: Request, name: str, *, allows_nul: bool = False) -> str | None:
    """Return a query parameter exactly as sent; ValueError if it is not UTF-8 or contains NUL."""
    pairs = parse_qsl(
        request.scope["query_string"].decode("latin-1"),
        keep_blank_values=True,
        errors="surrogateescape",
    )
    text = next((value for key, value in pairs if key == name), "")
    exact = text.replace("\0", "") if allows_nul else text
    if clean(exact) != exact:
        raise ValueError
    return text or None


class Arguments:
    """Parses the query parameters of a request; all their faults are reported together."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._faults: list[tuple[str, str]] = []

    def parsed(self, params: Sequence["Param"]) -> dict[str, Any]:
        """Return the values of parameters by the names of arguments; raises BadFields."""
        values = {it.argument: it.read(self, it.name) for it in params}
        for it in params:
            if it.required and values[it.argument] is None:
                self.fault(it.name, "is required")
        if self._faults:
            raise BadFields(self._faults)
        return values

    def fault(self, name: str, problem: str) -> None:
        self._faults.append((name, problem))

    def text(self, name: str) -> str | None:
        """Return the text of a parameter, or None if it is empty or not set, as all readers do."""
        return parameter(query_of(self.request), name)


Reading = Callable[[Any, str], Any]
"""Reads one of the `Arguments` by the name of its parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Param(Parameter):
    """A parameter, the function that reads it, and the argument that it becomes."""

    read: Reading = lambda arguments, name: arguments.text(name)
    into: str = ""  # by default its name in snake_case

    @property
    def argument(self) -> str:
        return self.into or to_snake(self.name)


def parsing(parse: Callable[[str], Any], problem: str, absent: Any = None) -> Reading:
    """Return the function that reads a text with `parse`, which returns None if it is invalid."""

    def read(arguments: Arguments, name: str) -> Any:
        text = arguments.text(name)
        value = absent if text is None else parse(text)
        if text is not None and value is None:
            arguments.fault(name, problem)
        return value

    return read


def whole_number(least: int = 0, absent: int | None = None) -> Reading:
    def parse(text: str) -> int | None:
        return read if (read := natural(text)) >= least else None

    return parsing(parse, f"must be a whole number, {least} or more", absent)


def row_limit(default: int, most: int, least: int = 1) -> Param:
    """Return the parameter `limit`; no value, or 0 if it is allowed, means the default."""
    return Param(
        name="limit", kind="count" if least else "integer", is_row_count=True,
        help=f"Maximum number of results (default {default:,}, at most {most:,}).",
        read=lambda arguments, name: min(whole_number(least)(arguments, name) or default, most),
    )  # fmt: skip


def choice(name: str, of: type[StrEnum], help_: str, into: str = "") -> Param:
    """Return an optional parameter whose value is a member of `of`."""
    parse = {it.value: it for it in of}.get
    read = parsing(parse, f"must be one of {', '.join(of)}")
    return Param(name=name, into=into, help=help_, choices=[*of], read=read)


async def _chunks(request: Request, limit: int) -> AsyncIterator[bytes]:
    declared = request.headers.get("content-length", "")
    digest = sha256() if any(name in request.headers for name in KEY_HEADERS) else None
    too_large = partial(TooLarge, f"The body is larger than {limit:,} bytes; nothing was stored.")
    if NUMBER.fullmatch(declared[:18]) and int(declared) > limit:
        raise too_large()
    left, is_more = limit, True
    while is_more:
        chunk, is_more = await _received(request)
        left -= len(chunk)
        if left < 0:
            raise too_large()
        if digest is not None:
            digest.update(chunk)
        yield chunk
    if digest is not None:
        admission(request).body_digest = digest.digest()


async def _received(request: Request) -> tuple[bytes, bool]:
    """Return the next chunk, and whether more follow."""
    try:
        # A timeout costs as much as the rest; the body of most requests comes with their head.
        async with nullcontext() if HAS_BODY in request.scope else asyncio.timeout(BODY_IDLE):
            message = await request.receive()
    except TimeoutError as error:
        raise TooSlow("The body stopped arriving; nothing was stored.") from error
    if message["type"] == "http.disconnect":
        raise Invalid("The client left before its body was complete.")
    return message.get("body", b""), message.get("more_body", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """A dialect's reader of bodies: exact, up to its limit; `null` counts as absent by default."""

    refusal: Callable[[Sequence[ErrorDetails]], Invalid]  # makes the refusal of invalid fields
    limit: int = 4 * 1024 * 1024  # bytes

    async def read(
        self, request: Request, model: type[Model], *, empty: bool = False, nulls: bool = False
    ) -> Model:
        """Validate the body by the model; raises the dialect's refusal if it is invalid."""
        body = await json_object(request, limit=self.limit, empty=empty, exact=True)
        try:
            # The service may create models by field names; clients must use the aliases.
            return model.model_validate(body if nulls else present(body), by_name=False)
        except ValidationError as error:
            raise self.refusal(error.errors(include_url=False)) from None

    async def caller(self, request: Request, *, holder: str = "") -> Caller:
        """Return the current caller with the request's idempotency key; the body is read before."""
        return await keyed_caller(request, limit=self.limit, holder=holder)


def present(body: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in body.items() if value is not None}


def answered(
    content: object, status: int = 200, *, redacted: int = 0, headers: Mapping[str, str] = NONE
) -> Response:
    all_headers = {**headers, REDACTED: str(redacted)} if redacted else headers
    return Response(written(content), status, all_headers, media_type=JSON)


def written(content: object) -> bytes:
    return dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def request_id(scope: Scope) -> str:
    """Return the client's request id, or a new one if it is missing, malformed or a secret."""
    id_ = Headers(scope=scope).get(REQUEST_ID, "")
    return id_ if _SAFE_ID.fullmatch(id_) and hidden(id_) == id_ else str(uuid4())


_FAULTS = {
    "missing": "is required",
    "string_type": "must be text",
    "string_unicode": "has a lone surrogate, which UTF-8 cannot encode",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length:,} characters",
    "string_too_short_by_several": "must have at least {min_length} characters",
    "too_short": "must not be empty",
    "too_short_by_several": "must have at least {min_length} items",
    "too_long": "must have at most {max_length:,} items",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le:,}",
    "int_parsing_size": "must be a whole number of at most 64 bits",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "fault": "{said}",
    "of": "{said}",
}


def fault(phrase: str) -> PydanticCustomError:
    return PydanticCustomError("fault", "{said}", {"said": phrase})


def must(holds: Callable[[Any], bool], problem: str) -> AfterValidator:
    """Return a validator that refuses values for which `holds` is false, with the problem."""

    def checked(value: Any) -> Any:
        if not holds(value):
            raise fault(problem)
        return value

    return AfterValidator(checked)


def fault_of(field: str, phrase: str) -> PydanticCustomError:
    return PydanticCustomError("of", "{said}", {"field": field, "said": phrase})


def said_of(fault: ErrorDetails) -> str:
    """Return the phrase for a fault, to follow the name of the field."""
    kind, details = fault["type"], fault.get("ctx", {})
    if details.get("min_length", 0) > 1:
        kind += "_by_several"
    return _FAULTS.get(kind, "is invalid").format(**details)


def bad_fields(faults: Iterable[ErrorDetails]) -> BadFields:
    paths = []
    for fault in faults:
        details, path = fault.get("ctx", {}), ""
        for step in [*fault["loc"], *([details["field"]] if "field" in details else [])]:
            path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
        paths.append((path or "the body", said_of(fault)))
    return BadFields(paths)
