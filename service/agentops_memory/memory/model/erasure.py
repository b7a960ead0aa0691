"""Erasures: what was erased, and whether its bytes have left the storage."""

from dataclasses import dataclass
from datetime import datetime
from typing import NewType

from .kinds import ErasureKind, SpaceKind
from .memory import MemoryId
from .space import Project

ErasureId = NewType("ErasureId", str)

UNKNOWN_COPIES = (
    "backups, replicas and snapshots of the database file",
    "exports, and what agents, traces and logs were told",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The receipt of an erasure; the bytes have left the file once `bytes_gone_at` is known.

    It names the memories, at most a thousand, and counts what went. It holds nothing
    of what they said. The erasure of a project goes on until all of it is gone.
    """

    id: ErasureId
    kind: ErasureKind
    project: Project
    memories: tuple[MemoryId, ...] = ()
    observations: int = 0
    revisions: int = 0
    sessions: int = 0
    erased_at: datetime
    bytes_gone_at: datetime | None = None
    goes_on: bool = False

    @property
    def has_project(self) -> bool:
        """Whether it happened in a project."""
        return bool(self.project)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """An erasure, and where what was erased may still be."""

    erasure: Erasure
    copies_not_reached: tuple[str, ...]


MAX_ROWS = 200  # memories and revisions that go in one step; saves wait for it
MAX_STEP = 1024 * 1024  # characters of content that one step of a long change touches


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasable:
    """A deleted or expired memory past its retention; `is_long` if its history exceeds one step."""

    memory: MemoryId
    project: Project
    kind: SpaceKind  # of its space
    is_long: bool
