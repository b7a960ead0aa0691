"""Tasks: create, assign, report on, finish, retry (RFC-0015 §6.5, §8; RFC-0012)."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..engine.engine import Engine, Transaction
from ..errors import BadFields, Conflict, Denied, required
from ..http.bodies import choice, written
from ..http.protocol import Operation
from ..light import replace
from ..memory import agent_memory, details as stored
from ..memory.access import AgentId, Caller
from ..memory.agent_memory import Binding, EventType, IntentId, Labels, TaskId, TaskStatus, Viewer
from ..memory.idempotency import once
from ..memory.memory import expired
from ..memory.redactor import require_margin, require_room
from ..memory.rows import Column, RowMapper, columns, micros
from ..memory.saves import Written
from ..memory.table import Sql
from ..recall.text import object_of
from ..record import defaults_of
from ..telemetry import annotate, count
from ..telemetry.metrics import AGENT_ARCHIVED
from . import api, events, intents
from .api import Agent, Ids, Serving, Time, identify, op
from .entries import add_event
from .intents import Chosen, Description, Object, Word, Words, require_sight, with_details

TASKS = f"{api.PREFIX}/tasks"
NO_TASK = api.UNKNOWN["task_id"]
MAX_ENTRIES, MAX_SIZE = 10_000, 64 * 1024  # limits of a policy: entries, and KB
REPORTED = {"output", "error", "blocked_reason"}  # its agent changes these and the status

TaskState = Annotated[TaskStatus, api.ByName]


class TaskFinished(Conflict):
    """The task is finished: its status is final, and it accepts no working memory (§2.1)."""

    code, sentence = "task_finished", "The task is finished."


class MemoryPolicy(api.Nested):
    """The limits and the archiving of a task's working memory (§6.5)."""

    archive_on_completion: bool = True
    inherit_from_parent: bool = False
    max_entries: Annotated[int, Field(ge=0, le=MAX_ENTRIES)] | None = None
    max_total_size_kb: Annotated[int, Field(ge=0, le=MAX_SIZE)] | None = None


def _policy_in(text: str) -> MemoryPolicy:
    values = vars(stored.policy_of(text)).values()
    fields = dict[str, Any](zip(MemoryPolicy.model_fields, values, strict=True))
    return MemoryPolicy.model_construct(None, **fields)


def _policy_text(policy: MemoryPolicy) -> str:
    return json.dumps(dict(zip(stored.TaskPolicy.model_fields, vars(policy).values(), strict=True)))


class ToolRequirement(api.Nested):
    """A service that a task needs."""

    service: Word
    scopes: Words = []
    required: bool = True


Tools = Annotated[list[ToolRequirement], Field(max_length=intents.MAX_ITEMS)]


@with_details(
    stored.TaskDetails, description=Description, error=Description, blocked_reason=Description,
    requires_tools=Tools,
)  # fmt: skip
class TaskBody(api.Draft):
    """POST /api/v1/tasks."""

    id: Chosen | None = None
    intent_id: Chosen
    name: intents.Title
    status: TaskState = TaskStatus.PENDING
    assigned_agent: Agent | None = None
    parent_task_id: Chosen | None = None
    memory_policy: MemoryPolicy | None = None


class TaskChangeBody(api.Draft):
    """PATCH /api/v1/tasks/{id}: absent fields stay as they are.

    `null` removes assigned_agent, memory_policy, output, error and blocked_reason.
    """

    status: TaskState | None = None
    assigned_agent: Agent | None = None
    memory_policy: MemoryPolicy | None = None
    output: Object | None = None
    error: Description | None = None
    blocked_reason: Description | None = None
    metadata: Object | None = None

    @property
    def details(self) -> api.Json:
        """The members that replace stored ones of the same names."""
        sent = self.model_dump(include={*REPORTED, "metadata"}, exclude_unset=True)
        return api.compact({it: sent[it] for it in sent if it in REPORTED or sent[it] is not None})


class _TaskKey(api.Detailed):
    intent_id: Annotated[IntentId, Column("t.intent")]


