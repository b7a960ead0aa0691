"""Tasks: made, assigned, reported on, finished (RFC-0015 §6.5, §8; RFC-0012)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...engine.callbacks import Audit, noop
from ...engine.engine import Engine, Transaction
from ...errors import Conflict, Denied, Invalid, NotFound
from ...memory.idempotency import is_due, once
from ...memory.limits import require_margin, require_room
from ...memory.model.access import Caller, Role
from ...memory.model.agent_events import OF_STATUS, EventType
from ...memory.model.agent_memory import KEPT, Binding, Eyes, Labels
from ...memory.model.agents import AgentId
from ...memory.model.intents import IntentId, Task, TaskChange, TaskDraft, TaskId, TaskStatus
from ...memory.model.stores import Written
from ...memory.redactor import RulesOf, default_rules
from ...recall.text.json_words import object_of
from ..sql.archives import BoundTable
from ..sql.events import AgentEventTable
from ..sql.intents import IntentTable
from ..sql.tasks import TaskTable
from . import archive, intents
from .binding import BadField, TaskFinished, seen_task
from .entries import Asking, Listing, listed, portion
from .intents import AlreadyThere, new_id, redactor_for, standing
from .values import compact, screened

NO_TASK = "No such task."


class OutdatedTask(Conflict):
    """The task is not at the version that was expected."""

    code = "stale"

    def __init__(self, current: Task) -> None:
        super().__init__(f"The task is at version {current.version}.")
        self.current = current


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """A task as a change leaves it, and how many entries were archived at its end."""

    task: Task
    archived: int = 0


def known(tx: Transaction, eyes: Eyes, task: TaskId) -> Task:
    found = seen_task(tx, eyes, task)
    if found is None:
        raise NotFound(NO_TASK)
    return found


def require_draft(tx: Transaction, eyes: Eyes, draft: TaskDraft) -> None:
    """Refuse a task that may not be made, as things stand."""
    if not standing(tx, eyes, draft.intent).directs:
        raise Denied("Only who made the intent, and its coordinators, make tasks of it.")
    parent = None if draft.parent is None else tx[TaskTable].get(draft.parent)
    if draft.parent is not None and (parent is None or parent.intent != draft.intent):
        raise BadField("parent_task_id", "must be a task of the same intent")
    if draft.id is not None and tx[TaskTable].get(draft.id) is not None:
        raise AlreadyThere
    require_room(tx)


def create(tx: Transaction, eyes: Eyes, draft: TaskDraft) -> Task:
    require_draft(tx, eyes, draft)
    made = _at_status(
        tx,
        Task(
            id=draft.id or TaskId(new_id(tx, "task")),
            intent=draft.intent,
            parent=draft.parent,
            agent=draft.agent,
            status=draft.status,
            policy=draft.policy,
            details=draft.details,
            created_at=tx.now,
        ),
    )
    tx[TaskTable].add(made)
    _tell(tx, eyes, EventType.TASK_CREATED, made, None)
    _assign(tx, eyes, made, None)
    _end(tx, eyes, made)
    return made


def changeable(tx: Transaction, eyes: Eyes, task: TaskId, change: TaskChange, version: int) -> Task:
    """The task before a change, or the refusal of it."""
    before = known(tx, eyes, task)
    if not standing(tx, eyes, before.intent).directs:
        if before.agent != eyes.agent:
            raise Denied("The task is assigned to another agent.")
        if not change.is_report:
            raise Denied("The agent of a task reports status, output, error and blocked_reason.")
    if version != before.version:
        raise OutdatedTask(before)
    if before.status.is_final and not _is_retry(before, change):
        raise TaskFinished
    ends = change.status is not None and change.status.is_final
    (require_margin if ends else require_room)(tx)  # what ends takes no more memory
    return before


def amend(tx: Transaction, eyes: Eyes, task: TaskId, change: TaskChange, version: int) -> Amended:
    before = changeable(tx, eyes, task, change, version)
    status, is_retry = change.status or before.status, _is_retry(before, change)
    after = replace(
        before,
        status=status,
        agent=before.agent if change.agent is KEPT else change.agent,
        policy=before.policy if change.policy is KEPT else change.policy,
        details=_merged(before.details, change.details),
        version=before.version + 1,
        attempt=before.attempt + 1 if is_retry else before.attempt,
    )
    after = _at_status(tx, after)
    tx[TaskTable].replace(after)
    if status is not before.status:
        type_ = EventType.TASK_RETRYING if is_retry else OF_STATUS[status]
        _tell(tx, eyes, type_, after, before)
    _assign(tx, eyes, after, before.agent)
    return Amended(task=after, archived=_end(tx, eyes, after))


def _is_retry(before: Task, change: TaskChange) -> bool:
    return before.status is TaskStatus.FAILED and change.status is TaskStatus.READY


def _end(tx: Transaction, eyes: Eyes, task: Task) -> int:
    """End the working memory of a task that is finished, mirrored late too; how much it was."""
    return archive.end(tx, task, eyes) if task.status.is_final else 0


def _at_status(tx: Transaction, task: Task) -> Task:
    """The task with the times that its status comes to."""
    started = tx.now if task.status is TaskStatus.RUNNING else None
    return replace(
        task,
        started_at=task.started_at or started,
        completed_at=tx.now if task.status.is_final else None,
    )


def _assign(tx: Transaction, eyes: Eyes, task: Task, before: AgentId | None) -> None:
    """Tell to whom a task is assigned, and bind what that agent has of it, whatever the limits."""
    if task.agent != before:
        said = {"task_id": task.id, "agent": task.agent, "previous_agent": before}
        _add(tx, eyes, EventType.ASSIGNED, task, said)
    if task.agent is not None:
        tx[BoundTable].bind(task)


def _tell(tx: Transaction, eyes: Eyes, type_: EventType, task: Task, before: Task | None) -> None:
    said = object_of(task.details)
    payload = {
        "task_id": task.id,
        "name": said.get("name"),
        "status": task.status.value,
        "previous_status": None if before is None else before.status.value,
    }
    _add(tx, eyes, type_, task, payload)


def _add(
    tx: Transaction, eyes: Eyes, type_: EventType, task: Task, payload: Mapping[str, object]
) -> None:
    labels = Labels(task=task.id, intent=task.intent, binding=Binding.TASK)
    tx[AgentEventTable].add(type_, payload, labels, agent=None, actor=eyes.agent)


def _merged(details: str, change: str) -> str:
    """The details with members in place of those of the same names; Invalid beyond 64 KB."""
    if change == "{}":
        return details
    try:
        return compact({**object_of(details), **object_of(change)})
    except Invalid as error:
        raise Invalid(str(error).replace("value", "The task", 1)) from error


Left = Sequence[tuple[TaskId, int]]
"""The tasks of a list that were not read yet, with their bytes."""


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

    async def create(self, caller: Caller, eyes: Eyes, draft: TaskDraft) -> Written[Task]:
        """Make a task, which who directs the intent may; AlreadyThere for an id that is taken."""
        caller.require(Role.WRITER)
        redactor = redactor_for(self.rules, caller, eyes.agent, draft.agent, draft.id)
        clean = replace(draft, details=screened(redactor, draft.details))
        if eyes.is_admin and draft.agent is not None:
            intent = await self.engine.read(caller, _makes_for_others, eyes, draft)
            await self._record(caller, eyes, intent, draft.agent)
        work = once(create, check=lambda tx, eyes, draft: standing(tx, eyes, draft.intent))
        made = await self.engine.write(caller, work, eyes, clean)
        self._settle_soon(caller, made)
        return Written(value=made, redacted=redactor.count)

    async def get(self, caller: Caller, eyes: Eyes, task: TaskId) -> Task:
        caller.require(Role.READER)
        return await self.engine.read(caller, known, eyes, task)

    async def page(
        self,
        asking: Asking,
        intent: IntentId,
        limit: int,
        offset: int,
        status: TaskStatus | None = None,
    ) -> Listing[Task]:
        """Those of an intent, the first first; who asks is asked before each portion."""
        caller, eyes = asking()
        caller.require(Role.READER)
        first, ids = await self.engine.read(caller, _page, eyes, intent, limit, offset, status)

        async def more(left: Left) -> tuple[Sequence[Task], Left]:
            caller, eyes = asking()
            return await self.engine.read(caller, _go_on, eyes, intent, left)

        return listed(first, ids, more)

    async def amend(
        self, caller: Caller, eyes: Eyes, task: TaskId, change: TaskChange, version: int
    ) -> Written[Task]:
        """Change a task that is at this version; at its end its working memory is archived.

        Its agent may report on it; all else is for who directs the intent. TaskFinished for
        one that is finished, unless it failed and is ready again.
        """
        caller.require(Role.WRITER)
        agent = change.agent if isinstance(change.agent, str) else None
        redactor = redactor_for(self.rules, caller, eyes.agent, agent)
        clean = replace(change, details=screened(redactor, change.details))
        if eyes.is_admin and agent is not None:
            planned = eyes, task, change, version
            intent = await self.engine.read(caller, _changes_for_others, *planned)
            await self._record(caller, eyes, intent, AgentId(agent))
        work = once(amend, check=lambda tx, eyes, task, *_: known(tx, eyes, task))
        after = await self.engine.write(caller, work, eyes, task, clean, version)
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


def _page(
    tx: Transaction,
    eyes: Eyes,
    intent: IntentId,
    limit: int,
    offset: int,
    status: TaskStatus | None,
) -> tuple[Sequence[Task], Left]:
    return _go_on(tx, eyes, intent, tx[TaskTable].listed(intent, limit, offset, status))


def _go_on(
    tx: Transaction, eyes: Eyes, intent: IntentId, left: Left
) -> tuple[Sequence[Task], Left]:
    intents.seen(tx, eyes, intent)
    some, left = portion(left)
    return tx[TaskTable].some(some), left


def _makes_for_others(tx: Transaction, eyes: Eyes, draft: TaskDraft) -> IntentId | None:
    """The intent of a task to be made, as below, or the refusal."""
    if not is_due(tx):
        return None
    require_draft(tx, eyes, draft)
    return _of_others(tx, eyes, draft.intent)


def _changes_for_others(
    tx: Transaction, eyes: Eyes, task: TaskId, change: TaskChange, version: int
) -> IntentId | None:
    """The intent of a task to be changed, as below, or the refusal."""
    if not is_due(tx):
        return None
    return _of_others(tx, eyes, changeable(tx, eyes, task, change, version).intent)


def _of_others(tx: Transaction, eyes: Eyes, intent: IntentId) -> IntentId | None:
    """The intent, if it is the role alone that lets an administrator direct it."""
    found = tx[IntentTable].standing(intent, eyes)
    is_own = found.is_creator or found.is_coordinator
    return None if is_own or not found.is_admin else intent
