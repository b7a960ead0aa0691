"""What an entry is bound to, and what holds of it then (RFC-0015 §2.1, §6.5, §6.6, §9.4)."""

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ...engine.engine import Transaction
from ...errors import Conflict, Denied, Invalid
from ...memory.model.agent_memory import (
    KEPT,
    AgentChange,
    AgentDraft,
    Binding,
    Eyes,
    Handling,
    Labels,
    Place,
    Tier,
)
from ...memory.model.agents import AgentId
from ...memory.model.intents import DEFAULT_SIZE, Guardrails, IntentId, Task, TaskId
from ...memory.model.retention import Capacities
from ..sql.archives import BoundTable
from ..sql.intents import IntentTable
from ..sql.tasks import TaskTable
from .values import MAX_VALUE

TASK_LIFETIME = "task_lifetime"
PREFIX = "duration:"
LONGEST = timedelta(days=36_500)
YEAR, MONTH = 365, 30  # days
_DAY = 86_400  # seconds

_DURATION = re.compile(
    r"P(?:(?P<years>\d{1,9})Y)?(?:(?P<months>\d{1,9})M)?(?:(?P<weeks>\d{1,9})W)?"
    r"(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,9}(?:[.,]\d{1,6})?)S)?)?",
    re.ASCII,
)


class BadField(Invalid):
    """A member of an entry is not what it should be, as things stand."""

    def __init__(self, field: str, said: str) -> None:
        super().__init__(f"{field} {said}.")
        self.field, self.said = field, said


def begun(handling: Handling, at: datetime) -> Handling:
    """What is said of a new entry, with its end; Invalid for one that has passed."""
    return _ending(replace(handling, is_own_expiry=handling.expires_at is not None), at)


def amended(before: Handling, change: AgentChange, at: datetime) -> Handling:
    """What is said of an entry after a change at an instant.

    A ttl counts from the change that sets it. An instant that is what it was already is
    no change; Invalid for one that has passed.
    """
    after = replace(
        before,
        tags=before.tags if change.tags is None else change.tags,
        is_pinned=before.is_pinned if change.is_pinned is None else change.is_pinned,
        priority=before.priority if change.priority is None else change.priority,
        sensitivity=before.sensitivity if change.sensitivity is KEPT else change.sensitivity,
        curated_by=before.curated_by if change.curated_by is KEPT else change.curated_by,
        ttl=before.ttl if change.ttl is KEPT else change.ttl,
    )
    if change.expires_at is KEPT:
        is_left = change.ttl is KEPT or before.is_own_expiry
        return after if is_left else _ending(replace(after, expires_at=None), at)
    if change.expires_at == before.expires_at and after.ttl == before.ttl:
        return after
    return begun(replace(after, expires_at=change.expires_at), at)


def lifetime(ttl: str) -> timedelta:
    """How long a ttl that is a duration lasts; Invalid for what is none, or nothing, or too long.

    A year has 365 days, a month 30.
    """
    found = _DURATION.fullmatch(ttl.removeprefix(PREFIX)) if ttl.startswith(PREFIX) else None
    parts = {name: said for name, said in found.groupdict().items() if said} if found else {}
    if not parts:
        raise Invalid(f"ttl must be {TASK_LIFETIME}, or {PREFIX} and a duration such as P30D.")
    number = {name: float(said.replace(",", ".")) for name, said in parts.items()}
    days = number.pop("years", 0) * YEAR + number.pop("months", 0) * MONTH
    try:
        lasts = timedelta(days=days) + timedelta(**number)
    except OverflowError:
        lasts = timedelta.max
    if not timedelta() < lasts <= LONGEST:
        raise Invalid("ttl must be more than nothing, and at most 100 years.")
    return lasts


def ttl_of(seconds: int) -> str:
    """The ttl that lasts so many seconds."""
    days, rest = divmod(seconds, _DAY)
    return f"{PREFIX}PT{seconds}S" if not days else f"{PREFIX}P{days}DT{rest}S"


def require_future(at: datetime | None, now: datetime) -> None:
    """Raise BadField for an end that has passed."""
    if at is not None and at <= now:
        raise BadField("expires_at", "must be in the future")


def _ending(handling: Handling, at: datetime) -> Handling:
    """With the end that its ttl comes to from then on, unless one was set."""
    ttl, end = handling.ttl, handling.expires_at
    require_future(end, at)
    if end is not None or ttl is None or ttl == TASK_LIFETIME:
        return handling
    return replace(handling, expires_at=at + lifetime(ttl))


KB = 1024
NOT_ASSIGNED = "The task is not assigned to the agent, so that it binds no working memory to it."
OTHER_INTENT = "must be the task's"
UNNAMED = Labels()


class TaskFinished(Conflict):
    """The task is finished: it takes no working memory, and its status is final (§2.1)."""

    code = "task_finished"

    def __init__(self) -> None:
        super().__init__("The task is finished.")


