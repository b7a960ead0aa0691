"""Tasks: made, assigned, reported on, finished (RFC-0015 §6.5, §8; RFC-0012)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from ..memories.idempotency import IdempotentRequest, idempotent, is_due
from ..memories.redactor import RulesOf, default_rules
from ..model.access import Caller, Role
from ..model.agent_memory import Eyes
from ..model.agents import AgentId
from ..model.intents import IntentId, Task, TaskChange, TaskDraft, TaskId, TaskStatus
from ..model.stores import Written
from ..ports.callbacks import Audit, noop, unaudited
from ..ports.engine import Engine, Transaction
from . import archive, intents, task_changes
from .intents import redactor_for
from .listing import Listing, portion
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
    audit: Audit = unaudited  # of what an administrator assigns in the work of others
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
            intent = await self.engine.read(caller, _of_others, eyes, draft.intent, idempotency)
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
        caller: Caller,
        eyes: Eyes,
        intent: IntentId,
        limit: int,
        offset: int,
        status: TaskStatus | None = None,
    ) -> Listing[Task]:
        """Those of an intent, the first first, read as they are taken."""
        caller.require(Role.READER)
        first, ids = await self.engine.read(caller, _page, eyes, intent, limit, offset, status)

        async def portions() -> AsyncIterator[Sequence[Task]]:
            left, tasks = ids, first
            while True:
                yield tasks
                if not left:
                    return
                tasks, left = await self.engine.read(caller, _go_on, eyes, intent, left)

        count = len(first) + len(ids)
        return Listing(total=count, count=count, is_whole=not ids, portions=portions())

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
            intent = await self.engine.read(caller, _of_others, eyes, task, idempotency)
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

    async def settle(self, caller: Caller) -> None:
        """Move what large tasks have left into their archives, step by step; others write on."""
        while await self.engine.read(caller, archive.is_pending):  # a write would be a commit
            await self.engine.write(caller, archive.settle_next)


def _page(
    tx: Transaction,
    eyes: Eyes,
    intent: IntentId,
    limit: int,
    offset: int,
    status: TaskStatus | None,
) -> tuple[Sequence[Task], Left]:
    return _go_on(tx, eyes, intent, tx.tasks.listed(intent, limit, offset, status))


def _go_on(
    tx: Transaction, eyes: Eyes, intent: IntentId, left: Left
) -> tuple[Sequence[Task], Left]:
    intents.seen(tx, eyes, intent)
    some, left = portion(left)
    return tx.tasks.some(some), left


def _of_others(
    tx: Transaction, eyes: Eyes, work: IntentId | TaskId, idempotency: IdempotentRequest | None
) -> IntentId | None:
    """The intent of some work, if it is the role alone that lets an administrator direct it."""
    task = tx.tasks.get(TaskId(work))
    intent = IntentId(work) if task is None else task.intent
    found = tx.intents.standing(intent, eyes)
    is_own = found.is_creator or found.is_coordinator
    return intent if found.is_admin and not is_own and is_due(tx, idempotency) else None
