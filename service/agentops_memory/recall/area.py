"""The index of one project in memory: the memories that have each stem, and their attributes."""

import json
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, groupby, islice, pairwise, repeat
from operator import itemgetter
from struct import Struct
from sys import byteorder
from typing import NamedTuple, Union, cast

from ..memory.memory import MemoryId
from ..memory.search import WEIGHTS, Scored
from .stems import COUNTED, Entry, Vocabulary, groups_of, likely_in, may_be_one_edit

_KEY = 8  # bytes of a stem's key: its first ones
_SIZES = Struct("II")  # stems, and first letters


class Statistics(NamedTuple):
    """What ranking in other areas needs of an area: how many memories have each stem."""

    last: MemoryId  # the newest memory
    memories: int
    words: int
    stems: bytes  # as `stored_stems` returns them
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


class StoredStems:
    """The sorted stems of an area, which are searched as they are stored.

    The text has a space around each stem. Before it are the key of each stem and, for each first
    letter, the letter and where its stems begin.
    """

    def __init__(self, stored: bytes) -> None:
        """Read them; raises ValueError if they are malformed."""
        self.count, letters = _SIZES.unpack_from(stored) if len(stored) >= _SIZES.size else (1, 0)
        keys_end = _SIZES.size + _KEY * self.count
        end = keys_end + 2 * 4 * letters
        if end >= len(stored):  # cut off, or from a machine of another byte order
            raise ValueError("The stems of an area are malformed.")
        self._keys, numbers = array("Q", stored[_SIZES.size : keys_end]), stored[keys_end:end]
        self._letters, self._begins = (array("I", it) for it in halved(numbers))
        self._text = stored[end:]
        self._begins.append(len(self._text) - 1)

    @property
    def size(self) -> int:
        return len(self._text) + _KEY * len(self._keys)

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
        begin, end = self._bounds_of(letter)
        found_at = self._text.find(spaced, begin, end)
        if found_at < 0:
            return None
        begin = self._text.find(spaced[: _KEY + 1], begin, found_at + _KEY + 1)
        return first + self._text.count(b" ", begin, found_at)

    def near(self, form: str) -> set[str]:
        """Return the stems whose form may be one edit from this one."""
        begin, end = self._bounds_of(ord(form[0]))
        likely = likely_in(self._text[begin:end].decode(), form)
        return {it for it in likely if may_be_one_edit(form, it)}

    def _bounds_of(self, letter: int) -> tuple[int, int]:
        """Return the bounds of the stems with a first letter, with the spaces around them."""
        at = bisect_left(self._letters, letter)
        if at == len(self._letters) or self._letters[at] != letter:
            return 0, 0
        return self._begins[at], self._begins[at + 1] + 1


def stored_stems(stems: Iterable[str]) -> bytes:
    """Return sorted stems as `StoredStems` reads them."""
    letters, begins = array("I"), array("I")
    keys, text, length = array("Q"), [b" "], 0
    for letter, its in groupby(stems, itemgetter(0)):
        spaced = [f"{it} ".encode() for it in its]
        letters.append(ord(letter))
        begins.append(length)
        keys.extend(map(_key, spaced))
        text += spaced
        length += sum(map(len, spaced))
    sizes = _SIZES.pack(len(keys), len(letters))
    numbers = letters.tobytes() + begins.tobytes()
    return sizes + keys.tobytes() + numbers + b"".join(text)


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
        self.stems = StoredStems(stored.stems)
        is_short = len(stored.counts) < 8 * self.stems.count
        # In all words, and in own words.
        self._counts = [array("H" if is_short else "I", it) for it in halved(stored.counts)]
        if {*map(len, self._counts)} != {self.stems.count}:
            raise ValueError("The counts are not those of the stems.")

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


def halved(numbers: bytes) -> tuple[bytes, bytes]:
    return numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]


def stored_counts(counts: Iterable[int], own: Iterable[int]) -> bytes:
    every = [*counts, *own]
    return array("H" if max(every, default=0) < 65_536 else "I", every).tobytes()


MAX_ADDED_SHARE = 0.25  # added postings per flat one, above which all are stored flat again
MIN_ADDED = 2_000  # fewer added postings are not worth storing flat
CODE_BITS = 32  # lower bits of a posting, the code; the upper ones are the memory's position
_CODE = (1 << CODE_BITS) - 1
_LITTLE = byteorder == "little"
SLOT_BITS = 32  # lower bits of a slot, the index within a session; the upper ones are its number
NO_SLOT = (1 << 64) - 1
FEW_SPANS = 16  # one in so many is inserted by itself, more are sorted
POSTINGS_PER_BATCH = 65_536  # limits how many are Python integers at once

