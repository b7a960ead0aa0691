"""Saves: by topic key, as a duplicate or as new; and what a saved memory looks like."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from ..engine.callbacks import noop
from ..engine.engine import Engine, Transaction, within_one_project
from ..errors import Invalid, Unavailable
from ..recall.text.features import ALL, Feature, Features
from ..recall.text.normalization import content_hash
from ..recall.text.query import TIMEOUT, Term, understood
from . import lifecycles
from .changes import (
    Amended,
    amend,
    confirm,
    erase,
    forget,
    known,
    require_seen,
    require_seen_if_any,
    restore,
    undeleted,
    visible_id,
)
from .erasure import ErasureId, ReceiptTable
from .idempotency import once
from .lifecycles import shown, with_links
from .limits import faults_of, is_known_project, named_tags, refuse, require_room
from .memories import MemoryTable
from .model.access import Caller, Role
from .model.memory import (
    NO_LIFECYCLE,
    Change,
    Draft,
    LifecycleChange,
    Memory,
    MemoryId,
    Revision,
    Text,
)
from .model.rows import micros
from .model.search import Filter
from .model.table import Table
from .redactor import Redactor, RulesOf, default_rules
from .revisions import RevisionTable, changed_at, created, revised
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
    """The outcome of a save: the memory that now holds the text, and the tier that decided.

    `similar` is None where look-alikes were not asked for, or not found in time.
    """

    memory: Memory
    action: Action
    redacted: int = 0  # secrets removed
    superseded: int = 0  # links that are new
    warning: str | None = None  # the session belongs to another project
    similar: tuple[Lookalike, ...] | None = None


@within_one_project(lambda draft, _: draft.space.project)
def save(tx: Transaction, draft: Draft, window: timedelta) -> Saved:
    """The three dedup tiers: same topic key, same text within the window, a new memory."""
    tx.caller.require_space(draft.space)
    _require_names(tx, draft)
    require_room(tx)
    owner = project_entered(tx, draft.session, draft.space.project)
    given = draft.lifecycle
    older = lifecycles.superseded(tx, draft.space, given.supersedes or ())
    if draft.key is not None and (held := lifecycles.at_key(tx, draft.space, draft.key)):
        memory = replace(
            held,
            text=draft.text,
            updated_at=changed_at(tx, held),
            last_seen_at=tx.now,
            lifecycle=lifecycles.changed(held.lifecycle, given, tx.now),
        )
        lifecycles.require_place(tx, held, memory)
        saved = Saved(memory=revised(tx, held, memory), action=Action.UPDATED)
    else:
        saved = _saved(tx, _memory(tx, draft), given, window)
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


def _saved(tx: Transaction, new: Memory, given: LifecycleChange, window: timedelta) -> Saved:
    """A new memory, or its twin within the window, counted."""
    if window and (twin := tx[MemoryTable].twin(new, tx.now - window)):
        return Saved(memory=_counted(tx, twin, given), action=Action.DEDUPLICATED)
    lifecycles.require_pin(tx, None, new)
    return Saved(memory=created(tx, new), action=Action.CREATED)


def _saved_again(tx: Transaction, saved: Saved) -> Saved:
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


def _ids(outcome: Saved | Amended) -> list[MemoryId]:
    return [outcome.memory.id]


def _visible(tx: Transaction, erasure: ErasureId | None) -> ErasureId | None:
    """The receipt's id, unless its project is none of the caller's any more."""
    return visible_id(tx, tx[ReceiptTable].get(erasure)) if erasure else None


_SAVE = once(save, told=_saved_again, kept=_without_text, about=_ids)


def _counted(tx: Transaction, twin: Memory, given: LifecycleChange) -> Memory:
    """The memory with one duplicate more."""
    seen = replace(
        twin,
        duplicates=twin.duplicates + 1,
        last_seen_at=tx.now,
        lifecycle=lifecycles.counted(twin.lifecycle, given, tx.now),
    )
    tx[MemoryTable].count_duplicate(seen)
    if seen.lifecycle != twin.lifecycle:
        lifecycles.require_place(tx, twin, seen)
        tx[MemoryTable].set_lifecycle(seen)
    return seen


def _memory(tx: Transaction, draft: Draft) -> Memory:
    return Memory(
        uid=tx.new_uid(tx.now),
        session=draft.session,
        space=draft.space,
        key=draft.key,
        text=draft.text,
        content_hash=content_hash(draft.text.content),
        last_seen_at=tx.now,
        created_at=tx.now,
        updated_at=tx.now,
        lifecycle=lifecycles.changed(NO_LIFECYCLE, draft.lifecycle, tx.now),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memories:
    """Memories of one service.

    An unknown id is NotFound, as is one of a project that the caller may not see; to save
    there, or to change a global memory without access to every project, is Denied; an
    invalid new name is InvalidFields. A repeated request with an idempotency key gets the
    first answer.
    """

    engine: Engine
    dedupe_window: timedelta
    rules: RulesOf = default_rules
    on_erased: Callable[[Caller], None] = noop
    features: Features = ALL
    recall_limit: timedelta = TIMEOUT

    async def save(self, caller: Caller, draft: Draft, *, similar: int = 0) -> Saved:
        """Store a draft by the three dedup tiers; racing saves of one text end as one memory.

        Tells at most so many `similar` memories, looked for when the save is durable.
        """
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        clean = redactor.draft(draft)
        saved = await self.engine.write(caller, _SAVE, clean, self.dedupe_window)
        found = await self._similar(caller, saved, similar) if similar else None
        return replace(saved, redacted=redactor.count, similar=found)

    async def _similar(
        self, caller: Caller, saved: Saved, most: int
    ) -> tuple[Lookalike, ...] | None:
        """What a saved memory looks like; None if that cannot be found out in time."""
        id_ = saved.memory.id
        if caller.request is not None and caller.request.is_replay:
            return await self.engine.read(caller, kept_lookalikes, id_, most)
        with suppress(Unavailable):
            found = await self.engine.read(
                caller, lookalikes, id_, most, self.features, self.recall_limit
            )
            if found or saved.action is not Action.CREATED:
                await self.engine.write(caller, keep_lookalikes, id_, found)
            return found
        return None

    async def get(self, caller: Caller, memory: MemoryId) -> Memory:
        """The memory, unless it is deleted."""
        caller.require(Role.READER)
        return await self.engine.read(caller, get, memory)

    async def recent(
        self, caller: Caller, filter_: Filter, limit: int, before: MemoryId | None = None
    ) -> list[Memory]:
        """Live memories, newest first; with `before`, those older than that memory."""
        caller.require(Role.READER)
        return await self.engine.read(caller, recent, filter_, limit, before)

    async def amend(self, caller: Caller, memory: MemoryId, change: Change) -> Amended:
        """Change parts of a memory. A change that changes nothing leaves no trace."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        work = once(amend, check=require_seen, about=lambda it: [it.id])
        amended = await self.engine.write(caller, work, memory, redactor.change(change))
        return Amended(memory=amended, redacted=redactor.count)

    async def confirm(self, caller: Caller, memory: MemoryId) -> Memory:
        """Note that a memory still holds; a review of it that was due is done."""
        caller.require(Role.WRITER)
        work = once(confirm, check=require_seen, about=lambda it: [it.id])
        return await self.engine.write(caller, work, memory)

    async def forget(self, caller: Caller, memory: MemoryId) -> None:
        """Soft-delete a memory, which can be restored. An unknown id is no error."""
        caller.require(Role.WRITER)
        await self.engine.write(caller, once(forget, check=require_seen_if_any), memory)

    async def erase(self, caller: Caller, memory: MemoryId) -> ErasureId | None:
        """Erase a memory, live or deleted, with its revisions; returns the receipt's id.

        An unknown id is no error: the receipt of an earlier erasure is returned again, and
        none outside the caller's projects.
        """
        caller.require(Role.ADMIN)
        work = once(erase, check=require_seen_if_any, told=_visible)
        erasure = await self.engine.write(caller, work, memory)
        if erasure is not None:
            self.on_erased(caller)
        return erasure

    async def history(self, caller: Caller, memory: MemoryId) -> list[Revision]:
        """The kept revisions of a memory, newest first, also of a deleted one."""
        caller.require(Role.READER)
        return await self.engine.read(caller, history, memory)

    async def restore(self, caller: Caller, memory: MemoryId, number: int) -> Amended:
        """Restore an earlier revision's text as a new revision; undeletes a deleted memory.

        Conflict when another memory holds the topic key now.
        """
        caller.require(Role.WRITER)
        work = once(restore, check=require_seen, about=_ids)
        return await self.engine.write(caller, work, memory, number, self.rules(caller))


