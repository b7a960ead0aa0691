"""How much is stored: in all, and of a project."""

from dataclasses import dataclass
from datetime import datetime

from .space import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """How many rows a database has; deleted memories count."""

    memories: int
    revisions: int
    sessions: int
    sessions_open: int  # of the sessions, those that have not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How much is stored."""

    sessions: int
    memories: int
    projects: tuple[Project, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A project in the list of all; `memories` are the live ones."""

    project: Project
    memories: int
    sessions: int
    changed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """All that a project holds. Deleted memories are counted among the memories, too.

    Its shared sessions are those of its own in which memories of other projects lie.
    """

    memories: int
    deleted: int
    revisions: int
    sessions: int
    shared_sessions: int
    imported: int  # rows of accepted imports that are not stored yet

    def __bool__(self) -> bool:
        return bool(self.memories or self.sessions or self.imported)
