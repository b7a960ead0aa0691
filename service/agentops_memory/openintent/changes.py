"""Changes of entries, each in one transaction with its event: create, amend, delete, in batches.

Also bindings to tasks and intents, and the resulting limits (RFC-0015 §2.1, §6.5, §6.6, §9.4).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Concatenate, ParamSpec

from ..engine.engine import Transaction
from ..errors import AtItem, BadFields, Denied, Refusal, required
from ..light import dataclass, replace
from ..memory import sight
from ..memory.access import AgentId
from ..memory.idempotency import once
from ..memory.memories import MemoryTable, SpaceTable
from ..memory.memory import UNSAVED, Lifecycle, Memory, MemoryId, Text
from ..memory.redactor import Redactor, require_room
from ..memory.rows import micros
from ..memory.saves import changed_at, created, revised
from ..memory.sight import AgentEntryId, Binding, EventType, IntentId, Labels, TaskId, Tier, Viewer
from ..memory.space import NO_PROJECT, Capacities, Space, SpaceKind
from ..memory.table import Sql
from . import drafts, entries, events, intents
from .agents import capacity_of
from .api import MAX_VALUE, NO_ENTRY, OverCapacity, Stale, instant_if_any, kilobytes
from .drafts import AgentBatchItem, AgentChangeBody, AgentEntryBody, expiry_of
from .entries import BOUND, ENTRY, AgentEntry, AgentFilter, EntryKey, KeyLost, SealTable, note
from .events import OF_TASK, add_receipt, expire, remove
from .intents import standing
from .tasks import MemoryPolicy, Task, TaskFinished, bound_to, task_with, visible_task

P = ParamSpec("P")

KB = 1024  # bytes; the unit of `max_total_size_kb` (§6.5)
DEFAULT_SIZE = 16 * KB  # KB of working memory without a policy
AT_LEAST = 100  # minimum number of entries that a deletion reads at once
MAX_EVICTED = 100  # in one transaction: a lowered capacity is reached step by step


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The entries after a write, and how many others were evicted for it."""

    entries: tuple[AgentEntry, ...]
    evicted: int = 0
    is_new: bool = True  # for a single entry: whether it was created


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Capacities, and which entries may be evicted for new ones."""

    capacities: Capacities
    but: Sequence[MemoryId] = ()  # memories that are not evicted
    most_evicted: int = MAX_EVICTED


def create(tx: Transaction, viewer: Viewer, body: AgentEntryBody, room: Room) -> Outcome:
    """Create an entry at a free key; a full episodic memory evicts others."""
    key, end = body.entry_key(viewer), instant_if_any(body.expires_at)
    ends_at = expiry_of(body.ttl, end, tx.now)
    require_write(tx, key, viewer)
    named = Labels(task=body.scope.task_id, intent=body.scope.intent_id)
    scope = bound(tx, viewer, key, named)
    require_allowed(tx, key, scope)
    _make_key_free(tx, key)
    require_unfinished(tx, key.tier, scope, body.ttl)
    evicted = make_room(tx, key, scope, len(body.value.encode()), room)
    entry = AgentEntry.whole(
        id=AgentEntryId(tx.new_uid(tx.now)), memory=UNSAVED, agent_id=viewer.agent,
        namespace=key.namespace, key=key.key, value=body.value, memory_type=key.tier,
        scope=scope, created_by=viewer.agent, version=1, created_at=tx.now, updated_at=tx.now,
        expires_at=ends_at, is_own_expiry=end is not None, has_ended=False,
        **body.values_of(drafts.CONVERSIONS),
    )  # fmt: skip
    # All spaces in a tier of one agent share an area of the index.
    grouped_by = ("tier", "agent") if key.owner is not None else ()
    kind = SpaceKind(key.tier.value)
    space = tx[SpaceTable].named(kind, "agent_spaces", key.named, grouped_by)
    stored = created(tx, _memory(entry, space))
    entry = entry.model_copy(update={"memory": stored.id})
    tx[Sql].insert(
        "agent_memories", memory_id=entry.memory, tier=key.tier.value, agent=key.owner or "",
        accessed_at=micros(tx.now), size=entry.size, **ENTRY.values(entry, "a."),
    )  # fmt: skip
    if entry.is_sealed:
        tx[SealTable].put(entry.memory, key, entry.value)
    note(tx, EventType.CREATED, entry, viewer)
    return Outcome(entries=(entry,), evicted=evicted)


def amend(
    tx: Transaction, viewer: Viewer, entry: AgentEntryId, change: AgentChangeBody, version: int,
    room: Room,
) -> Outcome:  # fmt: skip
    before = entries.known(tx, entry, viewer)
    return Outcome(entries=(_amend(tx, before, viewer, change, version, room),))


def put(tx: Transaction, viewer: Viewer, body: AgentEntryBody, room: Room) -> Outcome:
    """Set the value and the ttl of the entry at a key, whatever its version, or create it."""
    existing = live_entry_at(tx, body.entry_key(viewer))
    if existing is None:
        return create(tx, viewer, body, room)
    values = {"value": body.value, "ttl": body.ttl}
    change = AgentChangeBody.model_construct(set(values), **values)
    after = _amend(tx, existing, viewer, change, existing.version, room)
    return Outcome(entries=(after,), is_new=False)


def live_entry_at(tx: Transaction, key: EntryKey) -> AgentEntry | None:
    """Return the entry at a key, unless it has ended or expired."""
    entry = entries.entry_at(tx, key)
    return entry if entry is not None and entry.is_live(tx.now) else None


def redact_entry(tx: Transaction, entry: AgentEntry, redactor: Redactor) -> None:
    """Remove secrets from an entry's fields, except from its namespace and its key."""
    values: dict[str, Any] = {"tags": list(entry.tags), "curated_by": entry.curated_by}
    if not entry.is_lost:
        values["value"] = entry.value
    change = drafts.cleaned(redactor, AgentChangeBody.model_construct(set(values), **values))
    owner = Viewer(agent=entry.agent_id, is_admin=True)
    _amend(tx, entry, owner, change, entry.version, None)


