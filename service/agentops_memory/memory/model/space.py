"""Where memories live: projects and their scopes, and stores; and how much these hold."""

import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, NewType

from ...secrets.redaction import redacted
from .kinds import TRAITS, SpaceKind, Traits

MAX_NAME = 1000  # code points; no longer name is ever stored, so none needs folding
Project = NewType("Project", str)
"""A normalized project name; only `project_name` makes one."""
StoreId = NewType("StoreId", str)
MemoryRef = NewType("MemoryRef", str)
"""How a host names a place; it is compared code point by code point."""
PROJECT_SCOPE = "project"
GLOBAL_SCOPE = "global"
UNKNOWN_PROJECT = Project("unknown")
NO_PROJECT = Project("")  # of the spaces whose kind has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Where memories live: a scope of a project, or what belongs to no project."""

    project: Project
    scope: str = PROJECT_SCOPE
    kind: SpaceKind = SpaceKind.PROJECT

    @classmethod
    def of_store(cls, store: StoreId) -> "Space":
        return cls(project=NO_PROJECT, scope=store, kind=SpaceKind.STORE)

    @classmethod
    def of_ref(cls, uid: str) -> "Space":
        """The space that is a reference of a host, by its stable id."""
        return cls(project=NO_PROJECT, scope=uid, kind=SpaceKind.REF)

    @property
    def traits(self) -> Traits:
        """What its kind has."""
        return TRAITS[self.kind]


def project_name(name: str) -> Project:
    """The normalized name of a project: redacted, NFC, trimmed, lower case."""
    if len(name) > MAX_NAME:
        return Project(name)
    name = redacted(name).text
    if name.isascii():
        return Project(name.strip().lower())
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).strip().lower())
    return Project(folded.strip())


class RowCounts(NamedTuple):
    """How many rows a database has; deleted memories count among `memories` alone."""

    memories: int
    revisions: int
    sessions: int
    sessions_open: int  # of the sessions, those that have not ended
    pinned: int  # of the live memories
    reviews_due: int  # live memories whose own date has passed
    working: int  # entries of agents' memory, those included that have expired
    episodic: int
    semantic: int
    refs: int  # entries of refs, deleted ones included
    runs: int
    runs_open: int


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

    def __bool__(self) -> bool:
        return bool(self.memories or self.sessions)
