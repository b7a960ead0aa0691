"""Tasks: what they are, what is said of them, and their rows (RFC-0015 §6.5, §8; RFC-0012)."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BaseModel, Field

from ..engine.engine import Transaction
from ..errors import Conflict
from ..http.bodies import GIVEN, written
from ..memory.model.access import AgentId
from ..memory.model.agent_memory import Binding, Eyes, Labels
from ..memory.model.intents import MOST_ENTRIES, MOST_SIZE, IntentId, TaskId, TaskStatus
from ..memory.model.rows import count, instant, micros, optional_instant, optional_micros, reads
from ..memory.model.table import Sql
from ..memory.sight import DETAILS_OF_TASK, FINISHED, Policy, policy_of
from . import intents
from .api import PREFIX, Agent, Detailed, Json, JsonObject, Stale, Time, compact
from .intents import Chosen, Description, Nested, Object, Small, Title, Word, Words, standing

TASKS = f"{PREFIX}/tasks"
NO_TASK = "No such task."
TASK = """t.id, t.intent, t.parent, t.agent, t.status, t.policy, t.details, t.version, t.attempt,
          t.created_at, t.started_at, t.completed_at"""
REPORTED = {"output", "error", "blocked_reason"}  # by the agent of a task, beside its status

TaskState = Literal[
    "pending", "ready", "claimed", "running", "blocked", "completed", "failed", "cancelled",
    "skipped",
]  # fmt: skip


class OutdatedTask(Stale):
    """The task is not at the version that was expected."""

    def __init__(self, current: "Task") -> None:
        super().__init__(f"The task is at version {current.version}.", current)


class TaskFinished(Conflict):
    """The task is finished: it takes no working memory, and its status is final (§2.1)."""

    code = "task_finished"

    def __init__(self) -> None:
        super().__init__("The task is finished.")


class MemoryPolicy(Nested):
    """How the working memory of a task is kept (§6.5)."""

    model_config = GIVEN
    archive_on_completion: bool = True
    inherit_from_parent: bool = False
    max_entries: Annotated[int, Field(ge=0, le=MOST_ENTRIES)] | None = None
    max_total_size_kb: Annotated[int, Field(ge=0, le=MOST_SIZE)] | None = None


class ToolRequirement(Nested):
    """A service that a task needs."""

    model_config = GIVEN
    service: Word
    scopes: Words = []
    required: bool = True


class TaskBody(BaseModel):
    """POST /api/v1/tasks."""

    model_config = GIVEN
    id: Chosen | None = None
    intent_id: Chosen
    name: Title
    status: TaskState = "pending"
    assigned_agent: Agent | None = None
    parent_task_id: Chosen | None = None
    memory_policy: MemoryPolicy | None = None
    plan_id: Word | None = None
    description: Description | None = None
    priority: Word | None = None
    input: Object | None = None
    output: Object | None = None
    artifacts: Words | None = None
    capabilities_required: Words | None = None
    depends_on: Words | None = None
    blocks: Words | None = None
    requires_tools: Annotated[list[ToolRequirement], Field(max_length=intents.MAX_ITEMS)] | None = (
        None
    )
    retry_policy: Word | None = None
    timeout_seconds: Small | None = None
    max_attempts: Small | None = None
    permissions: Word | None = None
    metadata: Object | None = None
    error: Description | None = None
    blocked_reason: Description | None = None


OF_ROW = {"id", "intent_id", "status", "assigned_agent", "parent_task_id", "memory_policy"}


class TaskChangeBody(BaseModel):
    """PATCH /api/v1/tasks/{id}: what is left out stays as it is.

    `null` takes away assigned_agent, memory_policy, output, error and blocked_reason.
    """

    model_config = GIVEN
    status: TaskState | None = None
    assigned_agent: Agent | None = None
    memory_policy: MemoryPolicy | None = None
    output: Object | None = None
    error: Description | None = None
    blocked_reason: Description | None = None
    metadata: Object | None = None

    @property
    def is_report(self) -> bool:
        """Whether it says no more than the assigned agent may."""
        return self.model_fields_set <= {"status", *REPORTED}

    @property
    def details(self) -> Json:
        """Members that take the place of those of the same names."""
        names = [*REPORTED, "metadata"] if self.metadata is not None else [*REPORTED]
        names = [it for it in type(self).model_fields if it in names]
        return compact({it: getattr(self, it) for it in names if it in self.model_fields_set})


class Task(Detailed):
    """A piece of the work on an intent, assigned to at most one agent."""

    id: TaskId
    intent_id: IntentId
    name: str
    plan_id: str | None
    description: str | None
    priority: str
    input: JsonObject
    output: JsonObject | None
    artifacts: list[str]
    capabilities_required: list[str]
    depends_on: list[str]
    blocks: list[str]
    requires_tools: list[ToolRequirement]
    retry_policy: str | None
    timeout_seconds: int | None
    permissions: str
    metadata: JsonObject
    error: str | None
    blocked_reason: str | None
    max_attempts: int
    version: int = 1
    status: TaskStatus = TaskStatus.PENDING
    state: TaskStatus = TaskStatus.PENDING  # the status, by another name
    assigned_agent: AgentId | None = None
    parent_task_id: TaskId | None = None
    memory_policy: MemoryPolicy | None = None
    attempt: int = 1
    created_at: Time
    started_at: Time | None = None
    completed_at: Time | None = None

    members: ClassVar = DETAILS_OF_TASK

    def json_bytes(self) -> bytes:
        shown = self.model_dump(exclude={"requires_tools"}) | {"state": self.status}
        tools = [{"scopes": [], "required": True, **it} for it in cast("Any", self.requires_tools)]
        names = (name for name, it in type(self).model_fields.items() if not it.exclude)
        return written({name: shown.get(name, tools) for name in names})


def seen_task(tx: Transaction, eyes: Eyes, named: str | None) -> Task | None:
    """The task, if there is one that the agent may see."""
    task = None if named is None else task_with(tx, TaskId(named))
    return task if task and standing(tx, eyes, task.intent_id).sees else None


def bound_to(task: Task) -> Labels:
    """The labels of what is bound to a task."""
    return Labels(task=task.id, intent=task.intent_id, binding=Binding.TASK, attempt=task.attempt)


# Rows.


def task_with(tx: Transaction, task: TaskId) -> Task | None:
    """The task, whoever may see it."""
    statement = f"SELECT t.{tx[Sql].dialect.row}, {TASK} FROM tasks t WHERE t.id = :id"
    return tx[Sql].first(task_of, statement, id=task)


def past_tasks(tx: Transaction, until: datetime, most: int) -> list[TaskId]:
    """Those that were finished by then, and of which nothing is left to archive."""
    return tx[Sql].texts(
        f"""SELECT id
              FROM tasks
             WHERE completed_at <= :until AND {FINISHED}
                   AND NOT EXISTS (SELECT 1 FROM pending_archives p WHERE p.task = tasks.id)
          ORDER BY completed_at
             LIMIT :most""",
        until=micros(until), most=most,
    )  # fmt: skip


def forget_tasks(tx: Transaction, tasks: Sequence[TaskId], until: datetime) -> int:
    """Remove those that were finished by then; how many."""
    return tx[Sql].run(
        f"""DELETE FROM tasks
             WHERE id IN (SELECT value FROM {tx[Sql].dialect.texts("given")})
                   AND completed_at <= :until AND {FINISHED}""",
        texts=json.dumps(tasks), until=micros(until),
    ).rowcount  # fmt: skip


def row_of(task: Task) -> dict[str, object]:
    policy = task.memory_policy
    said = None if policy is None else Policy(*(it for _, it in policy))
    return {
        "id": task.id, "intent": task.intent_id, "parent": task.parent_task_id,
        "agent": task.assigned_agent, "status": task.status.value,
        "inherits": bool(said and said.inherits),
        "policy": None if said is None else json.dumps(said._asdict()), "details": task.details,
        "version": task.version, "attempt": task.attempt, "created_at": micros(task.created_at),
        "started_at": optional_micros(task.started_at),
        "completed_at": optional_micros(task.completed_at),
    }  # fmt: skip


@reads("tasks")
def task_of(  # noqa: PLR0913, PLR0917 - the columns of TASK
    _: Any, id_: str, intent: str, parent: str | None, agent: str | None, status: str,
    policy: str | None, details: str, version: int, attempt: int, created_at: int,
    started_at: int | None, completed_at: int | None,
) -> Task:  # fmt: skip
    state = TaskStatus(status)
    return Task.made(
        details, id=id_, intent_id=intent, parent_task_id=parent, assigned_agent=agent,
        status=state, state=state, version=count(version), attempt=count(attempt),
        memory_policy=None if policy is None else _policy(policy),
        created_at=instant(created_at), started_at=optional_instant(started_at),
        completed_at=optional_instant(completed_at),
    )  # fmt: skip


def _policy(text: str) -> MemoryPolicy:
    said = zip(MemoryPolicy.model_fields, policy_of(text), strict=True)
    return MemoryPolicy.model_construct(None, **dict[str, Any](said))
