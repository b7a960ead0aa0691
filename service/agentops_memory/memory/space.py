"""What memory lies in, and how long it is kept: projects, stores and other spaces, the traits of
their kinds, in SQL too; and the retention of each kind of data.
"""

import unicodedata
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NewType

from ..errors import DamagedRow
from ..light import Lazy, dataclass, replace

if TYPE_CHECKING:
    from ..secrets import redaction
else:  # which the settings do not need
    redaction = Lazy(__package__, "..secrets.redaction")


class ErasureKind(StrEnum):
    OBSERVATION = "observation"
    PROJECT = "project"
    REDACTION = "redaction"
    STORE = "store"
    AGENT = "agent"
    REF = "ref"
    SUBJECT = "subject"  # of a host: all that was about it


class SpaceKind(StrEnum):
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
    EVERY = "all of them"
    NEWEST = "as many as the retention says"
    NONE = "what it is now alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a kind of space has, and what is done with it. A new kind is a row of TRAITS."""

    has_project: bool = False  # it is named within a project, and shares the project's area
    has_sessions: bool = False  # each of its memories is an observation, of a session
    has_entries: bool = False  # each of its memories is an entry of a store: at a path, versioned
    history: History
    index: IndexGroup | None = None  # none: nothing of it is in the index
    is_json: bool = False  # its contents are JSON, whose words are indexed
    is_of_hosts: bool = False  # what is written there has the forms that hosts have for secrets
    erasure: ErasureKind  # what the receipt calls memories past their retention


_OF_AGENTS = Traits(history=History.NONE, is_json=True, erasure=ErasureKind.AGENT)

TRAITS: Mapping[SpaceKind, Traits] = {
    SpaceKind.WORKING: _OF_AGENTS,
    SpaceKind.EPISODIC: replace(_OF_AGENTS, index=IndexGroup.AGENTS),
    SpaceKind.SEMANTIC: replace(_OF_AGENTS, index=IndexGroup.AGENTS),
    SpaceKind.PROJECT: Traits(
        has_project=True, has_sessions=True, history=History.NEWEST, index=IndexGroup.PROJECTS,
        erasure=ErasureKind.OBSERVATION,
    ),
    SpaceKind.STORE: Traits(
        has_entries=True, history=History.EVERY, index=IndexGroup.STORES, erasure=ErasureKind.STORE,
    ),
    SpaceKind.REF: Traits(
        is_of_hosts=True, history=History.EVERY, index=IndexGroup.STORES, erasure=ErasureKind.REF,
    ),
}  # fmt: skip

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
    return type(number) is int and any(number in numbers for numbers in NUMBERS.values())


def group_of(number: int) -> IndexGroup:
    later_first = reversed(NUMBERS.items())
    return next((it for it, own in later_first if number >= own.start), IndexGroup.PROJECTS)


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

    @property
    def traits(self) -> Traits:
        return TRAITS[self.kind]


@lru_cache(1024)  # an agent names few, over and over
def project_name(name: str) -> Project:
    """The normalized name of a project: redacted, NFC, trimmed, lower case."""
    if len(name) > MAX_NAME:
        return Project(name)
    name = redaction.redacted(name).text
    if name.isascii():
        return Project(name.strip().lower())
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).strip().lower())
    return Project(folded.strip())


GLOBAL_AREA = 0  # of the index: of the global memories of every project
UNINDEXED_AREA = -1  # of spaces that are not in it
LAST_AREA = (1 << 22) - 1  # above it, no row number of the index is left

_OF_PROJECTS = ", ".join(f"'{kind}'" for kind, traits in TRAITS.items() if traits.has_sessions)
OF_A_PROJECT = f"s.kind IN ({_OF_PROJECTS})"  # of `spaces s`


# A memory has a session if the kind of its space has sessions. It is read from the memory, as the
# partial indexes `memories_in_time` and `memories_in_store` do: SQLite reads along one of them only
# for a statement that says the same.
def in_a_session(memories: str) -> str:
    """The condition that memories, under an alias or the name of their table, have a session."""
    return f"{memories}.session_id IS NOT NULL"


def in_no_session(memories: str) -> str:
    """The condition that memories, under an alias or the name of their table, have none."""
    return f"{memories}.session_id IS NULL"


def kind_of(kind: str, project: str | None) -> SpaceKind:
    """The kind by which a space is indexed; any for a damaged one, which is not served."""
    return _KINDS.get(kind) or (SpaceKind.STORE if project is None else SpaceKind.PROJECT)


_KINDS = {kind.value: kind for kind in SpaceKind}


