"""The best memories for a query among areas in memory."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ...memory.model.ranking import (
    FOLLOWING,
    GAINING,
    SENTENCE_DEPTH,
    Scored,
    combined,
)
from ..text.spelling import MOST_TERMS, MOST_WORDS
from .area import Area, Session
from .group import Stem, StemPiece, Weights
from .vocabulary import Vocabulary

Hidden = Sequence[Collection[int]]
"""Of each area the places of memories that are left out."""

Sentences = Sequence[tuple[Sequence[Stem], float]]
"""The stems of each sentence, and what it weighs beside the others."""

Corrections = Mapping[str, tuple[str, ...]]

_BY_ID = itemgetter(1)


class Ranking:
    """The rankings of one request among some areas of a group."""

    def __init__(
        self, parts: Sequence[Weights], vocabulary: Vocabulary, hidden: Hidden | None = None
    ) -> None:
        self._parts = parts
        self._vocabulary = vocabulary
        self._hidden = hidden or [()] * len(parts)

    def any(self, sentences: Sentences, limit: int) -> list[Scored]:
        """The best memories with any of the stems; the first gain by those that follow them."""
        if len(sentences) == 1:
            best = self._lowest(sentences[0][0], max(limit, GAINING))
        else:
            depth = max(limit, SENTENCE_DEPTH)
            lowest = [self._lowest(stems, depth) for stems, _ in sentences]
            best = combined(lowest, [weight for _, weight in sentences])
        first, others = best[:GAINING], best[GAINING : max(limit, GAINING)]
        return [*self._with_gains(first), *others][:limit]

    def every(self, pieces: Sequence[StemPiece], limit: int) -> list[Scored]:
        """The best memories in whose own words every piece is.

        That are all parts of a piece, or one of its joined forms.
        """
        scored: list[Scored] = []
        for weights, hidden in zip(self._parts, self._hidden, strict=True):
            ids = weights.area.ids
            scored += [
                (-1.0 * total, ids[place])
                for place, total in weights.every(pieces).items()
                if place not in hidden
            ]
        return sorted(scored)[:limit]

    def corrections(self, words: Sequence[tuple[str, str, str]]) -> Corrections:
        """What the words may have meant that no memory has, each with its stem and its form."""
        corrections: dict[str, tuple[str, ...]] = {}
        left, vocabulary = MOST_WORDS, self._vocabulary
        known = [(it.area.stems, it.area.added) for it in self._parts]
        for word, stem, form in words:
            number = vocabulary.numbers.get(stem)
            if number is not None:
                for stems, added in known:
                    at = bisect_left(stems, number)
                    if (at < len(stems) and stems[at] == number) or number in added:
                        break
                else:
                    number = None
            if number is not None:
                continue
            if not left:
                break
            left -= 1
            near = [it for it in vocabulary.near(form) if self._count(it, enough=1)]
            if len(near) > MOST_TERMS:
                counts = {vocabulary.term(it): self._count(it) for it in near}
                likely = sorted(counts, key=lambda term: (-counts[term], term))[:MOST_TERMS]
                corrections[word] = tuple(likely)
            elif near:
                corrections[word] = tuple(sorted(map(vocabulary.term, near)))
        return corrections

    def _count(self, stem: int, enough: int | None = None) -> int:
        """How many memories have a stem among their own words, or that enough have."""
        count, often = 0, self._vocabulary.often_own
        for part in self._parts:
            for code in part.area.codes_of(stem):
                count += often[code] > 0
                if count == enough:
                    return count
        return count

    def _lowest(self, stems: Sequence[Stem], depth: int) -> list[Scored]:
        """The scores of the memories with any of the stems, best first; so many of them."""
        totals: list[float] = []
        sums_of: list[Any] = []
        for weights, hidden in zip(self._parts, self._hidden, strict=True):
            sums = weights.any(stems)
            for place in hidden:
                sums[place] = 0.0
            sums_of.append(sums)
            totals += sums if isinstance(sums, list) else _largest(sums, depth)
        least = sorted(totals)[-depth] if len(totals) > depth else 0.0
        best: list[Scored] = []
        for weights, sums in zip(self._parts, sums_of, strict=True):
            ids = weights.area.ids
            if not isinstance(sums, list):
                at = (sums >= least if least > 0.0 else sums).nonzero()[0]
                found = zip(at.tolist(), sums[at].tolist(), strict=True)
                best += [(-1.0 * it, ids[place]) for place, it in found]
            elif least > 0.0:
                best += [(-1.0 * it, ids[place]) for place, it in enumerate(sums) if it >= least]
            else:
                best += [(-1.0 * it, ids[place]) for place, it in enumerate(sums) if it]
        best.sort()
        return best[:depth]

    def _with_gains(self, best: Sequence[Scored]) -> list[Scored]:
        """The best again, each with what those add that follow it in its session."""
        sessions: dict[Session, list[Scored]] = {}
        areas: dict[Session, Area] = {}
        for part in self._parts:
            session_of = part.area.session_of.get
            for it in best:
                session = session_of(it[1])
                if session is not None:
                    if session in sessions:
                        sessions[session].append(it)
                    else:
                        sessions[session], areas[session] = [it], part.area
        scores = {id_: score for score, id_ in best}
        first, next_ = FOLLOWING
        for key, members in sessions.items():
            if len(members) < 2:
                continue
            members.sort(key=_BY_ID)
            ids = areas[key].in_session[key]
            for at in range(len(members) - 1):
                id_ = members[at][1]
                place = bisect_right(ids, id_) + 1
                second = ids[place] if place < len(ids) else None
                added: float = 0
                for score, other in members[at + 1 : at + 3]:
                    if second is None or other <= second:
                        added += (next_ if other == second else first) * score
                scores[id_] += added
        return sorted([(score, id_) for id_, score in scores.items()])


def _largest(sums: Any, depth: int) -> list[float]:
    if len(sums) <= depth:
        return list(sums.tolist())
    sums = sums.copy()
    sums.partition(len(sums) - depth)
    return list(sums[-depth:].tolist())
