"""What the domain asks of storage about what is past its retention."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ..model.memory import MemoryId
from ..model.space import Project

MAX_ROWS = 200  # memories and revisions that go in one step; saves wait for it
MAX_STEP = 1024 * 1024  # characters of content that one step of a long change touches


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """A deleted memory that goes; `is_long` says that its history is too much for one step."""

    memory: MemoryId
    project: Project  # none of an entry of a store
    is_long: bool


class RetentionTable(Protocol):
    """What is past its retention; little enough at a time that saves may wait for it."""

    def deleted(self, until: datetime, most: int) -> list[MemoryId]:
        """Memories that were deleted by then, at most so many; not of a store that is going."""

    def first_deleted(self, memories: Sequence[MemoryId], until: datetime) -> list[Deleted]:
        """Those of the memories that are so still, as many as go in one step.

        One that is long comes alone, and before none that goes whole.
        """

    def with_history(self, keep: int, most: int) -> list[MemoryId]:
        """Memories of projects that have more revisions than that, at most so many."""

    def trim(self, memories: Sequence[MemoryId], keep: int) -> int:
        """Remove revisions beyond the newest `keep`, oldest first, as many as go in one step.

        With them goes what a store tells of them. How many went; 0 if nothing is left to remove.
        """
