"""The shapes of answers about proposals, as OpenAPI describes them."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from ...http.bodies import Instant
from ..memory.models import CAMEL
from ..model.proposals import ArtifactKind, ProposalState


class ProvenanceOfProposal(BaseModel):
    """Where a proposal comes from."""

    model_config = CAMEL
    source_run_ids: list[str]
    synthesizer_model: str | None = None


class ProposalOwner(BaseModel):
    """Whose a proposal is; the principal is the key that made it."""

    tenant: str
    principal: str | None = None


class ProposalActivation(BaseModel):
    """What is installed of a proposal that is applied."""

    model_config = CAMEL
    installed_artifact_ref: str


class ProposalObject(BaseModel):
    """A proposal."""

    model_config = CAMEL
    id: str
    kind: ArtifactKind
    state: ProposalState
    title: str | None = None
    rationale: str | None = None
    artifact: dict[str, Any]
    provenance: ProvenanceOfProposal
    duplicate_of: str | None
    owner: ProposalOwner
    activation: ProposalActivation | None = None
    created_at: Instant
    updated_at: Instant


class ListedProposals(BaseModel):
    """Proposals, the oldest first; `next` is the id to go on with."""

    proposals: list[ProposalObject]
    next: str | None = None


class AppliedProposal(BaseModel):
    """What was installed."""

    model_config = CAMEL
    installed_artifact_ref: str


class InstalledArtifactObject(BaseModel):
    """An artifact that is installed, and the proposal that it was."""

    model_config = CAMEL
    installed_artifact_ref: str
    kind: ArtifactKind
    proposal_id: str


class ListedArtifacts(BaseModel):
    """What is installed; `next` is the ref to go on with."""

    artifacts: list[InstalledArtifactObject]
    next: str | None = None


class ArtifactText(BaseModel):
    """An artifact, byte for byte as it was stored: an object of any members."""

    model_config = ConfigDict(extra="allow")
