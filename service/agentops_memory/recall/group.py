"""Ranking in memory: groups of projects with shared word statistics, and their best memories.

Scores equal FTS5's to the last bit, by the same operations in the same order.
"""

import re
import sys
import time
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from heapq import nlargest
from importlib import import_module
from itertools import accumulate, chain, compress
from threading import Thread
from typing import Any

from ..memory.memory import MemoryId
from ..memory.search import FOLLOWING, MOST, Scored, Sums, Totals, of_pieces
from ..memory.space import GLOBAL_AREA, IndexGroup, group_of
from .area import Area, Row, Span, StemCounts, position_and_code
from .query import Piece, Term
from .stems import UNKNOWN, Entry, Vocabulary

# In a large area, candidates for the best scores are selected first. One large integer holds an
# upper bound of each memory's score in a lane of its bits. Adding two such integers of ten
# thousand lanes takes microseconds; adding as many floats takes a millisecond. Only the scores
# of candidates are then summed exactly.
UNIT = 64  # the bound of a score of one
BITS = 16  # width of a lane
MOST_IN_LANE = (1 << BITS) - 1  # largest sum of bounds in a lane

Lanes = int

_UPPER = 1 if sys.byteorder == "little" else 0  # index of a lane's upper byte
_BYTES = bytes(range(256))


@cache
def _at_least(byte: int) -> re.Pattern[bytes]:
    return re.compile(b"[" + re.escape(_BYTES[byte : byte + 1]) + b"-\xff]")


def bound_of(score: float) -> int:
    """Return an integer above the score, in units of 1 / UNIT."""
    return int(score * UNIT) + 1


def lanes_of(size: int, bounds: Iterable[tuple[int, int]]) -> Lanes:
    """Return `size` lanes, each with the sum of the bounds at its position."""
    lanes = array("H", bytes(2 * size))
    for position, it in bounds:
        lanes[position] += it
    return int.from_bytes(lanes.tobytes(), sys.byteorder)


def candidate_positions(
    lanes: Lanes, size: int, depth: int, terms: int, hidden: Collection[int]
) -> list[int]:
    """Return the positions, ascending, that may have one of the `depth` best scores above zero.

    Each lane sums at most `terms` bounds, and each bound exceeds its score by at most one.
    """
    values = array("H", lanes.to_bytes(2 * size, sys.byteorder))
    for position in hidden:
        values[position] = 0
    upper = values.tobytes()[_UPPER::2]
    # The largest upper byte that `depth` lanes reach; lanes more than one below cannot qualify.
    at = bisect_left(
        range(255, -1, -1), depth, key=lambda byte: len(upper.translate(None, _BYTES[:byte]))
    )
    byte = max(254 - at, 0)
    positions = [it.start() for it in _at_least(byte).finditer(upper)] if byte else range(size)
    reached = sorted([values[it] for it in positions], reverse=True)
    least = max(reached[min(depth, len(reached)) - 1] - terms, 1)
    return [it for it in positions if values[it] >= least]


LARGE = 500  # memories; in areas of at least this size, candidates are selected first
DENSE = 64  # lanes are cached for a stem that more than one in 64 memories has


@cache
def numpy_if_installed() -> Any:
    """Return numpy, or None if it is not installed."""
    with suppress(ImportError):
        return import_module("numpy")
    return None


@cache
def _import_numpy() -> Thread:
    """Begin to import numpy, which takes a tenth of a second, on a thread of its own."""
    thread = Thread(target=numpy_if_installed, daemon=True)
    thread.start()
    return thread


def _numpy() -> Any:
    """Return numpy once it is imported, or None: results are the same without it."""
    return None if _import_numpy().is_alive() else numpy_if_installed()


Stem = int
"""The number of a stem; `UNKNOWN` for a stem that no cached memory has."""

StemPiece = tuple[Sequence[Stem], Sequence[Stem]]
"""The stems of a query piece's parts, and of its joined forms."""

StemSpans = dict[Stem, Span]
"""The bounds of each stem's flat postings in an area."""


class CorpusStatistics(ABC):
    """Statistics of the memories that are ranked together."""

    totals: Totals

    @abstractmethod
    def idf(self, stem: int, *, own: bool) -> float:
        """Return a stem's inverse document frequency in all words, or in own words."""

    @abstractmethod
    def prepare(self, stems: Collection[int]) -> None:
        """Count these stems in all words at once, which is cheaper than one after the other."""