# Approximate bytes of a memory, a stem, an added posting and a rendered memory, with overhead.
MEMORY_BYTES, STEM_BYTES, ADDED_BYTES, RENDERED_BYTES = 280, 16, 60, 140

Numbers = Union["array[int]", memoryview]
"""Numbers of an area's postings: a view of its segment until all stems have numbers."""

Span = tuple[int, int]
"""The bounds of a stem's postings in the flat arrays."""


class Row(NamedTuple):
    """A memory in the full-text index, without its stems."""

    id: MemoryId
    space: int
    session: str | None
    created_at: int  # microseconds since 1970, like the other times
    expires_at: int | None = None
    pinned_at: int | None = None


def drafted(
    number: int,
    memories: Iterable[tuple[Row, Entry]],
    stored: tuple[StemCounts, Segment] | None = None,
) -> "Area":
    """Build an area from a segment, and from later rows by id, each with its entry.

    Raises ValueError if anything stored is malformed.
    """
    area, rows = Area(number), iter(memories)
    if stored is not None:
        area.read(*stored)
    first = next(rows, None)
    if stored is not None and first is None:
        return area
    postings: dict[str, list[int]] = dict(area.unnumbered())
    get = postings.get
    for row, entry in chain([first] if first else [], rows):
        length, position = 0, len(area.ids) << CODE_BITS
        for counts, *stems in groups_of(entry):
            code = area.code_of(counts)
            length += area.words_by_code[code] * len(stems)
            posting = position | code
            for stem in stems:
                known = get(stem)
                if known is None:
                    postings[stem] = [posting]
                else:
                    known.append(posting)
        area.append(row, length)
    area.set_unnumbered(postings)
    return area


