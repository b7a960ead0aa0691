"""What handlers of other nouns share."""

from starlette.requests import Request

from ...memory.idempotency import IdempotentRequest
from ...memory.model.access import Caller
from ...telemetry import Cut, annotate
from ..api import BODIES
from ..runs import RunId
from .queries import run_in_path

SHOWN_NAME = 100  # code points of a ref, or of an id, in a span


async def asked_once(request: Request, operation: str) -> tuple[Caller, IdempotentRequest | None]:
    """Whose request it is, and it under its idempotency key, which is of one operation."""
    return await BODIES.caller_and_idempotency(request, holder=f"openwop {operation}")


def run_of(request: Request) -> RunId:
    """The run in the path, which the span tells."""
    run = run_in_path(request)
    annotate({"openwop.run_id": Cut(run, SHOWN_NAME)})
    return run


def noted(
    ref: str, *, run: str | None = None, node: str | None = None, entry: str | None = None
) -> None:
    """What the span tells: names alone, each with its secrets taken out."""
    names = {
        "memory.ref": ref,
        "openwop.run_id": run,
        "openwop.node_id": node,
        "memory.entry.id": entry,
    }
    annotate({name: None if it is None else Cut(it, SHOWN_NAME) for name, it in names.items()})
