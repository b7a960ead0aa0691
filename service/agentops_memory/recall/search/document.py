"""What the full-text index holds of a memory."""

from dataclasses import dataclass

from ...memory.model.memory import MemoryId
from ...memory.sql.liveness import indexed
from ...memory.sql.table import Table
from ..text.normalization import NEIGHBOURS


@dataclass(frozen=True, slots=True)
class Document:
    """What the index holds of one live memory: prepared text, by column."""

    area: int
    title: str
    content: str
    context: str
    tags: str

    @property
    def own(self) -> str:
        """The memory's own words, without those that it borrows."""
        return "\n".join((self.title, self.content, self.tags))


class Borrowing(Table):
    """Which memories borrow from each other, in one transaction."""

    def borrowers(self, memory: MemoryId) -> list[MemoryId]:
        """The memories that borrow from a memory: its next ones in the session."""
        return self._scalars(
            f"""SELECT n.id
                  FROM memories m
                  JOIN memories n {self._sql.hint("memories_in_session")}
                    ON n.session_id = m.session_id AND n.space_id = m.space_id
                 WHERE m.id = :id AND n.id > m.id AND {indexed("n")}
              ORDER BY n.id
                 LIMIT {NEIGHBOURS}""",
            id=memory,
        )
