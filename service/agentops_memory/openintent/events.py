"""Events: agents' streams, logs of intents, and the end of entries (RFC-0015 §2.1, §5, §6.5).

Entries are removed, expire, or are archived in an event when their task ends. What is visible of
a task changes in the transaction that ends it. The values of a large task are moved into its
archives afterwards, step by step, and readers do not notice the steps.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..engine.engine import Engine, Transaction
from ..errors import Denied, Unreadable
from ..http import query
from ..http.bodies import Param, must, whole_number, written
from ..http.protocol import Operation
from ..light import dataclass
from ..memory import agent_memory
from ..memory.access import NOT_YOUR_AGENT, AgentId, Caller
from ..memory.agent_memory import LOGGED, Binding, EventType, IntentId, Labels, TaskId, Tier, Viewer
from ..memory.erasure import ReceiptTable
from ..memory.idempotency import once
from ..memory.memories import MemoryTable
from ..memory.memory import MemoryId, live
from ..memory.redactor import as_json, require_room
from ..memory.rows import UNSTORED, Column, RowMapper, count, micros, portion
from ..memory.table import Sql, step
from ..recall.text import object_of
from . import api, entries
from .api import INSTANT, PAGE, FullRecord, Serving, Time, identify, op, route
from .entries import BOUND, ENTRIES, ENTRY, UNEXPIRED, AgentEntry, SealTable, entry_with
from .intents import INTENT, Object, require_sight, visible_intent

IS_BOUND = f"a.binding > {Binding.NONE:d} AND a.binding <= {Binding.TASK:d}"


def _known(type_: str) -> str:
    if type_ not in agent_memory.EVENT_TYPES:
        raise Unreadable
    return type_


class AgentEvent(FullRecord):
    """An event of an entry, a task or an intent; some members are sent under two names.

    It contains no values of entries, except in an archive.
    """

    id: Annotated[str, Column("e.uid")]
    sequence: Annotated[int, Column("e.id")]
    intent_id: Annotated[str | None, Column("a.intent")]
    task_id: Annotated[str | None, Column("a.task")]
    # The agent whose stream has it.
    agent_id: Annotated[AgentId | None, Column("nullif(a.agent, '')")]
    actor: AgentId | None  # None if the service did it
    event_type: Annotated[str, Column("e.type", read=_known)]
    type: Annotated[str, Column("e.type")]
    payload: Annotated[Mapping[str, Any], Column("e.payload")]
    data: Annotated[Mapping[str, Any], UNSTORED] = {}
    created_at: Annotated[Time, Column("e.at")]
    timestamp: Annotated[Time | None, UNSTORED] = None
    binding: Binding = Field(exclude=True)

    def json_bytes(self) -> bytes:
        event = self.model_dump()
        payload = event["payload"] = event["data"] = dict(self.payload)
        event["timestamp"] = event["created_at"]
        event["id"] = query.public_id(query.EVENT, self.id)
        if "entry_id" in payload:
            payload["entry_id"] = query.public_id(query.ENTRY, str(payload["entry_id"]))
        return written(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Selects events of an agent's stream or of an intent's log."""

    agent: AgentId | None = None
    intent: IntentId | None = None
    type: str | None = None
    since: datetime | None = None  # only events after this time
    after: int | None = None  # only events after this sequence, oldest first


NAMES = frozenset({"namespace", "key", "tags"})
EVENTS = (
    Param(name="event_type", into="type", help="Only this type."),
    Param(name="since", kind="instant", help="Only events after this time.", read=INSTANT),
    Param(name="after", kind="integer", help="Events after this `sequence`, oldest first.",
          read=whole_number()),
    PAGE[0],
)  # fmt: skip


class EventBody(api.Draft):
    """POST /api/v1/intents/{id}/events."""

    event_type: Annotated[
        str, Field(json_schema_extra={"enum": sorted(LOGGED)}),
        must(LOGGED.__contains__,
             "must be a type that clients log: not memory.*, task.* or agent_assigned"),
    ]  # fmt: skip
    payload: Object = Field(default={})

    @property
    def details(self) -> api.Json:
        return api.compact(self.payload, "payload")