class Area:
    """The memories of a project, or the global ones, as of one state of the database.

    Each memory has a position. Postings are in flat arrays by stem, which fit the processor's
    cache; later ones are kept separately until there are many.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        # By code, which stands for a stem's counts in a memory's fields: the counts as stored,
        # their sum, and the stem's weighted frequency in all words, and in own words.
        self._codes: dict[str, int] = {}
        self.words_by_code = array("I")
        self.frequencies, self.own_frequencies = array("d"), array("d")
        self._unnumbered: StoredStems | None = None
        self._next = 0, 0  # of `_unnumbered`: the next stem to number, and its offset
        self._bounds = array("I")
        self._unread = ""  # JSON of a segment that only new memories need: codes and sessions
        self.ids: list[MemoryId] = []  # by position, ascending
        self.lengths = array("I")
        self.words = 0
        self.spaces = array("Q")
        self.created_at = array("q")
        self.expires_at: dict[int, int] = {}
        self.pinned_at: dict[int, int] = {}
        self.superseded_by: dict[int, tuple[int, ...]] = {}
        self.lines: dict[MemoryId, bytes] = {}  # rendered for a context
        self.hits: dict[MemoryId, bytes] = {}  # rendered for a search
        self.rendered_size = 0  # approximate bytes of both
        self._hidden: tuple[int, int, frozenset[int]] = (1, 0, frozenset())  # since, until
        self._newest_first: list[int] | None = None
        self.slots = array("Q")  # by position; the next memory of a session has the next slot
        self._sessions: dict[tuple[int, str], int] = {}  # the next slot of each, by space and id
        self._set_postings(())
        self._set_spans(())

    @property
    def memories(self) -> int:
        return len(self.ids)

    @property
    def size(self) -> int:
        added = ADDED_BYTES * self._added_count
        per_posting = self.positions.itemsize + self.codes.itemsize + 8  # its score takes 8
        flat = STEM_BYTES * len(self.stems) + per_posting * len(self.positions)
        lines = 4 * len(self._bounds) + self._unnumbered.size if self._unnumbered else 0
        return MEMORY_BYTES * len(self.ids) + flat + added + lines + self.rendered_size

    def remember(self, rendered: dict[MemoryId, bytes], memory: MemoryId, line: bytes) -> int:
        """Cache a rendered memory in `lines` or `hits`; return the bytes."""
        rendered[memory], size = line, RENDERED_BYTES + len(line)
        self.rendered_size += size
        return size

    def forget_rendered(self) -> int:
        """Drop all rendered memories; return the bytes freed."""
        size, self.rendered_size = self.rendered_size, 0
        self.lines, self.hits = {}, {}
        return size

    def stem_numbers(self) -> set[int]:
        return {*self.stems, *self.added}

    def index_of(self, memory: int) -> int | None:
        at = bisect_left(self.ids, memory)
        return at if at < len(self.ids) and self.ids[at] == memory else None

    def hidden(self, now: int) -> frozenset[int]:
        """Return the positions of expired and superseded memories at `now`, in microseconds."""
        since, until, hidden = self._hidden
        if since <= now < until:
            return hidden
        times = [*self.expires_at.values(), *chain.from_iterable(self.superseded_by.values())]
        hidden = frozenset(
            {at for at, expiry in self.expires_at.items() if expiry <= now}
            | {at for at, each in self.superseded_by.items() if any(it > now for it in each)}
        )
        since = max((it for it in times if it <= now), default=-(1 << 63))
        until = min((it for it in times if it > now), default=1 << 63)
        self._hidden = since, until, hidden
        return hidden

    def newest_first(self) -> list[int]:
        """Return the positions by time of creation, newest first."""
        if self._newest_first is None:
            created_at, ids = self.created_at, self.ids
            self._newest_first = sorted(
                range(len(ids)), key=lambda at: (created_at[at], ids[at]), reverse=True
            )
        return self._newest_first

    def span(self, stem: int) -> Span | None:
        """Return the bounds of a numbered stem's flat postings, or None."""
        stems = self.stems
        at = bisect_left(stems, stem)
        if at == len(stems) or stems[at] != stem:
            return None
        return self.starts[at], self.ends[at]

    def counts(self, stems: Mapping[int, str], *, own: bool) -> Iterator[int]:
        """Count the memories with each stem, given with its text, in all words or in own words."""
        numbered = {it: self.span(it) for it in stems}
        others = self._spans_of([stems[it] for it, span in numbered.items() if span is None])
        for stem, span in numbered.items():
            start, end = span or next(others) or (0, 0)
            added = self.added.get(stem, ())
            if not own:
                yield end - start + len(added)
                continue
            flat: Sequence[int] = self.codes[start:end]
            codes = chain(flat, (it & _CODE for it in added))
            yield sum([self.own_frequencies[it] > 0 for it in codes])

    def by_slot(self, scored: Iterable[Scored]) -> dict[int, Scored]:
        """Return those of the memories that are in the area, by their slots."""
        ids, slots, top = self.ids, self.slots, len(self.ids)
        places = [(bisect_left(ids, it[1]), it) for it in scored]
        return {slots[at]: it for at, it in places if at < top and ids[at] == it[1]}

    def add(self, row: Row, entry: Entry, vocabulary: Vocabulary) -> list[tuple[int, int]]:
        """Add a new memory, which is the newest; return the numbers and codes of its stems."""
        self.number_all(vocabulary)
        position = len(self.ids)
        self._newest_first, self._hidden = None, (1, 0, frozenset())
        groups = [(self.code_of(counts), stems) for counts, *stems in groups_of(entry)]
        self.append(row, sum(self.words_by_code[code] * len(stems) for code, stems in groups))
        numbers = vocabulary.numbers
        vocabulary.add(
            stem
            for _, stems in groups
            for stem in stems
            if (number := numbers.get(stem)) is None
            or (number not in self.added and self.span(number) is None)
        )
        pairs = [(numbers[stem], code) for code, stems in groups for stem in stems]
        for stem, code in pairs:
            self.added.setdefault(stem, array("Q")).append(position << CODE_BITS | code)
        self._added_count += len(pairs)
        if self._added_count > max(MAX_ADDED_SHARE * len(self.positions), MIN_ADDED):
            every = sorted(self.stem_numbers())
            bounds = self._set_postings([self._postings(it) for it in every])
            self._set_spans([*zip(every, bounds, bounds[1:], strict=False)])
        return pairs

    def append(self, row: Row, length: int) -> None:
        """Append a memory of `length` words, newer than all others, without its postings."""
        self._read_all()
        position = len(self.ids)
        self.ids.append(row.id)
        self.lengths.append(length)
        self.words += length
        self.spaces.append(row.space)
        self.created_at.append(row.created_at)
        if row.expires_at is not None:
            self.expires_at[position] = row.expires_at
        if row.pinned_at is not None:
            self.pinned_at[position] = row.pinned_at
        if row.session is None:
            self.slots.append(NO_SLOT)
            return
        session = row.space, row.session
        slot = self._sessions.get(session, len(self._sessions) << SLOT_BITS)
        self.slots.append(slot)
        self._sessions[session] = slot + 1

    def _postings(self, stem: int) -> list[int]:
        span = self.span(stem)
        flat = [
            self.positions[at] << CODE_BITS | self.codes[at]
            for at in (range(*span) if span else ())
        ]
        return [*flat, *self.added.get(stem, ())]

    def code_of(self, counts: str) -> int:
        """Return the code of counts as stored; ValueError if they are malformed."""
        self._read_all()
        code = self._codes.get(counts)
        if code is None:
            words, weighted, own = COUNTED[counts]
            code = self._codes[counts] = len(self._codes)
            self.words_by_code.append(words)
            self.frequencies.append(weighted)
            self.own_frequencies.append(own)
        return code

    def _set_postings(self, in_order: Sequence[Sequence[int]]) -> "array[int]":
        """Replace all postings, given by stem, with flat arrays; return where each stem begins."""
        positions, codes = array("I"), array("I")
        every = chain.from_iterable(in_order)
        # Slices split postings into their halves without a Python integer for each.
        while batch := array("Q", islice(every, POSTINGS_PER_BATCH)):
            halves = array("I", batch.tobytes())
            positions.extend(halves[_LITTLE::2])
            codes.extend(halves[not _LITTLE :: 2])
        self.positions: Numbers = _narrow(positions)
        self.codes: Numbers = _narrow(codes)
        self.added: dict[int, array[int]] = {}
        self._added_count = 0
        return array("I", accumulate(map(len, in_order), initial=0))

    # An area is loaded without numbers, as most of its stems are in no prompt: until all have one,
    # `_unnumbered` has the stems, and `_bounds` where the postings of each begin.

    def number_all(self, vocabulary: Vocabulary) -> None:
        """Number all stems. This and the following need the vocabulary's lock."""
        while self._unnumbered is not None:
            self.number_some(vocabulary, self._unnumbered.count)

    def number_some(self, vocabulary: Vocabulary, most: int) -> None:
        """Number about `most` further stems, by their order."""
        if self._unnumbered is None:
            return
        at, offset = self._next
        stems, offset = self._unnumbered.some(offset, most)
        self._next = at + len(stems), offset
        bounds = self._bounds[at : at + len(stems) + 1]
        self._number(zip(stems, pairwise(bounds), strict=False), vocabulary)
        if at + len(stems) == self._unnumbered.count:
            self._unnumbered, self._bounds, self._next = None, array("I"), (0, 0)
            self.positions, self.codes = map(_as_array, (self.positions, self.codes))

    def number_stems(self, stems: Iterable[str], vocabulary: Vocabulary) -> None:
        """Number those of the stems that the area has, as the words of a prompt need it."""
        if self._unnumbered is not None:
            every = list(stems)
            spans = zip(every, self._spans_of(every), strict=True)
            self._number([(stem, span) for stem, span in spans if span], vocabulary)

    def _number(self, spans: Iterable[tuple[str, Span]], vocabulary: Vocabulary) -> None:
        number_of, span_of = vocabulary.number, self.span
        fresh = {stem: span for stem, span in spans if span_of(number_of(stem)) is None}
        numbers = vocabulary.add(fresh)
        new = [(number, *span) for number, span in zip(numbers, fresh.values(), strict=True)]
        if len(new) * FEW_SPANS > len(self.stems):
            known = zip(self.stems, self.starts, self.ends, strict=True)
            self._set_spans(sorted(chain(known, new)))
            return
        for number, start, end in new:
            at = bisect_left(self.stems, number)
            self.stems.insert(at, number)
            self.starts.insert(at, start)
            self.ends.insert(at, end)

    def number_near(self, form: str, vocabulary: Vocabulary) -> None:
        """Number the stems whose form may be one edit from this one."""
        if self._unnumbered is not None:
            self.number_stems(self._unnumbered.near(form), vocabulary)

    @property
    def is_numbered(self) -> bool:
        return self._unnumbered is None

    def set_unnumbered(self, postings: dict[str, list[int]]) -> None:
        """Set the postings of stems that have no numbers yet."""
        stems = sorted(filter(None, postings))  # a lone accent is an empty stem
        self._bounds = self._set_postings([postings[it] for it in stems])
        self._set_spans(())
        self._unnumbered = StoredStems(stored_stems(stems))

    def unnumbered(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each stem with its postings, of an area without numbers."""
        stems = self._unnumbered.all() if self._unnumbered else []
        for stem, start, end in zip(stems, self._bounds, self._bounds[1:], strict=False):
            pairs = zip(self.positions[start:end], self.codes[start:end], strict=True)
            yield stem, [position << CODE_BITS | code for position, code in pairs]

    def _set_spans(self, spans: Sequence[tuple[int, int, int]]) -> None:
        stems, starts, ends = zip(*spans, strict=True) if spans else ((), (), ())
        self.stems, self.starts, self.ends = array("I", stems), array("I", starts), array("I", ends)

    def _spans_of(self, stems: Collection[str]) -> Iterator[Span | None]:
        """Yield the span of each stem, or None if the area has no such stem without a number."""
        bounds, unnumbered = self._bounds, self._unnumbered
        for at in unnumbered.indexes_of(stems) if unnumbered else repeat(None, len(stems)):
            yield None if at is None else (bounds[at], bounds[at + 1])

    def segment(self) -> tuple[Statistics, Segment]:
        """Return the area as it is stored; it has a memory, and its stems have no numbers yet."""
        self._read_all()
        stems = self._unnumbered.all() if self._unnumbered else []
        bounds, codes, tf = self._bounds, self.codes, self.own_frequencies
        spans = pairwise(bounds)
        own = [sum([tf[it] > 0 for it in codes[start:end]]) for start, end in spans]
        counts = stored_counts(map(int.__sub__, bounds[1:], bounds), own)
        statistics = Statistics(
            self.ids[-1], len(self.ids), self.words, stored_stems(stems), counts
        )
        by_code = sorted(self._codes)  # whatever the order of the lines
        new_code = {self._codes[it]: code for code, it in enumerate(by_code)}
        of_codes = [COUNTED[it] for it in by_code]
        sums, weighted, of_own = zip(*of_codes, strict=True) if of_codes else ((), (), ())
        columns = [
            array("q", self.ids), self.created_at, self.spaces, self.slots, self.lengths,
            self._bounds, array("I", sums), array("d", weighted), array("d", of_own),
            _as_array(self.positions),
            array(memoryview(codes).format, map(new_code.__getitem__, codes)),
        ]  # fmt: skip
        read_first = [WEIGHTS, [[it.typecode, len(it)] for it in columns]]
        head = "\n".join(map(json.dumps, (read_first, [by_code, list(self._sessions)])))
        return statistics, Segment(head, b"".join(it.tobytes() for it in columns))

    def read(self, counts: StemCounts, segment: Segment) -> None:
        """Fill the empty area with a segment; raises ValueError if it is malformed."""
        first, _, self._unread = segment.head.partition("\n")
        weights, numbers = json.loads(first)
        columns, stored, at = list[memoryview](), memoryview(segment.arrays), 0
        for typecode, length in numbers:
            end = at + length * array(typecode).itemsize
            columns.append(stored[at:end].cast(typecode))
            at = end
        # Copying the postings takes longer than the first prompt's reading of some of them.
        *others, self.positions, self.codes = columns
        (ids, self.created_at, self.spaces, self.slots, self.lengths, self._bounds,
         self.words_by_code, *frequencies) = map(_as_array, others)  # fmt: skip
        self.frequencies, self.own_frequencies = cast(list["array[float]"], frequencies)
        self.ids, self.words = cast(list[MemoryId], ids.tolist()), counts.words
        self._unnumbered = counts.stems
        if (
            len(self._bounds) != counts.stems.count + 1
            or len(ids) != counts.memories
            or tuple(weights) != WEIGHTS
        ):
            raise ValueError("A segment is not that of its statistics.")

    def _read_all(self) -> None:
        """Read what only new memories need of a segment."""
        if self._unread:
            by_code, sessions = json.loads(self._unread)
            self._unread = ""
            self._codes = {it: code for code, it in enumerate(by_code)}
            next_slots = {slot >> SLOT_BITS: slot + 1 for slot in self.slots}  # the last counts
            self._sessions = {
                (space, id_): next_slots[at] for at, (space, id_) in enumerate(sessions)
            }


def _as_array(numbers: Numbers) -> "array[int]":
    """Return numbers, of which a view is as they are stored."""
    return numbers if isinstance(numbers, array) else array(numbers.format, numbers.tobytes())


def _narrow(numbers: "array[int]") -> "array[int]":
    """Copy numbers into an array of the smallest item size that fits, without spare capacity."""
    halves = array("H", numbers.tobytes())
    if any(halves[_LITTLE::2]):
        return array("I", numbers)
    return halves[not _LITTLE :: 2]


def position_and_code(posting: int) -> tuple[int, int]:
    return posting >> CODE_BITS, posting & _CODE
