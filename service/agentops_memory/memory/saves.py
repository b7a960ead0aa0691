"""Saves: by topic key, as a duplicate or as new; and what a saved memory looks like."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from ..engine.engine import Place, Transaction, within_one_project
from ..recall.text.features import Feature, Features
from ..recall.text.normalization import content_hash
from ..recall.text.query import Term, understood
from . import lifecycles
from .idempotency import once
from .limits import faults_of, is_known_project, named_tags, refuse, require_room
from .memories import MemoryTable
from .model.memory import (
    NO_LIFECYCLE,
    Draft,
    LifecycleChange,
    Memory,
    MemoryId,
    Text,
)
from .model.rows import micros
from .model.search import Filter
from .model.space import GLOBAL_SCOPE
from .model.table import Sql
from .revisions import changed_at, created, revised
from .sessions import SessionTable, project_entered, project_warning


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


def _place(draft: Draft, _: timedelta) -> Place | None:
    """None where more is touched: a global memory is of all projects."""
    is_wide = draft.space.scope == GLOBAL_SCOPE or draft.lifecycle.supersedes
    return None if is_wide else (draft.space.project, draft.session)


@within_one_project(_place)
def save(tx: Transaction, draft: Draft, window: timedelta) -> Saved:
    """The three dedup tiers: same topic key, same text within the window, a new memory."""
    tx.caller.require_space(draft.space)
    _require_names(tx, draft)
    require_room(tx)
    owner = project_entered(tx, draft.session, draft.space.project)
    change = draft.lifecycle
    older = lifecycles.superseded(tx, draft.space, change.supersedes or ())
    if draft.key is not None and (held := lifecycles.at_key(tx, draft.space, draft.key)):
        memory = replace(
            held, text=draft.text, updated_at=changed_at(tx, held.updated_at), last_seen_at=tx.now,
            lifecycle=lifecycles.changed(held.lifecycle, change, tx.now),
        )  # fmt: skip
        lifecycles.require_place(tx, held, memory)
        saved = Saved(memory=revised(tx, held, memory), action=Action.UPDATED)
    else:
        saved = _saved(tx, _memory(tx, draft), change, window)
    if older:
        saved = replace(saved, superseded=lifecycles.link(tx, saved.memory.id, older))
    warning = project_warning(draft.session, owner, draft.space.project)
    return replace(saved, warning=warning) if warning else saved


def _require_names(tx: Transaction, draft: Draft) -> None:
    """Refuse with InvalidFields the names of a draft that nothing has yet and that cannot be."""
    project, tags, key = draft.space.project, named_tags(draft.text.tags), draft.key
    names = {"session_id": draft.session, "project": project, **tags, "topic_key": key or ""}
    if not (faults := faults_of(names)):
        return
    held = None if key is None else tx[MemoryTable].at_key(draft.space, key)
    known = {
        "session_id": tx[SessionTable].get(draft.session) is not None,
        "project": is_known_project(tx, project),
        **{field: held is not None and tag in held.text.tags for field, tag in tags.items()},
        "topic_key": held is not None,
    }
    refuse(faults, known={field for field, is_known in known.items() if is_known})


def _saved(tx: Transaction, new: Memory, change: LifecycleChange, window: timedelta) -> Saved:
    """A new memory, or its twin within the window, counted."""
    if window and (twin := tx[MemoryTable].twin(new, tx.now - window)):
        return Saved(memory=_counted(tx, twin, change), action=Action.DEDUPLICATED)
    lifecycles.require_pin(tx, None, new)
    return Saved(memory=created(tx, new), action=Action.CREATED)


def _saved_again(tx: Transaction, saved: Saved, *_: object) -> Saved:
    """What was saved; a warning names the session's project, which may be hidden by now."""
    tx.caller.require_space(saved.memory.space)
    session = tx[SessionTable].get(saved.memory.session) if saved.memory.session else None
    is_seen = session is not None and tx.caller.projects.match(session.project)
    return saved if is_seen else replace(saved, warning=None)


def _without_text(saved: Saved) -> Saved:
    """What is answered tells numbers alone."""
    memory = saved.memory
    text = Text(type=memory.text.type, title="", content="")
    return replace(saved, memory=replace(memory, text=text, key=None))


SAVE = once(save, on_repeat=_saved_again, kept=_without_text, about=lambda it: [it.memory.id])


def _counted(tx: Transaction, twin: Memory, change: LifecycleChange) -> Memory:
    seen = replace(
        twin, duplicates=twin.duplicates + 1, last_seen_at=tx.now,
        lifecycle=lifecycles.counted(twin.lifecycle, change, tx.now),
    )  # fmt: skip
    tx[MemoryTable].count_duplicate(seen)
    if seen.lifecycle != twin.lifecycle:
        lifecycles.require_place(tx, twin, seen)
        tx[MemoryTable].set_lifecycle(seen)
    return seen


def _memory(tx: Transaction, draft: Draft) -> Memory:
    return Memory(
        uid=tx.new_uid(tx.now), session=draft.session, space=draft.space, key=draft.key,
        text=draft.text, content_hash=content_hash(draft.text.content), last_seen_at=tx.now,
        created_at=tx.now, updated_at=tx.now,
        lifecycle=lifecycles.changed(NO_LIFECYCLE, draft.lifecycle, tx.now),
    )  # fmt: skip


SOUGHT = 16  # the longest words of a memory: long words are rare ones
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
    with tx.search.within(timeout):
        candidates = _candidates(tx, saved, features)
        return tuple(_scored(tx, saved, candidates)[:most])


def keep_lookalikes(tx: Transaction, memory: MemoryId, found: Iterable[Lookalike]) -> None:
    """Replace the pairs of a memory that was just saved; those that are gone are left out."""
    sql, now = tx[Sql], micros(tx.now)
    sql.run("DELETE FROM lookalikes WHERE later_id = :later", later=memory)
    rows = [
        {"later": memory, "earlier": it.memory.id, "score": it.score, "now": now} for it in found
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
    """Those that were found when the memory was saved, best first, unless they are gone."""
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


def _candidates(tx: Transaction, saved: Memory, features: Features) -> list[Memory]:
    """What a context of the project sees and has some of the words, but for the memory itself."""
    terms = _longest(understood(_said(saved), features - {Feature.SENTENCES}).terms)
    filter_ = Filter(project=saved.space.project, global_too=True, is_current=True)
    found = tx.search.similar(terms, filter_, CANDIDATES + 1) if terms else []
    return [it for it in found if it.id != saved.id][:CANDIDATES]


def _longest(terms: Iterable[Term]) -> list[Term]:
    return sorted(terms, key=lambda it: (-len(it.text), it))[:SOUGHT]


def _scored(tx: Transaction, saved: Memory, candidates: Sequence[Memory]) -> list[Lookalike]:
    scores = tx.search.similarities(_said(saved), list(map(_said, candidates)))
    scored = zip(candidates, scores, strict=True)
    alike = [Lookalike(memory=it, score=score) for it, score in scored if score >= LEAST]
    return sorted(alike, key=lambda it: (-it.score, it.memory.id))


def _said(memory: Memory) -> str:
    return f"{memory.text.title}\n{memory.text.content}"
