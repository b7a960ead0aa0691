"""The service's description of itself: OpenAPI, the page that shows it, and metrics."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from .. import __version__
from ..errors import Denied
from ..memory.access import DEFAULT_TENANT, Role
from ..memory.idempotency import LONGEST_KEY
from ..record import Record
from .bodies import JSON, KEY_HEADERS
from .gate import REPLAYED, Gate, PlainEndpoint
from .protocol import Handler, Operation, Parameter, Protocol, Served, template

REFUSED_AT_THE_GATE = (400, 401, 403, 429, 503)
# With a key, the body is read and a record stored; a stored answer may have been erased.
REFUSED_WITH_KEY = (400, 404, 408, 409, 507)
_SCHEMA_REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')


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
        methods = paths.setdefault(template(operation.path), {})
        methods[operation.method.lower()] = _operation(operation, protocol)
    # Only the schemas that the operations refer to, directly or through other schemas.
    names, left = set[str](), [json.dumps(paths)]
    while left:
        new = {*_SCHEMA_REFERENCE.findall(left.pop())} - names
        names |= new
        left += [json.dumps(schemas["$defs"][name]) for name in new]
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "tags": [{"name": each.title, "description": each.summary} for each, _ in described],
        "paths": paths,
        "components": {
            "schemas": {name: it for name, it in schemas["$defs"].items() if name in names},
            "securitySchemes": _KEYS,
        },
    }


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
        security = _AUTHORIZATION_ONLY if protocol.is_authorization_only else _SECURITY
        described |= {"security": security, "x-role": operation.role.value}
    if operation.body is not None:
        content = _content(_reference(operation.body))
        described["requestBody"] = {"required": operation.body_required, **content}
    return described


def _parameter(parameter: Parameter, location: str = "query") -> dict[str, Any]:
    schema = _SCHEMAS[parameter.kind]
    if parameter.most is not None:
        limit = "maxItems" if parameter.kind == "strings" else "maximum"
        schema = schema | {limit: parameter.most}
    if parameter.choices:
        schema = schema | {"enum": list(parameter.choices)}
    named = {"name": parameter.name, "in": location, "required": parameter.required}
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
        name: {"description": it, "schema": _SCHEMAS["string"]} for name, it in headers.items()
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

# The empty alternative is for a service without keys.
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}, {"basic": []}, {}]
_AUTHORIZATION_ONLY: list[dict[str, list[str]]] = [{"bearer": []}, {"basic": []}, {}]
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


TITLE = "agentops-memory"
PARTIAL = "Metrics cover all tenants: they need a key of the tenant default for every project."


class Description(BaseModel):
    """An API in OpenAPI 3.1."""

    openapi: str
    info: dict[str, Any]
    tags: list[dict[str, str]]
    paths: dict[str, Any]
    components: dict[str, Any]


def documentation(
    served: Sequence[Served], more: Sequence[Operation], gate: Gate
) -> Iterator[Route]:
    """Yield the routes outside the protocols; OpenAPI lists them with the last protocol."""

    @cache  # built on demand: it takes longer than the rest of the start
    def described() -> bytes:
        *others, (last, operations) = served
        every = [(last, [*operations, *own]), *others]
        documented = [each for each in every if each[0].problem is not None]
        return bytes(JSONResponse(document(documented, title=TITLE, version=__version__)).body)

    async def openapi(request: Request) -> Response:
        gate.admit(request, Role.READER)
        return Response(await asyncio.to_thread(described), media_type=JSON)

    async def docs(_: Request) -> Response:
        page = _page_file(PAGE / "page.html")  # for any caller; its script asks for a key
        page.headers["Content-Security-Policy"] = PAGE_POLICY
        return page

    operation = partial(Operation, method="GET")
    own = [
        *more,
        operation(
            path="/openapi.json", name="openapi", summary="This description, in OpenAPI 3.1.",
            handler=openapi, answer=Description, role=Role.READER, refusals=(503,),
        ),
        operation(
            path="/docs", name="docs", summary="This description, on a page.", handler=docs,
            media_type="text/html",
        ),
    ]  # fmt: skip
    handlers: dict[str, Handler] = {it.path: it.handler for it in own}
    handlers |= {path: partial(_load, file) for path, file in PAGE_FILES.items()}
    for path, handler in handlers.items():
        yield Route(path, PlainEndpoint(handler, gate), methods=["GET"])


def scrape(
    refresh: Callable[[], Awaitable[None]],
    exposition: Callable[[str], tuple[bytes, str]],  # for a header Accept
    gate: Gate,
    *,
    is_open: bool,
) -> Operation:
    """Return the endpoint of all tenants' metrics, for the default tenant only unless `is_open`."""

    async def metrics(request: Request) -> Response:
        if not is_open:
            caller = gate.admit(request, Role.READER, is_limited=False)
            if caller.tenant != DEFAULT_TENANT or not caller.projects.are_everything:
                raise Denied(PARTIAL)
        await refresh()
        accept = request.headers.get("accept", "")
        text, media_type = await asyncio.to_thread(exposition, accept)
        return Response(text, media_type=media_type)

    return Operation(
        method="GET", path="/metrics", name="metrics",
        summary="Metrics, in the text format of Prometheus or as OpenMetrics.",
        handler=metrics, media_type="text/plain", role=None if is_open else Role.READER,
        refusals=() if is_open else (503,),
    )  # fmt: skip


PAGE = Path(__file__).parent / "docs_page"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Not guessed: with `nosniff`, a browser runs no script of another type.
TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript"}


PAGE_FILES = {
    f"/docs/{Path(name).name}": PAGE / name
    for name in ("page.js", "viewer/swagger-ui.css", "viewer/index.css",
                 "viewer/swagger-ui-bundle.js")
}  # fmt: skip


def _page_file(path: Path) -> FileResponse:
    return FileResponse(path, media_type=TYPES[path.suffix])


async def _load(path: Path, _: Request) -> Response:
    return _page_file(path)  # for any caller: a browser sends no key with files that a page loads
