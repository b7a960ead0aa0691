"""Memories: save, read, change, delete and restore; and who may repeat such a request.

Each change of a memory adds a revision in the same transaction.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain, compress, islice
from typing import Generic, TypeVar

from ..engine.engine import Transaction, WriteTarget, within_one_project
from ..errors import Conflict, Invalid, required
from ..light import dataclass, replace
from ..recall.query import terms_of
from ..recall.text import content_hash
from ..secrets.redaction import Rules
from . import lifecycles, memory as records
from .erasure import MAX_ROWS, MAX_STEP, Erasure, ErasureId, ReceiptTable
from .idempotency import once
from .lifecycles import SupersessionTable
from .memories import MemoryTable
from .memory import Change, ChangeKind, Draft, Memory, MemoryId, Revision, Text, text_row
from .redactor import Redactor, faults_of, is_known_project, named_tags, refuse, require_room
from .rows import changed_at, micros, portion, reads, whole_seconds
from .search import Filter
from .sessions import SessionTable, project_warning
from .space import ErasureKind, History, in_a_session
from .table import Sql, Table

NOT_THERE = "No such observation."
REVISION = "id, number, deed, at, type, title, content, tags"


class RevisionTable(Table):
    """The revisions of memories; the newest revision is the current state.

    A memory that was never changed has no row here: its own row is its only revision.
    """

    def add(self, memory: Memory, kind: ChangeKind) -> None:
        """Record a change; its text is only in the memory until the next change."""
        self._insert(
            "revisions", memory_id=memory.id, number=memory.revision, deed=kind.value,
            at=micros(memory.deleted_at or memory.updated_at),
        )  # fmt: skip

    def put_text(self, memory: MemoryId, number: int, text: Text, *, is_own: bool) -> None:
        """Set the text of a revision that has a copy (`is_own`) or has none; not of a deletion."""
        self._execute(
            f"""UPDATE revisions
                   SET type = :type, title = :title, content = :content, tags = :tags
                 WHERE memory_id = :memory_id AND number = :number AND deed <> 'deleted'
                       AND type IS {"NOT NULL" if is_own else "NULL"}""",
            memory_id=memory, number=number, **text_row(text),
        )  # fmt: skip

    def keep(self, memory: Memory, *, has_text: bool = True) -> None:
        """Copy the memory's text into its newest revision, before a change.

        Inserts the missing row before the first change. A redacted revision keeps its copy. A
        revision without a copy has the text of the next revision with one.
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
            memory_id=memory.id, number=memory.revision, **text,
            at=micros(memory.deleted_at or memory.updated_at),
        )  # fmt: skip

    def absorb(self, memory: Memory, state: Memory) -> None:
        """Insert an older state before the newest revision, whose number increases by one."""
        number, text = memory.revision, text_row(state.text)
        self.keep(memory, has_text=False)
        # The previous revision may have no copy of its text.
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
        """Whether a revision has the text of the state and was made in the same second."""
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
            id=memory.id, second=micros(whole_seconds(state.updated_at)),
            **text_row(state.text),
        )  # fmt: skip

    def count(self, memory: Memory) -> int:
        revisions = records.REVISIONS_OF.format(self._sql.greatest, ":id")
        return self._number(f"SELECT {revisions}", id=memory.id)

    def newest(self, memory: Memory) -> list[Revision]:
        """Return the kept revisions with their texts, newest first."""
        rows = self._execute(
            f"SELECT {REVISION} FROM revisions WHERE memory_id = :id ORDER BY number DESC",
            id=memory.id,
        ).fetchall()
        if not rows:
            at = memory.deleted_at or memory.updated_at
            kind = ChangeKind.CREATED
            return [Revision(number=memory.revision, kind=kind, at=at, text=memory.text)]
        revisions, text = [], memory.text
        for it in map(_revision, rows):  # fails if any is damaged: older ones need its text
            text = it.text or text
            revisions.append(replace(it, text=None if it.kind is ChangeKind.DELETED else text))
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
        """Remove one step of the revisions older than the newest `keep`; return the number."""
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
def _revision(  # noqa: PLR0917 - one per column
    _: int, number: int, kind: ChangeKind, at: datetime, type_: str | None, title: str | None,
    content: str | None, tags: tuple[str, ...] | None,
) -> Revision:  # fmt: skip
    text = None
    if not (type_ is None or title is None or content is None or tags is None):
        text = Text(type=type_, title=title, content=content, tags=tags)
    return Revision(number=number, kind=kind, at=at, text=text)


