"""Agents' memory, shared by OpenIntent and recall: tiers, permissions, intents, tasks and their
events (RFC-0015, RFC-0001); SQL for the entries that exist and that an agent may read (§2, §8,
§9.1).
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any, NewType

from ..engine.engine import Transaction
from ..light import dataclass, field
from .access import AgentId
from .memory import ENDED, IN_FORCE, live
from .rows import columns
from .table import Sql

AgentEntryId = NewType("AgentEntryId", str)
"""The stable id of an entry."""


class Tier(StrEnum):
    """The lifetime and the owner of an entry (§2)."""

    WORKING = "working"
    EPISODIC = "episodic"
    SEMANTIC = "semantic"  # belongs to a namespace; entries of other tiers belong to one agent


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
"""The sensitivities whose values are stored encrypted, and never put into a prompt."""


class Access(IntEnum):
    """What an agent may do in a namespace; each level includes the lower ones (§2.3)."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3


class Binding(IntEnum):
    """Which of its named intent and task an entry is bound to; others are just labels (§2.1)."""

    NONE = 0
    INTENT = 1
    TASK = 2  # the task and its intent


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The task and the intent that an entry names."""

    task: str | None = None
    intent: str | None = None
    binding: Binding = Binding.NONE
    attempt: int | None = None  # the attempt at the task, if the entry is bound to one


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """The default access in a namespace, and the access of specific agents (§2.3)."""

    default: Access = Access.READ
    allow: Mapping[AgentId, Access] = field(default_factory=dict)

    def of(self, viewer: "Viewer") -> Access:
        return Access.ADMIN if viewer.is_admin else self.allow.get(viewer.agent, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """The agent that a request acts as; an administrator has full access to every namespace."""

    agent: AgentId
    is_admin: bool = False


IntentId = NewType("IntentId", str)
TaskId = NewType("TaskId", str)
CoordinatorId = NewType("CoordinatorId", str)
GrantId = NewType("GrantId", str)


class TaskStatus(StrEnum):
    """The status of a task (RFC-0012)."""

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
        """Whether this status ends the task, and its working memory with it (§2.1)."""
        return self in FINAL


FINAL = frozenset(map(TaskStatus, ("completed", "failed", "cancelled", "skipped")))


class Permission(StrEnum):
    """The permission of a grant (RFC-0011); each allows reading, and nothing else."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    is_creator: bool = False
    is_coordinator: bool = False
    is_assigned: bool = False  # assigned to a task of the intent, finished or not
    is_grantee: bool = False
    is_admin: bool = False

    @property
    def sees(self) -> bool:
        """Whether the agent may see the intent, its tasks, its log and its coordinators."""
        return self.directs or self.is_assigned or self.is_grantee

    @property
    def takes_part(self) -> bool:
        """Whether the agent is involved in the intent, not just an administrator."""
        return self.is_creator or self.is_coordinator or self.is_assigned or self.is_grantee

    @property
    def directs(self) -> bool:
        """Whether the agent may create tasks, assign them and set their policies."""
        return self.governs or self.is_coordinator

    @property
    def governs(self) -> bool:
        """Whether the agent may create and end coordinators and grants."""
        return self.is_creator or self.is_admin


class EventType(StrEnum):
    """The types of events that only the service logs, with OF_STATUS (§5.1; RFC-0012)."""

    CREATED = "memory.created"
    UPDATED = "memory.updated"
    DELETED = "memory.deleted"
    EVICTED = "memory.evicted"
    EXPIRED = "memory.expired"
    ARCHIVED = "memory.archived"
    TASK_CREATED = "task.created"
    TASK_RETRYING = "task.retrying"
    ASSIGNED = "agent_assigned"


_VERBS = {TaskStatus.PENDING: "progress", TaskStatus.RUNNING: "started"}
OF_STATUS = {it: f"task.{_VERBS.get(it, it)}" for it in TaskStatus}
"""The types of events of tasks that change to a status."""