def recent(tx: Transaction, filter_: Filter, limit: int, before: MemoryId | None) -> list[Memory]:
    if before is not None and tx[MemoryTable].get(before) is None:
        raise Invalid("before_id is not the id of an observation.")
    return with_links(tx, tx[MemoryTable].newest(filter_, limit, before=before))


def get(tx: Transaction, memory: MemoryId) -> Memory:
    return shown(tx, undeleted(tx, memory))


def history(tx: Transaction, memory: MemoryId) -> list[Revision]:
    return tx[RevisionTable].newest(known(tx, memory))


@dataclass(eq=False)
class LookalikeTable(Table):
    """Pairs of memories that looked alike when the later of them was saved."""

    _now: datetime

    def of(self, later: MemoryId) -> list[tuple[MemoryId, float]]:
        """The memories that one looked like when it was saved, with their scores, best first."""
        return self._execute(
            """SELECT earlier_id, score
                 FROM lookalikes
                WHERE later_id = :later
             ORDER BY score DESC, earlier_id""",
            later=later,
        ).fetchall()

    def put(self, later: MemoryId, scores: Mapping[MemoryId, float]) -> None:
        """Replace the pairs of a memory that was just saved; those that are gone are left out."""
        self._execute("DELETE FROM lookalikes WHERE later_id = :later", later=later)
        rows = [
            {"later": later, "earlier": earlier, "score": score, "now": micros(self._now)}
            for earlier, score in scores.items()
        ]
        for statement in (
            "DELETE FROM lookalikes WHERE later_id = :earlier AND earlier_id = :later",
            """INSERT INTO lookalikes (later_id, earlier_id, score, at)
               SELECT later.id, earlier.id, :score, :now
                 FROM memories later
                 JOIN memories earlier ON earlier.id = :earlier
                WHERE later.id = :later""",
        ):
            self._connection.executemany(statement, rows)


SOUGHT = 16  # the longest words of a memory: long words are rare ones
CANDIDATES = 20  # the best by BM25, of which the most similar are told
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
    tx[LookalikeTable].put(memory, {it.memory.id: it.score for it in found})


def kept_lookalikes(tx: Transaction, memory: MemoryId, most: int) -> tuple[Lookalike, ...]:
    """Those that were found when the memory was saved, unless they are gone."""
    kept = (
        (tx[MemoryTable].get(id_), score) for id_, score in tx[LookalikeTable].of(memory)[:most]
    )
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
