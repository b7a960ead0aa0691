"""The OpenAPI 3.1 document that is made of the operations of protocols."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ...domain.memories.idempotency import LONGEST_KEY
from .endpoint import REPLAYED
from .http import KEY_HEADERS
from .protocol import Operation, Parameter, Protocol

REFUSED_AT_THE_GATE = (400, 401, 403, 429, 503)
REFUSED_WITH_KEY = (400, 408, 409, 507)  # an idempotency key takes the body, and some room

Described = tuple[Protocol, Sequence[Operation]]


def document(described: Sequence[Described], *, title: str, version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the protocols; no two models share a name."""
    table = [
        (operation, protocol) for protocol, operations in described for operation in operations
    ]
    models = {
        model for o, protocol in table for model in (o.answer, o.body, protocol.problem) if model
    }
    _, schemas = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation, protocol in table:
        path = operation.path.replace(":path}", "}")
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, protocol)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "tags": [
            {"name": protocol.title, "description": protocol.summary} for protocol, _ in described
        ],
        "paths": paths,
        "components": {"schemas": schemas["$defs"], "securitySchemes": _KEYS},
    }


def _operation(operation: Operation, protocol: Protocol) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [protocol.title],
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation.path),
            *map(_parameter, operation.query),
            *([_IDEMPOTENCY_KEY] if operation.takes_key else []),
        ],
        "responses": {
            str(operation.status): _answer(operation, protocol),
            **{
                str(status): _refused(status, protocol) for status in _statuses(operation, protocol)
            },
        },
    }
    if operation.role is not None:
        security = _AUTHORIZATION_ALONE if protocol.is_authorization_only else _SECURITY
        described |= {"security": security, "x-role": operation.role.value}
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.body_required,
            "content": {"application/json": {"schema": _reference(operation.body)}},
        }
    return described


def _statuses(operation: Operation, protocol: Protocol) -> list[int]:
    at_the_gate = REFUSED_AT_THE_GATE if operation.role is not None else ()
    with_key = (
        (*REFUSED_WITH_KEY, protocol.refusals.status("too_large")) if operation.takes_key else ()
    )
    return sorted({*operation.refusals, *at_the_gate, *with_key})


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


def _answer(operation: Operation, protocol: Protocol) -> dict[str, Any]:
    description: dict[str, Any] = {"description": HTTPStatus(operation.status).phrase}
    if headers := _headers(operation, protocol):
        description["headers"] = _described(headers)
    if operation.media_type:
        return description | {"content": {operation.media_type: {"schema": _SCHEMAS["string"]}}}
    if operation.answer is None:
        return description
    schema: dict[str, Any] = _reference(operation.answer)
    if operation.is_list:
        schema = {"type": "array", "items": schema}
    return description | {"content": {"application/json": {"schema": schema}}}


def _headers(operation: Operation, protocol: Protocol) -> Mapping[str, str]:
    replayed = {REPLAYED: "`true` if the request was done before and this is its answer."}
    return {**protocol.headers, **operation.headers, **(replayed if operation.takes_key else {})}


def _refused(status: int, protocol: Protocol) -> dict[str, Any]:
    assert protocol.problem is not None  # else it is not described
    refusal: dict[str, Any] = {
        "description": HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": _reference(protocol.problem)}},
    }
    return refusal | ({"headers": _described(protocol.headers)} if protocol.headers else {})


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
