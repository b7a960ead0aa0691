"""Agents' memory: entries in three tiers, and who may read and write them (RFC-0015 §1, §2)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntEnum, StrEnum
from typing import Final, NewType

from ...recall.text.json_words import object_of
from .agents import AgentId
from .kinds import SpaceKind
from .memory import Lifecycle, MemoryId
from .space import NO_PROJECT, Space

AgentEntryId = NewType("AgentEntryId", str)
"""The stable id of an entry."""


class Tier(StrEnum):
    """How long an entry lives, and whose it is (§2)."""

    WORKING = "working"
    EPISODIC = "episodic"
    SEMANTIC = "semantic"

    @property
    def has_owner(self) -> bool:
        """Whether an entry belongs to one agent; a semantic one to its namespace."""
        return self is not Tier.SEMANTIC


class Priority(IntEnum):
    """Which entries are evicted first (§2.2)."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


class Sensitivity(StrEnum):
    """How secret a value is (§9.2)."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    RESTRICTED = "restricted"


SEALED = frozenset({Sensitivity.CONFIDENTIAL, Sensitivity.RESTRICTED})


def require_value(value: str, sensitivity: str | None) -> None:
    """ValueError unless it is what is stored of a value of this sensitivity: JSON, or a mark."""
    if sensitivity not in SEALED:
        object_of(value)
    elif value.startswith("{"):
        raise ValueError


"""Whose values are stored encrypted, and never put into a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """An encrypted value, and what is needed to open it but the key."""

    key: str  # the id of the key that sealed it
    nonce: bytes
    text: bytes


class Access(IntEnum):
    """What an agent may do in a namespace; each level includes those before it (§2.3)."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpace:
    """Where entries lie: a tier of an agent's memory in a namespace, or a semantic namespace."""

    tier: Tier
    agent: AgentId | None
    namespace: str

    def within(self, scope: str) -> Space:
        """The space of the record that has this name in its scope."""
        return Space(project=NO_PROJECT, scope=scope, kind=SpaceKind(self.tier.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The one place of a live entry (§1.2)."""

    space: AgentSpace
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """What is said of an entry beside its value."""

    tags: tuple[str, ...] = ()
    is_pinned: bool = False
    priority: Priority = Priority.NORMAL
    sensitivity: Sensitivity | None = None
    curated_by: str | None = None
    ttl: str | None = None
    expires_at: datetime | None = None  # what was set, or what the ttl comes to
    is_own_expiry: bool = False  # whether it was set

    @property
    def is_sealed(self) -> bool:
        """Whether the value is stored encrypted."""
        return self.sensitivity in SEALED


class Binding(IntEnum):
    """What an entry is bound to of what it names; the rest are labels, without effect (§2.1)."""

    NONE = 0
    INTENT = 1
    TASK = 2  # and its intent


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The task and the intent that an entry names."""

    task: str | None = None
    intent: str | None = None
    binding: Binding = Binding.NONE
    attempt: int | None = None  # at the task that it is bound to


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDraft:
    """An entry to be made; the value is compact JSON of an object."""

    place: Place
    value: str
    handling: Handling = Handling()
    labels: Labels = Labels()


class Kept(Enum):
    """That a part stays as it is, where None takes it away."""

    KEPT = "kept"


KEPT: Final = Kept.KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChange:
    """A partial change of an entry."""

    value: str | None = None  # None leaves it, and the next three, as they are
    tags: tuple[str, ...] | None = None
    is_pinned: bool | None = None
    priority: Priority | None = None
    sensitivity: Sensitivity | Kept | None = KEPT
    curated_by: str | Kept | None = KEPT
    ttl: str | Kept | None = KEPT
    expires_at: datetime | Kept | None = KEPT
    claims: "Callable[[AgentEntry], None] | None" = None  # refuses an entry that it is not about


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """An entry that is made; or, with a version, changed at its place."""

    draft: AgentDraft
    change: AgentChange | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEntry:
    """An entry as it is now."""

    id: AgentEntryId
    memory: MemoryId
    place: Place
    value: str  # of one that is sealed, and that nothing opens any more, how secret it is
    handling: Handling
    labels: Labels
    created_by: AgentId
    version: int
    created_at: datetime
    updated_at: datetime
    has_ended: bool = False  # with its task: the archive has it

    def is_there(self, now: datetime) -> bool:
        """Whether there is still such an entry at the instant."""
        lifecycle = Lifecycle(expires_at=self.handling.expires_at)
        return not self.has_ended and not lifecycle.is_expired(now)

    @property
    def is_lost(self) -> bool:
        """Whether its value cannot be read any more: it is sealed by a key that is gone."""
        return self.handling.is_sealed and not self.value.startswith("{")

    @property
    def size(self) -> int:
        """The bytes of its value."""
        return len(self.value.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """Who may do what in a namespace; those who are named have what is said of them (§2.3)."""

    default: Access = Access.READ
    allow: Mapping[AgentId, Access] = field(default_factory=dict)

    def of(self, eyes: "Eyes") -> Access:
        """What an agent may do."""
        return Access.ADMIN if eyes.is_admin else self.allow.get(eyes.agent, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFilter:
    """Which entries are asked for (§4.1); None and nothing are no condition."""

    agent: AgentId | None = None
    namespace: str | None = None
    is_prefix: bool = False  # whether the namespace is how it begins
    key: str | None = None
    tier: Tier | None = None
    every_tag: tuple[str, ...] = ()
    any_tag: tuple[str, ...] = ()
    is_pinned: bool | None = None
    labels: Labels = Labels()
    updated_after: datetime | None = None
    updated_before: datetime | None = None

    def names(self, namespace: str) -> bool:
        """Whether a namespace is one that is asked for."""
        if self.namespace is None or not self.is_prefix:
            return self.namespace in (None, namespace)
        return namespace.startswith(self.namespace)

    def fits(self, entry: AgentEntry) -> bool:
        """Whether an entry has the namespace and the tags that are asked for."""
        tags = set(entry.handling.tags)
        has_any = not self.any_tag or not tags.isdisjoint(self.any_tag)
        return self.names(entry.place.space.namespace) and has_any and tags >= {*self.every_tag}


@dataclass(frozen=True, slots=True, kw_only=True)
class Eyes:
    """Whose eyes look: an agent's; an administrator has every access in every namespace."""

    agent: AgentId
    is_admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A semantic namespace, as one agent sees it."""

    name: str
    permissions: Permissions
    access: Access  # of that agent
    version: int  # of the permissions; 0 while nothing was said of them
    entries: int
    size: int  # bytes of their values
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSummary:
    """What an agent has in a tier."""

    entries: int = 0
    size: int = 0  # bytes of their values
    pinned: int = 0
    oldest: datetime | None = None  # times of creation
    newest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSummary:
    """What an agent has, and what it may read (§6.7)."""

    working: TierSummary
    tasks: tuple[str, ...]  # that its working entries name, at most 1,000
    episodic: TierSummary
    capacity: int  # of episodic entries
    namespaces: tuple[str, ...]  # that it may read, at most 1,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """How many entries were deleted, and whether there are more."""

    count: int
    has_more: bool
