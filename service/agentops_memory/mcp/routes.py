"""The addresses of MCP over HTTP, in the order of their roles."""

from collections.abc import Callable

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from ..api.kit.endpoint import Api
from ..api.kit.openapi import Operation
from ..domain.errors import Refusal
from ..domain.model.access import Role
from .http import McpOverHttp

PREFIX = "/mcp"
REFUSED = -32000  # of JSON-RPC: an error of the server's own

_OF_BODY = ("content-length", "content-type")


def protocol(
    handlers: McpOverHttp, refused: Callable[[Refusal], Response], problem: type[BaseModel]
) -> Api:
    """MCP, which is described by itself (tools/list) and not by OpenAPI.

    Every message needs a reader's key; a tool that changes something needs a writer's.
    """
    return Api(
        title="MCP",
        summary="Memory as tools of agents.",
        prefix=PREFIX,
        operations=operations(handlers),
        refused=lambda refusal: as_message(refusal, refused(refusal)),
        problem=problem,
        is_described=False,
    )


def as_message(refusal: Refusal, answer: Response) -> Response:
    """A refusal that was answered as an error of JSON-RPC: no client tells another's sentence."""
    headers = {name: value for name, value in answer.headers.items() if name not in _OF_BODY}
    error = {"code": REFUSED, "message": str(refusal)}
    content = {"jsonrpc": "2.0", "id": None, "error": error}
    return JSONResponse(content, answer.status_code, headers)


def operations(handlers: McpOverHttp) -> tuple[Operation, ...]:
    return tuple(
        Operation(
            method=method, path=f"{PREFIX}{path}", name=name, summary=summary, handler=handler,
            role=Role.READER, status=status,
        )
        for path in ("/{project:path}", "")
        for method, name, summary, handler, status in (
            ("POST", "mcp", "One message of an agent.", handlers.ask, 200),
            ("DELETE", "mcp_end", "The end of an agent's connection.", handlers.end, 204),
        )
    )  # fmt: skip
