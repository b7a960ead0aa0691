"""The full-text index in memory, as one reading transaction sees it."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ....domain.text.columns import Columns
from ...index_cache.cache import CachedGroups
from ...index_cache.group import Entry, Group, once
from ...index_cache.rows import area_of
from ..base.connection import known_stems
from ..base.dialect import SqliteTable
from .stored_group import StoredGroup
from .visibility import VisibleRows


class CachedAreas(NamedTuple):
    """Areas of a group that is in memory."""

    group: Group
    areas: Sequence[int]


class CachedIndex(SqliteTable):
    """What is in memory for one transaction, which began at a time of the monotonic clock."""

    def __init__(
        self, connection: sqlite3.Connection, groups: CachedGroups | None, begun: float
    ) -> None:
        super().__init__(connection)
        self._groups = groups
        self._begun = begun
        self._versions: dict[int, int | None] = {}  # of partitions that memory is asked for

    @contextmanager
    def of(
        self, visible: VisibleRows, stems: Mapping[str, str], *, own: bool = False
    ) -> Iterator[CachedAreas | None]:
        """What is visible in memory, for one reader; None where it cannot tell all about words."""
        place = _place(visible)
        if place is None or self._groups is None or not all(stems.values()):
            yield None
            return
        number, areas = place
        if number not in self._versions:
            self._versions[number] = self._version(number, areas)
        version = self._versions[number]
        if version is None:
            yield None
            return
        with self._groups.reading(number, version, self._begun, self._entry) as group:
            if group is None:
                yield None
            else:
                group.load(StoredGroup(self._connection, number), areas, stems, own=own)
                yield CachedAreas(group, areas)

    def _version(self, number: int, areas: Sequence[int]) -> int | None:
        """The version of a partition; None if some of the areas were never asked for before."""
        if self._groups is None or not self._groups.are_asked_again(areas):
            return None
        return self._number("SELECT version FROM partitions WHERE number = :number", number=number)

    def _entry(self, said: Columns) -> Entry:
        stems: dict[str, int] = {}
        length = 0
        for field, words in enumerate(known_stems(self._connection).of_texts(said)):
            length += len(words)
            for stem in words:
                stems[stem] = stems.get(stem, 0) + once(field)
        return Entry(length, stems)


def _place(visible: VisibleRows) -> tuple[int, list[int]] | None:
    """The one partition in which everything visible lies, and its areas there."""
    if len(visible.spans) != 1:
        return None
    ((number, spans),) = visible.spans.items()
    areas = [area_of(first) for first, last in spans if area_of(first) == area_of(last)]
    return (number, areas) if len(areas) == len(spans) else None
