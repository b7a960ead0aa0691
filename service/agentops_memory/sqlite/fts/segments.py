"""SQL for the segments in which FTS5 stores a partition, on levels: the more, the slower a search.

Each transaction that changes a partition adds one. FTS5 itself merges four of a level.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..base.dialect import SqliteTable
from .tables import table

PAGES = 250  # of the index that are merged while changes wait
COOKIE = 4  # bytes before the numbers of a structure record


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How many segments a level has, oldest first, and how many of them are being merged."""

    merging: int
    segments: int


class Segments(SqliteTable):
    """The segments of partitions in one transaction."""

    def levels(self, number: int) -> list[Level]:
        """The levels of a partition, the newest segments first."""
        ((record,),) = self._execute(f"SELECT block FROM {table(number)}_data WHERE id = 10")
        return _levels(record)

    def are_many(self, number: int) -> bool:
        """Whether a level has more than one, or a merge is not at its end."""
        return any(level.segments > 1 or level.merging for level in self.levels(number))

    def merge(self, number: int, pages: int = PAGES) -> bool:
        """Merge so many pages of a level with two segments or more; below zero, of all levels.

        False if there was nothing to merge.
        """
        name, before = table(number), self._connection.total_changes
        self._execute(f"INSERT INTO {name} ({name}, rank) VALUES ('merge', :pages)", pages=pages)
        return self._connection.total_changes - before > 1  # the statement itself is one


def _levels(record: bytes) -> list[Level]:
    """The levels in a structure record, the newest segments first."""
    read = numbers(record[COOKIE:])
    count, _, _ = (next(read) for _ in range(3))
    return [_level(read) for _ in range(count)]


def _level(read: Iterator[int]) -> Level:
    level = Level(merging=next(read), segments=next(read))
    for _ in range(3 * level.segments):  # its id, its first and its last page
        next(read)
    return level


def numbers(record: bytes) -> Iterator[int]:
    """Numbers of seven bits a byte, the highest first; each byte but the last has its top bit."""
    number = 0
    for byte in record:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            yield number
            number = 0
