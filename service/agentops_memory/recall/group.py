"""Projects whose words are weighed together, and the best of their memories for a query.

Scores equal FTS5's to the last bit: the same operations in the same order.
"""

import re
import sys
import time
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import nlargest
from importlib import import_module
from itertools import chain, compress
from typing import Any

from ..memory.memory import MemoryId
from ..memory.search import MOST, Sums, Totals, of_pieces
from ..memory.space import GLOBAL_AREA, IndexGroup, group_of
from .area import Area, Row, position_and_code
from .query import Piece, Term
from .stems import UNKNOWN, Entry, Vocabulary

# Which memories of a large area may have the best scores is computed for all at once. Scores
# are bounded from above by small numbers that lie side by side in one large integer, each in its
# lane. Two such integers of ten thousand lanes are added in microseconds, where so many floats take
# a millisecond. Only what may be among the best is then added up exactly.
UNIT = 64  # a score of one
BITS = 16  # of a lane
MOST_IN_LANE = (1 << BITS) - 1  # of the sum of the bounds in one

Lanes = int

_UPPER = 1 if sys.byteorder == "little" else 0  # where the upper byte of a lane lies
_BYTES = bytes(range(256))


@cache
def _at_least(byte: int) -> re.Pattern[bytes]:
    return re.compile(b"[" + re.escape(_BYTES[byte : byte + 1]) + b"-\xff]")


def bound_of(score: float) -> int:
    """What is above a score, in units."""
    return int(score * UNIT) + 1


def lanes_of(size: int, bounds: Iterable[tuple[int, int]]) -> Lanes:
    """Lanes for so many places, with the bounds at some of them added up."""
    lanes = array("H", bytes(2 * size))
    for position, it in bounds:
        lanes[position] += it
    return int.from_bytes(lanes.tobytes(), sys.byteorder)


def likely_places(
    lanes: Lanes, size: int, depth: int, terms: int, hidden: Collection[int]
) -> list[int]:
    """The places, ascending, where one of the `depth` best sums may be that are above zero.

    Each bound exceeds its score by one at most, and there are so many terms of each sum.
    """
    values = array("H", lanes.to_bytes(2 * size, sys.byteorder))
    for position in hidden:
        values[position] = 0
    upper = values.tobytes()[_UPPER::2]
    # The largest byte that so many lanes reach; the others need not be looked at, but for the next.
    at = bisect_left(
        range(255, -1, -1), depth, key=lambda byte: len(upper.translate(None, _BYTES[:byte]))
    )
    byte = max(254 - at, 0)
    places = [it.start() for it in _at_least(byte).finditer(upper)] if byte else range(size)
    reached = sorted([values[it] for it in places], reverse=True)
    least = max(reached[min(depth, len(reached)) - 1] - terms, 1)
    return [it for it in places if values[it] >= least]


LARGE = 500  # memories of an area, of which the likely ones are selected first
DENSE = 64  # of so many memories one has a stem, for which lanes are remembered


@cache
def numpy_or_none() -> Any | None:
    """The module, or None; imported on first use."""
    try:
        return import_module("numpy")
    except ImportError:
        return None


Stem = int
"""The number of a stem; `UNKNOWN` for one that no memory in memory has."""

StemPiece = tuple[Sequence[Stem], Sequence[Stem]]
"""Of a piece of a query: the stems of its parts, and of its joined forms."""


Where = dict[Stem, int]
"""Where stems are among those of an area."""


class Worth(ABC):
    """What stems are worth among the memories that are weighed together."""

    totals: Totals
    vocabulary: Vocabulary

    @abstractmethod
    def idf(self, stem: int, *, own: bool) -> float:
        """What a stem is worth, or among the memories' own words."""