class Task(stored.TaskDetails, _TaskKey):
    """A piece of the work on an intent, assigned to at most one agent."""

    is_tagged: ClassVar = True

    id: TaskId
    requires_tools: list[ToolRequirement] = Field(default=[])  # type: ignore[assignment]
    version: int = 1
    status: TaskStatus = TaskStatus.PENDING
    # The status under another name.
    state: Annotated[TaskStatus, Column("t.status")] = TaskStatus.PENDING
    assigned_agent: Annotated[AgentId | None, Column("t.agent")] = None
    parent_task_id: Annotated[TaskId | None, Column("t.parent")] = None
    memory_policy: Annotated[
        MemoryPolicy | None, Column("t.policy", read=_policy_in, write=_policy_text)
    ] = None
    attempt: int = 1
    created_at: Time
    started_at: Time | None = None
    completed_at: Time | None = None

    members: ClassVar = defaults_of(stored.TaskDetails)

    def json_bytes(self) -> bytes:
        fields = self.model_dump(exclude={"requires_tools"}) | {"state": self.status}
        tools = [{"scopes": [], "required": True, **dict(it)} for it in self.requires_tools]
        names = (name for name, it in type(self).model_fields.items() if not it.exclude)
        return written({name: fields.get(name, tools) for name in names})


def operations(serving: Serving) -> Sequence[Operation]:
    async def list_(request: Request, **which: Any) -> Response:
        intent = api.intent_id(request)
        return await page(serving.engine, lambda: identify(request), intent, **which)

    of_task = replace(api.MUST_MATCH, help='The version that the task must have, such as "3".')
    status = choice("status", TaskStatus, "Only tasks in this status.")
    one = f"{TASKS}/{{task_id}}"
    return (
        op("POST", TASKS, "create_task", "Create a task of an intent, and assign it.",
           partial(_write, serving, CREATE, _draft), Task, status=201, body=TaskBody,
           refusals=(404, 409)),
        op("GET", one, "get_task", "One task.", api.reading(serving.engine, known), Task,
           refusals=(404,)),
        op("PATCH", one, "update_task",
           "Assign a task, or report on it; ending it archives its working memory.",
           partial(_write, serving, _AMEND, _changeable), Task, body=TaskChangeBody, nulls=True,
           sends=(of_task,), refusals=(404, 409, 428)),
        api.route("GET", f"{intents.INTENT}/tasks", "list_tasks",
           "The tasks of an intent, oldest first.",
           list_, Task, is_list=True, refusals=(404,), query=(status, *api.PAGE)),
    )  # fmt: skip


async def _write(
    serving: Serving, work: Callable[..., Any], of: Callable[..., Task | TaskBody],
    caller: Caller, viewer: Viewer, *args: Any,
) -> Written[Task]:  # fmt: skip
    """Write a task; an administrator's assignment is audited. Its end leaves bytes to erase."""
    (assignee,) = (it.assigned_agent for it in args if isinstance(it, TaskBody | TaskChangeBody))
    is_audited = viewer.is_admin and assignee is not None
    about = partial(_of_others, of, assignee) if is_audited else None
    done = await serving.write(work, caller, viewer, *args, action="task.assigned", about=about)
    if done.value.status.is_final:
        serving.on_erased(caller)
    annotate({"memory.archived_count": done.archived or None})
    if not caller.is_replay:
        count(AGENT_ARCHIVED, by=done.archived)
    return done


async def page(
    engine: Engine, identify: api.Identify, intent: IntentId, limit: int, offset: int,
    status: TaskStatus | None = None,
) -> Response:  # fmt: skip
    """Return an intent's tasks, oldest first; access is checked before each portion."""

    def ids(tx: Transaction, _: Viewer) -> tuple[Ids, int]:
        of_status = "" if status is None else " AND status = :status"
        rows = tx[Sql].run(
            f"""SELECT {tx[Sql].dialect.row}, id, length(details)
                  FROM tasks
                 WHERE intent = :intent{of_status}
              ORDER BY created_at, id
                 LIMIT :limit OFFSET :offset""",
            intent=intent, status=status, limit=limit, offset=offset,
        )  # fmt: skip
        return [sized for _, *sized in tx[Sql].intact(rows, _SIZED)], 0

    return await api.listed(engine, identify(), identify, ids, partial(_some, intent))


def known(tx: Transaction, viewer: Viewer, task: TaskId, *_: object) -> Task:
    return required(visible_task(tx, viewer, task), NO_TASK)


def _draft(tx: Transaction, viewer: Viewer, body: TaskBody, *_: object) -> TaskBody:
    """Return the body if the task may be created now, or raise the refusal."""
    if not require_sight(tx, viewer, IntentId(body.intent_id)).directs:
        raise Denied("Only the creator of the intent and its coordinators may create tasks of it.")
    if body.parent_task_id is not None:
        parent = task_with(tx, TaskId(body.parent_task_id))
        if parent is None or parent.intent_id != body.intent_id:
            raise BadFields([("parent_task_id", "must be a task of the same intent")])
    if body.id is not None and task_with(tx, TaskId(body.id)) is not None:
        raise api.AlreadyExists
    require_room(tx)
    return body