def created(tx: Transaction, memory: Memory) -> Memory:
    stored = tx[MemoryTable].insert(memory)
    if memory.space.kind.traits.has_entries:  # versions of an entry refer to its revisions
        tx[RevisionTable].add(stored, ChangeKind.CREATED)
    return stored


def revised(
    tx: Transaction, before: Memory, after: Memory, kind: ChangeKind = ChangeKind.UPDATED, *,
    has_new_text: bool = True,
) -> Memory:  # fmt: skip
    """Replace a memory by its next state; the history keeps the previous one.

    Without a new text, the previous revision gets no copy, but has the text of the next copy.
    """
    hash_ = content_hash(after.text.content)
    after = replace(after, revision=before.revision + 1, content_hash=hash_)
    history = before.space.kind.traits.history
    if history is not History.NONE:
        tx[RevisionTable].keep(before, has_text=has_new_text)
        tx[RevisionTable].add(after, kind)
    tx[MemoryTable].replace(before, after)
    if history is History.NEWEST and 0 < tx.retention.revisions < after.revision:
        tx[RevisionTable].trim([after.id], tx.retention.revisions)
    return after


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Generic[T]):
    """The outcome of a write: the stored value, and how many secrets were removed."""

    value: T
    redacted: int = 0
    archived: int = 0  # archived entries of a task that has ended
    evicted: int = 0  # entries that were evicted for new ones
    fired: int = 0  # commitments whose conditions the write met
    is_new: bool = False  # whether a write that creates or changes has created the value


def recent(tx: Transaction, filter_: Filter, limit: int, before: MemoryId | None) -> list[Memory]:
    if before is not None and tx[MemoryTable].get(before) is None:
        raise Invalid("before_id must be the id of an observation.")
    return lifecycles.with_links(tx, tx[MemoryTable].newest(filter_, limit, before=before))


def get(tx: Transaction, memory: MemoryId) -> Memory:
    return lifecycles.linked(tx, undeleted(tx, memory))


def history(tx: Transaction, memory: MemoryId) -> list[Revision]:
    return tx[RevisionTable].newest(known(tx, memory))


def live(tx: Transaction, memory: MemoryId) -> Memory:
    """Return the memory; NotFound if it is deleted or expired."""
    stored = known(tx, memory)
    return required(stored if stored.is_live(tx.now) else None, NOT_THERE)


def undeleted(tx: Transaction, memory: MemoryId) -> Memory:
    stored = known(tx, memory)
    return required(None if stored.deleted_at else stored, NOT_THERE)


def known(tx: Transaction, memory: MemoryId) -> Memory:
    """Return the memory, even if it is deleted."""
    return required(tx[MemoryTable].get(memory), NOT_THERE)


@within_one_project()
def amend(tx: Transaction, memory: MemoryId, change: Change, revision: int | None = None) -> Memory:
    """Change a memory and return it; Conflict if `revision` is not its current one."""
    before = undeleted(tx, memory)
    tx.caller.require_space(before.space)
    if revision not in (None, before.revision):
        raise Conflict(f"This memory is at revision {before.revision} now, not at {revision}.")
    tags = named_tags(change.tags or ())
    refuse(faults_of(tags), known={field for field, tag in tags.items() if tag in before.text.tags})
    require_room(tx)
    fields = {name: getattr(change, name) for name in ("type", "title", "content", "tags")}
    text = replace(before.text, **{name: it for name, it in fields.items() if it is not None})
    lifecycle = change.lifecycle.applied(before.lifecycle, tx.now)
    is_changed = lifecycle != before.lifecycle.reviewed(tx.now)
    is_relinked, references = False, change.lifecycle.supersedes
    if references is not None:
        older = lifecycles.superseded(tx, before.space, references)
        is_relinked = tx[SupersessionTable].relink(memory, older)
    if text == before.text and not is_changed and not is_relinked:
        return lifecycles.linked(tx, before)
    at = changed_at(before.updated_at, tx.now)
    after = replace(before, text=text, updated_at=at, lifecycle=lifecycle)
    lifecycles.require_key_and_pin(tx, before, after)
    return lifecycles.linked(tx, revised(tx, before, after, has_new_text=text != before.text))


@within_one_project()
def confirm(tx: Transaction, memory: MemoryId) -> Memory:
    before = undeleted(tx, memory)
    tx.caller.require_space(before.space)
    lifecycle = replace(before.lifecycle.reviewed(tx.now), confirmed_at=tx.now)
    after = replace(before, lifecycle=lifecycle)
    tx[MemoryTable].set_lifecycle(after)
    return lifecycles.linked(tx, after)