class Group(Worth):
    """The areas of a partition of the index, with what its stems are worth."""

    def __init__(self, number: int, vocabulary: Vocabulary) -> None:
        self.number = number
        self.areas: dict[int, Area] = {}
        self.missing: set[int] = set()  # areas that are to be read again
        self.globals: Area | None = None
        self.vocabulary = vocabulary
        self.used_at = time.monotonic()
        self._count_anew()

    def put(self, areas: Iterable[Area]) -> None:
        self.areas.update({it.number: it for it in areas})
        self._count_anew()

    def is_behind(self, number: int, memory: MemoryId) -> bool:
        """Whether an area has not had a memory yet that is the newest."""
        area = self.areas.get(number)
        return number not in self.missing and (
            area is None or not area.ids or area.ids[-1] < memory
        )

    def taken_out(self, number: int) -> Area | None:
        """The area, which is of the group no longer."""
        area = self.areas.pop(number, None)
        if area is not None:
            self._count_anew()
        return area

    @property
    def has_globals(self) -> bool:
        """Whether the global memories are weighed with its own, as with those of projects."""
        return group_of(self.number) is IndexGroup.PROJECTS

    def let_globals(self, area: Area | None) -> None:
        """These are the global memories now."""
        if self.has_globals and area is not self.globals:
            self.globals = area
            self._count_anew()

    def add(self, number: int, row: Row, entry: Entry) -> None:
        """Put a new memory into an area, which it may be the first of."""
        vocabulary, area = self.vocabulary, self.areas.get(number)
        if area is None:
            area = self.areas[number] = Area(number)
        pairs = area.add(row, entry, vocabulary)
        for having, often in zip(
            self._having, (vocabulary.often, vocabulary.often_own), strict=True
        ):
            for stem, code in pairs:
                if stem in having and often[code]:
                    having[stem] += 1
        self._reweigh()

    def _count_anew(self) -> None:
        self._having: tuple[dict[int, int], dict[int, int]] = {}, {}  # by own
        self._reweigh()

    def _reweigh(self) -> None:
        every = self._every()
        self.totals = Totals.of(sum(len(it.ids) for it in every), sum(it.words for it in every))
        self._idf: tuple[dict[int, float], dict[int, float]] = {}, {}
        self._weights: dict[int, Weights] = {}

    def _every(self) -> list[Area]:
        return [*self.areas.values(), *filter(None, [self.globals])]

    @property
    def size(self) -> int:
        areas = list(self.areas.values())  # of which any thread may put in another meanwhile
        return sum(it.size for it in areas) + 80 * sum(map(len, self._having))

    def memories_of(self, area: int) -> int:
        return len(self.areas[area].ids) if area in self.areas else 0

    def weights_of(self, areas: Iterable[int]) -> list["Weights"]:
        """What postings of these areas add to scores; of an area without memories nothing."""
        chosen = (self.globals if it == GLOBAL_AREA else self.areas.get(it) for it in areas)
        return [self._weights.get(it.number) or self._weigh(it) for it in chosen if it and it.ids]

    def _weigh(self, area: Area) -> "Weights":
        weights = self._weights[area.number] = Weights(self, area)
        return weights

    def idf(self, stem: int, *, own: bool) -> float:
        idf = self._idf[own].get(stem)
        if idf is None:
            having = self._having[own].get(stem)
            if having is None:
                having = self._having[own][stem] = self._count(stem, own=own)
            idf = self._idf[own][stem] = self.totals.idf(having)
        return idf

    def _count(self, stem: int, *, own: bool) -> int:
        if not own:
            return sum([area.count(stem) for area in self._every()])
        often = self.vocabulary.often_own
        return sum(1 for area in self._every() for code in area.codes_of(stem) if often[code])


