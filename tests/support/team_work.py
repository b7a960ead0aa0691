"""What each change of tasks, coordinators and grants should do, by the contract alone."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from agentops_memory.errors import Denied, Invalid, NotFound
from agentops_memory.memory.access import AgentId
from agentops_memory.memory.agents import (
    Binding,
    CoordinatorId,
    GrantId,
    IntentId,
    Labels,
    TaskId,
    TaskStatus,
    Tier,
)
from agentops_memory.openintent.api import AlreadyThere, BadField
from agentops_memory.openintent.entries import AgentEntry
from agentops_memory.openintent.intents import Intent
from agentops_memory.openintent.participants import Coordinator, Grant
from agentops_memory.openintent.tasks import (
    OutdatedTask,
    Task,
    TaskBody,
    TaskChangeBody,
    TaskFinished,
)

from .team_model import FINAL, State, Told
from .team_rules import LIFETIME, Entries

SEALED = ("confidential", "restricted")
EVENT = {
    "pending": "task.progress", "ready": "task.ready", "claimed": "task.claimed",
    "running": "task.started", "blocked": "task.blocked", "completed": "task.completed",
    "failed": "task.failed", "cancelled": "task.cancelled", "skipped": "task.skipped",
}  # fmt: skip


@dataclass
class Work:
    """Changes of what memory hangs on; each raises what the service should refuse it with."""

    state: State
    entries: Entries

    def create_intent(
        self, agent: AgentId, given: IntentId, id_: IntentId | None, *, may: bool
    ) -> Intent:
        if not (may or self.state.is_admin(agent)):
            raise Denied("")
        if id_ in self.state.intents:
            raise AlreadyThere
        made = Intent.whole(
            details="{}",
            id=id_ or given,
            created_by=agent,
            created_at=self._now,
            updated_at=self._now,
        )
        self.state.intents[made.id] = made
        return made

    def create_task(self, agent: AgentId, draft: TaskBody, given: TaskId) -> Task:
        state = self.state
        intent = IntentId(draft.intent_id)
        self._require_sight(agent, intent)
        if not state.directs(agent, intent):
            raise Denied("")
        named = draft.parent_task_id
        parent = None if named is None else state.tasks.get(TaskId(named))
        if named is not None and (parent is None or parent.intent_id != intent):
            raise BadField("parent_task_id", "")
        if draft.id in state.tasks:
            raise AlreadyThere
        made = Task.whole(
            details='{"name":"read"}', id=draft.id or given, intent_id=intent, parent_task_id=named,
            assigned_agent=draft.assigned_agent, status=TaskStatus(draft.status),
            memory_policy=draft.memory_policy, created_at=self._now,
        )  # fmt: skip
        return self._stands(made, None, agent, "task.created")

    def amend_task(self, agent: AgentId, id_: TaskId, change: TaskChangeBody, version: int) -> Task:
        before = self.state.seen_task(agent, id_)
        if before is None:
            raise NotFound("")
        named = change.model_fields_set
        is_report = named.isdisjoint(("assigned_agent", "memory_policy"))
        if not self.state.directs(agent, before.intent_id) and not (
            before.assigned_agent == agent and is_report
        ):
            raise Denied("")
        if version != before.version:
            raise OutdatedTask(before)
        is_retry = (before.status, change.status) == ("failed", "ready")
        if before.status in FINAL and not is_retry:
            raise TaskFinished
        said: dict[str, Any] = {
            name: getattr(change, name)
            for name in ("assigned_agent", "memory_policy", "output")
            if name in named
        }
        if "output" in named:
            said["details"] = _merged(before.details, json.dumps({"output": change.output}))
        said |= {
            "status": TaskStatus(change.status or before.status), "version": version + 1,
            "attempt": before.attempt + is_retry,
        }  # fmt: skip
        after = before.model_copy(update=said)
        type_ = "task.retrying" if is_retry else EVENT[after.status]
        return self._stands(after, before, agent, type_)

    def coordinate(self, agent: AgentId, coordinator: Coordinator) -> Coordinator:
        self._require_govern(agent, coordinator.intent_id)
        self.state.coordinators[coordinator.id] = coordinator
        return coordinator

    def end_coordinator(self, agent: AgentId, id_: CoordinatorId) -> Coordinator:
        state, held = self.state, self.state.coordinators.get(id_)
        if held is None or not state.sees(agent, held.intent_id):
            raise NotFound("")
        if held.agent_id != agent and not state.governs(agent, held.intent_id):
            raise Denied("")
        if not held.is_ended:
            held = held.model_copy(update={"is_ended": True, "version": held.version + 1})
        state.coordinators[id_] = held
        return held

    def grant(self, agent: AgentId, grant: Grant) -> Grant:
        self._require_govern(agent, grant.intent)
        self.state.grants[grant.id] = grant
        return grant

    def revoke(self, agent: AgentId, intent: IntentId, id_: GrantId) -> None:
        self._require_govern(agent, intent)
        held = self.state.grants.get(id_)
        if held is None or held.intent != intent:
            raise NotFound("")
        del self.state.grants[id_]

    def log(self, agent: AgentId, intent: IntentId, type_: str, payload: dict[str, object]) -> None:
        if type_.startswith(("memory.", "task.")) or type_ in ("agent_assigned", "nonsense"):
            raise Invalid("")
        self._require_sight(agent, intent)
        self._tell(type_, payload, agent, intent)

    @property
    def _now(self) -> Any:
        return self.state.clock.now

    def _require_sight(self, agent: AgentId, intent: IntentId) -> None:
        if not self.state.sees(agent, intent):
            raise NotFound("")

    def _require_govern(self, agent: AgentId, intent: IntentId) -> None:
        self._require_sight(agent, intent)
        if not self.state.governs(agent, intent):
            raise Denied("")

    def _tell(
        self, type_: str, payload: dict[str, object], actor: AgentId, intent: IntentId,
        stream: AgentId | None = None,
    ) -> None:  # fmt: skip
        self.state.told.append(
            Told(type=type_, payload=payload, stream=stream, actor=actor, log=intent)
        )

    def _stands(self, task: Task, before: Task | None, actor: AgentId, type_: str) -> Task:
        """Let a task be as it is now, with all that follows."""
        is_over = task.status in FINAL
        started = task.started_at or (self._now if task.status == "running" else None)
        times = {"started_at": started, "completed_at": self._now if is_over else None}
        task = task.model_copy(update={"state": task.status, **times})
        self.state.tasks[task.id] = task
        was = None if before is None else before.status
        said = {"task_id": task.id, "name": json.loads(task.details).get("name")}
        if task.status != was:
            said |= {"status": task.status.value, "previous_status": was and was.value}
            self._tell(type_, {**said}, actor, task.intent_id)
        previous = None if before is None else before.assigned_agent
        if task.assigned_agent != previous:
            moved: dict[str, object] = {
                "task_id": task.id, "agent": task.assigned_agent, "previous_agent": previous,
            }  # fmt: skip
            self._tell("agent_assigned", moved, actor, task.intent_id)
        self._bind(task)
        if is_over:
            self._end(task, actor)
        return task

    def _bind(self, task: Task) -> None:
        """The labels of its agent that name it become bound."""
        labels = Labels(
            task=task.id, intent=task.intent_id, binding=Binding.TASK, attempt=task.attempt
        )
        for it in list(self.state.rows.values()):
            is_own = task.assigned_agent is not None and it.owner == task.assigned_agent
            is_label = it.scope.task == task.id and it.scope.binding is not Binding.TASK
            is_of_it = it.scope.intent in (None, task.intent_id)
            if is_own and is_label and is_of_it and self.state.is_live(it):
                self.state.rows[it.id] = it.model_copy(update={"scope": labels})

    def _end(self, task: Task, actor: AgentId) -> None:
        state = self.state
        ending = state.working_of(task)
        for it in ending:
            if not state.is_live(it):
                self.entries.remove(it, "memory.expired", reason="expired")
        for it in list(state.rows.values()):
            if _lasts_as(it, task) and state.is_live(it):
                self.entries.remove(it, "memory.expired", actor, reason="task_ended")
        ending = state.working_of(task)
        must = any(it.get("memory_archive_required") is True for it in state.rails(task.intent_id))
        policy = task.memory_policy
        if policy is not None and not policy.archive_on_completion and not must:
            for it in ending:
                self.entries.remove(it, "memory.expired", actor, reason="task_ended")
            return
        for agent, of_agent in groupby(ending, key=lambda it: it.owner):
            snapshot = _snapshot(of_agent)
            said: dict[str, object] = {"entries_archived": len(snapshot), "snapshot": snapshot}
            self._tell("memory.archived", said, actor, task.intent_id, agent)
        for it in ending:
            del state.rows[it.id]


def _lasts_as(entry: AgentEntry, task: Task) -> bool:
    """Whether an entry of another tier than working lives as long as the task."""
    labels = entry.scope
    is_bound = labels.binding is Binding.TASK and labels.task == task.id
    is_other = entry.memory_type is not Tier.WORKING
    return is_other and is_bound and entry.ttl == LIFETIME and entry.expires_at is None


def _snapshot(entries: Iterable[AgentEntry]) -> list[dict[str, object]]:
    found = []
    for it in entries:
        said: dict[str, object] = {
            "namespace": it.namespace, "key": it.key,
            "tags": list(it.tags), "version": it.version,
        }  # fmt: skip
        is_secret = it.sensitivity in SEALED
        said |= {"redacted": True} if is_secret else {"value": json.loads(it.value)}
        found.append(said)
    return found


def _merged(details: str, change: str) -> str:
    return json.dumps(json.loads(details) | json.loads(change), separators=(",", ":"))
