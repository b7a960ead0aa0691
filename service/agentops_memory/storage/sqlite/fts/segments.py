"""How FTS5 stores an index: segments on levels, and what merging them leaves behind.

A deletion is a mark in a new segment; the words stay in the older ones. A merge leaves both out
only if nothing older lies on a higher level, so what is to be merged must be chosen.
"""

from collections.abc import Iterator
from dataclasses import dataclass

COOKIE = 4  # bytes before the numbers of a structure record


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How many segments a level has, oldest first, and how many of them are being merged."""

    merging: int
    segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """How far a partition of the index has been rid of what it no longer holds.

    What is to go lies at this level of its storage; `is_last` tells that nothing older
    lies above, so that no trace has to be kept for it.
    """

    level: int
    is_last: bool


def levels(record: bytes) -> list[Level]:
    """The levels in a structure record, the newest segments first."""
    numbers = _numbers(record)
    count, _, _ = (next(numbers) for _ in range(3))
    return [_level(numbers) for _ in range(count)]


def is_clean(structure: list[Level]) -> bool:
    """Whether there cannot be anything to merge away: no segment, or the result of a last merge."""
    total = sum(level.segments for level in structure)
    return total == 0 or (total == 1 and structure[-1].segments == 1)


def needs_another(structure: list[Level]) -> bool:
    """Whether a merge of everything would do nothing, since there is one segment alone."""
    return sum(level.segments for level in structure) < 2


def beginning(structure: list[Level]) -> Purge:
    """Which level FTS5 merges when it is told to merge everything."""
    total, top = sum(level.segments for level in structure), len(structure) - 1
    for number, level in enumerate(structure):
        if level.segments == total:
            return Purge(level=number, is_last=number >= top - 1)
        if level.segments == level.merging == total - 1:
            return Purge(level=number, is_last=number == top - 1)
    return Purge(level=len(structure), is_last=True)  # all are put on a new one


def is_merging(structure: list[Level], purge: Purge) -> bool:
    """Whether a merge that has begun goes on."""
    return any(level.merging for level in structure[purge.level :])


def _level(numbers: Iterator[int]) -> Level:
    level = Level(merging=next(numbers), segments=next(numbers))
    for _ in range(3 * level.segments):  # its id, its first and its last page
        next(numbers)
    return level


def _numbers(record: bytes) -> Iterator[int]:
    """Numbers of seven bits a byte, the highest first; each byte but the last has its top bit."""
    number = 0
    for byte in record[COOKIE:]:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            yield number
            number = 0
