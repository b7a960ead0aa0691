"""Memories: saved, read, changed, deleted and restored, and who has the answer again."""

from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from itertools import compress
from typing import Generic, TypeVar

from ..engine.engine import Transaction, within_one_project
from ..errors import Conflict, Invalid, NotFound, required
from ..light import dataclass, replace
from ..recall.features import Feature, Features
from ..recall.query import understood
from ..recall.text import content_hash
from ..secrets.redaction import Rules
from . import lifecycles
from .erasure import Erasure, ErasureId, ReceiptTable
from .idempotency import once
from .lifecycles import SupersessionTable
from .memories import MemoryTable
from .memory import (
    NO_LIFECYCLE,
    Change,
    ChangeKind,
    Draft,
    LifecycleChange,
    Memory,
    MemoryId,
    Revision,
    Text,
)
from .redactor import Redactor, faults_of, is_known_project, named_tags, refuse, require_room
from .revisions import RevisionTable, changed_at, created, revised
from .rows import micros
from .search import Filter
from .sessions import SessionTable, project_entered, project_warning
from .space import GLOBAL_SCOPE, ErasureKind
from .table import Sql

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
    stored = known(tx, memory)
    if not stored.is_live(tx.now):
        raise NotFound("No such observation.")
    return stored


def undeleted(tx: Transaction, memory: MemoryId) -> Memory:
    stored = known(tx, memory)
    if stored.is_deleted:
        raise NotFound("No such observation.")
    return stored


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
    fields = {name: getattr(change, name) for name in ("type", "title", "content", "tags")}
    text = replace(before.text, **{name: it for name, it in fields.items() if it is not None})
    lifecycle = lifecycles.changed(before.lifecycle, change.lifecycle, tx.now)
    is_changed = lifecycle != lifecycles.reviewed(before.lifecycle, tx.now)
    is_relinked, references = False, change.lifecycle.supersedes
    if references is not None:
        older = lifecycles.superseded(tx, before.space, references)
        is_relinked = tx[SupersessionTable].relink(memory, older)
    if text == before.text and not is_changed and not is_relinked:
        return lifecycles.linked(tx, before)
    after = replace(
        before, text=text, updated_at=changed_at(tx, before.updated_at), lifecycle=lifecycle
    )
    lifecycles.require_key_and_pin(tx, before, after)
    return lifecycles.linked(tx, revised(tx, before, after, has_new_text=text != before.text))


@within_one_project()
def confirm(tx: Transaction, memory: MemoryId) -> Memory:
    before = undeleted(tx, memory)
    tx.caller.require_space(before.space)
    reviewed = lifecycles.reviewed(before.lifecycle, tx.now)
    after = replace(before, lifecycle=replace(reviewed, confirmed_at=tx.now))
    tx[MemoryTable].set_lifecycle(after)
    return lifecycles.linked(tx, after)


def _require_writable(tx: Transaction, memory: MemoryId, *_: object) -> None:
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


def _require_writable_if_any(tx: Transaction, memory: MemoryId) -> None:
    """The same of a memory that may be gone."""
    if (stored := tx[MemoryTable].get(memory)) is not None:
        tx.caller.require_space(stored.space)


