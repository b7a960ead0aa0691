"""Spaces, which contain memories: projects, stores and others; the traits of their kinds, also in
SQL; and the retention of each kind of data.
"""

import unicodedata
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Annotated, Any, NewType

from ..errors import DamagedRow
from ..light import dataclass, replace


class ErasureKind(StrEnum):
    OBSERVATION = "observation"
    PROJECT = "project"
    REDACTION = "redaction"
    STORE = "store"
    AGENT = "agent"
    REF = "ref"
    SUBJECT = "subject"  # all data about a subject of a host


class IndexGroup(StrEnum):
    """Kinds of spaces that share partitions of the index; no group affects another's ranking."""

    PROJECTS = "projects"
    STORES = "stores"  # stores and refs
    AGENTS = "agents"  # ranked per area, so that ranks reveal nothing of others' words


class History(Enum):
    EVERY = "all revisions"
    NEWEST = "as many revisions as the retention keeps"
    NONE = "the current state only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The properties of a kind of space."""

    has_project: bool = False  # shares its project's area, and its memories are of sessions
    has_entries: bool = False  # its memories are versioned entries of a store, each at a path
    history: History
    index: IndexGroup | None = None  # None: its memories are not indexed
    is_json: bool = False  # its contents are JSON, of which the words are indexed
    is_of_hosts: bool = False  # its texts may contain the forms in which hosts write secrets
    erasure: ErasureKind  # the kind of receipt for its memories past their retention


_OF_AGENTS = Traits(history=History.NONE, is_json=True, erasure=ErasureKind.AGENT)
_SEARCHED = replace(_OF_AGENTS, index=IndexGroup.AGENTS)


class SpaceKind(StrEnum):
    """A kind of space with its traits: rules ask for a trait, never for a kind."""

    traits: Traits

    def __new__(cls, name: str, traits: Traits) -> "SpaceKind":
        kind = str.__new__(cls, name)
        kind._value_, kind.traits = name, traits
        return kind

    PROJECT = "project", Traits(  # a scope of a project
        has_project=True, history=History.NEWEST, index=IndexGroup.PROJECTS,
        erasure=ErasureKind.OBSERVATION,
    )  # fmt: skip
    STORE = "store", Traits(
        has_entries=True, history=History.EVERY, index=IndexGroup.STORES, erasure=ErasureKind.STORE,
    )  # fmt: skip
    WORKING = "working", _OF_AGENTS  # an agent's working memory in a namespace
    EPISODIC = "episodic", _SEARCHED  # an agent's episodic memory in a namespace
    SEMANTIC = "semantic", _SEARCHED  # a namespace's memory, shared by all agents
    REF = "ref", Traits(  # the memory under a reference of a host
        is_of_hosts=True, history=History.EVERY, index=IndexGroup.STORES, erasure=ErasureKind.REF,
    )  # fmt: skip


# The few projects, or stores, of one partition share term statistics. More memories make the
# weight of a word more accurate, and a search more expensive.
MOST_PROJECTS = 8  # most projects that are placed in one partition
MOST_MEMORIES = 4000  # live memories from which on a partition gets no new project
OVERSIZED = 16_000  # live memories above which a shared partition loses its smallest project
MOVABLE = 20_000  # most live memories of a project that moves, which takes 0.1 ms per memory
FIRST = 0  # the number of the partition that always exists
# The partition numbers of each group. Few, as opening a file reads the names of all its tables.
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


MAX_NAME = 1000  # code points; longer names are never stored, so they need no normalization
Project = NewType("Project", str)
"""A normalized project name; only `project_name` makes one."""
StoreId = NewType("StoreId", str)
MemoryRef = NewType("MemoryRef", str)
"""A host's name for a space of entries; compared code point by code point."""
PROJECT_SCOPE = "project"
GLOBAL_SCOPE = "global"
UNKNOWN_PROJECT = Project("unknown")
NO_PROJECT = Project("")  # the project of spaces that belong to no project


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A container of memories: a scope of a project, or a space that belongs to no project."""

    # Selected so, as by a `Column`.
    project: Annotated[Project, "coalesce(s.project, '')"] = NO_PROJECT
    scope: str = PROJECT_SCOPE
    kind: SpaceKind = SpaceKind.PROJECT

    @classmethod
    def of_store(cls, store: StoreId) -> "Space":
        return cls(scope=store, kind=SpaceKind.STORE)

    @property
    def is_global(self) -> bool:
        return self.scope == GLOBAL_SCOPE


@lru_cache(1024)  # an agent uses few names, again and again
def project_name(name: str) -> Project:
    """Normalize a project's name: redacted, NFC, trimmed, lower case."""
    from ..secrets.redaction import redacted  # noqa: PLC0415 - the settings do not need it

    if len(name) > MAX_NAME:
        return Project(name)
    name = unicodedata.normalize("NFC", redacted(name).text)
    folded = unicodedata.normalize("NFC", name.strip().lower())
    return Project(folded.strip())