def delete(tx: Transaction, viewer: Viewer, entry: AgentEntryId, version: int | None) -> None:
    before = entries.known(tx, entry, viewer)
    require_write(tx, before.entry_key, viewer)
    require_allowed(tx, before.entry_key, before.scope)
    if version not in (None, before.version):
        raise Stale(f"The entry is at version {before.version}.", before)
    remove(tx, before, EventType.DELETED, actor=viewer)


def write_batch(
    tx: Transaction, viewer: Viewer, items: Sequence[AgentBatchItem], room: Room
) -> Outcome:
    """Write all items in order; raise AtItem for the first that is refused."""
    written: list[AgentEntry] = []
    evicted = 0
    for number, item in enumerate(items):
        but = [it.memory for it in written]
        left = replace(room, but=but, most_evicted=MAX_EVICTED - evicted)
        try:
            done = _write(tx, viewer, item, left)
        except Refusal as refusal:
            raise AtItem(number, refusal) from refusal
        written.extend(done.entries)
        evicted += done.evicted
    latest = {it.id: it for it in written}  # an item may change the entry of an earlier one
    return Outcome(entries=tuple(latest[it.id] for it in written), evicted=evicted)


def _write(tx: Transaction, viewer: Viewer, item: AgentBatchItem, room: Room) -> Outcome:
    if item.version is None:
        return create(tx, viewer, item, room)
    key = item.entry_key(viewer)
    require_write(tx, key, viewer)
    existing = required(live_entry_at(tx, key), NO_ENTRY)
    return Outcome(entries=(_amend(tx, existing, viewer, item.change, item.version, room),))


def delete_batch(
    tx: Transaction, viewer: Viewer, filter_: AgentFilter, most: int
) -> tuple[int, bool]:
    """Delete matching entries that the agent may write, newest first.

    Returns how many were deleted, and whether there are more.
    """
    matches = list(islice(_deletable(tx, viewer, filter_, max(most + 1, AT_LEAST)), most + 1))
    for entry in matches[:most]:
        remove(tx, entry, EventType.DELETED, actor=viewer)
    return len(matches[:most]), len(matches) > most


