"""SQL for the record of changes."""

from typing import Any

from ....domain.model.memory import ChangeKind, Memory, MemoryId, Revision, Text
from ..base.table import Table, count, instant, member, micros, tag_array, tag_tuple


class Revisions(Table):
    """The revisions of one transaction."""

    def add(self, memory: MemoryId, revision: Revision) -> None:
        self._execute(
            """INSERT INTO revisions (memory_id, number, deed, at)
               VALUES (:memory_id, :number, :deed, :at)""",
            memory_id=memory,
            number=revision.number,
            deed=revision.deed.value,
            at=micros(revision.at),
        )

    def keep(self, memory: Memory) -> None:
        self._execute(
            """UPDATE revisions
                  SET type = :type, title = :title, content = :content, tags = :tags
                WHERE memory_id = :memory_id AND number = :number AND deed <> 'deleted'
                      AND type IS NULL""",
            memory_id=memory.id,
            number=memory.revision,
            **_text_row(memory.text),
        )

    def absorb(self, memory: MemoryId, older: Revision) -> None:
        self._execute(
            """UPDATE revisions
                  SET number = number + 1
                WHERE memory_id = :memory_id AND number = :number""",
            memory_id=memory,
            number=older.number,
        )
        self._execute(
            "UPDATE memories SET revision = revision + 1 WHERE id = :memory_id",
            memory_id=memory,
        )
        self._execute(
            """INSERT INTO revisions (memory_id, number, deed, at, type, title, content, tags)
               VALUES (:memory_id, :number, :deed, :at, :type, :title, :content, :tags)""",
            memory_id=memory,
            number=older.number,
            deed=older.deed.value,
            at=micros(older.at),
            **(_text_row(older.text) if older.text else {}),
        )

    def holds(self, memory: Memory, state: Memory) -> bool:
        text = state.text
        rows = self._execute(
            """SELECT coalesce(tags, :own_tags)
                 FROM revisions
                WHERE memory_id = :memory_id AND deed <> 'deleted'
                      AND at >= :second AND at < :second + 1000000
                      AND coalesce(type, :own_type) = :type
                      AND coalesce(title, :own_title) = :title
                      AND coalesce(content, :own_content) = :content""",
            memory_id=memory.id,
            second=micros(state.updated_at.replace(microsecond=0)),
            **_text_row(text),
            **{f"own_{name}": value for name, value in _text_row(memory.text).items()},
        )
        return any(tag_tuple(tags) == text.tags for (tags,) in rows)

    def count(self, memory: Memory) -> int:
        ((number,),) = self._execute(
            "SELECT count(*) FROM revisions WHERE memory_id = :memory_id", memory_id=memory.id
        )
        return int(number)

    def newest(self, memory: Memory) -> list[Revision]:
        rows = self._execute(
            """SELECT number, deed, at, type, title, content, tags
                 FROM revisions
                WHERE memory_id = :memory_id
             ORDER BY number DESC""",
            memory_id=memory.id,
        )
        return [_revision(row, memory) for row in rows]

    def rewrite(self, memory: MemoryId, number: int, text: Text) -> None:
        self._execute(
            """UPDATE revisions
                  SET type = :type, title = :title, content = :content, tags = :tags
                WHERE memory_id = :memory_id AND number = :number AND type IS NOT NULL""",
            memory_id=memory,
            number=number,
            **_text_row(text),
        )


def _text_row(text: Text) -> dict[str, object]:
    return {
        "type": text.type,
        "title": text.title,
        "content": text.content,
        "tags": tag_array(text.tags),
    }


def _revision(row: Any, memory: Memory) -> Revision:
    number, deed, at, type_, title, content, tags = row
    return Revision(
        number=count(number),
        deed=member(ChangeKind, deed, ChangeKind.UPDATED),
        at=instant(at),
        text=_text(deed, type_, title, content, tags, memory),
    )


def _text(
    deed: str, type_: str | None, title: str, content: str, tags: str, memory: Memory
) -> Text | None:
    if deed == ChangeKind.DELETED:
        return None
    if type_ is None:
        return memory.text
    return Text(type=type_, title=title, content=content, tags=tag_tuple(tags))
