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

    def has_room(
        self, source: MemoryId, conditions: Sequence[Condition], *, of_tag: int, in_all: int
    ) -> bool:
        """Whether the ref of an entry then has at most so many armed of each tag, and in all."""

    def arm(self, source: MemoryId, conditions: Sequence[Condition]) -> list[Commitment]:
        """Make commitments of an entry."""

    def has_due(self) -> bool:
        """Whether a tag is noted that was met, or the time of an armed one has come."""

    def due(self, most: int) -> list[Commitment]:
        """Armed ones whose time has come, and which are to be fired or cancelled, in order."""

    def meet(self, ref: MemoryRef, memory: MemoryId, tags: Sequence[str]) -> int | None:
        """Note the tags of a new entry that armed ones of the ref wait for; the first note.

        Not where another live entry has the tag, unless that is the source itself. What is armed
        later is not met.
        """

    def met(self, most: int, first: int = 0) -> list[Commitment]:
        """Armed ones that notes tell of, from the first one on, and which are to be fired or
        cancelled: by note, and then in order. The notes of what has no more are gone.
        """

    def has_orphans(self) -> bool:
        """Whether the source of an armed one is gone."""

    def orphans(self, most: int) -> list[MemoryId]:
        """Sources of armed ones that are gone."""

    def tags_of(self, source: MemoryId) -> list[str]:
        """What the commitments of an entry wait for, or have waited for."""

    def retag(self, source: MemoryId, tag: str, clean: str) -> None:
        """Replace a tag of the commitments of an entry."""

    def fire(self, commitments: Sequence[Commitment]) -> None:
        """Note of armed ones that they have fired."""

    def cancel(self, commitments: Sequence[Commitment]) -> None:
        """Cancel those that are armed."""

    def cancel_of(self, sources: Sequence[MemoryId]) -> int:
        """Let the armed ones of these entries be cancelled; how many there were."""
