"""Requests about commitments in three moves: parse, call, render."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ...http.bodies import JSON, answered, written
from ...http.endpoint import current_caller
from ...http.requests import fitting
from ...telemetry import annotate
from ..memory.bodies import BODIES
from ..memory.handlers import asked_once, noted
from ..memory.queries import Asked, text_in_path
from ..model.commitments import CommitmentId
from ..rules.commitments import Commitments
from . import wire
from .bodies import CommitmentBody


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentHandlers:
    """The handlers over the domain. What is due has fired before anything is told of it."""

    commitments: Commitments

    async def create_commitment(self, request: Request) -> Response:
        draft = wire.draft(await BODIES.read(request, CommitmentBody))
        noted(draft.ref, entry=draft.entry)
        caller, idempotency = await asked_once(request, "create_commitment")
        done = await self.commitments.arm(caller, draft, idempotency=idempotency)
        shown = wire.commitment(done.value)
        return answered(shown, 201 if done.is_new else 200, redacted=done.redacted)

    async def list_commitments(self, request: Request) -> Response:
        query, caller = Asked(request).commitments(), current_caller(request)
        if query.ref is not None:
            noted(query.ref)
        await self.commitments.fire_due(caller)
        found, has_more = await self.commitments.list(caller, query)
        shown = fitting(written(wire.commitment(each)) for each in found)
        annotate({"memory.result_count": len(shown)})
        listed = b'{"commitments":[' + b",".join(shown) + b"]"
        if shown and (has_more or len(shown) < len(found)):
            listed += b',"next":' + written(found[len(shown) - 1].id)
        return Response(listed + b"}", media_type=JSON)

    async def get_commitment(self, request: Request) -> Response:
        caller = current_caller(request)
        await self.commitments.fire_due(caller)
        found = await self.commitments.get(caller, _commitment(request))
        return answered(wire.commitment(found))

    async def cancel_commitment(self, request: Request) -> Response:
        caller, idempotency = await asked_once(request, "cancel_commitment")
        id_ = _commitment(request)
        left = await self.commitments.cancel(caller, id_, idempotency=idempotency)
        return answered(wire.commitment(left))


def _commitment(request: Request) -> CommitmentId:
    return CommitmentId(text_in_path(request, "commitmentId"))
