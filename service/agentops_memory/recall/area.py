"""The index of one project in memory: the memories that have each stem, and their attributes."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice
from operator import itemgetter
from sys import byteorder
from typing import NamedTuple

from ..memory.memory import MemoryId
from .stems import Entry, Vocabulary

MAX_ADDED_SHARE = 0.25  # added postings per flat one, above which all are stored flat again
MIN_ADDED = 2_000  # fewer added postings are not worth storing flat
CODE_BITS = 32  # lower bits of a posting, the code; the upper ones are the memory's position
_CODE = (1 << CODE_BITS) - 1
_LITTLE = byteorder == "little"
SLOT_BITS = 32  # lower bits of a slot, the index within a session; the upper ones are its number
NO_SLOT = (1 << 64) - 1
POSTINGS_PER_BATCH = 65_536  # limits how many are Python integers at once

# Approximate bytes of a memory, a stem, an added posting and a rendered memory, with overhead.
MEMORY_BYTES, STEM_BYTES, ADDED_BYTES, RENDERED_BYTES = 280, 12, 60, 140

Session = tuple[int, str]
"""The space and the id of a session; ids are unique only within a space."""


class Row(NamedTuple):
    """A memory in the full-text index, without its stems."""

    id: MemoryId
    space: int
    session: str | None
    created_at: int  # microseconds since 1970, like the other times
    expires_at: int | None
    pinned_at: int | None
    superseded_by: tuple[int, ...] = ()  # the expiry of each memory that supersedes it


Draft = tuple["Area", dict[str, list[int]]]
"""An area and its postings by stem; the stems have no numbers yet."""


def drafted(number: int, memories: Iterable[tuple[Row, str]], vocabulary: Vocabulary) -> Draft:
    """Build an area from rows in the order of ids, each with its stored stems. Thread-safe.

    Raises ValueError if stored stems are malformed.
    """
    area, postings, codes = Area(number), dict[str, list[int]](), vocabulary.codes
    get = postings.get
    for index, (row, stored) in enumerate(memories):
        length, position = 0, index << CODE_BITS
        for line in stored.split("\n") if stored else ():
            counts, *stems = line.split(" ")
            code, words = codes.get(counts) or vocabulary.code_of(counts)
            length += words * len(stems)
            posting = position | code
            for stem in stems:
                known = get(stem)
                if known is None:
                    postings[stem] = [posting]
                else:
                    known.append(posting)
        area.append(row, length)
    return area, postings


class Area:
    """The memories of a project, or the global ones, as of one state of the database.

    Each memory has a position. Postings are in flat arrays by stem, which fit the processor's
    cache; later ones are kept separately until there are many.
    """

    def __init__(self, number: int) -> None:
        self.number = number
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
        self._sessions: dict[Session, int] = {}
        self._in_session: list[array[int]] = []  # memories by session number, ascending
        self.set_postings((), ())

    @property
    def size(self) -> int:
        added = ADDED_BYTES * self._added_count
        per_posting = self.positions.itemsize + self.codes.itemsize + 8  # its score takes 8
        flat = STEM_BYTES * len(self.stems) + per_posting * len(self.positions)
        return MEMORY_BYTES * len(self.ids) + flat + added + self.rendered_size

    def remember(self, rendered: dict[MemoryId, bytes], memory: MemoryId, line: bytes) -> None:
        """Cache a rendered memory in `lines` or `hits`."""
        rendered[memory] = line
        self.rendered_size += RENDERED_BYTES + len(line)

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

    def has(self, memory: MemoryId) -> bool:
        return self.index_of(memory) is not None

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

    def span(self, stem: int) -> tuple[int, int, int] | None:
        """Return a stem's index in `stems` and the bounds of its flat postings, or None."""
        stems = self.stems
        at = bisect_left(stems, stem)
        if at == len(stems) or stems[at] != stem:
            return None
        return at, self.starts[at], self.starts[at + 1]

    def count(self, stem: int) -> int:
        span, added = self.span(stem), self.added.get(stem)
        return (span[2] - span[1] if span else 0) + (len(added) if added else 0)

    def codes_of(self, stem: int) -> Iterable[int]:
        span = self.span(stem)
        flat: Sequence[int] = self.codes[span[1] : span[2]] if span else ()
        added = self.added.get(stem)
        return chain(flat, (it & _CODE for it in added)) if added else flat

    def session_of(self, memory: MemoryId) -> int | None:
        """Return the number of the memory's session, or None if it has none or is elsewhere."""
        at = self.index_of(memory)
        if at is None or self.slots[at] == NO_SLOT:
            return None
        return self.slots[at] >> SLOT_BITS

    def second_after(self, memory: MemoryId) -> MemoryId | None:
        session, index = divmod(self.slots[bisect_left(self.ids, memory)], 1 << SLOT_BITS)
        ids = self._in_session[session]
        return MemoryId(ids[index + 2]) if index + 2 < len(ids) else None

    def add(self, row: Row, entry: Entry, vocabulary: Vocabulary) -> list[tuple[int, int]]:
        """Add a new memory, which is the newest; return the numbers and codes of its stems."""
        position = len(self.ids)
        self._newest_first, self._hidden = None, (1, 0, frozenset())
        self.append(row, entry.length)
        numbers, pairs = vocabulary.numbers, list[tuple[int, int]]()
        vocabulary.add(
            stem
            for _, stems in entry.stems
            for stem in stems
            if (number := numbers.get(stem)) is None
            or (number not in self.added and self.span(number) is None)
        )
        for packed, stems in entry.stems:
            counts = f"{packed:x}"
            code, _ = vocabulary.codes.get(counts) or vocabulary.code_of(counts)
            pairs += [(numbers[stem], code) for stem in stems]
        for stem, code in pairs:
            self.added.setdefault(stem, array("Q")).append(position << CODE_BITS | code)
        self._added_count += len(pairs)
        if self._added_count > max(MAX_ADDED_SHARE * len(self.positions), MIN_ADDED):
            every = [(it, self._postings(it)) for it in self.stem_numbers()]
            self.set_postings(*zip(*every, strict=True))
        return pairs

    def append(self, row: Row, length: int) -> None:
        """Append a memory of `length` words, newer than all others, without its postings."""
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
        if row.superseded_by:
            self.superseded_by[position] = row.superseded_by
        if row.session is None:
            self.slots.append(NO_SLOT)
            return
        number = self._sessions.setdefault((row.space, row.session), len(self._in_session))
        if number == len(self._in_session):
            self._in_session.append(array("Q"))
        ids = self._in_session[number]
        self.slots.append(number << SLOT_BITS | len(ids))
        ids.append(row.id)

    def _postings(self, stem: int) -> list[int]:
        span = self.span(stem)
        flat = [
            self.positions[at] << CODE_BITS | self.codes[at]
            for at in (range(span[1], span[2]) if span else ())
        ]
        return [*flat, *self.added.get(stem, ())]

    def set_postings(self, stems: Iterable[int], postings: Iterable[Sequence[int]]) -> None:
        """Replace all postings, given by stem, with flat arrays."""
        in_order = sorted(zip(stems, postings, strict=True), key=itemgetter(0))
        self.stems = array("I", [it for it, _ in in_order])
        self.starts = array("I", accumulate([len(it) for _, it in in_order], initial=0))
        positions, codes = array("I"), array("I")
        every = chain.from_iterable([it for _, it in in_order])
        # Slices split postings into their halves without a Python integer for each.
        while batch := array("Q", islice(every, POSTINGS_PER_BATCH)):
            halves = array("I", batch.tobytes())
            positions.extend(halves[_LITTLE::2])
            codes.extend(halves[not _LITTLE :: 2])
        self.positions, self.codes = _narrow(positions), _narrow(codes)
        self.added: dict[int, array[int]] = {}
        self._added_count = 0


def _narrow(numbers: "array[int]") -> "array[int]":
    """Copy numbers into an array of the smallest item size that fits, without spare capacity."""
    halves = array("H", numbers.tobytes())
    if any(halves[_LITTLE::2]):
        return array("I", numbers)
    return halves[not _LITTLE :: 2]


def position_and_code(posting: int) -> tuple[int, int]:
    return posting >> CODE_BITS, posting & _CODE