class Weights:
    """What each posting of an area adds to a score, computed on first use."""

    def __init__(self, group: Worth, area: Area) -> None:
        self.area = area
        self.norms = array("d", group.totals.norms(area.lengths))
        self._group = group
        self._adds = array("d", bytes(8 * len(area.places)))
        self._is_known = bytearray(len(area.stems))
        self._bounds = array("H", bytes(2 * len(area.places)) if len(area.ids) >= LARGE else b"")
        self._lanes: dict[int, Lanes] = {}  # of stems that many have, by place among them

    def where(self, stems: Iterable[Stem]) -> Where:
        """Where those of the stems are that the area has among its flat postings."""
        keys, where = self.area.stems, Where()
        top = len(keys)
        for stem in stems:
            if stem != UNKNOWN:
                at = bisect_left(keys, stem)
                if at != top and keys[at] == stem:
                    where[stem] = at
        return where

    def any(self, stems: Iterable[Stem], where: Where) -> list[float]:
        """What the stems add to each memory, by place, added up in their order."""
        area = self.area
        sums = [0.0] * len(area.ids)
        starts, places, adds, known, added = (
            area.starts, area.places, self._adds, self._is_known, area.added,
        )  # fmt: skip
        for stem in stems:
            if stem in where:
                at = where[stem]
                if not known[at]:
                    self._weigh(at)
                first, last = starts[at], starts[at + 1]
                for position, add in zip(places[first:last], adds[first:last]):  # noqa: B905 - slower
                    sums[position] += add
            if added and stem in added:
                for position, add in self._added(stem):
                    sums[position] += add
        return sums

    def best(
        self, stems: Sequence[Stem], where: Where, depth: int, hidden: Collection[int]
    ) -> list[tuple[float, int]]:
        """What the stems add to the `depth` best memories, and to some others; and their places."""
        size = len(self.area.ids)
        if size >= LARGE and (numpy := numpy_or_none()):
            return self._best_by_numpy(numpy, stems, where, depth, hidden)
        if size >= LARGE and (likely := self._likely(stems, where, depth, hidden)) is not None:
            some = self._any_of(likely, stems, where)
            return [(it, position) for position, it in some.items()]

        sums = self.any(stems, where)
        for position in hidden:
            sums[position] = 0.0
        having = compress(range(size), sums)
        if size < LARGE:
            first = sorted(having, key=sums.__getitem__, reverse=True)[:depth]
        else:
            first = nlargest(depth, having, key=sums.__getitem__)
        return [(sums[position], position) for position in first]

    def _best_by_numpy(
        self, numpy: Any, stems: Sequence[Stem], where: Where, depth: int, hidden: Collection[int]
    ) -> list[tuple[float, int]]:
        area, codes = self.area, self.area.places.typecode
        places, adds = numpy.frombuffer(area.places, codes), numpy.frombuffer(self._adds)
        at_places, of_stems = [numpy.array([], codes)], [numpy.array([])]
        for stem in stems:
            if stem in where:
                at = where[stem]
                if not self._is_known[at]:
                    self._weigh(at)
                first, last = area.starts[at], area.starts[at + 1]
                at_places.append(places[first:last])
                of_stems.append(adds[first:last])
            if stem in area.added:
                those = list(self._added(stem))
                at_places.append(numpy.array([position for position, _ in those], numpy.uintc))
                of_stems.append(numpy.array([add for _, add in those]))
        # It adds up in the order of the stems, as the scores are those of FTS5 to the last bit.
        every = numpy.concatenate(at_places), numpy.concatenate(of_stems)
        sums = numpy.bincount(*every, len(area.ids))
        sums[list(hidden)] = 0.0
        least = numpy.partition(sums, -depth)[-depth] if len(sums) > depth else 0.0
        best = ((sums >= least) & (sums != 0.0)).nonzero()[0]
        return list(zip(sums[best].tolist(), best.tolist(), strict=True))

    def _likely(
        self, stems: Sequence[Stem], where: Where, depth: int, hidden: Collection[int]
    ) -> list[int] | None:
        """The places, ascending, where the best may be; None where bounds would be too large."""
        area, size = self.area, len(self.area.ids)
        known = [it for it in stems if it in where or it in area.added]
        most = MOST * sum([self._group.idf(it, own=False) for it in known])
        if most * UNIT + len(known) > MOST_IN_LANE:
            return None
        total, few = 0, list[Iterable[tuple[int, int]]]()
        for stem in known:
            if stem in area.added:
                few.append([(position, bound_of(add)) for position, add in self._added(stem)])
            at = where.get(stem)
            if at is None:
                continue
            if not self._is_known[at]:
                self._weigh(at)
            first, last = area.starts[at], area.starts[at + 1]
            if at not in self._lanes:
                bounds = zip(area.places[first:last], self._bounds[first:last], strict=True)
                if last - first <= size // DENSE:
                    few.append(bounds)
                    continue
                self._lanes[at] = lanes_of(size, bounds)
            total += self._lanes[at]
        total += lanes_of(size, chain.from_iterable(few))
        return likely_places(total, size, depth, len(known), hidden)

    def _any_of(
        self, likely: Sequence[int], stems: Iterable[Stem], where: Where
    ) -> dict[int, float]:
        """As `any`, of some places alone, which ascend."""
        area, adds, sums = self.area, self._adds, dict.fromkeys(likely, 0.0)
        places = area.places
        for stem in stems:
            if stem in where:
                first, last = area.starts[where[stem]], area.starts[where[stem] + 1]
                for position in likely:
                    first = bisect_left(places, position, first, last)
                    if first == last:
                        break
                    if places[first] == position:
                        sums[position] += adds[first]
            if stem in area.added:
                for position, add in self._added(stem):
                    if position in sums:
                        sums[position] += add
        return sums

    def every(self, pieces: Sequence[StemPiece]) -> dict[int, float]:
        """What the pieces add to each memory in whose own words every one is, by place.

        That are all parts of a piece, or one of its joined forms.
        """
        is_plain = [len(parts) == 1 and not joined for parts, joined in pieces]
        if not self.area.added and all(is_plain):
            return self._every_stem([parts[0] for parts, _ in pieces])
        return of_pieces([
            ([self.own(it) for it in parts], [self.own(it) for it in joined])
            for parts, joined in pieces
        ])  # fmt: skip

    def _every_stem(self, stems: Sequence[Stem]) -> dict[int, float]:
        """The same of single stems: the rarest tells where to look for the others."""
        area, spans = self.area, list[tuple[float, int, int]]()
        keys, places, codes = area.stems, area.places, area.codes
        for stem in stems:
            at = bisect_left(keys, stem)
            if at == len(keys) or keys[at] != stem:
                return {}
            idf = self._group.idf(stem, own=True)
            spans.append((idf, area.starts[at], area.starts[at + 1]))
        common: set[int] | None = None
        for _, first, last in sorted(spans, key=lambda it: it[2] - it[1]):
            some = places[first:last]
            common = set(some) if common is None else common.intersection(some)
            if not common:
                return {}
        sums: dict[int, float] = {}
        often, norms = self._group.vocabulary.often_own, self.norms
        for position in common or ():
            total, norm = 0.0, norms[position]
            for idf, first, last in spans:
                it = often[codes[bisect_left(places, position, first, last)]]
                if not it:  # a word that it borrows
                    break
                total += idf * ((it * MOST) / (it + norm))
            else:
                sums[position] = total
        return sums

    def own(self, stem: Stem) -> Mapping[int, float]:
        """What a stem adds to each memory that has it among its own words, by place."""
        area, norms, often = self.area, self.norms, self._group.vocabulary.often_own
        span = area.span(stem)
        flat = (
            zip(area.places[span[1] : span[2]], area.codes[span[1] : span[2]], strict=True)
            if span
            else ()
        )
        added = map(position_and_code, area.added.get(stem, ()))
        having = [(position, it) for position, code in chain(flat, added) if (it := often[code])]
        if not having:
            return {}
        idf = self._group.idf(stem, own=True)
        return {at: idf * ((it * MOST) / (it + norms[at])) for at, it in having}

    def _weigh(self, at: int) -> None:
        area, idf = self.area, self._group.idf(self.area.stems[at], own=False)
        often, norms = self._group.vocabulary.often, self.norms
        first, last = area.starts[at], area.starts[at + 1]
        postings = zip(area.places[first:last], area.codes[first:last], strict=True)
        self._adds[first:last] = array(
            "d", [idf * (((it := often[code]) * MOST) / (it + norms[to])) for to, code in postings]
        )
        if self._bounds:
            self._bounds[first:last] = array("H", map(bound_of, self._adds[first:last]))
        self._is_known[at] = True

    def _added(self, stem: Stem) -> Iterator[tuple[int, float]]:
        if not (added := self.area.added.get(stem)):
            return
        idf, often = self._group.idf(stem, own=False), self._group.vocabulary.often
        for position, code in map(position_and_code, added):
            it = often[code]
            yield position, idf * ((it * MOST) / (it + self.norms[position]))


