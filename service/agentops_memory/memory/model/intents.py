"""Intents, their tasks and archives, and who takes part (RFC-0015 §6; RFC-0001, 0011 to 0013)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

IntentId = NewType("IntentId", str)
TaskId = NewType("TaskId", str)
CoordinatorId = NewType("CoordinatorId", str)
GrantId = NewType("GrantId", str)

DEFAULT_SIZE = 16 * 1024  # KB of working memory where no policy says how much
MOST_ENTRIES, MOST_SIZE = 10_000, 64 * 1024  # that a policy may name; KB


class TaskStatus(StrEnum):
    """Where a task stands (RFC-0012)."""

    PENDING = "pending"
    READY = "ready"
    CLAIMED = "claimed"
    RUNNING = "running"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def is_final(self) -> bool:
        """Whether its working memory ends with it (§2.1)."""
        return self in FINAL


FINAL = frozenset(
    {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.SKIPPED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """What bounds the memory that is bound to a coordinator's intent (§6.6)."""

    most_working: int | None = None  # entries of a task
    most_episodic: int | None = None  # entries of an agent
    allowed: tuple[str, ...] | None = None  # semantic namespaces; None is all
    denied: tuple[str, ...] = ()
    must_archive: bool = False

    def allows(self, namespace: str) -> bool:
        """Whether entries of a semantic namespace may be changed."""
        is_allowed = self.allowed is None or namespace in self.allowed
        return is_allowed and namespace not in self.denied


class Permission(StrEnum):
    """What a grant says (RFC-0011); each opens reading, and nothing else."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What an agent is to an intent."""

    is_creator: bool = False
    is_coordinator: bool = False
    is_assigned: bool = False  # to one of its tasks, finished or not
    is_grantee: bool = False
    is_admin: bool = False

    @property
    def sees(self) -> bool:
        """Whether it may see the intent, its tasks, its log and its coordinators."""
        return self.directs or self.is_assigned or self.is_grantee

    @property
    def takes_part(self) -> bool:
        """Whether it is more than an administrator to it."""
        return self.is_creator or self.is_coordinator or self.is_assigned or self.is_grantee

    @property
    def directs(self) -> bool:
        """Whether it may make tasks, assign them and set their policies."""
        return self.governs or self.is_coordinator

    @property
    def governs(self) -> bool:
        """Whether it may make and end coordinators and grants."""
        return self.is_creator or self.is_admin
