"""Each request in three moves: parse, call, render."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ...http.bodies import JSON, answered, written
from ...http.endpoint import current_caller
from ...http.requests import fitting
from ...memory.idempotency import IdempotentRequest
from ...memory.model.access import Caller
from ...telemetry import Cut, annotate
from ..commitments import Commitments
from ..model.runs import RunId, RunStatus
from ..rules.runs import Runs
from . import bodies as b
from . import wire
from .bodies import BODIES
from .queries import MOST_LISTED, SHOWN, Asked, run_in_path

BEYOND = 2**53  # every sequence
SHOWN_NAME = 100  # code points of a ref, or of an id, in a span


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWop:
    """The handlers of the protocol over the domain."""

    runs: Runs
    commitments: Commitments

    async def open_run(self, request: Request) -> Response:
        given = await BODIES.read(request, b.RunBody, empty=True)
        caller, idempotency = await asked_once(request, "open_run")
        draft = wire.run_draft(given)
        run, is_new = await self.runs.open(caller, draft, idempotency=idempotency)
        annotate({"openwop.run_id": Cut(run.id, SHOWN_NAME)})
        return answered(wire.opened(run), 201 if is_new else 200)

    async def get_run(self, request: Request) -> Response:
        found = await self.runs.get(current_caller(request), run_of(request))
        return answered(wire.run(found))

    async def register_secret(self, request: Request) -> Response:
        given = await BODIES.read(request, b.RunSecretBody)
        caller = current_caller(request)
        done = await self.runs.register(caller, run_of(request), given.secret_id, given.value)
        return answered({"secretId": given.secret_id, "registered": done})

    async def end_run(self, request: Request) -> Response:
        given = await BODIES.read(request, b.RunEndBody)
        caller, idempotency = await asked_once(request, "end_run")
        status = RunStatus(given.status)
        ended = await self.runs.end(caller, run_of(request), status, idempotency=idempotency)
        return answered(wire.run(ended))

    async def list_run_events(self, request: Request) -> Response:
        asked = Asked(request)
        after, limit = asked.after_sequence(), asked.limit(SHOWN, MOST_LISTED)
        asked.done()
        caller = current_caller(request)
        await self.commitments.fire_due(caller)
        log = await self.runs.log(caller, run_of(request), after, limit)
        shown = fitting(written(wire.event(each)) for each in log.events)
        annotate({"memory.result_count": len(shown)})
        is_complete = log.is_complete and len(shown) == len(log.events)
        return _list("events", shown, {"isComplete": is_complete})

    async def list_events(self, request: Request) -> Response:
        asked = Asked(request)
        after, limit = asked.after_event(), asked.limit(SHOWN, MOST_LISTED)
        type_ = asked.text("type")
        asked.done()
        caller = current_caller(request)
        await self.commitments.fire_due(caller)
        events, following = await self.runs.events(caller, after, limit, type_)
        shown = fitting(written(wire.event(each)) for each in events)
        annotate({"memory.result_count": len(shown)})
        if len(shown) < len(events):
            following = events[len(shown) - 1].offset
        return _list("events", shown, {"next": str(following)})

    async def fork_run(self, request: Request) -> Response:
        given = await BODIES.read(request, b.RunForkBody)
        caller, idempotency = await asked_once(request, "fork_run")
        forked = await self.runs.fork(
            caller,
            run_of(request),
            min(given.from_seq or 0, BEYOND),
            is_branch=given.mode == "branch",
            idempotency=idempotency,
        )
        return answered(wire.forked(forked, given.mode), 201)


def _list(name: str, items: Sequence[bytes], beside: wire.JsonObject) -> Response:
    """Items as they are sent, and what else is told beside them."""
    listed = b'{"' + name.encode() + b'":[' + b",".join(items) + b"],"
    return Response(listed + written(beside)[1:], media_type=JSON)


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
