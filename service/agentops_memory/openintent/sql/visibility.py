"""SQL for which entries there are, and which of them an agent may read (RFC-0015 §2, §8, §9.1)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...memory.model.agent_memory import Access, Binding, Eyes, Tier
from ...memory.sql.liveness import live
from ...memory.sql.rows import micros
from ...memory.sql.table import Connection
from .intents import ACTIVE, GRANTED
from .tasks import OPEN, unfinished

# Working memory ends with the attempt at the task that it is bound to, before its row goes.
HAS_ENDED = f"""(a.binding = {Binding.TASK:d} AND a.tier = '{Tier.WORKING}'
                 AND EXISTS (SELECT 1
                               FROM tasks
                              WHERE tasks.id = a.task
                                    AND (tasks.attempt <> a.attempt OR NOT tasks.{OPEN})))"""
HERE = f"{live('m')} AND NOT {HAS_ENDED}"


def access_in(namespace: str) -> str:
    """The access of the asking agent, `:eyes`, in the namespace that a column names."""
    return f"""CASE WHEN :is_admin THEN {Access.ADMIN:d}
                    ELSE coalesce((SELECT {_level("n.access")}
                                     FROM namespace_access n
                                    WHERE n.namespace = {namespace} AND n.agent = :eyes),
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
    return f"p.agent = :eyes OR (p.agent = '' AND {access_in('p.namespace')} >= {least:d})"


OWN = f"({_own_or_shared(Access.READ)})"  # or of a namespace that may be read
WRITABLE = f"({_own_or_shared(Access.WRITE)})"

# Others' working memory is read with the unfinished task that it is bound to: by who coordinates
# it or was granted its intent, by its agent now, by that of a sub-task which inherits it.
_TASKS = f"""
    SELECT t.id FROM tasks t WHERE t.agent = :eyes AND {unfinished("t")}
     UNION
    SELECT t.id
      FROM (SELECT intent FROM coordinators WHERE agent = :eyes AND {ACTIVE}
             UNION
            SELECT intent FROM grants WHERE agent = :eyes AND {GRANTED}) i
      JOIN tasks t ON t.intent = i.intent
     WHERE {unfinished("t")}
     UNION
    SELECT t.id
      FROM tasks s
      JOIN tasks t ON t.id = s.parent
     WHERE s.agent = :eyes AND s.inherits = TRUE AND {unfinished("s")} AND {unfinished("t")}"""

# Others' episodic memory is read by who coordinates an unfinished task of theirs.
_OWNERS = f"""
    SELECT DISTINCT t.agent
      FROM (SELECT intent FROM coordinators WHERE agent = :eyes AND {ACTIVE}) c
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


def own(eyes: Eyes) -> Visibility:
    """What it may read without a task: that is most of what is asked for."""
    return Visibility(condition=OWN, values=seen(eyes))


def readable(connection: Connection, eyes: Eyes, now: datetime) -> Visibility:
    """All that it may read at an instant."""
    asked = seen(eyes)
    row = connection.execute(OPENS, asked | {"now": micros(now)}).fetchone()
    return Visibility(condition=_SHARED if any(row) else OWN, values=asked)


def writable(eyes: Eyes) -> Visibility:
    """What it may change."""
    return Visibility(condition=WRITABLE, values=seen(eyes))


def seen(eyes: Eyes) -> dict[str, Any]:
    """What the access in a namespace depends on."""
    return {"eyes": eyes.agent, "is_admin": eyes.is_admin}


LARGEST = 2**32  # bytes; no value is as long


def sum_of(size: str) -> str:
    """The sum of sizes, 0 of none; a damaged one counts for nothing, and so overflows nothing."""
    return f"coalesce(sum(CASE WHEN {size} BETWEEN 0 AND {LARGEST} THEN {size} ELSE 0 END), 0)"
