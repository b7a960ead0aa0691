"""A project in memory: its memories, and where each stem stands in them."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from threading import Lock

from ...memory.model.bm25 import Counts, Place, Postings, Totals, frequency
from ...memory.model.memory import MemoryId
from ...memory.model.search import Field

OWN = tuple(it is not Field.CONTEXT for it in Field)  # whether a field holds own words
COUNT = 24  # bits of each count in packed ones
WIDTH = 2  # numbers of a posting: a place, and a code

Packed = int
"""How often a stem stands in each field of a memory, in one number."""

# Bytes of memory, about.
STEM_BYTES, MEMORY_BYTES, CHANGED_BYTES = 12, 170, 250

MOST_CHANGED, LEAST_CHANGED = 0.25, 300  # stems of an area whose postings lie beside the rest


@dataclass(frozen=True, slots=True)
class Entry:
    """A memory in the index: how many words it has, and how often each stem stands where."""

    length: int
    stems: Mapping[str, Packed]


class Codes:
    """Small numbers for counts of stems, and how often those are by the weights of the fields.

    Any thread may use them.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self._weights = weights
        self._lock = Lock()
        self._known: dict[Packed, int] = {}
        self.often = (array("d"), array("d"))  # in any field, in own ones

    def __len__(self) -> int:
        return len(self._known)

    def of(self, packed: Packed) -> int:
        """The code of some counts."""
        code = self._known.get(packed)
        return self._new(packed) if code is None else code

    def _new(self, packed: Packed) -> int:
        counts = _counts(packed)
        own = tuple(it * is_own for it, is_own in zip(counts, OWN, strict=True))
        with self._lock:
            if packed not in self._known:
                for often, there in zip(self.often, (counts, own), strict=True):
                    often.append(frequency(there, self._weights))
                self._known[packed] = len(self._known)
            return self._known[packed]


class Area:
    """The memories of a project, or the global ones, as one version of the index has them.

    Of stems it holds hashes, no text, and of each the places where it is.
    A memory lies at a place; where one was taken out, the next that comes is put. What has
    changed lies beside the rest, until it is much.
    """

    def __init__(self, codes: Codes, entries: Iterable[tuple[MemoryId, Entry]] = ()) -> None:
        self.memories: list[MemoryId] = []  # by place
        self.codes = codes
        self._places: dict[MemoryId, int] = {}
        self._free: list[int] = []
        self._lengths = array("I")  # by place, as are the norms
        self._norms: tuple[Totals, array[float]] | None = None
        postings: dict[str, array[int]] = {}
        for memory, entry in entries:
            place = self._taken(memory, entry.length)
            for stem, packed in entry.stems.items():
                if stem not in postings:
                    postings[stem] = array("I")
                postings[stem].extend((place, codes.of(packed)))
        self._store({hash(stem): it for stem, it in postings.items()})

    @property
    def size(self) -> int:
        """The bytes in use, about."""
        flat = len(self._stems) * STEM_BYTES + len(self._postings) * self._postings.itemsize
        return flat + len(self.memories) * MEMORY_BYTES + len(self._changed) * CHANGED_BYTES

    def found(self, stems: Iterable[str]) -> dict[str, "array[int]"]:
        """Those of the stems that memories have, with a place and a code for each memory."""
        found = {stem: self._found(hash(stem)) for stem in stems}
        return {stem: it for stem, it in found.items() if it}

    def has(self, stem: str) -> bool:
        """Whether a memory has the stem."""
        return bool(self._found(hash(stem)))

    def norms(self, totals: Totals) -> "array[float]":
        """By place, as long as neither the area nor the totals of its group change."""
        if self._norms is None or self._norms[0] != totals:
            self._norms = totals, array("d", totals.norms(self._lengths))
        return self._norms[1]

    def postings(self, found: "array[int]", idf: float, *, own: bool) -> Postings:
        """Those of a stem that was found; of the memories' own words alone."""
        places: Sequence[Place] = found[::WIDTH]
        often = map(self.codes.often[own].__getitem__, found[1::WIDTH])
        if own:
            kept = [(place, it) for place, it in zip(places, often, strict=True) if it]
            return Postings(idf, [place for place, _ in kept], [it for _, it in kept])
        return Postings(idf, places, often)

    def add(self, memory: MemoryId, entry: Entry) -> bool:
        """Put in a memory; false if it is there."""
        if memory in self._places:
            return False
        place = self._taken(memory, entry.length)
        for stem, packed in entry.stems.items():
            postings = self._found(hash(stem))
            postings.extend((place, self.codes.of(packed)))
            self._changed[hash(stem)] = postings
        self._tidy()
        return True

    def remove(self, memory: MemoryId, entry: Entry) -> bool:
        """Take out a memory; false if it is not there with these stems."""
        place = self._places.pop(memory, None)
        if place is None:
            return False
        self._free.append(place)
        for stem in entry.stems:
            postings = self._found(hash(stem))
            places = postings[::WIDTH]
            if place not in places:
                return False
            at = places.index(place) * WIDTH
            del postings[at : at + WIDTH]
            self._changed[hash(stem)] = postings
        self._tidy()
        return True

    def change_totals(self) -> None:
        """The group has other totals now."""
        self._norms = None

    def _taken(self, memory: MemoryId, length: int) -> int:
        """The place that a memory takes."""
        if self._free:
            place = self._free.pop()
            self.memories[place], self._lengths[place] = memory, length
        else:
            place = len(self.memories)
            self.memories.append(memory)
            self._lengths.append(length)
        self._places[memory] = place
        return place

    def _found(self, stem: int) -> "array[int]":
        """Where a stem is: a place and a code for each memory that has it, one after the other."""
        changed = self._changed.get(stem)
        if changed is not None:
            return changed
        at = bisect_left(self._stems, stem)
        if at == len(self._stems) or self._stems[at] != stem:
            return array("I")
        return self._postings[self._ends[at - 1] if at else 0 : self._ends[at]]

    def _store(self, postings: Mapping[int, "array[int]"]) -> None:
        """Let these be all there is, in flat arrays."""
        there = sorted((stem, it) for stem, it in postings.items() if it)
        self._stems = array("q", (stem for stem, _ in there))
        self._ends = array("I", accumulate(len(it) for _, it in there))
        self._postings = array("I", chain.from_iterable(it for _, it in there))
        self._changed: dict[int, array[int]] = {}

    def _tidy(self) -> None:
        """Store what has changed with the rest once it is much."""
        if len(self._changed) > max(MOST_CHANGED * len(self._stems), LEAST_CHANGED):
            self._store({stem: self._found(stem) for stem in {*self._stems, *self._changed}})


def once(field: int) -> Packed:
    """The packed counts of a stem that stands once, in this field; they add up."""
    return 1 << COUNT * field


def _counts(packed: Packed) -> Counts:
    return tuple(packed >> COUNT * field & (1 << COUNT) - 1 for field in range(len(OWN)))
