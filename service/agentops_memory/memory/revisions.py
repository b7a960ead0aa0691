"""Revisions: each change of a memory is one, written with the memory in one transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, islice

from ..engine.engine import Transaction
from ..recall.instants import LATEST
from ..recall.text import content_hash
from .erasure import MAX_ROWS, MAX_STEP
from .memories import MemoryTable
from .memory import REVISIONS_OF, ChangeKind, Memory, MemoryId, Revision, Text, text_row
from .rows import count, instant, micros, portion, reads, texts_of
from .space import History, in_a_session
from .table import Table

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
        """Replace a revision's own copy of the text, or give one to a revision without it.

        That of a deletion has none.
        """
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
        return self._number(
            f"SELECT {REVISIONS_OF.format(self._sql.greatest, ':id')}", id=memory.id
        )

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
