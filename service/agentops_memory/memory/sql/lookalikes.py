"""SQL for look-alikes: pairs of memories, and how much alike they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ..model.memory import MemoryId
from .rows import micros
from .table import Table


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
