"""The one write path: each change of a memory, and what a replay of its request answers."""

from dataclasses import replace
from datetime import datetime, timedelta

from ..errors import Conflict, NotFound
from ..model.erasure import Erasure, ErasureId, ErasureKind
from ..model.memory import (
    Action,
    Amended,
    Change,
    ChangeKind,
    Draft,
    Memory,
    MemoryId,
    Revision,
    Saved,
    Session,
    Text,
)
from ..ports.engine import Ids, Transaction
from ..secrets.redaction import Rules
from ..text.instants import LATEST
from ..text.normalization import content_hash
from .limits import require_draft, require_room, require_tags
from .redactor import Redactor
from .sessions import entered

SECOND = timedelta(seconds=1)


def save(tx: Transaction, draft: Draft, window: timedelta) -> Saved:
    """The three dedup tiers: same topic key, same text within the window, a new memory."""
    tx.caller.require_space(draft.space)
    require_draft(tx, draft)
    require_room(tx)
    entered(tx, Session(id=draft.session, project=draft.space.project, started_at=tx.now))
    if draft.key is not None and (held := tx.memories.at_key(draft.space, draft.key)):
        memory = replace(
            held, text=draft.text, updated_at=changed_at(tx, held), last_seen_at=tx.now
        )
        return Saved(memory=revised(tx, held, memory), action=Action.UPDATED)
    if window and (twin := tx.memories.twin(draft.space, draft.key, draft.text, tx.now - window)):
        seen = replace(twin, duplicates=twin.duplicates + 1, last_seen_at=tx.now)
        tx.memories.count_duplicate(seen)
        return Saved(memory=seen, action=Action.DEDUPLICATED)
    return Saved(memory=created(tx, _memory(tx, draft)), action=Action.CREATED)


def ids_of_saved(outcome: Saved) -> Ids:
    memory = outcome.memory
    return {
        "memory": memory.id,
        "action": outcome.action.value,
        "revision": memory.revision,
        "duplicates": memory.duplicates,
    }


def saved_again(tx: Transaction, ids: Ids, draft: Draft, _: object) -> Saved:
    """The counts of then, even if the memory was changed or deleted since."""
    tx.caller.require_space(draft.space)
    memory = known(tx, MemoryId(int(ids["memory"])))
    then = replace(memory, revision=int(ids["revision"]), duplicates=int(ids["duplicates"]))
    return Saved(memory=then, action=Action(str(ids["action"])))


def amend(tx: Transaction, memory: MemoryId, change: Change) -> Memory:
    before = live(tx, memory)
    tx.caller.require_space(before.space)
    require_tags(change.tags or (), before.text.tags)
    require_room(tx)
    text = _changed(before.text, change)
    if text == before.text:
        return before
    return revised(tx, before, replace(before, text=text, updated_at=changed_at(tx, before)))


def ids_of_changed(memory: Memory) -> Ids:
    return {"revision": memory.revision}


def amended_again(tx: Transaction, ids: Ids, memory: MemoryId, _: Change) -> Memory:
    return _as_of(tx, memory, int(ids["revision"]))


def forget(tx: Transaction, memory: MemoryId) -> None:
    before = tx.memories.get(memory)
    if before is None:
        return
    tx.caller.require_space(before.space)
    if before.deleted_at is None:
        revised(tx, before, replace(before, deleted_at=tx.now), ChangeKind.DELETED)


def forgotten_again(tx: Transaction, _: Ids, memory: MemoryId) -> None:
    """Nothing, but for the access check."""
    now = tx.memories.get(memory)
    if now is not None:
        tx.caller.require_space(now.space)


def erase(tx: Transaction, memory: MemoryId) -> ErasureId | None:
    before = tx.memories.get(memory)
    if before is None:
        return _visible_id(tx, tx.receipts.of(memory))  # the caller may have lost the answer
    tx.caller.require_space(before.space)
    erasure = Erasure(
        id=ErasureId(tx.new_uid(tx.now)),
        kind=ErasureKind.OBSERVATION,
        project=before.space.project,
        memories=(memory,),
        observations=1,
        revisions=len(tx.revisions.newest(before)),
        erased_at=tx.now,
    )
    tx.memories.erase(memory)
    tx.receipts.add(erasure)
    return erasure.id


def ids_of_erased(erasure: ErasureId | None) -> Ids:
    return {} if erasure is None else {"erasure": erasure}


