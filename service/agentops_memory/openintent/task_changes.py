"""Changes of tasks: made, assigned, reported on, finished (RFC-0015 §6.5, §8; RFC-0012)."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..engine.callbacks import Audit, noop
from ..engine.engine import Engine, Transaction
from ..errors import BadFields, Denied, Invalid, NotFound
from ..http.bodies import WRITTEN
from ..http.protocol import Operation, Parameter
from ..http.requests import parameter, query_of
from ..memory.changes import Written
from ..memory.idempotency import is_due, once
from ..memory.limits import require_margin, require_room
from ..memory.model.access import AgentId, Caller, Role
from ..memory.model.agent_events import OF_STATUS, EventType
from ..memory.model.agent_memory import Binding, Eyes, Labels
from ..memory.model.intents import IntentId, TaskId, TaskStatus
from ..memory.model.liveness import expired
from ..memory.model.rows import micros, reads
from ..memory.model.table import Sql
from ..memory.redactor import RulesOf, default_rules
from ..recall.text.json_words import object_of
from ..telemetry import annotate
from ..telemetry import count as counted
from ..telemetry.measures import AGENT_ARCHIVED
from . import api, archives, tasks
from .api import BODIES, PAGE, TAG, Left, answer, op, page, redactor_for, screened, whose, writer
from .events import add_event
from .intents import INTENT, intent_id, new_id, require_sight, seen, standing
from .participants import guardrails
from .tasks import NO_TASK, OF_ROW, TASK, TASKS, Task, TaskBody, TaskChangeBody, row_of, task_with


def operations(tasks: "Tasks") -> Sequence[Operation]:
    async def create(request: Request) -> Response:
        body = await BODIES.read(request, TaskBody)
        made = await tasks.create(*await writer(request), body)
        return answer(made.value, 201, redacted=made.redacted, tag=made.value.version)

    async def get(request: Request) -> Response:
        caller, eyes = whose(request)
        found = await tasks.get(caller, eyes, _task_id(request))
        return answer(found, tag=found.version)

    async def update(request: Request) -> Response:
        at = api.version(request)
        body = await BODIES.read(request, TaskChangeBody, nulls=True)
        caller, eyes = await writer(request)
        after = await tasks.amend(caller, eyes, _task_id(request), body, at)
        annotate({"memory.archived_count": after.archived})
        if not caller.is_replay:
            counted(AGENT_ARCHIVED, by=after.archived)
        return answer(after.value, redacted=after.redacted, tag=after.value.version)

    async def list_(request: Request) -> Response:
        limit, offset = page(request)
        intent, status = intent_id(request), _status(request)
        return await api.streamed(
            await tasks.page(lambda: whose(request), intent, limit, offset, status)
        )

    of_task = Parameter(
        name=api.MUST_MATCH.name,
        required=True,
        help='The version that the task must have, such as "3".',
    )
    status = Parameter(name="status", help="Of this status alone.", choices=tuple(TaskStatus))
    one = f"{TASKS}/{{task_id}}"
    return (
        op("POST", TASKS, "create_task", "Make a task of an intent, and assign it.",
           create, Task, status=201, body=TaskBody, headers={**WRITTEN, **TAG},
           refusals=(404, 409)),
        op("GET", one, "get_task", "One task.", get, Task, headers=TAG, refusals=(404,)),
        op("PATCH", one, "update_task",
           "Assign a task, or report on it; its end archives its working memory.",
           update, Task, body=TaskChangeBody, sends=(of_task,), headers={**WRITTEN, **TAG},
           refusals=(404, 409, 428)),
        op("GET", f"{INTENT}/tasks", "list_tasks", "The tasks of an intent, the first first.",
           list_, Task, is_list=True, refusals=(404,), query=(status, *PAGE)),
    )  # fmt: skip


def _task_id(request: Request) -> TaskId:
    return TaskId(api.chosen_id(request, "task_id", NO_TASK))


def _status(request: Request) -> TaskStatus | None:
    said = parameter(query_of(request), "status")
    if said is not None and said not in [*TaskStatus]:
        raise BadFields([("status", f"must be one of {', '.join(TaskStatus)}")])
    return None if said is None else TaskStatus(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """A task as a change leaves it, and how many entries were archived at its end."""

    task: Task
    archived: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """The tasks of one service.

    NotFound for a task of an intent that an agent may not see, as for what is not there;
    Denied for what it may see alone.
    """

    engine: Engine
    audit: Audit  # of what an administrator assigns in the work of others
    rules: RulesOf = default_rules
    on_erased: Callable[[Caller], None] = noop

    async def create(self, caller: Caller, eyes: Eyes, body: TaskBody) -> Written[Task]:
        """Make a task, which who directs the intent may; AlreadyThere for an id that is taken."""
        details = api.details_of(body, but=OF_ROW)
        caller.require(Role.WRITER)
        redactor = redactor_for(self.rules, caller, eyes.agent, body.assigned_agent, body.id)
        clean = str(screened(redactor, details))
        if eyes.is_admin and body.assigned_agent is not None:
            intent = await self.engine.read(caller, _makes_for_others, eyes, body)
            await self._record(caller, eyes, intent, body.assigned_agent)
        work = once(_create, check=_require_intent)
        made = await self.engine.write(caller, work, eyes, body, clean)
        self._settle_soon(caller, made)
        return Written(value=made, redacted=redactor.count)

    async def get(self, caller: Caller, eyes: Eyes, task: TaskId) -> Task:
        caller.require(Role.READER)
        return await self.engine.read(caller, known, eyes, task)

    async def page(
        self,
        asking: api.Asking,
        intent: IntentId,
        limit: int,
        offset: int,
        status: TaskStatus | None = None,
    ) -> api.Listing[Task]:
        """Those of an intent, the first first; who asks is asked before each portion."""
        caller, eyes = asking()
        caller.require(Role.READER)
        first, ids = await self.engine.read(caller, _page, eyes, intent, limit, offset, status)

        async def more(left: Left) -> tuple[Sequence[Task], Left]:
            caller, eyes = asking()
            return await self.engine.read(caller, _go_on, eyes, intent, left)

        return api.listed(first, ids, more)

    async def amend(
        self, caller: Caller, eyes: Eyes, task: TaskId, body: TaskChangeBody, version: int
    ) -> Written[Task]:
        """Change a task that is at this version; at its end its working memory is archived.

        Its agent may report on it; all else is for who directs the intent. TaskFinished for
        one that is finished, unless it failed and is ready again.
        """
        details = body.details
        caller.require(Role.WRITER)
        agent = body.assigned_agent
        redactor = redactor_for(self.rules, caller, eyes.agent, agent)
        clean = str(screened(redactor, details))
        if eyes.is_admin and agent is not None:
            asked = eyes, task, body, version
            intent = await self.engine.read(caller, _changes_for_others, *asked)
            await self._record(caller, eyes, intent, agent)
        work = once(_amend, check=lambda tx, eyes, task, *_: known(tx, eyes, task))
        after = await self.engine.write(caller, work, eyes, task, body, clean, version)
        self._settle_soon(caller, after.task)
        return Written(value=after.task, redacted=redactor.count, archived=after.archived)

    async def _record(
        self, caller: Caller, eyes: Eyes, intent: IntentId | None, assignee: AgentId
    ) -> None:
        """Audit what is assigned in an intent of others; None is none."""
        if intent is not None:
            said = {"agent": eyes.agent, "intent": intent, "assignee": assignee}
            await asyncio.to_thread(
                self.audit, caller, "task.assigned", tenant=caller.tenant, **said
            )

    def _settle_soon(self, caller: Caller, task: Task) -> None:
        """Let what a task that has ended left lie in its archives alone, and then nowhere else."""
        if task.status.is_final:
            self.on_erased(caller)


def known(tx: Transaction, eyes: Eyes, task: TaskId) -> Task:
    found = tasks.seen_task(tx, eyes, task)
    if found is None:
        raise NotFound(NO_TASK)
    return found


def _require_intent(tx: Transaction, eyes: Eyes, body: TaskBody, *_: object) -> None:
    require_sight(tx, eyes, IntentId(body.intent_id))


def _require_draft(tx: Transaction, eyes: Eyes, body: TaskBody) -> None:
    """Refuse a task that may not be made, as things stand."""
    if not require_sight(tx, eyes, IntentId(body.intent_id)).directs:
        raise Denied("Only who made the intent, and its coordinators, make tasks of it.")
    if body.parent_task_id is not None:
        parent = task_with(tx, TaskId(body.parent_task_id))
        if parent is None or parent.intent_id != body.intent_id:
            raise api.BadField("parent_task_id", "must be a task of the same intent")
    if body.id is not None and task_with(tx, TaskId(body.id)) is not None:
        raise api.AlreadyThere
    require_room(tx)


def _create(tx: Transaction, eyes: Eyes, body: TaskBody, details: str) -> Task:
    _require_draft(tx, eyes, body)
    made = Task.made(
        details, id=TaskId(body.id or new_id(tx, "task")), intent_id=IntentId(body.intent_id),
        parent_task_id=body.parent_task_id, assigned_agent=body.assigned_agent,
        memory_policy=body.memory_policy, created_at=tx.now,
        **_at_status(tx, TaskStatus(body.status), None),
    )  # fmt: skip
    tx[Sql].insert("tasks", **row_of(made))
    _tell(tx, eyes, EventType.TASK_CREATED, made, None)
    _assign(tx, eyes, made, None)
    _end(tx, eyes, made)
    return made


def _changeable(
    tx: Transaction, eyes: Eyes, task: TaskId, body: TaskChangeBody, version: int
) -> Task:
    """The task before a change, or the refusal of it."""
    before = known(tx, eyes, task)
    if not require_sight(tx, eyes, before.intent_id).directs:
        if before.assigned_agent != eyes.agent:
            raise Denied("The task is assigned to another agent.")
        if not body.is_report:
            raise Denied("The agent of a task reports status, output, error and blocked_reason.")
    if version != before.version:
        raise tasks.OutdatedTask(before)
    if before.status.is_final and not _is_retry(before, body):
        raise tasks.TaskFinished
    ends = body.status is not None and TaskStatus(body.status).is_final
    (require_margin if ends else require_room)(tx)  # what ends takes no more memory
    return before


def _amend(
    tx: Transaction, eyes: Eyes, task: TaskId, body: TaskChangeBody, details: str, version: int
) -> Amended:
    before = _changeable(tx, eyes, task, body, version)
    status, is_retry = TaskStatus(body.status or before.status), _is_retry(before, body)
    said = {
        name: getattr(body, name)
        for name in ("assigned_agent", "memory_policy")
        if name in body.model_fields_set
    }
    core = {name: getattr(before, name) for name in Task.model_fields if name not in Task.members}
    core |= said | _at_status(tx, status, before.started_at)
    core |= {"version": before.version + 1, "attempt": before.attempt + is_retry}
    after = Task.made(_merged(core.pop("details"), details), **core)
    row = row_of(after)
    columns = ", ".join(f"{column} = :{column}" for column in row if column != "id")
    tx[Sql].run(f"UPDATE tasks SET {columns} WHERE id = :id", **row)
    if status is not before.status:
        type_ = EventType.TASK_RETRYING if is_retry else OF_STATUS[status]
        _tell(tx, eyes, type_, after, before)
    _assign(tx, eyes, after, before.assigned_agent)
    return Amended(task=after, archived=_end(tx, eyes, after))


def _is_retry(before: Task, body: TaskChangeBody) -> bool:
    return before.status is TaskStatus.FAILED and body.status == TaskStatus.READY.value


def _at_status(tx: Transaction, status: TaskStatus, started_at: datetime | None) -> dict[str, Any]:
    """The status with the times that it comes to."""
    started = tx.now if status is TaskStatus.RUNNING else None
    return {
        "status": status, "state": status, "started_at": started_at or started,
        "completed_at": tx.now if status.is_final else None,
    }  # fmt: skip


def _end(tx: Transaction, eyes: Eyes, task: Task) -> int:
    """End the working memory of a task that is finished, mirrored late too; how much it was."""
    if not task.status.is_final:
        return 0
    must = any(it.must_archive for it in guardrails(tx, task.intent_id))
    archiving = must or task.memory_policy is None or task.memory_policy.archive_on_completion
    return archives.end(tx, tasks.bound_to(task), eyes, archives=archiving)


def _assign(tx: Transaction, eyes: Eyes, task: Task, before: AgentId | None) -> None:
    """Tell to whom a task is assigned, and bind what that agent has of it, whatever the limits."""
    agent = task.assigned_agent
    if agent != before:
        said = {"task_id": task.id, "agent": agent, "previous_agent": before}
        _add(tx, eyes, EventType.ASSIGNED, task, said)
    if agent is not None:
        tx[Sql].run(  # nothing that is of another intent: the entry says which
            f"""UPDATE agent_memories
                   SET binding = {Binding.TASK:d}, intent = :intent, attempt = :attempt
                 WHERE task = :task AND agent = :agent AND binding < {Binding.TASK:d}
                       AND coalesce(intent, :intent) = :intent
                       AND NOT {expired("agent_memories.memory_id")}""",
            task=task.id, agent=agent, intent=task.intent_id, attempt=task.attempt,
            now=micros(tx.now),
        )  # fmt: skip


def _tell(tx: Transaction, eyes: Eyes, type_: EventType, task: Task, before: Task | None) -> None:
    payload = {
        "task_id": task.id, "name": object_of(task.details).get("name"),
        "status": task.status.value,
        "previous_status": None if before is None else before.status.value,
    }  # fmt: skip
    _add(tx, eyes, type_, task, payload)


def _add(
    tx: Transaction, eyes: Eyes, type_: EventType, task: Task, payload: dict[str, Any]
) -> None:
    labels = Labels(task=task.id, intent=task.intent_id, binding=Binding.TASK)
    add_event(tx, type_, payload, labels, agent=None, actor=eyes.agent)


def _merged(details: str, change: str) -> str:
    """The details with members in place of those of the same names; Invalid beyond 64 KB."""
    if change == "{}":
        return details
    try:
        return str(api.Json.of({**object_of(details), **object_of(change)}))
    except Invalid as error:
        raise Invalid(str(error).replace("value", "The task", 1)) from error


def _page(
    tx: Transaction,
    eyes: Eyes,
    intent: IntentId,
    limit: int,
    offset: int,
    status: TaskStatus | None,
) -> tuple[Sequence[Task], Left]:
    of_status = "" if status is None else " AND status = :status"
    rows = tx[Sql].run(
        f"""SELECT {tx[Sql].dialect.row}, id, length(details)
              FROM tasks
             WHERE intent = :intent{of_status}
          ORDER BY created_at, id
             LIMIT :limit OFFSET :offset""",
        intent=intent, status=status, limit=limit, offset=offset,
    )  # fmt: skip
    return _go_on(tx, eyes, intent, list(tx[Sql].intact(rows, _sized)))


@reads("tasks")
def _sized(_: Any, id_: str, size: int) -> tuple[TaskId, int]:
    return TaskId(id_), size


def _go_on(
    tx: Transaction, eyes: Eyes, intent: IntentId, left: Left
) -> tuple[Sequence[Task], Left]:
    seen(tx, eyes, intent)
    some, left = api.portion(left)
    rows = tx[Sql].run(
        f"""SELECT t.{tx[Sql].dialect.row}, {TASK}
              FROM {tx[Sql].dialect.texts("given")}
             {tx[Sql].dialect.leads} tasks t ON t.id = given.value
          ORDER BY given.key""",
        texts=json.dumps(some),
    )
    return list(tx[Sql].intact(rows, tasks.task_of)), left


def _makes_for_others(tx: Transaction, eyes: Eyes, body: TaskBody) -> IntentId | None:
    """The intent of a task to be made, as below, or the refusal."""
    if not is_due(tx):
        return None
    _require_draft(tx, eyes, body)
    return _of_others(tx, eyes, IntentId(body.intent_id))


def _changes_for_others(
    tx: Transaction, eyes: Eyes, task: TaskId, body: TaskChangeBody, version: int
) -> IntentId | None:
    """The intent of a task to be changed, as below, or the refusal."""
    if not is_due(tx):
        return None
    return _of_others(tx, eyes, _changeable(tx, eyes, task, body, version).intent_id)


def _of_others(tx: Transaction, eyes: Eyes, intent: IntentId) -> IntentId | None:
    """The intent, if it is the role alone that lets an administrator direct it."""
    found = standing(tx, eyes, intent)
    is_own = found.is_creator or found.is_coordinator
    return None if is_own or not found.is_admin else intent
