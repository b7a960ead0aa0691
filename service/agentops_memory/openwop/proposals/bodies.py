"""What bodies of proposals may hold."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from ...http.faults import fault
from ..memory.bodies import CAMEL, Exact, Printable, RunName
from ..rules.proposals.artifacts import MAX_ARTIFACT, compact
from ..rules.proposals.rules import LONGEST_MODEL, LONGEST_RATIONALE, LONGEST_TITLE, MAX_SOURCES

KINDS = Literal["agent-pack", "workflow-chain-pack", "prompt-template", "automation"]
EXAMPLE = {"name": "triage", "version": "1.0.0"}


def _artifact(value: dict[str, Any]) -> dict[str, Any]:
    try:
        text = compact(value)
    except (ValueError, RecursionError):
        raise fault("must be JSON without NUL, lone surrogates and endless numbers") from None
    if len(text.encode()) > MAX_ARTIFACT:
        raise fault(f"has at most {MAX_ARTIFACT:,} bytes of UTF-8")
    return value


Title = Annotated[str, Field(max_length=LONGEST_TITLE), Exact]
Rationale = Annotated[str, Field(max_length=LONGEST_RATIONALE), Exact]
ArtifactObject = Annotated[dict[str, Any], AfterValidator(_artifact), Field(examples=[EXAMPLE])]
ModelName = Annotated[str, Field(min_length=1, max_length=LONGEST_MODEL), Exact, Printable]


class ProposalSources(BaseModel):
    """Where a proposal comes from: runs, and what made it of them."""

    model_config = CAMEL
    source_run_ids: Annotated[list[RunName], Field(max_length=MAX_SOURCES)]
    synthesizer_model: ModelName | None = None


class ProposalBody(BaseModel):
    """A proposal to be made."""

    model_config = CAMEL
    kind: KINDS
    artifact: ArtifactObject
    title: Title | None = None
    rationale: Rationale | None = None
    provenance: ProposalSources


class ProposalChangeBody(BaseModel):
    """What a revision replaces; the rest stays."""

    model_config = CAMEL
    title: Title | None = None
    rationale: Rationale | None = None
    artifact: ArtifactObject | None = None


class ProposalMoveBody(BaseModel):
    """Nothing is asked beside the move."""
