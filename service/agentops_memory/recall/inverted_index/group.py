"""Projects whose words are weighed together, and the best of their memories for a query.

Scores equal FTS5's to the last bit: the same operations in the same order.
"""

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ...memory.model.bm25 import MOST, Sums, Totals, of_pieces
from ...memory.model.kinds import IndexGroup, group_of
from ...memory.model.memory import MemoryId
from ...memory.sql.kinds import GLOBAL_AREA
from ..text.query import Piece, Term
from . import vectors
from .area import Area, Draft, Row, place_and_code
from .vocabulary import Vocabulary

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

    def add(self, number: int, row: Row) -> None:
        """Put a new memory into an area, which it may be the first of."""
        vocabulary, area = self.vocabulary, self.areas.get(number)
        if area is None:
            area = self.areas[number] = Area(Draft(number, (), vocabulary), ())
        entry = row.entry
        vocabulary.add(it for it in entry.all_stems() if not area.has_stem(vocabulary, it))
        pairs = vocabulary.pairs(entry)
        area.add(row, pairs)
        for having, often in zip(
            self._having, (vocabulary.often, vocabulary.often_own), strict=True
        ):
            for stem, code in pairs:
                if stem in having and often[code]:
                    having[stem] += 1
        self._reweigh()

    def _count_anew(self) -> None:
        """The memories are others now."""
        self._having: tuple[dict[int, int], dict[int, int]] = {}, {}  # by own
        self._reweigh()

    def _reweigh(self) -> None:
        """The totals are others now, and with them what each stem is worth."""
        every = self._every()
        self.totals = Totals.of(sum(len(it.ids) for it in every), sum(it.words for it in every))
        self._idf: tuple[dict[int, float], dict[int, float]] = {}, {}
        self._weights: dict[int, Weights] = {}

    def _every(self) -> list[Area]:
        return [*self.areas.values(), *filter(None, [self.globals])]

    @property
    def size(self) -> int:
        """The bytes in use, about."""
        return sum(it.size for it in self.areas.values()) + 80 * sum(map(len, self._having))

    def memories_of(self, area: int) -> int:
        """How many memories an area has."""
        return len(self.areas[area].ids) if area in self.areas else 0

    def weights_of(self, areas: Iterable[int]) -> list["Weights"]:
        """What postings of these areas add to scores; of an area without memories nothing."""
        found = (self.globals if it == GLOBAL_AREA else self.areas.get(it) for it in areas)
        return [self._weights.get(it.number) or self._weigh(it) for it in found if it and it.ids]

    def _weigh(self, area: Area) -> "Weights":
        weights = self._weights[area.number] = Weights(self, area)
        return weights

    def idf(self, stem: int, *, own: bool) -> float:
        """What a stem is worth, or among the memories' own words."""
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
    """What each posting of an area adds to a score, computed when it is first asked for."""

    def __init__(self, group: Worth, area: Area) -> None:
        self.area = area
        self.norms = array("d", group.totals.norms(area.lengths))
        self._group = group
        self._adds = array("d", bytes(8 * len(area.places)))
        self._is_known = bytearray(len(area.stems))

    def where(self, stems: Iterable[Stem]) -> Where:
        """Where those of the stems are that the area has among its flat postings."""
        keys, where = self.area.stems, Where()
        top = len(keys)
        for stem in stems:
            at = bisect_left(keys, stem)
            if at != top and keys[at] == stem:
                where[stem] = at
        return where

    def any(self, stems: Iterable[Stem], where: Where) -> Any:
        """What the stems add to each memory, by place, added up in their order."""
        area = self.area
        if len(area.ids) >= vectors.LARGE and (numpy := vectors.numpy()):
            return self._any_of_many(numpy, stems, where)
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
                for place, add in zip(places[first:last], adds[first:last], strict=True):
                    sums[place] += add
            if added and stem in added:
                for place, add in self._added(stem):
                    sums[place] += add
        return sums

    def _any_of_many(self, numpy: Any, stems: Iterable[Stem], where: Where) -> Any:
        area = self.area
        places, adds = (
            numpy.frombuffer(area.places, area.places.typecode),
            numpy.frombuffer(self._adds),
        )
        starts, known, added = area.starts, self._is_known, area.added
        at_places, of_stems = [], []
        for stem in stems:
            if stem in where:
                at = where[stem]
                if not known[at]:
                    self._weigh(at)
                first, last = starts[at], starts[at + 1]
                at_places.append(places[first:last])
                of_stems.append(adds[first:last])
            if added and stem in added:
                those = list(self._added(stem))
                at_places.append(numpy.array([place for place, _ in those], numpy.uintc))
                of_stems.append(numpy.array([add for _, add in those]))
        if not of_stems:
            return numpy.zeros(len(area.ids))
        # It adds up in the order of the stems, as the scores are those of FTS5 to the last bit.
        at_places, of_stems = numpy.concatenate(at_places), numpy.concatenate(of_stems)
        return numpy.bincount(at_places, of_stems, len(area.ids))

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
        there: set[int] | None = None
        for _, first, last in sorted(spans, key=_length):
            some = places[first:last]
            there = set(some) if there is None else there.intersection(some)
            if not there:
                return {}
        sums: dict[int, float] = {}
        often, norms = self._group.vocabulary.often_own, self.norms
        for place in there or ():
            total, norm = 0.0, norms[place]
            for idf, first, last in spans:
                it = often[codes[bisect_left(places, place, first, last)]]
                if not it:  # a word that it borrows
                    break
                total += idf * ((it * MOST) / (it + norm))
            else:
                sums[place] = total
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
        added = map(place_and_code, area.added.get(stem, ()))
        having = [(place, it) for place, code in chain(flat, added) if (it := often[code])]
        if not having:
            return {}
        idf = self._group.idf(stem, own=True)
        return {at: idf * ((it * MOST) / (it + norms[at])) for at, it in having}

    def _weigh(self, at: int) -> None:
        """Compute what the postings of the stem at a place among the stems add."""
        area, idf = self.area, self._group.idf(self.area.stems[at], own=False)
        often, norms = self._group.vocabulary.often, self.norms
        first, last = area.starts[at], area.starts[at + 1]
        postings = zip(area.places[first:last], area.codes[first:last], strict=True)
        self._adds[first:last] = array(
            "d", [idf * (((it := often[code]) * MOST) / (it + norms[to])) for to, code in postings]
        )
        self._is_known[at] = True

    def _added(self, stem: Stem) -> Iterator[tuple[int, float]]:
        if not (added := self.area.added.get(stem)):
            return
        idf, often = self._group.idf(stem, own=False), self._group.vocabulary.often
        for place, code in map(place_and_code, added):
            it = often[code]
            yield place, idf * ((it * MOST) / (it + self.norms[place]))


