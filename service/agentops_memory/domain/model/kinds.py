"""The kinds of spaces with the traits of each, and the kinds of erasures."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ErasureKind(StrEnum):
    """What was erased."""

    OBSERVATION = "observation"
    PROJECT = "project"
    REDACTION = "redaction"
    STORE = "store"


class SpaceKind(StrEnum):
    """What a space is."""

    PROJECT = "project"  # a scope of one
    STORE = "store"


class IndexGroup(StrEnum):
    """Spaces whose words lie together in the index: no group counts in the ranks of another."""

    PROJECTS = "projects"
    STORES = "stores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a kind of space has, and what is done with it. A new kind is a row of TRAITS."""

    has_project: bool  # it is named within a project, and shares the project's area of the index
    has_sessions: bool  # each of its memories is an observation, of a session
    has_entries: bool  # each of its memories is an entry of a store: at a path, with versions
    keeps_every_revision: bool
    index: IndexGroup
    erasure: ErasureKind  # what the receipt calls memories past their retention


TRAITS: Mapping[SpaceKind, Traits] = {
    SpaceKind.PROJECT: Traits(
        has_project=True,
        has_sessions=True,
        has_entries=False,
        keeps_every_revision=False,
        index=IndexGroup.PROJECTS,
        erasure=ErasureKind.OBSERVATION,
    ),
    SpaceKind.STORE: Traits(
        has_project=False,
        has_sessions=False,
        has_entries=True,
        keeps_every_revision=True,
        index=IndexGroup.STORES,
        erasure=ErasureKind.STORE,
    ),
}
