"""Proposals under the path of the sample host; a suite finds one to act upon."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from agentops_memory.http.gate import current_caller
from agentops_memory.http.protocol import Handler, Operation
from agentops_memory.memory.access import Caller, Role
from agentops_memory.openwop import proposals as of_proposals
from agentops_memory.openwop.api import BASE, Page, Serving
from agentops_memory.openwop.proposals import PROPOSALS, ProposalBody, ProposalState

SAMPLE = "/v1/host/sample"

DRAFT = ProposalBody.model_validate({
    "kind": "prompt-template",
    "artifact": {"templateId": "conformance", "version": "1", "text": "Say what has changed."},
    "title": "A template for tests",
    "provenance": {"sourceRunIds": ["conformance"]},
})  # fmt: skip


def operations(serving: Serving) -> Sequence[Operation]:
    """The operations on proposals, as the sample host has them."""
    return [
        _under_sample(each, serving)
        for each in of_proposals.operations(serving)
        if each.path.startswith(PROPOSALS)
    ]


def _under_sample(operation: Operation, serving: Serving) -> Operation:
    handler = operation.handler
    if (operation.method, operation.path) == ("GET", PROPOSALS):
        handler = WithDraft(handler=handler, serving=serving).list
    return replace(
        operation, path=operation.path.replace(BASE, SAMPLE),
        name=operation.name.replace("openwop_", "openwop_seam_"), handler=handler,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WithDraft:
    """The list, in which a writer finds a draft."""

    handler: Handler
    serving: Serving

    async def list(self, request: Request) -> Response:
        caller = current_caller(request)
        if caller.role.includes(Role.WRITER) and not (await self._drafts(caller)).items:
            await of_proposals.create(self.serving, caller, body=DRAFT)
        return await self.handler(request)

    def _drafts(self, caller: Caller) -> Awaitable[Page]:
        listing, state = of_proposals.list_proposals, ProposalState.DRAFT
        return listing(self.serving, caller, state=state, limit=1)