class Lookup:
    """What is found of a query, while its reader holds the lock of the index."""

    def __init__(self, parts: Sequence[Weights], numbers: Mapping[str, Stem], *, own: bool) -> None:
        self._parts = parts
        self._numbers = numbers
        self._own = own

    def having_any(self, terms: Sequence[Term]) -> list[Sums]:
        """What the terms add, by area."""
        stems = [self._numbers[it.text] for it in terms]
        return [(self._any(part, stems), part.area.ids) for part in self._parts]

    def having_every(self, pieces: Sequence[Piece]) -> list[Sums]:
        """What the pieces add where every one is, by area."""
        found = [(self._stems(it.parts), self._stems(it.joined)) for it in pieces]
        return [(part.every(found), part.area.ids) for part in self._parts]

    def sessions(self, memories: Sequence[MemoryId]) -> dict[MemoryId, tuple[int, int] | None]:
        """The session of each memory: its area, and the number of it there."""
        found: dict[MemoryId, tuple[int, int] | None] = dict.fromkeys(memories)
        for area in (it.area for it in self._parts):
            for memory in memories:
                if (session := area.session_of(memory)) is not None:
                    found[memory] = area.number, session
        return found

    def seconds(self, memories: Sequence[MemoryId]) -> dict[MemoryId, MemoryId | None]:
        """The second memory after each in its session."""
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
                for place, add in added.items():
                    sums[place] = sums.get(place, 0.0) + add
            return sums
        added = part.any(stems, part.where(stems))
        if isinstance(added, list):
            return {place: it for place, it in enumerate(added) if it}
        at = added.nonzero()[0]
        return dict(zip(at.tolist(), added[at].tolist(), strict=True))


def _length(span: tuple[float, int, int]) -> int:
    return span[2] - span[1]
