"""Agents: list, summary, capacity, export, erasure, and the limits of their memory."""

import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from operator import add
from typing import Annotated, Any, Literal, NamedTuple

from ..engine.engine import Audit, Engine, Transaction, audited, noop
from ..errors import BadFields, Denied, Invalid, NotFound, Unreadable
from ..light import dataclass, replace
from ..memory import agent_memory
from ..memory.access import NOT_YOUR_AGENT, AgentId, Caller, KeyId, Role
from ..memory.agent_memory import Binding, EventType, IntentId, Labels, TaskId, Tier, Viewer
from ..memory.details import Guardrails
from ..memory.erasure import MAX_STEP, ReceiptTable
from ..memory.idempotency import IdempotencyTable
from ..memory.memories import MemoryTable
from ..memory.memory import MemoryId
from ..memory.redactor import require_room
from ..memory.rows import Column, RowMapper, count, instant, portion as fitting, reads
from ..memory.space import LARGEST_CAPACITY, Capacities
from ..memory.table import Sql
from ..record import shape
from . import entries, intents
from .api import MAX_VALUE, Ids, JsonObject, OverCapacity, Time, kilobytes, portion, rendered
from .entries import BOUND, ENTRIES, TASK_LIFETIME, AgentEntry, AgentFilter, EntryKey, ids_of, some
from .events import OF_TASK, expire, forget_events, remove
from .intents import standing
from .namespaces import readable
from .tasks import MemoryPolicy, Task, TaskFinished, bound_to, task_with, visible_task


class AgentExtent(NamedTuple):
    """What is stored for an agent, expired entries included; semantic ones are not counted."""

    working: int = 0
    episodic: int = 0
    size: int = 0  # bytes of the values of these entries
    events: int = 0

    def __bool__(self) -> bool:
        return any(self)


BATCH = 200  # rows erased in one transaction; saves wait for it
MAX_NAMED = 1_000  # tasks, and namespaces, of a summary
NO_AGENT = "No such agent."
OWNED = f"('{Tier.WORKING}', '{Tier.EPISODIC}')"
UNUSED = "agent_spaces p WHERE NOT EXISTS (SELECT 1 FROM memories WHERE space_id = p.space_id)"

# An agent is known if it has had a space, an event in its stream, or a capacity of its own.
KNOWN = """(SELECT agent AS name
              FROM agent_spaces
             WHERE agent <> ''
             UNION
            SELECT agent FROM agent_events WHERE agent <> ''
             UNION
            SELECT name FROM agents) k"""


_LIVE_SIZE = "CASE WHEN m.id IS NULL THEN 0 ELSE a.size END"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAgent:
    """An agent in the list of all, with its live entries."""

    agent: Annotated[AgentId, Column("k.name")]
    working: Annotated[int, Column(f"count(m.id) FILTER (WHERE a.tier = '{Tier.WORKING}')")]
    episodic: Annotated[int, Column(f"count(m.id) FILTER (WHERE a.tier = '{Tier.EPISODIC}')")]
    # Bytes of the values of these entries.
    size: Annotated[int, Column(agent_memory.sum_of(_LIVE_SIZE))]
    changed_at: Annotated[datetime | None, Column("max(m.updated_at)")]  # their newest change
    # Its own limit of episodic entries, if it has one.
    capacity: Annotated[int | None, Column("max(g.episodic_capacity)")]


@reads("agents")
def _capacity(_: Any, capacity: int) -> int:
    if not 1 <= capacity <= LARGEST_CAPACITY:
        raise Unreadable
    return capacity


_LISTED = RowMapper(
    ListedAgent, "agents", "k.name",
    check=lambda it: it.capacity is None or _capacity((it.agent, it.capacity)),
)  # fmt: skip


