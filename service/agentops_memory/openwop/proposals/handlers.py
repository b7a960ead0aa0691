"""Requests about proposals, each in three moves: parse, call, render."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ...http.bodies import JSON, REDACTED, answered, written
from ...http.endpoint import current_caller
from ...http.requests import fitting
from ...memory.idempotency import IdempotentRequest
from ...memory.model.access import Caller
from ...telemetry import annotate
from ..memory.bodies import BODIES
from ..memory.queries import MOST_LISTED, SHOWN, Asked, artifact_in_path, proposal_in_path
from ..model.proposals import ArtifactKind, InstalledRef, Proposal
from ..rules.proposals.proposals import Proposals
from . import bodies as b
from . import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalRequests:
    """The handlers of proposals over the domain."""

    proposals: Proposals

    async def create(self, request: Request) -> Response:
        given = await BODIES.read(request, b.ProposalBody)
        caller, idempotency = await _asked(request, "create_proposal")
        done = await self.proposals.create(caller, wire.draft(given), idempotency=idempotency)
        return _one(done.value, caller, 201, done.redacted)

    async def list(self, request: Request) -> Response:
        asked = Asked(request)
        query = asked.proposals()
        asked.done()
        caller = current_caller(request)
        page = await self.proposals.page(caller, query)
        shown = fitting(wire.proposal(each, caller.tenant) for each in page.proposals)
        has_more = page.has_more or len(shown) < len(page.proposals)
        last = page.proposals[len(shown) - 1] if shown and has_more else None
        return _list("proposals", shown, None if last is None else last.id)

    async def get(self, request: Request) -> Response:
        caller = current_caller(request)
        return _one(await self.proposals.get(caller, proposal_in_path(request)), caller)

    async def revise(self, request: Request) -> Response:
        given, id_ = await BODIES.read(request, b.ProposalChangeBody), proposal_in_path(request)
        caller, idempotency = await _asked(request, "revise_proposal")
        change = wire.change(given)
        done = await self.proposals.revise(caller, id_, change, idempotency=idempotency)
        return _one(done.value, caller, redacted=done.redacted)

    async def apply(self, request: Request) -> Response:
        await BODIES.read(request, b.ProposalMoveBody, empty=True)
        id_ = proposal_in_path(request)
        caller, idempotency = await _asked(request, "apply_proposal")
        ref = await self.proposals.apply(caller, id_, idempotency=idempotency)
        return answered(wire.applied(ref))

    async def reject(self, request: Request) -> Response:
        await BODIES.read(request, b.ProposalMoveBody, empty=True)
        id_ = proposal_in_path(request)
        caller, idempotency = await _asked(request, "reject_proposal")
        return _one(await self.proposals.reject(caller, id_, idempotency=idempotency), caller)

    async def archive(self, request: Request) -> Response:
        id_ = proposal_in_path(request)
        caller, idempotency = await _asked(request, "archive_proposal")
        return _one(await self.proposals.archive(caller, id_, idempotency=idempotency), caller)

    async def list_artifacts(self, request: Request) -> Response:
        asked = Asked(request)
        kind, after = asked.member("kind", ArtifactKind), asked.text("after")
        limit = asked.limit(SHOWN, MOST_LISTED)
        asked.done()
        found, has_more = await self.proposals.artifacts(
            current_caller(request), kind, None if after is None else InstalledRef(after), limit
        )
        shown = [written(wire.installed(each)) for each in found]
        return _list("artifacts", shown, found[-1].ref if has_more else None)

    async def get_artifact(self, request: Request) -> Response:
        text = await self.proposals.artifact(current_caller(request), artifact_in_path(request))
        return Response(text.encode(), media_type=JSON)


def _one(of: Proposal, caller: Caller, status: int = 200, redacted: int = 0) -> Response:
    headers: Mapping[str, str] = {REDACTED: str(redacted)} if redacted else {}
    return Response(wire.proposal(of, caller.tenant), status, headers, media_type=JSON)


def _list(name: str, items: Sequence[bytes], following: str | None) -> Response:
    annotate({"memory.result_count": len(items)})
    beside = b"" if following is None else b',"next":' + written(following)
    return Response(b'{"%b":[%b]%b}' % (name.encode(), b",".join(items), beside), media_type=JSON)


async def _asked(request: Request, operation: str) -> tuple[Caller, IdempotentRequest | None]:
    return await BODIES.caller_and_idempotency(request, holder=f"openwop {operation}")