# The event types that the package's clients can read, except those that only the service logs.
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
"""The types that clients log; any other type would break every reader of the log."""
EVENT_TYPES = LOGGED | {*EventType, *OF_STATUS.values()}  # all that the log may contain

# Conditions on tasks, coordinators and grants.
FINISHED = f"status IN ({', '.join(sorted(repr(it.value) for it in FINAL))})"
OPEN = f"status IN ({', '.join(sorted(repr(it.value) for it in set(TaskStatus) - FINAL))})"
# Coordinators that grant access. `NOT is_ended` is that of an index; the rest excludes damage.
ACTIVE = f"NOT is_ended AND is_ended = FALSE AND {IN_FORCE}"
IS_OVER = f"(is_ended = TRUE OR {ENDED})"  # a coordinator that no longer restricts others
GRANTED = f"permission IN ({', '.join(repr(it.value) for it in Permission)}) AND {IN_FORCE}"

# Conditions on events, as in the partial indexes: events with the retention of events, and the log
# of intents.
OF_MEMORY = f"type >= 'memory.' AND type < 'memory/' AND type <> '{EventType.ARCHIVED}'"
OF_LOG = f"NOT ({OF_MEMORY})"


def unfinished(alias: str) -> str:
    """Return the condition of an unfinished task: that of an index, and one without damage."""
    return f"NOT {alias}.{FINISHED} AND {alias}.{OPEN}"


# Working memory ends with the attempt at its task, before its row is removed.
HAS_ENDED = f"""(a.binding = {Binding.TASK:d} AND a.tier = '{Tier.WORKING}'
                 AND EXISTS (SELECT 1
                               FROM tasks
                              WHERE tasks.id = a.task
                                    AND (tasks.attempt <> a.attempt OR NOT tasks.{OPEN})))"""
# Entries that exist: working memory of a finished attempt does not.
EXISTING = f"{live('m')} AND NOT {HAS_ENDED}"

# A namespace exists while it has live entries or permissions.
NAMESPACES = f"""(SELECT p.namespace AS name
                    FROM agent_spaces p
                   WHERE p.agent = ''
                         AND EXISTS (SELECT 1
                                       FROM memories m
                                      WHERE m.space_id = p.space_id AND {live("m")})
                   UNION
                  SELECT name FROM namespaces) k"""


def access_in(namespace: str) -> str:
    """Return SQL for the access of the agent `:viewer` in the namespace named by a column."""
    return f"""CASE WHEN :is_admin THEN {Access.ADMIN:d}
                    ELSE coalesce((SELECT {_level("n.access")}
                                     FROM namespace_access n
                                    WHERE n.namespace = {namespace} AND n.agent = :viewer),
                                  (SELECT {_level("n.default_access")}
                                     FROM namespaces n
                                    WHERE n.name = {namespace}),
                                  {Access.READ:d})
               END"""


def _level(column: str) -> str:
    """Return SQL for the access in a column; no access if its value is invalid."""
    return f"""CASE WHEN {column} BETWEEN {Access.NONE:d} AND {Access.ADMIN:d} THEN {column}
                    ELSE {Access.NONE:d} END"""


def _own_or_shared(least: Access) -> str:
    return f"p.agent = :viewer OR (p.agent = '' AND {access_in('p.namespace')} >= {least:d})"


OWN_OR_READABLE = f"({_own_or_shared(Access.READ)})"  # or in a readable namespace
WRITABLE = f"({_own_or_shared(Access.WRITE)})"

# The unfinished tasks whose working memory `:viewer` may read, also of other agents: as the task's
# agent, as a coordinator or grantee of its intent, or as the agent of a sub-task that inherits it.
_TASKS = f"""
    SELECT t.id FROM tasks t WHERE t.agent = :viewer AND {unfinished("t")}
     UNION
    SELECT t.id
      FROM (SELECT intent FROM coordinators WHERE agent = :viewer AND {ACTIVE}
             UNION
            SELECT intent FROM grants WHERE agent = :viewer AND {GRANTED}) i
      JOIN tasks t ON t.intent = i.intent
     WHERE {unfinished("t")}
     UNION
    SELECT t.id
      FROM tasks s
      JOIN tasks t ON t.id = s.parent
     WHERE s.agent = :viewer AND s.inherits = TRUE AND {unfinished("s")} AND {unfinished("t")}"""

