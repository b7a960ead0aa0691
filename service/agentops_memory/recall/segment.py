"""Stored areas of the index: how many memories have each stem, and the memories with postings."""

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from struct import Struct
from sys import byteorder
from typing import NamedTuple

from ..memory.memory import MemoryId
from .stems import likely_in, may_be_one_edit

_WIDE = 65_536  # the first number that takes four bytes
_KEY = 8  # bytes of a stem's key: its first ones
_SIZES = Struct("<II")  # stems, and first letters


class Statistics(NamedTuple):
    """What ranking in other areas needs of an area: how many memories have each stem."""

    last: MemoryId  # the newest memory
    memories: int
    words: int
    stems: bytes  # as `StemLines` has them
    counts: bytes  # of the memories with each stem, then of those with it in their own words

    @property
    def checksum(self) -> int:
        numbers = repr((self.last, self.memories, self.words)).encode()
        return zlib.crc32(self.counts, zlib.crc32(self.stems, zlib.crc32(numbers)))


class Segment(NamedTuple):
    """The memories of an area with their postings, in the order of the statistics' stems."""

    head: str  # JSON: weights and types and sizes of the arrays; then counts by code, and sessions
    arrays: bytes

    @property
    def checksum(self) -> int:
        return zlib.crc32(self.arrays, zlib.crc32(self.head.encode()))


class StemLines:
    """The sorted stems of an area, which are searched as they are stored.

    The text has a space around each stem. Before it are the key of each stem and, for each first
    letter, the letter and where its stems begin.
    """

    def __init__(self, stored: bytes) -> None:
        """Read them; raises ValueError if they are malformed."""
        if len(stored) < _SIZES.size:
            raise ValueError("An area has no stems.")
        letters: int
        self.count: int
        self.count, letters = _SIZES.unpack_from(stored)
        keys_end = _SIZES.size + _KEY * self.count
        numbers, end = array("I"), keys_end + 2 * 4 * letters
        self._keys = array("Q")
        self._keys.frombytes(stored[_SIZES.size : keys_end])
        numbers.frombytes(stored[keys_end:end])
        self._keys, numbers = little(self._keys), little(numbers)
        self._text, self._letters, self._begins = stored[end:], numbers[:letters], numbers[letters:]
        self._begins.append(len(self._text) - 1)

    @property
    def size(self) -> int:
        return len(self._text) + _KEY * self.count

    def all(self) -> list[str]:
        return self._text.decode().split()

    def some(self, begin: int, most: int) -> tuple[list[str], int]:
        """Return about `most` stems from an offset in the text on, and the next offset."""
        end = self._text.find(b" ", begin + _KEY * most)
        end = len(self._text) if end < 0 else end
        return self._text[begin:end].decode().split(), end

    def indexes_of(self, stems: Iterable[str]) -> list[int | None]:
        keys, top, indexes = self._keys, self.count, list[int | None]()
        for key, spaced, letter in map(_searched, stems):
            at = bisect_left(keys, key)
            if at == top or keys[at] != key:
                indexes.append(None)
            elif len(spaced) <= _KEY + 1:  # it would be the only stem with this key
                indexes.append(at)
            else:
                indexes.append(self._index_among(at, spaced, letter))
        return indexes

    def _index_among(self, first: int, spaced: bytes, letter: int) -> int | None:
        """Return the index of a stem among those of its key, of which `first` is the first."""
        begin, end = self._line(letter)
        found_at = self._text.find(spaced, begin, end)
        if found_at < 0:
            return None
        begin = self._text.find(spaced[: _KEY + 1], begin, found_at + _KEY + 1)
        return first + self._text.count(b" ", begin, found_at)

    def near(self, form: str) -> set[str]:
        """Return the stems whose form may be one edit from this one."""
        begin, end = self._line(ord(form[0]))
        likely = likely_in(self._text[begin:end].decode(), form)
        return {it for it in likely if may_be_one_edit(form, it)}

    def _line(self, letter: int) -> tuple[int, int]:
        """Return the bounds of the stems with a first letter, with the spaces around them."""
        line = bisect_left(self._letters, letter)
        if line == len(self._letters) or self._letters[line] != letter:
            return 0, 0
        return self._begins[line], self._begins[line + 1] + 1


def stored_stems(stems: Iterable[str]) -> bytes:
    """Return sorted stems as `StemLines` has them."""
    letters, begins = array("I"), array("I")
    keys, lines, length = array("Q"), [b" "], 0
    for letter, its in groupby(stems, itemgetter(0)):
        spaced = [f"{it} ".encode() for it in its]
        letters.append(ord(letter))
        begins.append(length)
        keys.extend(map(_key, spaced))
        lines += spaced
        length += sum(map(len, spaced))
    sizes = _SIZES.pack(len(keys), len(letters))
    numbers = little(letters).tobytes() + little(begins).tobytes()
    return sizes + little(keys).tobytes() + numbers + b"".join(lines)


@lru_cache(1024)  # each is searched in all areas of a group
def _searched(stem: str) -> tuple[int, bytes, int]:
    """Return the key of a stem, the stem as it is stored, and its first letter."""
    spaced = f" {stem} ".encode()
    return _key(spaced[1:]), spaced, ord(stem[0])


def _key(stem: bytes) -> int:
    """Return the first bytes of a stem, which a space follows, as a number in the same order."""
    return int.from_bytes(stem[:-1][:_KEY].ljust(_KEY, b"\0"), "big")


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

    def are_of(self, ids: Sequence[MemoryId]) -> bool:
        """Whether these memories, loaded later, are the same; changes would have removed this."""
        return bool(ids) and (self.last, self.memories) == (ids[-1], len(ids))

    def counts(self, stems: Mapping[int, str], *, own: bool) -> Iterable[int]:
        """Count the memories with each stem, given with its text, in all words or in own words."""
        counts = self._counts[own]
        return [0 if it is None else counts[it] for it in self.stems.indexes_of(stems.values())]


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