def operations(serving: Serving) -> Sequence[Operation]:
    async def listed(
        of: Callable[[Request], dict[str, Any]], request: Request, limit: int, **which: Any
    ) -> Response:
        filter_ = EventFilter(**of(request), **which)
        return await page(serving.engine, lambda: identify(request), filter_, limit)

    return (
        op("POST", f"{INTENT}/events", "log_event", "Add an event to the log of an intent.",
           partial(serving.write, LOG), AgentEvent, status=201, body=EventBody, refusals=(404,)),
        route("GET", f"{INTENT}/events", "list_events", "The log of an intent, newest first.",
           partial(listed, lambda it: {"intent": api.intent_id(it)}), AgentEvent,
           is_list=True, query=EVENTS, refusals=(404,)),
        route("GET", f"{api.PREFIX}/agents/{{agent}}/events", "list_agent_events",
           "The events of the agent's memory, newest first.",
           partial(listed, lambda it: {"agent": api.identify_owner(it)[1].agent}), AgentEvent,
           is_list=True, query=EVENTS),
    )  # fmt: skip


async def page(
    engine: Engine, identify: api.Identify, filter_: EventFilter, limit: int
) -> Response:
    """Return events, newest first, or oldest first after a sequence.

    Raises Denied for the stream of another agent, NotFound for an intent that the agent may not
    see. Access is checked again before each portion.
    """
    return await api.listed(
        engine, identify(), identify, lambda tx, _: (sequences(tx, filter_, limit), 0),
        partial(_some, filter_),
    )  # fmt: skip


def _require_sight(
    tx: Transaction, viewer: Viewer, filter_: EventFilter
) -> agent_memory.Standing | None:
    if filter_.intent is not None:
        return require_sight(tx, viewer, filter_.intent)
    if filter_.agent != viewer.agent:
        raise Denied(NOT_YOUR_AGENT)
    return None


def _some(
    filter_: EventFilter, tx: Transaction, viewer: Viewer, ids: Sequence[int]
) -> list[AgentEvent]:
    standing = _require_sight(tx, viewer, filter_)
    events = [with_snapshot(tx, event) for event in events_with(tx, ids)]
    if standing is None:  # the agent's own stream
        return events
    return [_without_hidden(tx, viewer, standing, event) for event in events]


def _without_hidden(
    tx: Transaction, viewer: Viewer, standing: agent_memory.Standing, event: AgentEvent
) -> AgentEvent:
    """Remove from a log's event what the agent may not read; administrators read no values."""
    if event.type == EventType.ARCHIVED and not standing.takes_part:
        return without_values(event)
    namespace = event.payload.get("namespace")
    if event.payload.get("memory_type") != Tier.SEMANTIC or not isinstance(namespace, str):
        return event
    if agent_memory.permissions(tx, namespace).of(viewer) >= agent_memory.Access.READ:
        return event
    payload = {name: it for name, it in event.payload.items() if name not in NAMES}
    return event.model_copy(update={"payload": payload})


def _log(
    tx: Transaction, viewer: Viewer, intent: IntentId, body: EventBody, payload: str
) -> AgentEvent:
    """Add a client's event to the log of an intent that the agent sees."""
    visible_intent(tx, viewer, intent)
    require_room(tx)
    labels = Labels(intent=intent, binding=Binding.INTENT)
    fields = object_of(payload)
    sequence = entries.add_event(
        tx, body.event_type, fields, labels, agent=None, actor=viewer.agent
    )
    (event,) = events_with(tx, [sequence])
    return event


LOG = once(_log, check=require_sight)


# Rows.

_EVENT = RowMapper(AgentEvent, "events", "e.id", alias="a.")


