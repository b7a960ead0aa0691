"""The stems of a memory and of a database, each a small number, and what a typo may have meant."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

from ...memory.model.ranking import frequency
from ...memory.model.search import Field
from ..text.query import is_one_edit

Packed = int
"""How often a stem stands in each field, `COUNT` bits a field, the title lowest."""

COUNT = 24  # bits: no stored text has so many words
_OWN = tuple(it is not Field.CONTEXT for it in Field)  # a memory borrows its context


class Entry(NamedTuple):
    """The stems of a memory by their counts, and its length in words."""

    length: int
    stems: Sequence[tuple[Packed, Sequence[str]]]

    @classmethod
    def of_fields(cls, fields: Sequence[Sequence[str]]) -> "Entry":
        """The entry of the stems of each field, in their order."""
        counts: dict[str, Packed] = {}
        for at, stems in enumerate(fields):
            one = 1 << COUNT * at
            for stem in stems:
                counts[stem] = counts.get(stem, 0) + one
        return cls.of_counts(sum(map(len, fields)), counts)

    @classmethod
    def of_counts(cls, length: int, counts: Mapping[str, Packed]) -> "Entry":
        by_count: dict[Packed, list[str]] = {}
        for stem, packed in counts.items():
            by_count.setdefault(packed, []).append(stem)
        return cls(length, list(by_count.items()))

    @property
    def stored(self) -> str:
        """As it is stored: a line for each of the counts, with its stems."""
        return "\n".join(f"{packed:x} {' '.join(stems)}" for packed, stems in self.stems)

    @classmethod
    def loaded(cls, stored: str) -> "Entry":
        """The entry that was stored; a ValueError if it is none."""
        stems: list[tuple[Packed, list[str]]] = []
        length = 0
        for line in stored.split("\n") if stored else ():
            counts, *of_line = line.split(" ")
            packed = int(counts, 16)
            stems.append((packed, of_line))
            length += _total(packed) * len(of_line)
        return cls(length, stems)

    @property
    def counts(self) -> dict[str, Packed]:
        return {stem: packed for packed, stems in self.stems for stem in stems}

    def all_stems(self) -> Iterator[str]:
        for _, stems in self.stems:
            yield from stems


def frequencies(packed: Packed, weights: Iterable[float]) -> tuple[float, float]:
    """How often a stem stands in a memory, by the weights of the fields; and in its own words."""
    counts, weights = _counts(packed), tuple(weights)
    own = tuple(it * is_own for it, is_own in zip(counts, _OWN, strict=True))
    return frequency(counts, weights), frequency(own, weights)


@lru_cache(65_536)  # a few counts are those of most stems
def _total(packed: Packed) -> int:
    return sum(_counts(packed))


def _counts(packed: Packed) -> tuple[int, ...]:
    return tuple(packed >> COUNT * field & (1 << COUNT) - 1 for field in range(len(_OWN)))


UNKNOWN = -1  # instead of the number of a stem that no memory in memory has
MOST_FORMS = 16_384  # words whose neighbors are remembered in each of two generations

TermsOf = Callable[[Iterable[str]], Mapping[str, str]]
"""The term that stands for each of some stems where typos are looked for, if one does."""


class Vocabulary:
    """Numbers for stems and for how often one stands in the fields of a memory.

    A stem is forgotten when no project in memory has it, so that erased words leave with it.
    All but `code` is used under the lock of the index.
    """

    def __init__(self, terms_of: TermsOf, weights: tuple[float, ...]) -> None:
        self.numbers: dict[str, int] = {}
        self.codes: dict[Packed, int] = {}
        self.often, self.often_own = array("d"), array("d")  # by code
        self.gone = 0  # how often stems were forgotten
        self.unknown: dict[str, list[int]] = {}  # words of prompts, by their stems without number
        self.came: list[tuple[int, int]] = []  # those of them whose stems have numbers since
        self._terms_of = terms_of
        self._weights = weights
        self._stems: list[str] = []  # by number
        self._terms: list[str] = []  # by number
        self._uses = array("I")  # how many areas have the stem, by number
        self._free: list[int] = []
        self._coding = Lock()  # projects are read by other threads
        self._by_start: dict[tuple[str, int], set[int]] = {}  # first letter and length of the term
        self._near: dict[str, tuple[int, ...]] = {}
        self._near_before: dict[str, tuple[int, ...]] = {}

    def number(self, stem: str) -> int:
        return self.numbers.get(stem, UNKNOWN)

    def code(self, packed: Packed) -> int:
        code = self.codes.get(packed)
        if code is not None:
            return code
        often, own = frequencies(packed, self._weights)
        with self._coding:
            if packed not in self.codes:
                self.often.append(often)
                self.often_own.append(own)
                self.codes[packed] = len(self.codes)
            return self.codes[packed]

    def add(self, stems: Iterable[str], terms: Mapping[str, str] | None = None) -> list[int]:
        """The numbers of an area's stems, in their order; new ones for those that have none.

        The terms that are known need not be looked up here.
        """
        numbers, new, found = self.numbers, list[str](), list[int]()
        for stem in stems:
            number = numbers.get(stem)
            if number is None:
                number = self._new(stem)
                new.append(stem)
            self._uses[number] += 1
            found.append(number)
        if new:
            known = terms or {}
            looked_up = self._terms_of([it for it in new if it not in known])
            for stem in new:
                term = known.get(stem) or looked_up.get(stem)
                if not term:
                    continue
                number = numbers[stem]
                self._terms[number] = term
                self._by_start.setdefault((term[0], len(term)), set()).add(number)
            self._near, self._near_before = {}, {}
        return found

    def pairs(self, entry: Entry) -> list[tuple[int, int]]:
        """The number and the code of each stem of an entry; all have numbers."""
        numbers = self.numbers
        return [
            (numbers[stem], code)
            for packed, stems in entry.stems
            for code in (self.code(packed),)
            for stem in stems
        ]

    def remove(self, numbers: Iterable[int]) -> None:
        """An area has these stems no longer."""
        uses, gone = self._uses, []
        for number in numbers:
            uses[number] -= 1
            if not uses[number]:
                gone.append(number)
        for number in gone:
            del self.numbers[self._stems[number]]
            if term := self._terms[number]:
                self._by_start[term[0], len(term)].discard(number)
            self._stems[number] = self._terms[number] = ""
        self._free += gone
        if gone:
            self.gone += 1
            self._near, self._near_before = {}, {}

    def near(self, form: str) -> tuple[int, ...]:
        """The stems whose term is one edit from a word with the same first letter."""
        near = self._near.get(form)
        if near is None:
            near = self._near_before.get(form)
            if near is None:
                near = self._one_edit_away(form)
            if len(self._near) >= MOST_FORMS:
                self._near, self._near_before = {}, self._near
            self._near[form] = near
        return near

    def term(self, number: int) -> str:
        return self._terms[number]

    @property
    def size(self) -> int:
        return 260 * len(self.numbers) + 150 * (len(self._near) + len(self._near_before))

    def _one_edit_away(self, form: str) -> tuple[int, ...]:
        length = len(form)
        # One edit leaves the first or the second half as it is.
        head, tail = form[: length // 2], form[length // 2 + 1 - length :]
        return tuple(
            number
            for size in (length - 1, length, length + 1)
            for number in self._by_start.get((form[0], size), ())
            if ((term := self._terms[number]).startswith(head) or term.endswith(tail))
            and is_one_edit(form, term)
        )

    def _new(self, stem: str) -> int:
        if self._free:
            number = self._free.pop()
            self._stems[number] = stem
        else:
            number = len(self._stems)
            self._stems.append(stem)
            self._terms.append("")
            self._uses.append(0)
        self.numbers[stem] = number
        if stem in self.unknown:
            self.came += [(word, number) for word in self.unknown.pop(stem)]
        return number
