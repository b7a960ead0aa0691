"""Agents' memory: entries in three tiers, and who may read and write them (RFC-0015 §1, §2)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NewType

from .access import AgentId

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
class Permissions:
    """Who may do what in a namespace; those who are named have what is said of them (§2.3)."""

    default: Access = Access.READ
    allow: Mapping[AgentId, Access] = field(default_factory=dict)

    def of(self, viewer: "Viewer") -> Access:
        return Access.ADMIN if viewer.is_admin else self.allow.get(viewer.agent, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """The agent that looks; an administrator has every access in every namespace."""

    agent: AgentId
    is_admin: bool = False
