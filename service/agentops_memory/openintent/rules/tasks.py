"""Tasks: made, assigned, reported on, finished (RFC-0015 §6.5, §8; RFC-0012)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...engine.callbacks import Audit, noop
from ...engine.engine import Engine, Transaction
from ...memory.idempotency import IdempotentRequest, idempotent, is_due
from ...memory.model.access import Caller, Role
from ...memory.model.agent_memory import Eyes
from ...memory.model.agents import AgentId
from ...memory.model.intents import IntentId, Task, TaskChange, TaskDraft, TaskId, TaskStatus
from ...memory.model.stores import Written
from ...memory.redactor import RulesOf, default_rules
from ..sql.intents import IntentTable
from ..sql.tasks import TaskTable
from . import intents, task_changes
from .intents import redactor_for
from .listing import Asking, Listing, listed, portion
from .values import screened

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

    async def create(
        self,
        caller: Caller,
        eyes: Eyes,
        draft: TaskDraft,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[Task]:
        """Make a task, which who directs the intent may; AlreadyThere for an id that is taken."""
        caller.require(Role.WRITER)
        redactor = redactor_for(self.rules, caller, eyes.agent, draft.agent, draft.id)
        clean = replace(draft, details=screened(redactor, draft.details))
        if eyes.is_admin and draft.agent is not None:
            intent = await self.engine.read(caller, _makes_for_others, eyes, draft, idempotency)
            await self._record(caller, eyes, intent, draft.agent)
        work = idempotent(
            task_changes.create, idempotency, again=task_changes.created, ids=task_changes.id_of
        )
        made = await self.engine.write(caller, work, eyes, clean)
        self._settle_soon(caller, made)
        return Written(value=made, redacted=redactor.count)

    async def get(self, caller: Caller, eyes: Eyes, task: TaskId) -> Task:
        """The task."""
        caller.require(Role.READER)
        return await self.engine.read(caller, task_changes.known, eyes, task)

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
        self,
        caller: Caller,
        eyes: Eyes,
        task: TaskId,
        change: TaskChange,
        version: int,
        *,
        idempotency: IdempotentRequest | None = None,
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
            planned = eyes, task, change, version, idempotency
            intent = await self.engine.read(caller, _changes_for_others, *planned)
            await self._record(caller, eyes, intent, AgentId(agent))
        work = idempotent(task_changes.amend, idempotency, again=task_changes.amended)
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


def _makes_for_others(
    tx: Transaction, eyes: Eyes, draft: TaskDraft, idempotency: IdempotentRequest | None
) -> IntentId | None:
    """The intent of a task to be made, as below, or the refusal."""
    if not is_due(tx, idempotency):
        return None
    task_changes.require_draft(tx, eyes, draft)
    return _of_others(tx, eyes, draft.intent)


def _changes_for_others(
    tx: Transaction,
    eyes: Eyes,
    task: TaskId,
    change: TaskChange,
    version: int,
    idempotency: IdempotentRequest | None,
) -> IntentId | None:
    """The intent of a task to be changed, as below, or the refusal."""
    if not is_due(tx, idempotency):
        return None
    return _of_others(tx, eyes, task_changes.changeable(tx, eyes, task, change, version).intent)


def _of_others(tx: Transaction, eyes: Eyes, intent: IntentId) -> IntentId | None:
    """The intent, if it is the role alone that lets an administrator direct it."""
    found = tx[IntentTable].standing(intent, eyes)
    is_own = found.is_creator or found.is_coordinator
    return None if is_own or not found.is_admin else intent
