"""One group of projects in memory: those that were read of it, and how many rows have a stem."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar

from ...memory.model.bm25 import Totals
from ...memory.model.memory import MemoryId
from .area import Area, Codes, Entry
from .rows import Row, area_of, memory_of

UNKNOWN = -(1 << 63)  # a version that nothing has
MOST_CHANGES = 2_000  # while an area is read, which is in vain then

COUNT_BYTES, PLACE_BYTES = 100, 90  # of memory, about


class Change(NamedTuple):
    """One that was made in the index: an entry put in or, with a sign below zero, taken out."""

    row: Row
    entry: Entry
    sign: int


class Source(Protocol):
    """The stored index of a group, in a snapshot."""

    def totals(self) -> Totals:
        """The rows and words of the group."""

    def having(self, words: Collection[str], *, own: bool) -> Sequence[int]:
        """How many rows of the group have the stem of each word, or among their own words."""


T = TypeVar("T")

Find = Callable[[Sequence[MemoryId]], Mapping[MemoryId, T]]
"""What is stored of each of some memories."""


class Reading:
    """What was changed of an area while it is read."""

    def __init__(self, area: int) -> None:
        self.area = area
        self._changes: list[Change] = []
        self._is_in_vain = False

    def note(self, change: Change) -> None:
        if area_of(change.row) == self.area:
            self._changes.append(change)
        self._is_in_vain |= len(self._changes) > MOST_CHANGES

    def bring_in_line(self, area: Area) -> bool:
        """Whether the area, as it was read, is as of now after this."""
        return not self._is_in_vain and all(_apply(it, area) for it in self._changes)


class Group:
    """What is in memory of a group, as of one version of the stored index.

    Whoever uses it holds its lock.
    """

    def __init__(self, version: int, codes: Codes) -> None:
        self.lock = Lock()
        self.version = version
        self.codes = codes
        self._totals: Totals | None = None
        self._areas: dict[int, Area] = {}
        self._having: dict[bool, dict[str, int]] = {False: {}, True: {}}  # by own, and stem
        self._sessions: dict[MemoryId, str | None] = {}  # until a merge moves the memory
        self._seconds: dict[MemoryId, MemoryId | None] = {}  # until anything changes
        self._readings: list[Reading] = []
        self.refuted: list[int] = []  # areas that the index holds otherwise than the texts say

    @property
    def known(self) -> int:
        """How much is known of stems and memories, which prompts add to."""
        counts = sum(map(len, self._having.values()))
        return counts + len(self._sessions) + len(self._seconds)

    @property
    def size(self) -> int:
        """The bytes in use, about."""
        counts = sum(map(len, self._having.values()))
        places = len(self._sessions) + len(self._seconds)
        areas = sum(it.size for it in list(self._areas.values()))
        return areas + COUNT_BYTES * counts + PLACE_BYTES * places

    def areas(self, numbers: Sequence[int]) -> list[Area] | None:
        """The areas, if all of them are in memory."""
        found = [self._areas[it] for it in numbers if it in self._areas]
        return found if len(found) == len(numbers) else None

    def totals(self, source: Source) -> Totals:
        """The rows and words of the group."""
        if self._totals is None:
            self._totals = source.totals()
        return self._totals

    def having(self, source: Source, stems: Mapping[str, str], *, own: bool) -> Mapping[str, int]:
        """How many rows have each of the stems of some words, by stem; or more of them."""
        known = self._having[own]
        if missing := {word: stem for word, stem in stems.items() if stem not in known}:
            found = source.having(missing.keys(), own=own)
            known.update(zip(missing.values(), found, strict=True))
        return known

    def sessions(
        self, memories: Sequence[MemoryId], find: Find[str | None]
    ) -> Mapping[MemoryId, str | None]:
        return _known(self._sessions, memories, find)

    def seconds(
        self, memories: Sequence[MemoryId], find: Find[MemoryId | None]
    ) -> Mapping[MemoryId, MemoryId | None]:
        """The second memory after each in its session."""
        return _known(self._seconds, memories, find)

    def change(self, version: int, changes: Iterable[Change]) -> None:
        """Bring in line what is in memory with what was done to the stored index.

        The version is UNKNOWN then if that cannot be: damaged values let the index hold other
        entries than were read.
        """
        self._totals = None
        self._seconds.clear()
        are_known = all(self._change(it) for it in changes)
        for area in self._areas.values():
            area.change_totals()
        self.version = version if are_known else UNKNOWN

    def begin(self, area: int) -> Reading:
        """An area is about to be read, as of the version of now."""
        reading = Reading(area)
        self._readings.append(reading)
        return reading

    def end(self, reading: Reading, area: Area | None) -> None:
        """It was read; or not."""
        self._readings.remove(reading)
        if area is not None and reading.bring_in_line(area):
            self._areas[reading.area] = area

    def _change(self, change: Change) -> bool:
        self._sessions.pop(memory_of(change.row), None)
        self._count(change)
        for reading in self._readings:
            reading.note(change)
        area = self._areas.get(number := area_of(change.row))
        if area is None or _apply(change, area):
            return True
        self.refuted.append(number)
        return False

    def _count(self, change: Change) -> None:
        for own, having in self._having.items():
            often = self.codes.often[own]
            for stem, packed in change.entry.stems.items():
                if stem in having and often[self.codes.of(packed)]:
                    having[stem] += change.sign


def _apply(change: Change, area: Area) -> bool:
    """Whether the change was one of what the area holds."""
    done = area.add if change.sign > 0 else area.remove
    return done(memory_of(change.row), change.entry)


def _known(
    known: dict[MemoryId, T], memories: Sequence[MemoryId], find: Find[T]
) -> dict[MemoryId, T]:
    """What is known of memories, found for those of which it is not."""
    if missing := [it for it in memories if it not in known]:
        known.update(find(missing))
    return {it: known[it] for it in memories if it in known}
