"""The routes of proposals, and of what is applied of them."""

from collections.abc import Sequence

from ...http.bodies import WRITTEN
from ...http.protocol import Operation, Parameter
from ...memory.model.access import Role
from ..memory.discovery import BASE
from ..memory.parameters import limit
from ..model.proposals import ArtifactKind, ProposalState
from ..rules.proposals.proposals import Proposals
from ..rules.proposals.rules import ACTIVATION
from . import bodies as b
from . import models as m
from .handlers import ProposalRequests

PROPOSALS, PROPOSAL = f"{BASE}/proposals", f"{BASE}/proposals/{{proposalId}}"
ARTIFACTS, ARTIFACT = f"{BASE}/artifacts", f"{BASE}/artifacts/{{artifactRef}}"

LIMIT = limit(100, 1000)
KIND = Parameter(name="kind", help="Of this kind alone.", choices=tuple(ArtifactKind))


def operations(proposals: Proposals) -> Sequence[Operation]:
    """Every operation on proposals."""
    api = ProposalRequests(proposals=proposals)
    return (
        Operation(
            method="POST", path=PROPOSALS, name="openwop_create_proposal", role=Role.WRITER,
            status=201, summary="Hand in an artifact for review; it is inert.",
            handler=api.create, body=b.ProposalBody, answer=m.ProposalObject, takes_key=True,
            headers=WRITTEN, refusals=(409,),
        ),
        Operation(
            method="GET", path=PROPOSALS, name="openwop_list_proposals", role=Role.READER,
            summary="Proposals, the oldest first.",
            handler=api.list, answer=m.ListedProposals,
            query=(
                Parameter(
                    name="state", help="In this state alone.", choices=tuple(ProposalState)
                ),
                KIND, LIMIT, Parameter(name="after", help="A proposal's id: those after it."),
            ),
        ),
        Operation(
            method="GET", path=PROPOSAL, name="openwop_get_proposal", role=Role.READER,
            summary="One proposal.",
            handler=api.get, answer=m.ProposalObject, refusals=(404,),
        ),
        Operation(
            method="PATCH", path=PROPOSAL, name="openwop_revise_proposal", role=Role.WRITER,
            summary="Replace texts of a proposal; nothing is installed.",
            handler=api.revise, body=b.ProposalChangeBody, answer=m.ProposalObject,
            takes_key=True, headers=WRITTEN, refusals=(404, 409),
        ),
        Operation(
            method="POST", path=f"{PROPOSAL}/apply", name="openwop_apply_proposal",
            role=Role.ADMIN, scope=ACTIVATION,
            summary="Install the stored artifact, byte for byte.",
            handler=api.apply, body=b.ProposalMoveBody, body_required=False,
            answer=m.AppliedProposal, takes_key=True, refusals=(404, 409, 422),
        ),
        Operation(
            method="POST", path=f"{PROPOSAL}/reject", name="openwop_reject_proposal",
            role=Role.WRITER, summary="Decline a proposal.",
            handler=api.reject, body=b.ProposalMoveBody, body_required=False,
            answer=m.ProposalObject, takes_key=True, refusals=(404, 409),
        ),
        Operation(
            method="DELETE", path=PROPOSAL, name="openwop_archive_proposal", role=Role.WRITER,
            summary="Put away a proposal; one that is applied is withdrawn.",
            handler=api.archive, answer=m.ProposalObject, takes_key=True, refusals=(404, 409),
        ),
        Operation(
            method="GET", path=ARTIFACTS, name="openwop_list_artifacts", role=Role.READER,
            summary="What is installed.",
            handler=api.list_artifacts, answer=m.ListedArtifacts,
            query=(KIND, LIMIT, Parameter(name="after", help="A ref: those after it.")),
        ),
        Operation(
            method="GET", path=ARTIFACT, name="openwop_get_artifact", role=Role.READER,
            summary="What is installed under a ref, byte for byte.",
            handler=api.get_artifact, answer=m.ArtifactText, refusals=(404,),
        ),
    )  # fmt: skip