def _deletable(
    tx: Transaction, viewer: Viewer, filter_: AgentFilter, at_once: int
) -> Iterator[AgentEntry]:
    """Yield matching entries that may be changed, except those that guardrails protect.

    Guardrails are checked once per intent, tier and namespace, as many entries may share them.
    """
    offset, known = 0, dict[tuple[str | None, Tier, str], bool]()
    while sized := entries.ids_of(tx, filter_, sight.writable(viewer), at_once, offset):
        for entry in entries.some(tx, viewer, [id_ for id_, _ in sized]):
            intent = entry.scope.intent if entry.scope.binding else None
            scope = (intent, entry.memory_type, entry.namespace)
            if scope not in known:
                known[scope] = is_allowed(tx, entry.entry_key, entry.scope)
            if known[scope]:
                yield entry
        offset += len(sized)


def _without_sealed(outcome: Outcome) -> Outcome:
    """Return an outcome without sealed values, to be stored for replays."""
    plain = (it.model_copy(update={"value": ""}) if it.is_sealed else it for it in outcome.entries)
    return replace(outcome, entries=tuple(plain))


def _replayed(tx: Transaction, first: Outcome, viewer: Viewer, *_: object) -> Outcome:
    """Return a stored outcome with current sealed values, or raise NotFound if unreadable now."""
    pairs = [(it, entries.known(tx, it.id, viewer)) for it in first.entries]
    return replace(first, entries=tuple(now if now.is_sealed else then for then, now in pairs))


def _once(work: Callable[Concatenate[Transaction, P], Outcome]) -> Callable[..., Outcome]:
    """Make work idempotent: a replay returns entries that the agent may still see."""
    return once(
        work, on_repeat=_replayed, kept=_without_sealed,
        about=lambda it: [entry.memory for entry in it.entries],
        status=None if work is not put else lambda it: 201 if it.is_new else 200,
    )  # fmt: skip


# The idempotent forms of these functions.
CREATE, PUT, AMEND, WRITE_BATCH = _once(create), _once(put), _once(amend), _once(write_batch)
DELETE, DELETE_BATCH = once(delete), once(delete_batch)


def require_write(tx: Transaction, key: EntryKey, viewer: Viewer) -> None:
    """Raise Denied if the viewer may not write at a key."""
    if key.owner is not None:
        if key.owner != viewer.agent:
            raise Denied("An agent may write only its own memory.")
    elif sight.permissions(tx, key.namespace).of(viewer) < sight.Access.WRITE:
        raise Denied("The agent may not write in this namespace.")


def make_room(tx: Transaction, key: EntryKey, scope: Labels, size: int, room: Room) -> int:
    """Make room for a new entry; return how many others were evicted for it.

    Episodic entries are evicted, after all expired ones are removed; working ones never are.
    Raises OverCapacity, without changes, if no entry may be evicted.
    """
    require_room(tx)
    if key.owner is None:
        return 0
    if key.tier is Tier.WORKING:
        require_working_room(tx, key.owner, scope, room.capacities, size)
        return 0
    agent, evicted = key.owner, 0
    limits = (it.max_episodic_memory_per_agent for it in guardrails(tx, scope))
    most = min((most for most in limits if most is not None), default=None)
    if most is not None and scope.intent is not None:
        intent = IntentId(scope.intent)
        number = entries.measured(
            tx, "count(*)",
            f"""a.tier = '{Tier.EPISODIC}' AND a.agent = :agent AND a.intent = :intent
                AND a.binding > {Binding.NONE:d}""",
            agent=agent, intent=intent,
        )  # fmt: skip
        limit = "max_episodic_memory_per_agent", number, most
        evicted = _evict(tx, agent, limit, room, 0, intent)
    number = entries.number_of(tx, Tier.EPISODIC, agent)
    limit = "episodic_capacity", number, capacity_of(tx, agent, room.capacities)
    return evicted + _evict(tx, agent, limit, room, evicted)


def _evict(
    tx: Transaction, agent: AgentId, limit: tuple[str, int, int], room: Room, evicted: int,
    intent: IntentId | None = None,
) -> int:  # fmt: skip
    """Evict an agent's entries, or those bound to an intent, until one fits; return how many."""
    _, number, most = limit
    over = max(0, min(number + 1 - most, room.most_evicted - evicted))
    if over > 0:
        for gone in entries.expired(tx, MAX_EVICTED, agent=agent):
            expire(tx, gone)
    for _ in range(over):
        victim = entries.victim(tx, agent, room.but, intent)
        if victim is None:
            raise OverCapacity(*limit)
        remove(tx, victim, EventType.EVICTED, reason="capacity")
    return over


