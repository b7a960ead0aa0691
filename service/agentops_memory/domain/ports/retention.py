"""The ports of retention: the sweep of old rows, and the receipts of erasures."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ..model.erasure import Erasure, ErasureId
from ..model.kinds import SpaceKind
from ..model.memory import MemoryId
from ..model.retention import Kind
from ..model.space import Project

MAX_ROWS = 200  # memories and revisions that go in one step; saves wait for it
MAX_STEP = 1024 * 1024  # characters of content that one step of a long change touches


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasable:
    """A deleted or expired memory past its retention; `is_long` if its history exceeds one step."""

    memory: MemoryId
    project: Project
    kind: SpaceKind  # of its space
    is_long: bool


class RetentionTable(Protocol):
    """Rows past their retention, in steps short enough for saves to wait."""

    def memories(self, kind: Kind, until: datetime, most: int) -> list[MemoryId]:
        """Memories deleted, or expired and unchanged, by then; at most `most`.

        None of a store that is being erased.
        """

    def first(self, kind: Kind, memories: Sequence[MemoryId], until: datetime) -> list[Erasable]:
        """Those of the memories that still are, as many as one step may erase.

        A long one is returned alone, after all others.
        """

    def with_history(self, keep: int, most: int) -> list[MemoryId]:
        """Memories of projects with more than `keep` revisions, at most `most`."""

    def trim(self, memories: Sequence[MemoryId], keep: int) -> int:
        """Remove revisions beyond the newest `keep`, oldest first, and their versions; one step.

        How many were removed; 0 when none is left.
        """


class ReceiptTable(Protocol):
    """The receipts of erasures, of all projects; the domain checks who may see one."""

    def add(self, erasure: Erasure) -> None:
        """Store a receipt, in the transaction that erases."""

    def add_of_agents(self, erasure: ErasureId) -> None:
        """Store one for all that this transaction removes of agents; it goes once it is settled."""

    def extend(self, erasure: ErasureId, memories: Collection[MemoryId], revisions: int) -> None:
        """Add erased memories and a count of revisions to a receipt."""

    def complete(self, erasure: ErasureId, sessions: int) -> None:
        """Mark an erasure as complete, with the count of erased sessions."""

    def newest_of(self, project: Project) -> Erasure | None:
        """The receipt of the newest erasure of a whole project with this name."""

    def get(self, erasure: ErasureId) -> Erasure | None:
        """The receipt."""

    def of(self, memory: MemoryId) -> Erasure | None:
        """The receipt of the erasure that removed a memory; not one of a redaction."""

    def settled(self, until: datetime, most: int) -> list[ErasureId]:
        """The erasures settled by then, oldest first, at most `most`."""

    def forget(self, erasure: ErasureId, most: int) -> int:
        """Remove a receipt, or at most `most` of its memories; how many rows were removed."""
