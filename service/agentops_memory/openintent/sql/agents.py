"""SQL for whole agents: what each has, and what an operator has said of it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...errors import Unreadable
from ...memory.model.agent_memory import Tier
from ...memory.model.agents import AgentExtent, AgentId, ListedAgent
from ...memory.model.erasure import MAX_STEP
from ...memory.model.memory import MemoryId
from ...memory.model.retention import LARGEST_CAPACITY
from ...memory.sql.rows import count, micros, optional_instant, portion, reads
from ...memory.sql.table import Table
from .visibility import HERE, sum_of

OWNED = f"('{Tier.WORKING}', '{Tier.EPISODIC}')"

# An agent is known by a space that it has had, by its stream, or by what was said of it.
KNOWN = """(SELECT agent AS name
              FROM agent_spaces
             WHERE agent <> ''
             UNION
            SELECT agent FROM agent_events WHERE agent <> ''
             UNION
            SELECT name FROM agents) k"""

EMPTY = "agent_spaces p WHERE NOT EXISTS (SELECT 1 FROM memories WHERE space_id = p.space_id)"


@dataclass(eq=False)
class AgentDirectory(Table):
    """Whole agents: what each has, and what an operator has said of it."""

    _now: datetime

    def all(self) -> list[ListedAgent]:
        """Every agent of which something is stored, by name."""
        rows = self._execute(
            f"""SELECT k.name,
                       count(m.id) FILTER (WHERE a.tier = '{Tier.WORKING}'),
                       count(m.id) FILTER (WHERE a.tier = '{Tier.EPISODIC}'),
                       {sum_of("CASE WHEN m.id IS NULL THEN 0 ELSE a.size END")},
                       max(m.updated_at),
                       max(g.episodic_capacity)
                  FROM {KNOWN}
                  LEFT JOIN agents g ON g.name = k.name
                  LEFT JOIN agent_memories a ON a.tier IN {OWNED} AND a.agent = k.name
                  LEFT JOIN memories m ON m.id = a.memory_id AND {HERE}
              GROUP BY k.name
              ORDER BY k.name""",
            now=micros(self._now),
        )
        return list(self._intact(rows, _listed))

    def exists(self, agent: AgentId) -> bool:
        """Whether anything is stored of the agent."""
        return self._exists(
            """SELECT 1 FROM agent_spaces WHERE agent = :agent
                UNION ALL
               SELECT 1 FROM agent_events WHERE agent = :agent
                UNION ALL
               SELECT 1 FROM agents WHERE name = :agent""",
            agent=agent,
        )

    def extent(self, agent: AgentId) -> AgentExtent:
        """The counts of what the agent has."""
        events = self._number("SELECT count(*) FROM agent_events WHERE agent = :agent", agent=agent)
        entries = self._counted(f"tier IN {OWNED} AND agent = :agent", agent=agent)
        return entries.plus(AgentExtent(events=events))

    def capacity(self, agent: AgentId) -> int | None:
        """How many episodic entries it may hold; None if nothing was said of that."""
        return self._first(
            _capacity,
            f"SELECT {self._sql.row}, episodic_capacity FROM agents WHERE name = :agent",
            agent=agent,
        )

    def set_capacity(self, agent: AgentId, capacity: int | None) -> None:
        """Say how many episodic entries it may hold; None takes back what was said."""
        self._execute("DELETE FROM agents WHERE name = :agent", agent=agent)
        if capacity is not None:
            self._insert("agents", name=agent, episodic_capacity=capacity)

    def some(self, agent: AgentId, limit: int) -> list[MemoryId]:
        """A batch of entries to erase, expired ones too; fewer than the limit if they are long."""
        rows = self._execute(
            f"""SELECT memory_id, size
                  FROM agent_memories
                 WHERE tier IN {OWNED} AND agent = :agent
                 LIMIT :limit""",
            agent=agent,
            limit=limit,
        )
        return [MemoryId(id_) for id_, _ in portion(rows, MAX_STEP, lambda row: count(row[1]))]

    def some_events(self, agent: AgentId, limit: int) -> list[int]:
        """The sequences of a batch of the agent's stream."""
        return self._scalars(
            """SELECT event_id
                 FROM agent_events
                WHERE agent = :agent
             ORDER BY event_id
                LIMIT :limit""",
            agent=agent,
            limit=limit,
        )

    def counted(self, entries: Sequence[MemoryId]) -> AgentExtent:
        given = f"(SELECT value FROM {self._sql.ids('given')})"
        return self._counted(f"memory_id IN {given}", ids=json.dumps(entries))

    def remove(self, agent: AgentId) -> None:
        # A space stays with an entry of which a damaged row does not tell whose it is.
        """Remove what is left of an agent without entries: its spaces, and what was said of it."""
        self.drop_spaces(
            self._scalars("SELECT space_id FROM agent_spaces WHERE agent = :agent", agent=agent)
        )
        self._execute("DELETE FROM agents WHERE name = :agent", agent=agent)

    def empty_spaces(self, most: int) -> list[int]:
        """Spaces in which there is nothing any more, but for their names."""
        return self._scalars(f"SELECT space_id FROM {EMPTY} LIMIT :most", most=most)

    def drop_spaces(self, spaces: Sequence[int]) -> int:
        """Remove those of the spaces that are empty still; how many."""
        given, ids = f"(SELECT value FROM {self._sql.ids('given')})", json.dumps(spaces)
        empty = self._scalars(f"SELECT space_id FROM {EMPTY} AND space_id IN {given}", ids=ids)
        ids = json.dumps(empty)
        self._execute(f"DELETE FROM agent_spaces WHERE space_id IN {given}", ids=ids)
        self._execute(f"DELETE FROM spaces WHERE id IN {given}", ids=ids)
        return len(empty)

    def _counted(self, condition: str, **values: object) -> AgentExtent:
        working, episodic, size = self._execute(
            f"""SELECT count(*) FILTER (WHERE tier = '{Tier.WORKING}'),
                       count(*) FILTER (WHERE tier = '{Tier.EPISODIC}'),
                       {sum_of("size")}
                  FROM agent_memories
                 WHERE {condition}""",
            **values,
        ).fetchone()
        return AgentExtent(working=working, episodic=episodic, size=count(size))


@reads("agents")
def _listed(
    agent: str, working: int, episodic: int, size: int, changed_at: int | None, capacity: int | None
) -> ListedAgent:
    return ListedAgent(
        agent=AgentId(agent),
        working=working,
        episodic=episodic,
        size=count(size),
        changed_at=optional_instant(changed_at),
        capacity=None if capacity is None else _capacity((agent, capacity)),
    )


@reads("agents")
def _capacity(_: Any, capacity: int) -> int:
    if not 1 <= capacity <= LARGEST_CAPACITY:
        raise Unreadable
    return capacity