def erased_again(tx: Transaction, ids: Ids, memory: MemoryId) -> ErasureId | None:
    """The same receipt, unless the caller has lost access to its project."""
    forgotten_again(tx, ids, memory)
    receipt = tx.receipts.get(ErasureId(str(ids["erasure"]))) if "erasure" in ids else None
    return _visible_id(tx, receipt)


def restore(tx: Transaction, memory: MemoryId, number: int, rules: Rules) -> Amended:
    before = known(tx, memory)
    tx.caller.require_space(before.space)
    require_room(tx)
    text = next((r.text for r in tx.revisions.newest(before) if r.number == number), None)
    if text is None:
        raise NotFound("No such revision.")
    if before.deleted_at and before.key and tx.memories.at_key(before.space, before.key):
        raise Conflict("Another observation holds this topic key now.")
    redactor = Redactor(rules)  # there are more rules, perhaps, than when it was saved
    after = replace(
        before, text=redactor.words(text), updated_at=changed_at(tx, before), deleted_at=None
    )
    return Amended(memory=revised(tx, before, after), redacted=redactor.count)


def ids_of_restored(outcome: Amended) -> Ids:
    return {"revision": outcome.memory.revision, "redacted": outcome.redacted}


def restored_again(tx: Transaction, ids: Ids, memory: MemoryId, _: int, __: Rules) -> Amended:
    then = _as_of(tx, memory, int(ids["revision"]))
    return Amended(memory=then, redacted=int(ids["redacted"]))


def live(tx: Transaction, memory: MemoryId) -> Memory:
    """The memory, unless it is deleted."""
    found = known(tx, memory)
    if found.deleted_at is not None:
        raise NotFound("No such observation.")
    return found


def known(tx: Transaction, memory: MemoryId) -> Memory:
    """The memory, also when it is deleted."""
    found = tx.memories.get(memory)
    if found is None:
        raise NotFound("No such observation.")
    return found


def created(tx: Transaction, memory: Memory) -> Memory:
    """Store a new memory, with the revision that says so."""
    hashed = replace(memory, content_hash=content_hash(memory.text.content))
    stored = tx.memories.insert(hashed)
    _record(tx, stored, ChangeKind.CREATED)
    return stored


def revised(
    tx: Transaction, before: Memory, after: Memory, deed: ChangeKind = ChangeKind.UPDATED
) -> Memory:
    """Replace a memory by its next state; the history keeps the one before."""
    after = replace(
        after, revision=before.revision + 1, content_hash=content_hash(after.text.content)
    )
    tx.revisions.keep(before)
    tx.memories.replace(after)
    _record(tx, after, deed)
    return after


def changed_at(tx: Transaction, before: Memory) -> datetime:
    """The instant of a change: now, or a second after the last one if the clock went back.

    Exports have whole seconds, and states are compared by them. A damaged instant at the
    end of time has no successor: then it is now.
    """
    is_back = tx.now < before.updated_at < LATEST
    return before.updated_at + SECOND if is_back else tx.now


def _record(tx: Transaction, memory: Memory, deed: ChangeKind) -> None:
    at = memory.deleted_at or memory.updated_at
    tx.revisions.add(
        memory.id, Revision(number=memory.revision, deed=deed, at=at, text=memory.text)
    )
    if tx.retention.oldest(memory.revision) > 1 and not memory.space.is_store:
        tx.past_retention.trim([memory.id], tx.retention.revisions)


def _visible_id(tx: Transaction, receipt: Erasure | None) -> ErasureId | None:
    if receipt is None or not tx.caller.projects.match(receipt.project):
        return None
    return receipt.id


def _memory(tx: Transaction, draft: Draft) -> Memory:
    return Memory(
        uid=tx.new_uid(tx.now),
        session=draft.session,
        space=draft.space,
        key=draft.key,
        text=draft.text,
        last_seen_at=tx.now,
        created_at=tx.now,
        updated_at=tx.now,
    )


def _changed(text: Text, change: Change) -> Text:
    return Text(
        type=text.type if change.type is None else change.type,
        title=text.title if change.title is None else change.title,
        content=text.content if change.content is None else change.content,
        tags=text.tags if change.tags is None else change.tags,
    )


def _as_of(tx: Transaction, memory: MemoryId, number: int) -> Memory:
    """The memory with the text of that revision; as it is now if that is not kept any more."""
    now = known(tx, memory)
    tx.caller.require_space(now.space)
    then = next((r for r in tx.revisions.newest(now) if r.number == number), None)
    if then is None or then.text is None:
        return now
    return replace(
        now,
        text=then.text,
        content_hash=content_hash(then.text.content),
        revision=number,
        updated_at=then.at,
    )