def sequences(tx: Transaction, filter_: EventFilter, limit: int) -> list[tuple[int, int]]:
    """Return sequences of events, with the sizes of their payloads in bytes, as `page` orders."""
    optional = {
        "a.agent = :agent": filter_.agent,
        f"{IS_BOUND} AND a.intent = :intent": filter_.intent,
        "e.type = :type": filter_.type,
        "e.at > :since": None if filter_.since is None else micros(filter_.since),
        "a.event_id > :after": filter_.after,
    }
    conditions = [condition for condition, value in optional.items() if value is not None]
    rows = tx[Sql].run(
        f"""SELECT e.id, length(e.payload) + coalesce(p.size, 0)
              FROM agent_events a
              JOIN events e ON e.id = a.event_id
              LEFT JOIN pending_archives p ON p.event_id = e.id
             WHERE {" AND ".join(conditions)}
          ORDER BY a.event_id {"DESC" if filter_.after is None else "ASC"}
             LIMIT :limit""",
        limit=limit, **{condition.split(":")[1]: value for condition, value in optional.items()},
    )  # fmt: skip
    return [(id_, size) for id_, size in rows]


def events_with(tx: Transaction, ids: Sequence[int]) -> list[AgentEvent]:
    """Return the events that exist with these sequences, in their order."""
    rows = tx[Sql].run(
        f"""SELECT {_EVENT}
              FROM {tx[Sql].dialect.ids("listed")}
             {tx[Sql].dialect.leads} events e ON e.id = listed.value
              JOIN agent_events a ON a.event_id = e.id
          ORDER BY listed.key""",
        ids=json.dumps(ids),
    )
    return list(tx[Sql].intact(rows, _EVENT))


def past_events(tx: Transaction, until: datetime, most: int, *, of_log: bool = False) -> list[int]:
    """Return sequences up to a time, oldest first: of events of memory, or of other events."""
    return tx[Sql].column(
        f"""SELECT id
              FROM events
             WHERE at <= :until AND {agent_memory.OF_LOG if of_log else agent_memory.OF_MEMORY}
                   AND NOT EXISTS (SELECT 1 FROM pending_archives WHERE event_id = events.id)
          ORDER BY at
             LIMIT :most""",
        until=micros(until), most=most,
    )  # fmt: skip


def forget_events(tx: Transaction, ids: Sequence[int]) -> int:
    """Remove events and return how many existed."""
    chosen = f"(SELECT value FROM {tx[Sql].dialect.ids('listed')})"
    return tx[Sql].run(f"DELETE FROM events WHERE id IN {chosen}", ids=json.dumps(ids)).rowcount


# How entries end.

MAX_ARCHIVED, MAX_ARCHIVED_SIZE = 200, 256 * 1024  # entries of an archive, and bytes of values
EXPIRED, TASK_ENDED = "expired", "task_ended"  # reasons in a payload

OF_TASK = f"a.task = :task AND a.attempt = :attempt AND {BOUND}"
# Entries of other tiers that live as long as the task.
WITH_TASK = f"""a.task = :task AND a.intent = :intent AND a.binding = {Binding.TASK:d}
                AND a.tier <> '{Tier.WORKING}' AND a.ttl = '{entries.TASK_LIFETIME}'
                AND l.expires_at IS NULL"""


def remove(
    tx: Transaction, entry: AgentEntry, type_: EventType, *, actor: Viewer | None = None,
    reason: str | None = None,
) -> None:  # fmt: skip
    """Remove an entry permanently, and add its event; its bytes leave the files soon."""
    tx[MemoryTable].erase(entry.memory)
    entries.note(tx, type_, entry, actor, reason=reason)
    tx[ReceiptTable].add_of_agents()


def expire(tx: Transaction, entry: AgentEntry) -> None:
    """Remove an entry that has expired, or has ended with its task."""
    with_task = entry.ttl == entries.TASK_LIFETIME and not entry.is_own_expiry
    remove(tx, entry, EventType.EXPIRED, reason=TASK_ENDED if with_task else EXPIRED)


