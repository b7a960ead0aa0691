"""What an entry is bound to, and what holds of it then (RFC-0015 §2.1, §6.5, §6.6, §9.4)."""

from dataclasses import replace

from ..engine.engine import Transaction
from ..errors import Denied
from ..memory.model.access import AgentId
from ..memory.model.agent_memory import Binding, Eyes, Labels, Tier
from ..memory.model.intents import DEFAULT_SIZE, Guardrails, IntentId, TaskId
from ..memory.model.liveness import ENDED
from ..memory.model.retention import Capacities
from ..memory.model.rows import count, micros
from ..memory.model.table import Sql
from ..memory.sight import sum_of
from . import participants
from .api import MAX_VALUE, BadField, OverCapacity
from .archives import BOUND, OF_TASK, UNEXPIRED
from .drafts import TASK_LIFETIME
from .entries import Place
from .intents import standing
from .tasks import Task, TaskFinished, bound_to, seen_task, task_with

KB = 1024
UNNAMED = Labels()


def bound(tx: Transaction, eyes: Eyes, place: Place, labels: Labels) -> Labels:
    """The labels of a new entry, bound to what they name if the agent may see it.

    Otherwise they are labels, and the agent is not told which. Denied for working memory of
    a task of which it is not the agent; BadField for another intent than the task's.
    """
    if labels == UNNAMED:
        return labels
    task = seen_task(tx, eyes, labels.task)
    if task is None:
        intent = None if labels.intent is None else IntentId(labels.intent)
        is_seen = intent is not None and standing(tx, eyes, intent).sees
        return replace(labels, binding=Binding.INTENT if is_seen else Binding.NONE)
    if labels.intent not in (None, task.intent_id):
        raise BadField("scope.intent_id", "must be the task's")
    if place.tier is Tier.WORKING and task.assigned_agent != eyes.agent:
        raise Denied(
            "The task is not assigned to the agent, so that it binds no working memory to it."
        )
    return bound_to(task)


def require_unfinished(tx: Transaction, tier: Tier, labels: Labels, ttl: str | None) -> None:
    """Raise TaskFinished for what would live as long as a task that is finished."""
    task = task_of(tx, labels)
    if task and task.status.is_final and (tier is Tier.WORKING or ttl == TASK_LIFETIME):
        raise TaskFinished


def task_of(tx: Transaction, labels: Labels) -> Task | None:
    """The task that is bound to; None once it was forgotten, too."""
    if labels.binding is not Binding.TASK or labels.task is None:
        return None
    return task_with(tx, TaskId(labels.task))


def guardrails(tx: Transaction, labels: Labels) -> list[Guardrails]:
    """Those that bound what is bound to an intent: of all who coordinate it now."""
    if labels.binding is Binding.NONE or labels.intent is None:
        return []
    return participants.guardrails(tx, IntentId(labels.intent))


def is_allowed(tx: Transaction, place: Place, labels: Labels) -> bool:
    """Whether guardrails let an entry be changed: they are about semantic ones."""
    if place.tier is not Tier.SEMANTIC:
        return True
    return all(it.allows(place.namespace) for it in guardrails(tx, labels))


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
    name, entries, most_size = _limits(tx, task, labels, capacities)
    number = _number(tx, agent, task)
    if is_new and number >= entries:
        raise OverCapacity(name, number, entries)
    if (number + 1) * MAX_VALUE <= most_size * KB:  # however long they are
        return
    size = _size(tx, agent, task)
    if size + more > most_size * KB:
        raise OverCapacity("max_total_size_kb", -(-size // KB), most_size, "Kilobytes")


def _limits(
    tx: Transaction, task: Task | None, labels: Labels, capacities: Capacities
) -> tuple[str, int, int]:
    """Which limit there is to working memory, how many entries it allows, and how many KB."""
    said, size = [("working_capacity", capacities.working)], DEFAULT_SIZE
    if task is not None:
        if task.memory_policy and task.memory_policy.max_entries is not None:
            said = [("max_entries", task.memory_policy.max_entries)]
        if task.memory_policy and task.memory_policy.max_total_size_kb is not None:
            size = task.memory_policy.max_total_size_kb
        for each in guardrails(tx, labels):
            if each.most_working is not None:
                said.append(("max_working_memory_per_task", each.most_working))
    return *min(said, key=lambda it: it[1]), size


def most_episodic(tx: Transaction, labels: Labels) -> int | None:
    """How many episodic entries of an agent may be bound to the intent, if that is said."""
    said = (it.most_episodic for it in guardrails(tx, labels))
    return min((most for most in said if most is not None), default=None)


# How much is bound to tasks and intents; what has expired does not count.


def _number(tx: Transaction, agent: AgentId, task: Task | None) -> int:
    """The working entries of a task, of all agents; or those of an agent that are of no task."""
    now = micros(tx.now)
    if task is not None:
        return tx[Sql].number(
            f"SELECT count(*) FROM agent_memories a WHERE {OF_TASK} AND {UNEXPIRED}",
            task=task.id, attempt=task.attempt, now=now,
        )  # fmt: skip
    return tx[Sql].number(  # along indexes: there are many more than are bound, or expired
        f"""SELECT (SELECT count(*)
                      FROM agent_memories
                     WHERE tier = '{Tier.WORKING}' AND agent = :agent)
                 - (SELECT count(*) FROM agent_memories a WHERE a.agent = :agent AND {BOUND})
                 - (SELECT count(*)
                      FROM lifecycles l
                     {tx[Sql].dialect.leads} agent_memories a ON a.memory_id = l.memory_id
                     WHERE l.{ENDED} AND a.tier = '{Tier.WORKING}' AND a.agent = :agent
                           AND NOT {BOUND})""",
        agent=agent, now=now,
    )  # fmt: skip


def _size(tx: Transaction, agent: AgentId, task: Task | None) -> int:
    """The bytes of their values."""
    outside = f"a.tier = '{Tier.WORKING}' AND a.agent = :agent AND NOT {BOUND}"
    of_task = {} if task is None else {"task": task.id, "attempt": task.attempt}
    size = tx[Sql].number(
        f"""SELECT {sum_of("a.size")}
              FROM agent_memories a
             WHERE {OF_TASK if task else outside} AND {UNEXPIRED}""",
        agent=agent, now=micros(tx.now), **of_task,
    )  # fmt: skip
    return count(size)


def episodic_of(tx: Transaction, intent: IntentId, agent: AgentId) -> int:
    """The episodic entries of an agent that are bound to an intent."""
    return tx[Sql].number(
        f"""SELECT count(*)
              FROM agent_memories a
             WHERE a.tier = '{Tier.EPISODIC}' AND a.agent = :agent AND a.intent = :intent
                   AND a.binding > {Binding.NONE:d} AND {UNEXPIRED}""",
        agent=agent, intent=intent, now=micros(tx.now),
    )  # fmt: skip
