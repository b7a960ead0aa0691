"""SQL for how much is bound to tasks and intents, and how much of an agent's is not."""

from dataclasses import dataclass
from datetime import datetime

from ...memory.model.agent_memory import Binding, Tier
from ...memory.model.agents import AgentId
from ...memory.model.intents import IntentId, Task
from ...memory.sql.liveness import ENDED, expired
from ...memory.sql.rows import count, micros
from ...memory.sql.table import Table
from .sizes import sum_of

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
