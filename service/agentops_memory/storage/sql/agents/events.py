"""SQL for the events of agents' memory."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ....domain.model.agent_events import AgentEvent, EventType
from ....domain.model.agent_memory import (
    AgentEntry,
    Labels,
)
from ....domain.model.agents import AgentId
from ....domain.text.ids import Uids
from ....domain.text.json_words import stored_object
from ..rows import instant, member, micros
from ..table import Table

EVENT = "e.uid, e.id, e.type, a.agent, a.actor, a.task, a.intent, e.payload, e.at"


@dataclass(eq=False)
class AgentEvents(Table):
    """The events of one transaction."""

    _now: datetime
    _uids: Uids

    def add(
        self,
        type_: EventType,
        entry: AgentEntry,
        payload: Mapping[str, object],
        actor: AgentId | None,
    ) -> None:
        owner = entry.place.space.agent or actor or entry.created_by
        event = self._inserted(
            "events",
            uid=self._uids.make(self._now),
            type=type_.value,
            payload=json.dumps(payload, ensure_ascii=False, separators=(",", ":")),
            at=micros(self._now),
        )
        self._insert(
            "agent_events",
            event_id=event,
            agent=owner,
            actor=actor,
            task=entry.labels.task,
            intent=entry.labels.intent,
        )

    def page(
        self,
        agent: AgentId,
        limit: int,
        *,
        type_: str | None,
        since: datetime | None,
        after: int | None,
    ) -> list[AgentEvent]:
        of_type = "" if type_ is None else " AND e.type = :type"
        later = "" if since is None else " AND e.at > :since"
        on = "" if after is None else " AND a.event_id > :after"
        order = "DESC" if after is None else "ASC"
        rows = self._execute(
            f"""SELECT {EVENT}
                  FROM agent_events a
                  JOIN events e ON e.id = a.event_id
                 WHERE a.agent = :agent{of_type}{later}{on}
              ORDER BY a.event_id {order}
                 LIMIT :limit""",
            agent=agent,
            limit=limit,
            type=type_,
            since=None if since is None else micros(since),
            after=after,
        )
        return list(map(_event, rows))

    def past(self, until: datetime, most: int) -> list[int]:
        return self._scalars(
            "SELECT id FROM events WHERE at <= :until ORDER BY at LIMIT :most",
            until=micros(until),
            most=most,
        )

    def forget(self, sequences: Sequence[int]) -> int:
        return self._execute(
            f"DELETE FROM events WHERE id IN (SELECT value FROM {self._sql.ids('given')})",
            ids=json.dumps(sequences),
        ).rowcount


def _event(row: Any) -> AgentEvent:
    uid, sequence, type_, agent, actor, task, intent, payload, at = row
    return AgentEvent(
        id=uid,
        sequence=sequence,
        type=member(EventType, type_, EventType.UPDATED),
        agent=AgentId(agent),
        actor=None if actor is None else AgentId(actor),
        labels=Labels(task=task, intent=intent),
        payload=stored_object(payload) or {},
        at=instant(at),
    )
