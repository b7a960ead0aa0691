"""The memories of a project in memory: where each stem stands, and what tells them apart."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice
from operator import itemgetter
from sys import byteorder
from typing import NamedTuple

from ..memory.memory import MemoryId
from .stems import Entry, Vocabulary

MOST_ADDED = 0.25  # of an area's postings, that may lie beside the flat ones
LEAST_ADDED = 2_000  # postings that are not worth storing flat again
CODE_BITS = 32  # of a posting's 64; its place in the area has the rest
_CODE = (1 << CODE_BITS) - 1
_LITTLE = byteorder == "little"
SLOT_BITS = 32  # of 64: the place within a session; the session's number has the rest
NO_SLOT = (1 << 64) - 1
AT_ONCE = 65_536  # postings that are numbers of Python meanwhile

# Bytes of memory, about, with the share of the allocator.
MEMORY_BYTES, STEM_BYTES, ADDED_BYTES, LINE_BYTES = 280, 12, 60, 140

Session = tuple[int, str]
"""The space and the id of a session: in another space it is another."""


class Row(NamedTuple):
    """A memory that the full-text index holds, without its stems."""

    id: MemoryId
    space: int
    session: str | None
    created_at: int  # microseconds, as are the others
    expires_at: int | None
    pinned_at: int | None
    superseded_by: tuple[int, ...] = ()  # when the memories expire that supersede it


Draft = tuple["Area", dict[str, list[int]]]
"""An area, and its postings by stem, which have no numbers yet."""


def drafted(number: int, memories: Iterable[tuple[Row, str]], vocabulary: Vocabulary) -> Draft:
    """An area as it is read, by any thread, in the order of ids, each with its stored stems.

    A ValueError for stems that nobody has stored so.
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
        area.put(row, length)
    return area, postings