# The agents whose episodic memory `:viewer` may read, as the coordinator of an unfinished task.
_OWNERS = f"""
    SELECT DISTINCT t.agent
      FROM (SELECT intent FROM coordinators WHERE agent = :viewer AND {ACTIVE}) c
      JOIN tasks t ON t.intent = c.intent
     WHERE t.agent IS NOT NULL AND {unfinished("t")}"""

_SHARED = f"""({_own_or_shared(Access.READ)}
    OR (p.tier = '{Tier.WORKING}' AND a.binding = {Binding.TASK:d} AND a.task IN ({_TASKS})
        AND p.agent IN (SELECT agent
                          FROM agent_memories
                         WHERE task IN ({_TASKS}) AND binding = {Binding.TASK:d}))
    OR (p.tier = '{Tier.EPISODIC}' AND p.agent IN ({_OWNERS})))"""

HAS_SHARED = f"SELECT EXISTS ({_TASKS}), EXISTS ({_OWNERS})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """What an agent may read or change: a condition on entries, and its parameters."""

    condition: str
    values: dict[str, Any]


def own(viewer: Viewer) -> Visibility:
    """Return what the agent may read without tasks, which is enough for most reads."""
    return Visibility(condition=OWN_OR_READABLE, values=seen(viewer))


def readable(tx: Transaction, viewer: Viewer) -> Visibility:
    values = seen(viewer)
    (row,) = tx[Sql].run(HAS_SHARED, **values)
    return Visibility(condition=_SHARED if any(row) else OWN_OR_READABLE, values=values)


def writable(viewer: Viewer) -> Visibility:
    return Visibility(condition=WRITABLE, values=seen(viewer))


def seen(viewer: Viewer) -> dict[str, Any]:
    """Return the parameters of access in a namespace."""
    return {"viewer": viewer.agent, "is_admin": viewer.is_admin}


_DEFAULT = columns("namespaces", Any, Access)
_ALLOWED = columns("namespace_access", Any, AgentId, Access)


def permissions(tx: Transaction, namespace: str) -> Permissions:
    """Return the permissions of a namespace; the default ones if none are stored."""
    sql = tx[Sql]
    own = f"SELECT {sql.dialect.row}, default_access FROM namespaces WHERE name = :name"
    _, default = sql.first(_DEFAULT, own, name=namespace) or (None, Access.READ)
    rows = sql.run(
        f"""SELECT {sql.dialect.row}, agent, access
              FROM namespace_access
             WHERE namespace = :name
          ORDER BY agent""",
        name=namespace,
    )
    allowed = {agent: access for _, agent, access in map(_ALLOWED, rows)}
    return Permissions(default=default, allow=allowed)


def reads_namespace(tx: Transaction, viewer: Viewer, name: str) -> bool:
    """Whether a namespace exists that the viewer may read; not if its permissions are damaged."""
    intact = [*tx[Sql].intact([name], lambda it: permissions(tx, it))]
    return bool(intact) and tx[Sql].exists(
        f"SELECT 1 FROM {NAMESPACES} WHERE k.name = :name AND {access_in('k.name')} >= 1",
        name=name, **seen(viewer),
    )  # fmt: skip


LARGEST = 2**32  # bytes; every stored value is shorter


def sum_of(size: str) -> str:
    """Return SQL for a sum of sizes, 0 without rows; a damaged size counts 0 to avoid overflow."""
    return f"coalesce(sum(CASE WHEN {size} BETWEEN 0 AND {LARGEST} THEN {size} ELSE 0 END), 0)"
