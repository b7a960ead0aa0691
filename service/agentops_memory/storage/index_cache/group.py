"""One group of projects in memory: the stems that were asked for, and what they add to scores."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, Protocol

from ...domain.model.bm25 import NOTHING, Addends, Counts, Totals, frequency
from ...domain.model.memory import MemoryId
from ...domain.model.search import Field
from .rows import Row, area_of, memory_of

OWN = tuple(it is not Field.CONTEXT for it in Field)  # whether a field holds own words
COUNT = 24  # bits of each count in packed ones

UNKNOWN = -(1 << 63)  # a version that nothing has

Packed = int
"""How often a stem stands in each field of a memory, in one number."""

Sessions = Mapping[MemoryId, str | None]
"""The session of each memory, if it is of one."""

# Bytes of memory, about.
ROW_BYTES, STEM_BYTES, POSTING_BYTES, WORD_BYTES = 140, 450, 28, 90


@dataclass(frozen=True, slots=True)
class Entry:
    """A memory in the index: how many words it has, and how often each stem stands where."""

    length: int
    stems: Mapping[str, Packed]


class Change(NamedTuple):
    """One that was made in the index: an entry put in or, with a sign below zero, taken out."""

    row: Row
    entry: Entry
    sign: int


class Found(NamedTuple):
    """A stem in an area: how many rows of the whole group have it, and the counts of these."""

    having: int
    counts: Mapping[MemoryId, Packed]


class Source(Protocol):
    """What a group is read from: the stored index, in a snapshot."""

    def totals(self) -> Totals:
        """The rows and words of the group."""

    def lengths(self, area: int) -> Mapping[MemoryId, int]:
        """The length of each memory of an area, in words; in the order of ids."""

    def found(
        self, words: Collection[str], area: int, totals: Totals, lengths: Mapping[MemoryId, int]
    ) -> Mapping[str, Found]:
        """Those of the words whose stems memories of an area have; in the order of ids."""

    def having_own(self, words: Sequence[str]) -> Sequence[int]:
        """How many rows of the group have the stem of each word among their own words."""


class Postings:
    """The memories of an area that have a stem, in order: their lengths, and codes of counts.

    What they add to scores is as of a version of the group.
    """

    __slots__ = ("addends", "codes", "lengths", "memories", "own", "version")

    def __init__(self) -> None:
        self.memories: list[MemoryId] = []
        self.lengths = array("I")
        self.codes = array("I")
        self.version: int | None = None
        self.addends: Addends | None = None
        self.own: Addends | None = None  # of their own words alone

    def bring_to(self, version: int) -> None:
        """Forget what is of another version."""
        if self.version != version:
            self.version, self.addends, self.own = version, None, None

    def has(self, memory: MemoryId) -> bool:
        place = bisect_left(self.memories, memory)
        return place < len(self.memories) and self.memories[place] == memory

    def add(self, memory: MemoryId, length: int, code: int) -> None:
        place = bisect_left(self.memories, memory)
        self.memories.insert(place, memory)
        self.lengths.insert(place, length)
        self.codes.insert(place, code)

    def remove(self, memory: MemoryId) -> None:
        place = bisect_left(self.memories, memory)
        del self.memories[place], self.lengths[place], self.codes[place]


class Area:
    """The memories of a project, or the global ones."""

    __slots__ = ("lengths", "postings")

    def __init__(self, lengths: dict[MemoryId, int]) -> None:
        self.lengths = lengths
        self.postings: dict[str, Postings] = {}


class Group:
    """What is in memory of a group, as of one version of the stored index.

    Whoever uses it holds its lock.
    """

    def __init__(self, version: int, weights: Sequence[float]) -> None:
        self.lock = Lock()
        self.version = version
        self.size = 0  # bytes, about
        self._weights = weights
        self._totals: Totals | None = None
        self._areas: dict[int, Area] = {}
        self._having: dict[str, int] = {}  # rows of the whole group, by stem
        self._having_own: dict[str, int] = {}
        self._sessions: dict[MemoryId, str | None] = {}  # until a merge moves the memory
        self._codes: dict[Packed, int] = {}
        self._often: tuple[list[float], list[float]] = ([], [])  # by code: anywhere, in own words

    def load(
        self, source: Source, areas: Iterable[int], stems: Mapping[str, str], *, own: bool
    ) -> None:
        """Read what is not in memory of the stems of some words, by word.

        With `own` also how many have them among their own words.
        """
        totals = self._totals = self._totals or source.totals()
        for number in areas:
            area = self._area(source, number)
            missing = {word: stem for word, stem in stems.items() if stem not in area.postings}
            if missing:
                found = source.found(missing.keys(), number, totals, area.lengths)
                for word, stem in missing.items():
                    area.postings[stem] = self._postings(stem, area, found.get(word))
        missing = {word: stem for word, stem in stems.items() if stem not in self._having_own}
        if own and missing:
            counts = source.having_own(list(missing))
            self._having_own.update(zip(missing.values(), counts, strict=True))
            self.size += STEM_BYTES * len(missing)

    def addends(self, stem: str, area: int, *, own: bool = False) -> Addends:
        """What a stem adds to the scores of an area's memories; of their own words alone."""
        postings = self._areas[area].postings[stem]
        postings.bring_to(self.version)
        if own:
            if postings.own is None:
                postings.own = self._own_addends(stem, postings)
            return postings.own
        if postings.addends is None:
            postings.addends = self._addends(
                self._having.get(stem, 0), postings.memories, postings.lengths,
                map(self._often[False].__getitem__, postings.codes),
            )  # fmt: skip
        return postings.addends

    def sessions(
        self, memories: Sequence[MemoryId], load: Callable[[Sequence[MemoryId]], Sessions]
    ) -> Sessions:
        """The sessions of memories of the group; `load` tells those that are not known yet."""
        known = self._sessions
        missing = [it for it in memories if it not in known]
        if missing:
            known.update(load(missing))
            self.size += WORD_BYTES * len(missing)
        return {it: known[it] for it in memories if it in known}

    def change(self, version: int, changes: Iterable[Change]) -> None:
        """Bring in line what is in memory with what was done to the stored index.

        The version is UNKNOWN then if that cannot be: damaged values let the index hold other
        entries than were read.
        """
        self._totals = None
        are_known = all(self._change(row, entry, sign) for row, entry, sign in changes)
        self.version = version if are_known else UNKNOWN

    def _area(self, source: Source, number: int) -> Area:
        if number not in self._areas:
            area = self._areas[number] = Area(dict(source.lengths(number)))
            self.size += ROW_BYTES * len(area.lengths)
        return self._areas[number]

    def _postings(self, stem: str, area: Area, found: Found | None) -> Postings:
        postings = Postings()
        self.size += STEM_BYTES
        if found is not None:
            self._having[stem] = found.having
            postings.memories.extend(found.counts)
            postings.lengths.extend(map(area.lengths.__getitem__, found.counts))
            postings.codes.extend(map(self._code, found.counts.values()))
            self.size += POSTING_BYTES * len(found.counts)
        return postings

    def _own_addends(self, stem: str, postings: Postings) -> Addends:
        often = self._often[True]
        own = [
            (memory, length, often[code])
            for memory, length, code in zip(
                postings.memories, postings.lengths, postings.codes, strict=True
            )
            if often[code]
        ]
        having = self._having_own.get(stem, 0)
        return self._addends(
            having, [it[0] for it in own], [it[1] for it in own], [it[2] for it in own]
        )

    def _addends(
        self,
        having: int,
        memories: Sequence[MemoryId],
        lengths: Sequence[int],
        often: Iterable[float],
    ) -> Addends:
        if not memories or self._totals is None:
            return NOTHING
        return Addends(memories, array("d", self._totals.addends(having, often, lengths)))

    def _change(self, row: Row, entry: Entry, sign: int) -> bool:
        area, memory = self._areas.get(area_of(row)), memory_of(row)
        if area and (memory in area.lengths) == (sign > 0):
            return False
        self._sessions.pop(memory, None)
        for stem, packed in entry.stems.items():
            known = self._having.get(stem)
            if known is not None:
                self._having[stem] = known + sign
            self._change_own(stem, packed, sign)
            postings = area.postings.get(stem) if area else None
            if area and postings and known is None:
                del area.postings[stem]  # nobody had it there: how many others have it is not known
            elif postings and postings.has(memory) == (sign > 0):
                return False
            elif postings and sign > 0:
                postings.add(memory, entry.length, self._code(packed))
                self.size += POSTING_BYTES
            elif postings:
                postings.remove(memory)
        if area and sign > 0:
            area.lengths[memory] = entry.length
            self.size += ROW_BYTES
        elif area:
            del area.lengths[memory]
        return True

    def _change_own(self, stem: str, packed: Packed, sign: int) -> None:
        if stem in self._having_own and self._often[True][self._code(packed)]:
            self._having_own[stem] += sign

    def _code(self, packed: Packed) -> int:
        if packed not in self._codes:
            self._codes[packed] = len(self._codes)
            counts = _counts(packed)
            own = tuple(it * is_own for it, is_own in zip(counts, OWN, strict=True))
            for often, there in zip(self._often, (counts, own), strict=True):
                often.append(frequency(there, self._weights))
        return self._codes[packed]


def once(field: int) -> Packed:
    """The packed counts of a stem that stands once, in this field; they add up."""
    return 1 << COUNT * field


def _counts(packed: Packed) -> Counts:
    return tuple(packed >> COUNT * field & (1 << COUNT) - 1 for field in range(len(OWN)))
