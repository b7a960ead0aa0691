"""Proposals under the path of the sample host; a suite finds one to act upon."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from starlette.requests import Request
from starlette.responses import Response

from agentops_memory.errors import OverQuota
from agentops_memory.http.bodies import written
from agentops_memory.http.endpoint import current_caller
from agentops_memory.http.protocol import Handler, Operation
from agentops_memory.memory.model.access import Caller, Role
from agentops_memory.openwop.memory.discovery import BASE
from agentops_memory.openwop.model.proposals import (
    ArtifactKind,
    ProposalDraft,
    ProposalQuery,
    ProposalState,
)
from agentops_memory.openwop.proposals import routes as proposal_routes
from agentops_memory.openwop.proposals.routes import PROPOSALS
from agentops_memory.openwop.rules.proposals.proposals import Proposals
from agentops_memory.openwop.rules.turns import Turns

SAMPLE = "/v1/host/sample"

DRAFT = ProposalDraft(
    kind=ArtifactKind.PROMPT_TEMPLATE,
    artifact=written(
        {"templateId": "conformance", "version": "1", "text": "Say what has changed."}
    ).decode(),
    title="A template for tests",
    source_runs=("conformance",),
)


def operations(proposals: Proposals) -> Sequence[Operation]:
    """The operations on proposals, as the sample host has them."""
    return [
        _under_sample(each, proposals)
        for each in proposal_routes.operations(proposals)
        if each.path.startswith(PROPOSALS)
    ]


def _under_sample(operation: Operation, proposals: Proposals) -> Operation:
    handler = operation.handler
    if (operation.method, operation.path) == ("GET", PROPOSALS):
        handler = WithDraft(handler=handler, proposals=proposals).list
    return replace(
        operation,
        path=operation.path.replace(BASE, SAMPLE),
        name=operation.name.replace("openwop_", "openwop_seam_"),
        handler=handler,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WithDraft:
    """The list, in which a writer finds a draft."""

    handler: Handler
    proposals: Proposals
    turns: Turns = field(default_factory=Turns)

    async def list(self, request: Request) -> Response:
        caller = current_caller(request)
        if caller.role.includes(Role.WRITER):
            await self._provide(caller)
        return await self.handler(request)

    async def _provide(self, caller: Caller) -> None:
        query = ProposalQuery(state=ProposalState.DRAFT, limit=1)
        async with self.turns.of(caller):  # one is enough
            if not (await self.proposals.page(caller, query)).proposals:
                with suppress(OverQuota):  # what is there can be read
                    await self.proposals.create(caller, DRAFT)