class OverCapacity(Conflict):
    """As much as there may be is there (§9.4)."""

    code = "over_capacity"

    def __init__(self, limit: str, count: int, most: int, what: str = "Entries") -> None:
        super().__init__(f"{what} here are limited to {most:,}.")
        self.limit, self.count, self.most = limit, count, most


def bound(tx: Transaction, eyes: Eyes, draft: AgentDraft) -> AgentDraft:
    """The draft, bound to the task or the intent that it names, if the agent may see it.

    Otherwise they are labels, and the agent is not told which. Denied for working memory of
    a task of which it is not the agent; BadField for another intent than the task's.
    """
    labels = draft.labels
    if labels == UNNAMED:
        return draft
    task = seen_task(tx, eyes, labels.task)
    if task is None:
        intent = None if labels.intent is None else IntentId(labels.intent)
        is_seen = intent is not None and tx[IntentTable].standing(intent, eyes).sees
        binding = Binding.INTENT if is_seen else Binding.NONE
        return replace(draft, labels=replace(labels, binding=binding))
    if labels.intent not in (None, task.intent):
        raise BadField("scope.intent_id", OTHER_INTENT)
    if draft.place.space.tier is Tier.WORKING and task.agent != eyes.agent:
        raise Denied(NOT_ASSIGNED)
    of_task = Labels(task=task.id, intent=task.intent, binding=Binding.TASK, attempt=task.attempt)
    return replace(draft, labels=of_task)


def seen_task(tx: Transaction, eyes: Eyes, named: str | None) -> Task | None:
    """The task, if there is one that the agent may see."""
    task = None if named is None else tx[TaskTable].get(TaskId(named))
    return task if task and tx[IntentTable].standing(task.intent, eyes).sees else None


def require_unfinished(tx: Transaction, tier: Tier, labels: Labels, ttl: str | None) -> None:
    """Raise TaskFinished for what would live as long as a task that is finished."""
    task = task_of(tx, labels)
    if task and task.status.is_final and (tier is Tier.WORKING or ttl == TASK_LIFETIME):
        raise TaskFinished


def task_of(tx: Transaction, labels: Labels) -> Task | None:
    """The task that is bound to; None once it was forgotten, too."""
    if labels.binding is not Binding.TASK or labels.task is None:
        return None
    return tx[TaskTable].get(TaskId(labels.task))


def guardrails(tx: Transaction, labels: Labels) -> list[Guardrails]:
    """Those that bound what is bound to an intent: of all who coordinate it now."""
    if labels.binding is Binding.NONE or labels.intent is None:
        return []
    return tx[IntentTable].guardrails(IntentId(labels.intent))


def is_allowed(tx: Transaction, place: Place, labels: Labels) -> bool:
    """Whether guardrails let an entry be changed: they are about semantic ones."""
    if place.space.tier is not Tier.SEMANTIC:
        return True
    return all(it.allows(place.space.namespace) for it in guardrails(tx, labels))


def require_allowed(tx: Transaction, place: Place, labels: Labels) -> None:
    """Refuse with Denied what guardrails keep from being changed."""
    if not is_allowed(tx, place, labels):
        raise Denied("A coordinator of the intent does not allow this namespace.")


def require_working_room(
    tx: Transaction,
    agent: AgentId,
    labels: Labels,
    capacities: Capacities,
    more: int,
    *,
    is_new: bool = True,
) -> None:
    """Refuse with OverCapacity a working entry that is new, or grows, by so many bytes."""
    if not is_new and more <= 0:
        return
    task = task_of(tx, labels)
    limits = _limits(tx, task, labels, capacities)
    count = tx[BoundTable].count_outside(agent) if task is None else tx[BoundTable].count_of(task)
    if is_new and count >= limits.entries:
        raise OverCapacity(limits.name, count, limits.entries)
    if (count + 1) * MAX_VALUE <= limits.size * KB:  # however long they are
        return
    size = tx[BoundTable].size_outside(agent) if task is None else tx[BoundTable].size_of(task)
    if size + more > limits.size * KB:
        raise OverCapacity("max_total_size_kb", -(-size // KB), limits.size, "Kilobytes")


def most_episodic(tx: Transaction, labels: Labels) -> int | None:
    """How many episodic entries of an agent may be bound to the intent, if that is said."""
    said = (it.most_episodic for it in guardrails(tx, labels))
    return min((most for most in said if most is not None), default=None)


@dataclass(frozen=True, slots=True)
class _Limits:
    """How much working memory there may be, and which limit says so."""

    name: str
    entries: int
    size: int  # KB


def _limits(tx: Transaction, task: Task | None, labels: Labels, capacities: Capacities) -> _Limits:
    said, size = [("working_capacity", capacities.working)], DEFAULT_SIZE
    if task is not None:
        if task.policy and task.policy.max_entries is not None:
            said = [("max_entries", task.policy.max_entries)]
        if task.policy and task.policy.max_size is not None:
            size = task.policy.max_size
        for each in guardrails(tx, labels):
            if each.most_working is not None:
                said.append(("max_working_memory_per_task", each.most_working))
    name, entries = min(said, key=lambda it: it[1])
    return _Limits(name, entries, size)
