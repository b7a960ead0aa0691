"""What is written to refs, in one transaction with the event that tells of it."""
# ruff: noqa: PLC0414

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from ...engine.engine import Ids, Transaction
from ...errors import AnswerLost, BadFields
from ...memory.limits import require_room
from ...memory.model.memory import (
    UNSET,
    ChangeKind,
    Lifecycle,
    LifecycleChange,
    Memory,
    MemoryId,
    Text,
)
from ...memory.model.space import MemoryRef
from ...memory.model.stores import Written
from ...memory.sql.memories import MemoryTable
from ...memory.writes import created, revised
from ...recall.text.instants import whole_milliseconds
from ..commitments import arm, cancel_of, fire_met
from ..conditions import conditions_of
from ..model.entries import RefDraft, RefEntry, RefEntryId, ref_entry_id
from ..model.runs import JsonObject, RunEventType, RunId
from ..refs import ScreenOutdated as ScreenOutdated
from ..sql.entries import RefTable
from ..sql.runs import RunTable
from .rules import IdTaken, MemoryChanged, no_entry
from .run_rules import open_run, require_secrets

ENTRY_TYPE = "memory"
CREATED, OK = 201, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """What an entry was screened with, asked when it is written."""

    is_current: Callable[[], bool]
    held: Callable[[RunId], Mapping[str, int]]  # how many values each id of a run has here


def put_entry(tx: Transaction, draft: RefDraft, screened: Screened) -> Written[RefEntry]:
    if not screened.is_current():
        raise ScreenOutdated
    tx.caller.require_refs()
    origin = draft.origin
    run = None if origin.run is None else open_run(tx, origin.run)
    if run is not None:
        require_secrets(run, screened.held(run.id))
    held = None if draft.id is None else tx[RefTable].get(draft.ref, draft.id)
    if held is not None:
        if not _says_the_same(held, draft):
            raise IdTaken
        return Written(value=held, is_new=False)
    require_room(tx)
    older = list(_superseded(tx, draft))
    ends, conditions = _end(draft.lifecycle, tx.now), conditions_of(draft.tags, tx.now)
    if ends is not None and ends <= tx.now:
        raise BadFields([("expiresAt", "must lie in the future")])
    entry = added(tx, draft, ends=ends)
    tx[RefTable].supersede(entry.memory, older)
    cancel_of(tx, older)
    if run is not None:
        tx[RunTable].tell(run, RunEventType.WRITTEN, _written(draft, entry), origin.node)
        tx[RunTable].hear(run, draft.ref)
    fired = fire_met(tx, draft.ref, entry)
    arm(tx, entry.memory, conditions)
    return Written(value=entry, is_new=True, fired=fired)


def added(
    tx: Transaction,
    draft: RefDraft,
    *,
    ends: datetime | None = None,
    like: Memory | None = None,
) -> RefEntry:
    """A new entry; in place of another one, when it was put, and seen as often."""
    memory = created(
        tx,
        Memory(
            uid=tx.new_uid(tx.now),
            session=None,
            space=tx[RefTable].space(draft.ref) or tx[RefTable].add(draft.ref),
            key=None,
            text=Text(type=ENTRY_TYPE, title="", content=draft.content, tags=draft.tags),
            duplicates=like.duplicates if like else 1,
            last_seen_at=like.last_seen_at if like else tx.now,
            created_at=like.created_at if like else tx.now,
            updated_at=tx.now,
            lifecycle=Lifecycle(expires_at=ends),
        ),
    )
    tx[RefTable].put(memory, draft.id, draft.origin)
    return RefEntry(
        id=ref_entry_id(memory.uid, draft.id),
        memory=memory.id,
        uid=memory.uid,
        content=draft.content,
        tags=draft.tags,
        created_at=memory.created_at,
        expires_at=ends,
    )


def ids_of_put(put: Written[RefEntry]) -> Ids:
    return {"memory": put.value.memory, "is_new": int(put.is_new)}


def status_of_put(put: Written[RefEntry]) -> int:
    return CREATED if put.is_new else OK


def put_again(tx: Transaction, ids: Ids, draft: RefDraft, _: Screened) -> Written[RefEntry]:
    """The entry as it was answered; AnswerLost if it is not live any more."""
    tx.caller.require_refs()
    (entry,) = tx[RefTable].some([MemoryId(int(ids["memory"]))])
    if tx[RefTable].get(draft.ref, entry.id) != entry:
        raise AnswerLost
    return Written(value=entry, is_new=bool(ids["is_new"]))


def delete_entry(tx: Transaction, ref: MemoryRef, entry: RefEntryId, run: RunId | None) -> None:
    tx.caller.require_refs()
    within = None if run is None else open_run(tx, run)
    found = tx[RefTable].get(ref, entry)
    if found is None:
        raise no_entry()
    removed(tx, found.memory)
    if within is not None:
        payload = {"memoryRef": ref, "memoryId": found.id}
        tx[RunTable].tell(within, RunEventType.DELETED, payload)
        tx[RunTable].hear(within)


def removed(tx: Transaction, memory: MemoryId) -> None:
    """Delete an entry that is there."""
    tx[RefTable].delete(memory, tx[RunTable].newest())
    cancel_of(tx, [memory])
    (held,) = tx[MemoryTable].loaded([memory])
    gone = replace(held, deleted_at=tx.now)
    revised(tx, held, gone, ChangeKind.DELETED, has_new_text=False)


def deleted_again(
    tx: Transaction, _: Ids, __: MemoryRef, ___: RefEntryId, ____: RunId | None
) -> None:
    tx.caller.require_refs()


def _superseded(tx: Transaction, draft: RefDraft) -> Iterator[MemoryId]:
    for id_ in dict.fromkeys(draft.supersedes):
        found = tx[RefTable].get(draft.ref, id_)
        if found is None:
            raise MemoryChanged
        yield found.memory


def _says_the_same(held: RefEntry, draft: RefDraft) -> bool:
    same_text = held.content == draft.content and held.tags == draft.tags
    return same_text and held.expires_at == _end(draft.lifecycle, held.created_at)


def _end(given: LifecycleChange, since: datetime) -> datetime | None:
    """When an entry ends: at a whole millisecond, as it is shown."""
    end = given.end(since)
    if end is UNSET or not isinstance(end, datetime):
        return None
    return whole_milliseconds(end)


def _written(draft: RefDraft, entry: RefEntry) -> JsonObject:
    """What the event of a put tells (RFC 0057)."""
    names = {"nodeId": draft.origin.node, "agentId": draft.origin.agent}
    said = {name: it for name, it in names.items() if it is not None}
    return {"memoryRef": draft.ref, "memoryId": entry.id, **said, "tags": list(draft.tags)}
