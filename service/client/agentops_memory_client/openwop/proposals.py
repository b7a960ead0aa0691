"""Proposals: artifacts that nothing uses until somebody applies them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import AwareDatetime, ConfigDict

from ..contract.call import Call, listed, present
from .models import CAMEL
from .part import AsyncPart, sent
from .question import asking, member, noun, parameters, telling

PROPOSALS = "proposals"

ArtifactKind = Literal["agent-pack", "workflow-chain-pack", "prompt-template", "automation"]
ProposalState = Literal["draft", "revised", "applied", "rejected", "archived"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalProvenance:
    """What a proposal was made of: runs, and the model that made it."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    source_run_ids: tuple[str, ...]
    synthesizer_model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalOwner:
    """Whose a proposal is: a tenant's, by the id of the key that created it."""

    tenant: str
    principal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalActivation:
    """What is installed of a proposal that is applied."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    installed_artifact_ref: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An artifact as it is proposed: without secrets, and inert until it is `applied`."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    id: str
    kind: str
    state: str
    title: str | None = None
    rationale: str | None = None
    artifact: Mapping[str, Any] = field(hash=False)
    provenance: ProposalProvenance
    duplicate_of: str | None = None  # what has an equal artifact
    owner: ProposalOwner
    activation: ProposalActivation | None = None  # while it is applied
    created_at: AwareDatetime
    updated_at: AwareDatetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalPage:
    """Proposals, oldest first; `next` is what `after` takes, if there are more."""

    proposals: tuple[Proposal, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledArtifact:
    """An artifact that was applied, by the ref under which its bytes are."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    installed_artifact_ref: str
    kind: str
    proposal_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactPage:
    """Installed artifacts; `next` is what `after` takes, if there are more."""

    artifacts: tuple[InstalledArtifact, ...]
    next: str | None = None


class AsyncProposals(AsyncPart):
    """Proposals of a tenant, and the artifacts of those that were applied."""

    @sent
    def create(
        self,
        kind: ArtifactKind,
        artifact: dict[str, Any],
        *,
        source_run_ids: Sequence[str],
        synthesizer_model: str | None = None,
        title: str | None = None,
        rationale: str | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Proposal]:
        """Propose an artifact, an object of JSON of at most 262,144 bytes; it installs nothing."""
        made_of = {"sourceRunIds": listed(source_run_ids), "synthesizerModel": synthesizer_model}
        fields = {
            "kind": kind, "artifact": artifact, "title": title, "rationale": rationale,
            "provenance": present(made_of),
        }  # fmt: skip
        return telling(
            "create_proposal", PROPOSALS, body=fields, key=idempotency_key, read=noun(Proposal)
        )

    @sent
    def list(
        self,
        *,
        state: ProposalState | None = None,
        kind: ArtifactKind | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Call[ProposalPage]:
        """Proposals, oldest first: at most 1,000, or 100 unless told."""
        query = parameters(state=state, kind=kind, limit=limit, after=after)
        return asking("list_proposals", PROPOSALS, query=query, read=noun(ProposalPage))

    @sent
    def get(self, proposal_id: str) -> Call[Proposal]:
        """The proposal. NotFound if there is none."""
        return asking("get_proposal", PROPOSALS, proposal_id, read=noun(Proposal))

    @sent
    def revise(
        self,
        proposal_id: str,
        *,
        title: str | None = None,
        rationale: str | None = None,
        artifact: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Proposal]:
        """Change what is given of a proposal, which is then `revised`.

        Conflict if it is applied, rejected or archived (`proposal_state_conflict`).
        """
        fields: dict[str, object] = {"title": title, "rationale": rationale, "artifact": artifact}
        return telling(
            "revise_proposal", PROPOSALS, proposal_id, method="PATCH", body=fields,
            key=idempotency_key, read=noun(Proposal),
        )  # fmt: skip

    @sent
    def apply(self, proposal_id: str, *, idempotency_key: str | None = None) -> Call[str]:
        """Install the artifact, and answer the ref under which its bytes are; again: the same.

        Denied without the role admin; Invalid for an artifact that lacks what its kind
        needs (`artifact_invalid`); Conflict if it is rejected or archived.
        """
        return telling(
            "apply_proposal", PROPOSALS, proposal_id, "apply", body={}, key=idempotency_key,
            read=member("installedArtifactRef", str),
        )  # fmt: skip

    @sent
    def reject(self, proposal_id: str, *, idempotency_key: str | None = None) -> Call[Proposal]:
        """Refuse the proposal for good. Conflict if it is applied or archived."""
        return telling(
            "reject_proposal", PROPOSALS, proposal_id, "reject", body={}, key=idempotency_key,
            read=noun(Proposal),
        )  # fmt: skip

    @sent
    def archive(self, proposal_id: str, *, idempotency_key: str | None = None) -> Call[Proposal]:
        """Put the proposal away; of an applied one the artifact is withdrawn."""
        return telling(
            "archive_proposal", PROPOSALS, proposal_id, method="DELETE", key=idempotency_key,
            read=noun(Proposal),
        )  # fmt: skip

    @sent
    def artifacts(
        self,
        *,
        kind: ArtifactKind | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Call[ArtifactPage]:
        """What is installed, of proposals that are applied: at most 1,000, or 100 unless told."""
        query = parameters(kind=kind, limit=limit, after=after)
        return asking("list_artifacts", "artifacts", query=query, read=noun(ArtifactPage))

    @sent
    def artifact(self, installed_artifact_ref: str) -> Call[bytes]:
        """The bytes of an installed artifact, as they were stored. NotFound if there is none."""
        return asking(
            "get_artifact", "artifacts", installed_artifact_ref, read=lambda body, _: body
        )
