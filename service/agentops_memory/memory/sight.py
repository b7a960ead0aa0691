"""SQL for which entries there are, and what an agent may read (RFC-0015 §2, §8, §9.1).

OpenIntent and recall ask it.
"""

from collections.abc import Mapping
from typing import Any

from ..engine.engine import Transaction
from ..errors import Unreadable
from ..light import dataclass
from ..recall.text import object_of
from .access import AgentId
from .agents import (
    FINAL,
    SEALED,
    Access,
    Binding,
    EventType,
    Permission,
    Permissions,
    TaskStatus,
    Tier,
    Viewer,
)
from .memory import ENDED, IN_FORCE, live
from .rows import micros, reads
from .table import Sql

# Of tasks, coordinators and grants.
FINISHED = f"status IN ({', '.join(sorted(repr(it.value) for it in FINAL))})"
OPEN = f"status IN ({', '.join(sorted(repr(it.value) for it in set(TaskStatus) - FINAL))})"
# Of a coordinator, as a permission; the first part is what an index says.
ACTIVE = f"NOT is_ended AND is_ended = FALSE AND {IN_FORCE}"
IS_OVER = f"(is_ended = TRUE OR {ENDED})"  # of a coordinator, as what restricts others
GRANTED = f"permission IN ({', '.join(repr(it.value) for it in Permission)}) AND {IN_FORCE}"

# Of events, as the partial indexes say it: what is kept for the time of events, and the log of
# intents.
OF_MEMORY = f"type >= 'memory.' AND type < 'memory/' AND type <> '{EventType.ARCHIVED}'"
OF_LOG = f"NOT ({OF_MEMORY})"


def unfinished(alias: str) -> str:
    """Of a task that is known not to be finished; the first part is what an index says."""
    return f"NOT {alias}.{FINISHED} AND {alias}.{OPEN}"


# Working memory ends with the attempt at the task that it is bound to, before its row goes.
HAS_ENDED = f"""(a.binding = {Binding.TASK:d} AND a.tier = '{Tier.WORKING}'
                 AND EXISTS (SELECT 1
                               FROM tasks
                              WHERE tasks.id = a.task
                                    AND (tasks.attempt <> a.attempt OR NOT tasks.{OPEN})))"""
HERE = f"{live('m')} AND NOT {HAS_ENDED}"

# There is a namespace while it has live entries, or permissions.
NAMESPACES = f"""(SELECT p.namespace AS name
                    FROM agent_spaces p
                   WHERE p.agent = ''
                         AND EXISTS (SELECT 1
                                       FROM memories m
                                      WHERE m.space_id = p.space_id AND {live("m")})
                   UNION
                  SELECT name FROM namespaces) k"""


def access_in(namespace: str) -> str:
    """The access of the asking agent, `:viewer`, in the namespace that a column names."""
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
    """The access that a column holds; none where it holds no access."""
    return f"""CASE WHEN {column} BETWEEN {Access.NONE:d} AND {Access.ADMIN:d} THEN {column}
                    ELSE {Access.NONE:d} END"""


def _own_or_shared(least: Access) -> str:
    return f"p.agent = :viewer OR (p.agent = '' AND {access_in('p.namespace')} >= {least:d})"


OWN = f"({_own_or_shared(Access.READ)})"  # or of a namespace that may be read
WRITABLE = f"({_own_or_shared(Access.WRITE)})"

# Others' working memory is read with the unfinished task that it is bound to: by who coordinates
# it or was granted its intent, by its agent now, by that of a sub-task which inherits it.
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

# Others' episodic memory is read by who coordinates an unfinished task of theirs.
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

