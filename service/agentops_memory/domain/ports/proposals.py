"""The port of proposals."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ..model.hosts.proposals import (
    Artifact,
    ArtifactKind,
    InstalledArtifact,
    Proposal,
    ProposalDraft,
    ProposalId,
    ProposalQuery,
    ProposalState,
)


class ListedProposal(NamedTuple):
    """What is known of a listed proposal before its artifact is read."""

    number: int
    size: int  # bytes of its texts


class ProposalTable(Protocol):
    """Proposals and what was applied of them. Nothing removes one."""

    def add(self, draft: ProposalDraft, artifact: Artifact, principal: str | None) -> Proposal:
        """Insert a new one, as a draft."""

    def get(self, id_: ProposalId) -> Proposal | None:
        """The proposal."""

    def listed(self, query: ProposalQuery) -> Iterator[ListedProposal] | None:
        """Those that a query asks for, the oldest first; None for an unknown `after`.

        Its limit is the domain's.
        """

    def some(self, numbers: Sequence[int]) -> list[Proposal]:
        """The proposals with these numbers, in their order."""

    def move(self, proposal: Proposal, state: ProposalState) -> Proposal:
        """Let a proposal be in another state from now on."""

    def revise(self, proposal: Proposal, artifact: Artifact | None) -> Proposal:
        """Replace the texts, and the artifact where there is one, in the next revision.

        The state is the proposal's; a new artifact comes after all that there are.
        """

    def redact(self, proposal: Proposal, artifact: Artifact | None) -> None:
        """Replace the texts in the next revision, that of the artifact, too.

        Its sums are those of the artifact; without one they stay, and tell that it is damaged.
        """

    def installed(
        self, kind: ArtifactKind | None, after: ProposalId | None, limit: int
    ) -> list[InstalledArtifact] | None:
        """What is applied, in order of its proposals; None for an unknown `after`."""

    def every(self, after: int, most: int) -> list[ListedProposal]:
        """Proposals after a number, in order."""

    def total(self) -> int:
        """How many there are."""