def project_or_this(project: str | None) -> str:
    return "This project" if project else "This"


def require_place(
    space: int, area: object, partition: object, project: str | None, *, is_global: bool = False
) -> None:
    """DamagedRow unless a space's row says where in the index its words are.

    In another project's place they would be found by those who may not read them.
    """
    what = project_or_this(project)
    is_area = type(area) is int and UNINDEXED_AREA <= area <= LAST_AREA
    if not is_area or (area == GLOBAL_AREA) is not is_global:
        raise DamagedRow("spaces", space, "area", what)
    if area not in (GLOBAL_AREA, UNINDEXED_AREA) and not is_partition(partition):
        raise DamagedRow("spaces", space, "partition", what)


def place_of(connection: Any, project: str) -> tuple[int, int] | None:
    """The area and the partition of a project's own memories, if it ever had one."""
    row = connection.execute(
        f"""SELECT id, area, partition
              FROM spaces
             WHERE project = :project AND area <> {GLOBAL_AREA}
             LIMIT 1""",
        {"project": project},
    ).fetchone()
    if row is None:
        return None
    space, area, partition = row
    require_place(space, area, partition, project)
    return area, partition


def named(space: Space) -> str:
    project = "s.project = :project" if space.traits.has_project else "s.project IS NULL"
    return f"{project} AND s.scope = :scope"


def names_of(space: Space) -> dict[str, object]:
    return {"project": space.project or None, "scope": space.scope}


FOR_EVER = timedelta()
LARGEST_CAPACITY = 100_000  # episodic entries of an agent


class Kind(StrEnum):
    DELETED = "deleted"
    EXPIRED = "expired"
    REVISIONS = "revisions"
    IDEMPOTENCY = "idempotency"
    AUDIT = "audit"
    RECEIPTS = "receipts"
    EVENTS = "events"
    LOG = "log"


WHAT = {
    Kind.DELETED: "soft-deleted observations and deleted entries of stores, with their revisions",
    Kind.EXPIRED: "expired observations, with their revisions, and entries of agents",
    Kind.REVISIONS: "revisions of an observation",
    Kind.IDEMPOTENCY: "idempotency records",
    Kind.AUDIT: "audit lines",
    Kind.RECEIPTS: "erasure receipts whose bytes are gone",
    Kind.EVENTS: "events of agents' memory, and of runs that have ended",
    Kind.LOG: "logs of intents, with their archives, and finished tasks",
}
BY_CLOCK = frozenset(Kind) - {Kind.REVISIONS}  # by age; revisions are kept by number


@dataclass(frozen=True, slots=True, kw_only=True)
class Retentions:
    """How long each kind is kept, and how many of the newest revisions; 0 is without limit."""

    deleted: timedelta = FOR_EVER
    expired: timedelta = timedelta(days=30)
    revisions: int = 100  # an audit hook upserts one key on every tool call
    idempotency: timedelta = timedelta(hours=24)
    audit: timedelta = timedelta(days=400)
    receipts: timedelta = FOR_EVER
    events: timedelta = timedelta(days=30)
    log: timedelta = FOR_EVER

    def time(self, kind: Kind) -> timedelta:
        """The retention of a kind that is kept by age.

        A receipt is kept at least as long as an idempotency record that may name it.
        """
        time: timedelta = getattr(self, kind.value)
        if kind is Kind.RECEIPTS:
            return max(time, self.idempotency) if time and self.idempotency else FOR_EVER
        return time

    def until(self, kind: Kind, now: datetime) -> datetime | None:
        """The instant up to which data is past its retention; None if nothing expires."""
        return now - self.time(kind) if self.time(kind) else None

    def oldest(self, newest: int) -> int:
        return newest - self.revisions + 1 if self.revisions else 1


USUAL = Retentions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How much of a kind is stored, and how many rows the next sweep would remove.

    The size is an estimate in bytes; that of the audit is exact.
    """

    kind: Kind
    rows: int
    size: int
    oldest: datetime | None
    past_retention: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """The most entries of an agent (RFC-0015 §9.4): working ones outside of tasks, and episodic."""

    working: int = 1_000
    episodic: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How much a tenant's storage holds; its counts are unknown if it cannot be read."""

    size: int  # bytes on the disk
    memories: int | None = None  # live ones, of projects
    sessions: int | None = None
    stores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStats:
    """What it is made of, in bytes, and what it keeps for a time."""

    database: int  # with what is free, and the index
    free: int  # pages that hold nothing, for what comes
    index: int  # the words of the memories
    log: int
    copies: int  # beside it
    held: tuple[Held, ...]
