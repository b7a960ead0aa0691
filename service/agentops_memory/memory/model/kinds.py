"""The kinds of spaces with the traits of each, their groups in the index, the kinds of erasures."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum


class ErasureKind(StrEnum):
    """What was erased."""

    OBSERVATION = "observation"
    PROJECT = "project"
    REDACTION = "redaction"
    STORE = "store"
    AGENT = "agent"
    REF = "ref"
    SUBJECT = "subject"  # of a host: all that was about it


class SpaceKind(StrEnum):
    """What a space is."""

    PROJECT = "project"  # a scope of one
    STORE = "store"
    WORKING = "working"  # of an agent, in a namespace
    EPISODIC = "episodic"  # the same
    SEMANTIC = "semantic"  # a namespace, of all agents
    REF = "ref"  # a reference of a host


class IndexGroup(StrEnum):
    """Spaces whose words lie together in the index: no group counts in the ranks of another."""

    PROJECTS = "projects"
    STORES = "stores"  # and refs
    AGENTS = "agents"  # each area by itself: nobody learns of others' words


class History(Enum):
    """Which revisions of a memory are kept."""

    EVERY = "all of them"
    NEWEST = "as many as the retention says"
    NONE = "what it is now alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a kind of space has, and what is done with it. A new kind is a row of TRAITS."""

    has_project: bool  # it is named within a project, and shares the project's area of the index
    has_sessions: bool  # each of its memories is an observation, of a session
    has_entries: bool  # each of its memories is an entry of a store: at a path, with versions
    history: History
    index: IndexGroup | None  # none: nothing of it is in the index
    is_json: bool = False  # its contents are JSON, whose words are indexed
    is_of_hosts: bool = False  # what is written there has the forms that hosts have for secrets
    erasure: ErasureKind  # what the receipt calls memories past their retention


_OF_AGENTS = Traits(
    has_project=False,
    has_sessions=False,
    has_entries=False,
    history=History.NONE,
    index=None,
    is_json=True,
    erasure=ErasureKind.AGENT,
)

TRAITS: Mapping[SpaceKind, Traits] = {
    SpaceKind.WORKING: _OF_AGENTS,
    SpaceKind.EPISODIC: replace(_OF_AGENTS, index=IndexGroup.AGENTS),
    SpaceKind.SEMANTIC: replace(_OF_AGENTS, index=IndexGroup.AGENTS),
    SpaceKind.PROJECT: Traits(
        has_project=True,
        has_sessions=True,
        has_entries=False,
        history=History.NEWEST,
        index=IndexGroup.PROJECTS,
        erasure=ErasureKind.OBSERVATION,
    ),
    SpaceKind.STORE: Traits(
        has_project=False,
        has_sessions=False,
        has_entries=True,
        history=History.EVERY,
        index=IndexGroup.STORES,
        erasure=ErasureKind.STORE,
    ),
    SpaceKind.REF: Traits(
        has_project=False,
        has_sessions=False,
        has_entries=False,
        history=History.EVERY,
        index=IndexGroup.STORES,
        is_of_hosts=True,
        erasure=ErasureKind.REF,
    ),
}

# Groups of projects, or of stores, whose words are weighed together: a few share statistics. The
# more memories, the better is known what a word is worth, and the more a search costs.
MOST_PROJECTS = 8  # in a group, before a new one is begun
MOST_MEMORIES = 4000  # live ones in a group, after which a new project begins the next
OVERSIZED = 16_000  # live memories of several projects in one, after which the smallest moves
MOVABLE = 20_000  # live memories of a project that moves; it takes about 0.1 ms for each
FIRST = 0  # the partition that there always is
# Of each group; each partition is a table, and opening a file reads the names of all.
NUMBERS = {
    IndexGroup.PROJECTS: range(FIRST, 256),
    IndexGroup.STORES: range(1024, 1088),
    IndexGroup.AGENTS: range(2048, 2112),
}


def is_partition(number: object) -> bool:
    """Whether a partition can have this number."""
    return type(number) is int and any(number in numbers for numbers in NUMBERS.values())


def group_of(number: int) -> IndexGroup:
    """The group of a partition."""
    later_first = reversed(NUMBERS.items())
    return next((it for it, own in later_first if number >= own.start), IndexGroup.PROJECTS)