OPENS = f"SELECT EXISTS ({_TASKS}), EXISTS ({_OWNERS})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """What an agent may read, or change: a condition on entries, and what it names."""

    condition: str
    values: dict[str, Any]


def own(viewer: Viewer) -> Visibility:
    """What it may read without a task, which is what most reads need."""
    return Visibility(condition=OWN, values=seen(viewer))


def readable(tx: Transaction, viewer: Viewer) -> Visibility:
    values = seen(viewer)
    row = tx[Sql].run(OPENS, **values, now=micros(tx.now)).fetchone()
    return Visibility(condition=_SHARED if any(row) else OWN, values=values)


def writable(viewer: Viewer) -> Visibility:
    return Visibility(condition=WRITABLE, values=seen(viewer))


def seen(viewer: Viewer) -> dict[str, Any]:
    """What the access in a namespace depends on."""
    return {"viewer": viewer.agent, "is_admin": viewer.is_admin}


def permissions(tx: Transaction, namespace: str) -> Permissions:
    """Who may do what in a namespace; what holds for all where nothing was said of it."""
    sql = tx[Sql]
    default = sql.first(
        _default,
        f"SELECT {sql.dialect.row}, default_access FROM namespaces WHERE name = :name",
        name=namespace,
    )
    rows = sql.run(
        f"""SELECT {sql.dialect.row}, agent, access
              FROM namespace_access
             WHERE namespace = :name
          ORDER BY agent""",
        name=namespace,
    )
    default = Access.READ if default is None else default
    return Permissions(default=default, allow=dict(map(_allowed, rows)))


@reads("namespaces")
def _default(_: Any, access: int) -> Access:
    return Access(access)


@reads("namespace_access")
def _allowed(_: Any, agent: str, access: int) -> tuple[AgentId, Access]:
    return AgentId(agent), Access(access)


def reads_namespace(tx: Transaction, viewer: Viewer, name: str) -> bool:
    """Whether there is something of a namespace that the viewer may read."""
    intact = [*tx[Sql].intact([name], lambda it: permissions(tx, it))]  # damaged, it opens nothing
    return bool(intact) and tx[Sql].exists(
        f"SELECT 1 FROM {NAMESPACES} WHERE k.name = :name AND {access_in('k.name')} >= 1",
        name=name, now=micros(tx.now), **seen(viewer),
    )  # fmt: skip


LARGEST = 2**32  # bytes; no value is as long


def sum_of(size: str) -> str:
    """The sum of sizes, 0 of none; a damaged one counts for nothing, and so overflows nothing."""
    return f"coalesce(sum(CASE WHEN {size} BETWEEN 0 AND {LARGEST} THEN {size} ELSE 0 END), 0)"


# What is said of an intent, a task and a coordinator in the JSON of its row, each by what holds
# of one that does not say it: as the package's clients take it to be.
DETAILS_OF_INTENT: Mapping[str, Any] = {
    "title": "", "description": "", "state": {}, "constraints": {}, "parent_intent_id": None,
    "depends_on": [], "governance_policy": None,
}  # fmt: skip
DETAILS_OF_TASK: Mapping[str, Any] = {
    "name": "", "plan_id": None, "description": None, "priority": "normal", "input": {},
    "output": None, "artifacts": [], "capabilities_required": [], "depends_on": [], "blocks": [],
    "requires_tools": [], "retry_policy": None, "timeout_seconds": None, "permissions": "inherit",
    "metadata": {}, "error": None, "blocked_reason": None, "max_attempts": 3,
}  # fmt: skip
DETAILS_OF_COORDINATOR: Mapping[str, Any] = {
    "role": "coordinator", "supervisor_id": None, "coordinator_type": "llm", "scope": "intent",
    "guardrails": None, "heartbeat_interval_seconds": 60, "metadata": {},
}  # fmt: skip


def details_of(text: str, otherwise: Mapping[str, Any]) -> dict[str, Any]:
    """What details say, and what holds otherwise; Unreadable for a member of another kind."""
    members = object_of(text)
    details = {name: value if members.get(name) is None else members[name]
               for name, value in otherwise.items()}  # fmt: skip
    for name, value in otherwise.items():
        if value is not None and not isinstance(details[name], type(value)):
            raise Unreadable
    if not all(isinstance(it, dict) for it in details.get("requires_tools", ())):
        raise Unreadable
    return details


def require_value(value: str, sensitivity: str | None) -> None:
    """ValueError unless it is what is stored of a value of this sensitivity: JSON, or a mark."""
    if sensitivity not in SEALED:
        object_of(value)
    elif value.startswith("{"):
        raise ValueError
