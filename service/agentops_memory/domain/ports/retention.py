"""The port of the retention sweep."""

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
    """A soft-deleted memory past its retention; `is_long` if its history exceeds one step."""

    memory: MemoryId
    project: Project  # none of an entry of a store
    is_long: bool


class RetentionTable(Protocol):
    """Rows past their retention, in steps short enough for saves to wait."""

    def deleted(self, until: datetime, most: int) -> list[MemoryId]:
        """Memories deleted by then, at most `most`; none of a store that is being erased."""

    def first_deleted(self, memories: Sequence[MemoryId], until: datetime) -> list[Deleted]:
        """Those of the memories that still are deleted, as many as one step may erase.

        A long one is returned alone, after all others.
        """

    def with_history(self, keep: int, most: int) -> list[MemoryId]:
        """Memories of projects with more than `keep` revisions, at most `most`."""

    def trim(self, memories: Sequence[MemoryId], keep: int) -> int:
        """Remove revisions beyond the newest `keep`, oldest first, and their versions; one step.

        How many were removed; 0 when none is left.
        """
