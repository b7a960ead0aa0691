"""What a request of the seams says beside its body."""

from typing import Any

from starlette.requests import Request

from agentops_memory.memory.access import Caller
from agentops_memory.openwop.api import BODIES

JsonObject = dict[str, Any]


async def asked_once(request: Request, operation: str) -> Caller:
    """Whose request it is, under its idempotency key, which is of one operation."""
    return await BODIES.caller(request, holder=f"openwop {operation}")
