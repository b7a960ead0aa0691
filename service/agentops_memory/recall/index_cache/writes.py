"""What a transaction writes into the index, for whoever holds a part of it in memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..text.columns import Columns
from .rows import Row

MOST_WRITTEN = 256 * 1024  # characters of one transaction, which an import may write more in


class Written(NamedTuple):
    """What a transaction put into the index of a group or, with a sign below zero, took out."""

    before: int  # version
    after: int
    entries: Sequence[tuple[Row, Columns, int]]

    @property
    def size(self) -> int:
        return sum(len(text) for _, said, _ in self.entries for text in said)


@dataclass(slots=True)
class _Writing:
    """What is being written into a group, of so many characters."""

    before: int
    after: int
    entries: list[tuple[Row, Columns, int]] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, slots=True)
class IndexWrites:
    """What one transaction wrote into the index, by group; of some nothing may be left."""

    groups: dict[int, _Writing] = field(default_factory=dict)
    erased: set[int] = field(default_factory=set)

    @property
    def written(self) -> dict[int, Written]:
        """What each group's next reader has to know."""
        return {
            number: Written(it.before, it.after, it.entries)
            for number, it in self.groups.items()
            if number not in self.erased
        }

    def copy(self) -> "IndexWrites":
        groups = {number: replace(it, entries=[*it.entries]) for number, it in self.groups.items()}
        return IndexWrites(groups, set(self.erased))

    def record(
        self, number: int, before: int, after: int, entries: Sequence[tuple[Row, Columns, int]]
    ) -> None:
        """All that was written into a group, which had one version before and has another now."""
        size = sum(len(text) for _, said, _ in entries for text in said)
        self.groups[number] = _Writing(before, after, list(entries), size)
        if size > MOST_WRITTEN:
            self.erased.add(number)

    def note(
        self, number: int, version: int, entries: Iterable[tuple[Row, Columns]], sign: int
    ) -> None:
        """These were put into a group, or taken out, which has this version now."""
        writing = self.groups.setdefault(number, _Writing(version - 1, version - 1))
        if writing.after != version - 1:  # something else was done to it between
            self.erased.add(number)
        writing.after = version
        for row, said in entries if number not in self.erased else ():
            writing.entries.append((row, said, sign))
            writing.size += sum(map(len, said))
        if writing.size > MOST_WRITTEN:
            self.erased.add(number)
            writing.entries.clear()