WorkingSummary = shape(
    "WorkingSummary", "What an agent has in working memory.",
    entry_count=int, total_size_kb=int, tasks_with_memory=[str],
)  # fmt: skip
EpisodicSummary = shape(
    "EpisodicSummary", "What an agent has in episodic memory.",
    entry_count=int, capacity=int, pinned_count=int, total_size_kb=int, oldest_entry=Time | None,
    newest_entry=Time | None, eviction_policy=(Literal["lru"], "lru"),
)  # fmt: skip
AgentSummary = shape(
    "AgentSummary",
    "What an agent has in each tier, and the namespaces that it may read (§6.7).",
    agent_id=AgentId, working=WorkingSummary, episodic=EpisodicSummary,
    semantic_namespaces_accessible=[str],
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """The agents of one service, for callers with the role admin.

    An agent that nothing is stored for raises NotFound. A change is audited first, and not made
    if that fails.
    """

    engine: Engine
    audit: Audit

    async def list(self, caller: Caller) -> list[ListedAgent]:
        """Return every agent that something is stored for, by name."""
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, listed)

    async def set_capacity(self, caller: Caller, agent: AgentId, capacity: int | None) -> None:
        """Limit the episodic entries of an agent, known or not; None restores the default.

        Surplus entries are evicted step by step as the agent creates new ones.
        """
        caller.require(Role.ADMIN)
        if capacity is not None and not 1 <= capacity <= LARGEST_CAPACITY:
            raise Invalid(f"Episodic capacity must be 1 to {LARGEST_CAPACITY:,} entries.")
        await audited(self.audit, caller, "agent.set", agent=agent, episodic_capacity=capacity)
        await self.engine.write(caller, _set_capacity, agent, capacity)

    async def export(self, caller: Caller, agent: AgentId) -> AsyncIterator[Sequence[AgentEntry]]:
        """Yield an agent's live working and episodic entries in portions, oldest first.

        It does not count as an access: the order of eviction stays the same.
        """
        caller.require(Role.ADMIN)
        left = await self.engine.read(caller, _owned, agent)
        while left:
            ids, left = portion(left)
            yield await self.engine.read(caller, some, Viewer(agent=agent), ids)

    async def plan_erasure(
        self, caller: Caller, agent: AgentId, keys: Sequence[KeyId] = ()
    ) -> AgentExtent:
        """Return what `erase` would remove, and raise its errors."""
        caller.require(Role.ADMIN)
        return await self.engine.read(caller, _planned_erasure, agent, keys)

    async def erase(
        self, caller: Caller, agent: AgentId, keys: Sequence[KeyId] = (),
        progress: Callable[[AgentExtent], None] = noop,
    ) -> AgentExtent:  # fmt: skip
        """Erase an agent in short transactions, with its writes meanwhile; return the extent.

        This removes its working and episodic entries, its events, and its own capacity; its
        semantic entries stay. NotFound if nothing is stored for it, unless it has keys.
        """
        extent = await self.plan_erasure(caller, agent, keys)
        counts = {name: number for name, number in extent._asdict().items() if name != "size"}
        await audited(self.audit, caller, "agent.erased", agent=agent, **counts, keys=[*keys])
        erased = AgentExtent()
        while step := await self.engine.write(caller, _erase_some, agent):
            erased = AgentExtent(*map(add, erased, step))
            progress(erased)
        return erased