GLOBAL_AREA = 0  # the index area of the global memories of every project
UNINDEXED_AREA = -1  # the area of spaces that are not indexed
LAST_AREA = (1 << 22) - 1  # the last area that fits into the row numbers of the index

OF_A_PROJECT = f"s.kind = '{SpaceKind.PROJECT}'"  # condition on `spaces s`


# A memory has a session if its space belongs to a project. The conditions test the memory, as
# those of the partial indexes `memories_in_time` and `memories_in_store` do: SQLite uses such an
# index only for a statement with the same condition.
def in_a_session(memories: str) -> str:
    """Return the condition that a memory, by table alias or name, has a session."""
    return f"{memories}.session_id IS NOT NULL"


def in_no_session(memories: str) -> str:
    """Return the condition that a memory, by table alias or name, has no session."""
    return f"{memories}.session_id IS NULL"


def kind_of(kind: str, project: str | None) -> SpaceKind:
    """Return the kind of a space; if the column is damaged, a guess for a space not served."""
    return _KINDS.get(kind) or (SpaceKind.STORE if project is None else SpaceKind.PROJECT)


_KINDS = {kind.value: kind for kind in SpaceKind}


def require_place(space: int, area: object, partition: object, *, is_global: bool = False) -> None:
    """Raise DamagedRow unless a space's row has a valid area and partition of the index.

    In another project's area its memories would be found by callers who may not read them.
    """
    is_area = type(area) is int and UNINDEXED_AREA <= area <= LAST_AREA
    if not is_area or (area == GLOBAL_AREA) is not is_global:
        raise DamagedRow("spaces", space, "area")
    if area not in (GLOBAL_AREA, UNINDEXED_AREA) and not is_partition(partition):
        raise DamagedRow("spaces", space, "partition")


def condition_of(space: Space) -> str:
    """Return the condition that a row `s` of the table of spaces is this one, by `names_of`."""
    project = "s.project = :project" if space.kind.traits.has_project else "s.project IS NULL"
    return f"{project} AND s.scope = :scope"


def names_of(space: Space) -> dict[str, object]:
    return {"project": space.project or None, "scope": space.scope}


def place_of(connection: Any, project: str) -> tuple[int, int] | None:
    """Return the area and partition of a project's own memories, or None if it has no space."""
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
    require_place(space, area, partition)
    return area, partition


FOR_EVER = timedelta()
LARGEST_CAPACITY = 100_000  # most episodic entries that an agent's capacity can allow


class Kind(StrEnum):
    DELETED = "deleted"  # memories and entries of stores, with their revisions
    EXPIRED = "expired"  # memories, with their revisions, and entries of agents
    REVISIONS = "revisions"  # of an observation
    IDEMPOTENCY = "idempotency"
    AUDIT = "audit"
    RECEIPTS = "receipts"  # of erasures whose bytes are gone
    EVENTS = "events"  # of agents' memory, and of runs that have ended
    LOG = "log"  # of intents, with their archives, and finished tasks


BY_CLOCK = frozenset(Kind) - {Kind.REVISIONS}  # kept by age; revisions are kept by number


@dataclass(frozen=True, slots=True, kw_only=True)
class Retentions:
    """How long each kind is kept, and how many of the newest revisions; 0 means no limit."""

    deleted: timedelta = FOR_EVER
    expired: timedelta = timedelta(days=30)
    revisions: int = 100  # bounds keys that an audit hook updates on every tool call
    idempotency: timedelta = timedelta(hours=24)
    audit: timedelta = timedelta(days=400)
    receipts: timedelta = FOR_EVER
    events: timedelta = timedelta(days=30)
    log: timedelta = FOR_EVER

    def time(self, kind: Kind) -> timedelta:
        """Return the retention of a kind that is kept by age.

        A receipt is kept at least as long as an idempotency record that may refer to it.
        """
        time: timedelta = getattr(self, kind.value)
        if kind is Kind.RECEIPTS:
            return max(time, self.idempotency) if time and self.idempotency else FOR_EVER
        return time

    def until(self, kind: Kind, now: datetime) -> datetime | None:
        """Return the instant up to which data is past its retention; None if it is kept forever."""
        return now - self.time(kind) if self.time(kind) else None


DEFAULT_RETENTIONS = Retentions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How many rows of a kind are stored, and how many of them the next sweep would remove."""

    kind: Kind
    rows: int
    past_retention: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """The most entries of an agent (RFC-0015 §9.4): working ones outside tasks, and episodic."""

    working: int = 1_000
    episodic: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """How much a tenant's storage contains; the counts are None if it cannot be read."""

    size: int  # bytes on disk
    memories: int | None = None  # live memories of projects
    sessions: int | None = None
    stores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStats:
    """The size of each part of a storage in bytes, and the data subject to retention."""

    database: int  # including free pages and the index
    free: int  # free pages, which later writes reuse
    index: int  # the full-text index
    log: int
    copies: int  # copies of the database file in its folder
    held: tuple[Held, ...]