class Lookup:
    """What is found of a query, while its reader holds the lock of the index."""

    def __init__(self, parts: Sequence[Weights], numbers: Mapping[str, Stem], *, own: bool) -> None:
        self._parts = parts
        self._numbers = numbers
        self._own = own

    def having_any(self, terms: Sequence[Term]) -> list[Sums]:
        stems = [self._numbers[it.text] for it in terms]
        return [(self._any(part, stems), part.area.ids) for part in self._parts]

    def having_every(self, pieces: Sequence[Piece]) -> list[Sums]:
        by_stems = [(self._stems(it.parts), self._stems(it.joined)) for it in pieces]
        return [(part.every(by_stems), part.area.ids) for part in self._parts]

    def sessions(self, memories: Sequence[MemoryId]) -> dict[MemoryId, tuple[int, int] | None]:
        """The session of each memory: its area, and the number of it there."""
        session_of: dict[MemoryId, tuple[int, int] | None] = dict.fromkeys(memories)
        for area in (it.area for it in self._parts):
            for memory in memories:
                if (session := area.session_of(memory)) is not None:
                    session_of[memory] = area.number, session
        return session_of

    def seconds(self, memories: Sequence[MemoryId]) -> dict[MemoryId, MemoryId | None]:
        return {
            memory: part.area.second_after(memory)
            for part in self._parts
            for memory in memories
            if part.area.session_of(memory) is not None
        }

    def _stems(self, terms: Sequence[Term]) -> list[Stem]:
        return [self._numbers[it.text] for it in terms]

    def _any(self, part: Weights, stems: Sequence[Stem]) -> dict[int, float]:
        if self._own:  # of look-alikes
            sums: dict[int, float] = {}
            for added in map(part.own, stems):
                for position, add in added.items():
                    sums[position] = sums.get(position, 0.0) + add
            return sums
        return {at: it for at, it in enumerate(part.any(stems, part.where(stems))) if it}
