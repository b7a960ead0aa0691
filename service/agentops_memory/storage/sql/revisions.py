"""SQL for the record of changes."""

from collections.abc import Iterable

from ...domain.model.memory import Memory, MemoryId, Revision, Text
from .rows import REVISION, micros, revision_of, tag_tuple, text_row
from .table import Connection, Table


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
            **text_row(memory.text),
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
            **(text_row(older.text) if older.text else {}),
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
            **text_row(text),
            **{f"own_{name}": value for name, value in text_row(memory.text).items()},
        )
        return any(tag_tuple(tags) == text.tags for (tags,) in rows)

    def count(self, memory: Memory) -> int:
        ((number,),) = self._execute(
            "SELECT count(*) FROM revisions WHERE memory_id = :memory_id", memory_id=memory.id
        )
        return int(number)

    def newest(self, memory: Memory) -> list[Revision]:
        rows = self._execute(
            f"""SELECT {REVISION}
                 FROM revisions
                WHERE memory_id = :memory_id
             ORDER BY number DESC""",
            memory_id=memory.id,
        )
        return [revision_of(row, memory) for row in rows]

    def rewrite(self, memory: MemoryId, number: int, text: Text) -> None:
        self._execute(
            """UPDATE revisions
                  SET type = :type, title = :title, content = :content, tags = :tags
                WHERE memory_id = :memory_id AND number = :number AND type IS NOT NULL""",
            memory_id=memory,
            number=number,
            **text_row(text),
        )


def erase_revisions(connection: Connection, revisions: Iterable[tuple[MemoryId, int]]) -> int:
    """Erase revisions, each by its memory and number, with their versions; how many those are."""
    rows = [{"memory": memory, "number": number} for memory, number in revisions]
    for table in ("versions", "revisions"):
        connection.executemany(
            f"DELETE FROM {table} WHERE memory_id = :memory AND number = :number", rows
        )
    return len(rows)