class Area:
    """The memories of a project, or the global ones, as one state of the database has them.

    A memory lies at a place. Its postings lie in flat arrays by stem, which fit the processor's
    cache; what was added since lies beside them until it is much.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.ids: list[MemoryId] = []  # by place, ascending
        self.lengths = array("I")
        self.words = 0
        self.spaces = array("Q")
        self.created_at = array("q")
        self.expires_at: dict[int, int] = {}
        self.pinned_at: dict[int, int] = {}
        self.superseded_by: dict[int, tuple[int, ...]] = {}
        self.lines: dict[MemoryId, bytes] = {}  # as a context has them
        self.hits: dict[MemoryId, bytes] = {}  # and in a search
        self.rendered_size = 0  # of both, in bytes, about
        self._hidden: tuple[int, int, frozenset[int]] = (1, 0, frozenset())  # from, until, places
        self._newest_first: list[int] | None = None
        self.slots = array("Q")  # of its session, by place: a memory that follows has the next
        self._sessions: dict[Session, int] = {}
        self._in_session: list[array[int]] = []  # the memories of each, ascending
        self.store((), ())

    @property
    def size(self) -> int:
        added = ADDED_BYTES * self._added_count
        of_posting = self.places.itemsize + self.codes.itemsize + 8  # and what it adds to a score
        flat = STEM_BYTES * len(self.stems) + of_posting * len(self.places)
        return MEMORY_BYTES * len(self.ids) + flat + added + self.rendered_size

    def remember(self, rendered: dict[MemoryId, bytes], memory: MemoryId, line: bytes) -> None:
        """Keep a line of this memory, in `lines` or `hits`."""
        rendered[memory] = line
        self.rendered_size += LINE_BYTES + len(line)

    def forget_rendered(self) -> int:
        """Keep no line; the bytes that they took."""
        size, self.rendered_size = self.rendered_size, 0
        self.lines, self.hits = {}, {}
        return size

    def numbers(self) -> set[int]:
        return {*self.stems, *self.added}

    def index_of(self, memory: int) -> int | None:
        at = bisect_left(self.ids, memory)
        return at if at < len(self.ids) and self.ids[at] == memory else None

    def has(self, memory: MemoryId) -> bool:
        return self.index_of(memory) is not None

    def hidden(self, now: int) -> frozenset[int]:
        """The places of what has expired, or is superseded, at an instant in microseconds."""
        since, until, hidden = self._hidden
        if since <= now < until:
            return hidden
        ends = [*self.expires_at.values(), *chain.from_iterable(self.superseded_by.values())]
        hidden = frozenset(
            {at for at, end in self.expires_at.items() if end <= now}
            | {at for at, them in self.superseded_by.items() if any(it > now for it in them)}
        )
        since = max((it for it in ends if it <= now), default=-(1 << 63))
        until = min((it for it in ends if it > now), default=1 << 63)
        self._hidden = since, until, hidden
        return hidden

    def newest_first(self) -> list[int]:
        """The places in the order of their creation, the newest first."""
        if self._newest_first is None:
            created_at, ids = self.created_at, self.ids
            self._newest_first = sorted(
                range(len(ids)), key=lambda at: (created_at[at], ids[at]), reverse=True
            )
        return self._newest_first

    def span(self, stem: int) -> tuple[int, int, int] | None:
        """Where a stem is among the stems, and its postings among the flat ones."""
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
        """The number of its session, if it is here and has one."""
        at = self.index_of(memory)
        if at is None or self.slots[at] == NO_SLOT:
            return None
        return self.slots[at] >> SLOT_BITS

    def second_after(self, memory: MemoryId) -> MemoryId | None:
        session, index = divmod(self.slots[bisect_left(self.ids, memory)], 1 << SLOT_BITS)
        ids = self._in_session[session]
        return MemoryId(ids[index + 2]) if index + 2 < len(ids) else None

    def add(self, row: Row, entry: Entry, vocabulary: Vocabulary) -> list[tuple[int, int]]:
        """Put in a new memory, the newest of all; its stems' numbers and codes."""
        position = len(self.ids)
        self._newest_first, self._hidden = None, (1, 0, frozenset())
        self.put(row, entry.length)
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
        if self._added_count > max(MOST_ADDED * len(self.places), LEAST_ADDED):
            self.store(*zip(*[(it, self._postings(it)) for it in self.numbers()], strict=True))
        return pairs

    def put(self, row: Row, length: int) -> None:
        """Put in a memory of so many words, the newest of all, without its postings."""
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
            self.places[at] << CODE_BITS | self.codes[at]
            for at in (range(span[1], span[2]) if span else ())
        ]
        return [*flat, *self.added.get(stem, ())]

    def store(self, stems: Iterable[int], postings: Iterable[Sequence[int]]) -> None:
        """Let these be all postings, by stem, in flat arrays."""
        in_order = sorted(zip(stems, postings, strict=True), key=itemgetter(0))
        self.stems = array("I", [it for it, _ in in_order])
        self.starts = array("I", accumulate([len(it) for _, it in in_order], initial=0))
        places, codes = array("I"), array("I")
        every = chain.from_iterable([it for _, it in in_order])
        # By halves: C takes a posting apart, with no number of Python for each part.
        while some := array("Q", islice(every, AT_ONCE)):
            words = array("I", some.tobytes())
            places.extend(words[_LITTLE::2])
            codes.extend(words[not _LITTLE :: 2])
        self.places, self.codes = _narrow(places), _narrow(codes)
        self.added: dict[int, array[int]] = {}
        self._added_count = 0


def _narrow(numbers: "array[int]") -> "array[int]":
    """The same in an array that is no larger than it has to be, and has no room to grow."""
    halves = array("H", numbers.tobytes())
    if any(halves[_LITTLE::2]):
        return array("I", numbers)
    return halves[not _LITTLE :: 2]


def position_and_code(posting: int) -> tuple[int, int]:
    return posting >> CODE_BITS, posting & _CODE
