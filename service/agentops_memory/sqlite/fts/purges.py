"""SQL by which deleted words leave the storage of a partition, too.

A deletion is a mark in a new segment; the words stay in the older ones. A merge leaves both out
only if nothing older lies on a higher level, so what is to be merged must be chosen.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.dialect import SqliteTable
from .partitions import Partitions
from .segments import PAGES, Level, Segments
from .tables import table

NO_ROW = 0  # the number of no memory's row
MERGES = 4  # one after another, before a small partition is rebuilt instead


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """How far a partition is purged: what is to go lies at this level of its storage.

    `is_last` tells that nothing older lies above, so that no trace of it has to be kept.
    """

    level: int
    is_last: bool


class Purges(SqliteTable):
    """The purges of one transaction."""

    def __init__(self, connection: sqlite3.Connection, partitions: Partitions) -> None:
        super().__init__(connection)
        self._partitions = partitions
        self._segments = Segments(connection)

    def marked(self) -> dict[int, int]:
        """The partitions that are marked for a purge, and how often."""
        rows = self._execute(
            "SELECT partition, notes FROM purges JOIN partitions ON number = partition"
        )
        return dict(rows.fetchall())

    def unmark(self, notes: Mapping[int, int]) -> None:
        """Remove the marks of partitions, but where more were made meanwhile."""
        self._connection.executemany(
            "DELETE FROM purges WHERE partition = :number AND notes = :notes",
            [{"number": number, "notes": count} for number, count in notes.items()],
        )

    def purge(self, number: int, begun: Purge | None) -> Purge | None:
        """Merge a part of what a partition stores; None when nothing deleted is left in it."""
        if begun is None:
            return self._begin(number)
        if _is_merging(self._segments.levels(number), begun):
            self._segments.merge(number, PAGES)
        if _is_merging(self._segments.levels(number), begun):
            return begun
        return None if begun.is_last else self._begin(number)

    def _begin(self, number: int) -> Purge | None:
        # Again at once, for a later save may put the result of a small merge back where it was.
        for _ in range(MERGES):
            structure = self._segments.levels(number)
            if _is_clean(structure):
                return None
            if _count(structure) == 1:
                self._add_segments(number)
            begun = _first_merge(self._segments.levels(number))
            self._segments.merge(number, -PAGES)  # below zero: all segments, not those of one level
            if _is_merging(self._segments.levels(number), begun):
                return begun
            if begun.is_last:
                return None
        self._partitions.rebuild(number)  # so small that FTS5 moves each result to and fro
        return None

    def _add_segments(self, number: int) -> None:
        """Add segments that hold nothing in the end: FTS5 merges no segment alone."""
        name = table(number)
        self._execute(f"INSERT INTO {name} (rowid, title) VALUES ({NO_ROW}, 'x')")
        self._execute(f"INSERT INTO {name} ({name}, rowid, title) VALUES ('delete', {NO_ROW}, 'x')")


def _is_clean(structure: list[Level]) -> bool:
    """Whether there cannot be anything to merge away: no segment, or the result of a last merge."""
    total = _count(structure)
    return total == 0 or (total == 1 and structure[-1].segments == 1)


def _count(structure: list[Level]) -> int:
    return sum(level.segments for level in structure)


def _first_merge(structure: list[Level]) -> Purge:
    """Which level FTS5 merges when it is told to merge everything."""
    total, top = _count(structure), len(structure) - 1
    for number, level in enumerate(structure):
        if level.segments == total:
            return Purge(level=number, is_last=number >= top - 1)
        if level.segments == level.merging == total - 1:
            return Purge(level=number, is_last=number == top - 1)
    return Purge(level=len(structure), is_last=True)  # all are put on a new one


def _is_merging(structure: list[Level], purge: Purge) -> bool:
    """Whether a merge that has begun goes on."""
    return any(level.merging for level in structure[purge.level :])
