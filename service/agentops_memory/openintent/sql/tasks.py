"""SQL for tasks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...errors import Unreadable
from ...memory.model.agents import AgentId
from ...memory.model.intents import FINAL, IntentId, MemoryPolicy, Task, TaskId, TaskStatus
from ...memory.sql.rows import count, instant, micros, optional_instant, optional_micros, reads
from ...memory.sql.table import Table
from ...recall.text.json_words import object_of

DETAILS_OF_TASK: Mapping[str, Any] = {
    "name": "", "plan_id": None, "description": None, "priority": "normal", "input": {},
    "output": None, "artifacts": [], "capabilities_required": [], "depends_on": [], "blocks": [],
    "requires_tools": [], "retry_policy": None, "timeout_seconds": None, "permissions": "inherit",
    "metadata": {}, "error": None, "blocked_reason": None, "max_attempts": 3,
}  # fmt: skip
"""What a task says of itself, each by what holds of one that does not."""

FINISHED = f"status IN ({', '.join(sorted(repr(it.value) for it in FINAL))})"
OPEN = f"status IN ({', '.join(sorted(repr(it.value) for it in set(TaskStatus) - FINAL))})"
TASK = """t.id, t.intent, t.parent, t.agent, t.status, t.policy, t.details, t.version, t.attempt,
          t.created_at, t.started_at, t.completed_at"""


@dataclass(eq=False)
class TaskTable(Table):
    """Tasks."""

    _now: datetime

    def add(self, task: Task) -> None:
        """Insert a task."""
        self._insert("tasks", **_row(task))

    def get(self, task: TaskId) -> Task | None:
        """The task, whoever may see it."""
        return self._first(
            _task, f"SELECT t.{self._sql.row}, {TASK} FROM tasks t WHERE t.id = :id", id=task
        )

    def replace(self, task: Task) -> None:
        """Update a task."""
        row = _row(task)
        said = ", ".join(f"{column} = :{column}" for column in row if column != "id")
        self._execute(f"UPDATE tasks SET {said} WHERE id = :id", **row)

    def listed(
        self, intent: IntentId, limit: int, offset: int, status: TaskStatus | None = None
    ) -> list[tuple[TaskId, int]]:
        """Those of an intent, the first first, with their bytes."""
        of_status = "" if status is None else " AND status = :status"
        rows = self._execute(
            f"""SELECT {self._sql.row}, id, length(details)
                  FROM tasks
                 WHERE intent = :intent{of_status}
              ORDER BY created_at, id
                 LIMIT :limit OFFSET :offset""",
            intent=intent,
            status=status,
            limit=limit,
            offset=offset,
        )
        return list(self._intact(rows, _sized))

    def some(self, tasks: Sequence[TaskId]) -> list[Task]:
        """Those of these that there are, in their order."""
        rows = self._execute(
            f"""SELECT t.{self._sql.row}, {TASK}
                  FROM {self._sql.texts("given")}
                 {self._sql.leads} tasks t ON t.id = given.value
              ORDER BY given.key""",
            texts=json.dumps(tasks),
        )
        return list(self._intact(rows, _task))

    def past(self, until: datetime, most: int) -> list[TaskId]:
        """Those that were finished by then, and of which nothing is left to archive."""
        return self._texts(
            f"""SELECT id
                  FROM tasks
                 WHERE completed_at <= :until AND {FINISHED}
                       AND NOT EXISTS (SELECT 1 FROM pending_archives p WHERE p.task = tasks.id)
              ORDER BY completed_at
                 LIMIT :most""",
            until=micros(until),
            most=most,
        )

    def forget(self, tasks: Sequence[TaskId], until: datetime) -> int:
        """Remove those that were finished by then; how many."""
        return self._execute(
            f"""DELETE FROM tasks
                 WHERE id IN (SELECT value FROM {self._sql.texts("given")})
                       AND completed_at <= :until AND {FINISHED}""",
            texts=json.dumps(tasks),
            until=micros(until),
        ).rowcount


def unfinished(alias: str) -> str:
    """Of a task that is known not to be finished; the first part is what an index says."""
    return f"NOT {alias}.{FINISHED} AND {alias}.{OPEN}"


def _row(task: Task) -> dict[str, object]:
    return {
        "id": task.id,
        "intent": task.intent,
        "parent": task.parent,
        "agent": task.agent,
        "status": task.status.value,
        "inherits": bool(task.policy and task.policy.inherits),
        "policy": None if task.policy is None else _written(task.policy),
        "details": task.details,
        "version": task.version,
        "attempt": task.attempt,
        "created_at": micros(task.created_at),
        "started_at": optional_micros(task.started_at),
        "completed_at": optional_micros(task.completed_at),
    }


@reads("tasks")
def _task(  # noqa: PLR0913, PLR0917 - the columns of TASK
    _: Any, id_: str, intent: str, parent: str | None, agent: str | None, status: str,
    policy: str | None, details: str, version: int, attempt: int, created_at: int,
    started_at: int | None, completed_at: int | None,
) -> Task:  # fmt: skip
    details_of(details, DETAILS_OF_TASK)
    return Task(
        id=TaskId(id_),
        intent=IntentId(intent),
        parent=None if parent is None else TaskId(parent),
        agent=None if agent is None else AgentId(agent),
        status=TaskStatus(status),
        policy=None if policy is None else policy_of(policy),
        details=details,
        version=count(version),
        attempt=count(attempt),
        created_at=instant(created_at),
        started_at=optional_instant(started_at),
        completed_at=optional_instant(completed_at),
    )


def _written(policy: MemoryPolicy) -> str:
    said = {  # each name is a field's
        "archives": policy.archives,
        "inherits": policy.inherits,
        "max_entries": policy.max_entries,
        "max_size": policy.max_size,
    }
    return json.dumps(said)


@reads("tasks")
def _sized(_: Any, id_: str, size: int) -> tuple[TaskId, int]:
    return TaskId(id_), size


def details_of(text: str, otherwise: Mapping[str, Any]) -> dict[str, Any]:
    """What details say, and what holds otherwise; Unreadable for a member of another kind."""
    said = object_of(text)
    details = {name: value if said.get(name) is None else said[name]
               for name, value in otherwise.items()}  # fmt: skip
    for name, value in otherwise.items():
        if value is not None and not isinstance(details[name], type(value)):
            raise Unreadable
    if not all(isinstance(it, dict) for it in details.get("requires_tools", ())):
        raise Unreadable
    return details


def policy_of(text: str) -> MemoryPolicy:
    """The policy in a row; Unreadable if it is damaged, for without a limit more is allowed."""
    said = object_of(text)
    if said.keys() != {"archives", "inherits", "max_entries", "max_size"}:
        raise Unreadable
    policy = MemoryPolicy(**said)
    are_flags = all(isinstance(it, bool) for it in (policy.archives, policy.inherits))
    limits = policy.max_entries, policy.max_size
    if not are_flags or not all(it is None or (type(it) is int and it >= 0) for it in limits):
        raise Unreadable
    return policy
