"""The best memories for a query among areas in memory."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from ..memory.ranking import FOLLOWING, GAINING, SENTENCE_DEPTH, Scored, combined
from .group import Stem, StemPiece, Weights, Where
from .query import MOST_TERMS, MOST_WORDS, Corrections
from .stems import Vocabulary

Hidden = Sequence[Collection[int]]
"""Of each area the places of memories that are left out."""

Sentences = Sequence[tuple[Sequence[Stem], float]]
"""The stems of each sentence, and what it weighs beside the others."""


class Ranking:
    """The rankings of one request among some areas of a group."""

    def __init__(
        self, parts: Sequence[Weights], vocabulary: Vocabulary, hidden: Hidden | None = None
    ) -> None:
        self._parts = parts
        self._vocabulary = vocabulary
        self._hidden = hidden or [()] * len(parts)
        self._where: list[Where] = [{} for _ in parts]
        # Of one area the places are ordered as the ids are, and cost less.
        self._lone = parts[0].area if len(parts) == 1 else None

    def look_up(self, stems: Iterable[Stem]) -> None:
        """Find where stems are in the areas, before the first lookup."""
        for part, where in zip(self._parts, self._where, strict=True):
            where.update(part.where(stems))

    def known(self, stems: Collection[Stem]) -> set[Stem]:
        """Those that a memory has, of stems that were looked up."""
        known: set[Stem] = set()
        for part, where in zip(self._parts, self._where, strict=True):
            known.update(where.keys() & stems)
            known.update(part.area.added.keys() & stems)
        return known

    def any(self, sentences: Sentences, limit: int) -> list[Scored]:
        """The best memories with any of the stems; the first gain by those that follow them.

        The stems were looked up.
        """
        if len(sentences) == 1:
            best = self._lowest(sentences[0][0], max(limit, GAINING))
        else:
            depth = max(limit, SENTENCE_DEPTH)
            lowest = [self._lowest(stems, depth) for stems, _ in sentences]
            best = combined(lowest, [weight for _, weight in sentences])
        first, others = best[:GAINING], best[GAINING : max(limit, GAINING)]
        best = [*self._with_gains(first), *others][:limit]
        return [(score, self._lone.ids[at]) for score, at in best] if self._lone else best

    def every(self, pieces: Sequence[StemPiece], limit: int) -> list[Scored]:
        """The best memories in whose own words every piece is.

        That are all parts of a piece, or one of its joined forms.
        """
        scored: list[Scored] = []
        for weights, hidden in zip(self._parts, self._hidden, strict=True):
            ids = weights.area.ids
            scored += [
                (-1.0 * total, ids[position])
                for position, total in weights.every(pieces).items()
                if position not in hidden
            ]
        return sorted(scored)[:limit]

    def corrections(self, words: Iterable[tuple[str, str]]) -> Corrections:
        """What words may have meant that no memory has, each with the form that is compared."""
        corrections: dict[str, tuple[str, ...]] = {}
        for word, form in islice(words, MOST_WORDS):
            near = self._vocabulary.near[form]
            counts = self.counts(near) if near else {}
            if len(counts) > MOST_TERMS:
                likely = sorted((-count, near[stem]) for stem, count in counts.items())
                corrections[word] = tuple([it for _, it in likely[:MOST_TERMS]])
            elif counts:
                corrections[word] = tuple(sorted([near[stem] for stem in counts]))
        return corrections

    def counts(self, stems: Collection[Stem]) -> dict[int, int]:
        """How many memories have each of the stems among their own words, if any."""
        counts: dict[int, int] = {}
        often = self._vocabulary.often_own
        for part in self._parts:
            area = part.area
            for stem in {*part.where(stems), *(it for it in stems if it in area.added)}:
                count = sum([often[code] > 0 for code in area.codes_of(stem)])
                if count:
                    counts[stem] = counts.get(stem, 0) + count
        return counts

    def _lowest(self, stems: Sequence[Stem], depth: int) -> list[Scored]:
        """The scores of the memories with any of the stems, best first; so many of them.

        Places stand for the ids of one area.
        """
        scored: list[Scored] = []
        for part, where, hidden in zip(self._parts, self._where, self._hidden, strict=True):
            names: Sequence[Any] = range(len(part.area.ids)) if self._lone else part.area.ids
            best = part.best(stems, where, depth, hidden)
            scored += [(-1.0 * it, names[position]) for it, position in best]
        scored.sort()
        return scored[:depth]

    def _with_gains(self, best: Sequence[Scored]) -> list[Scored]:
        """The best again, each with what those of them add that are the next two in its session."""
        next_, second = FOLLOWING
        gains: dict[int, float] = {}
        for area in [it.area for it in self._parts]:
            slots, ids, top = area.slots, area.ids, len(area.ids)
            if self._lone:
                by_slot = {slots[it[1]]: it for it in best}
            else:
                places = [(bisect_left(ids, it[1]), it) for it in best]
                by_slot = {slots[at]: it for at, it in places if at < top and ids[at] == it[1]}
            for slot, (_, id_) in by_slot.items():
                if slot + 1 in by_slot:
                    gains[id_] = next_ * by_slot[slot + 1][0]
                if slot + 2 in by_slot:
                    gains[id_] = gains.get(id_, 0.0) + second * by_slot[slot + 2][0]
        if not gains:
            return list(best)
        return sorted([(score + gains.get(id_, 0.0), id_) for score, id_ in best])
