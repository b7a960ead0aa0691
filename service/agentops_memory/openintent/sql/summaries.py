"""SQL for how much of an agent's memory there is."""

from dataclasses import dataclass
from datetime import datetime

from ...memory.model.agent_memory import AgentSummary, Eyes, Tier, TierSummary
from ...memory.model.agents import AgentId
from ...memory.sql.rows import count, micros, optional_instant
from ...memory.sql.table import Table
from .rows import ENTRIES
from .sizes import sum_of
from .visibility import HERE, Visibility, own, readable

MOST_NAMED = 1_000


@dataclass(eq=False)
class Summaries(Table):
    """The figures of one transaction."""

    _now: datetime

    def of(self, agent: AgentId, eyes: Eyes) -> AgentSummary:
        is_own = agent == eyes.agent
        seen = own(eyes) if is_own else readable(self._connection, eyes, self._now)
        tiers = {tier: self._tier(tier, agent, seen) for tier in (Tier.WORKING, Tier.EPISODIC)}
        tasks = self._scalars(
            f"""SELECT DISTINCT a.task
                  FROM {ENTRIES}
                 WHERE p.tier = '{Tier.WORKING}' AND p.agent = :agent AND {HERE}
                       AND {seen.condition} AND a.task IS NOT NULL
              ORDER BY a.task
                 LIMIT {MOST_NAMED}""",
            agent=agent,
            now=micros(self._now),
            **seen.values,
        )
        return AgentSummary(
            working=tiers[Tier.WORKING],
            tasks=tuple(tasks),
            episodic=tiers[Tier.EPISODIC],
            capacity=0,
            namespaces=(),
        )

    def _tier(self, tier: Tier, agent: AgentId, seen: Visibility) -> TierSummary:
        entries, size, pinned, oldest, newest = self._execute(
            f"""SELECT count(*), {sum_of("a.size")}, count(*) FILTER (WHERE a.is_pinned),
                       min(m.created_at), max(m.created_at)
                  FROM {ENTRIES}
                 WHERE a.tier = :tier AND a.agent = :agent AND {HERE} AND {seen.condition}""",
            tier=tier.value,
            agent=agent,
            now=micros(self._now),
            **seen.values,
        ).fetchone()
        return TierSummary(
            entries=entries,
            size=count(size),
            pinned=count(pinned),
            oldest=optional_instant(oldest),
            newest=optional_instant(newest),
        )
