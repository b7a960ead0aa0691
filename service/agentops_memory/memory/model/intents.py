"""Intents, their tasks, archives and events, and who takes part (RFC-0015 §5, §6; RFC-0001, 0011 to
0013).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

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


OF_STATUS: Mapping[TaskStatus, EventType] = {
    TaskStatus.PENDING: EventType.TASK_PROGRESS,
    TaskStatus.READY: EventType.TASK_READY,
    TaskStatus.CLAIMED: EventType.TASK_CLAIMED,
    TaskStatus.RUNNING: EventType.TASK_STARTED,
    TaskStatus.BLOCKED: EventType.TASK_BLOCKED,
    TaskStatus.COMPLETED: EventType.TASK_COMPLETED,
    TaskStatus.FAILED: EventType.TASK_FAILED,
    TaskStatus.CANCELLED: EventType.TASK_CANCELLED,
    TaskStatus.SKIPPED: EventType.TASK_SKIPPED,
}

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
