"""What the record tables ask of the full-text index, so that it follows what they change."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ...domain.model.memory import MemoryId
from ...domain.model.space import Space

GLOBAL_AREA = 0  # of the global memories of every project


class Index(Protocol):
    """The index of one transaction; only live memories are in it.

    A project, and a store, has an area of its own in it. Areas lie in partitions.
    """

    def place(self, space: Space) -> tuple[int, int | None]:
        """The area and the partition for a new space: its project's, or new ones."""

    def prepare(self, area: int) -> None:
        """Make sure that an area can be written to, before there is anything to write."""

    def add(self, memory: MemoryId, area: int, size: int) -> None:
        """Index a memory that is new, the newest of all, and of so many characters."""

    def in_bulk(self) -> AbstractContextManager[None]:
        """Inside, new memories are indexed many at a time."""

    def updating(self, memory: MemoryId) -> AbstractContextManager[None]:
        """Bring the index in line with what is done to a memory inside."""

    def moving(self, memories: Sequence[MemoryId]) -> AbstractContextManager[None]:
        """Bring the index in line with memories that move inside, and keep their words."""

    def merge_area(self, area: int, partition: int, into: int) -> None:
        """Let what is left of an area be another's, which has its memories by now."""

    def remove(self, memories: Sequence[MemoryId]) -> None:
        """Take out memories that are about to be erased, and that no other borrows from."""

    def mark_for_purge(self, memory: MemoryId) -> None:
        """Note that words of a memory are to leave the storage of the index for good."""
