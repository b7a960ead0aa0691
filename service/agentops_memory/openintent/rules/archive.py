"""The end of a task's working memory: archived, and gone (RFC-0015 §2.1, §6.5).

What can be seen changes in the transaction of the task's status. The values of a large task are
moved into its archives afterwards, step by step, and no reader sees one of these.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ...engine.engine import Engine, Transaction
from ...memory.model.access import Caller
from ...memory.model.agent_events import AgentEvent, EventType
from ...memory.model.agent_memory import AgentEntry, Binding, Eyes, Labels
from ...memory.model.intents import EndingEntry, PendingArchive, Task
from ...memory.sql.memories import MemoryTable
from ...recall.text.json_words import object_of
from ..sql.archives import ArchiveTable
from ..sql.entries import AgentTable
from ..sql.events import AgentEventTable
from . import binding, rules
from .binding import TASK_LIFETIME

MOST, LONGEST = 200, 256 * 1024  # entries of an archive, and bytes of their values


def end(tx: Transaction, task: Task, eyes: Eyes) -> int:
    """Let what lives as long as a task go, which is finished by now; how many were archived."""
    for entry in tx[ArchiveTable].expired(task):
        rules.expire(tx, entry)
    for entry in tx[ArchiveTable].ending_with(task, TASK_LIFETIME, MOST):
        rules.remove(tx, entry, EventType.EXPIRED, actor=eyes, reason=rules.TASK_ENDED)
    tx[ArchiveTable].expire_with(task, TASK_LIFETIME)  # what is left of many, until the next sweep
    labels = Labels(task=task.id, intent=task.intent, binding=Binding.TASK, attempt=task.attempt)
    ending = tx[ArchiveTable].ending(task)
    archives = task.policy is None or task.policy.archives
    must = any(it.must_archive for it in binding.guardrails(tx, labels))
    if not archives and not must:
        _forget(tx, ending, eyes)
        return 0
    for _, of_agent in groupby(ending, key=lambda it: it.agent):
        _archive(tx, task, labels, list(_parts(of_agent)), eyes)
    room = LONGEST
    while (pending := tx[ArchiveTable].next(task.id)) and pending.size <= room:
        settle(tx, pending)
        room -= max(pending.size, LONGEST // MOST)
    return len(ending)


def settle(tx: Transaction, pending: PendingArchive) -> None:
    """Move the values of an archive into its event: from then on they lie there alone."""
    entries = tx[ArchiveTable].entries(pending)
    for event in tx[AgentEventTable].some([pending.event]):
        tx[AgentEventTable].fill(pending.event, {**event.payload, "snapshot": snapshot(entries)})
    tx[MemoryTable].erase_some([entry.memory for entry in entries])
    tx[ArchiveTable].settled(pending)
    rules.add_receipt(tx)


def is_pending(tx: Transaction) -> bool:
    """Whether there is an archive that was not settled."""
    return tx[ArchiveTable].next() is not None


def settle_next(tx: Transaction) -> bool:
    """Settle an archive that a large task, or a process that was killed, has left."""
    pending = tx[ArchiveTable].next()
    if pending is None:
        return False
    settle(tx, pending)
    return True


async def settle_all(engine: Engine, caller: Caller) -> None:
    """Settle what is pending, step by step; others write on."""
    while await engine.read(caller, is_pending):  # a write would be a commit
        await engine.write(caller, settle_next)


def shown(tx: Transaction, event: AgentEvent) -> AgentEvent:
    """The event with its snapshot, wherever its values lie."""
    if event.type != EventType.ARCHIVED or "snapshot" in event.payload:
        return event
    pending = tx[ArchiveTable].of_event(event.sequence)
    if pending is None:
        return event
    payload = {**event.payload, "snapshot": snapshot(tx[ArchiveTable].entries(pending))}
    return replace(event, payload=payload)


def without_values(event: AgentEvent) -> AgentEvent:
    """An archive as it is told to who may not read the entries."""
    snapshot = event.payload.get("snapshot")
    entries = snapshot if isinstance(snapshot, list) else []
    kept = [
        {name: said for name, said in it.items() if name != "value"} | {"redacted": True}
        for it in entries
        if isinstance(it, dict)
    ]
    return replace(event, payload={**event.payload, "snapshot": kept})


def snapshot(entries: Sequence[AgentEntry]) -> list[dict[str, object]]:
    """What an archive keeps of entries: no value of one that is confidential (§9.2)."""
    return [_kept(entry) for entry in entries]


def _kept(entry: AgentEntry) -> dict[str, object]:
    kept: dict[str, object] = {
        "namespace": entry.place.space.namespace,
        "key": entry.place.key,
        "tags": list(entry.handling.tags),
        "version": entry.version,
    }
    if entry.handling.is_sealed:
        return {**kept, "redacted": True}
    return {**kept, "value": object_of(entry.value)}


def _archive(
    tx: Transaction, task: Task, labels: Labels, parts: Sequence[Sequence[EndingEntry]], eyes: Eyes
) -> None:
    for number, part in enumerate(parts, start=1):
        payload: dict[str, object] = {"entries_archived": len(part)}
        if len(parts) > 1:
            payload |= {"part": number, "parts": len(parts)}
        event = tx[AgentEventTable].add(
            EventType.ARCHIVED, payload, labels, agent=part[0].agent, actor=eyes.agent
        )
        tx[ArchiveTable].add(
            PendingArchive(
                event=event,
                task=task.id,
                attempt=task.attempt,
                agent=part[0].agent,
                first=part[0].memory,
                last=part[-1].memory,
                size=sum(entry.size for entry in part),
            )
        )


def _parts(entries: Iterable[EndingEntry]) -> Iterator[list[EndingEntry]]:
    """Entries as archives hold them: not too many, and not too long."""
    part, size = list[EndingEntry](), 0
    for entry in entries:
        if part and (len(part) == MOST or size + entry.size > LONGEST):
            yield part
            part, size = [], 0
        part.append(entry)
        size += entry.size
    if part:
        yield part


def _forget(tx: Transaction, ending: Sequence[EndingEntry], eyes: Eyes) -> None:
    for each in ending:
        entry = tx[AgentTable].one(each.memory)
        if entry is not None:
            rules.remove(tx, entry, EventType.EXPIRED, actor=eyes, reason=rules.TASK_ENDED)
