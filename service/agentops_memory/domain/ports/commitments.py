"""The port of commitments."""

from collections.abc import Sequence
from typing import Protocol

from ..model.hosts.commitments import Commitment, CommitmentQuery, Condition
from ..model.memory import MemoryId
from ..model.space import MemoryRef


class CommitmentTable(Protocol):
    """Commitments of entries. One whose source is not live and current is shown as cancelled."""

    def get(self, uid: str) -> Commitment | None:
        """The commitment."""

    def listed(self, query: CommitmentQuery) -> list[Commitment]:
        """The commitments that a query asks for, in the order of their ids."""

    def has_source(self, memory: MemoryId) -> bool:
        """Whether an entry is live, and no live one supersedes it."""

    def armed(self, source: MemoryId, condition: Condition) -> Commitment | None:
        """The armed commitment of an entry with just this condition."""

    def arm(self, source: MemoryId, condition: Condition) -> Commitment:
        """Make a commitment of an entry."""

    def has_due(self) -> bool:
        """Whether the time of an armed one has come."""

    def due(self, most: int) -> list[Commitment]:
        """Armed ones whose time has come, and which are to be fired or cancelled, in order."""

    def met(self, ref: MemoryRef, memory: MemoryId, tags: Sequence[str]) -> list[Commitment]:
        """Armed ones of the ref whose tag a new entry has, and besides it no live one.

        The entry that is the source of one does not count.
        """

    def has_orphans(self) -> bool:
        """Whether the source of an armed one is gone."""

    def orphans(self, most: int) -> list[MemoryId]:
        """Sources of armed ones that are gone."""

    def tags_of(self, source: MemoryId) -> list[str]:
        """What the commitments of an entry wait for, or have waited for."""

    def retag(self, source: MemoryId, tag: str, clean: str) -> None:
        """Replace a tag of the commitments of an entry."""

    def fire(self, commitment: Commitment) -> None:
        """Let an armed one be fired."""

    def cancel(self, commitment: Commitment) -> None:
        """Let one be cancelled if it is armed."""

    def cancel_of(self, sources: Sequence[MemoryId]) -> int:
        """Let the armed ones of these entries be cancelled; how many there were."""