def summary(tx: Transaction, viewer: Viewer, agent: AgentId, capacities: Capacities) -> JsonObject:
    """Return what an agent has in each tier, and the namespaces that the viewer may read.

    A coordinator of the agent's work gets what it may read; others get Denied.
    """
    is_own = agent == viewer.agent
    visible = agent_memory.own(viewer) if is_own else agent_memory.readable(tx, viewer)
    if not is_own and not tx[Sql].exists(
        f"""SELECT 1
              FROM (SELECT intent
                      FROM coordinators
                     WHERE agent = :viewer AND {agent_memory.ACTIVE}) c
              JOIN tasks t ON t.intent = c.intent
             WHERE t.agent = :agent AND {agent_memory.unfinished("t")}""",
        viewer=viewer.agent, agent=agent,
    ):  # fmt: skip
        raise Denied(NOT_YOUR_AGENT)
    tasks = tx[Sql].texts(
        f"""SELECT DISTINCT a.task
              FROM {ENTRIES}
             WHERE p.tier = '{Tier.WORKING}' AND p.agent = :agent AND {agent_memory.EXISTING}
                   AND {visible.condition} AND a.task IS NOT NULL
          ORDER BY a.task
             LIMIT {MAX_NAMED}""",
        agent=agent, **visible.values,
    )  # fmt: skip
    working, size, *_ = _of_tier(tx, Tier.WORKING, agent, visible)
    episodic, kept, pinned, *ends = _of_tier(tx, Tier.EPISODIC, agent, visible)
    oldest, newest = (None if it is None else rendered(instant(it)) for it in ends)
    return {
        "agent_id": agent,
        "working": {
            "entry_count": working, "total_size_kb": kilobytes(count(size)),
            "tasks_with_memory": tasks,
        },
        "episodic": {
            "entry_count": episodic, "capacity": capacity_of(tx, agent, capacities),
            "pinned_count": count(pinned), "total_size_kb": kilobytes(count(kept)),
            "oldest_entry": oldest, "newest_entry": newest, "eviction_policy": "lru",
        },
        "semantic_namespaces_accessible": [
            it.namespace for it in readable(tx, viewer, MAX_NAMED, 0)
        ],
    }  # fmt: skip


def _of_tier(tx: Transaction, tier: Tier, agent: AgentId, visible: agent_memory.Visibility) -> Any:
    """Return counts of entries, bytes and pinned entries, and the first and last creation."""
    return tx[Sql].run(
        f"""SELECT count(*), {agent_memory.sum_of("a.size")}, count(*) FILTER (WHERE a.is_pinned),
                   min(m.created_at), max(m.created_at)
              FROM {ENTRIES}
             WHERE a.tier = :tier AND a.agent = :agent AND {agent_memory.EXISTING}
                   AND {visible.condition}""",
        tier=tier.value, agent=agent, **visible.values,
    ).fetchone()  # fmt: skip


def capacity_of(tx: Transaction, agent: AgentId, capacities: Capacities) -> int:
    """Return the limit of an agent's episodic entries: its own, else the default."""
    own = tx[Sql].first(
        _capacity,
        f"SELECT {tx[Sql].dialect.row}, episodic_capacity FROM agents WHERE name = :agent",
        agent=agent,
    )
    return own or capacities.episodic


def _set_capacity(tx: Transaction, agent: AgentId, capacity: int | None) -> None:
    tx[Sql].run("DELETE FROM agents WHERE name = :agent", agent=agent)
    if capacity is not None:
        tx[Sql].insert("agents", name=agent, episodic_capacity=capacity)


def _owned(tx: Transaction, agent: AgentId) -> Ids:
    """Return the live entries of an agent, oldest first, with the bytes of their values."""
    require_known(tx, agent)
    visible = agent_memory.readable(tx, Viewer(agent=agent))
    filters = [AgentFilter(agent=agent, tier=tier) for tier in (Tier.WORKING, Tier.EPISODIC)]
    return sorted(it for filter_ in filters for it in ids_of(tx, filter_, visible, sys.maxsize, 0))


def require_known(tx: Transaction, agent: AgentId) -> None:
    if not tx[Sql].exists(  # KNOWN would be computed as a whole
        """SELECT 1 FROM agent_spaces WHERE agent = :agent
            UNION ALL
           SELECT 1 FROM agent_events WHERE agent = :agent
            UNION ALL
           SELECT 1 FROM agents WHERE name = :agent""",
        agent=agent,
    ):
        raise NotFound(NO_AGENT)


def _planned_erasure(tx: Transaction, agent: AgentId, keys: Sequence[KeyId]) -> AgentExtent:
    if not keys:
        require_known(tx, agent)
    events = tx[Sql].number("SELECT count(*) FROM agent_events WHERE agent = :agent", agent=agent)
    entries = _extent_of(tx, f"tier IN {OWNED} AND agent = :agent", agent=agent)
    return entries._replace(events=events)


