"""Bindings of entries to tasks and intents, and the limits that follow (RFC-0015 §2.1, §6)."""

from collections.abc import Sequence

from ..engine.engine import Transaction
from ..errors import BadFields, Denied
from ..light import dataclass, replace
from ..memory import sight
from ..memory.access import AgentId
from ..memory.memory import MemoryId
from ..memory.redactor import require_room
from ..memory.sight import Binding, EventType, IntentId, Labels, TaskId, Tier, Viewer
from ..memory.space import Capacities
from . import entries, intents
from .agents import capacity_of
from .api import MAX_VALUE, OverCapacity, kilobytes
from .entries import BOUND, TASK_LIFETIME, EntryKey
from .events import OF_TASK, expire, remove
from .intents import standing
from .tasks import MemoryPolicy, Task, TaskFinished, bound_to, task_with, visible_task

KB = 1024  # bytes; the unit of `max_total_size_kb` (§6.5)
DEFAULT_SIZE = 16 * KB  # KB of working memory without a policy
MAX_EVICTED = 100  # in one transaction: a lowered capacity is reached step by step


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Capacities, and which entries may be evicted for new ones."""

    capacities: Capacities
    but: Sequence[MemoryId] = ()  # memories that are not evicted
    most_evicted: int = MAX_EVICTED


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
    if task and task.status.is_final and (tier is Tier.WORKING or ttl == TASK_LIFETIME):
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


def require_working_room(
    tx: Transaction, agent: AgentId, labels: Labels, capacities: Capacities, more: int, *,
    is_new: bool = True,
) -> None:  # fmt: skip
    """Raise OverCapacity if a working entry, new or grown by `more` bytes, does not fit."""
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
