"""The addresses of MCP over HTTP, in the order of their roles."""

from starlette.responses import JSONResponse, Response

from ..api.kit.protocol import READ, Operation, Protocol, Services
from ..api.kit.refusals import Refusals
from ..domain.errors import Refusal
from ..domain.model.access import Role

PREFIX = "/mcp"
REFUSED = -32000  # of JSON-RPC: an error of the server's own
REFUSALS = Refusals()


def refused(refusal: Refusal) -> Response:
    """A refusal as an error of JSON-RPC: no client tells another's sentence."""
    error = {"code": REFUSED, "message": str(refusal)}
    content = {"jsonrpc": "2.0", "id": None, "error": error}
    status, headers = REFUSALS.status(refusal.code), REFUSALS.headers_of(refusal)
    return JSONResponse(content, status, headers)


def operations(services: Services) -> tuple[Operation, ...]:
    """Every message needs a reader's key; a tool that changes something needs a writer's."""
    agents = services.agents
    assert agents is not None  # of a service
    return tuple(
        Operation(
            method=method, path=f"{PREFIX}{path}", name=name, summary=summary, handler=handler,
            role=Role.READER, status=status,
        )
        for path in ("/{project:path}", "")
        for method, name, summary, handler, status in (
            ("POST", "mcp", "One message of an agent.", agents.ask, 200),
            ("DELETE", "mcp_end", "The end of an agent's connection.", agents.end, 204),
        )
    )  # fmt: skip


# MCP is described by itself (tools/list) and not by OpenAPI.
PROTOCOL = Protocol(
    title="MCP",
    summary="Memory as tools of agents.",
    prefix=PREFIX,
    operations=operations,
    refused=refused,
    sent=("Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "X-Memory-Project"),
    read=(*READ, "Mcp-Session-Id"),
)
