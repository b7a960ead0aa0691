"""What each change of a team's work and memory should do, by the contract alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from agentops_memory.errors import Denied, Invalid, NotFound
from agentops_memory.memory.model.agent_memory import (
    KEPT,
    AgentChange,
    AgentDraft,
    AgentEntry,
    AgentEntryId,
    AgentFilter,
    BatchItem,
    Binding,
    Handling,
    Labels,
    Place,
    Tier,
)
from agentops_memory.memory.model.agents import AgentId
from agentops_memory.memory.model.memory import MemoryId
from agentops_memory.memory.model.retention import Capacities
from agentops_memory.openintent.rules.binding import BadField, OverCapacity, TaskFinished
from agentops_memory.openintent.rules.rules import Outdated, Taken

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
        self, agent: AgentId, draft: AgentDraft, made: Iterator[AgentEntry], but: Sequence[str] = ()
    ) -> AgentEntry:
        """The entry that there should be, under the next id that the service has given."""
        state, space = self.state, draft.place.space
        if not state.writes(agent, space):
            raise Denied("")
        labels = self._bound(agent, draft)
        self._require_allowed(draft.place, labels)
        held = state.at(draft.place)
        if held is not None and state.is_live(held):
            raise Taken(held)
        if held is not None:
            self.remove(held, "memory.expired", reason="expired")
        self._require_unfinished(space.tier, labels, draft.handling.ttl)
        if space.tier is Tier.WORKING:
            self._require_room(agent, labels, len(draft.value.encode()))
        elif space.tier is Tier.EPISODIC:
            self._evict(agent, labels, but)
        given, now = next(made, None), state.clock.now
        entry = AgentEntry(
            id=AgentEntryId(f"none {len(state.told)}") if given is None else given.id,
            memory=MemoryId(0) if given is None else given.memory,
            place=draft.place,
            value=draft.value,
            handling=self._begun(draft.handling),
            labels=labels,
            created_by=agent,
            version=1,
            created_at=now,
            updated_at=now,
        )
        state.rows[entry.id], state.accessed[entry.id] = entry, now
        self.note(entry, "memory.created", agent)
        return entry

    def amend(
        self, agent: AgentId, before: AgentEntry | None, change: AgentChange, version: int
    ) -> AgentEntry:
        state = self.state
        if before is None or not state.reads(agent, before):
            raise NotFound("")
        space, handling = before.place.space, before.handling
        if not state.writes(agent, space):
            raise Denied("")
        self._require_allowed(before.place, before.labels)
        if version != before.version:
            raise Outdated(before)
        if change.ttl == LIFETIME and before.labels.task is None:
            raise BadField("ttl", "")
        if change.ttl not in (KEPT, handling.ttl):
            self._require_unfinished(space.tier, before.labels, str(change.ttl))
        value = before.value if change.value is None else change.value
        growth = len(value.encode()) - len(before.value.encode())
        if space.tier is Tier.WORKING and growth > 0:
            self._require_size(agent, before.labels, growth)
        after = replace(
            before,
            value=value,
            handling=self._amended(handling, change),
            version=version + 1,
            updated_at=state.clock.now,
        )
        state.rows[after.id], state.accessed[after.id] = after, state.clock.now
        self.note(after, "memory.updated", agent, previous_version=version)
        return after

    def delete(self, agent: AgentId, entry: AgentEntry | None, version: int | None) -> None:
        if entry is None or not self.state.reads(agent, entry):
            raise NotFound("")
        if not self.state.writes(agent, entry.place.space):
            raise Denied("")
        self._require_allowed(entry.place, entry.labels)
        if version not in (None, entry.version):
            raise Outdated(entry)
        self.remove(entry, "memory.deleted", agent)

    def batch(
        self, agent: AgentId, items: Sequence[BatchItem], made: Iterator[AgentEntry]
    ) -> list[AgentEntry]:
        written = dict[AgentEntryId, AgentEntry]()
        for item in items:
            if item.version is None or item.change is None:
                after = self.create(agent, item.draft, made, list(written))
            else:
                if not self.state.writes(agent, item.draft.place.space):
                    raise Denied("")
                held = self.state.at(item.draft.place)
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
            if self.state.writes(agent, it.place.space)
            and fits(filter_, it)
            and self._is_allowed(it.place, it.labels)
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
        space, labels = entry.place.space, entry.labels
        payload = {
            "entry_id": entry.id, "namespace": space.namespace, "key": entry.place.key,
            "memory_type": space.tier.value, "version": entry.version,
            "tags": list(entry.handling.tags), **said,
        }  # fmt: skip
        log: Any = labels.intent if labels.binding is not Binding.NONE else None
        stream = space.agent or actor or entry.created_by
        self.state.told.append(
            Told(type=type_, payload=payload, stream=stream, actor=actor, log=log)
        )

    def _bound(self, agent: AgentId, draft: AgentDraft) -> Labels:
        labels, state = draft.labels, self.state
        task = state.seen_task(agent, labels.task)
        if task is None:
            is_seen = labels.intent is not None and state.sees(agent, labels.intent)  # type: ignore[arg-type]
            return replace(labels, binding=Binding.INTENT if is_seen else Binding.NONE)
        if labels.intent not in (None, task.intent):
            raise BadField("scope.intent_id", "")
        if draft.place.space.tier is Tier.WORKING and task.agent != agent:
            raise Denied("")
        return Labels(task=task.id, intent=task.intent, binding=Binding.TASK, attempt=task.attempt)

    def _rails(self, labels: Labels, name: str) -> list[Any]:
        """What the coordinators of a bound intent say under a name."""
        if labels.binding is Binding.NONE:
            return []
        return [it[name] for it in self.state.rails(labels.intent) if it.get(name) is not None]

    def _is_allowed(self, place: Place, labels: Labels) -> bool:
        name = place.space.namespace
        denied = self._rails(labels, "denied_semantic_namespaces")
        allowed = self._rails(labels, "allowed_semantic_namespaces")
        is_in_line = all(name in it for it in allowed) and not any(name in it for it in denied)
        return place.space.tier is not Tier.SEMANTIC or is_in_line

    def _require_allowed(self, place: Place, labels: Labels) -> None:
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
            found = [it for it in own if it.labels.binding is not Binding.TASK]
        return [it for it in found if self.state.is_live(it)]

    def _policy(self, labels: Labels) -> Any:
        is_bound = labels.binding is Binding.TASK
        return self.state.tasks[labels.task].policy if is_bound else None  # type: ignore[index]

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
        most = 16 * KB if policy is None or policy.max_size is None else policy.max_size
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
                    it
                    for it in self._episodic(agent, intent)
                    if not it.handling.is_pinned and it.id not in but
                ]
                if not left:
                    raise OverCapacity("", 0, 0)
                self.remove(min(left, key=self._order), "memory.evicted", reason="capacity")

    def _expire(self, agent: AgentId) -> None:
        for it in list(self.state.rows.values()):
            if it.place.space.agent == agent and not self.state.is_live(it):
                self.remove(it, "memory.expired", reason="expired")

    def _episodic(self, agent: AgentId, intent: str | None) -> list[AgentEntry]:
        return [
            it
            for it in self.state.owned(agent, Tier.EPISODIC)
            if intent is None or (it.labels.intent == intent and it.labels.binding != Binding.NONE)
        ]

    def _order(self, entry: AgentEntry) -> Any:
        at = self.state.accessed[entry.id]
        return entry.handling.priority, at, entry.updated_at, entry.memory

    def _begun(self, handling: Handling) -> Handling:
        if handling.expires_at is not None:
            return replace(handling, is_own_expiry=True)
        ends = self.state.clock.now + LASTS if handling.ttl == TTL else None
        return replace(handling, expires_at=ends)

    def _amended(self, before: Handling, change: AgentChange) -> Handling:
        named: dict[str, Any] = {
            "tags": change.tags, "is_pinned": change.is_pinned, "priority": change.priority,
        }  # fmt: skip
        named = {name: value for name, value in named.items() if value is not None}
        if change.sensitivity is not KEPT:
            named["sensitivity"] = change.sensitivity
        after = replace(before, **named)
        if change.expires_at is not KEPT:
            if change.expires_at == before.expires_at and after.ttl == before.ttl:
                return after  # what it came to, said again
            return replace(after, expires_at=change.expires_at, is_own_expiry=True)
        if change.ttl is KEPT:
            return after
        after = replace(after, ttl=change.ttl)
        return after if before.is_own_expiry else self._begun(replace(after, expires_at=None))