def _make_key_free(tx: Transaction, key: EntryKey) -> None:
    """Raise Stale if a live entry has the key; remove the row of an ended one."""
    existing = entries.entry_at(tx, key)
    if existing is None:
        return
    if existing.is_live(tx.now):
        raise Stale("There is already an entry at this key.", existing)
    if pending := events.pending_archive_of(tx, existing) if existing.has_ended else None:
        events.settle(tx, pending)
    else:
        expire(tx, existing)


def _amend(
    tx: Transaction, before: AgentEntry, viewer: Viewer, change: AgentChangeBody, version: int,
    room: Room | None,
) -> AgentEntry:  # fmt: skip
    """Change an entry and return it; without `room`, to remove secrets, limits do not apply."""
    after = _planned(tx, before, viewer, change, version, room)
    revised(tx, _memory(before), _memory(after), has_new_text=False)
    # Only changed columns: setting a column rewrites its indexes even if the value stays.
    row = ENTRY.values(after, "a.", before)
    if not after.is_lost and (before.is_lost or after.size != before.size):
        row["size"] = after.size
    if after.memory_type is Tier.EPISODIC:
        row["accessed_at"] = micros(tx.now)
    if row:
        tx[Sql].update("agent_memories", "memory_id", {"memory_id": after.memory, **row})
    if after.is_sealed and not after.is_lost:  # a lost value stays sealed as it is
        tx[SealTable].put(after.memory, after.entry_key, after.value)
    elif before.is_sealed and not after.is_sealed:
        tx[SealTable].remove(after.memory)
    if after.is_sealed and not before.is_sealed:  # the plain bytes are erased as after a deletion
        tx[MemoryTable].must_scrub(before.memory)
        add_receipt(tx)
    note(tx, EventType.UPDATED, after, viewer, before=before)
    return after


def _planned(
    tx: Transaction, before: AgentEntry, viewer: Viewer, change: AgentChangeBody, version: int,
    room: Room | None,
) -> AgentEntry:  # fmt: skip
    """Return the entry after a change, or raise the refusal."""
    change.require_same(before)
    key, scope = before.entry_key, before.scope
    require_write(tx, key, viewer)
    if room is not None:
        require_allowed(tx, key, scope)
    if version != before.version:
        raise Stale(f"The entry is at version {before.version}.", before)
    require_room(tx)
    fields = change.amended(before, tx.now)
    fields |= {"version": before.version + 1, "updated_at": changed_at(tx, before.updated_at)}
    after = before.model_copy(update=fields)
    if before.is_lost and change.value is None and not after.is_sealed:
        raise KeyLost  # it cannot be stored plain without its value
    if after.ttl == entries.TASK_LIFETIME and scope.task is None:
        raise BadFields([("ttl", f"{entries.TASK_LIFETIME} needs scope.task_id")])
    lost_expiry = before.expires_at is not None and after.expires_at is None
    if lost_expiry or after.ttl != before.ttl:
        require_unfinished(tx, key.tier, scope, after.ttl)
    if room is not None and key.owner is not None and key.tier is Tier.WORKING:
        growth = after.size - before.size
        require_working_room(tx, key.owner, scope, room.capacities, growth, is_new=False)
    return after


def _memory(entry: AgentEntry, space: Space | None = None) -> Memory:
    """Return the memory of an entry, without reading it; changes need no `space`."""
    content = f"[{entry.sensitivity}]" if entry.is_sealed else str(entry.value)
    return Memory(
        id=entry.memory, uid=entry.id, session=None, key=entry.key,
        space=space or Space(project=NO_PROJECT, scope="", kind=SpaceKind(entry.memory_type.value)),
        text=Text(
            type=entry.memory_type.value, title=f"{entry.namespace}/{entry.key}", content=content,
            tags=entry.tags,
        ),
        revision=entry.version, last_seen_at=entry.created_at, created_at=entry.created_at,
        updated_at=entry.updated_at, lifecycle=Lifecycle(expires_at=entry.expires_at),
    )  # fmt: skip


