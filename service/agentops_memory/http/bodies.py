"""Bodies of one dialect: read by a model with faults in its own words, and written."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import BadFields, Invalid, Refusal
from ..memory.model.access import Caller
from ..telemetry import hidden
from .endpoint import current_caller
from .protocol import REDACTED, Refusals
from .requests import json_object, read_key

JSON = "application/json"
WRITTEN = {REDACTED: "How many secrets were kept out."}
NONE: Mapping[str, str] = {}

GIVEN: ConfigDict = ConfigDict(strict=True, extra="ignore", defer_build=True)  # of a body's model

Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """How a dialect takes bodies: exactly, up to its limit; `null` is absent by default."""

    refusal: Callable[[Sequence[ErrorDetails]], Invalid]  # what is said of faults
    limit: int = 4 * 1024 * 1024  # bytes

    async def read(
        self, request: Request, model: type[Model], *, empty: bool = False, nulls: bool = False
    ) -> Model:
        """The body as the model has it; refused as the dialect refuses if it is none."""
        body = await json_object(request, limit=self.limit, empty=empty, exact=True)
        try:
            # A model that the service may make by the names of its fields: a client may not.
            return model.model_validate(body if nulls else present(body), by_name=False)
        except ValidationError as error:
            raise self.refusal(error.errors(include_url=False)) from None

    async def caller(self, request: Request, *, holder: str = "") -> Caller:
        """Whose request it is once its body was read, under its idempotency key if it has one."""
        await read_key(request, limit=self.limit, holder=holder)
        return current_caller(request)


def present(body: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in body.items() if value is not None}


def answered(
    content: object, status: int = 200, *, redacted: int = 0, headers: Mapping[str, str] = NONE
) -> Response:
    every = {**headers, REDACTED: str(redacted)} if redacted else headers
    return Response(written(content), status, every, media_type=JSON)


def written(content: object) -> bytes:
    return dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


REQUEST_ID = "X-Request-Id"

_SANE = re.compile(r"[!-~]{1,128}")  # visible ASCII


def request_id(headers: Mapping[str, str]) -> str:
    """The id that the client gave the request; a fresh one for none, a strange or a secret one."""
    id_ = headers.get(REQUEST_ID, "")
    return id_ if _SANE.fullmatch(id_) and hidden(id_) == id_ else str(uuid4())


class Refused(Response):
    """A refusal; the request, and its id, are known when it is sent."""

    def __init__(
        self, refusal: Refusal, refusals: Refusals, content: Callable[[Scope, str], bytes]
    ) -> None:
        self._content = content
        super().__init__(
            status_code=refusals.status(refusal.code),
            headers=refusals.headers_of(refusal),
            media_type=JSON,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id_ = request_id(Headers(scope=scope))
        self.body = self._content(scope, id_)
        self.headers["Content-Length"] = str(len(self.body))
        self.headers[REQUEST_ID] = id_
        await super().__call__(scope, receive, send)


_FAULTS = {
    "missing": "is required",
    "string_type": "must be text",
    "string_unicode": "has a lone surrogate, which UTF-8 cannot encode",
    "string_too_short": "must not be empty",
    "string_too_long": "has at most {max_length:,} characters",
    "too_short": "must not be empty",
    "too_long": "has at most {max_length:,} items",
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
    "fault": "{said}",
    "of": "{said}",
}


def fault(phrase: str) -> PydanticCustomError:
    return PydanticCustomError("fault", "{said}", {"said": phrase})


def must(holds: Callable[[Any], bool], problem: str) -> AfterValidator:
    """Refuses a value of which it does not hold, with what is wrong with it."""

    def checked(value: Any) -> Any:
        if not holds(value):
            raise fault(problem)
        return value

    return AfterValidator(checked)


def fault_of(field: str, phrase: str) -> PydanticCustomError:
    return PydanticCustomError("of", "{said}", {"field": field, "said": phrase})


def bad_fields(faults: Iterable[ErrorDetails]) -> BadFields:
    return BadFields([_fault(each) for each in faults])


def said_of(fault: ErrorDetails) -> str:
    said, details = _FAULTS.get(fault["type"], "is invalid"), fault.get("ctx", {})
    if fault["type"] == "string_too_short" and details["min_length"] > 1:
        said = "has at least {min_length} characters"
    if fault["type"] == "too_short" and details["min_length"] > 1:
        said = "has at least {min_length} items"
    return said.format(**details)


def _fault(fault: ErrorDetails) -> tuple[str, str]:
    details, path = fault.get("ctx", {}), ""
    for step in [*fault["loc"], *([details["field"]] if "field" in details else [])]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path or "the body", said_of(fault)