class Group(CorpusStatistics):
    """The areas of an index partition, and their statistics."""

    def __init__(self, number: int, vocabulary: Vocabulary) -> None:
        self.number = number
        self.areas: dict[int, Area] = {}
        self.others: dict[int, StemCounts] = {}  # areas of which only the statistics are known
        self.missing: set[int] = set()  # areas to be reloaded
        self.globals: Area | None = None
        self.vocabulary = vocabulary
        self.used_at = time.monotonic()
        self._recount()

    def put(self, areas: Iterable[Area], others: Collection[StemCounts] = ()) -> None:
        self.others.update({it.number: it for it in others})
        is_counted = not others
        for it in areas:
            self.areas[it.number] = it
            counts = self.others.pop(it.number, None)
            is_counted &= counts is not None and counts.are_of(it.ids)
        if not is_counted:
            self._recount()

    def is_behind(self, number: int, memory: MemoryId) -> bool:
        """Whether an area still lacks `memory`, the newest one."""
        if number in self.others:
            return self.others[number].last < memory
        area = self.areas.get(number)
        return number not in self.missing and (
            area is None or not area.ids or area.ids[-1] < memory
        )

    def remove_area(self, number: int) -> Area | None:
        """Remove an area from the group and return it, or None."""
        area = self.areas.pop(number, None)
        if self.others.pop(number, area) is not None:
            self._recount()
        return area

    @property
    def has_globals(self) -> bool:
        """Whether the group has projects, with which global memories are ranked."""
        return group_of(self.number) is IndexGroup.PROJECTS

    def set_globals(self, area: Area | None) -> None:
        """Replace the area of global memories."""
        if self.has_globals and area is not self.globals:
            self.globals = area
            self._recount()

    def add(self, number: int, row: Row, entry: Entry) -> None:
        """Add a new memory to an area, which is created if missing."""
        vocabulary, area = self.vocabulary, self.areas.get(number)
        if area is None:
            area = self.areas[number] = Area(number)
        pairs = area.add(row, entry, vocabulary)
        frequencies = area.frequencies, area.own_frequencies
        for counts, tf in zip(self._document_counts, frequencies, strict=True):
            for stem, code in pairs:
                if stem in counts and tf[code]:
                    counts[stem] += 1
        self._reweigh()

    def number_of(self, stem: str, parts: Sequence["Weights"]) -> Stem:
        """Return the number of a stem if any of these areas has it."""
        for it in parts:
            it.area.number_stems([stem], self.vocabulary)
        return self.vocabulary.number(stem)

    def _recount(self) -> None:
        self._document_counts: tuple[dict[int, int], dict[int, int]] = {}, {}  # all, own words
        self._reweigh()

    def _reweigh(self) -> None:
        every = self._every()
        self.totals = Totals.of(sum(it.memories for it in every), sum(it.words for it in every))
        self._idf: tuple[dict[int, float], dict[int, float]] = {}, {}
        self._weights: dict[int, Weights] = {}

    def _every(self) -> list[Area | StemCounts]:
        return [*self.areas.values(), *self.others.values(), *filter(None, [self.globals])]

    @property
    def size(self) -> int:
        # Another thread may add an area meanwhile.
        size = sum(it.size for it in list(self.areas.values()))
        size += sum(it.size for it in list(self.others.values()))
        corrections = sum(len(it.corrections) for it in list(self._weights.values()))
        return size + 80 * sum(map(len, self._document_counts)) + 250 * corrections

    def memories_of(self, area: int) -> int:
        return len(self.areas[area].ids) if area in self.areas else 0

    def weights_of(self, areas: Iterable[int]) -> list["Weights"]:
        """Return the scores of these areas' postings, leaving out empty areas."""
        chosen = (self.globals if it == GLOBAL_AREA else self.areas.get(it) for it in areas)
        return [self._weights.get(it.number) or self._weigh(it) for it in chosen if it and it.ids]

    def _weigh(self, area: Area) -> "Weights":
        weights = self._weights[area.number] = Weights(self, area)
        return weights

    def idf(self, stem: int, *, own: bool) -> float:
        idf = self._idf[own].get(stem)
        if idf is None:
            counts = self._document_counts[own]
            if stem not in counts:
                self._count([stem], own=own)
            idf = self._idf[own][stem] = self.totals.idf(counts[stem])
        return idf

    def prepare(self, stems: Collection[int]) -> None:
        self._count(stems, own=False)

    def _count(self, stems: Iterable[int], *, own: bool) -> None:
        counts, text_of = self._document_counts[own], self.vocabulary.text_of
        texts = {it: text_of(it) for it in stems if it not in counts}
        every = [area.counts(texts, own=own) for area in self._every()]
        counts.update(zip(texts, map(sum, zip(*every, strict=True)), strict=True))