def _erase_some(tx: Transaction, agent: AgentId) -> AgentExtent:
    """Erase the next batch and return its extent, which is empty at the end."""
    rows = tx[Sql].run(  # including expired entries; fewer if they are long
        f"""SELECT memory_id, size
              FROM agent_memories
             WHERE tier IN {OWNED} AND agent = :agent
             LIMIT {BATCH}""",
        agent=agent,
    )
    entries = [MemoryId(id_) for id_, _ in fitting(rows, MAX_STEP, lambda row: count(row[1]))]
    if entries:
        chosen = f"(SELECT value FROM {tx[Sql].dialect.ids('listed')})"
        gone = _extent_of(tx, f"memory_id IN {chosen}", ids=json.dumps(entries))
        tx[MemoryTable].erase_some(entries)
    else:
        events = tx[Sql].column(
            f"""SELECT event_id
                  FROM agent_events
                 WHERE agent = :agent
              ORDER BY event_id
                 LIMIT {BATCH}""",
            agent=agent,
        )
        gone = AgentExtent(events=forget_events(tx, events))
    if not gone:  # a damaged row may hide whose entry is in a space
        own = "SELECT space_id FROM agent_spaces WHERE agent = :agent"
        drop_spaces(tx, tx[Sql].column(own, agent=agent))
        _set_capacity(tx, agent, None)
        tx[IdempotencyTable].erase_answers()
    tx[ReceiptTable].add_of_agents()
    return gone


def empty_spaces(tx: Transaction, most: int) -> list[int]:
    """Return the ids of up to `most` empty spaces, which are only names."""
    return tx[Sql].column(f"SELECT space_id FROM {UNUSED} LIMIT :most", most=most)


def drop_spaces(tx: Transaction, spaces: Sequence[int]) -> int:
    """Remove those of the spaces that are still empty; return how many."""
    chosen, ids = f"(SELECT value FROM {tx[Sql].dialect.ids('listed')})", json.dumps(spaces)
    empty = tx[Sql].column(f"SELECT space_id FROM {UNUSED} AND space_id IN {chosen}", ids=ids)
    ids = json.dumps(empty)
    tx[Sql].run(f"DELETE FROM agent_spaces WHERE space_id IN {chosen}", ids=ids)
    tx[Sql].run(f"DELETE FROM spaces WHERE id IN {chosen}", ids=ids)
    return len(empty)


def _extent_of(tx: Transaction, condition: str, **values: object) -> AgentExtent:
    counts = tx[Sql].run(
        f"""SELECT count(*) FILTER (WHERE tier = '{Tier.WORKING}'),
                   count(*) FILTER (WHERE tier = '{Tier.EPISODIC}'), {agent_memory.sum_of("size")}
              FROM agent_memories
             WHERE {condition}""",
        **values,
    )
    ((working, episodic, size),) = counts
    return AgentExtent(working=working, episodic=episodic, size=count(size))


def listed(tx: Transaction, names: Sequence[str] | None = None) -> list[ListedAgent]:
    """Return every agent, or the agents with these names, by name."""
    named = {f"name_{number}": name for number, name in enumerate(names or ())}
    which = f"WHERE k.name IN ({', '.join(f':{it}' for it in named) or 'NULL'})"
    rows = tx[Sql].run(
        f"""SELECT {_LISTED}
              FROM {KNOWN}
              LEFT JOIN agents g ON g.name = k.name
              LEFT JOIN agent_memories a ON a.tier IN {OWNED} AND a.agent = k.name
              LEFT JOIN memories m ON m.id = a.memory_id AND {agent_memory.EXISTING}
             {"" if names is None else which}
          GROUP BY k.name
          ORDER BY k.name""",
        **named,
    )  # fmt: skip
    return list(tx[Sql].intact(rows, _LISTED))


# Bindings of entries to tasks and intents, and the limits that follow.

KB = 1024  # bytes; the unit of `max_total_size_kb` (§6.5)
DEFAULT_SIZE = 16 * 1024  # KB, so 16 MiB of working memory without a policy
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


def guardrails(tx: Transaction, labels: Labels) -> list[Guardrails]:
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
    size = entries.measured(tx, agent_memory.sum_of("a.size"), which, **values)
    if size + more > most_size * KB:
        raise OverCapacity("max_total_size_kb", kilobytes(size), most_size, "Kilobytes")
