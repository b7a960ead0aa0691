"""What a request of the seams says beside its body."""

from typing import Any

from starlette.requests import Request

from agentops_memory.memory.access import Caller
from agentops_memory.openwop.api import BODIES, text_in_path
from agentops_memory.openwop.runs import RunId
from agentops_memory.telemetry import Cut, annotate

JsonObject = dict[str, Any]

MOST_LISTED = 1000  # refs, events
SHOWN_NAME = 100  # code points of a ref, or of an id, in a span


async def asked_once(request: Request, operation: str) -> Caller:
    """Whose request it is, under its idempotency key, which is of one operation."""
    return await BODIES.caller(request, holder=f"openwop {operation}")


def run_of(request: Request) -> RunId:
    """The run in the path, which the span tells."""
    run = RunId(text_in_path(request, "runId"))
    annotate({"openwop.run_id": Cut(run, SHOWN_NAME)})
    return run


def noted(ref: str) -> None:
    """The span tells the ref, without its secrets."""
    annotate({"memory.ref": Cut(ref, SHOWN_NAME)})
