"""Memories: saved, read, changed, deleted and restored, and who has the answer again.

Each change of a memory is a revision, written with the memory in one transaction.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain, compress, islice
from typing import Generic, TypeVar

from ..engine.engine import Transaction, WriteTarget, within_one_project
from ..errors import Conflict, Invalid, NotFound, required
from ..light import dataclass, replace
from ..recall.features import Feature, Features
from ..recall.query import parse_query
from ..recall.text import content_hash
from ..secrets.redaction import Rules
from . import lifecycles
from . import memory as records
from .erasure import MAX_ROWS, MAX_STEP, Erasure, ErasureId, ReceiptTable
from .idempotency import once
from .lifecycles import SupersessionTable
from .memories import MemoryTable
from .memory import (
    Change,
    ChangeKind,
    Draft,
    Memory,
    MemoryId,
    Revision,
    Text,
    text_row,
)
from .redactor import Redactor, faults_of, is_known_project, named_tags, refuse, require_room
from .rows import LATEST, count, instant, micros, portion, reads, texts_of
from .search import Filter
from .sessions import SessionTable, project_warning
from .space import GLOBAL_SCOPE, ErasureKind, History, in_a_session
from .table import Sql, Table

REVISION = "id, number, deed, at, type, title, content, tags"


class RevisionTable(Table):
    """The revisions of memories; the newest one is the current state.

    Until its first change a memory has no row here: its one revision is what its own row says.
    """

    def add(self, memory: Memory, kind: ChangeKind) -> None:
        """Record a change; its text stays with the memory until the next one."""
        self._insert(
            "revisions", memory_id=memory.id, number=memory.revision, deed=kind.value,
            at=_instant_of(memory),
        )  # fmt: skip

    def put_text(self, memory: MemoryId, number: int, text: Text, *, is_own: bool) -> None:
        """Replace a revision's own copy of the text, or give one to what is no deletion."""
        self._execute(
            f"""UPDATE revisions
                   SET type = :type, title = :title, content = :content, tags = :tags
                 WHERE memory_id = :memory_id AND number = :number AND deed <> 'deleted'
                       AND type IS {"NOT NULL" if is_own else "NULL"}""",
            memory_id=memory, number=number, **text_row(text),
        )  # fmt: skip

    def keep(self, memory: Memory, *, has_text: bool = True) -> None:
        """Give the newest revision a copy of the memory's text before a change.

        One that was redacted keeps its own. Before the first change the row is made. Without a
        text it reads as the next revision that has its own.
        """
        text = text_row(memory.text) if has_text else dict.fromkeys(text_row(memory.text))
        self._execute(
            f"""INSERT INTO revisions (memory_id, number, deed, at, type, title, content, tags)
                VALUES (:memory_id, :number, '{ChangeKind.CREATED}', :at,
                        :type, :title, :content, :tags)
                    ON CONFLICT (memory_id, number) DO UPDATE
                   SET type = excluded.type, title = excluded.title,
                       content = excluded.content, tags = excluded.tags
                 WHERE revisions.deed <> '{ChangeKind.DELETED}' AND revisions.type IS NULL""",
            memory_id=memory.id, number=memory.revision, at=_instant_of(memory), **text,
        )  # fmt: skip

    def absorb(self, memory: Memory, state: Memory) -> None:
        """Insert an older state before the newest revision, whose number grows by one."""
        number, text = memory.revision, text_row(state.text)
        self.keep(memory, has_text=False)
        # The one before may have no text of its own.
        self.put_text(memory.id, number - 1, memory.text, is_own=False)
        self._execute(
            "UPDATE revisions SET number = number + 1 WHERE memory_id = :id AND number = :number",
            id=memory.id, number=number,
        )  # fmt: skip
        self._execute("UPDATE memories SET revision = revision + 1 WHERE id = :id", id=memory.id)
        self._insert(
            "revisions", memory_id=memory.id, number=number, deed=ChangeKind.UPDATED.value,
            at=micros(state.updated_at), **text,
        )  # fmt: skip

    def holds(self, memory: Memory, state: Memory) -> bool:
        """Whether a revision equals the state in text and second."""
        at = "coalesce(r.at, m.updated_at)"
        return self._exists(
            f"""SELECT 1
                  FROM memories m
                  LEFT JOIN revisions r ON r.memory_id = m.id
                  LEFT JOIN revisions t
                    ON t.memory_id = m.id
                       AND t.number = (SELECT min(number)
                                         FROM revisions
                                        WHERE memory_id = m.id AND number >= r.number
                                              AND type IS NOT NULL)
                 WHERE m.id = :id AND {at} >= :second AND {at} < :second + 1000000
                       AND coalesce(r.deed, '') <> '{ChangeKind.DELETED}'
                       AND coalesce(r.content, :content) = :content
                       AND coalesce(t.type, m.type) = :type
                       AND coalesce(t.title, m.title) = :title
                       AND coalesce(t.content, m.content) = :content
                       AND coalesce(t.tags, m.tags) = :tags""",
            id=memory.id, second=micros(state.updated_at.replace(microsecond=0)),
            **text_row(state.text),
        )  # fmt: skip

    def count(self, memory: Memory) -> int:
        revisions = records.REVISIONS_OF.format(self._sql.greatest, ":id")
        return self._number(f"SELECT {revisions}", id=memory.id)

    def newest(self, memory: Memory) -> list[Revision]:
        """The kept revisions, newest first, each with its text."""
        rows = self._execute(
            f"SELECT {REVISION} FROM revisions WHERE memory_id = :id ORDER BY number DESC",
            id=memory.id,
        ).fetchall()
        if not rows:
            at = memory.deleted_at or memory.updated_at
            kind = ChangeKind.CREATED
            return [Revision(number=memory.revision, deed=kind, at=at, text=memory.text)]
        revisions, text = [], memory.text
        for it in map(_revision, rows):  # none is left out: older ones would get a wrong text
            text = it.text or text
            revisions.append(replace(it, text=None if it.deed is ChangeKind.DELETED else text))
        return revisions

    def erase(self, revisions: Iterable[tuple[MemoryId, int]]) -> int:
        rows = [{"memory": memory, "number": number} for memory, number in revisions]
        for table in ("versions", "revisions"):
            self._connection.executemany(
                f"DELETE FROM {table} WHERE memory_id = :memory AND number = :number", rows
            )
        return len(rows)

    def with_history(self, keep: int, most: int) -> list[MemoryId]:
        return self._scalars(
            f"""SELECT r.memory_id
                 FROM (SELECT memory_id
                         FROM revisions
                     GROUP BY memory_id
                       HAVING min(number) <= max(number) - :keep) r
                 {self._sql.leads} memories m ON m.id = r.memory_id
                WHERE {in_a_session("m")}
                LIMIT :most""",
            keep=keep,
            most=most,
        )

    def trim(self, memories: Sequence[MemoryId], keep: int) -> int:
        """Remove a step of what is beyond the newest `keep`, oldest first; how many."""
        statement = f"""SELECT memory_id, number, coalesce(length(content), 0)
                          FROM revisions
                         WHERE memory_id = :memory
                               AND number <= (SELECT max(number) - :keep
                                                FROM revisions
                                               WHERE memory_id = :memory)
                      ORDER BY number
                         LIMIT {MAX_ROWS}"""
        beyond = chain.from_iterable(
            self._execute(statement, memory=memory, keep=keep).fetchall() for memory in memories
        )
        removed = portion(islice(beyond, MAX_ROWS), MAX_STEP, lambda row: row[2])
        return self.erase((memory, number) for memory, number, _ in removed)