class Weights:
    """The impact (part of a score) of each posting of an area, computed on first use."""

    def __init__(self, statistics: CorpusStatistics, area: Area) -> None:
        self.area = area
        self.norms = array("d", statistics.totals.norms(area.lengths))
        self._statistics = statistics
        self._impacts: dict[Stem, array[float]] = {}  # of flat postings
        self._bounds: dict[Stem, array[int]] = {}  # of the impacts, in a large area
        self._lanes: dict[Stem, Lanes] = {}  # of frequent stems
        # Of words that no memory has, in this area and the global one, which are ranked together.
        self.corrections: dict[str, tuple[str, ...]] = {}

    def spans(self, stems: Iterable[Stem]) -> StemSpans:
        """Return the spans of the stems that have flat postings in the area."""
        area, spans = self.area, StemSpans()
        keys, starts, ends = area.stems, area.starts, area.ends
        top = len(keys)
        for stem in stems:
            if stem != UNKNOWN:
                at = bisect_left(keys, stem)
                if at != top and keys[at] == stem:
                    spans[stem] = starts[at], ends[at]
        return spans

    def any(self, stems: Iterable[Stem], spans: StemSpans) -> list[float]:
        """Return each memory's score by position, summed in the order of the stems."""
        area = self.area
        sums = [0.0] * len(area.ids)
        positions, impacts, added = area.positions, self._impacts, area.added
        for stem in stems:
            if stem in spans:
                first, last = spans[stem]
                of_stem = impacts.get(stem) or self._weigh(stem, first, last)
                for position, it in zip(positions[first:last], of_stem):  # noqa: B905
                    sums[position] += it
            if added and stem in added:
                for position, impact in self._added(stem):
                    sums[position] += impact
        return sums

    def best(
        self,
        sentences: Sequence[Sequence[Stem]],
        spans: StemSpans,
        depth: int,
        hidden: Collection[int],
    ) -> list[list[tuple[float, int]]]:
        """Return (score, position) of the `depth` best memories for each sentence, lowest first."""
        size, impacts = len(self.area.ids), self._impacts
        if new := [it for it in spans if it not in impacts]:
            self._statistics.prepare(new)
        if size >= LARGE and (numpy := _numpy()):
            self._weigh_all(numpy, new, spans)
            return [self._best_by_numpy(numpy, it, spans, depth, hidden) for it in sentences]
        # While most stems are new, as in a first prompt, bounds would cost more than they save.
        find = self._best_bounded if size >= LARGE and 2 * len(new) < len(spans) else self._best
        return [find(it, spans, depth, hidden) for it in sentences]

    def _best_bounded(
        self, stems: Sequence[Stem], spans: StemSpans, depth: int, hidden: Collection[int]
    ) -> list[tuple[float, int]]:
        candidates = self._candidates(stems, spans, depth, hidden)
        if candidates is None:
            return self._best(stems, spans, depth, hidden)
        scores = self._any_of(candidates, stems, spans)
        return sorted([(-score, position) for position, score in scores.items()])[:depth]

    def _best(
        self, stems: Sequence[Stem], spans: StemSpans, depth: int, hidden: Collection[int]
    ) -> list[tuple[float, int]]:
        size, sums = len(self.area.ids), self.any(stems, spans)
        for position in hidden:
            sums[position] = 0.0
        scored = compress(range(size), sums)
        if size < LARGE:
            first = sorted(scored, key=sums.__getitem__, reverse=True)[:depth]
        else:
            first = nlargest(depth, scored, key=sums.__getitem__)
        return [(-sums[position], position) for position in first]

    def _best_by_numpy(
        self,
        numpy: Any,
        stems: Sequence[Stem],
        spans: StemSpans,
        depth: int,
        hidden: Collection[int],
    ) -> list[tuple[float, int]]:  # fmt: skip
        area, positions = self.area, numpy.asarray(self.area.positions)
        all_positions, all_impacts = [positions[:0]], [numpy.array([])]
        for stem in stems:
            if stem in spans:
                all_positions.append(positions[slice(*spans[stem])])
                all_impacts.append(numpy.frombuffer(self._impacts[stem]))
            if stem in area.added:
                added = list(self._added(stem))
                all_positions.append(numpy.array([position for position, _ in added], numpy.uintc))
                all_impacts.append(numpy.array([impact for _, impact in added]))
        # bincount sums in the order of the stems, so scores equal FTS5's to the last bit.
        every = numpy.concatenate(all_positions), numpy.concatenate(all_impacts)
        sums = numpy.bincount(*every, len(area.ids))
        sums[list(hidden)] = 0.0
        least = numpy.partition(sums, -depth)[-depth] if len(sums) > depth else 0.0
        best = ((sums >= least) & (sums != 0.0)).nonzero()[0]
        return sorted(zip((-sums[best]).tolist(), best.tolist(), strict=True))[:depth]

    def _candidates(
        self, stems: Sequence[Stem], spans: StemSpans, depth: int, hidden: Collection[int]
    ) -> list[int] | None:
        """Return candidate positions, ascending, or None if bounds would overflow a lane."""
        area, size = self.area, len(self.area.ids)
        known = [it for it in stems if it in spans or it in area.added]
        most = MOST * sum([self._statistics.idf(it, own=False) for it in known])
        if most * UNIT + len(known) > MOST_IN_LANE:
            return None
        total, sparse = 0, list[Iterable[tuple[int, int]]]()
        for stem in known:
            if stem in area.added:
                sparse.append([(at, bound_of(impact)) for at, impact in self._added(stem)])
            if stem not in spans:
                continue
            first, last = spans[stem]
            impacts = self._impacts.get(stem) or self._weigh(stem, first, last)
            if stem not in self._lanes:
                if stem not in self._bounds:
                    self._bounds[stem] = array("H", map(bound_of, impacts))
                bounds = zip(area.positions[first:last], self._bounds[stem], strict=True)
                if last - first <= size // DENSE:
                    sparse.append(bounds)
                    continue
                self._lanes[stem] = lanes_of(size, bounds)
            total += self._lanes[stem]
        total += lanes_of(size, chain.from_iterable(sparse))
        return candidate_positions(total, size, depth, len(known), hidden)

    def _any_of(
        self, candidates: Sequence[int], stems: Iterable[Stem], spans: StemSpans
    ) -> dict[int, float]:
        """Return the scores of these positions only, which ascend, as `any` computes them."""
        area, positions = self.area, self.area.positions
        sums = dict.fromkeys(candidates, 0.0)
        for stem in stems:
            if stem in spans:
                first, last = spans[stem]
                begin, impacts = first, self._impacts[stem]
                for position in candidates:
                    first = bisect_left(positions, position, first, last)
                    if first == last:
                        break
                    if positions[first] == position:
                        sums[position] += impacts[first - begin]
            if stem in area.added:
                for position, impact in self._added(stem):
                    if position in sums:
                        sums[position] += impact
        return sums

    def every(self, pieces: Sequence[StemPiece], spans: StemSpans) -> dict[int, float]:
        """Return scores by position of the memories whose own words have every piece.

        A memory has a piece by all of its parts, or by one of its joined forms.
        """
        is_plain = [len(parts) == 1 and not joined for parts, joined in pieces]
        if not self.area.added and all(is_plain):
            return self._every_stem([parts[0] for parts, _ in pieces], spans)
        return of_pieces([
            ([self.own(it, spans) for it in parts], [self.own(it, spans) for it in joined])
            for parts, joined in pieces
        ])  # fmt: skip

    def _every_stem(self, stems: Sequence[Stem], spans: StemSpans) -> dict[int, float]:
        """Return the scores of `every` for single stems, by intersecting the rarest first."""
        if not spans.keys() >= set(stems):
            return {}
        area, idf_of = self.area, self._statistics.idf
        positions, codes = area.positions, area.codes
        postings = [(idf_of(it, own=True), *spans[it]) for it in stems]
        common: set[int] | None = None
        for _, first, last in sorted(postings, key=lambda it: it[2] - it[1]):
            members = positions[first:last]
            common = set(members) if common is None else common.intersection(members)
            if not common:
                return {}
        sums: dict[int, float] = {}
        tf, norms = area.own_frequencies, self.norms
        for position in common or ():
            total, norm = 0.0, norms[position]
            for idf, first, last in postings:
                it = tf[codes[bisect_left(positions, position, first, last)]]
                if not it:  # the memory only borrows the word
                    break
                total += idf * ((it * MOST) / (it + norm))
            else:
                sums[position] = total
        return sums

    def own(self, stem: Stem, spans: StemSpans) -> Mapping[int, float]:
        """Return the impact of a stem by position, for memories with it in their own words."""
        area, norms, tf = self.area, self.norms, self.area.own_frequencies
        span = slice(*spans.get(stem, (0, 0)))
        flat = zip(area.positions[span], area.codes[span], strict=True)
        added = map(position_and_code, area.added.get(stem, ()))
        matches = [(position, it) for position, code in chain(flat, added) if (it := tf[code])]
        if not matches:
            return {}
        idf = self._statistics.idf(stem, own=True)
        return {at: idf * ((it * MOST) / (it + norms[at])) for at, it in matches}

    def _weigh(self, stem: Stem, first: int, last: int) -> "array[float]":
        area, idf = self.area, self._statistics.idf(stem, own=False)
        tf, norms = area.frequencies, self.norms
        postings = zip(area.positions[first:last], area.codes[first:last], strict=True)
        impacts = self._impacts[stem] = array(
            "d", [idf * (((it := tf[code]) * MOST) / (it + norms[to])) for to, code in postings]
        )
        return impacts

    def _weigh_all(self, numpy: Any, stems: Sequence[Stem], spans: StemSpans) -> None:
        """Compute the impacts of several stems at once, to the last bit as `_weigh` does."""
        if not stems:
            return
        area, slices = self.area, [slice(*spans[it]) for it in stems]
        sizes = [it.stop - it.start for it in slices]
        positions, codes = (
            numpy.concatenate([numpy.asarray(of_all)[it] for it in slices])
            for of_all in (area.positions, area.codes)
        )
        tf = numpy.frombuffer(area.frequencies)[codes]
        idf = numpy.repeat([self._statistics.idf(it, own=False) for it in stems], sizes)
        norms = numpy.frombuffer(self.norms)[positions]
        impacts = array("d", (idf * ((tf * MOST) / (tf + norms))).tobytes())
        ends = accumulate(sizes)
        for stem, size, end in zip(stems, sizes, ends, strict=True):
            self._impacts[stem] = impacts[end - size : end]

    def _added(self, stem: Stem) -> Iterator[tuple[int, float]]:
        if not (added := self.area.added.get(stem)):
            return
        idf, tf = self._statistics.idf(stem, own=False), self.area.frequencies
        for position, code in map(position_and_code, added):
            it = tf[code]
            yield position, idf * ((it * MOST) / (it + self.norms[position]))


