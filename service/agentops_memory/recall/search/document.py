"""What of a memory is indexed, and the groups of projects that an index has."""

from dataclasses import dataclass

from ...memory.model.liveness import indexed
from ...memory.model.memory import MemoryId
from ...memory.model.space import (
    MOST_MEMORIES,
    MOST_PROJECTS,
    MOVABLE,
    NUMBERS,
    OVERSIZED,
    IndexGroup,
)
from ...memory.model.table import Table
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


class Groups(Table):
    """The groups of one transaction, by the numbers that spaces have as `partition`."""

    def place(self, group: IndexGroup) -> int:
        """The number for a new area.

        Several areas share one until it has enough of them or of their memories: the more
        memories, the better is known what a word is worth, and the more a search costs.
        """
        first, last = NUMBERS[group][0], NUMBERS[group][-1]
        found = self._execute(
            """SELECT partition, count(DISTINCT area)
                 FROM spaces
                WHERE partition = (SELECT max(partition)
                                     FROM spaces
                                    WHERE partition BETWEEN :first AND :last)
             GROUP BY partition""",
            first=first,
            last=last,
        ).fetchone()
        if found is None:
            return first
        newest, areas = found
        if areas < MOST_PROJECTS and not self.holds(newest, MOST_MEMORIES):
            return int(newest)
        return int(newest) + 1 if newest < last else self._emptiest(first, last)

    def holds(self, number: int, count: int) -> bool:
        """Whether the projects of a group have so many live memories, or more."""
        return self._exists(
            f"""SELECT 1
                  FROM spaces s
                  JOIN memories m {self._sql.hint("memories_in_space")} ON m.space_id = s.id
                 WHERE s.partition = :number AND {indexed("m")}
                 LIMIT 1 OFFSET :count - 1""",
            number=number,
            count=count,
        )

    def oversized(self) -> list[tuple[int, int, int]]:
        """For each group that is too large, the area of its smallest project or store.

        With the group, and how many memories the others there have; none whose move would
        take long.
        """
        rows = self._execute(
            f"""SELECT area, partition, beside - memories
                  FROM (SELECT s.area, s.partition, count(*) AS memories,
                               sum(count(*)) OVER (PARTITION BY s.partition) AS beside,
                               count(*) OVER (PARTITION BY s.partition) AS areas,
                               row_number() OVER (PARTITION BY s.partition
                                                  ORDER BY count(*), s.area) AS place
                          FROM spaces s
                          JOIN memories m {self._sql.hint("memories_in_space")}
                            ON m.space_id = s.id
                         WHERE s.partition IS NOT NULL AND {indexed("m")}
                      GROUP BY s.area, s.partition) sizes
                 WHERE areas > 1 AND beside > {OVERSIZED} AND place = 1 AND memories <= {MOVABLE}
              ORDER BY memories, area"""
        )
        return rows.fetchall()

    def _emptiest(self, first: int, last: int) -> int:
        """The group between two numbers with the fewest areas; perhaps none."""
        areas: dict[int, int] = dict(
            self._execute(
                """SELECT partition, count(DISTINCT area)
                     FROM spaces
                    WHERE partition BETWEEN :first AND :last
                 GROUP BY partition""",
                first=first,
                last=last,
            ).fetchall()
        )
        return min(range(first, last + 1), key=lambda number: (areas.get(number, 0), number))
