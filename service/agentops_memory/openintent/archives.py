"""The end of entries: removed, expired, or archived with their task (RFC-0015 §2.1, §6.5).

What can be seen of a task changes in the transaction of its status. The values of a large one are
moved into its archives afterwards, step by step, and no reader sees one of these.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from ..engine.callbacks import step
from ..engine.engine import Engine, Transaction
from ..memory.erasure import ErasureId, ReceiptTable
from ..memory.memories import MemoryTable
from ..memory.model.access import AgentId, Caller
from ..memory.model.agent_events import EventType
from ..memory.model.agent_memory import Binding, Eyes, Labels, Tier
from ..memory.model.intents import TaskId
from ..memory.model.liveness import expired, live
from ..memory.model.memory import MemoryId
from ..memory.model.rows import count, micros, reads
from ..memory.model.table import Sql
from ..recall.text.json_words import object_of
from .drafts import TASK_LIFETIME
from .entries import ENTRIES, ENTRY, AgentEntry, entries_of, entry_with
from .events import AgentEvent, add_event, events_with, fill

MOST, LONGEST = 200, 256 * 1024  # entries of an archive, and bytes of their values
ENDED, TASK_ENDED = "expired", "task_ended"  # the reasons of an event

BOUND = f"(a.tier = '{Tier.WORKING}' AND a.binding = {Binding.TASK:d})"
OF_TASK = f"a.task = :task AND a.attempt = :attempt AND {BOUND}"
UNEXPIRED = f"(NOT {expired('a.memory_id')})"
# Of other tiers, what lives as long as a task.
WITH_TASK = f"""a.task = :task AND a.intent = :intent AND a.binding = {Binding.TASK:d}
                AND a.tier <> '{Tier.WORKING}' AND a.ttl = '{TASK_LIFETIME}'
                AND l.expires_at IS NULL"""
PENDING = "event_id, task, attempt, agent, first, last, size"


def remove(
    tx: Transaction,
    entry: AgentEntry,
    type_: EventType,
    *,
    actor: Eyes | None = None,
    reason: str | None = None,
) -> None:
    """Remove an entry for good, with its event; its bytes leave the files soon."""
    tx[MemoryTable].erase(entry.memory)
    note(tx, type_, entry, actor, reason=reason)
    add_receipt(tx)


def expire(tx: Transaction, entry: AgentEntry) -> None:
    """Remove an entry that has ended by itself, or with its task."""
    with_task = entry.ttl == TASK_LIFETIME and not entry.is_own_expiry
    remove(tx, entry, EventType.EXPIRED, reason=TASK_ENDED if with_task else ENDED)


def add_receipt(tx: Transaction) -> None:
    """Let the bytes leave the files of what this transaction removes, and of all before it."""
    tx[ReceiptTable].add_of_agents(ErasureId(tx.new_uid(tx.now)))


def note(
    tx: Transaction,
    type_: EventType,
    entry: AgentEntry,
    actor: Eyes | None,
    *,
    before: AgentEntry | None = None,
    reason: str | None = None,
) -> None:
    """Write the event of a change, which tells no value (§5.2)."""
    payload: dict[str, object] = {
        "entry_id": entry.id, "namespace": entry.namespace, "key": entry.key,
        "memory_type": entry.memory_type.value, "version": entry.version, "tags": entry.tags,
    }  # fmt: skip
    if before is not None:
        payload["previous_version"] = before.version
    if reason is not None:
        payload["reason"] = reason
    who = None if actor is None else actor.agent
    owner = entry.owner or who or entry.created_by
    add_event(tx, type_, payload, entry.scope, agent=owner, actor=who)


class Ending(NamedTuple):
    """A working entry that ends with its task."""

    agent: AgentId
    memory: MemoryId
    size: int  # bytes of its value


@dataclass(frozen=True, slots=True)
class PendingArchive:
    """An archive whose entries were not moved into its event yet; they are seen there alone."""

    event: int
    task: TaskId
    attempt: int
    agent: AgentId
    first: MemoryId
    last: MemoryId
    size: int  # bytes of the values

    def entries(self, tx: Transaction) -> list[AgentEntry]:
        """The entries that lie in it, the first first."""
        return _entries(
            tx, f"{OF_TASK} AND a.agent = :agent AND a.memory_id BETWEEN :first AND :last",
            task=self.task, attempt=self.attempt, agent=self.agent, first=self.first,
            last=self.last,
        )  # fmt: skip


def end(tx: Transaction, labels: Labels, eyes: Eyes, *, archives: bool) -> int:
    """Let what lives as long as a task go, which is finished by now; how many were archived."""
    of_task: dict[str, Any] = {"task": labels.task, "attempt": labels.attempt}
    of_others: dict[str, Any] = {"task": labels.task, "intent": labels.intent}
    for entry in _entries(tx, f"{OF_TASK} AND NOT {UNEXPIRED}", **of_task):
        expire(tx, entry)
    for entry in _entries(tx, f"{WITH_TASK} AND {live('m')}", most=MOST, **of_others):
        remove(tx, entry, EventType.EXPIRED, actor=eyes, reason=TASK_ENDED)
    tx[Sql].run(  # what is left of many, until the next sweep
        f"""INSERT INTO lifecycles (memory_id, space_id, expires_at)
            SELECT m.id, m.space_id, :now FROM {ENTRIES} WHERE {WITH_TASK}
                ON CONFLICT (memory_id) DO UPDATE SET expires_at = excluded.expires_at""",
        now=micros(tx.now), **of_others,
    )  # fmt: skip
    rows = tx[Sql].run(
        f"""SELECT a.agent, a.memory_id, a.size
              FROM agent_memories a
             WHERE {OF_TASK} AND {UNEXPIRED}
          ORDER BY a.agent, a.memory_id""",
        now=micros(tx.now), **of_task,
    )  # fmt: skip
    ending = [Ending(agent, id_, count(size)) for agent, id_, size in rows]
    if not archives:
        for each in ending:
            gone = entry_with(tx, each.memory)
            if gone is not None:
                remove(tx, gone, EventType.EXPIRED, actor=eyes, reason=TASK_ENDED)
        return 0
    for _, of_agent in groupby(ending, key=lambda it: it.agent):
        _archive(tx, labels, list(_parts(of_agent)), eyes)
    room = LONGEST
    while (pending := _next(tx, labels.task)) and pending.size <= room:
        settle(tx, pending)
        room -= max(pending.size, LONGEST // MOST)
    return len(ending)


def settle(tx: Transaction, pending: PendingArchive) -> None:
    """Move the values of an archive into its event: from then on they lie there alone."""
    entries = pending.entries(tx)
    for event in events_with(tx, [pending.event]):
        fill(tx, pending.event, {**event.payload, "snapshot": snapshot(entries)})
    tx[MemoryTable].erase_some([entry.memory for entry in entries])
    tx[Sql].run("DELETE FROM pending_archives WHERE event_id = :id", id=pending.event)
    add_receipt(tx)


def settle_next(tx: Transaction) -> bool:
    """Settle an archive that a large task, or a process that was killed, has left."""
    pending = _next(tx)
    if pending is not None:
        settle(tx, pending)
    return pending is not None


async def settle_all(engine: Engine, caller: Caller) -> None:
    """Settle what is pending, step by step; others write on."""
    while await engine.read(caller, _next):  # a write would be a commit
        await engine.write(caller, settle_next)


def shown(tx: Transaction, event: AgentEvent) -> AgentEvent:
    """The event with its snapshot, wherever its values lie."""
    if event.type != EventType.ARCHIVED or "snapshot" in event.payload:
        return event
    pending = _pending(tx, "event_id = :id", id=event.sequence)
    if pending is None:
        return event
    payload = {**event.payload, "snapshot": snapshot(pending.entries(tx))}
    return event.model_copy(update={"payload": payload})


def without_values(event: AgentEvent) -> AgentEvent:
    """An archive as it is told to who may not read the entries."""
    snapshot = event.payload.get("snapshot")
    entries = snapshot if isinstance(snapshot, list) else []
    kept = [
        {name: said for name, said in it.items() if name != "value"} | {"redacted": True}
        for it in entries
        if isinstance(it, dict)
    ]
    return event.model_copy(update={"payload": {**event.payload, "snapshot": kept}})


def snapshot(entries: Sequence[AgentEntry]) -> list[dict[str, object]]:
    """What an archive keeps of entries: no value of one that is confidential (§9.2)."""
    return [
        {
            "namespace": it.namespace, "key": it.key, "tags": list(it.tags), "version": it.version,
            **({"redacted": True} if it.is_sealed else {"value": object_of(it.value)}),
        }
        for it in entries
    ]  # fmt: skip


def holding(tx: Transaction, entry: AgentEntry) -> PendingArchive | None:
    """The archive that an entry lies in, if it is pending."""
    return _pending(
        tx,
        """task = :task AND attempt = :attempt AND agent = :agent
           AND :memory BETWEEN first AND last""",
        task=entry.scope.task, attempt=entry.scope.attempt, agent=entry.owner, memory=entry.memory,
    )  # fmt: skip


def _archive(
    tx: Transaction, labels: Labels, parts: Sequence[Sequence[Ending]], eyes: Eyes
) -> None:
    for number, part in enumerate(parts, start=1):
        payload: dict[str, object] = {"entries_archived": len(part)}
        if len(parts) > 1:
            payload |= {"part": number, "parts": len(parts)}
        event = add_event(
            tx, EventType.ARCHIVED, payload, labels, agent=part[0].agent, actor=eyes.agent
        )
        _put_off(tx, event, labels, part)


@step("store.archive", lambda _, __, ___, part: {"memory.agent.id": part[0].agent})
def _put_off(tx: Transaction, event: int, labels: Labels, part: Sequence[Ending]) -> None:
    """Let the entries of an archive be seen in its event alone."""
    tx[Sql].insert(
        "pending_archives", event_id=event, task=labels.task, attempt=labels.attempt,
        agent=part[0].agent, first=part[0].memory, last=part[-1].memory,
        size=sum(entry.size for entry in part),
    )  # fmt: skip


def _parts(entries: Iterable[Ending]) -> Iterator[list[Ending]]:
    """Entries as archives hold them: not too many, and not too long."""
    part, size = list[Ending](), 0
    for entry in entries:
        if part and (len(part) == MOST or size + entry.size > LONGEST):
            yield part
            part, size = [], 0
        part.append(entry)
        size += entry.size
    if part:
        yield part


def _next(tx: Transaction, task: str | None = None) -> PendingArchive | None:
    """The first that is pending, of a task if one is given."""
    return _pending(tx, "TRUE" if task is None else "task = :task", task=task)


def _pending(tx: Transaction, which: str, **values: object) -> PendingArchive | None:
    return tx[Sql].first(
        _archive_of,
        f"SELECT {PENDING} FROM pending_archives WHERE {which} ORDER BY event_id LIMIT 1",
        **values,
    )


@reads("pending_archives")
def _archive_of(  # noqa: PLR0917 - the columns of PENDING
    event: int, task: str, attempt: int, agent: str, first: int, last: int, size: int
) -> PendingArchive:
    return PendingArchive(
        event, TaskId(task), count(attempt), AgentId(agent), MemoryId(first), MemoryId(last),
        count(size),
    )  # fmt: skip


def _entries(
    tx: Transaction, condition: str, most: int | None = None, **values: object
) -> list[AgentEntry]:
    limit = "" if most is None else f"LIMIT {most:d}"
    order = f"ORDER BY m.id {limit}"
    rows: Iterable[Any] = tx[Sql].run(
        f"SELECT {ENTRY} FROM {ENTRIES} WHERE {condition} {order}", now=micros(tx.now), **values
    )
    return entries_of(tx, rows)
