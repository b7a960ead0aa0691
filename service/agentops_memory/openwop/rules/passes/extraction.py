"""The rule `extract-1`: what a few sources say, within a number of bytes. Pure.

Integers alone decide, and nothing depends on the order of a set: the same sources and cap give
the same bytes everywhere.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from heapq import heapify, heappop, heappush
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

from ....engine.callbacks import noop
from ....recall.text.query import STOPWORDS
from .rest import Resting
from .units import Unit, units

ELLIPSIS = "..."

_PREFIX = len("- YYYY-MM-DD: ")
_DATED = re.compile(r"- ([0-9]{4}-[0-9]{2}-[0-9]{2}): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A text and the day it was written; an archive has a day of its own on each line."""

    content: str
    day: date
    is_archive: bool = False


def extract(sources: Sequence[Source], cap: int, rest: Resting = noop) -> str:
    """The lines of the sources, oldest first, that say the most within `cap` bytes.

    Every line's end counts, the last one's too. Where no line fits, or all words are stop words,
    it is the best line, cut if it is longer than the cap. Empty if the sources have no word, or
    the cap has no place for the first character of that line's unit.
    """
    said = []
    for at, source in enumerate(sources):
        said.append(_said(at, source))
        rest()
    lines = _distinct(said)
    if not lines:
        return ""
    choice = _Choice(lines, _weights(said), rest)
    best = lines[choice.best()]
    taken = choice.taken(cap)
    return "\n".join(lines[at].text for at in sorted(taken)) if taken else _cut(best, cap)


def has_words(sources: Iterable[Source]) -> bool:
    """Whether there is anything to extract."""
    return any(_said(0, source) for source in sources)


class _Line(NamedTuple):
    """A unit, the place of its source among the others, and its day."""

    unit: Unit
    source: int
    day: date

    @property
    def text(self) -> str:
        return f"- {self.day.isoformat()}: {self.unit.text}"


class _Choice:
    """Which lines are taken: by what each adds, for each of its bytes.

    What a line adds only ever falls, so a heap of what each once added has the best on top as
    soon as the topmost one's figure is still true.
    """

    def __init__(self, lines: Sequence[_Line], weights: Mapping[str, int], rest: Resting) -> None:
        self._lines = lines
        self._rest = rest
        self._weights = weights
        self._sizes = [_PREFIX + len(line.unit.text.encode()) + len("\n") for line in lines]
        self._gains = list[int]()
        self._holders = defaultdict[str, list[int]](list)
        for at, line in enumerate(lines):
            rest()
            words = set(line.unit.words) - STOPWORDS
            self._gains.append(sum(map(weights.__getitem__, words)))
            for word in words:
                self._holders[word].append(at)
        # Two different fractions of such denominators lie at least 1 / scale apart, so their
        # order is that of these whole numbers, and equal ones are equal.
        self._scale = max(self._sizes) ** 2
        self._heap = [self._ranked(at) for at in range(len(lines))]
        heapify(self._heap)

    def best(self) -> int:
        """The line that would be taken first if there were no cap."""
        return self._heap[0][-1]

    def taken(self, cap: int) -> list[int]:
        """Those that are taken within so many bytes, in the order of taking."""
        taken = list[int]()
        smallest = min(self._sizes)
        while self._heap and cap >= smallest:
            self._rest()
            ranked = heappop(self._heap)
            at = ranked[-1]
            if not self._gains[at] or self._sizes[at] > cap:
                continue
            now = self._ranked(at)
            if now != ranked:
                heappush(self._heap, now)
                continue
            taken.append(at)
            cap -= self._sizes[at]
            self._cover(self._lines[at].unit.words)
        return taken

    def _ranked(self, at: int) -> tuple[int, int, int]:
        """Smaller is better: what it adds for its bytes, the newer source, the earlier place."""
        adds = self._gains[at] * self._scale // self._sizes[at]
        return -adds, -self._lines[at].source, at

    def _cover(self, words: Iterable[str]) -> None:
        for word in words:
            weight = self._weights[word]
            for holder in self._holders.pop(word, ()):
                self._gains[holder] -= weight


def _said(at: int, source: Source) -> list[_Line]:
    """The units of a source, in order."""
    if not source.is_archive:
        return [_Line(unit, at, source.day) for unit in units(source.content)]
    dated = (_undated(line, source.day) for line in source.content.splitlines())
    return [
        _Line(unit, at, day)
        for day, lines in groupby(dated, key=itemgetter(1))
        for unit in units("\n".join(line for line, _ in lines))
    ]


def _undated(line: str, day: date) -> tuple[str, date]:
    """An archive's line without its own date, and that date; else the day of the archive."""
    prefix = _DATED.match(line)
    if prefix is None:
        return line, day
    try:
        return line[prefix.end() :], date.fromisoformat(prefix[1])
    except ValueError:
        return line, day


def _distinct(said: Iterable[Sequence[_Line]]) -> list[_Line]:
    """The lines in order; of those with equal words the last one."""
    last = dict[tuple[str, ...], _Line]()
    for line in chain.from_iterable(said):
        last.pop(line.unit.words, None)
        last[line.unit.words] = line
    return list(last.values())


def _weights(said: Iterable[Sequence[_Line]]) -> Counter[str]:
    """In how many sources each word stands."""
    weights = Counter[str]()
    for lines in said:
        weights.update(set(chain.from_iterable(line.unit.words for line in lines)))
    return weights


def _cut(line: _Line, cap: int) -> str:
    """The line within the cap, cut at a code point; empty if nothing of its unit has place."""
    text = line.text.encode()
    if len(text) <= cap:
        return line.text
    kept = text[: max(cap - len(ELLIPSIS), 0)].decode(errors="ignore")
    return kept + ELLIPSIS if len(kept) > _PREFIX else ""
