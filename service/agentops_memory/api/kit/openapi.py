"""Routes as a table, and the OpenAPI 3.1 document that is made of it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, Protocol

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from ...domain.memories.idempotency import LONGEST_KEY
from ...domain.model.access import Role
from .http import KEY_HEADERS
from .idempotency import REPLAYED

REFUSED_AT_THE_DOOR = (400, 401, 403, 429, 503)
REFUSED_WITH_KEY = (400, 408, 409, 507)  # an idempotency key takes the body, and some room

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of the query."""

    name: str
    help: str
    kind: Literal["string", "words", "boolean", "true", "integer", "count", "id", "instant"] = (
        "string"
    )
    choices: Sequence[str] = ()  # the only texts that it takes
    most: int | None = None  # the largest number that it takes
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A route: what it answers to, what it takes, what it gives."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    answer: type[BaseModel] | None = None
    is_list: bool = False
    media_type: str = ""  # of an answer in text that is no JSON
    status: int = 200
    body: type[BaseModel] | None = None
    body_required: bool = True
    query: Sequence[Parameter] = ()
    headers: Mapping[str, str] = field(default_factory=dict)  # of the answer: what each says
    takes_key: bool = False  # whether it is done once for an idempotency key
    refusals: Sequence[int] = ()
    role: Role | None = None  # that a caller needs; none for what everybody may ask
    is_limited: bool = True  # whether it counts against the rate of the caller's key


class Described(Protocol):
    """Operations of one protocol."""

    @property
    def title(self) -> str:
        """What it is called."""

    @property
    def summary(self) -> str:
        """What it is for, in a sentence."""

    @property
    def operations(self) -> Sequence[Operation]:
        """The operations."""

    @property
    def problem(self) -> type[BaseModel]:
        """The shape of their refusals."""

    @property
    def is_authorization_only(self) -> bool:
        """Whether a key counts in the header Authorization alone."""

    @property
    def too_large(self) -> int:
        """The status for a body over its limit."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of every answer: what each says."""


def document(apis: Sequence[Described], *, title: str, version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the protocols; no two models share a name."""
    table = [(operation, api) for api in apis for operation in api.operations]
    models = {model for o, api in table for model in (o.answer, o.body, api.problem) if model}
    _, schemas = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation, api in table:
        path = operation.path.replace(":path}", "}")
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, api)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "tags": [{"name": api.title, "description": api.summary} for api in apis],
        "paths": paths,
        "components": {"schemas": schemas["$defs"], "securitySchemes": _KEYS},
    }


def _operation(operation: Operation, api: Described) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [api.title],
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation.path),
            *map(_parameter, operation.query),
            *([_IDEMPOTENCY_KEY] if operation.takes_key else []),
        ],
        "responses": {
            str(operation.status): _answer(operation, api),
            **{str(status): _refusal(status, api) for status in _refusals(operation, api)},
        },
    }
    if operation.role is not None:
        security = _AUTHORIZATION_ALONE if api.is_authorization_only else _SECURITY
        described |= {"security": security, "x-role": operation.role.value}
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.body_required,
            "content": {"application/json": {"schema": _reference(operation.body)}},
        }
    return described


def _refusals(operation: Operation, api: Described) -> list[int]:
    at_the_door = REFUSED_AT_THE_DOOR if operation.role is not None else ()
    with_key = (*REFUSED_WITH_KEY, api.too_large) if operation.takes_key else ()
    return sorted({*operation.refusals, *at_the_door, *with_key})


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = [part.split("}")[0] for part in path.split("{")[1:]]
    return [
        {
            "name": name.removesuffix(":path"),
            "in": "path",
            "required": True,
            "schema": _SCHEMAS["id" if name == "id" else "string"],
        }
        for name in names
    ]


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "required": parameter.required,
        "description": parameter.help,
        "schema": _schema(parameter),
    }


def _schema(parameter: Parameter) -> dict[str, Any]:
    schema = _SCHEMAS[parameter.kind]
    if parameter.most is not None:
        schema = schema | {"maximum": parameter.most}
    return schema | {"enum": list(parameter.choices)} if parameter.choices else schema


def _answer(operation: Operation, api: Described) -> dict[str, Any]:
    description: dict[str, Any] = {"description": HTTPStatus(operation.status).phrase}
    if headers := _headers(operation, api):
        description["headers"] = _described(headers)
    if operation.media_type:
        return description | {"content": {operation.media_type: {"schema": _SCHEMAS["string"]}}}
    if operation.answer is None:
        return description
    schema: dict[str, Any] = _reference(operation.answer)
    if operation.is_list:
        schema = {"type": "array", "items": schema}
    return description | {"content": {"application/json": {"schema": schema}}}


def _headers(operation: Operation, api: Described) -> Mapping[str, str]:
    replayed = {REPLAYED: "`true` if the request was done before and this is its answer."}
    return {**api.headers, **operation.headers, **(replayed if operation.takes_key else {})}


def _refusal(status: int, api: Described) -> dict[str, Any]:
    refusal: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": _reference(api.problem)}},
    }
    return refusal | ({"headers": _described(api.headers)} if api.headers else {})


def _described(headers: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: {"description": says, "schema": _SCHEMAS["string"]} for name, says in headers.items()
    }


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


_IDEMPOTENCY_KEY = {
    "name": KEY_HEADERS[0],
    "in": "header",
    "required": False,
    "description": "The same request with the same key is done once, for 24 hours.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]+$"},
}

# A service without keys asks for none: hence the empty alternative.
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}, {"basic": []}, {}]
_AUTHORIZATION_ALONE: list[dict[str, list[str]]] = [{"bearer": []}, {"basic": []}, {}]
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "basic": {"type": "http", "scheme": "basic", "description": "With any user name."},
}

_SCHEMAS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "words": {"type": "string", "minLength": 1},
    "boolean": {"type": "boolean"},
    "true": {"type": "boolean", "const": True},
    "integer": {"type": "integer"},
    "count": {"type": "integer", "minimum": 1},
    "instant": {"type": "string", "format": "date-time"},
    "id": {"type": "integer", "format": "int64", "minimum": -(1 << 63), "maximum": (1 << 63) - 1},
}