# Bindings to tasks and intents, and the limits that follow.


def bound(tx: Transaction, viewer: Viewer, key: EntryKey, labels: Labels) -> Labels:
    """Return the labels of a new entry, bound to their task or intent if the agent sees it.

    Otherwise they stay plain labels, and the agent cannot tell the difference. Raises Denied for
    working memory of another agent's task; BadFields for an intent that is not the task's.
    """
    if labels.task is None and labels.intent is None:
        return labels
    task = visible_task(tx, viewer, labels.task)
    if task is None:
        intent = None if labels.intent is None else IntentId(labels.intent)
        is_visible = intent is not None and standing(tx, viewer, intent).sees
        return replace(labels, binding=Binding.INTENT if is_visible else Binding.NONE)
    if labels.intent not in (None, task.intent_id):
        raise BadFields([("scope.intent_id", "must equal that of the task")])
    if key.tier is Tier.WORKING and task.assigned_agent != viewer.agent:
        raise Denied(
            "The task is not assigned to this agent, so its working memory cannot be bound to it."
        )
    return bound_to(task)


def require_unfinished(tx: Transaction, tier: Tier, labels: Labels, ttl: str | None) -> None:
    """Raise TaskFinished for an entry that would live as long as a finished task."""
    task = task_of(tx, labels)
    if task and task.status.is_final and (tier is Tier.WORKING or ttl == entries.TASK_LIFETIME):
        raise TaskFinished


def task_of(tx: Transaction, labels: Labels) -> Task | None:
    """Return the task that labels are bound to; None without one, or once it is removed."""
    if labels.binding is not Binding.TASK or labels.task is None:
        return None
    return task_with(tx, TaskId(labels.task))


def guardrails(tx: Transaction, labels: Labels) -> list[sight.Guardrails]:
    """Return the guardrails of the intent that labels are bound to."""
    if labels.binding is Binding.NONE or labels.intent is None:
        return []
    return intents.guardrails(tx, IntentId(labels.intent))


def is_allowed(tx: Transaction, key: EntryKey, labels: Labels) -> bool:
    """Return whether guardrails allow a change; they restrict semantic entries only."""
    if key.tier is not Tier.SEMANTIC:
        return True
    return all(it.allows(key.namespace) for it in guardrails(tx, labels))


def require_allowed(tx: Transaction, key: EntryKey, labels: Labels) -> None:
    """Raise Denied if guardrails forbid a change of an entry."""
    if not is_allowed(tx, key, labels):
        raise Denied("A coordinator of the intent does not allow this namespace.")


def require_working_room(
    tx: Transaction, agent: AgentId, labels: Labels, capacities: Capacities, more: int, *,
    is_new: bool = True,
) -> None:  # fmt: skip
    """Raise OverCapacity if a working entry, new or grown by `more` bytes, does not fit."""
    if not is_new and more <= 0:
        return
    task, most_size = task_of(tx, labels), DEFAULT_SIZE
    limits = [("working_capacity", capacities.working)]
    if task is None:  # the agent's entries without a task; else all entries of the task
        which = f"a.tier = '{Tier.WORKING}' AND a.agent = :agent AND NOT {BOUND}"
        values: dict[str, object] = {"agent": agent}
        number = entries.number_of(tx, Tier.WORKING, agent)
    else:
        which, values = OF_TASK, {"task": task.id, "attempt": task.attempt}
        number = entries.measured(tx, "count(*)", which, **values)
        policy = task.memory_policy or MemoryPolicy()
        if policy.max_entries is not None:
            limits = [("max_entries", policy.max_entries)]
        if policy.max_total_size_kb is not None:
            most_size = policy.max_total_size_kb
        for each in guardrails(tx, labels):
            if (it := each.max_working_memory_per_task) is not None:
                limits.append(("max_working_memory_per_task", it))
    name, most = min(limits, key=lambda it: it[1])
    if is_new and number >= most:
        raise OverCapacity(name, number, most)
    if (number + 1) * MAX_VALUE <= most_size * KB:  # they fit, however long they are
        return
    size = entries.measured(tx, sight.sum_of("a.size"), which, **values)
    if size + more > most_size * KB:
        raise OverCapacity("max_total_size_kb", kilobytes(size), most_size, "Kilobytes")
