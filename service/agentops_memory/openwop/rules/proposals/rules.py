"""What proposals may hold, and what is refused of them."""

from dataclasses import replace

from ....engine.engine import Transaction
from ....errors import BadFields, Conflict, NotFound, Refusal
from ...model.proposals import ArtifactKind, Proposal, ProposalChange, ProposalDraft, ProposalId
from ...sql.proposals import ProposalTable
from ..rules import require_plain
from ..screen import Screen
from .artifacts import MAX_ARTIFACT, missing, screened

LONGEST_TITLE, LONGEST_RATIONALE = 256, 10_000  # code points
LONGEST_MODEL = 256
MAX_SOURCES = 100  # runs
ACTIVATION = "packs:publish"  # the scope that a proposal is applied with; here the role admin
NO_PROPOSAL, NO_ARTIFACT = "proposal not found", "artifact not found"


class ProposalStateConflict(Conflict):
    """The state of a proposal does not allow this move."""

    code = "proposal_state_conflict"

    def __init__(self, sentence: str = "The proposal's state does not allow this.") -> None:
        super().__init__(sentence)


class ArtifactInvalid(Refusal):
    """An artifact that cannot be applied; `missing` are members that its kind needs."""

    code = "artifact_invalid"

    def __init__(self, missing: list[str]) -> None:
        super().__init__("The artifact lacks what its kind needs to be applied.")
        self.missing = missing


def clean_draft(screen: Screen, draft: ProposalDraft) -> ProposalDraft:
    """The draft without secrets; BadFields for names that hold one, and for what grew too long."""
    require_plain(
        screen,
        **{f"provenance.sourceRunIds[{at}]": run for at, run in enumerate(draft.source_runs)},
        **{"provenance.synthesizerModel": draft.synthesizer},
    )
    return replace(
        draft,
        artifact=_artifact(screen, draft.artifact),
        title=_cut(screen, draft.title, LONGEST_TITLE),
        rationale=_cut(screen, draft.rationale, LONGEST_RATIONALE),
    )


def clean_change(screen: Screen, change: ProposalChange) -> ProposalChange:
    """The same, of what a revision changes."""
    return ProposalChange(
        artifact=None if change.artifact is None else _artifact(screen, change.artifact),
        title=_cut(screen, change.title, LONGEST_TITLE),
        rationale=_cut(screen, change.rationale, LONGEST_RATIONALE),
    )


def redacted(screen: Screen, proposal: Proposal) -> Proposal:
    """A stored proposal without secrets, however long its artifact becomes."""
    return replace(
        proposal,
        artifact=screened(screen, proposal.artifact),
        title=_cut(screen, proposal.title, LONGEST_TITLE),
        rationale=_cut(screen, proposal.rationale, LONGEST_RATIONALE),
    )


def known_proposal(tx: Transaction, id_: ProposalId) -> Proposal:
    """The proposal; NotFound."""
    tx.caller.require_refs()
    found = tx[ProposalTable].get(id_)
    if found is None:
        raise NotFound(NO_PROPOSAL)
    return found


def require_complete(kind: ArtifactKind, proposal: Proposal) -> None:
    """Refuse with ArtifactInvalid what lacks something, or is not what was stored."""
    lacks = missing(kind, proposal.artifact)
    if lacks or not proposal.is_intact:
        raise ArtifactInvalid(lacks)


def unknown_after() -> BadFields:
    """The refusal of a page that begins at what is not known."""
    return BadFields([("after", "is the id of nothing that is listed")])


def _artifact(screen: Screen, text: str) -> str:
    clean = screened(screen, text)
    if len(clean.encode()) > MAX_ARTIFACT:
        raise BadFields([("artifact", f"has at most {MAX_ARTIFACT:,} bytes without its secrets")])
    return clean


def _cut(screen: Screen, text: str | None, most: int) -> str | None:
    if text is None:
        return None
    clean = screen.text(text)
    return text if clean == text else clean[:most]
