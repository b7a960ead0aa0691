"""What each change of a team's work and memory should do, by the contract alone."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import groupby
from typing import Any

from agentops_memory.errors import Denied, Invalid, NotFound
from agentops_memory.memory.access import AgentId
from agentops_memory.memory.agents import (
    AgentEntryId,
    Binding,
    CoordinatorId,
    GrantId,
    IntentId,
    Labels,
    Priority,
    Sensitivity,
    TaskId,
    TaskStatus,
    Tier,
)
from agentops_memory.memory.memory import MemoryId
from agentops_memory.memory.retention import Capacities
from agentops_memory.openintent.api import AlreadyThere, BadField, OverCapacity, instant_if_any
from agentops_memory.openintent.changes import Outdated, Taken
from agentops_memory.openintent.drafts import AgentBatchItem, AgentChangeBody, AgentEntryBody
from agentops_memory.openintent.entries import AgentEntry, AgentFilter, EntryKey
from agentops_memory.openintent.intents import Coordinator, Grant, Intent
from agentops_memory.openintent.tasks import (
    OutdatedTask,
    Task,
    TaskBody,
    TaskChangeBody,
    TaskFinished,
)

from .team_model import FINAL, State, Told, fits, is_bound_working

TTL, LASTS = "duration:PT40S", timedelta(seconds=40)  # the one duration of these tests
LIFETIME = "task_lifetime"
KB = 1024


@dataclass
class Entries:
    """Changes of entries; each raises what the service should refuse it with."""

    state: State
    capacities: Capacities

    def create(
        self, agent: AgentId, draft: AgentEntryBody, made: Iterator[AgentEntry],
        but: Sequence[str] = (),
    ) -> AgentEntry:  # fmt: skip
        """The entry that there should be, under the next id that the service has given."""
        state, place = self.state, place_of(agent, draft)
        if not state.writes(agent, place):
            raise Denied("")
        labels = self._bound(agent, draft)
        self._require_allowed(place, labels)
        held = state.at(place)
        if held is not None and state.is_live(held):
            raise Taken(held)
        if held is not None:
            self.remove(held, "memory.expired", reason="expired")
        self._require_unfinished(place.tier, labels, draft.ttl)
        if place.tier is Tier.WORKING:
            self._require_room(agent, labels, len(draft.value.encode()))
        elif place.tier is Tier.EPISODIC:
            self._evict(agent, labels, but)
        given, now = next(made, None), state.clock.now
        ends_at = instant_if_any(draft.expires_at)
        entry = AgentEntry.model_construct(
            id=AgentEntryId(f"none {len(state.told)}") if given is None else given.id,
            memory=MemoryId(0) if given is None else given.memory, agent_id=place.owner or agent,
            namespace=place.namespace, key=place.key, value=draft.value, memory_type=place.tier,
            tags=tuple(draft.tags), pinned=draft.pinned, priority=Priority[draft.priority.upper()],
            sensitivity=draft.sensitivity and Sensitivity(draft.sensitivity), ttl=draft.ttl,
            is_own_expiry=ends_at is not None,
            expires_at=ends_at or (now + LASTS if draft.ttl == TTL else None), scope=labels,
            created_by=agent, version=1, created_at=now, updated_at=now,
        )  # fmt: skip
        state.rows[entry.id], state.accessed[entry.id] = entry, now
        self.note(entry, "memory.created", agent)
        return entry

    def amend(
        self, agent: AgentId, before: AgentEntry | None, change: AgentChangeBody, version: int
    ) -> AgentEntry:
        state = self.state
        if before is None or not state.reads(agent, before):
            raise NotFound("")
        space = before.entry_key
        if not state.writes(agent, space):
            raise Denied("")
        self._require_allowed(before.entry_key, before.scope)
        if version != before.version:
            raise Outdated(before)
        if change.ttl == LIFETIME and before.scope.task is None:
            raise BadField("ttl", "")
        if change.ttl != before.ttl and "ttl" in change.model_fields_set:
            self._require_unfinished(space.tier, before.scope, str(change.ttl))
        value = before.value if change.value is None else change.value
        growth = len(value.encode()) - len(before.value.encode())
        if space.tier is Tier.WORKING and growth > 0:
            self._require_size(agent, before.scope, growth)
        said = self._amended(before, change)
        said |= {"value": value, "version": version + 1, "updated_at": state.clock.now}
        after = before.model_copy(update=said)
        state.rows[after.id], state.accessed[after.id] = after, state.clock.now
        self.note(after, "memory.updated", agent, previous_version=version)
        return after

    def delete(self, agent: AgentId, entry: AgentEntry | None, version: int | None) -> None:
        if entry is None or not self.state.reads(agent, entry):
            raise NotFound("")
        if not self.state.writes(agent, entry.entry_key):
            raise Denied("")
        self._require_allowed(entry.entry_key, entry.scope)
        if version not in (None, entry.version):
            raise Outdated(entry)
        self.remove(entry, "memory.deleted", agent)

    def batch(
        self, agent: AgentId, items: Sequence[AgentBatchItem], made: Iterator[AgentEntry]
    ) -> list[AgentEntry]:
        if any(it.agent_id not in (None, agent) for it in items):  # before any is looked at
            raise Denied("")
        written = dict[AgentEntryId, AgentEntry]()
        for item in items:
            if item.version is None:
                after = self.create(agent, item, made, list(written))
            else:
                place = place_of(agent, item)
                if not self.state.writes(agent, place):
                    raise Denied("")
                held = self.state.at(place)
                after = self.amend(agent, held, item.change, item.version)
            written[after.id] = after
        return list(written.values())

    def delete_batch(self, agent: AgentId, filter_: AgentFilter, most: int) -> tuple[int, bool]:
        """How many of those that may be written go, newest first; and whether there are more."""
        if filter_ == AgentFilter():
            raise Invalid("")
        found = [
            it
            for it in self.state.readable(agent)
            if self.state.writes(agent, it.entry_key)
            and fits(filter_, it)
            and self._is_allowed(it.entry_key, it.scope)
        ]
        for entry in found[:most]:
            self.remove(entry, "memory.deleted", agent)
        return len(found[:most]), len(found) > most

    def sweep(self) -> int:
        gone = [it for it in self.state.rows.values() if not self.state.is_live(it)]
        for entry in gone:
            self.remove(entry, "memory.expired", reason="expired")
        return len(gone)

    def remove(
        self, entry: AgentEntry, type_: str, actor: AgentId | None = None, **said: object
    ) -> None:
        del self.state.rows[entry.id]
        self.note(entry, type_, actor, **said)

    def note(self, entry: AgentEntry, type_: str, actor: AgentId | None, **said: object) -> None:
        space, labels = entry.entry_key, entry.scope
        payload = {
            "entry_id": entry.id, "namespace": space.namespace, "key": entry.key,
            "memory_type": space.tier.value, "version": entry.version,
            "tags": list(entry.tags), **said,
        }  # fmt: skip
        log: Any = labels.intent if labels.binding is not Binding.NONE else None
        stream = space.owner or actor or entry.created_by
        self.state.told.append(
            Told(type=type_, payload=payload, stream=stream, actor=actor, log=log)
        )

    def _bound(self, agent: AgentId, draft: AgentEntryBody) -> Labels:
        state = self.state
        labels = Labels(task=draft.scope.task_id, intent=draft.scope.intent_id)
        task = state.seen_task(agent, labels.task)
        if task is None:
            is_seen = labels.intent is not None and state.sees(agent, labels.intent)  # type: ignore[arg-type]
            return replace(labels, binding=Binding.INTENT if is_seen else Binding.NONE)
        if labels.intent not in (None, task.intent_id):
            raise BadField("scope.intent_id", "")
        if draft.memory_type == "working" and task.assigned_agent != agent:
            raise Denied("")
        return Labels(
            task=task.id, intent=task.intent_id, binding=Binding.TASK, attempt=task.attempt
        )

    def _rails(self, labels: Labels, name: str) -> list[Any]:
        """What the coordinators of a bound intent say under a name."""
        if labels.binding is Binding.NONE:
            return []
        return [it[name] for it in self.state.rails(labels.intent) if it.get(name) is not None]

    def _is_allowed(self, place: EntryKey, labels: Labels) -> bool:
        name = place.namespace
        denied = self._rails(labels, "denied_semantic_namespaces")
        allowed = self._rails(labels, "allowed_semantic_namespaces")
        is_in_line = all(name in it for it in allowed) and not any(name in it for it in denied)
        return place.tier is not Tier.SEMANTIC or is_in_line

    def _require_allowed(self, place: EntryKey, labels: Labels) -> None:
        if not self._is_allowed(place, labels):
            raise Denied("")

    def _require_unfinished(self, tier: Tier, labels: Labels, ttl: str | None) -> None:
        if labels.binding is not Binding.TASK:
            return
        is_over = self.state.tasks[labels.task].status in FINAL  # type: ignore[index]
        if is_over and (tier is Tier.WORKING or ttl == LIFETIME):
            raise TaskFinished

    def _beside(self, agent: AgentId, labels: Labels) -> list[AgentEntry]:
        """The live working entries that count together with one that has these labels."""
        rows = self.state.rows.values()
        if labels.binding is Binding.TASK:
            found = [it for it in rows if is_bound_working(it, str(labels.task))]
        else:
            own = self.state.owned(agent, Tier.WORKING)
            found = [it for it in own if it.scope.binding is not Binding.TASK]
        return [it for it in found if self.state.is_live(it)]

    def _policy(self, labels: Labels) -> Any:
        is_bound = labels.binding is Binding.TASK
        return self.state.tasks[labels.task].memory_policy if is_bound else None  # type: ignore[index]

    def _require_room(self, agent: AgentId, labels: Labels, size: int) -> None:
        policy, most = self._policy(labels), self.capacities.working
        if policy is not None and policy.max_entries is not None:
            most = policy.max_entries
        if labels.binding is Binding.TASK:
            most = min([most, *self._rails(labels, "max_working_memory_per_task")])
        if len(self._beside(agent, labels)) >= most:
            raise OverCapacity("", 0, 0)
        self._require_size(agent, labels, size)

    def _require_size(self, agent: AgentId, labels: Labels, more: int) -> None:
        policy = self._policy(labels)
        most = (
            16 * KB
            if policy is None or policy.max_total_size_kb is None
            else policy.max_total_size_kb
        )
        held = sum(len(it.value.encode()) for it in self._beside(agent, labels))
        if held + more > most * KB:
            raise OverCapacity("", 0, 0)

    def _evict(self, agent: AgentId, labels: Labels, but: Sequence[str]) -> None:
        bounds = self._rails(labels, "max_episodic_memory_per_agent")
        limits = [(min(bounds), labels.intent)] if bounds else []
        for most, intent in [*limits, (self.capacities.episodic, None)]:
            over = len(self._episodic(agent, intent)) + 1 - most
            if over > 0:
                self._expire(agent)
            for _ in range(over):
                left = [
                    it for it in self._episodic(agent, intent) if not it.pinned and it.id not in but
                ]
                if not left:
                    raise OverCapacity("", 0, 0)
                self.remove(min(left, key=self._order), "memory.evicted", reason="capacity")

    def _expire(self, agent: AgentId) -> None:
        for it in list(self.state.rows.values()):
            if it.owner == agent and not self.state.is_live(it):
                self.remove(it, "memory.expired", reason="expired")

    def _episodic(self, agent: AgentId, intent: str | None) -> list[AgentEntry]:
        return [
            it
            for it in self.state.owned(agent, Tier.EPISODIC)
            if intent is None or (it.scope.intent == intent and it.scope.binding != Binding.NONE)
        ]

    def _order(self, entry: AgentEntry) -> Any:
        at = self.state.accessed[entry.id]
        return entry.priority, at, entry.updated_at, entry.memory

    def _amended(self, before: AgentEntry, change: AgentChangeBody) -> dict[str, Any]:
        named, now = change.model_fields_set, self.state.clock.now
        said: dict[str, Any] = {} if change.tags is None else {"tags": tuple(change.tags)}
        if change.priority is not None:
            said["priority"] = Priority[change.priority.upper()]
        if "sensitivity" in named:
            said["sensitivity"] = change.sensitivity and Sensitivity(change.sensitivity)
        if "ttl" in named:
            said["ttl"] = change.ttl
        if "expires_at" in named:
            ends = instant_if_any(change.expires_at)
            is_same = ends == before.expires_at and said.get("ttl", before.ttl) == before.ttl
            return said if is_same else said | {"expires_at": ends, "is_own_expiry": True}
        if "ttl" in named and not before.is_own_expiry:
            said["expires_at"] = now + LASTS if change.ttl == TTL else None
        return said


def place_of(agent: AgentId, draft: AgentEntryBody) -> EntryKey:
    """Where an entry is to lie, whoever may write there."""
    tier = Tier(draft.memory_type)
    owner = draft.agent_id or agent
    return EntryKey(tier, owner if tier.has_owner else None, draft.namespace, draft.key)


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