def gained(best: Sequence[Scored], by_slot: Iterable[Mapping[int, Scored]]) -> list[Scored]:
    """Re-rank the best: each gains by the next two memories of its session if also listed.

    `by_slot` has the best of each area by their slots.
    """
    next_, second = FOLLOWING
    gains: dict[int, float] = {}
    for slots in by_slot:
        for slot in [it for it in slots if it + 1 in slots]:
            gains[slots[slot][1]] = next_ * slots[slot + 1][0]
        for slot in [it for it in slots if it + 2 in slots]:
            id_ = slots[slot][1]
            gains[id_] = gains.get(id_, 0.0) + second * slots[slot + 2][0]
    if not gains:
        return list(best)
    return sorted([(score + gains.get(id_, 0.0), id_) for score, id_ in best])


class Lookup:
    """Scores of a query's words, for a reader that holds the lock of the index."""

    def __init__(self, parts: Sequence[Weights], numbers: Mapping[str, Stem], *, own: bool) -> None:
        self._parts = parts
        self._numbers = numbers
        self._own = own

    def scores_of_any(self, terms: Sequence[Term]) -> list[Sums]:
        stems = self._stems(terms)
        return [(self._any(part, stems), part.area.ids) for part in self._parts]

    def scores_of_every(self, pieces: Sequence[Piece]) -> list[Sums]:
        by_stems = [(self._stems(it.parts), self._stems(it.joined)) for it in pieces]
        stems = {*chain.from_iterable(chain.from_iterable(by_stems))}
        return [(part.every(by_stems, part.spans(stems)), part.area.ids) for part in self._parts]

    def with_gains(self, best: Sequence[Scored]) -> list[Scored]:
        return gained(best, [it.area.by_slot(best) for it in self._parts])

    def _stems(self, terms: Sequence[Term]) -> list[Stem]:
        return [self._numbers[it.text] for it in terms]

    def _any(self, part: Weights, stems: Sequence[Stem]) -> dict[int, float]:
        if self._own:  # as a search for similar memories does
            sums, spans = dict[int, float](), part.spans(stems)
            for added in [part.own(it, spans) for it in stems]:
                for position, impact in added.items():
                    sums[position] = sums.get(position, 0.0) + impact
            return sums
        scores = part.any(stems, part.spans(stems))
        return {position: score for position, score in enumerate(scores) if score}
