"""The OpenAPI 3.1 document that is made of the operations of protocols."""

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ..memory.idempotency import LONGEST_KEY
from ..record import Record
from .endpoint import REPLAYED
from .protocol import Operation, Parameter, Protocol, Served
from .requests import KEY_HEADERS

REFUSED_AT_THE_GATE = (400, 401, 403, 429, 503)
REFUSED_WITH_KEY = (400, 404, 408, 409, 507)  # it takes the body and some room; answers are erased
_REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')


def document(described: Sequence[Served], *, title: str, version: str) -> dict[str, Any]:
    table = [
        (operation, protocol) for protocol, operations in described for operation in operations
    ]
    models = {
        model for o, protocol in table for model in (o.answer, o.body, protocol.problem) if model
    }
    _, schemas = models_json_schema(
        [
            (model, "serialization" if issubclass(model, Record) else "validation")
            for model in sorted(models, key=lambda model: model.__name__)
        ],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation, protocol in table:
        path = re.sub(r":\w+}", "}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, protocol)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "tags": [{"name": each.title, "description": each.summary} for each, _ in described],
        "paths": paths,
        "components": {"schemas": _referred_to(paths, schemas["$defs"]), "securitySchemes": _KEYS},
    }


def _referred_to(paths: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas that operations answer and take; without types that are sent as others."""
    found, left = set[str](), [json.dumps(paths)]
    while left:
        new = {*_REFERENCE.findall(left.pop())} - found
        found |= new
        left += [json.dumps(schemas[name]) for name in new]
    return {name: schema for name, schema in schemas.items() if name in found}


def _operation(operation: Operation, protocol: Protocol) -> dict[str, Any]:
    statuses = set(operation.refusals)
    if operation.role is not None:
        statuses.update(REFUSED_AT_THE_GATE)
    if operation.takes_key:
        statuses.update(REFUSED_WITH_KEY, [protocol.refusals.status("too_large")])
    names = [part.split("}")[0] for part in operation.path.split("{")[1:]]
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [protocol.title],
        "summary": operation.summary,
        "parameters": [
            *(
                {"name": it.partition(":")[0], "in": "path", "required": True}
                | {"schema": _SCHEMAS["id" if it == "id" else "string"]}
                for it in names
            ),
            *map(_parameter, operation.query),
            *(_parameter(each, "header") for each in protocol.sends if operation.role is not None),
            *(_parameter(each, "header") for each in operation.sends),
            *([_IDEMPOTENCY_KEY] if operation.takes_key else []),
        ],
        "responses": {
            str(status): _answer(operation, protocol, status)
            for status in (operation.status, operation.status_if_new)
            if status is not None
        }
        | {str(each): _refused(each, protocol) for each in sorted(statuses)},
    }
    if operation.role is not None:
        security = _AUTHORIZATION_ALONE if protocol.is_authorization_only else _SECURITY
        described |= {"security": security, "x-role": operation.role.value}
    if operation.body is not None:
        content = _content(_reference(operation.body))
        described["requestBody"] = {"required": operation.body_required, **content}
    return described


def _parameter(parameter: Parameter, place: str = "query") -> dict[str, Any]:
    schema = _SCHEMAS[parameter.kind]
    if parameter.most is not None:
        limit = "maxItems" if parameter.kind == "strings" else "maximum"
        schema = schema | {limit: parameter.most}
    if parameter.choices:
        schema = schema | {"enum": list(parameter.choices)}
    named = {"name": parameter.name, "in": place, "required": parameter.required}
    return {**named, "description": parameter.help, "schema": schema}


def _answer(operation: Operation, protocol: Protocol, status: int) -> dict[str, Any]:
    headers = {**protocol.headers, **operation.headers}
    if operation.takes_key:
        headers[REPLAYED] = "`true` if the request was done before and this is its stored response."
    described = {"description": HTTPStatus(status).phrase} | _headers(headers)
    if operation.media_type:
        return described | _content(_SCHEMAS["string"], operation.media_type)
    if operation.answer is None:
        return described
    schema = _reference(operation.answer)
    return described | _content({"type": "array", "items": schema} if operation.is_list else schema)


def _refused(status: int, protocol: Protocol) -> dict[str, Any]:
    assert protocol.problem is not None  # else it is not described
    content = _content(_reference(protocol.problem))
    reason = _REASONS.get(status, HTTPStatus(status).phrase)
    return {"description": reason} | content | _headers(protocol.headers)


def _headers(headers: Mapping[str, str]) -> dict[str, Any]:
    described = {
        name: {"description": says, "schema": _SCHEMAS["string"]} for name, says in headers.items()
    }
    return {"headers": described} if described else {}


def _content(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema}}}


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


_REASONS = {
    429: "Too many requests with this key, or too many of its large responses are still unread.",
    503: "Temporarily unavailable, or too many large responses are still unread.",
}

_IDEMPOTENCY_KEY = {
    "name": KEY_HEADERS[0],
    "in": "header",
    "required": False,
    "description": "Repeating a request with the same key within 24 hours does it only once.",
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
    "strings": {"type": "array", "items": {"type": "string"}},
    "words": {"type": "string", "minLength": 1},
    "boolean": {"type": "boolean"},
    "true": {"type": "boolean", "const": True},
    "integer": {"type": "integer"},
    "count": {"type": "integer", "minimum": 1},
    "instant": {"type": "string", "format": "date-time"},
    "id": {"type": "integer", "format": "int64", "minimum": -(1 << 63), "maximum": (1 << 63) - 1},
}