@reads("revisions")
def _revision(  # noqa: PLR0917 - its columns
    _: int, number: int, deed: str, at: int, type_: str | None, title: str | None,
    content: str | None, tags: str | None,
) -> Revision:  # fmt: skip
    text = None
    if not (type_ is None or title is None or content is None or tags is None):
        text = Text(type=type_, title=title, content=content, tags=texts_of(tags))
    return Revision(number=count(number), deed=ChangeKind(deed), at=instant(at), text=text)


SECOND = timedelta(seconds=1)


def created(tx: Transaction, memory: Memory) -> Memory:
    if not memory.content_hash:
        memory = replace(memory, content_hash=content_hash(memory.text.content))
    stored = tx[MemoryTable].insert(memory)
    if memory.space.traits.has_entries:  # whose versions name their revisions
        tx[RevisionTable].add(stored, ChangeKind.CREATED)
    return stored


def revised(
    tx: Transaction, before: Memory, after: Memory, deed: ChangeKind = ChangeKind.UPDATED, *,
    has_new_text: bool = True,
) -> Memory:  # fmt: skip
    """Replace a memory by its next state; the history keeps the one before.

    Without a new text it keeps no copy: the revision reads as the next one that has its own.
    """
    hash_ = content_hash(after.text.content)
    after = replace(after, revision=before.revision + 1, content_hash=hash_)
    history = before.space.traits.history
    if history is not History.NONE:
        tx[RevisionTable].keep(before, has_text=has_new_text)
        tx[RevisionTable].add(after, deed)
    tx[MemoryTable].replace(before, after)
    if history is History.NEWEST and tx.retention.oldest(after.revision) > 1:
        tx[RevisionTable].trim([after.id], tx.retention.revisions)
    return after


