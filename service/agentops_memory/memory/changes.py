"""Memories that are stored: read, changed, deleted and restored, and who has the answer again."""

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ..engine.engine import Transaction, within_one_project
from ..errors import Conflict, Invalid, NotFound, required
from ..secrets.redaction import Rules
from . import lifecycles
from .erasure import Erasure, ErasureId, ReceiptTable
from .idempotency import once
from .lifecycles import SupersessionTable
from .limits import faults_of, named_tags, refuse, require_room
from .memories import MemoryTable
from .model.memory import NO_LINKS, Change, ChangeKind, Memory, MemoryId, Reference, Revision, Text
from .model.search import Filter
from .model.space import ErasureKind
from .redactor import Redactor
from .revisions import RevisionTable, changed_at, revised

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Generic[T]):
    """The outcome of a write: what is stored now, and how many secrets were removed."""

    value: T
    redacted: int = 0
    evicted: int = 0  # entries of agents' memory that made room
    archived: int = 0  # those of a task that has ended
    fired: int = 0  # commitments to whose conditions it came
    is_new: bool = False  # whether a write that makes or changes has made it


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """The outcome of a change: the memory as it is now."""

    memory: Memory
    redacted: int = 0  # secrets removed


def recent(tx: Transaction, filter_: Filter, limit: int, before: MemoryId | None) -> list[Memory]:
    if before is not None and tx[MemoryTable].get(before) is None:
        raise Invalid("before_id must be the id of an observation.")
    return lifecycles.with_links(tx, tx[MemoryTable].newest(filter_, limit, before=before))


def get(tx: Transaction, memory: MemoryId) -> Memory:
    return lifecycles.linked(tx, undeleted(tx, memory))


def history(tx: Transaction, memory: MemoryId) -> list[Revision]:
    return tx[RevisionTable].newest(known(tx, memory))


def live(tx: Transaction, memory: MemoryId) -> Memory:
    """The memory, unless it is deleted or expired."""
    found = known(tx, memory)
    if not found.is_live(tx.now):
        raise NotFound("No such observation.")
    return found


def undeleted(tx: Transaction, memory: MemoryId) -> Memory:
    found = known(tx, memory)
    if found.is_deleted:
        raise NotFound("No such observation.")
    return found


def known(tx: Transaction, memory: MemoryId) -> Memory:
    """The memory, also when it is deleted."""
    return required(tx[MemoryTable].get(memory), "No such observation.")


@within_one_project()
def amend(tx: Transaction, memory: MemoryId, change: Change, revision: int | None = None) -> Memory:
    """The memory as it is now. Conflict if it is not at the revision that the change is of."""
    before = undeleted(tx, memory)
    tx.caller.require_space(before.space)
    if revision not in (None, before.revision):
        raise Conflict(f"This memory is at revision {before.revision} now, not at {revision}.")
    tags = named_tags(change.tags or ())
    refuse(faults_of(tags), known={field for field, tag in tags.items() if tag in before.text.tags})
    require_room(tx)
    text = _changed(before.text, change)
    lifecycle = lifecycles.changed(before.lifecycle, change.lifecycle, tx.now)
    is_relinked = _relinked(tx, before, change.lifecycle.supersedes)
    is_changed = lifecycle != lifecycles.reviewed(before.lifecycle, tx.now)
    if text == before.text and not is_changed and not is_relinked:
        return lifecycles.linked(tx, before)
    after = replace(
        before, text=text, updated_at=changed_at(tx, before.updated_at), lifecycle=lifecycle
    )
    lifecycles.require_place(tx, before, after)
    return lifecycles.linked(tx, revised(tx, before, after, has_new_text=text != before.text))


def _relinked(tx: Transaction, memory: Memory, references: tuple[Reference, ...] | None) -> bool:
    if references is None:
        return False
    older = lifecycles.superseded(tx, memory.space, references)
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
    return lifecycles.linked(tx, after)


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
        return _visible(tx, tx[ReceiptTable].of(memory))  # the caller may have lost the answer
    tx.caller.require_space(before.space)
    erasure = Erasure(
        id=ErasureId(tx.new_uid(tx.now)), kind=ErasureKind.OBSERVATION,
        project=before.space.project, memories=(memory,), observations=1,
        revisions=len(tx[RevisionTable].newest(before)), erased_at=tx.now,
    )  # fmt: skip
    tx[MemoryTable].erase(memory)
    tx[ReceiptTable].add(erasure)
    return erasure.id


def restore(tx: Transaction, memory: MemoryId, number: int, rules: Rules) -> Amended:
    before = known(tx, memory)
    tx.caller.require_space(before.space)
    require_room(tx)
    text = next((r.text for r in tx[RevisionTable].newest(before) if r.number == number), None)
    kept = required(text, "No such revision.")
    redactor = Redactor(rules)  # there are more rules, perhaps, than when it was saved
    after = replace(
        before, text=redactor.words(kept), updated_at=changed_at(tx, before.updated_at),
        deleted_at=None, lifecycle=lifecycles.reviewed(before.lifecycle, tx.now),
    )  # fmt: skip
    lifecycles.require_place(tx, before, after)
    restored = lifecycles.linked(tx, revised(tx, before, after))
    return Amended(memory=restored, redacted=redactor.count)


def _visible(tx: Transaction, receipt: Erasure | None) -> ErasureId | None:
    """The receipt's id, unless its project is none of the caller's."""
    is_visible = receipt is not None and tx.caller.projects.match(receipt.project)
    return receipt.id if receipt is not None and is_visible else None


def _visible_again(tx: Transaction, erasure: ErasureId | None, _: MemoryId) -> ErasureId | None:
    return _visible(tx, tx[ReceiptTable].get(erasure)) if erasure else None


def _changed(text: Text, change: Change) -> Text:
    fields = {name: getattr(change, name) for name in ("type", "title", "content", "tags")}
    return replace(text, **{name: it for name, it in fields.items() if it is not None})


AMEND = once(amend, check=require_seen, about=lambda it: [it.id])
CONFIRM = once(confirm, check=require_seen, about=lambda it: [it.id])
FORGET = once(forget, check=require_seen_if_any)
ERASE = once(erase, check=require_seen_if_any, on_repeat=_visible_again)
RESTORE = once(restore, check=require_seen, about=lambda it: [it.memory.id])
