"""Agents' memory: tiers and permissions, intents, tasks and their events (RFC-0015, RFC-0001)."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import NewType

from ..light import dataclass, field
from .access import AgentId

AgentEntryId = NewType("AgentEntryId", str)
"""The stable id of an entry."""


class Tier(StrEnum):
    """How long an entry lives, and whose it is (§2)."""

    WORKING = "working"
    EPISODIC = "episodic"
    SEMANTIC = "semantic"  # a namespace's; of the others each entry belongs to one agent


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
    """Who may do what in a namespace; named agents have an access of their own (§2.3)."""

    default: Access = Access.READ
    allow: Mapping[AgentId, Access] = field(default_factory=dict)

    def of(self, viewer: "Viewer") -> Access:
        return Access.ADMIN if viewer.is_admin else self.allow.get(viewer.agent, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """The agent that a request acts as; an administrator has every access in every namespace."""

    agent: AgentId
    is_admin: bool = False


IntentId = NewType("IntentId", str)
TaskId = NewType("TaskId", str)
CoordinatorId = NewType("CoordinatorId", str)
GrantId = NewType("GrantId", str)


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


class Permission(StrEnum):
    """What a grant says (RFC-0011); each opens reading, and nothing else."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
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


class EventType(StrEnum):
    """What the service tells of itself, and no client may (§5.1; RFC-0012)."""

    CREATED = "memory.created"
    UPDATED = "memory.updated"
    DELETED = "memory.deleted"
    EVICTED = "memory.evicted"
    EXPIRED = "memory.expired"
    ARCHIVED = "memory.archived"
    TASK_CREATED = "task.created"
    TASK_PROGRESS = "task.progress"  # of one that is pending again
    TASK_READY = "task.ready"
    TASK_CLAIMED = "task.claimed"
    TASK_STARTED = "task.started"
    TASK_COMPLETED = "task.completed"
    TASK_FAILED = "task.failed"
    TASK_BLOCKED = "task.blocked"
    TASK_CANCELLED = "task.cancelled"
    TASK_SKIPPED = "task.skipped"
    TASK_RETRYING = "task.retrying"
    ASSIGNED = "agent_assigned"


_VERBS = {TaskStatus.PENDING: "progress", TaskStatus.RUNNING: "started"}
OF_STATUS = {it: EventType(f"task.{_VERBS.get(it, it)}") for it in TaskStatus}

# What the package's clients can read of an event's type, but for what the service tells.
LOGGED = frozenset(
    """
    intent_created state_patched status_changed agent_unassigned constraint_added
    constraint_removed dependency_added dependency_removed lease_acquired lease_released
    arbitration_requested decision_recorded attachment_added portfolio_created
    added_to_portfolio removed_from_portfolio failure_recorded comment tool_call_started
    tool_call_completed tool_call_failed llm_request_started llm_request_completed
    llm_request_failed stream_started stream_chunk stream_completed stream_cancelled
    access_granted access_revoked access_expired access_requested access_request_approved
    access_request_denied plan.created plan.activated plan.paused plan.resumed plan.completed
    plan.failed plan.checkpoint_reached plan.checkpoint_approved plan.checkpoint_rejected
    coordinator.decision coordinator.heartbeat coordinator.paused coordinator.resumed
    coordinator.replaced coordinator.unresponsive coordinator.failed_over coordinator.handoff
    coordinator.plan_overridden coordinator.guardrails_updated coordinator.stalled
    coordinator.escalation_resolved governance.policy_set governance.policy_removed
    governance.approval_granted governance.approval_denied governance.violation tool.invoked
    tool.denied grant.created grant.delegated grant.revoked grant.expired grant.suspended
    grant.resumed credential.created credential.rotated credential.expired credential.revoked
    agent.lifecycle agent.registered agent.status_changed agent.dead trigger.fired
    trigger.skipped trigger.cascade_limit trigger.namespace_blocked agent.identity.registered
    agent.identity.rotated agent.identity.revoked agent.identity.challenge_issued
    agent.identity.verified log.checkpoint.created log.checkpoint.anchored channel.created
    channel.closed channel.message governance.approval_enforced federation.dispatched
    federation.received federation.callback federation.budget_warning federation.completed
    federation.failed intent.suspended intent.resumed intent.suspension_expired
    engagement.decision intent.suspension_renotified intent.suspension_escalated
    portfolio.member_suspended portfolio.member_resumed
    """.split()
)
"""The types that clients log; another one would break every reader of the log."""
