"""Events: what happened, in agents' streams and in the logs of intents (RFC-0015 §5)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import Field

from ..engine.engine import Transaction
from ..errors import Unreadable
from ..http.bodies import written
from ..http.ids import ENTRY, public_id
from ..http.ids import EVENT as EVENT_ID
from ..memory.model.access import AgentId
from ..memory.model.agent_events import LOGGED, EventType
from ..memory.model.agent_memory import Binding, Labels
from ..memory.model.intents import IntentId
from ..memory.model.rows import instant, micros, reads
from ..memory.model.table import Sql
from ..memory.sight import OF_LOG, OF_MEMORY
from ..recall.text.json_words import object_of
from .api import Shown, Time

EVENT = "e.id, e.uid, e.type, a.agent, a.actor, a.task, a.intent, a.binding, e.payload, e.at"
IS_BOUND = f"a.binding > {Binding.NONE:d} AND a.binding <= {Binding.TASK:d}"
KNOWN = LOGGED | {*EventType}


class AgentEvent(Shown):
    """What happened to an entry, a task or an intent, under both names of everything.

    Of memory it tells no value, but in an archive.
    """

    id: str
    sequence: int
    intent_id: str | None
    task_id: str | None
    agent_id: AgentId | None  # whose stream it stands in
    actor: AgentId | None  # None where nobody did it
    event_type: str
    type: str
    payload: Mapping[str, Any]
    data: Mapping[str, Any] = {}
    created_at: Time
    timestamp: Time | None = None
    binding: Binding = Field(exclude=True)

    def json_bytes(self) -> bytes:
        shown = self.model_dump()
        payload = shown["payload"] = shown["data"] = dict(self.payload)
        shown["timestamp"] = shown["created_at"]
        shown["id"] = public_id(EVENT_ID, self.id)
        if "entry_id" in payload:
            payload["entry_id"] = public_id(ENTRY, str(payload["entry_id"]))
        return written(shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events are asked for: an agent's stream, or an intent's log."""

    agent: AgentId | None = None
    intent: IntentId | None = None
    type: str | None = None
    since: datetime | None = None  # later than this
    after: int | None = None  # oldest first, from the sequence on


def add_event(
    tx: Transaction,
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
    sql = tx[Sql]
    event = sql.inserted(
        "events", uid=tx.new_uid(tx.now), type=type_, payload=_written(payload), at=micros(tx.now)
    )
    sql.insert(
        "agent_events", event_id=event, agent=agent or "", actor=actor, task=labels.task,
        intent=labels.intent, binding=labels.binding,
    )  # fmt: skip
    return event


def sequences(tx: Transaction, filter_: EventFilter, limit: int) -> list[tuple[int, int]]:
    """The sequences of events, with their bytes: newest first, or oldest after a sequence."""
    said = {
        "a.agent = :agent": filter_.agent,
        f"{IS_BOUND} AND a.intent = :intent": filter_.intent,
        "e.type = :type": filter_.type,
        "e.at > :since": None if filter_.since is None else micros(filter_.since),
        "a.event_id > :after": filter_.after,
    }
    conditions = [condition for condition, value in said.items() if value is not None]
    rows = tx[Sql].run(
        f"""SELECT e.id, length(e.payload) + coalesce(p.size, 0)
              FROM agent_events a
              JOIN events e ON e.id = a.event_id
              LEFT JOIN pending_archives p ON p.event_id = e.id
             WHERE {" AND ".join(conditions)}
          ORDER BY a.event_id {"DESC" if filter_.after is None else "ASC"}
             LIMIT :limit""",
        limit=limit, **{condition.split(":")[1]: value for condition, value in said.items()},
    )  # fmt: skip
    return [(id_, size) for id_, size in rows]


def events_with(tx: Transaction, ids: Sequence[int]) -> list[AgentEvent]:
    """The events of these sequences that there are, in their order."""
    rows = tx[Sql].run(
        f"""SELECT {EVENT}
              FROM {tx[Sql].dialect.ids("given")}
             {tx[Sql].dialect.leads} events e ON e.id = given.value
              JOIN agent_events a ON a.event_id = e.id
          ORDER BY given.key""",
        ids=json.dumps(ids),
    )
    return list(tx[Sql].intact(rows, _event))


def fill(tx: Transaction, sequence: int, payload: Mapping[str, object]) -> None:
    """Let an event tell this."""
    tx[Sql].run(
        "UPDATE events SET payload = :payload WHERE id = :id",
        id=sequence, payload=_written(payload),
    )  # fmt: skip


def past_events(tx: Transaction, until: datetime, most: int, *, of_log: bool = False) -> list[int]:
    """Sequences of that time or earlier, oldest first: of memory's events, or of the rest."""
    return tx[Sql].column(
        f"""SELECT id
              FROM events
             WHERE at <= :until AND {OF_LOG if of_log else OF_MEMORY}
                   AND NOT EXISTS (SELECT 1 FROM pending_archives WHERE event_id = events.id)
          ORDER BY at
             LIMIT :most""",
        until=micros(until), most=most,
    )  # fmt: skip


def forget_events(tx: Transaction, ids: Sequence[int]) -> int:
    """Remove events; how many were there."""
    given = f"(SELECT value FROM {tx[Sql].dialect.ids('given')})"
    return tx[Sql].run(f"DELETE FROM events WHERE id IN {given}", ids=json.dumps(ids)).rowcount


def _written(payload: Mapping[str, object]) -> str:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


@reads("events")
def _event(  # noqa: PLR0913, PLR0917 - the columns of EVENT
    sequence: int, uid: str, type_: str, agent: str, actor: str | None, task: str | None,
    intent: str | None, binding: int, payload: str, at: int,
) -> AgentEvent:  # fmt: skip
    if type_ not in KNOWN:
        raise Unreadable
    return AgentEvent.model_construct(
        id=uid, sequence=sequence, intent_id=intent, task_id=task,
        agent_id=AgentId(agent) if agent else None, actor=None if actor is None else AgentId(actor),
        event_type=type_, type=type_, payload=object_of(payload),
        created_at=instant(at), binding=Binding(binding),
    )  # fmt: skip