def _create(tx: Transaction, viewer: Viewer, body: TaskBody, details: str) -> Written[Task]:
    """Create a task; raise Denied unless the viewer directs the intent, or AlreadyExists."""
    _draft(tx, viewer, body)
    made = Task.whole(
        details=details, id=TaskId(body.id or intents.new_id(tx, "task")),
        intent_id=IntentId(body.intent_id), parent_task_id=body.parent_task_id,
        assigned_agent=body.assigned_agent, memory_policy=body.memory_policy, created_at=tx.now,
        **_at_status(tx, body.status, None),
    )  # fmt: skip
    tx[Sql].insert("tasks", **_row(made))
    _add_event_of_status(tx, viewer, EventType.TASK_CREATED, made, None)
    _assign(tx, viewer, made, None)
    return Written(value=made, archived=_end(tx, viewer, made))


def _changeable(
    tx: Transaction, viewer: Viewer, task: TaskId, body: TaskChangeBody, version: int, *_: object
) -> Task:
    before = known(tx, viewer, task)
    if not require_sight(tx, viewer, before.intent_id).directs:
        if before.assigned_agent != viewer.agent:
            raise Denied("The task is assigned to another agent.")
        if not body.model_fields_set <= {"status", *REPORTED}:
            raise Denied("A task's agent may change only status, output, error and blocked_reason.")
    if version != before.version:
        raise api.Stale(f"The task is at version {before.version}.", before)
    if before.status.is_final and not _is_retry(before, body):
        raise TaskFinished
    ends = body.status is not None and body.status.is_final
    (require_margin if ends else require_room)(tx)  # a task that ends needs no more room
    return before


def _amend(
    tx: Transaction, viewer: Viewer, task: TaskId, body: TaskChangeBody, version: int, details: str
) -> Written[Task]:
    """Change a task that is at this version; finishing it archives its working memory.

    Its agent may report on it; other changes need an agent that directs the intent. Raises
    TaskFinished for a finished task, unless it failed and the change makes it ready.
    """
    before = _changeable(tx, viewer, task, body, version)
    status, is_retry = body.status or before.status, _is_retry(before, body)
    named = body.model_fields_set & {"assigned_agent", "memory_policy"}
    core = {name: getattr(before, name) for name in Task.model_fields if name not in Task.members}
    core |= {name: getattr(body, name) for name in named}
    core |= _at_status(tx, status, before.started_at)
    core |= {"version": before.version + 1, "attempt": before.attempt + is_retry}
    after = Task.whole(**core | {"details": _merged(before.details, details)})
    tx[Sql].update("tasks", "id", _row(after))
    if status is not before.status:
        type_ = EventType.TASK_RETRYING if is_retry else agent_memory.OF_STATUS[status]
        _add_event_of_status(tx, viewer, type_, after, before)
    _assign(tx, viewer, after, before.assigned_agent)
    return Written(value=after, archived=_end(tx, viewer, after))


CREATE = once(_create, check=lambda tx, viewer, body, _: require_sight(tx, viewer, body.intent_id))
_AMEND = once(_amend, check=known)


def _is_retry(before: Task, body: TaskChangeBody) -> bool:
    return before.status is TaskStatus.FAILED and body.status is TaskStatus.READY


def _at_status(tx: Transaction, status: TaskStatus, started_at: datetime | None) -> dict[str, Any]:
    started = tx.now if status is TaskStatus.RUNNING else None
    return {
        "status": status, "state": status, "started_at": started_at or started,
        "completed_at": tx.now if status.is_final else None,
    }  # fmt: skip


def _end(tx: Transaction, viewer: Viewer, task: Task) -> int:
    """End the working memory of a finished task, even if it is new; return the number archived."""
    if not task.status.is_final:
        return 0
    must = any(it.memory_archive_required for it in intents.guardrails(tx, task.intent_id))
    archiving = must or task.memory_policy is None or task.memory_policy.archive_on_completion
    return events.end_with_task(tx, bound_to(task), viewer, archives=archiving)


