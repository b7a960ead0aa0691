"""OpenWOP's JSON for proposals. Pure."""

from ...http.bodies import present, written
from ...memory.model.access import TenantId
from ...recall.text.json_words import stored_object
from ..memory.wire import JsonObject, rendered
from ..model.proposals import (
    ArtifactKind,
    InstalledArtifact,
    Proposal,
    ProposalChange,
    ProposalDraft,
    ProposalState,
)
from ..rules.proposals.artifacts import compact
from . import bodies as b

NO_ARTIFACT = "{}"  # what is shown of one that is damaged


def draft(given: b.ProposalBody) -> ProposalDraft:
    return ProposalDraft(
        kind=ArtifactKind(given.kind),
        artifact=compact(given.artifact),
        title=given.title,
        rationale=given.rationale,
        source_runs=tuple(given.provenance.source_run_ids),
        synthesizer=given.provenance.synthesizer_model,
    )


def change(given: b.ProposalChangeBody) -> ProposalChange:
    return ProposalChange(
        artifact=None if given.artifact is None else compact(given.artifact),
        title=given.title,
        rationale=given.rationale,
    )


def proposal(of: Proposal, tenant: TenantId) -> bytes:
    """The proposal as it is sent: its artifact is the stored text."""
    before = present({
        "id": of.id,
        "kind": of.kind.value,
        "state": of.state.value,
        "title": of.title,
        "rationale": of.rationale,
    })  # fmt: skip
    artifact = of.artifact if of.is_intact or stored_object(of.artifact) else NO_ARTIFACT
    return b'%b,"artifact":%b,%b' % (
        written(before)[:-1],
        artifact.encode(),
        written(_after(of, tenant))[1:],
    )


def _after(of: Proposal, tenant: TenantId) -> JsonObject:
    """What follows the artifact."""
    source = {"sourceRunIds": list(of.source_runs), "synthesizerModel": of.synthesizer}
    is_applied = of.state is ProposalState.APPLIED
    return {
        "provenance": present(source),
        "duplicateOf": of.duplicate_of,
        "owner": present({"tenant": tenant, "principal": of.principal}),
        **({"activation": applied(of.installed)} if is_applied else {}),
        "createdAt": rendered(of.created_at),
        "updatedAt": rendered(of.updated_at),
    }


def applied(ref: str) -> JsonObject:
    return {"installedArtifactRef": ref}


def installed(of: InstalledArtifact) -> JsonObject:
    return {**applied(of.ref), "kind": of.kind.value, "proposalId": of.proposal}
