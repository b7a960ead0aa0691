"""Intents, their tasks and archives, and who takes part (RFC-0015 §6; RFC-0001, 0011 to 0013)."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

from .agent_memory import KEPT, Kept
from .agents import AgentId
from .memory import MemoryId

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
class Intent:
    """A goal that agents work on."""

    id: IntentId
    created_by: AgentId
    details: str  # compact JSON of an object: what nothing is asked by
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPolicy:
    """How the working memory of a task is kept (§6.5)."""

    archives: bool = True
    inherits: bool = False
    max_entries: int | None = None
    max_size: int | None = None  # KB


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A piece of the work on an intent, assigned to at most one agent."""

    id: TaskId
    intent: IntentId
    parent: TaskId | None = None
    agent: AgentId | None = None
    status: TaskStatus = TaskStatus.PENDING
    policy: MemoryPolicy | None = None
    details: str = "{}"  # compact JSON of an object
    version: int = 1
    attempt: int = 1
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDraft:
    """A task to be made."""

    intent: IntentId
    id: TaskId | None = None  # chosen by who makes it
    parent: TaskId | None = None
    agent: AgentId | None = None
    status: TaskStatus = TaskStatus.PENDING
    policy: MemoryPolicy | None = None
    details: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """A partial change of a task."""

    status: TaskStatus | None = None  # None leaves it as it is
    agent: AgentId | Kept | None = KEPT
    policy: MemoryPolicy | Kept | None = KEPT
    details: str = "{}"  # members that take the place of those of the same names
    is_report: bool = True  # whether it says no more than the assigned agent may


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """That an agent coordinates an intent (RFC-0013); it does not lapse by silence."""

    id: CoordinatorId
    intent: IntentId
    agent: AgentId
    is_ended: bool = False
    details: str = "{}"  # compact JSON of an object, its guardrails as they were sent
    version: int = 1
    granted_at: datetime
    expires_at: datetime | None = None

    def is_active(self, now: datetime) -> bool:
        """Whether it coordinates at the instant."""
        return not self.is_ended and (self.expires_at is None or now < self.expires_at)


class Permission(StrEnum):
    """What a grant says (RFC-0011); each opens reading, and nothing else."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """That an agent may read an intent, its tasks, its log and their working memory."""

    id: GrantId
    intent: IntentId
    agent: AgentId
    permission: Permission
    reason: str | None
    granted_by: AgentId
    granted_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantDraft:
    """A grant to be made."""

    agent: AgentId
    permission: Permission
    reason: str | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorDraft:
    """A coordinator to be made; the details are compact JSON of an object."""

    intent: IntentId
    agent: AgentId
    details: str
    expires_at: datetime | None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingEntry:
    """A working entry that ends with its task."""

    agent: AgentId
    memory: MemoryId
    size: int  # bytes of its value


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingArchive:
    """An archive whose entries were not moved into its event yet; they are seen there alone."""

    event: int
    task: TaskId
    attempt: int
    agent: AgentId
    first: MemoryId
    last: MemoryId
    size: int  # bytes of the values
