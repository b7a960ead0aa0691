"""Proposals: artifacts that hosts hand in, inert until one of them is applied (RFC 0096)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple, NewType

ProposalId = NewType("ProposalId", str)
"""`prop_` and the digits of a stable id."""

InstalledRef = NewType("InstalledRef", str)
"""The name of an artifact that was applied; it tells the first digits of its bytes' SHA-256."""

SHOWN_DIGITS = 16  # of the SHA-256


class ArtifactKind(StrEnum):
    """What is proposed."""

    AGENT_PACK = "agent-pack"
    WORKFLOW_CHAIN_PACK = "workflow-chain-pack"
    PROMPT_TEMPLATE = "prompt-template"
    AUTOMATION = "automation"


class ProposalState(StrEnum):
    """Where a proposal is. The last two are ends; what is applied can be archived alone."""

    DRAFT = "draft"
    REVISED = "revised"
    APPLIED = "applied"
    REJECTED = "rejected"
    ARCHIVED = "archived"

    @property
    def is_open(self) -> bool:
        """Whether it can still be revised, applied, rejected or archived."""
        return self in (ProposalState.DRAFT, ProposalState.REVISED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A JSON object as it is stored and installed; equal ones have equal digests."""

    text: str
    checksum: bytes  # SHA-256 of the text
    digest: bytes  # SHA-256 of its canonical form


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalDraft:
    """A proposal to be made; its artifact is compact JSON."""

    kind: ArtifactKind
    artifact: str
    title: str | None = None
    rationale: str | None = None
    source_runs: tuple[str, ...] = ()
    synthesizer: str | None = None  # the model


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalChange:
    """What a revision changes; None leaves a part as it is."""

    artifact: str | None = None
    title: str | None = None
    rationale: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposal as it is stored."""

    number: int
    id: ProposalId
    kind: ArtifactKind
    state: ProposalState
    title: str | None
    rationale: str | None
    artifact: str
    checksum: bytes  # of the artifact, as it was stored
    source_runs: tuple[str, ...]
    synthesizer: str | None
    duplicate_of: str | None  # the id of a proposal, or what is installed of it
    principal: str | None  # the key that made it
    revision: int  # 0 for a new one
    created_at: datetime
    updated_at: datetime

    @property
    def installed(self) -> InstalledRef:
        """How the artifact is named once it is applied."""
        return installed_ref(self.kind, self.id, self.checksum)

    @property
    def is_intact(self) -> bool:
        """Whether the artifact is byte for byte what was stored."""
        return sha256(self.artifact.encode()).digest() == self.checksum


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalQuery:
    """Which proposals are listed, the oldest first; `after` is the id of any."""

    state: ProposalState | None = None
    kind: ArtifactKind | None = None
    after: ProposalId | None = None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalPage:
    """Proposals, and whether there are more to go on with."""

    proposals: Sequence[Proposal] = ()
    has_more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledArtifact:
    """An artifact that was applied."""

    ref: InstalledRef
    kind: ArtifactKind
    proposal: ProposalId


def installed_ref(kind: ArtifactKind, id_: ProposalId, checksum: bytes) -> InstalledRef:
    """The name of an artifact of these bytes."""
    return InstalledRef(f"installed:{kind.value}:{id_}:{checksum.hex()[:SHOWN_DIGITS]}")


def proposal_of(ref: str) -> ProposalId:
    """The proposal that an installed one names; of what is no such name, none that there is."""
    return ProposalId(ref.removeprefix("installed:").partition(":")[2].partition(":")[0])


class ListedProposal(NamedTuple):
    """What is known of a listed proposal before its artifact is read."""

    number: int
    size: int  # bytes of its texts
