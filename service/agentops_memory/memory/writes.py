"""The one write path: each change of a memory, and who is answered a repeated request for it."""

from dataclasses import replace
from datetime import datetime, timedelta

from ..engine.engine import Transaction, within_one_project
from ..errors import NotFound
from ..recall.text.instants import LATEST
from ..recall.text.normalization import content_hash
from ..secrets.redaction import Rules
from . import lifecycles
from .limits import faults_of, named_tags, refuse, require_room
from .model.erasure import Erasure, ErasureId
from .model.kinds import ErasureKind, History
from .model.memory import (
    NO_LINKS,
    Amended,
    Change,
    ChangeKind,
    Memory,
    MemoryId,
    Reference,
    Revision,
    Text,
)
from .redactor import Redactor
from .sql.lifecycles import SupersessionTable
from .sql.memories import MemoryTable
from .sql.receipts import ReceiptTable
from .sql.revisions import RevisionTable

SECOND = timedelta(seconds=1)


@within_one_project()
def amend(tx: Transaction, memory: MemoryId, change: Change) -> Memory:
    before = undeleted(tx, memory)
    tx.caller.require_space(before.space)
    tags = named_tags(change.tags or ())
    refuse(faults_of(tags), known={field for field, tag in tags.items() if tag in before.text.tags})
    require_room(tx)
    text = _changed(before.text, change)
    lifecycle = lifecycles.changed(before.lifecycle, change.lifecycle, tx.now)
    is_relinked = _relinked(tx, before, change.lifecycle.supersedes)
    is_given = lifecycle != lifecycles.reviewed(before.lifecycle, tx.now)
    if text == before.text and not is_given and not is_relinked:
        return lifecycles.shown(tx, before)
    after = replace(before, text=text, updated_at=changed_at(tx, before), lifecycle=lifecycle)
    lifecycles.require_place(tx, before, after)
    return lifecycles.shown(tx, revised(tx, before, after, has_new_text=text != before.text))


def _relinked(tx: Transaction, memory: Memory, given: tuple[Reference, ...] | None) -> bool:
    """Whether a change replaces what the memory supersedes."""
    if given is None:
        return False
    older = lifecycles.superseded(tx, memory.space, given)
    links = tx[SupersessionTable].of([memory.id]).get(memory.id, NO_LINKS)
    tx[SupersessionTable].clear(memory.id, older)
    lifecycles.link(tx, memory.id, older)
    return older != links.supersedes


@within_one_project()
def confirm(tx: Transaction, memory: MemoryId) -> Memory:
    before = undeleted(tx, memory)
    tx.caller.require_space(before.space)
    reviewed = lifecycles.reviewed(before.lifecycle, tx.now)
    after = replace(before, lifecycle=replace(reviewed, confirmed_at=tx.now))
    tx[MemoryTable].set_lifecycle(after)
    return lifecycles.shown(tx, after)


def require_seen(tx: Transaction, memory: MemoryId, *_: object) -> None:
    """Refuse who may not change the memory, whatever was changed; NotFound if it is gone."""
    tx.caller.require_space(known(tx, memory).space)


@within_one_project()
def forget(tx: Transaction, memory: MemoryId) -> None:
    before = tx[MemoryTable].get(memory)
    if before is None:
        return
    tx.caller.require_space(before.space)
    if not before.is_deleted:
        revised(tx, before, replace(before, deleted_at=tx.now), ChangeKind.DELETED)


def require_seen_if_any(tx: Transaction, memory: MemoryId) -> None:
    """The same of a memory that may be gone."""
    if (found := tx[MemoryTable].get(memory)) is not None:
        tx.caller.require_space(found.space)


def erase(tx: Transaction, memory: MemoryId) -> ErasureId | None:
    before = tx[MemoryTable].get(memory)
    if before is None:
        return visible_id(tx, tx[ReceiptTable].of(memory))  # the caller may have lost the answer
    tx.caller.require_space(before.space)
    erasure = Erasure(
        id=ErasureId(tx.new_uid(tx.now)),
        kind=ErasureKind.OBSERVATION,
        project=before.space.project,
        memories=(memory,),
        observations=1,
        revisions=len(tx[RevisionTable].newest(before)),
        erased_at=tx.now,
    )
    tx[MemoryTable].erase(memory)
    tx[ReceiptTable].add(erasure)
    return erasure.id


def restore(tx: Transaction, memory: MemoryId, number: int, rules: Rules) -> Amended:
    before = known(tx, memory)
    tx.caller.require_space(before.space)
    require_room(tx)
    text = next((r.text for r in tx[RevisionTable].newest(before) if r.number == number), None)
    if text is None:
        raise NotFound("No such revision.")
    redactor = Redactor(rules)  # there are more rules, perhaps, than when it was saved
    after = replace(
        before,
        text=redactor.words(text),
        updated_at=changed_at(tx, before),
        deleted_at=None,
        lifecycle=lifecycles.reviewed(before.lifecycle, tx.now),
    )
    lifecycles.require_place(tx, before, after)
    restored = lifecycles.shown(tx, revised(tx, before, after))
    return Amended(memory=restored, redacted=redactor.count)


def live(tx: Transaction, memory: MemoryId) -> Memory:
    """The memory, unless it is deleted or expired."""
    found = known(tx, memory)
    if not found.is_live(tx.now):
        raise NotFound("No such observation.")
    return found


def undeleted(tx: Transaction, memory: MemoryId) -> Memory:
    """The memory, unless it is deleted."""
    found = known(tx, memory)
    if found.is_deleted:
        raise NotFound("No such observation.")
    return found


def known(tx: Transaction, memory: MemoryId) -> Memory:
    """The memory, also when it is deleted."""
    found = tx[MemoryTable].get(memory)
    if found is None:
        raise NotFound("No such observation.")
    return found


def created(tx: Transaction, memory: Memory) -> Memory:
    """Store a new memory, with the revision that says so."""
    if not memory.content_hash:
        memory = replace(memory, content_hash=content_hash(memory.text.content))
    stored = tx[MemoryTable].insert(memory)
    _record(tx, stored, ChangeKind.CREATED)
    return stored


def revised(
    tx: Transaction,
    before: Memory,
    after: Memory,
    deed: ChangeKind = ChangeKind.UPDATED,
    *,
    has_new_text: bool = True,
) -> Memory:
    """Replace a memory by its next state; the history keeps the one before.

    Without a new text it keeps no copy: the revision reads as the next one that has its own.
    """
    after = replace(
        after, revision=before.revision + 1, content_hash=content_hash(after.text.content)
    )
    if has_new_text:
        tx[RevisionTable].keep(before)
    tx[MemoryTable].replace(after)
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
    history = memory.space.traits.history
    revision = Revision(number=memory.revision, deed=deed, at=at, text=memory.text)
    tx[RevisionTable].add(
        memory.id, revision, is_only=history is History.NONE and memory.revision > 1
    )
    if history is History.NEWEST and tx.retention.oldest(memory.revision) > 1:
        tx[RevisionTable].trim([memory.id], tx.retention.revisions)


def visible_id(tx: Transaction, receipt: Erasure | None) -> ErasureId | None:
    if receipt is None or not tx.caller.projects.match(receipt.project):
        return None
    return receipt.id


def _changed(text: Text, change: Change) -> Text:
    return Text(
        type=text.type if change.type is None else change.type,
        title=text.title if change.title is None else change.title,
        content=text.content if change.content is None else change.content,
        tags=text.tags if change.tags is None else change.tags,
    )