def _require_writable(tx: Transaction, memory: MemoryId, *_: object) -> None:
    """Denied if the caller may not change the memory; NotFound if it is gone."""
    tx.caller.require_space(known(tx, memory).space)


@within_one_project()
def forget(tx: Transaction, memory: MemoryId) -> None:
    if (before := _writable_if_any(tx, memory)) and not before.deleted_at:
        revised(tx, before, replace(before, deleted_at=tx.now), ChangeKind.DELETED)


def _writable_if_any(tx: Transaction, memory: MemoryId) -> Memory | None:
    """Return the memory if it still exists; Denied if the caller may not change it."""
    stored = tx[MemoryTable].get(memory)
    if stored is not None:
        tx.caller.require_space(stored.space)
    return stored


def erase(tx: Transaction, memory: MemoryId) -> ErasureId | None:
    if (before := _writable_if_any(tx, memory)) is None:
        return _visible(tx, tx[ReceiptTable].of(memory))  # a retry whose response was lost
    receipt = tx[ReceiptTable].add(
        ErasureKind.OBSERVATION, before.space.project, memories=(memory,), observations=1,
        revisions=tx[RevisionTable].count(before),
    )  # fmt: skip
    tx[MemoryTable].erase(memory)
    return receipt.id


def restore(tx: Transaction, memory: MemoryId, number: int, rules: Rules) -> Written[Memory]:
    before = known(tx, memory)
    tx.caller.require_space(before.space)
    require_room(tx)
    text = next((r.text for r in tx[RevisionTable].newest(before) if r.number == number), None)
    kept = required(text, "No such revision.")
    redactor = Redactor(rules)  # rules may have been added since the revision was saved
    after = replace(
        before, text=redactor.words(kept), updated_at=changed_at(before.updated_at, tx.now),
        deleted_at=None, lifecycle=before.lifecycle.reviewed(tx.now),
    )  # fmt: skip
    lifecycles.require_key_and_pin(tx, before, after)
    restored = lifecycles.linked(tx, revised(tx, before, after))
    return Written(value=restored, redacted=redactor.count)


def _visible(tx: Transaction, receipt: Erasure | None) -> ErasureId | None:
    """Return the receipt's id, unless the caller cannot access its project."""
    return receipt.id if receipt and tx.caller.projects.match(receipt.project) else None


AMEND = once(amend, check=_require_writable, about=lambda it: [it.id])
CONFIRM = once(confirm, check=_require_writable, about=lambda it: [it.id])
FORGET = once(forget, check=_writable_if_any)
ERASE = once(
    erase, check=_writable_if_any,
    on_repeat=lambda tx, erasure, _: erasure and _visible(tx, tx[ReceiptTable].get(erasure)),
)  # fmt: skip
RESTORE = once(restore, check=_require_writable, about=lambda it: [it.value.id])


