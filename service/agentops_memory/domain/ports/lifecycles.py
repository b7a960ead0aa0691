"""The ports of what is beside memories: their lifecycles, and the links of supersession."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from ..model.memory import Links, MemoryId
from ..model.space import Project, Space


class LifecycleTable(Protocol):
    """The lifecycles of memories, as of the transaction's instant."""

    def pins(self, space: Space) -> int:
        """The count of live pinned memories of the space's project, or of all global ones."""

    def release_keys(self, project: Project, into: Project) -> None:
        """Let others take the keys that expired memories of both projects still hold."""

    def unswept(self, limit: int) -> list[MemoryId]:
        """Expired memories in the index, and those out of it that are not expired any more.

        As many as one step may sweep, at most `limit`.
        """

    def sweep(self, memories: Sequence[MemoryId]) -> int:
        """Take the expired ones of these memories out of the index, and put the others in.

        How many were taken out.
        """


class LookalikeTable(Protocol):
    """Pairs of memories that looked alike when the later of them was saved."""

    def of(self, later: MemoryId) -> list[tuple[MemoryId, float]]:
        """The memories that one looked like when it was saved, with their scores, best first."""

    def put(self, later: MemoryId, scores: Mapping[MemoryId, float]) -> None:
        """Replace the pairs of a memory that was just saved; those that are gone are left out."""


class SupersessionTable(Protocol):
    """Links from newer memories to those that they supersede."""

    def of(self, memories: Collection[MemoryId]) -> Mapping[MemoryId, Links]:
        """The links of memories; one without any is left out."""

    def uids(self, memories: Collection[MemoryId]) -> Mapping[MemoryId, tuple[str, ...]]:
        """The stable ids of the live memories that these supersede, in the order of ids."""

    def add(self, newer: MemoryId, older: Iterable[MemoryId]) -> int:
        """Link a memory to those that it supersedes; how many of the links are new."""

    def clear(self, newer: MemoryId, but: Collection[MemoryId]) -> None:
        """Remove the links to all memories that are not among `but`."""

    def leads(self, memories: Collection[MemoryId], to: MemoryId) -> bool:
        """Whether the links lead from one of the memories to another, also by deleted ones."""
