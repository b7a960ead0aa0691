"""SQL for the end of a task's working memory: what is archived, and what was not moved yet."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...engine.steps import step
from ...memory.model.agent_memory import AgentEntry, Binding, Tier
from ...memory.model.agents import AgentId
from ...memory.model.intents import EndingEntry, IntentId, PendingArchive, Task, TaskId
from ...memory.model.memory import MemoryId
from ...memory.sql.liveness import ENDED, expired, live
from ...memory.sql.rows import count, micros, reads
from ...memory.sql.table import Table
from .rows import ENTRIES, ENTRY, entry_of
from .seals import SealTable
from .visibility import sum_of

BOUND = f"(a.tier = '{Tier.WORKING}' AND a.binding = {Binding.TASK:d})"
OF_TASK = f"a.task = :task AND a.attempt = :attempt AND {BOUND}"
UNEXPIRED = f"(NOT {expired('a.memory_id')})"


@dataclass(eq=False)
class BoundTable(Table):
    """How much is bound to tasks and intents; what has expired does not count."""

    _now: datetime

    def count_of(self, task: Task) -> int:
        """The working entries of a task, of all agents."""
        return self._number(
            f"SELECT count(*) FROM agent_memories a WHERE {OF_TASK} AND {UNEXPIRED}",
            task=task.id,
            attempt=task.attempt,
            now=micros(self._now),
        )

    def size_of(self, task: Task) -> int:
        """The bytes of their values."""
        size = self._number(
            f"""SELECT {sum_of("a.size")}
                  FROM agent_memories a
                 WHERE {OF_TASK} AND {UNEXPIRED}""",
            task=task.id,
            attempt=task.attempt,
            now=micros(self._now),
        )
        return count(size)

    def count_outside(self, agent: AgentId) -> int:
        """The working entries of an agent that are bound to no task."""
        return self._number(  # along indexes: there are many more than are bound, or expired
            f"""SELECT (SELECT count(*)
                          FROM agent_memories
                         WHERE tier = '{Tier.WORKING}' AND agent = :agent)
                     - (SELECT count(*) FROM agent_memories a WHERE a.agent = :agent AND {BOUND})
                     - (SELECT count(*)
                          FROM lifecycles l
                         {self._sql.leads} agent_memories a ON a.memory_id = l.memory_id
                         WHERE l.{ENDED} AND a.tier = '{Tier.WORKING}' AND a.agent = :agent
                               AND NOT {BOUND})""",
            agent=agent,
            now=micros(self._now),
        )

    def size_outside(self, agent: AgentId) -> int:
        """The bytes of their values."""
        size = self._number(
            f"""SELECT {sum_of("a.size")}
                  FROM agent_memories a
                 WHERE a.tier = '{Tier.WORKING}' AND a.agent = :agent AND NOT {BOUND}
                       AND {UNEXPIRED}""",
            agent=agent,
            now=micros(self._now),
        )
        return count(size)

    def episodic_of(self, intent: IntentId, agent: AgentId) -> int:
        """The episodic entries of an agent that are bound to an intent."""
        return self._number(
            f"""SELECT count(*)
                  FROM agent_memories a
                 WHERE a.tier = '{Tier.EPISODIC}' AND a.agent = :agent AND a.intent = :intent
                       AND a.binding > {Binding.NONE:d} AND {UNEXPIRED}""",
            agent=agent,
            intent=intent,
            now=micros(self._now),
        )

    def bind(self, task: Task) -> None:
        """Bind what its agent has under the id of a task."""
        self._execute(  # nothing that is of another intent: the entry says which
            f"""UPDATE agent_memories
                   SET binding = {Binding.TASK:d}, intent = :intent, attempt = :attempt
                 WHERE task = :task AND agent = :agent AND binding < {Binding.TASK:d}
                       AND coalesce(intent, :intent) = :intent
                       AND NOT {expired("agent_memories.memory_id")}""",
            task=task.id,
            agent=task.agent,
            intent=task.intent,
            attempt=task.attempt,
            now=micros(self._now),
        )


# Of other tiers, what lives as long as a task.
WITH_TASK = f"""a.task = :task AND a.intent = :intent AND a.binding = {Binding.TASK:d}
                AND a.tier <> '{Tier.WORKING}' AND a.ttl = :ttl AND l.expires_at IS NULL"""
PENDING = "event_id, task, attempt, agent, first, last, size"


@dataclass(eq=False)
class ArchiveTable(Table):
    """What ends with tasks."""

    _now: datetime
    _seals: SealTable

    def ending(self, task: Task) -> list[EndingEntry]:
        """The working entries of a task, by agent, the first first."""
        rows = self._execute(
            f"""SELECT a.agent, a.memory_id, a.size
                  FROM agent_memories a
                 WHERE {OF_TASK} AND {UNEXPIRED}
              ORDER BY a.agent, a.memory_id""",
            task=task.id,
            attempt=task.attempt,
            now=micros(self._now),
        )
        return [
            EndingEntry(agent=AgentId(agent), memory=MemoryId(id_), size=count(size))
            for agent, id_, size in rows
        ]

    def ending_with(self, task: Task, ttl: str, most: int) -> list[AgentEntry]:
        """Entries of other tiers that are bound to a task, and have this lifetime alone."""
        return self._entries(
            f"{WITH_TASK} AND {live('m')}",
            most=most,
            task=task.id,
            intent=task.intent,
            ttl=ttl,
            now=micros(self._now),
        )

    def expire_with(self, task: Task, ttl: str) -> None:
        """Let all of these have expired now."""
        self._execute(
            f"""INSERT INTO lifecycles (memory_id, space_id, expires_at)
                SELECT m.id, m.space_id, :now FROM {ENTRIES} WHERE {WITH_TASK}
                    ON CONFLICT (memory_id) DO UPDATE SET expires_at = excluded.expires_at""",
            task=task.id,
            intent=task.intent,
            ttl=ttl,
            now=micros(self._now),
        )

    def expired(self, task: Task) -> list[AgentEntry]:
        """Working entries of a task that have expired, and were not removed yet."""
        return self._entries(
            f"{OF_TASK} AND NOT {UNEXPIRED}",
            task=task.id,
            attempt=task.attempt,
            now=micros(self._now),
        )

    @step("store.archive", lambda _, pending: {"memory.agent.id": pending.agent})
    def add(self, pending: PendingArchive) -> None:
        """Let the entries of an archive be seen in its event alone."""
        self._insert(
            "pending_archives",
            event_id=pending.event,
            task=pending.task,
            attempt=pending.attempt,
            agent=pending.agent,
            first=pending.first,
            last=pending.last,
            size=pending.size,
        )

    def next(self, task: TaskId | None = None) -> PendingArchive | None:
        """The first that is pending, of a task if one is given."""
        of_task = "" if task is None else " WHERE task = :task"
        return self._first(
            _pending,
            f"SELECT {PENDING} FROM pending_archives{of_task} ORDER BY event_id LIMIT 1",
            task=task,
        )

    def of_event(self, event: int) -> PendingArchive | None:
        """The one whose event has this sequence, if it is pending."""
        return self._first(
            _pending, f"SELECT {PENDING} FROM pending_archives WHERE event_id = :id", id=event
        )

    def holding(self, entry: AgentEntry) -> PendingArchive | None:
        """The one that an entry lies in, if it is pending."""
        return self._first(
            _pending,
            f"""SELECT {PENDING}
                  FROM pending_archives
                 WHERE task = :task AND attempt = :attempt AND agent = :agent
                       AND :memory BETWEEN first AND last""",
            task=entry.labels.task,
            attempt=entry.labels.attempt,
            agent=entry.place.space.agent,
            memory=entry.memory,
        )

    def entries(self, pending: PendingArchive) -> list[AgentEntry]:
        """The entries that lie in one, the first first."""
        return self._entries(
            f"{OF_TASK} AND a.agent = :agent AND a.memory_id BETWEEN :first AND :last",
            task=pending.task,
            attempt=pending.attempt,
            agent=pending.agent,
            first=pending.first,
            last=pending.last,
            now=micros(self._now),
        )

    def settled(self, pending: PendingArchive) -> None:
        """Note that its entries have been moved."""
        self._execute("DELETE FROM pending_archives WHERE event_id = :id", id=pending.event)

    def _entries(
        self, condition: str, most: int | None = None, **values: object
    ) -> list[AgentEntry]:
        limit = "" if most is None else f"LIMIT {most:d}"
        rows: Iterable[Any] = self._execute(
            f"SELECT {ENTRY} FROM {ENTRIES} WHERE {condition} ORDER BY m.id {limit}", **values
        )
        return self._seals.opened(self._intact(rows, entry_of))


@reads("pending_archives")
def _pending(  # noqa: PLR0917 - the columns of PENDING
    event: int, task: str, attempt: int, agent: str, first: int, last: int, size: int
) -> PendingArchive:
    return PendingArchive(
        event=event,
        task=TaskId(task),
        attempt=count(attempt),
        agent=AgentId(agent),
        first=MemoryId(first),
        last=MemoryId(last),
        size=count(size),
    )