class Action(StrEnum):
    """The result of a save, in the order of the deduplication tiers."""

    UPDATED = "updated"
    DEDUPLICATED = "deduplicated"
    CREATED = "created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookalike:
    """A memory with nearly the same text as another; a score of 1.0 means the same."""

    memory: Memory
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The outcome of a save: the memory that now has the text, and the tier that decided."""

    memory: Memory
    action: Action
    superseded: int = 0  # new links to superseded memories
    warning: str | None = None  # set if the session belongs to another project


@within_one_project(  # except saves of global memories, which belong to all projects, or of links
    lambda draft, _: (
        None
        if draft.space.is_global or draft.lifecycle.supersedes
        else WriteTarget(draft.space.project, draft.session, draft.fingerprint, draft.only_adds)
    )
)
def save(tx: Transaction, draft: Draft, window: timedelta) -> Saved:
    """Save by the deduplication tiers: same topic key, same text within the window, new memory."""
    tx.caller.require_space(draft.space)
    _require_names(tx, draft)
    require_room(tx)
    owner = tx[SessionTable].project_of(draft.session, draft.space.project, tx.now)
    tx.caller.require_project(owner)
    change, none = draft.lifecycle, records.NO_LIFECYCLE
    named = change.supersedes
    older = lifecycles.superseded(tx, draft.space, named) if named else ()
    if draft.key is not None and (before := lifecycles.at_key(tx, draft.space, draft.key)):
        after = replace(
            before, text=draft.text, updated_at=changed_at(before.updated_at, tx.now),
            last_seen_at=tx.now, lifecycle=change.applied(before.lifecycle, tx.now),
        )  # fmt: skip
        lifecycles.require_key_and_pin(tx, before, after)
        memory, action = revised(tx, before, after), Action.UPDATED
    else:
        new = Memory(
            uid=tx.new_uid(tx.now), session=draft.session, space=draft.space, key=draft.key,
            text=draft.text, content_hash=content_hash(draft.text.content), last_seen_at=tx.now,
            created_at=tx.now, updated_at=tx.now,
            lifecycle=none if change == records.NO_CHANGE else change.applied(none, tx.now),
        )  # fmt: skip
        if window and (stored := tx[MemoryTable].recent_duplicate(new, tx.now - window)):
            memory, action = _counted(tx, stored, change), Action.DEDUPLICATED
        else:
            if change.pinned:
                lifecycles.require_key_and_pin(tx, None, new)
            memory, action = created(tx, new), Action.CREATED
    return Saved(
        memory=memory, action=action,
        superseded=tx[SupersessionTable].link(memory.id, older) if older else 0,
        warning=project_warning(draft.session, owner, draft.space.project),
    )  # fmt: skip


def _require_names(tx: Transaction, draft: Draft) -> None:
    """Refuse with InvalidFields the new names of a draft that are not allowed as names."""
    project, tags, key = draft.space.project, named_tags(draft.text.tags), draft.key
    names = {"session_id": draft.session, "project": project, **tags, records.TOPIC_KEY: key or ""}
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
    """Return the saved outcome, without a warning that names a now inaccessible project."""
    tx.caller.require_space(saved.memory.space)
    session = tx[SessionTable].get(saved.memory.session) if saved.memory.session else None
    is_visible = session is not None and tx.caller.projects.match(session.project)
    return saved if is_visible else replace(saved, warning=None)


def _without_text(saved: Saved) -> Saved:
    text = replace(saved.memory.text, title="", content="", tags=())
    return replace(saved, memory=replace(saved.memory, text=text, key=None))


# The response to a save has only numbers, so the stored outcome needs no text.
SAVE = once(save, on_repeat=_saved_again, kept=_without_text, about=lambda it: [it.memory.id])


def _counted(tx: Transaction, stored: Memory, change: records.LifecycleChange) -> Memory:
    counted = replace(
        stored, duplicates=stored.duplicates + 1, last_seen_at=tx.now,
        lifecycle=change.applied_to_duplicate(stored.lifecycle, tx.now),
    )  # fmt: skip
    tx[MemoryTable].count_duplicate(counted)
    if counted.lifecycle != stored.lifecycle:
        lifecycles.require_key_and_pin(tx, stored, counted)
        tx[MemoryTable].set_lifecycle(counted)
    return counted


LONGEST_WORDS = 16  # how many of a memory's longest words are searched: long words are rare
CANDIDATES = 20  # how many of the best hits by BM25 are compared
MIN_SCORE = 0.35  # the lowest score of a look-alike
MAX_SIMILAR = 10  # most look-alikes of one memory


def lookalikes(
    tx: Transaction, memory: MemoryId, most: int, timeout: timedelta
) -> tuple[Lookalike, ...]:
    """Return the memories most like this one, best first, ties by id; may raise TimedOut."""
    saved = tx[MemoryTable].get(memory)
    if saved is None or not saved.is_live(tx.now):
        return ()
    longest = sorted(terms_of(_words(saved)), key=lambda it: (-len(it.text), it))[:LONGEST_WORDS]
    # The memories that a context of the project considers.
    filter_ = Filter(project=saved.space.project, global_too=True, is_current=True)
    with tx.search.within(timeout):
        hits = tx.search.similar(longest, filter_, CANDIDATES + 1) if longest else []
        candidates = [it for it in hits if it.id != memory][:CANDIDATES]
        scores = tx.search.similarities(_words(saved), list(map(_words, candidates)))
    scored = zip(candidates, scores, strict=True)
    similar = [Lookalike(memory=it, score=score) for it, score in scored if score >= MIN_SCORE]
    return tuple(sorted(similar, key=lambda it: (-it.score, it.memory.id))[:most])


def _words(memory: Memory) -> str:
    return f"{memory.text.title}\n{memory.text.content}"


def keep_lookalikes(tx: Transaction, memory: MemoryId, similar: Iterable[Lookalike]) -> None:
    """Replace the stored pairs of a memory that was just saved; skip erased look-alikes."""
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
    """Return the look-alikes stored when the memory was saved, best first, without erased ones."""
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