def erase(tx: Transaction, memory: MemoryId) -> ErasureId | None:
    before = tx[MemoryTable].get(memory)
    if before is None:
        return _visible(tx, tx[ReceiptTable].of(memory))  # the caller may have lost the answer
    tx.caller.require_space(before.space)
    erasure = Erasure(
        id=ErasureId(tx.new_uid(tx.now)), kind=ErasureKind.OBSERVATION,
        project=before.space.project, memories=(memory,), observations=1,
        revisions=tx[RevisionTable].count(before), erased_at=tx.now,
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
    lifecycles.require_key_and_pin(tx, before, after)
    restored = lifecycles.linked(tx, revised(tx, before, after))
    return Amended(memory=restored, redacted=redactor.count)


def _visible(tx: Transaction, receipt: Erasure | None) -> ErasureId | None:
    """The receipt's id, unless its project is none of the caller's."""
    return receipt.id if receipt and tx.caller.projects.match(receipt.project) else None


AMEND = once(amend, check=_require_writable, about=lambda it: [it.id])
CONFIRM = once(confirm, check=_require_writable, about=lambda it: [it.id])
FORGET = once(forget, check=_require_writable_if_any)
ERASE = once(
    erase, check=_require_writable_if_any,
    on_repeat=lambda tx, erasure, _: erasure and _visible(tx, tx[ReceiptTable].get(erasure)),
)  # fmt: skip
RESTORE = once(restore, check=_require_writable, about=lambda it: [it.memory.id])


class Action(StrEnum):
    """What a save did, in the order of the dedup tiers."""

    UPDATED = "updated"
    DEDUPLICATED = "deduplicated"
    CREATED = "created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookalike:
    """A memory that says nearly the same as another; 1.0 is the same."""

    memory: Memory
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The outcome of a save: the memory that now holds the text, and the tier that decided."""

    memory: Memory
    action: Action
    superseded: int = 0  # links that are new
    warning: str | None = None  # the session belongs to another project


@within_one_project(  # unless more is touched: a global memory is of all projects
    lambda draft, _: (
        None
        if draft.space.scope == GLOBAL_SCOPE or draft.lifecycle.supersedes
        else (draft.space.project, draft.session)
    )
)
def save(tx: Transaction, draft: Draft, window: timedelta) -> Saved:
    """The three dedup tiers: same topic key, same text within the window, a new memory."""
    tx.caller.require_space(draft.space)
    _require_names(tx, draft)
    require_room(tx)
    owner = project_entered(tx, draft.session, draft.space.project)
    change = draft.lifecycle
    older = lifecycles.superseded(tx, draft.space, change.supersedes or ())
    if draft.key is not None and (before := lifecycles.at_key(tx, draft.space, draft.key)):
        after = replace(
            before, text=draft.text, updated_at=changed_at(tx, before.updated_at),
            last_seen_at=tx.now, lifecycle=lifecycles.changed(before.lifecycle, change, tx.now),
        )  # fmt: skip
        lifecycles.require_key_and_pin(tx, before, after)
        memory, action = revised(tx, before, after), Action.UPDATED
    else:
        new = Memory(
            uid=tx.new_uid(tx.now), session=draft.session, space=draft.space, key=draft.key,
            text=draft.text, content_hash=content_hash(draft.text.content), last_seen_at=tx.now,
            created_at=tx.now, updated_at=tx.now,
            lifecycle=lifecycles.changed(NO_LIFECYCLE, change, tx.now),
        )  # fmt: skip
        if window and (twin := tx[MemoryTable].twin(new, tx.now - window)):
            memory, action = _counted(tx, twin, change), Action.DEDUPLICATED
        else:
            lifecycles.require_pin(tx, None, new)
            memory, action = created(tx, new), Action.CREATED
    return Saved(
        memory=memory, action=action,
        superseded=tx[SupersessionTable].link(memory.id, older) if older else 0,
        warning=project_warning(draft.session, owner, draft.space.project),
    )  # fmt: skip


def _require_names(tx: Transaction, draft: Draft) -> None:
    """Refuse with InvalidFields the names of a draft that nothing has yet and that cannot be."""
    project, tags, key = draft.space.project, named_tags(draft.text.tags), draft.key
    names = {"session_id": draft.session, "project": project, **tags, "topic_key": key or ""}
    if not (faults := faults_of(names)):
        return
    holder = None if key is None else tx[MemoryTable].at_key(draft.space, key)
    known_tags = holder.text.tags if holder else ()
    are_known = (
        tx[SessionTable].get(draft.session) is not None, is_known_project(tx, project),
        *(tag in known_tags for tag in tags.values()), holder is not None,
    )  # fmt: skip
    refuse(faults, known=set(compress(names, are_known)))


def _saved_again(tx: Transaction, saved: Saved, *_: object) -> Saved:
    """What was saved; a warning names the session's project, which may be hidden by now."""
    tx.caller.require_space(saved.memory.space)
    session = tx[SessionTable].get(saved.memory.session) if saved.memory.session else None
    is_visible = session is not None and tx.caller.projects.match(session.project)
    return saved if is_visible else replace(saved, warning=None)


def _without_text(saved: Saved) -> Saved:
    """The answer has numbers alone."""
    text = Text(type=saved.memory.text.type, title="", content="")
    return replace(saved, memory=replace(saved.memory, text=text, key=None))


SAVE = once(save, on_repeat=_saved_again, kept=_without_text, about=lambda it: [it.memory.id])


def _counted(tx: Transaction, twin: Memory, change: LifecycleChange) -> Memory:
    counted = replace(
        twin, duplicates=twin.duplicates + 1, last_seen_at=tx.now,
        lifecycle=lifecycles.counted(twin.lifecycle, change, tx.now),
    )  # fmt: skip
    tx[MemoryTable].count_duplicate(counted)
    if counted.lifecycle != twin.lifecycle:
        lifecycles.require_key_and_pin(tx, twin, counted)
        tx[MemoryTable].set_lifecycle(counted)
    return counted


LONGEST_WORDS = 16  # the longest words of a memory: long words are rare ones
CANDIDATES = 20  # the best by BM25, of which the most similar are returned
LEAST = 0.35  # of a look-alike's score
MAX_SIMILAR = 10  # look-alikes of one memory


def lookalikes(
    tx: Transaction, memory: MemoryId, most: int, features: Features, timeout: timedelta
) -> tuple[Lookalike, ...]:
    """The memories most like this one, best first, ties by id; TimedOut."""
    saved = tx[MemoryTable].get(memory)
    if saved is None or not saved.is_live(tx.now):
        return ()
    terms = understood(_words(saved), features - {Feature.SENTENCES}).terms
    longest = sorted(terms, key=lambda it: (-len(it.text), it))[:LONGEST_WORDS]
    # What a context of the project sees.
    filter_ = Filter(project=saved.space.project, global_too=True, is_current=True)
    with tx.search.within(timeout):
        hits = tx.search.similar(longest, filter_, CANDIDATES + 1) if longest else []
        candidates = [it for it in hits if it.id != memory][:CANDIDATES]
        scores = tx.search.similarities(_words(saved), list(map(_words, candidates)))
    scored = zip(candidates, scores, strict=True)
    similar = [Lookalike(memory=it, score=score) for it, score in scored if score >= LEAST]
    return tuple(sorted(similar, key=lambda it: (-it.score, it.memory.id))[:most])


def _words(memory: Memory) -> str:
    return f"{memory.text.title}\n{memory.text.content}"


def keep_lookalikes(tx: Transaction, memory: MemoryId, similar: Iterable[Lookalike]) -> None:
    """Replace the pairs of a memory that was just saved; those that are gone are left out."""
    sql, now = tx[Sql], micros(tx.now)
    sql.run("DELETE FROM lookalikes WHERE later_id = :later", later=memory)
    rows = [
        {"later": memory, "earlier": it.memory.id, "score": it.score, "now": now} for it in similar
    ]
    sql.run_all("DELETE FROM lookalikes WHERE later_id = :earlier AND earlier_id = :later", rows)
    sql.run_all(
        """INSERT INTO lookalikes (later_id, earlier_id, score, at)
           SELECT later.id, earlier.id, :score, :now
             FROM memories later
             JOIN memories earlier ON earlier.id = :earlier
            WHERE later.id = :later""",
        rows,
    )


def kept_lookalikes(tx: Transaction, memory: MemoryId, most: int) -> tuple[Lookalike, ...]:
    """Those of when the memory was saved, best first, unless they are gone."""
    pairs = tx[Sql].run(
        """SELECT earlier_id, score
             FROM lookalikes
            WHERE later_id = :later
         ORDER BY score DESC, earlier_id
            LIMIT :most""",
        later=memory, most=most,
    )  # fmt: skip
    kept = ((tx[MemoryTable].get(id_), score) for id_, score in pairs.fetchall())
    return tuple(Lookalike(memory=it, score=score) for it, score in kept if it is not None)
