"""SQL for events: of agents' memory, and of intents."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ...errors import Unreadable
from ...memory.model.agent_events import LOGGED, AgentEvent, EventFilter, EventType
from ...memory.model.agent_memory import Binding, Labels
from ...memory.model.agents import AgentId
from ...memory.sql.rows import instant, micros, reads
from ...memory.sql.table import Table
from ...recall.text.ids import Uids
from ...recall.text.json_words import object_of

EVENT = "e.id, e.uid, e.type, a.agent, a.actor, a.task, a.intent, a.binding, e.payload, e.at"

# As the partial indexes say it: what is kept for the time of events, and the log of intents.
OF_MEMORY = f"type >= 'memory.' AND type < 'memory/' AND type <> '{EventType.ARCHIVED}'"
IS_BOUND = f"a.binding > {Binding.NONE:d} AND a.binding <= {Binding.TASK:d}"
OF_LOG = f"NOT ({OF_MEMORY})"

KNOWN = LOGGED | {*EventType}


@dataclass(eq=False)
class AgentEventTable(Table):
    """Events: the streams of agents, and the logs of intents."""

    _now: datetime
    _uids: Uids

    def add(
        self,
        type_: str,
        payload: Mapping[str, object],
        labels: Labels,
        *,
        agent: AgentId | None,
        actor: AgentId | None,
    ) -> int:
        """Add an event, in the transaction of what it tells, to an agent's stream; its sequence.

        It stands in the log of the intent that the labels name.
        """
        event = self._inserted(
            "events",
            uid=self._uids.make(self._now),
            type=type_,
            payload=_written(payload),
            at=micros(self._now),
        )
        self._insert(
            "agent_events",
            event_id=event,
            agent=agent or "",
            actor=actor,
            task=labels.task,
            intent=labels.intent,
            binding=labels.binding,
        )
        return event

    def listed(self, filter_: EventFilter, limit: int) -> list[tuple[int, int]]:
        """The sequences of events, with their bytes: newest first, or oldest after a sequence."""
        said = {
            "a.agent = :agent": filter_.agent,
            f"{IS_BOUND} AND a.intent = :intent": filter_.intent,
            "e.type = :type": filter_.type,
            "e.at > :since": None if filter_.since is None else micros(filter_.since),
            "a.event_id > :after": filter_.after,
        }
        conditions = [condition for condition, value in said.items() if value is not None]
        rows = self._execute(
            f"""SELECT e.id, length(e.payload) + coalesce(p.size, 0)
                  FROM agent_events a
                  JOIN events e ON e.id = a.event_id
                  LEFT JOIN pending_archives p ON p.event_id = e.id
                 WHERE {" AND ".join(conditions)}
              ORDER BY a.event_id {"DESC" if filter_.after is None else "ASC"}
                 LIMIT :limit""",
            limit=limit,
            **{condition.split(":")[1]: value for condition, value in said.items()},
        )
        return [(id_, size) for id_, size in rows]

    def some(self, sequences: Sequence[int]) -> list[AgentEvent]:
        """The events of these sequences that there are, in their order."""
        rows = self._execute(
            f"""SELECT {EVENT}
                  FROM {self._sql.ids("given")}
                 {self._sql.leads} events e ON e.id = given.value
                  JOIN agent_events a ON a.event_id = e.id
              ORDER BY given.key""",
            ids=json.dumps(sequences),
        )
        return list(self._intact(rows, _event))

    def fill(self, sequence: int, payload: Mapping[str, object]) -> None:
        """Let an event tell this."""
        self._execute(
            "UPDATE events SET payload = :payload WHERE id = :id",
            id=sequence,
            payload=_written(payload),
        )

    def past(self, until: datetime, most: int, *, of_log: bool = False) -> list[int]:
        """Sequences of that time or earlier, oldest first: of memory's events, or of the rest."""
        return self._scalars(
            f"""SELECT id
                  FROM events
                 WHERE at <= :until AND {OF_LOG if of_log else OF_MEMORY}
                       AND NOT EXISTS (SELECT 1 FROM pending_archives WHERE event_id = events.id)
              ORDER BY at
                 LIMIT :most""",
            until=micros(until),
            most=most,
        )

    def forget(self, sequences: Sequence[int]) -> int:
        """Remove events; how many were there."""
        return self._execute(
            f"DELETE FROM events WHERE id IN (SELECT value FROM {self._sql.ids('given')})",
            ids=json.dumps(sequences),
        ).rowcount


def _written(payload: Mapping[str, object]) -> str:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


@reads("events")
def _event(  # noqa: PLR0913, PLR0917 - the columns of EVENT
    sequence: int, uid: str, type_: str, agent: str, actor: str | None, task: str | None,
    intent: str | None, binding: int, payload: str, at: int,
) -> AgentEvent:  # fmt: skip
    if type_ not in KNOWN:
        raise Unreadable
    return AgentEvent(
        id=uid,
        sequence=sequence,
        type=type_,
        agent=AgentId(agent) if agent else None,
        actor=None if actor is None else AgentId(actor),
        labels=Labels(task=task, intent=intent, binding=Binding(binding)),
        payload=object_of(payload),
        at=instant(at),
    )