def _assign(tx: Transaction, viewer: Viewer, task: Task, before: AgentId | None) -> None:
    """Add the event of a new assignment, and bind the agent's entries, despite any limits."""
    agent = task.assigned_agent
    if agent != before:
        payload = {"task_id": task.id, "agent": agent, "previous_agent": before}
        _add_event(tx, viewer, EventType.ASSIGNED, task, payload)
    if agent is not None:
        tx[Sql].run(  # except entries that name another intent
            f"""UPDATE agent_memories
                   SET binding = {Binding.TASK:d}, intent = :intent, attempt = :attempt
                 WHERE task = :task AND agent = :agent AND binding < {Binding.TASK:d}
                       AND coalesce(intent, :intent) = :intent
                       AND NOT {expired("agent_memories.memory_id")}""",
            task=task.id, agent=agent, intent=task.intent_id, attempt=task.attempt,
        )  # fmt: skip


def _add_event_of_status(
    tx: Transaction, viewer: Viewer, type_: str, task: Task, before: Task | None
) -> None:
    payload = {
        "task_id": task.id, "name": object_of(task.details).get("name"),
        "status": task.status.value,
        "previous_status": None if before is None else before.status.value,
    }  # fmt: skip
    _add_event(tx, viewer, type_, task, payload)


def _add_event(
    tx: Transaction, viewer: Viewer, type_: str, task: Task, payload: dict[str, Any]
) -> None:
    labels = Labels(task=task.id, intent=task.intent_id, binding=Binding.TASK)
    add_event(tx, type_, payload, labels, agent=None, actor=viewer.agent)


def _merged(details: str, change: str) -> str:
    """Return the details with the changed members; raise Invalid beyond 64 KB."""
    if change == "{}":
        return details
    return str(api.Json.of({**object_of(details), **object_of(change)}, "The task"))


def _some(intent: IntentId, tx: Transaction, viewer: Viewer, ids: Sequence[TaskId]) -> list[Task]:
    intents.visible_intent(tx, viewer, intent)
    chosen = f"SELECT value FROM {tx[Sql].dialect.texts('listed')}"
    which = f"t.id IN ({chosen}) ORDER BY t.created_at, t.id"
    return tx[Sql].fetch_all(_TASK, which, texts=json.dumps(ids))


def _of_others(
    of: Callable[..., Task | TaskBody], assignee: AgentId | None, tx: Transaction, viewer: Viewer,
    *args: object,
) -> Mapping[str, object] | None:  # fmt: skip
    """Return what to audit of an assignment, or raise the refusal.

    Returns None unless the viewer directs the intent only by its role of administrator.
    """
    intent = IntentId(of(tx, viewer, *args).intent_id)
    position = intents.standing(tx, viewer, intent)
    is_own = position.is_creator or position.is_coordinator
    is_audited = position.is_admin and not is_own
    return {"intent": intent, "assignee": assignee} if is_audited else None


def visible_task(tx: Transaction, viewer: Viewer, named: str | None) -> Task | None:
    """Return the task, or None if it is unknown or the agent may not see it."""
    task = None if named is None else task_with(tx, TaskId(named))
    return task if task and intents.standing(tx, viewer, task.intent_id).sees else None


def bound_to(task: Task) -> Labels:
    return Labels(task=task.id, intent=task.intent_id, binding=Binding.TASK, attempt=task.attempt)


# Rows.

_TASK = RowMapper(Task, "tasks", alias="t.")
_SIZED = columns("tasks", Any, TaskId, int)


def task_with(tx: Transaction, task: TaskId) -> Task | None:
    """Return the task, regardless of visibility."""
    return tx[Sql].fetch(_TASK, "t.id = :id", id=task)


def past_tasks(tx: Transaction, until: datetime, most: int) -> list[TaskId]:
    """Return tasks that finished by a time and have no pending archives."""
    return tx[Sql].texts(
        f"""SELECT id
              FROM tasks
             WHERE completed_at <= :until AND {agent_memory.FINISHED}
                   AND NOT EXISTS (SELECT 1 FROM pending_archives p WHERE p.task = tasks.id)
          ORDER BY completed_at
             LIMIT :most""",
        until=micros(until), most=most,
    )  # fmt: skip


def forget_tasks(tx: Transaction, tasks: Sequence[TaskId], until: datetime) -> int:
    """Remove those of the tasks that finished by a time; return how many."""
    return tx[Sql].run(
        f"""DELETE FROM tasks
             WHERE id IN (SELECT value FROM {tx[Sql].dialect.texts("listed")})
                   AND completed_at <= :until AND {agent_memory.FINISHED}""",
        texts=json.dumps(tasks), until=micros(until),
    ).rowcount  # fmt: skip


def _row(task: Task) -> dict[str, object]:
    policy = task.memory_policy
    return {**_TASK.values(task, "t."), "inherits": bool(policy and policy.inherit_from_parent)}