def changed_at(tx: Transaction, last: datetime) -> datetime:
    """The instant of a change: now, or a second after the last one if the clock went back.

    Exports have whole seconds, and states are compared by them. A damaged instant at the
    end of time has no successor: then it is now.
    """
    return last + SECOND if tx.now < last < LATEST else tx.now


def _instant_of(memory: Memory) -> int:
    """When its newest revision was made, in microseconds."""
    return micros(memory.deleted_at or memory.updated_at)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Generic[T]):
    """The outcome of a write: what is stored now, and how many secrets were removed."""

    value: T
    redacted: int = 0
    archived: int = 0  # those of a task that has ended
    fired: int = 0  # commitments to whose conditions it came
    is_new: bool = False  # whether a write that makes or changes has made it


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
    at = changed_at(tx, before.updated_at)
    after = replace(before, text=text, updated_at=at, lifecycle=lifecycle)
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


def restore(tx: Transaction, memory: MemoryId, number: int, rules: Rules) -> Written[Memory]:
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
    return Written(value=restored, redacted=redactor.count)


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
RESTORE = once(restore, check=_require_writable, about=lambda it: [it.value.id])


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
        else WriteTarget(draft.space.project, draft.session, draft.fingerprint, draft.only_adds)
    )
)
def save(tx: Transaction, draft: Draft, window: timedelta) -> Saved:
    """The three dedup tiers: same topic key, same text within the window, a new memory."""
    tx.caller.require_space(draft.space)
    _require_names(tx, draft)
    require_room(tx)
    owner = tx[SessionTable].project_of(draft.session, draft.space.project, tx.now)
    tx.caller.require_project(owner)
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
            lifecycle=lifecycles.changed(records.NO_LIFECYCLE, change, tx.now),
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
    text = replace(saved.memory.text, title="", content="", tags=())
    return replace(saved, memory=replace(saved.memory, text=text, key=None))


# Of a save an answer has numbers alone.
SAVE = once(save, on_repeat=_saved_again, kept=_without_text, about=lambda it: [it.memory.id])


def _counted(tx: Transaction, twin: Memory, change: records.LifecycleChange) -> Memory:
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
    terms = parse_query(_words(saved), features - {Feature.SENTENCES}).terms
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