class Ending(NamedTuple):
    """A working entry that ends with its task."""

    agent: AgentId
    memory: MemoryId
    size: int  # bytes of its value


@dataclass(frozen=True, slots=True)
class PendingArchive:
    """An archive whose values are not in its event yet; readers see its entries only there."""

    event: Annotated[int, Column("event_id")]
    task: TaskId
    attempt: int
    agent: AgentId
    first: MemoryId
    last: MemoryId
    size: int  # bytes of the values

    def entries(self, tx: Transaction) -> list[AgentEntry]:
        """Return the entries of the archive, oldest first."""
        return _entries(
            tx, f"{OF_TASK} AND a.agent = :agent AND a.memory_id BETWEEN :first AND :last",
            task=self.task, attempt=self.attempt, agent=self.agent, first=self.first,
            last=self.last,
        )  # fmt: skip


_PENDING = RowMapper(PendingArchive, "pending_archives", "event_id")


def end_with_task(tx: Transaction, labels: Labels, viewer: Viewer, *, archives: bool) -> int:
    """End entries that live as long as a finished task; return how many were archived."""
    of_task: dict[str, Any] = {"task": labels.task, "attempt": labels.attempt}
    of_others: dict[str, Any] = {"task": labels.task, "intent": labels.intent}
    for entry in _entries(tx, f"{OF_TASK} AND NOT {UNEXPIRED}", **of_task):
        expire(tx, entry)
    for entry in _entries(tx, f"{WITH_TASK} AND {live('m')}", most=MAX_ARCHIVED, **of_others):
        remove(tx, entry, EventType.EXPIRED, actor=viewer, reason=TASK_ENDED)
    tx[Sql].run(  # surplus entries expire now and leave with the next sweep
        f"""INSERT INTO lifecycles (memory_id, space_id, expires_at)
            SELECT m.id, m.space_id, :now FROM {ENTRIES} WHERE {WITH_TASK}
                ON CONFLICT (memory_id) DO UPDATE SET expires_at = excluded.expires_at""",
        **of_others,
    )  # fmt: skip
    rows = tx[Sql].run(
        f"""SELECT a.agent, a.memory_id, a.size
              FROM agent_memories a
             WHERE {OF_TASK} AND {UNEXPIRED}
          ORDER BY a.agent, a.memory_id""",
        **of_task,
    )  # fmt: skip
    ending = [Ending(agent, id_, count(size)) for agent, id_, size in rows]
    if not archives:
        for each in ending:
            gone = entry_with(tx, each.memory)
            if gone is not None:
                remove(tx, gone, EventType.EXPIRED, actor=viewer, reason=TASK_ENDED)
        return 0
    for agent, of_agent in groupby(ending, key=lambda it: it.agent):
        parts = list(_parts(list(of_agent)))
        for number, part in enumerate(parts, start=1):
            payload: dict[str, object] = {"entries_archived": len(part)}
            if len(parts) > 1:
                payload |= {"part": number, "parts": len(parts)}
            event = entries.add_event(
                tx, EventType.ARCHIVED, payload, labels, agent=agent, actor=viewer.agent
            )
            _defer(tx, event, labels, part)
    room = MAX_ARCHIVED_SIZE
    while (pending := _pending(tx, "task = :task", task=labels.task)) and pending.size <= room:
        settle(tx, pending)
        room -= max(pending.size, MAX_ARCHIVED_SIZE // MAX_ARCHIVED)
    return len(ending)


def settle(tx: Transaction, pending: PendingArchive) -> None:
    """Move the values of an archive into its event, and erase its entries."""
    entries = pending.entries(tx)
    for event in events_with(tx, [pending.event]):
        payload = as_json({**event.payload, "snapshot": snapshot(entries)})
        tx[Sql].update("events", "id", {"id": pending.event, "payload": payload})
    tx[MemoryTable].erase_some([entry.memory for entry in entries])
    tx[Sql].run("DELETE FROM pending_archives WHERE event_id = :id", id=pending.event)
    tx[ReceiptTable].add_of_agents()


async def settle_all(engine: Engine, caller: Caller) -> None:
    """Settle pending archives of large tasks or a killed process, in steps between writes."""

    def settle_next(tx: Transaction) -> None:
        if pending := _pending(tx):
            settle(tx, pending)

    while await engine.read(caller, _pending):  # checked first: a write is a commit
        await engine.write(caller, settle_next)


def with_snapshot(tx: Transaction, event: AgentEvent) -> AgentEvent:
    """Return the event with its snapshot, even if its archive is pending."""
    if event.type != EventType.ARCHIVED or "snapshot" in event.payload:
        return event
    pending = _pending(tx, "event_id = :id", id=event.sequence)
    if pending is None:
        return event
    payload = {**event.payload, "snapshot": snapshot(pending.entries(tx))}
    return event.model_copy(update={"payload": payload})


def without_values(event: AgentEvent) -> AgentEvent:
    """Return an archive without values, for agents that may not read the entries."""
    snapshot = event.payload.get("snapshot")
    entries = snapshot if isinstance(snapshot, list) else []
    kept = [
        {name: it for name, it in entry.items() if name != "value"} | {"redacted": True}
        for entry in entries if isinstance(entry, dict)
    ]  # fmt: skip
    return event.model_copy(update={"payload": {**event.payload, "snapshot": kept}})


def snapshot(entries: Sequence[AgentEntry]) -> list[dict[str, object]]:
    """Return entries as an archive keeps them: without confidential values (§9.2)."""
    return [
        {
            "namespace": it.namespace, "key": it.key, "tags": list(it.tags), "version": it.version,
            **({"redacted": True} if it.is_sealed else {"value": object_of(it.value)}),
        }
        for it in entries
    ]  # fmt: skip


def pending_archive_of(tx: Transaction, entry: AgentEntry) -> PendingArchive | None:
    """Return the pending archive that has an entry, if any."""
    return _pending(
        tx,
        """task = :task AND attempt = :attempt AND agent = :agent
           AND :memory BETWEEN first AND last""",
        task=entry.scope.task, attempt=entry.scope.attempt, agent=entry.owner, memory=entry.memory,
    )  # fmt: skip


@step("store.archive", lambda _, __, ___, part: {"memory.agent.id": part[0].agent})
def _defer(tx: Transaction, event: int, labels: Labels, part: Sequence[Ending]) -> None:
    """Make the entries of an archive visible in its event only, before `settle` moves them."""
    pending = PendingArchive(
        event, TaskId(labels.task or ""), labels.attempt or 0, part[0].agent, part[0].memory,
        part[-1].memory, sum(entry.size for entry in part),
    )  # fmt: skip
    tx[Sql].insert("pending_archives", **_PENDING.values(pending))


def _parts(left: Sequence[Ending]) -> Iterator[Sequence[Ending]]:
    """Split entries into archives, each within both limits of an archive."""
    while left:
        # A portion includes the entry that exceeds its room.
        part = portion(left[:MAX_ARCHIVED], MAX_ARCHIVED_SIZE - api.MAX_VALUE, attrgetter("size"))
        yield part
        left = left[len(part) :]


def _pending(tx: Transaction, which: str = "TRUE", /, **values: object) -> PendingArchive | None:
    """Return the first pending archive that matches a condition."""
    return tx[Sql].fetch(_PENDING, f"{which} ORDER BY event_id LIMIT 1", **values)


def _entries(
    tx: Transaction, condition: str, most: int | None = None, **values: object
) -> list[AgentEntry]:
    limit = "" if most is None else f"LIMIT {most:d}"
    batch = tx[Sql].fetch_all(ENTRY, f"{condition} ORDER BY m.id {limit}", **values)
    return tx[SealTable].opened(batch)
