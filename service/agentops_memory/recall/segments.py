"""The areas of the index as they are stored, to be loaded without work for each posting."""

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from struct import Struct
from sys import byteorder
from typing import NamedTuple

from ..memory.memory import MemoryId
from .stems import likely_in, may_be_one_edit

_WIDE = 65_536  # the first number that takes four bytes
_LETTER = 21  # bits of a letter in a prefix, which has two
_LINE = 16  # bytes of a line in the index
_SIZES = Struct("<II")  # lines, and stems


class Statistics(NamedTuple):
    """What ranking in other areas needs of an area: how many memories have each stem."""

    last: MemoryId  # the newest memory
    memories: int
    words: int
    stems: bytes  # as `StemLines` has them
    counts: bytes  # of the memories with each stem, then of those with it in their own words

    @property
    def checksum(self) -> int:
        return zlib.crc32(self.counts, zlib.crc32(self.stems))


class Segment(NamedTuple):
    """The memories of an area with their postings, in the order of the statistics' stems."""

    head: str  # JSON: counts by code, sessions, the numbers and the types of the arrays
    arrays: bytes

    @property
    def checksum(self) -> int:
        return zlib.crc32(self.arrays, zlib.crc32(self.head.encode()))


class StemLines:
    """The sorted stems of an area, which are searched as they are stored.

    The text has a line for each prefix, with a space around each stem. An index of the lines
    precedes it: prefixes, the index of each line's first stem, and where it begins.
    """

    def __init__(self, stored: bytes) -> None:
        """Read them; raises ValueError if they are malformed."""
        lines, self.count = _SIZES.unpack_from(stored)
        self._text = stored[_SIZES.size + lines * _LINE :]
        self._prefixes, at = array("Q"), _SIZES.size + 8 * lines
        self._prefixes.frombytes(stored[_SIZES.size : at])
        places = array("I")
        places.frombytes(stored[at : at + 8 * lines])
        self._prefixes, places = little(self._prefixes), little(places)
        self._firsts, self._begins = places[:lines], places[lines:]
        self._begins.append(len(self._text))

    @property
    def size(self) -> int:
        return len(self._text) + _LINE * len(self._prefixes)

    def all(self) -> list[str]:
        return self._text.decode().split()

    def index_of(self, stem: str) -> int | None:
        prefix, spaced = _searched(stem)
        line = bisect_left(self._prefixes, prefix)
        if line == len(self._prefixes) or self._prefixes[line] != prefix:
            return None
        begin = self._begins[line]
        place = self._text.find(spaced, begin, self._begins[line + 1])
        return None if place < 0 else self._firsts[line] + self._text.count(b" ", begin, place)

    def near(self, form: str) -> set[str]:
        """Return the stems whose form may be one edit from this one."""
        first, end = (
            self._begins[bisect_left(self._prefixes, (ord(form[0]) + it) << _LETTER)]
            for it in range(2)
        )
        line = self._text[first:end].decode().replace(" \n ", " ")
        return {it for it in likely_in(line, form) if may_be_one_edit(form, it)}


def stored_stems(stems: Iterable[str]) -> bytes:
    """Return sorted stems as `StemLines` has them."""
    prefixes, firsts, begins, lines = array("Q"), [0], [0], list[bytes]()
    for prefix, its in groupby(stems, _key):
        prefixes.append(prefix)
        words = list(its)
        lines.append(f" {' '.join(words)} \n".encode())
        firsts.append(firsts[-1] + len(words))
        begins.append(begins[-1] + len(lines[-1]))
    places = array("I", [*firsts[:-1], *begins[:-1]])
    index = little(prefixes).tobytes() + little(places).tobytes()
    return _SIZES.pack(len(lines), firsts[-1]) + index + b"".join(lines)


@lru_cache(1024)  # each is searched in all areas of a group
def _searched(stem: str) -> tuple[int, bytes]:
    """Return the prefix of a stem, and the stem as it is stored."""
    return _key(stem), f" {stem} ".encode()


def _key(stem: str) -> int:
    """Return the prefix of a stem as a number."""
    return ord(stem[0]) << _LETTER | (ord(stem[1]) if len(stem) > 1 else 0)


class StemCounts:
    """The statistics of an area that no prompt has asked for yet."""

    def __init__(self, number: int, stored: Statistics, state: int = 0) -> None:
        """Read them; raises ValueError if they are malformed."""
        self.number = number
        self.state = state  # of the stored area
        self.last, self.memories, self.words = stored.last, stored.memories, stored.words
        self.stems = StemLines(stored.stems)
        self._counts = _counts_of(stored.counts, self.stems.count)

    @property
    def size(self) -> int:
        return self.stems.size + sum(len(it) * it.itemsize for it in self._counts)

    def count(self, _: int, text: str, *, own: bool) -> int:
        """Count the memories with a stem, which is `text`, in all words or in own words."""
        at = self.stems.index_of(text)
        return 0 if at is None else self._counts[own][at]


def _counts_of(stored: bytes, stems: int) -> "tuple[array[int], array[int]]":
    """Return the counts of each stem in all words, and in own words; ValueError for others."""
    counts = array("H" if len(stored) < 8 * stems else "I")
    counts.frombytes(stored)
    if len(counts) != 2 * stems:
        raise ValueError("The counts are not those of the stems.")
    counts = little(counts)
    return counts[:stems], counts[stems:]


def stored_counts(counts: Iterable[int], own: Iterable[int]) -> bytes:
    every = [*counts, *own]
    return little(array("H" if max(every, default=0) < _WIDE else "I", every)).tobytes()


def little(numbers: "array[int]") -> "array[int]":
    """Return the numbers with the lowest byte first, as stored, or back."""
    if byteorder == "little":
        return numbers
    swapped = numbers[:]
    swapped.byteswap()
    return swapped
