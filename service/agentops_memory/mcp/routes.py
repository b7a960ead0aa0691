"""The addresses of MCP over HTTP, in the order of their roles."""

from collections.abc import Callable

from pydantic import BaseModel
from starlette.responses import Response

from ..api.endpoint import Api
from ..api.openapi import Operation
from ..domain.access import Role
from ..domain.errors import Refusal
from .http import McpOverHttp

PREFIX = "/mcp"
REFUSALS = (400, 404, 406, 408, 413)


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
        refused=refused,
        problem=problem,
        is_described=False,
    )


def operations(handlers: McpOverHttp) -> tuple[Operation, ...]:
    return tuple(
        Operation(
            method=method, path=f"{PREFIX}{path}", name=name, summary=summary, handler=handler,
            role=Role.READER, status=status, refusals=REFUSALS,
        )
        for path in ("/{project:path}", "")
        for method, name, summary, handler, status in (
            ("POST", "mcp", "One message of an agent.", handlers.ask, 200),
            ("DELETE", "mcp_end", "The end of an agent's connection.", handlers.end, 204),
        )
    )  # fmt: skip
